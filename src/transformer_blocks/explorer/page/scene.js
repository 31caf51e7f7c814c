// Scene: a list of shapes, which is painted on a canvas or written as SVG.
//
// SHAPES has both ways for each kind of shape, side by side: what changes in one changes in the other.

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

// A font's baseline below the middle of its em square, for size 1: SVG programs differ in "middle".
const BASELINE = (() => {
  measuring.font = fontOf(100);
  const [below, above] = ["alphabetic", "middle"].map(baseline => {
    measuring.textBaseline = baseline;
    return measuring.measureText("x").actualBoundingBoxAscent;
  });
  measuring.textBaseline = "alphabetic";
  return (below - above) / 100;
})();

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
  for (const shape of scene.shapes) SHAPES[shape.kind].paint(context, shape);
}

// Write a scene as the elements inside an <svg>.
function write(scene) {
  return scene.shapes.map(shape => SHAPES[shape.kind].write(shape)).join("");
}

// Write a scene as a file. SVG programs take the first font that they have; `fonts` is a style sheet
// with the page's own fonts, for letters that a reader's system may lack.
const SVG_FAMILY = "explorer, system-ui, 'Segoe UI', 'Helvetica Neue', 'Noto Sans', 'Noto Sans CJK JP', 'Hiragino Sans', 'Yu Gothic', 'Malgun Gothic', 'DejaVu Sans', sans-serif";
export function svgOf(scene, {title = "", description = "", fonts = ""} = {}) {
  const attributes = {
    xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${scene.width} ${scene.height}`, width: scene.width, height: scene.height,
    role: "img", "font-family": SVG_FAMILY,
  };
  return element("svg", attributes, [
    title && element("title", {}, escapeXml(title)),
    description && element("desc", {}, escapeXml(description)),
    fonts && element("style", {}, escapeXml(fonts)),
    write(scene),
  ].join(""));
}

// The page's own fonts that have letters of a text, as rules of a style sheet.
export function fontsFor(text) {
  const codes = new Set([...text].map(letter => letter.codePointAt(0)));
  const has = range => range.split(",").some(part => {
    const [first, last = first] = part.replace(/^\s*U\+/i, "").split("-").map(hex => Number.parseInt(hex, 16));
    return [...codes].some(code => first <= code && code <= last);
  });
  return [...document.styleSheets].flatMap(sheet => [...sheet.cssRules])
    .filter(rule => rule instanceof CSSFontFaceRule && has(rule.style.getPropertyValue("unicode-range")))
    .map(rule => rule.cssText).join("\n");
}
export const textsOf = scene => scene.shapes.map(shape =>
  shape.kind === "scene" ? textsOf(shape) : shape.text ?? "").join("\n");

// --- XML -----------------------------------------------------------------------------------------

// Characters that XML does not allow, lone surrogates among them.
const FORBIDDEN = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"};
const escapeXml = text => String(text).replace(FORBIDDEN, "\ufffd").replace(/[&<>"]/g, letter => ESCAPES[letter]);

const roundNumber = x => Math.round(100 * x) / 100;
const roundPath = d => d.replace(/-?\d+\.\d+(e-?\d+)?/g, text => roundNumber(Number(text)));

function element(name, attributes, content = "") {
  const written = Object.entries(attributes).filter(([, value]) => value !== undefined)
    .map(([key, value]) => ` ${key}="${escapeXml(typeof value === "number" ? roundNumber(value) : value)}"`).join("");
  return content === "" ? `<${name}${written}/>` : `<${name}${written}>${content}</${name}>`;
}
const inkOf = ({fill = "none", stroke = "none", line, opacity}) => ({
  fill, ...(stroke === "none" ? {} : {stroke, "stroke-width": line}), ...(opacity === 1 ? {} : {opacity}),
});

// --- What the two ways of a shape share ---------------------------------------------------------------

// The letters of upright text, with the positions where their baselines begin.
function lettersOf({x, y, text, size, room}) {
  const letters = lettersIn(text), step = Math.min(size * 1.05, room / letters.length);
  return letters.map((letter, i) => {
    const middle = y - (letters.length - i - .5) * step, half = textWidth(letter, size) / 2, moved = size * (RAISED[letter] ?? 0);
    if (ROTATED.test(letter)) return {letter, x: x - BASELINE * size, y: middle - half, angle: 90};
    return {letter, x: x - half + moved, y: middle + BASELINE * size - moved, angle: 0};
  });
}

// Cells of equal values in a row are one run.
function runsOf(values, rows, columns, use) {
  for (let row = 0; row < rows; row++) {
    for (let column = 0, next; column < columns; column = next) {
      const value = values[row * columns + column];
      for (next = column + 1; next < columns && values[row * columns + next] === value;) next++;
      use(value, row, column, next - column);
    }
  }
}

const SHAPES = {
  rect: {
    paint(context, {x, y, width, height, fill, stroke, line, radius, opacity}) {
      context.globalAlpha = opacity;
      context.beginPath();
      context.roundRect(x, y, width, height, radius);
      if (fill !== "none") { context.fillStyle = fill; context.fill(); }
      if (stroke !== "none") { context.strokeStyle = stroke; context.lineWidth = line; context.stroke(); }
      context.globalAlpha = 1;
    },
    write: shape => element("rect", {
      x: shape.x, y: shape.y, width: shape.width, height: shape.height, rx: shape.radius || undefined, ...inkOf(shape),
    }),
  },
  path: {
    paint(context, {d, stroke, fill, line, opacity}) {
      const path = new Path2D(d);
      context.globalAlpha = opacity;
      if (fill !== "none") { context.fillStyle = fill; context.fill(path); }
      if (stroke !== "none") { context.strokeStyle = stroke; context.lineWidth = line; context.stroke(path); }
      context.globalAlpha = 1;
    },
    write: shape => element("path", {d: roundPath(shape.d), ...inkOf(shape)}),
  },
  text: {
    paint(context, shape) {
      const {x, y, text, size, fill, anchor, angle, upright, room, weight} = shape;
      const draw = (letters, x, y, angle, offset, ...room) => {
        context.save();
        context.translate(x, y);
        context.rotate(angle * Math.PI / 180);
        context.fillText(letters, 0, offset, ...room);
        context.restore();
      };
      context.font = fontOf(size, weight);
      context.fillStyle = fill;
      context.textBaseline = "alphabetic";
      context.textAlign = upright ? "left" : {start: "left", middle: "center", end: "right"}[anchor];
      if (upright) for (const letter of lettersOf(shape)) draw(letter.letter, letter.x, letter.y, letter.angle, 0);
      else draw(text, x, y, angle, BASELINE * size, ...(room === Infinity ? [] : [room]));
    },
    write(shape) {
      const {x, y, text, size, fill, anchor, angle, upright, room, weight} = shape;
      const shared = {"font-size": size, "font-weight": weight === "normal" ? undefined : weight, fill};
      if (/^\s|\s$|\s\s|[\t\n\r]/.test(text)) shared["xml:space"] = "preserve";
      if (upright) {  // one element, so that its text is found as a whole
        const letters = lettersOf(shape), list = name => letters.flatMap(each => Array([...each.letter].length).fill(roundNumber(each[name]))).join(" ");  // a position for each code point
        const angles = letters.some(letter => letter.angle) ? list("angle") : undefined;
        return element("text", {x: list("x"), y: list("y"), rotate: angles, ...shared}, escapeXml(text));
      }
      const place = angle ? {transform: `translate(${roundNumber(x)} ${roundNumber(y)}) rotate(${angle})`, y: BASELINE * size} : {x, y: y + BASELINE * size};
      const squeezed = textWidth(text, size, weight) > room ? {textLength: room, lengthAdjust: "spacingAndGlyphs"} : {};
      return element("text", {...place, "text-anchor": anchor === "start" ? undefined : anchor, ...squeezed, ...shared}, escapeXml(text));
    },
  },
  cells: {
    paint(context, {x, y, cellWidth, cellHeight, rows, columns, colours}) {
      if (!rows || !columns) return;
      const image = new ImageData(columns, rows), small = new OffscreenCanvas(columns, rows);
      new Uint32Array(image.data.buffer).set(colours);
      small.getContext("2d").putImageData(image, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, x, y, cellWidth * columns, cellHeight * rows);
    },
    write({x, y, cellWidth, cellHeight, rows, columns, colours}) {  // one path for each colour, in units of cells
      const paths = new Map();
      runsOf(colours, rows, columns, (colour, row, column, length) => {
        if (!paths.has(colour)) paths.set(colour, []);
        paths.get(colour).push(`M${column} ${row}h${length}v1h-${length}z`);
      });
      const hex = colour => `#${[0, 8, 16].map(shift => (colour >>> shift & 255).toString(16).padStart(2, "0")).join("")}`;
      const written = [...paths].map(([colour, parts]) => element("path", {fill: hex(colour), d: parts.join("")})).join("");
      const transform = `translate(${roundNumber(x)} ${roundNumber(y)}) scale(${cellWidth} ${cellHeight})`;
      return element("g", {class: "cells", transform, "shape-rendering": "crispEdges"}, written);
    },
  },
  scene: {
    paint(context, {x, y, scale, shapes}) {
      context.save();
      context.translate(x, y);
      context.scale(scale, scale);
      paint({shapes}, context);
      context.restore();
    },
    write: ({x, y, scale, shapes}) => element("g", {transform: `translate(${roundNumber(x)} ${roundNumber(y)}) scale(${scale})`}, write({shapes})),
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
