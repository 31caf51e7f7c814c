// Map: the attention weights of one head.
//
// The map is a window on all cells: labels stay at its left and upper edge while cells move below it.

import {$, attentions, inSentence, isMasked, lettersIn, make, nameOf, percent, weightsOf} from "./data.js";
import {drawOverview, fillSelects, markOverview, reduceByMaximum} from "./overview.js";
import {forgetting, state, views} from "./registry.js";
import {Scene, isUpright, mostThatFit, paint, show, textWidth} from "./scene.js";
import {ARROWS, select, updateAddress, wrap} from "./state.js";
import {colour, coloursOf, palette, theme} from "./style.js";

views.map = {
  name: "Map",
  sections: ["overview", "head"],
  measure: measureMap,
  draw: drawMap,
  scene: mapScene,
  most: () => shown().most,
  caption: () => nameOf(state),
  weights: () => shown().values,
};

// What is shown: values with their colours, from 0 to `most`, the largest.
let lastShown = {key: ""};
forgetting.push(() => { lastShown.key = shownTable = paintedKey = ""; });
function shown() {
  const key = JSON.stringify([state.attention, state.layer, state.head]);
  if (lastShown.key === key) return lastShown;
  const values = weightsOf(state.attention, state.layer, state.head), most = values.reduce((largest, x) => Math.max(largest, x), 1e-6);
  return lastShown = {key, values, most, toUnit: x => x / most};
}

// --- Layout ------------------------------------------------------------------------------------------

export const LEAST_WIDTH = 160;  // also of a frame that is not shown yet
const LARGEST_CELL = 34, ZOOMED_CELL = 72;  // of a map that shows all, and after zooming
const AXIS = 18, LABEL = 12, UPRIGHT_STEP = 1.05;  // room of an axis' name, size of a label, and of its upright letters
let layout = null;  // the window: see layOut; {cell, x, y} are the size of a cell and the position of the window
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

// A window of at most a width and a height: axes and labels on the left and above, square cells that show all.
function layOut(width, height, largest = LARGEST_CELL) {
  const attention = attentions[state.attention];
  const longest = (tokens, length, most) => Math.ceil(Math.min(most, tokens.reduce((least, token) => Math.max(least, length(token)), 10)));
  const left = AXIS + 10 + longest(attention.queries, rowLength, Math.min(140, width * .2));
  const top = AXIS + 10 + longest(attention.keys, labelLength, Math.min(110, width * .25));
  const most = Math.min(largest, (width - left - 8) / attention.columns), room = Math.max(160, height - top);
  const all = Math.min(most, room / attention.rows), isTall = attention.rows > 3 * attention.columns;
  const fit = isTall ? Math.max(all, Math.min(most, 8)) : all;  // a tall map fits the width only, not to become a thread
  const plotWidth = Math.ceil(fit * attention.columns), plotHeight = Math.ceil(Math.min(Math.max(room, fit), fit * attention.rows));
  return {left, top, fit, plotWidth, plotHeight, width: left + plotWidth + 8, height: top + plotHeight + 8, cell: fit, x: 0, y: 0};
}

function measureMap() {
  const section = getComputedStyle($("head"));
  const width = Math.max(LEAST_WIDTH, $("head").clientWidth - parseFloat(section.paddingLeft) - parseFloat(section.paddingRight));
  layout = layOut(width, Math.max(320, innerHeight * .8));
  layout.cell = Math.min(layout.fit * state.zoom, Math.max(ZOOMED_CELL, layout.fit));
  centre(state.row, state.column);
}

const canPan = () => {
  const {rows, columns} = attentions[state.attention];
  return layout.cell * columns > layout.plotWidth + 1 || layout.cell * rows > layout.plotHeight + 1;
};

function moveTo(x, y, cell = layout.cell) {
  const {rows, columns} = attentions[state.attention], within = (at, size, count) => Math.max(0, Math.min(at, count * cell - size));
  Object.assign(layout, {cell, x: within(x, layout.plotWidth, columns), y: within(y, layout.plotHeight, rows)});
  $("map").style.touchAction = canPan() ? "none" : "pan-y";  // a map that shows all lets a finger scroll the page
  $("map").classList.toggle("pans", canPan());
}
const centre = (row, column) => moveTo((column + .5) * layout.cell - layout.plotWidth / 2, (row + .5) * layout.cell - layout.plotHeight / 2);

function reveal(row, column) {
  const {cell, x, y, plotWidth, plotHeight} = layout;
  const near = (at, place, size) => Math.max(Math.min(at, place * cell - Math.min(cell, size / 4)), Math.min((place + 1) * cell + Math.min(cell, size / 4), (place + 1) * cell + size) - size);
  moveTo(near(x, column, plotWidth), near(y, row, plotHeight));
}

// Change the size of the cells; what is at (x, y) in the window stays there.
function zoomTo(cell, x, y) {
  const next = Math.max(layout.fit, Math.min(Math.max(ZOOMED_CELL, layout.fit), cell)), factor = next / layout.cell;
  moveTo((layout.x + x) * factor - x, (layout.y + y) * factor - y, next);
  state.zoom = next / layout.fit;
  updateAddress(false);
  paintMap();
}

// --- Drawing -----------------------------------------------------------------------------------------

// Labels with their boxes, in the window: as many as have room, and in any case those of the selection.
function labelsOf(attention, window, hasSelection) {
  const {left, top, cell, x, y, plotWidth, plotHeight} = window, labels = [];
  const size = cell >= LABEL + 1.5 ? LABEL : LABEL - 1, thick = size + 1;
  const axes = [
    {axis: "row", tokens: attention.queries, chosen: state.row, from: top, offset: y, length: plotHeight, room: left - AXIS - 10, measure: rowLength},
    {axis: "column", tokens: attention.keys, chosen: state.column, from: left, offset: x, length: plotWidth, room: top - AXIS - 10, measure: labelLength},
  ];
  for (const {axis, tokens, chosen, from, offset, length, room, measure} of axes) {
    const add = (index, isSelected) => {
      const text = cut(tokens[index], room, measure), extent = Math.min(room, measure(text));
      let middle = from + (index + .5) * cell - offset;
      if (isSelected) middle = Math.max(from + 4, Math.min(from + length - 4, middle));
      const box = axis === "row" ? {x: left - 7 - extent, y: middle - thick / 2, width: extent, height: thick}
        : {x: middle - thick / 2, y: top - 7 - extent, width: thick, height: extent};
      labels.push({axis, index, text, size, isSelected, middle, ...box});
    };
    if (hasSelection) add(chosen, true);
    const every = stepOf(thick / cell);
    for (let index = Math.ceil(offset / cell / every) * every; index < tokens.length; index += every) {
      const middle = from + (index + .5) * cell - offset;
      if (middle > from + length) break;
      if (middle < from || hasSelection && Math.abs(middle - labels.find(label => label.axis === axis).middle) < thick + 3) continue;
      add(index, false);
    }
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

// The cells that the window shows, at their place in it; where they are smaller than the screen's pixels, the largest of each.
function addCells(scene, {left, top, cell, x, y, plotWidth, plotHeight}, attention, colours, scale) {
  const {values, toUnit} = shown();
  const column = Math.floor(x / cell), row = Math.floor(y / cell);
  const width = Math.min(attention.columns, Math.ceil((x + plotWidth) / cell - 1e-6)) - column, height = Math.min(attention.rows, Math.ceil((y + plotHeight) / cell - 1e-6)) - row;
  const toColumns = Math.min(width, Math.ceil(width * cell * scale)), toRows = Math.min(height, Math.ceil(height * cell * scale));
  const reduced = reduceByMaximum(values, attention.columns, {row, column, height, width}, toRows, toColumns);
  const place = [left + column * cell - x, top + row * cell - y, width * cell / toColumns, height * cell / toRows, toRows, toColumns];
  scene.cells(...place, coloursOf(reduced, colours.weights, toUnit));
  if (attention.mask) scene.path(hatchingOf(attention, {left, top, cell, x, y}, {row, column, height, width}), {stroke: colours.muted, opacity: .5});
}

// Diagonal lines over the masked cells of a part of the map: each line is followed through the cells, and drawn where they are masked.
function hatchingOf(attention, {left, top, cell, x, y}, {row, column, height, width}) {
  const parts = [], gap = Math.max(6, Math.min(9, cell / 2)), fromX = column * cell, fromY = row * cell;
  const toX = fromX + width * cell, toY = fromY + height * cell, step = Math.max(.25, Math.min(1, cell / 6));
  for (let sum = Math.ceil((fromX + fromY) / gap) * gap; sum < toX + toY; sum += gap) {
    const end = Math.min(toX, sum - fromY);
    let begun = null;
    for (let at = Math.max(fromX, sum - toY); ; ) {  // at = x on the line, y = sum - x; the next border of a cell, in x or y
      const middle = at + step * .01, isInside = middle < end;
      const masked = isInside && isMasked(attention, Math.min(attention.rows - 1, Math.floor((sum - middle) / cell)), Math.floor(middle / cell));
      if (masked && begun === null) begun = at;
      if (!masked && begun !== null) {
        parts.push(`M${(left + begun - x).toFixed(1)} ${(top + sum - begun - y).toFixed(1)}L${(left + at - x).toFixed(1)} ${(top + sum - at - y).toFixed(1)}`);
        begun = null;
      }
      if (!isInside) break;
      const nextX = (Math.floor(middle / cell) + 1) * cell, nextY = sum - Math.floor((sum - middle) / cell) * cell;
      at = Math.min(end, nextX, nextY > middle ? nextY : Infinity);
    }
  }
  return parts.join("");
}

// All cells as a picture without a selection, of at most a width.
function mapScene(colours, {width = 960} = {}) {
  const attention = attentions[state.attention], window = layOut(width, Infinity, 44), scene = new Scene(window.width, window.height);
  addCells(scene, window, attention, colours, 2);
  drawAxes(scene, window, attention, colours);
  drawLabels(scene, labelsOf(attention, window, false), colours);
  return scene;
}

// Lines through the selected row and column, and a frame around the cell: each dark and light, to be seen on all colours.
function drawSelection(scene, {left, top, cell, x, y, plotWidth, plotHeight}, colours) {
  const column = left + state.column * cell - x, row = top + state.row * cell - y;
  const double = draw => { draw(colours.background, 3.5, .8); draw(colours.accent, 1.5, 1); };
  if (cell >= 8) {
    double((stroke, line, opacity) => scene.rect(left - 2, row, plotWidth + 4, cell, {stroke, line, opacity}));
    double((stroke, line, opacity) => scene.rect(column, top - 2, cell, plotHeight + 4, {stroke, line, opacity}));
  } else {
    const middle = [column + cell / 2, row + cell / 2], reach = 10;
    const d = `M${left} ${middle[1]}H${Math.max(left, middle[0] - reach)}M${middle[0] + reach} ${middle[1]}H${Math.max(middle[0] + reach, left + plotWidth)}` +
      `M${middle[0]} ${top}V${Math.max(top, middle[1] - reach)}M${middle[0]} ${middle[1] + reach}V${Math.max(middle[1] + reach, top + plotHeight)}`;
    double((stroke, line, opacity) => scene.path(d, {stroke, line, opacity}));
  }
  const size = Math.max(cell, 9), frame = [column + (cell - size) / 2, row + (cell - size) / 2, size, size];
  scene.rect(...frame, {stroke: colours.text, line: state.isLocked ? 7 : 4.5});
  scene.rect(...frame, {stroke: colours.background, line: state.isLocked ? 4.5 : 2});
  if (state.isLocked) scene.rect(...frame, {stroke: colours.accent, line: 2.5});
}

// The cells are painted once for each head and place of the window; what is selected, over a copy of them.
const cellsCanvas = new OffscreenCanvas(1, 1);
let paintedKey = "";
function paintMap() {
  const attention = attentions[state.attention], colours = palette(), scale = devicePixelRatio || 1, canvas = $("map");
  const {left, top, width, height, plotWidth, plotHeight} = layout, pixels = [Math.round(width * scale), Math.round(height * scale)];
  const key = [shown().key, theme(), scale, JSON.stringify(layout)].join(" ");
  const clipped = (context, scene, margin) => {
    context.save();
    context.beginPath();
    context.rect(left - margin, top - margin, plotWidth + 2 * margin, plotHeight + 2 * margin);
    context.clip();
    paint(scene, context);
    context.restore();
  };
  if (key !== paintedKey) {
    paintedKey = key;
    [cellsCanvas.width, cellsCanvas.height] = pixels;
    const context = cellsCanvas.getContext("2d"), cells = new Scene(width, height), axes = new Scene(width, height);
    context.scale(scale, scale);
    addCells(cells, layout, attention, colours, scale);
    clipped(context, cells, 0);
    drawAxes(axes, layout, attention, colours);
    paint(axes, context);
  }
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) {
    [canvas.width, canvas.height] = pixels;
    Object.assign(canvas.style, {width: `${width}px`, height: `${height}px`});
  }
  const context = canvas.getContext("2d"), selection = new Scene(width, height), labels = new Scene(width, height);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, ...pixels);
  context.drawImage(cellsCanvas, 0, 0);
  context.scale(scale, scale);
  drawSelection(selection, layout, colours);
  clipped(context, selection, 5);
  drawLabels(labels, labelsOf(attention, layout, true).reverse(), colours);  // the selection's last, over the others
  paint(labels, context);
  $("zoom-out").disabled = $("zoom-fit").disabled = layout.cell <= layout.fit + .01;
  $("zoom-in").disabled = layout.cell >= Math.max(ZOOMED_CELL, layout.fit) - .01;
}

function drawRamp() {
  const {most} = shown(), canvas = $("ramp"), context = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x++) {
    context.fillStyle = `rgb(${colour(palette().weights, x / (canvas.width - 1)).join(" ")})`;
    context.fillRect(x, 0, 1, canvas.height);
  }
  $("low").textContent = "0 %";
  $("middle").textContent = percent(most / 2);
  $("high").textContent = percent(most);
}

// --- Description and table of the selected head ----------------------------------------------------------

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

const MOST_TABLE_CELLS = 20000;  // a larger map has a table of the selected query only
let shownTable = "";
function fillTable() {
  if (!$("weights").open) return;
  const attention = attentions[state.attention], {values, key} = shown(), isWhole = values.length <= MOST_TABLE_CELLS;
  const tableKey = isWhole ? key : `${key} ${state.row}`;
  if (shownTable === tableKey) return;
  shownTable = tableKey;
  const heading = (scope, textContent) => make("th", {scope, textContent});
  const cell = (row, column) => make("td", {textContent: percent(values[row * attention.columns + column])});
  const head = isWhole
    ? [heading("col", `${attention.queryAxis} \\ ${attention.keyAxis}`), ...attention.keys.map(token => heading("col", token))]
    : [heading("col", attention.keyAxis), heading("col", attention.queries[state.row])];
  const rows = isWhole
    ? attention.queries.map((token, row) => [heading("row", token), ...attention.keys.map((_, column) => cell(row, column))])
    : attention.keys.map((token, column) => [heading("row", token), cell(state.row, column)]);
  $("table").replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows.map(cells => make("tr", {}, ...cells)))));
}

let lastSelection = "", isPointing = false;
function drawMap(isNew) {
  const attention = attentions[state.attention], selection = `${state.row} ${state.column}`;
  if (isNew) { fillSelects(); drawOverview(); }
  markOverview();
  $("name").textContent = nameOf(state);
  $("unlock").hidden = !state.isLocked;
  $("map").setAttribute("aria-label", `${nameOf(state)}: attention weights of ${attention.rows} queries and ${attention.columns} keys`);
  if (!isNew && !isPointing && selection !== lastSelection) reveal(state.row, state.column);
  lastSelection = selection;
  if (!isPointing) $("tip").hidden = true;  // its cell may be another one now
  paintMap();
  drawRamp();
  describeQuery();
  fillTable();
}

// The page as an address opens it: scrolled to the selected cell.
export function scrollToCell() {
  if (state.view !== "map" || !/[#&][qk]=/.test(location.hash)) return;
  const {left, top, cell, x, y} = layout, box = $("map").getBoundingClientRect();
  const atX = box.left + left + (state.column + .5) * cell - x, atY = box.top + top + (state.row + .5) * cell - y;
  const isSeen = atY - cell / 2 > 0 && atY + cell / 2 < innerHeight && atX > 0 && atX < innerWidth;
  if (!isSeen) scrollBy(0, atY - innerHeight / 2);
}

// --- Events ----------------------------------------------------------------------------------------

// The place of a pointer: a cell, or the row or column of a label with the other of the selection.
function placeAt(event) {
  const {rows, columns} = attentions[state.attention], {left, top, cell, x, y, plotWidth, plotHeight} = layout, box = $("map").getBoundingClientRect();
  const atX = event.clientX - box.left - left, atY = event.clientY - box.top - top;
  if (atX >= plotWidth || atY >= plotHeight || atX < 0 && atY < 0) return null;
  const column = Math.min(columns - 1, Math.floor((atX + x) / cell)), row = Math.min(rows - 1, Math.floor((atY + y) / cell));
  if (atX < 0) return {area: "row", row, column: state.column};
  if (atY < 0) return {area: "column", row: state.row, column};
  return {area: "cell", row, column};
}

// A fingertip covers many small cells: of those below it, the one with the largest value.
const FINGERTIP = 12;
function underFinger(place) {
  const {rows, columns} = attentions[state.attention], {values} = shown(), reach = Math.floor(FINGERTIP / layout.cell);
  if (place === null || place.area !== "cell") return place;
  let best = place, most = -1;
  for (let row = Math.max(0, place.row - reach); row <= Math.min(rows - 1, place.row + reach); row++) {
    for (let column = Math.max(0, place.column - reach); column <= Math.min(columns - 1, place.column + reach); column++) {
      const value = Math.abs(values[row * columns + column]);
      if (value > most) [best, most] = [{...place, row, column}, value];
    }
  }
  return best;
}

function choose({row, column}, change, options) {
  isPointing = true;
  try { select({row, column, ...change}, options); } finally { isPointing = false; }
}

function showTip(place) {
  const attention = attentions[state.attention], tip = $("tip"), {left, top, cell, x, y} = layout;
  tip.hidden = place === null;
  if (place === null) return;
  const {area, row, column} = place;
  if (area === "row") tip.textContent = `${inSentence(attention.queries[row])} (query ${row})`;
  else if (area === "column") tip.textContent = `${inSentence(attention.keys[column])} (key ${column})`;
  else tip.textContent = describe(row, column);
  const atX = area === "row" ? 4 : left + (column + 1) * cell - x + 8, atY = area === "column" ? 2 : top + (row + 1) * cell - y + 8;
  tip.style.left = `${Math.max(0, Math.min(atX, $("figure").clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(0, atY + tip.offsetHeight > layout.height + 30 ? atY - tip.offsetHeight - cell - 16 : atY)}px`;
}

// Pointers that are down: one drags the window over the cells, two fingers pinch.
const pointers = new Map();
let dragStart = null, isDragging = false;
const inWindow = ({x, y}) => {
  const box = $("map").getBoundingClientRect();
  return [x - box.left - layout.left, y - box.top - layout.top];
};
$("map").addEventListener("pointerdown", event => {
  if (event.button > 0) return;
  if (!pointers.size) isDragging = false;
  pointers.set(event.pointerId, {x: event.clientX, y: event.clientY});
  dragStart = {x: event.clientX, y: event.clientY};
  if (pointers.size > 1) isDragging = true;
});
$("map").addEventListener("pointermove", event => {
  if (event.pointerType === "mouse" && !event.buttons) pointers.delete(event.pointerId);  // it was released outside of the window
  if (!pointers.has(event.pointerId)) {
    if (event.pointerType === "touch") return;
    const place = placeAt(event);
    if (place !== null && !state.isLocked && (place.row !== state.row || place.column !== state.column)) choose(place, {}, {record: false});
    showTip(place);
    return;
  }
  const last = [...pointers.values()], from = pointers.get(event.pointerId), to = {x: event.clientX, y: event.clientY};
  pointers.set(event.pointerId, to);
  if (pointers.size === 2) {
    const now = [...pointers.values()], apart = ([a, b]) => Math.max(10, Math.hypot(a.x - b.x, a.y - b.y));
    const middle = ([a, b]) => ({x: (a.x + b.x) / 2, y: (a.y + b.y) / 2});
    const [before, after] = [middle(last), middle(now)];
    layout.x -= after.x - before.x;
    layout.y -= after.y - before.y;
    zoomTo(layout.cell * apart(now) / apart(last), ...inWindow(after));
    $("tip").hidden = true;
    return;
  }
  if (!isDragging && canPan() && Math.hypot(to.x - dragStart.x, to.y - dragStart.y) > 5) {
    isDragging = true;
    try { $("map").setPointerCapture(event.pointerId); } catch { /* the pointer has left already */ }
  }
  if (!isDragging) return;
  $("tip").hidden = true;
  moveTo(layout.x - (to.x - from.x), layout.y - (to.y - from.y));
  paintMap();
});
const release = event => pointers.delete(event.pointerId);
for (const name of ["pointerup", "pointercancel"]) window.addEventListener(name, release);
$("map").addEventListener("pointerleave", () => { $("tip").hidden = true; });
$("map").addEventListener("click", event => {
  if (isDragging) return;
  const isTouch = event.pointerType === "touch", place = isTouch ? underFinger(placeAt(event)) : placeAt(event);
  if (place === null) return;
  choose(place, {isLocked: true});
  showTip(place);
});
$("map").addEventListener("wheel", event => {
  if (event.ctrlKey) {
    event.preventDefault();
    zoomTo(layout.cell * Math.exp(-event.deltaY * .01), ...inWindow({x: event.clientX, y: event.clientY}));
    return;
  }
  const {x, y} = layout, [right, down] = event.shiftKey ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
  moveTo(x + right, y + down);
  if (layout.x === x && layout.y === y) return;  // at the edge: the page scrolls
  event.preventDefault();
  $("tip").hidden = true;
  paintMap();
}, {passive: false});

function zoomBy(factor) {
  const {left, top, cell, x, y, plotWidth, plotHeight} = layout, {row, column} = state;
  const atX = (column + .5) * cell - x, atY = (row + .5) * cell - y, isSeen = atX >= 0 && atX <= plotWidth && atY >= 0 && atY <= plotHeight;
  $("tip").hidden = true;
  zoomTo(cell * factor, ...(isSeen ? [atX, atY] : [plotWidth / 2, plotHeight / 2]));
}
$("zoom-in").addEventListener("click", () => zoomBy(1.6));
$("zoom-out").addEventListener("click", () => zoomBy(1 / 1.6));
$("zoom-fit").addEventListener("click", () => zoomBy(0));
$("map").addEventListener("keydown", event => {
  const move = ARROWS[event.key], attention = attentions[state.attention];
  if (move) select({row: wrap(state.row + move[0], attention.rows), column: wrap(state.column + move[1], attention.columns)});
  else if (event.ctrlKey || event.metaKey) return;
  else if (event.key === "+" || event.key === "=") zoomBy(1.6);
  else if (event.key === "-") zoomBy(1 / 1.6);
  else if (event.key === "0") zoomBy(0);
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", event => {
  if (event.key === "Escape" && !event.defaultPrevented && state.view === "map" && state.isLocked) select({isLocked: false});
});
$("unlock").addEventListener("click", () => { select({isLocked: false}); $("map").focus({preventScroll: true}); });
$("weights").addEventListener("toggle", fillTable);
