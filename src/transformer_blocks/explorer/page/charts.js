// Charts: the drawings of the arithmetic.

import {placesOfLargest, sumOf} from "./arithmetic.js";
import {Scene, show, textWidth} from "./scene.js";
import {coloursOf, palette} from "./style.js";

const chartColours = () => {
  const colours = palette();
  return {...colours, negative: colours.differences[0], positive: colours.differences.at(-1), bar: colours.weights[3]};
};

// Vectors as strips of cells, and below them a bar for each feature; marks are short lines.
export function drawFeatures(canvas, width, {strips, bars, marks = null, name, height}) {
  const colours = chartColours(), left = 54, top = 4, strip = 14, gap = 4;
  const shownCount = Math.max(1, Math.floor((width - left - 4) / 3));
  let places = null;  // of the features that are shown, if there are more than fit
  if (bars.length > shownCount) {
    const most = Float64Array.from(bars, (x, i) => Math.max(Math.abs(x), marks ? Math.abs(marks[i]) : 0));
    places = placesOfLargest(most, shownCount - 1);
  }
  const thin = vector => places ? [...places.map(i => vector[i]), 0] : [...vector];
  const rest = vector => sumOf(vector) - sumOf(places.map(i => vector[i]));
  const heights = thin(bars), lines = marks && thin(marks);
  if (places) {
    heights[heights.length - 1] = rest(bars);
    if (lines) lines[lines.length - 1] = rest(marks);
  }
  const count = heights.length, step = Math.min(40, (width - left - 4) / count), bar = Math.max(1, step * .72);
  const scene = new Scene(width, top + strips.length * (strip + gap) + height + 30);
  let y = top;
  for (const [label, vector] of strips) {
    const numbers = thin(vector), most = numbers.reduce((sum, x) => Math.max(sum, Math.abs(x)), 1e-9);
    scene.text(left - 8, y + strip / 2, label, {size: 11.5, fill: colours.muted, anchor: "end"});
    scene.cells(left, y, step, strip, 1, count, coloursOf(numbers, colours.differences, x => (x / most + 1) / 2));
    scene.rect(left, y, step * count, strip, {stroke: colours.muted, opacity: .5});
    y += strip + gap;
  }
  const high = Math.max(0, ...heights, ...(lines ?? [])), low = Math.min(0, ...heights, ...(lines ?? []));
  const unit = height / (high - low || 1), zero = y + 14 + high * unit, end = left + step * count;
  scene.text(left - 8, zero, name, {size: 11.5, fill: colours.muted, anchor: "end"});
  heights.forEach((x, i) => {
    const size = Math.abs(x) * unit;
    scene.rect(left + i * step + (step - bar) / 2, x > 0 ? zero - size : zero, bar, size, {fill: x > 0 ? colours.positive : colours.negative});
  });
  scene.path(`M${left} ${zero}H${end}`, {stroke: colours.muted});
  const marksOf = lines ? lines.map((x, i) => `M${left + (i + .06) * step} ${zero - x * unit}h${step * .88}`).join("") : "";
  if (marksOf) scene.path(marksOf, {stroke: colours.text, line: 1.5});
  const placed = [];  // where labels are: none covers another
  for (const i of placesOfLargest(heights.map(Math.abs), 5).sort((i, j) => Math.abs(heights[j]) - Math.abs(heights[i]))) {
    const label = places && i === count - 1 ? "others" : `#${places ? places[i] : i}`;
    const middle = left + (i + .5) * step, half = textWidth(label, 11) / 2 + 2;
    if (Math.abs(heights[i]) * unit < 2 || placed.some(other => Math.abs(other.middle - middle) < other.half + half)) continue;
    placed.push({middle, half});
    const reach = Math.max(Math.abs(heights[i]), lines && lines[i] * heights[i] > 0 ? Math.abs(lines[i]) : 0) * unit;
    scene.text(Math.min(middle, width - half), heights[i] > 0 ? zero - reach - 7 : zero + reach + 8, label, {size: 11, fill: colours.text, anchor: "middle"});
  }
  show(scene, canvas);
}

// Hatching of masked keys: the lines of a cell, as a part of a path.
export function hatching(x, y, width, height) {
  const count = Math.max(1, Math.round(width / 7)), step = width / count, parts = [];
  for (let i = 0; i < count; i++) parts.push(`M${x + i * step} ${y + height}l${step} ${-height}`);
  return parts.join("");
}

const box = (x, y, width, height) => `M${x} ${y}h${width}v${height}h${-width}z`;  // as a part of a path

// The scores of all keys as bars; the selected one is marked, masked ones are hatched.
export function drawScores(canvas, width, {scores, masked}, column, label) {
  const colours = chartColours(), height = 52, top = 4, left = 54, step = Math.min(44, (width - left - 4) / scores.length);
  const open = scores.filter((_, i) => !masked[i]), high = Math.max(0, ...open), low = Math.min(0, ...open);
  const unit = height / (high - low || 1), zero = top + high * unit, bar = step > 3 ? step * .72 : step;
  const scene = new Scene(width, height + top + 16), bars = [];
  scene.text(left - 8, zero, "score", {size: 11.5, fill: colours.muted, anchor: "end"});
  const ticks = [];
  scores.forEach((score, i) => {
    const x = left + i * step + (step - bar) / 2;
    if (masked[i]) return ticks.push(hatching(left + i * step, top, step, height));
    const size = Math.max(1, Math.abs(score) * unit);
    if (i === column) scene.rect(x, score > 0 ? zero - size : zero, Math.max(2, bar), size, {fill: colours.accent});
    else bars.push(box(x, score > 0 ? zero - size : zero, bar, size));
  });
  scene.path(bars.join(""), {fill: colours.bar});
  scene.path(ticks.join(""), {stroke: colours.muted, opacity: .5});
  scene.path(`M${left} ${zero}H${left + step * scores.length}`, {stroke: colours.muted});
  const middle = left + (column + .5) * step;
  scene.path(`M${middle - 5} ${top + height + 10}h10l-5 -7z`, {fill: colours.accent});
  const room = Math.min(140, width - 20), half = Math.min(room, textWidth(label, 11)) / 2, isLeft = middle + 10 + 2 * half > width;
  scene.text(middle + (isLeft ? -10 : 10), top + height + 8, label, {size: 11, fill: colours.accent, anchor: isLeft ? "end" : "start", room});
  show(scene, canvas);
}

// The weights of a row as parts of a bar, with and without the scale.
export function drawShares(canvas, width, rows, column) {
  const colours = chartColours(), left = 58, strip = 18, gap = 6, room = width - left - 2;
  const scene = new Scene(width, rows.length * (strip + gap));
  rows.forEach(([label, weights], i) => {
    const y = i * (strip + gap);
    scene.text(left - 8, y + strip / 2, label, {size: 11.5, fill: colours.muted, anchor: "end"});
    let x = left, chosen = left;
    const boxes = [[], []];  // neighbours differ in colour
    weights.forEach((weight, key) => {
      const size = weight * room;
      if (key === column) chosen = x;
      else if (size > .3) boxes[key % 2].push(box(x, y, size - (size > 3 ? 1 : 0), strip));
      x += size;
    });
    boxes.forEach((parts, i) => scene.path(parts.join(""), {fill: colours.weights[2 + i]}));
    scene.rect(Math.min(chosen, left + room - 1.5), y, Math.max(1.5, weights[column] * room), strip, {fill: colours.accent});
    scene.rect(left, y, room, strip, {stroke: colours.muted, opacity: .5});
  });
  show(scene, canvas);
}
