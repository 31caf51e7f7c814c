// Map: the attention weights of one head.

import {$, attentions, inSentence, isMasked, lettersIn, nameOf, percent, weightsOf} from "./data.js";
import {drawOverview, markOverview, reduceByMaximum} from "./overview.js";
import {forgetting, state, views} from "./registry.js";
import {Scene, box, hatch, isUpright, mostThatFit, runsOf, show, textWidth} from "./scene.js";
import {ARROWS, select, wrap} from "./state.js";
import {coloursOf, palette} from "./style.js";

views.map = {
  name: "Map",
  sections: ["choices", "overview", "head"],
  measure: measureMap,
  draw: drawMap,
  scene: mapScene,
  caption: () => `The stronger the colour of a cell, the larger its weight: from 0 % to ${percent(shown().most)}.${attentions[state.attention].mask ? " Masked cells are hatched." : ""}`,
  weights: () => shown().values,
};

// What is shown: values with their colours, from 0 to `most`, the largest.
let lastShown = {key: ""};
forgetting.push(() => { lastShown.key = ""; });
function shown() {
  const key = JSON.stringify([state.attention, state.layer, state.head]);
  if (lastShown.key === key) return lastShown;
  const values = weightsOf(state.attention, state.layer, state.head), most = values.reduce((largest, x) => Math.max(largest, x), 1e-6);
  return lastShown = {key, values, most, toUnit: x => x / most};
}

// --- Layout ------------------------------------------------------------------------------------------

export const LEAST_WIDTH = 160;  // also of a frame that is not shown yet
const LARGEST_CELL = 34, LEAST_CELL = 8;  // a map that is higher than the window has cells of this size, if they fit the width
const AXIS = 18, LABEL = 12, UPRIGHT_STEP = 1.05;  // room of an axis' name, size of a label, and of its upright letters
let layout = null;  // see layOut
window.explorerLayout = () => layout && {...layout, labels: labelsOf(attentions[state.attention], layout, true)};  // for scripts that control the page

const widthCache = new Map();
function labelLength(text) {
  if (!widthCache.has(text)) widthCache.set(text, isUpright(text) ? lettersIn(text).length * LABEL * UPRIGHT_STEP : textWidth(text, LABEL));
  return widthCache.get(text);
}
const rowLength = text => isUpright(text) ? lettersIn(text).length * LABEL : labelLength(text);

// Cut a text that is longer than the room, and end it with an ellipsis.
const cutCache = new Map();
function cut(text, room, length) {
  if (length(text) <= room) return text;
  const key = `${room} ${length === rowLength} ${text}`;
  if (!cutCache.has(key)) {
    const letters = lettersIn(text), isTall = isUpright(text);
    const count = mostThatFit(letters.length, count => (isTall ? (count + 1) * LABEL * UPRIGHT_STEP : textWidth(`${letters.slice(0, count).join("")}…`, LABEL)) <= room);
    cutCache.set(key, `${letters.slice(0, Math.max(1, count)).join("")}${isTall && length === labelLength ? "" : "…"}`);
  }
  return cutCache.get(key);
}

// The places within a width and, if possible, a height: axes and labels on the left and above, then square cells.
function layOut(width, height, largest = LARGEST_CELL) {
  const attention = attentions[state.attention];
  const longest = (tokens, length, most) => Math.ceil(Math.min(most, tokens.reduce((least, token) => Math.max(least, length(token)), 10)));
  const left = AXIS + 10 + longest(attention.queries, rowLength, Math.min(140, width * .2));
  const top = AXIS + 10 + longest(attention.keys, labelLength, Math.min(110, width * .25));
  const most = Math.min(largest, (width - left - 8) / attention.columns), cell = Math.min(most, Math.max(LEAST_CELL, (height - top) / attention.rows));
  const plotWidth = cell * attention.columns, plotHeight = cell * attention.rows;
  return {left, top, cell, plotWidth, plotHeight, width: Math.ceil(left + plotWidth + 8), height: Math.ceil(top + plotHeight + 8)};
}

function measureMap() {
  const section = getComputedStyle($("head"));
  const width = Math.max(LEAST_WIDTH, $("head").clientWidth - parseFloat(section.paddingLeft) - parseFloat(section.paddingRight));
  layout = layOut(width, Math.max(320, innerHeight * .8));
}

// --- Drawing -----------------------------------------------------------------------------------------

// Labels with their boxes: as many as have room, and in any case those of the selection.
function labelsOf(attention, {left, top, cell, plotWidth, plotHeight}, hasSelection) {
  const labels = [], size = cell >= LABEL + 1.5 ? LABEL : LABEL - 1, thick = size + 1;
  const axes = [
    {axis: "row", tokens: attention.queries, chosen: state.row, from: top, length: plotHeight, room: left - AXIS - 10, measure: rowLength},
    {axis: "column", tokens: attention.keys, chosen: state.column, from: left, length: plotWidth, room: top - AXIS - 10, measure: labelLength},
  ];
  for (const {axis, tokens, chosen, from, length, room, measure} of axes) {
    const middleOf = index => Math.max(from + 4, Math.min(from + length - 4, from + (index + .5) * cell));
    const add = (index, isSelected) => {
      const text = cut(tokens[index], room, measure), extent = Math.min(room, measure(text)), middle = middleOf(index);
      const place = axis === "row" ? {x: left - 7 - extent, y: middle - thick / 2, width: extent, height: thick}
        : {x: middle - thick / 2, y: top - 7 - extent, width: thick, height: extent};
      labels.push({axis, index, text, size, isSelected, middle, ...place});
    };
    for (let index = 0; index < tokens.length; index += stepOf(thick / cell)) {
      if (!hasSelection || Math.abs(middleOf(index) - middleOf(chosen)) >= thick + 3) add(index, false);
    }
    if (hasSelection) add(chosen, true);
  }
  return labels;
}
const stepOf = least => [1, 2, 3, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 256].find(step => step >= least) ?? Math.ceil(least);

function drawLabels(scene, labels, colours) {
  for (const {axis, text, size, isSelected, middle, x, y, width, height} of labels) {
    const isRow = axis === "row", upright = !isRow && isUpright(text);
    if (isSelected) scene.rect(x - 3, y - 2, width + 6, height + 4, {fill: state.isLocked ? colours.accent : colours.background, stroke: colours.accent, radius: 3});
    const fill = !isSelected ? colours.text : state.isLocked ? colours.background : colours.accent;
    if (isRow) scene.text(x + width, middle, text, {size, fill, anchor: "end"});
    else scene.text(middle, y + height, text, {size, fill, upright, angle: -90, room: upright ? height : Infinity});
  }
}

// The name of an axis, without what is in brackets where there is too little room.
function axisName(name, room) {
  const length = text => textWidth(text, LABEL, "bold"), short = name.replace(/ \(.*\)$/, "");
  return length(name) <= room ? name : cut(short, room - 8, length);
}

function drawAxes(scene, {left, top, plotWidth, plotHeight}, attention, colours) {
  scene.text(left + plotWidth / 2, AXIS / 2, axisName(attention.keyAxis, plotWidth), {fill: colours.muted, anchor: "middle", weight: "bold"});
  scene.text(AXIS / 2, top + plotHeight / 2, axisName(attention.queryAxis, plotHeight), {fill: colours.muted, anchor: "middle", angle: -90, weight: "bold"});
  scene.rect(left - .5, top - .5, plotWidth + 1, plotHeight + 1, {stroke: colours.muted, opacity: .5});
}

// The cells; where they are smaller than the screen's pixels, the largest of each pixel.
function addCells(scene, {left, top, cell, plotWidth, plotHeight}, attention, colours, scale) {
  const {values, toUnit} = shown(), {rows, columns, mask} = attention;
  const toColumns = Math.min(columns, Math.ceil(plotWidth * scale)), toRows = Math.min(rows, Math.ceil(plotHeight * scale));
  const reduced = reduceByMaximum(values, rows, columns, toRows, toColumns);
  scene.cells(left, top, plotWidth / toColumns, plotHeight / toRows, toRows, toColumns, coloursOf(reduced, colours.weights, toUnit));
  const masked = [];
  if (mask) runsOf(mask, rows, columns, (isHidden, row, column, length) => {
    if (isHidden) masked.push(box(left + column * cell, top + row * cell, length * cell, cell));
  });
  scene.path(masked.join(""), {fill: hatch(colours.muted), opacity: .5});
}

// All cells as a picture without a selection, of at most a width.
function mapScene(colours, {width = 960} = {}) {
  const attention = attentions[state.attention], places = layOut(width, Infinity, 44), scene = new Scene(places.width, places.height);
  addCells(scene, places, attention, colours, 2);
  drawAxes(scene, places, attention, colours);
  drawLabels(scene, labelsOf(attention, places, false), colours);
  return scene;
}

// Lines through the selected row and column, and a frame around the cell: each dark and light, to be seen on all colours.
function drawSelection(scene, {left, top, cell, plotWidth, plotHeight}, colours) {
  const column = left + state.column * cell, row = top + state.row * cell;
  const double = draw => { draw(colours.background, 3.5, .8); draw(colours.accent, 1.5, 1); };
  double((stroke, line, opacity) => scene.rect(left - 2, row, plotWidth + 4, cell, {stroke, line, opacity}));
  double((stroke, line, opacity) => scene.rect(column, top - 2, cell, plotHeight + 4, {stroke, line, opacity}));
  const size = Math.max(cell, 9), frame = [column + (cell - size) / 2, row + (cell - size) / 2, size, size];
  scene.rect(...frame, {stroke: colours.text, line: state.isLocked ? 7 : 4.5});
  scene.rect(...frame, {stroke: colours.background, line: state.isLocked ? 4.5 : 2});
  if (state.isLocked) scene.rect(...frame, {stroke: colours.accent, line: 2.5});
}

function paintMap() {
  const attention = attentions[state.attention], colours = palette(), scene = new Scene(layout.width, layout.height);
  addCells(scene, layout, attention, colours, devicePixelRatio || 1);
  drawAxes(scene, layout, attention, colours);
  drawSelection(scene, layout, colours);
  drawLabels(scene, labelsOf(attention, layout, true), colours);
  show(scene, $("map"));
}

function drawRamp() {
  const {most} = shown();
  $("ramp").style.background = `linear-gradient(90deg, ${palette().weights.join(", ")})`;
  for (const [id, weight] of [["low", 0], ["middle", most / 2], ["high", most]]) $(id).textContent = percent(weight);
}

// --- Description of the selected query and cell --------------------------------------------------------

function describe(row, column) {
  const attention = attentions[state.attention], weight = shown().values[row * attention.columns + column];
  const masked = isMasked(attention, row, column) ? ", masked" : "";
  return `${inSentence(attention.queries[row])} → ${inSentence(attention.keys[column])}: ${percent(weight)}${masked}`;
}

function describeQuery() {
  const attention = attentions[state.attention], {columns} = attention;
  const weights = shown().values.subarray(state.row * columns, (state.row + 1) * columns), order = [...weights.keys()];
  const best = order.filter(column => weights[column] > 0).sort((a, b) => weights[b] - weights[a]).filter((column, i) => i === 0 || weights[column] >= .0005);
  const attends = best.length ? `attends to ${best.slice(0, 3).map(column => `“${inSentence(attention.keys[column])}” ${percent(weights[column])}`).join(", ")}` : "is fully masked";
  const sentences = [`${nameOf(state)}: “${inSentence(attention.queries[state.row])}” ${attends}.`, `Selected cell: ${describe(state.row, state.column)}.`];
  $("summary").textContent = sentences.join(" ").replaceAll(" %", "\u00a0%");
}

function drawMap(isNew) {
  const attention = attentions[state.attention];
  if (isNew) drawOverview();
  markOverview();
  $("unlock").hidden = !state.isLocked;
  $("map").setAttribute("aria-label", `${nameOf(state)}: attention weights of ${attention.rows} queries and ${attention.columns} keys`);
  paintMap();
  drawRamp();
  describeQuery();
}

// --- Events ----------------------------------------------------------------------------------------

// The place of a pointer: a cell, or the row or column of a label with the other of the selection.
function placeAt(event) {
  const {rows, columns} = attentions[state.attention], {left, top, cell, plotWidth, plotHeight} = layout, frame = $("map").getBoundingClientRect();
  const atX = event.clientX - frame.left - left, atY = event.clientY - frame.top - top;
  if (atX >= plotWidth || atY >= plotHeight || atX < 0 && atY < 0) return null;
  const column = atX < 0 ? state.column : Math.min(columns - 1, Math.floor(atX / cell));
  return {row: atY < 0 ? state.row : Math.min(rows - 1, Math.floor(atY / cell)), column};
}

// A fingertip covers many small cells: of those below it, the one with the largest value.
const FINGERTIP = 12;
function underFinger(place) {
  const {rows, columns} = attentions[state.attention], {values} = shown(), reach = Math.floor(FINGERTIP / layout.cell);
  let best = place, most = -1;
  for (let row = Math.max(0, place.row - reach); row <= Math.min(rows - 1, place.row + reach); row++) {
    for (let column = Math.max(0, place.column - reach); column <= Math.min(columns - 1, place.column + reach); column++) {
      const value = values[row * columns + column];
      if (value > most) [best, most] = [{row, column}, value];
    }
  }
  return best;
}

$("map").addEventListener("pointermove", event => {
  const place = event.pointerType === "touch" || state.isLocked ? null : placeAt(event);
  if (place && (place.row !== state.row || place.column !== state.column)) select(place, {record: false});
});
$("map").addEventListener("click", event => {
  const place = placeAt(event);
  if (place) select({...event.pointerType === "touch" ? underFinger(place) : place, isLocked: true});
});
$("map").addEventListener("keydown", event => {
  const move = ARROWS[event.key], attention = attentions[state.attention];
  if (!move) return;
  event.preventDefault();
  select({row: wrap(state.row + move[0], attention.rows), column: wrap(state.column + move[1], attention.columns)});
});
document.addEventListener("keydown", event => {
  if (event.key === "Escape" && !event.defaultPrevented && state.view === "map" && state.isLocked) select({isLocked: false});
});
$("unlock").addEventListener("click", () => { select({isLocked: false}); $("map").focus({preventScroll: true}); });
