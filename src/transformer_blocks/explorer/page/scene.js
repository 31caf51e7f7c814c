// Scene: a list of shapes, which is painted on a canvas or written as SVG.

const FONT_FAMILY = '"explorer", system-ui, sans-serif';
const fontOf = (size, weight = "normal") => `${weight} ${size}px ${FONT_FAMILY}`;
const measuring = new OffscreenCanvas(1, 1).getContext("2d");
function textWidth(text, size, weight) {
  measuring.font = fontOf(size, weight);
  return measuring.measureText(text).width;
}

// Letters that stand upright in vertical text: those of Chinese, Japanese and Korean.
const UPRIGHT = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\u30fc\uff00-\uffef]+$/u;
const isUpright = text => UPRIGHT.test(text);

class Scene {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.shapes = [];
  }
  rect(x, y, width, height, {fill = "none", stroke = "none", line = 1, radius = 0, opacity = 1} = {}) {
    this.shapes.push({kind: "rect", x, y, width, height, fill, stroke, line, radius, opacity});
  }
  path(d, {stroke = "none", fill = "none", line = 1, opacity = 1} = {}) {
    this.shapes.push({kind: "path", d, stroke, fill, line, opacity});
  }
  // Text at (x, y), the middle of its height. With `upright`, letters stand below each other and
  // (x, y) is the middle of the last one's lower edge, so that a label ends above its column.
  text(x, y, text, {size = 12, fill, anchor = "start", angle = 0, upright = false, room = Infinity, weight = "normal"} = {}) {
    this.shapes.push({kind: "text", x, y, text, size, fill, anchor, angle, upright, room, weight});
  }
  // A grid of coloured cells; colours are numbers as in an ImageData's Uint32Array.
  cells(x, y, cellWidth, cellHeight, rows, columns, colours) {
    this.shapes.push({kind: "cells", x, y, cellWidth, cellHeight, rows, columns, colours});
  }
}

function paint(scene, context) {
  for (const shape of scene.shapes) PAINTERS[shape.kind](context, shape);
}

const PAINTERS = {
  rect(context, {x, y, width, height, fill, stroke, line, radius, opacity}) {
    context.globalAlpha = opacity;
    context.beginPath();
    context.roundRect(x, y, width, height, radius);
    if (fill !== "none") { context.fillStyle = fill; context.fill(); }
    if (stroke !== "none") { context.strokeStyle = stroke; context.lineWidth = line; context.stroke(); }
    context.globalAlpha = 1;
  },
  path(context, {d, stroke, fill, line, opacity}) {
    const path = new Path2D(d);
    context.globalAlpha = opacity;
    if (fill !== "none") { context.fillStyle = fill; context.fill(path); }
    if (stroke !== "none") { context.strokeStyle = stroke; context.lineWidth = line; context.stroke(path); }
    context.globalAlpha = 1;
  },
  text(context, {x, y, text, size, fill, anchor, angle, upright, room, weight}) {
    context.font = fontOf(size, weight);
    context.fillStyle = fill;
    context.textBaseline = "middle";
    if (upright) {
      const letters = [...text], step = Math.min(size * 1.05, room / letters.length);
      context.textAlign = "center";
      letters.forEach((letter, i) => context.fillText(letter, x, y - (letters.length - i - .5) * step));
      return;
    }
    context.textAlign = {start: "left", middle: "center", end: "right"}[anchor];
    context.save();
    context.translate(x, y);
    context.rotate(angle * Math.PI / 180);
    if (room === Infinity) context.fillText(text, 0, 0);
    else context.fillText(text, 0, 0, room);
    context.restore();
  },
  cells(context, {x, y, cellWidth, cellHeight, rows, columns, colours}) {
    if (!rows || !columns) return;
    const image = new ImageData(columns, rows), small = new OffscreenCanvas(columns, rows);
    new Uint32Array(image.data.buffer).set(colours);
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, x, y, cellWidth * columns, cellHeight * rows);
  },
};

// Fit a canvas to a scene, in the resolution of the screen, and paint it.
function show(scene, canvas) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(scene.width * scale);
  canvas.height = Math.round(scene.height * scale);
  canvas.style.width = `${scene.width}px`;
  canvas.style.height = `${scene.height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.clearRect(0, 0, scene.width, scene.height);
  paint(scene, context);
}
