// Scene: a list of shapes, which is painted on a canvas.

import {lettersIn} from "./data.js";

const FONT_FAMILY = '"explorer", system-ui, sans-serif';
const fontOf = (size, weight = "normal") => `${weight} ${size}px ${FONT_FAMILY}`;
const measuring = new OffscreenCanvas(1, 1).getContext("2d");
export function textWidth(text, size, weight) {
  measuring.font = fontOf(size, weight);
  return measuring.measureText(text).width;
}

// The largest number from 0 to `count` that fits, where each smaller one fits too.
export function mostThatFit(count, fits) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (fits(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Letters that stand upright in vertical text: those of Chinese, Japanese and Korean.
const UPRIGHT = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\u30fc\uff00-\uffef]+$/u;
export const isUpright = text => UPRIGHT.test(text);

// In vertical text, long vowel marks and brackets lie on their side, and some letters stand further to the right and above.
const ROTATED = /[\u30fc\u301c\uff5e\u2026\u2014\uff08\uff09\u3008-\u3011\u3014\u3015\uff3b\uff3d\uff5b\uff5d\uff1a\uff1b\uff1d]/;
const RAISED = {"、": .6, "。": .6, "，": .6, "．": .6};
for (const letter of "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮ") RAISED[letter] = .1;

export class Scene {
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
  // All shapes of another scene, with its corner at (x, y) and `scale` times as large.
  add(scene, x, y, scale = 1) {
    this.shapes.push({kind: "scene", x, y, scale, shapes: scene.shapes});
  }
}

export function paint(scene, context) {
  for (const shape of scene.shapes) PAINT[shape.kind](context, shape);
}

// --- How each kind of shape is painted ------------------------------------------------------------------

// The letters of upright text, with the positions where their middles begin.
function lettersOf({x, y, text, size, room}) {
  const letters = lettersIn(text), step = Math.min(size * 1.05, room / letters.length);
  return letters.map((letter, i) => {
    const middle = y - (letters.length - i - .5) * step, half = textWidth(letter, size) / 2, moved = size * (RAISED[letter] ?? 0);
    return ROTATED.test(letter) ? {letter, x, y: middle - half, angle: 90} : {letter, x: x - half + moved, y: middle - moved, angle: 0};
  });
}

// Cells of equal values in a row are one run.
export function runsOf(values, rows, columns, use) {
  for (let row = 0; row < rows; row++) {
    for (let column = 0, next; column < columns; column = next) {
      const value = values[row * columns + column];
      for (next = column + 1; next < columns && values[row * columns + next] === value;) next++;
      use(value, row, column, next - column);
    }
  }
}

export const box = (x, y, width, height) => `M${x} ${y}h${width}v${height}h${-width}z`;  // as a part of a path

// Diagonal lines, which fill masked cells.
export function hatch(colour) {
  const tile = new OffscreenCanvas(8, 8), context = tile.getContext("2d");
  context.strokeStyle = colour;
  context.stroke(new Path2D("M-2 2L2 -2M0 8L8 0M6 10L10 6"));
  return context.createPattern(tile, "repeat");
}

function ink(context, {fill, stroke, line, opacity}, ...path) {
  context.globalAlpha = opacity;
  if (fill !== "none") { context.fillStyle = fill; context.fill(...path); }
  if (stroke !== "none") { context.strokeStyle = stroke; context.lineWidth = line; context.stroke(...path); }
  context.globalAlpha = 1;
}

const PAINT = {
  rect(context, shape) {
    context.beginPath();
    context.roundRect(shape.x, shape.y, shape.width, shape.height, shape.radius);
    ink(context, shape);
  },
  path(context, shape) { ink(context, shape, new Path2D(shape.d)); },
  text(context, shape) {
    const {x, y, text, size, fill, anchor, angle, upright, room, weight} = shape;
    const draw = (letters, x, y, angle, ...room) => {
      context.save();
      context.translate(x, y);
      context.rotate(angle * Math.PI / 180);
      context.fillText(letters, 0, 0, ...room);
      context.restore();
    };
    context.font = fontOf(size, weight);
    context.fillStyle = fill;
    context.textBaseline = "middle";
    context.textAlign = upright ? "left" : {start: "left", middle: "center", end: "right"}[anchor];
    if (upright) for (const letter of lettersOf(shape)) draw(letter.letter, letter.x, letter.y, letter.angle);
    else draw(text, x, y, angle, ...(room === Infinity ? [] : [room]));
  },
  cells(context, {x, y, cellWidth, cellHeight, rows, columns, colours}) {
    const image = new ImageData(columns, rows), small = new OffscreenCanvas(columns, rows);
    new Uint32Array(image.data.buffer).set(colours);
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, x, y, cellWidth * columns, cellHeight * rows);
  },
  scene(context, {x, y, scale, shapes}) {
    context.save();
    context.translate(x, y);
    context.scale(scale, scale);
    paint({shapes}, context);
    context.restore();
  },
};

// Fit a canvas to a scene, in the resolution of the screen, and paint it.
export function show(scene, canvas) {
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
