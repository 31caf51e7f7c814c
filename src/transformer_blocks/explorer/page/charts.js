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
