// Overview: the choice of a layer and a head, and a small map of each of them, of their mean, and of attention rollout.

import {$, attentions, columnsOf, data, headName, isOff, make, nameOf, weightsOf} from "./data.js";
import {fillRadioGroup, mark} from "./main.js";
import {LEAST_WIDTH} from "./map.js";
import {patternOf} from "./patterns.js";
import {forgetting, state} from "./registry.js";
import {Scene, paint, show} from "./scene.js";
import {ARROWS, select, wrap} from "./state.js";
import {coloursOf, lineColour, palette, theme} from "./style.js";

const LARGEST_THUMBNAIL = 110;
let overview = null;  // where the small maps are: {left, top, cellWidth, cellHeight, gap, key}
forgetting.push(() => { overview = null; });
let thumbnailsLeft = [];  // [layer, head] of the small maps that are still to be drawn

// The largest weight of each of `toRows` x `toColumns` equal parts of a map.
export function reduceByMaximum(values, rows, columns, toRows, toColumns) {
  const reduced = new Float32Array(toRows * toColumns);
  for (let row = 0; row < rows; row++) {
    const to = Math.floor(row * toRows / rows) * toColumns;
    for (let column = 0; column < columns; column++) {
      const place = to + Math.floor(column * toColumns / columns);
      reduced[place] = Math.max(reduced[place], values[row * columns + column]);
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
  const weights = reduceByMaximum(weightsOf(state.attention, layer, head), rows, columns, toRows, toColumns);
  const scene = new Scene(width, height);
  scene.cells(thumbnailX(head) + margin, thumbnailY(layer) + margin, width / toColumns, height / toRows, toRows, toColumns, coloursOf(weights, palette().weights, Math.sqrt));
  paint(scene, $("grid").getContext("2d"));
}

// The frame around the selected head.
export function markOverview() {
  const attention = attentions[state.attention];
  $("chosen").hidden = false;
  Object.assign($("chosen").style, {
    left: `${thumbnailX(state.head)}px`, top: `${thumbnailY(state.layer)}px`, width: `${overview.cellWidth}px`, height: `${overview.cellHeight}px`,
  });
  $("grid").setAttribute("aria-label", `${attention.layers} layers and ${attention.heads} heads of ${attention.name}; selected: layer ${state.layer}, ${headName(attention, state.head)}`);
}
// --- The choice of a layer and a head ---------------------------------------------------------------

let builtChoices = null;  // the attention that the buttons are for
export function drawChoices() {
  const attention = attentions[state.attention], heads = Array.from({length: columnsOf(attention)}, (_, column) => headName(attention, column));
  if (builtChoices !== attention) {
    fillRadioGroup($("layers"), Array.from({length: attention.layers}, (_, layer) => String(layer)), layer => select({layer}), layer => `layer ${layer}`);
    fillRadioGroup($("heads"), heads.map(name => name.replace("head ", "")), head => select({head}), head => heads[head]);
    [...$("heads").children].slice(0, attention.heads).forEach((option, head) => { option.style.borderBottomColor = lineColour(head); });
  }
  builtChoices = attention;
  mark($("layers"), state.layer);
  mark($("heads"), state.head);
  [...$("heads").children].forEach((option, head) => { option.className = isOff(attention, state.layer, head) ? "off" : ""; });
  $("name").textContent = nameOf(state);
  const pattern = patternOf(attention, state.layer, state.head), rule = data.rules?.[pattern];
  $("pattern").hidden = !pattern;
  $("pattern").replaceChildren(...(pattern ? [make("b", {textContent: pattern}), rule ? `: ${rule}` : ""] : []));
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
$("grid").addEventListener("keydown", event => {
  const move = ARROWS[event.key], attention = attentions[state.attention];
  if (!move) return;
  event.preventDefault();
  select({layer: wrap(state.layer + move[0], attention.layers), head: wrap(state.head + move[1], columnsOf(attention))});
});
