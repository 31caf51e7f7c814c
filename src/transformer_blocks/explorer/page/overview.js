// Overview: a small map of every layer and head, of their mean, and of attention rollout.

import {$, attentions, columnsOf, data, headName, make, weightsOf} from "./data.js";
import {LEAST_WIDTH} from "./map.js";
import {patternOf} from "./patterns.js";
import {forgetting, state} from "./registry.js";
import {Scene, paint, show} from "./scene.js";
import {ARROWS, select, wrap} from "./state.js";
import {coloursOf, palette, theme} from "./style.js";

const LARGEST_THUMBNAIL = 110;
let overview = null;  // where the small maps are: {left, top, cellWidth, cellHeight, gap, key}
forgetting.push(() => { overview = null; });
let thumbnailsLeft = [];  // [layer, head] of the small maps that are still to be drawn

// The largest weight of each of `toRows` x `toColumns` equal parts of a map; of differences, the one of largest magnitude.
export function reduceByMaximum(values, columns, {row = 0, column = 0, height, width}, toRows, toColumns) {
  const reduced = new Float32Array(toRows * toColumns), places = new Int32Array(width);
  for (let x = 0; x < width; x++) places[x] = Math.floor(x * toColumns / width);
  for (let y = 0; y < height; y++) {
    const to = Math.floor(y * toRows / height) * toColumns, from = (row + y) * columns + column;
    for (let x = 0; x < width; x++) {
      const value = values[from + x], place = to + places[x];
      if (Math.abs(value) > Math.abs(reduced[place])) reduced[place] = value;
    }
  }
  return reduced;
}

// Small maps of all layers and heads within the width of the page, in at most about half of its height.
function layOutOverview() {
  const attention = attentions[state.attention], width = Math.max(LEAST_WIDTH, $("grid-frame").clientWidth), columns = columnsOf(attention);
  const left = 24, gap = 6, cellWidth = Math.min(LARGEST_THUMBNAIL, (width - left - gap) / columns);
  const most = innerHeight * (matchMedia("(max-width: 52rem)").matches ? .36 : .62);
  const cellHeight = Math.min(cellWidth, Math.max(11, most / attention.layers));
  const isNarrow = cellWidth < 46, top = isNarrow ? 50 : 22;
  const key = JSON.stringify([state.attention, theme(), cellWidth, cellHeight, devicePixelRatio]);
  const margin = cellHeight > 30 ? 3 : cellHeight > 15 ? 2 : 1;  // around a small map
  return {left, top, gap, margin, cellWidth, cellHeight, isNarrow, key, width: left + gap + columns * cellWidth, height: top + attention.layers * cellHeight + 2};
}
const thumbnailX = head => overview.left + head * overview.cellWidth + (head >= attentions[state.attention].heads ? overview.gap : 0);
const thumbnailY = layer => overview.top + layer * overview.cellHeight;

// Draw the names of rows and columns at once, and the small maps when the browser has time.
export function drawOverview() {
  const next = layOutOverview();
  if (overview !== null && overview.key === next.key) return;
  overview = next;
  const attention = attentions[state.attention], colours = palette(), {left, top, cellWidth, cellHeight, width, height, isNarrow} = overview;
  const scene = new Scene(width, height);
  const everyColumn = Math.ceil(16 / cellWidth), everyRow = Math.ceil(13 / cellHeight);
  for (let head = 0; head < columnsOf(attention); head++) {
    const x = thumbnailX(head) + cellWidth / 2, isSummary = head >= attention.heads;
    if (isSummary) scene.text(x, isNarrow ? top - 4 : top - 10, headName(attention, head), {size: 11, fill: colours.muted, angle: isNarrow ? -90 : 0, anchor: isNarrow ? "start" : "middle"});
    else if (head % everyColumn === 0) scene.text(x, top - 10, String(head), {size: 11, fill: colours.muted, anchor: "middle"});
  }
  for (let layer = 0; layer < attention.layers; layer += everyRow) {
    scene.text(left - 6, thumbnailY(layer) + cellHeight / 2, String(layer), {size: 11, fill: colours.muted, anchor: "end"});
  }
  for (let layer = 0; layer < attention.layers; layer++) for (let head = 0; head < columnsOf(attention); head++) {
    const margin = overview.margin - .5;
    scene.rect(thumbnailX(head) + margin, thumbnailY(layer) + margin, cellWidth - 2 * margin, cellHeight - 2 * margin, {fill: colours.background});
    scene.rect(thumbnailX(head) + margin, thumbnailY(layer) + margin, cellWidth - 2 * margin, cellHeight - 2 * margin, {stroke: colours.muted, opacity: .35});
  }
  show(scene, $("grid"));
  const places = [];
  for (let head = 0; head < columnsOf(attention); head++) for (let layer = 0; layer < attention.layers; layer++) places.push([layer, head]);
  const isFirst = !thumbnailsLeft.length;
  thumbnailsLeft = places.reverse();
  $("grid").removeAttribute("data-drawn");
  if (isFirst) whenIdle(drawThumbnails);
}

const whenIdle = work => window.requestIdleCallback ? requestIdleCallback(work, {timeout: 300}) : setTimeout(work, 1);
function drawThumbnails() {
  const until = performance.now() + 12;
  while (thumbnailsLeft.length && performance.now() < until && state.view === "map") drawThumbnail(...thumbnailsLeft.pop());
  if (!thumbnailsLeft.length) $("grid").dataset.drawn = "true";
  else if (state.view === "map") whenIdle(drawThumbnails);
  else { thumbnailsLeft = []; overview = null; }  // begun again when the view is shown again
}

function drawThumbnail(layer, head) {
  const {rows, columns} = attentions[state.attention], scale = devicePixelRatio || 1;
  const {margin} = overview, width = overview.cellWidth - 2 * margin, height = overview.cellHeight - 2 * margin;
  const toRows = Math.min(rows, Math.max(1, Math.floor(height * scale))), toColumns = Math.min(columns, Math.max(1, Math.floor(width * scale)));
  const weights = reduceByMaximum(weightsOf(state.attention, layer, head), columns, {height: rows, width: columns}, toRows, toColumns);
  const scene = new Scene(width, height);
  scene.cells(thumbnailX(head) + margin, thumbnailY(layer) + margin, width / toColumns, height / toRows, toRows, toColumns, coloursOf(weights, palette().weights, Math.sqrt));
  paint(scene, $("grid").getContext("2d"));
}

// The frame around the selected head, and its name.
export function markOverview() {
  const attention = attentions[state.attention];
  $("chosen").hidden = false;
  Object.assign($("chosen").style, {
    left: `${thumbnailX(state.head)}px`, top: `${thumbnailY(state.layer)}px`, width: `${overview.cellWidth}px`, height: `${overview.cellHeight}px`,
  });
  const pattern = patternOf(attention, state.layer, state.head);
  $("pattern").hidden = pattern === null;
  if (pattern !== null) {
    const rule = data.rules?.[pattern];
    $("pattern").replaceChildren(make("b", {textContent: pattern}), rule ? `: ${rule}` : "");
  }
  $("grid").setAttribute("aria-label", `${attention.layers} layers and ${attention.heads} heads of ${attention.name}; selected: ${placeName(attention, state.layer, state.head)}`);
  $("layer").value = state.layer;
  $("column").value = state.head;
}
function placeName(attention, layer, head) {
  const pattern = patternOf(attention, layer, head);
  return `layer ${layer}, ${headName(attention, head)}${pattern ? `: ${pattern}` : ""}`;
}

// The two lists from which a layer and a head are chosen.
let listedAttention = null;
export function fillSelects() {
  const attention = attentions[state.attention];
  if (listedAttention === attention) return;
  listedAttention = attention;
  const options = (count, name) => Array.from({length: count}, (_, i) => make("option", {value: i, textContent: name(i)}));
  $("layer").replaceChildren(...options(attention.layers, String));
  $("column").replaceChildren(...options(columnsOf(attention), i => headName(attention, i).replace("head ", "")));
}

// --- Events ----------------------------------------------------------------------------------------

// The layer and head nearest to a pointer.
function thumbnailAt(event) {
  const attention = attentions[state.attention], box = $("grid").getBoundingClientRect();
  const nearest = (at, count, place, size) => {
    for (let i = 0; i < count; i++) if (at < place(i) + size) return i;
    return count - 1;
  };
  return {
    layer: nearest(event.clientY - box.top, attention.layers, thumbnailY, overview.cellHeight),
    head: nearest(event.clientX - box.left, columnsOf(attention), thumbnailX, overview.cellWidth),
  };
}

$("grid").addEventListener("click", event => select(thumbnailAt(event)));
$("grid").addEventListener("pointermove", event => {
  const tip = $("grid-tip");
  tip.hidden = event.pointerType === "touch";
  if (tip.hidden) return;
  const {layer, head} = thumbnailAt(event), frame = $("grid-frame");
  tip.textContent = placeName(attentions[state.attention], layer, head);
  tip.style.left = `${Math.max(0, Math.min(thumbnailX(head), frame.clientWidth - tip.offsetWidth))}px`;
  tip.style.top = `${thumbnailY(layer) + overview.cellHeight + 6}px`;
});
$("grid").addEventListener("pointerleave", () => { $("grid-tip").hidden = true; });
$("grid").addEventListener("keydown", event => {
  const move = ARROWS[event.key], attention = attentions[state.attention];
  if (!move) return;
  event.preventDefault();
  select({layer: wrap(state.layer + move[0], attention.layers), head: wrap(state.head + move[1], columnsOf(attention))});
});
$("layer").addEventListener("change", event => select({layer: Number(event.target.value)}));
$("column").addEventListener("change", event => select({head: Number(event.target.value)}));
