"use strict";
(async () => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// --- Attention weights: 12 bits each, low bytes before high bytes, deflated, in base64 ----------

async function decodeWeights(text, count) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const weights = new Float32Array(count);
  for (let i = 0; i < count; i++) weights[i] = (planes[i] + 256 * planes[count + i]) / data.levels;
  return weights;
}

await Promise.all([...document.fonts].map(font => font.load()));  // a canvas does not load fonts
const attentions = await Promise.all(data.maps.map(async attention => {
  const {layers, heads} = attention, rows = attention.queries.length, columns = attention.keys.length;
  const all = await decodeWeights(attention.weights, layers * heads * rows * columns);
  const size = rows * columns;
  const map = (layer, head) => all.subarray((layer * heads + head) * size, (layer * heads + head + 1) * size);
  const mask = attention.mask && Uint8Array.from(atob(attention.mask), letter => letter.charCodeAt(0));
  return {...attention, rows, columns, map, mask};
}));

function meanOf(attention, layer) {
  const mean = new Float32Array(attention.rows * attention.columns);
  for (let head = 0; head < attention.heads; head++) {
    const one = attention.map(layer, head);
    for (let i = 0; i < mean.length; i++) mean[i] += one[i] / attention.heads;
  }
  return mean;
}

// Attention rollout: the product of (A + I) / 2 over the layers, where A is the mean of the heads.
function rolloutOf(a, layer) {
  const attention = attentions[a], n = attention.rows;
  const step = meanOf(attention, layer).map((x, i) => (x + (i % (n + 1) === 0 ? 1 : 0)) / 2);
  if (layer === 0) return step;
  const before = weightsOf(a, layer - 1, attention.heads + 1), product = new Float32Array(n * n);
  for (let i = 0; i < n; i++) for (let k = 0; k < n; k++) {
    const factor = step[i * n + k];
    if (factor) for (let j = 0; j < n; j++) product[i * n + j] += factor * before[k * n + j];
  }
  return product;
}

const summaries = attention => attention.isSelf ? ["mean", "rollout"] : ["mean"];
const summaryCache = new Map();
function weightsOf(a, layer, column) {
  const attention = attentions[a];
  if (column < attention.heads) return attention.map(layer, column);
  const key = `${a} ${layer} ${column}`;
  if (!summaryCache.has(key)) {
    summaryCache.set(key, summaries(attention)[column - attention.heads] === "mean" ? meanOf(attention, layer) : rolloutOf(a, layer));
  }
  return summaryCache.get(key);
}
const columnsOf = attention => attention.heads + summaries(attention).length;
const headName = (attention, column) => column < attention.heads ? `head ${column + 1}` : summaries(attention)[column - attention.heads];
const nameOf = place => `${attentions[place.attention].name}, layer ${place.layer + 1}, ${headName(attentions[place.attention], place.head)}`;

// --- State, which is part of the address -----------------------------------------------------------

const state = {attention: 0, layer: 0, head: 0, row: 0, column: 0, pin: null, dark: false};
const clampIndex = (text, below) => Math.max(0, Math.min(below - 1, Number.parseInt(text, 10) || 0));

function readAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  if (parameters.has("a")) state.attention = clampIndex(parameters.get("a"), attentions.length);
  const attention = attentions[state.attention];
  state.layer = clampIndex(parameters.get("l") ?? state.layer, attention.layers);
  state.head = clampIndex(parameters.get("h") ?? state.head, columnsOf(attention));
  state.row = clampIndex(parameters.get("q") ?? state.row, attention.rows);
  state.column = clampIndex(parameters.get("k") ?? state.column, attention.columns);
  const pin = (parameters.get("pin") ?? "").split(".");
  state.pin = null;
  if (pin.length === 3) {
    const a = clampIndex(pin[0], attentions.length);
    const place = {attention: a, layer: clampIndex(pin[1], attentions[a].layers), head: clampIndex(pin[2], columnsOf(attentions[a]))};
    if (a === state.attention) state.pin = place;
  }
}

let addressTimer = 0;
function updateAddress() {  // delayed: browsers limit how often a page may do this
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => {
    const {attention, layer, head, row, column, pin} = state;
    const address = `#a=${attention}&l=${layer}&h=${head}&q=${row}&k=${column}` +
      (pin ? `&pin=${pin.attention}.${pin.layer}.${pin.head}` : "");
    try {
      if (address !== location.hash) history.replaceState(null, "", address);
    } catch { /* a frame without an address */ }
  }, 200);
}

// --- Colours -------------------------------------------------------------------------------------

const RAMPS = {  // from 0 to 1
  light: [[255, 255, 255], [190, 215, 245], [92, 152, 222], [31, 88, 176], [9, 30, 92]],
  dark: [[12, 13, 18], [58, 24, 92], [156, 42, 106], [238, 107, 66], [252, 230, 140]],
};
const DIFFERENCE = {  // from -1 to 1
  light: [[178, 60, 20], [246, 190, 150], [255, 255, 255], [160, 200, 240], [20, 80, 170]],
  dark: [[255, 150, 90], [130, 60, 30], [16, 18, 23], [30, 70, 130], [130, 190, 255]],
};
const theme = () => state.dark ? "dark" : "light";

function colour(ramp, x) {
  const place = Math.max(0, Math.min(1, x)) * (ramp.length - 1);
  const index = Math.min(ramp.length - 2, Math.floor(place)), part = place - index;
  return ramp[index].map((from, i) => Math.round(from + part * (ramp[index + 1][i] - from)));
}
const colourTables = {};
function colourTableOf(ramps) {  // 4096 precomputed colours
  const key = (ramps === RAMPS ? "weight " : "difference ") + theme();
  if (!colourTables[key]) {
    const table = new Uint8ClampedArray(4096 * 4);
    for (let i = 0; i < 4096; i++) table.set([...colour(ramps[theme()], i / 4095), 255], 4 * i);
    colourTables[key] = new Uint32Array(table.buffer);
  }
  return colourTables[key];
}

function imageOf(values, rows, columns, ramps, toUnit) {
  const image = new ImageData(columns, rows), pixels = new Uint32Array(image.data.buffer);
  const table = colourTableOf(ramps);
  for (let i = 0; i < values.length; i++) pixels[i] = table[Math.round(4095 * Math.max(0, Math.min(1, toUnit(values[i]))))];
  return image;
}

// --- Shown: the selected head, or its difference to the pinned one -----------------------------------

function shown() {
  const weights = weightsOf(state.attention, state.layer, state.head);
  if (!state.pin) return {values: weights, ramps: RAMPS, toUnit: x => x, differs: false};
  const other = weightsOf(state.pin.attention, state.pin.layer, state.pin.head);
  return {values: weights.map((x, i) => x - other[i]), ramps: DIFFERENCE, toUnit: x => (x + 1) / 2, differs: true};
}
const percent = (x, sign = false) => `${sign && x > 0 ? "+" : ""}${(100 * x).toFixed(1)} %`;
const isMasked = (attention, row, column) => Boolean(attention.mask && attention.mask[row * attention.columns + column]);

// --- Overview ------------------------------------------------------------------------------------

let thumbnails = [];

function buildOverview() {
  const attention = attentions[state.attention], grid = $("grid");
  grid.style.gridTemplateColumns = `auto repeat(${attention.heads}, minmax(1.4rem, 1fr)) repeat(${summaries(attention).length}, minmax(2.4rem, 1fr))`;
  thumbnails = [];
  const top = make("div", {role: "row"}, make("span", {className: "label", role: "columnheader", textContent: "layer"}));
  for (let head = 0; head < columnsOf(attention); head++) {
    top.append(make("span", {className: "label", role: "columnheader", textContent: headName(attention, head).replace("head ", "")}));
  }
  grid.replaceChildren(top);
  for (let layer = 0; layer < attention.layers; layer++) {
    const row = make("div", {role: "row"}, make("span", {className: "label", role: "rowheader", textContent: `${layer + 1}`}));
    for (let head = 0; head < columnsOf(attention); head++) {
      const canvas = make("canvas", {width: attention.columns, height: attention.rows});
      const button = make("button", {type: "button", role: "gridcell", tabIndex: -1}, canvas);
      button.setAttribute("aria-label", `layer ${layer + 1}, ${headName(attention, head)}`);
      button.addEventListener("click", () => select({layer, head}));
      row.append(button);
      thumbnails.push({layer, head, button, canvas});
    }
    grid.append(row);
  }
}

function drawOverview() {
  const attention = attentions[state.attention];
  for (const {layer, head, canvas} of thumbnails) {
    const image = imageOf(weightsOf(state.attention, layer, head), attention.rows, attention.columns, RAMPS, x => Math.sqrt(x));
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
}

function markOverview() {
  for (const {layer, head, button} of thumbnails) {
    const isSelected = layer === state.layer && head === state.head;
    button.setAttribute("aria-selected", String(isSelected));
    button.tabIndex = isSelected ? 0 : -1;
  }
}

// --- The map -------------------------------------------------------------------------------------

const FONT = '12px "explorer", system-ui, sans-serif';
window.explorerLayout = () => layout;  // positions of the cells, for scripts that control the page
const LINES = 320;  // width of the drawing of the lines
let layout = null;

function measure() {
  const attention = attentions[state.attention], context = $("map").getContext("2d");
  context.font = FONT;
  const longest = tokens => Math.min(140, Math.max(...tokens.map(token => context.measureText(token).width)));
  const left = longest(attention.queries) + 10, top = longest(attention.keys) + 10;
  const section = getComputedStyle($("head"));
  const width = $("head").clientWidth - parseFloat(section.paddingLeft) - parseFloat(section.paddingRight);
  const fit = room => Math.min(34, Math.floor((room - left - 12) / attention.columns));
  const beside = fit(width - LINES - 16);  // with the lines beside the map, if there is enough room
  const cell = Math.max(9, beside >= 14 ? beside : fit(width));
  layout = {left, top, cell, width: left + cell * attention.columns + 12, height: top + cell * attention.rows + 4};
}

function drawMap() {
  const attention = attentions[state.attention], canvas = $("map"), {left, top, cell, width, height} = layout;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), accent = style.getPropertyValue("--accent");
  context.scale(scale, scale);
  context.clearRect(0, 0, width, height);
  const {values, ramps, toUnit} = shown();
  const small = new OffscreenCanvas(attention.columns, attention.rows);
  small.getContext("2d").putImageData(imageOf(values, attention.rows, attention.columns, ramps, toUnit), 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, left, top, cell * attention.columns, cell * attention.rows);
  if (attention.mask) hatch(context, attention, soft);
  context.font = FONT;
  context.textBaseline = "middle";
  attention.queries.forEach((token, row) => {
    context.fillStyle = row === state.row ? accent : ink;
    context.textAlign = "right";
    context.fillText(token, left - 6, top + (row + .5) * cell, left - 8);
  });
  attention.keys.forEach((token, column) => {
    context.save();
    context.translate(left + (column + .5) * cell, top - 6);
    context.rotate(-Math.PI / 2);
    context.fillStyle = column === state.column ? accent : ink;
    context.textAlign = "left";
    context.fillText(token, 0, 0, top - 8);
    context.restore();
  });
  context.strokeStyle = accent;
  context.lineWidth = 1.5;
  context.strokeRect(left, top + state.row * cell, cell * attention.columns, cell);
  context.strokeRect(left + state.column * cell, top, cell, cell * attention.rows);
}

function hatch(context, attention, ink) {
  const {left, top, cell} = layout;
  context.save();
  context.strokeStyle = ink;
  context.globalAlpha = .45;
  context.lineWidth = 1;
  context.beginPath();
  for (let row = 0; row < attention.rows; row++) for (let column = 0; column < attention.columns; column++) {
    if (!isMasked(attention, row, column)) continue;
    const x = left + column * cell, y = top + row * cell;
    context.moveTo(x, y + cell);
    context.lineTo(x + cell, y);
    context.moveTo(x, y + cell / 2);
    context.lineTo(x + cell / 2, y);
    context.moveTo(x + cell / 2, y + cell);
    context.lineTo(x + cell, y + cell / 2);
  }
  context.stroke();
  context.restore();
}

function cellAt(event) {
  const attention = attentions[state.attention], {left, top, cell} = layout, box = $("map").getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left - left) / cell), row = Math.floor((event.clientY - box.top - top) / cell);
  if (row < 0 || row >= attention.rows || column >= attention.columns || column < -left / cell) return null;
  return {row, column: column < 0 ? state.column : column};
}

function describe(row, column) {
  const attention = attentions[state.attention], {values, differs} = shown();
  const weight = values[row * attention.columns + column];
  const masked = isMasked(attention, row, column) ? ", masked" : "";
  return `${attention.queries[row]} → ${attention.keys[column]}: ${percent(weight, differs)}${masked}`;
}

function drawRamp() {
  const {ramps, differs} = shown(), canvas = $("ramp"), context = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x++) {
    context.fillStyle = `rgb(${colour(ramps[theme()], x / (canvas.width - 1)).join(" ")})`;
    context.fillRect(x, 0, 1, canvas.height);
  }
  $("low").textContent = differs ? "-100 %" : "0 %";
  $("high").textContent = differs ? "+100 %" : "100 %";
}

// --- Lines from the selected query to the keys --------------------------------------------------------

function drawLines() {
  const attention = attentions[state.attention], canvas = $("lines"), scale = window.devicePixelRatio || 1;
  const width = LINES, step = 18;
  const height = Math.max(attention.rows, attention.columns) * step + 34;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), accent = style.getPropertyValue("--accent");
  context.scale(scale, scale);
  context.font = FONT;
  context.textBaseline = "middle";
  const from = width * .36, to = width * .64, weights = weightsOf(state.attention, state.layer, state.head);
  context.fillStyle = soft;
  context.textAlign = "right";
  context.fillText("query", from - 8, 10);
  context.textAlign = "left";
  context.fillText("key", to + 8, 10);
  const y = place => 30 + place * step;
  context.strokeStyle = accent;
  for (let column = 0; column < attention.columns; column++) {
    const weight = weights[state.row * attention.columns + column];
    if (weight < .005) continue;
    context.globalAlpha = .15 + .85 * weight;
    context.lineWidth = .5 + 6 * weight;
    context.beginPath();
    context.moveTo(from, y(state.row));
    context.bezierCurveTo((from + to) / 2, y(state.row), (from + to) / 2, y(column), to, y(column));
    context.stroke();
  }
  context.globalAlpha = 1;
  attention.queries.forEach((token, row) => {
    context.fillStyle = row === state.row ? accent : ink;
    context.textAlign = "right";
    context.fillText(token, from - 8, y(row), from - 12);
  });
  attention.keys.forEach((token, column) => {
    context.fillStyle = column === state.column ? accent : ink;
    context.textAlign = "left";
    context.fillText(token, to + 8, y(column), width - to - 12);
  });
}

// --- Description and table of the selected head --------------------------------------------------------

function describeQuery() {
  const attention = attentions[state.attention], weights = weightsOf(state.attention, state.layer, state.head);
  const row = Array.from(weights.subarray(state.row * attention.columns, (state.row + 1) * attention.columns));
  const best = row.map((weight, column) => [weight, column]).sort((a, b) => b[0] - a[0]).slice(0, 3).filter(([weight]) => weight > 0);
  const parts = best.map(([weight, column]) => `“${attention.keys[column]}” ${percent(weight)}`);
  const attends = parts.length ? `attends to ${parts.join(", ")}` : "is fully masked";
  $("summary").textContent = `${nameOf(state)}: “${attention.queries[state.row]}” ${attends}. Selected cell: ${describe(state.row, state.column)}.`;
}

let shownTable = "";
function fillTable() {
  const key = JSON.stringify([state.attention, state.layer, state.head, state.pin]);
  if (!$("weights").open || shownTable === key) return;
  shownTable = key;
  const attention = attentions[state.attention], {values, differs} = shown();
  const head = make("tr", {}, make("th", {scope: "col", textContent: "query \\ key"}), ...attention.keys.map(token => make("th", {scope: "col", textContent: token})));
  const rows = attention.queries.map((token, row) => make("tr", {}, make("th", {scope: "row", textContent: token}),
    ...attention.keys.map((_, column) => make("td", {textContent: percent(values[row * attention.columns + column], differs)}))));
  $("table").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

// --- Decoding steps ----------------------------------------------------------------------------------

function showDecoding() {
  if (!data.decoding) return;
  const {tokens, candidates} = data.decoding, step = Number($("step").value);
  $("generated").replaceChildren(...tokens.slice(0, step + 1).flatMap((token, i) => [" ", make("span", {className: i === step ? "now" : "", textContent: token})]));
  $("step").setAttribute("aria-valuetext", `${step + 1} of ${tokens.length}: ${tokens[step]}`);
  $("candidates").replaceChildren(...candidates[step].map(([token, probability]) => make("li", {},
    make("meter", {min: 0, max: 1, value: probability, ariaLabel: `${token}: ${percent(probability)}`}), ` ${token} ${percent(probability)}`)));
}

// --- Selection and rendering ---------------------------------------------------------------------------

function select(change, {keepStep = false} = {}) {
  const isNew = change.attention !== undefined && change.attention !== state.attention;
  Object.assign(state, change);
  const attention = attentions[state.attention];
  state.layer = Math.min(state.layer, attention.layers - 1);
  state.head = Math.min(state.head, columnsOf(attention) - 1);
  state.row = Math.min(state.row, attention.rows - 1);
  state.column = Math.min(state.column, attention.columns - 1);
  if (isNew) {
    state.pin = null;
    buildOverview();
    drawOverview();
    measure();
  }
  if (data.decoding && attention.isDecoding && !keepStep) {
    $("step").value = state.row;
    showDecoding();
  }
  render();
}

function render() {
  for (const [a, option] of [...$("attentions").children].entries()) {
    option.setAttribute("aria-checked", String(a === state.attention));
    option.tabIndex = a === state.attention ? 0 : -1;
  }
  markOverview();
  $("name").textContent = nameOf(state);
  $("pin").setAttribute("aria-pressed", String(Boolean(state.pin)));
  $("pin").textContent = state.pin ? "Unpin" : "Pin to compare";
  $("compare").textContent = state.pin ? `minus ${nameOf(state.pin)}` : "";
  $("map").setAttribute("aria-label", `${nameOf(state)}: attention weights of ${attentions[state.attention].rows} queries and ${attentions[state.attention].columns} keys`);
  drawMap();
  drawRamp();
  drawLines();
  describeQuery();
  fillTable();
  updateAddress();
}

function setTheme(dark) {
  state.dark = dark;
  document.documentElement.dataset.theme = theme();
  $("theme").setAttribute("aria-pressed", String(dark));
  drawOverview();
  render();
}

// --- Downloads -------------------------------------------------------------------------------------

function download(name, blob) {
  const link = make("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
const shownName = () => nameOf(state) + (state.pin ? ` minus ${nameOf(state.pin)}` : "");
const fileName = ending => `${shownName().toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-")}.${ending}`;
const escaped = text => text.replace(/[\x00-\x1f\ufffe\uffff]/g, "\ufffd").replace(/[&<>"']/g, letter => `&#${letter.charCodeAt(0)};`);

function csvOf() {
  const attention = attentions[state.attention], {values} = shown();
  const quote = text => `"${text.replace(/"/g, '""')}"`;
  const lines = [["", ...attention.keys].map(quote).join(",")];
  attention.queries.forEach((token, row) => lines.push([quote(token),
    ...Array.from(values.subarray(row * attention.columns, (row + 1) * attention.columns), x => x.toFixed(4))].join(",")));
  return lines.join("\r\n") + "\r\n";
}

function svgOf() {
  const attention = attentions[state.attention], {values, ramps, toUnit} = shown(), {left, top, cell, width, height} = layout;
  const style = getComputedStyle(document.documentElement), ink = style.getPropertyValue("--ink").trim(), back = style.getPropertyValue("--back").trim();
  const context = $("map").getContext("2d");
  const fit = (token, room) => context.measureText(token).width > room ? ` textLength="${room}" lengthAdjust="spacingAndGlyphs"` : "";
  const parts = [`<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="sans-serif" font-size="12" fill="${ink}">`,
    `<title>${escaped(shownName())}</title><rect width="100%" height="100%" fill="${back}"/>`,
    `<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" stroke="${ink}" stroke-opacity=".45"/></pattern>`];
  for (let row = 0; row < attention.rows; row++) for (let column = 0; column < attention.columns; column++) {
    const value = values[row * attention.columns + column], x = left + column * cell, y = top + row * cell;
    const box = `x="${x}" y="${y}" width="${cell}" height="${cell}"`;
    parts.push(`<rect ${box} fill="rgb(${colour(ramps[theme()], toUnit(value)).join(",")})"/>`);
    if (isMasked(attention, row, column)) parts.push(`<rect ${box} fill="url(#hatch)"/>`);
  }
  attention.queries.forEach((token, row) => parts.push(`<text x="${left - 6}" y="${top + (row + .5) * cell + 4}" text-anchor="end"${fit(token, left - 8)}>${escaped(token)}</text>`));
  attention.keys.forEach((token, column) => parts.push(`<text transform="translate(${left + (column + .5) * cell + 4} ${top - 6}) rotate(-90)"${fit(token, top - 8)}>${escaped(token)}</text>`));
  return [...parts, "</svg>"].join("\n");
}

// --- Events ----------------------------------------------------------------------------------------

const ARROWS = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
const wrap = (x, n) => (x + n) % n;

$("grid").addEventListener("keydown", event => {
  const move = ARROWS[event.key], attention = attentions[state.attention];
  if (!move) return;
  event.preventDefault();
  select({layer: wrap(state.layer + move[0], attention.layers), head: wrap(state.head + move[1], columnsOf(attention))});
  thumbnails.find(each => each.layer === state.layer && each.head === state.head).button.focus();
});
$("map").addEventListener("keydown", event => {
  const move = ARROWS[event.key], attention = attentions[state.attention];
  if (!move) return;
  event.preventDefault();
  select({row: wrap(state.row + move[0], attention.rows), column: wrap(state.column + move[1], attention.columns)});
});
$("map").addEventListener("pointermove", event => {
  const cell = cellAt(event), tip = $("tip");
  tip.hidden = cell === null;
  if (cell === null) return;
  if (cell.row !== state.row || cell.column !== state.column) select(cell);
  tip.textContent = describe(cell.row, cell.column);
  const x = layout.left + (cell.column + 1) * layout.cell + 6;
  tip.style.left = `${Math.max(0, Math.min(x, $("figure").clientWidth + $("figure").scrollLeft - tip.offsetWidth - 4))}px`;
  tip.style.top = `${layout.top + (cell.row + 1) * layout.cell + 4}px`;
});
$("map").addEventListener("pointerleave", () => { $("tip").hidden = true; });
const togglePin = () => select({pin: state.pin ? null : {attention: state.attention, layer: state.layer, head: state.head}});
$("pin").addEventListener("click", togglePin);
$("theme").addEventListener("click", () => setTheme(!state.dark));
$("weights").addEventListener("toggle", fillTable);
$("png").addEventListener("click", () => $("map").toBlob(blob => download(fileName("png"), blob)));
$("svg").addEventListener("click", () => download(fileName("svg"), new Blob([svgOf()], {type: "image/svg+xml"})));
$("csv").addEventListener("click", () => download(fileName("csv"), new Blob(["\ufeff", csvOf()], {type: "text/csv"})));
$("step").addEventListener("input", () => {
  showDecoding();
  const isStep = attention => attention.rows === data.decoding.tokens.length && attention.isDecoding;
  const shows = isStep(attentions[state.attention]) ? state.attention : attentions.findLastIndex(isStep);
  if (shows >= 0) select({attention: shows, row: Number($("step").value)}, {keepStep: true});
});
document.addEventListener("keydown", event => {
  if (!$("shortcuts").checked) return;
  if (event.ctrlKey !== event.altKey || event.metaKey) return;  // both together are AltGr
  if (event.key === "[" || event.key === "]") select({attention: wrap(state.attention + (event.key === "]" ? 1 : -1), attentions.length)});
  else if (event.key === "p") togglePin();
  else if (data.decoding && (event.key === "," || event.key === ".")) {
    $("step").value = Number($("step").value) + (event.key === "." ? 1 : -1);
    $("step").dispatchEvent(new Event("input"));
  }
});
window.addEventListener("resize", () => { measure(); render(); });
window.addEventListener("hashchange", () => { readAddress(); buildOverview(); drawOverview(); measure(); select({}); });

for (const [a, attention] of attentions.entries()) {
  const option = make("button", {type: "button", role: "radio", textContent: attention.name});
  option.addEventListener("click", () => select({attention: a}));
  option.addEventListener("keydown", event => {
    const move = ARROWS[event.key];
    if (!move) return;
    event.preventDefault();
    select({attention: wrap(state.attention + move[0] + move[1], attentions.length)});
    $("attentions").children[state.attention].focus();
  });
  $("attentions").append(option);
}
if (data.decoding) {
  $("decoding").hidden = false;
  $("step").max = data.decoding.tokens.length - 1;
}
readAddress();
if (data.decoding && attentions[state.attention].isDecoding) $("step").value = state.row;
showDecoding();
buildOverview();
state.dark = matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = theme();
measure();
setTheme(state.dark);
document.documentElement.dataset.ready = "true";
})();
