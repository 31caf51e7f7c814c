"use strict";
(async () => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// --- The weights: 12 bits each, low and high bytes apart, deflated, base64 ---------------------

async function unpack(text, count) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const weights = new Float32Array(count);
  for (let i = 0; i < count; i++) weights[i] = (planes[i] + 256 * planes[count + i]) / data.levels;
  return weights;
}

await Promise.all([...document.fonts].map(font => font.load()));  // a canvas asks for none by itself
const blocks = await Promise.all(data.blocks.map(async block => {
  const {layers, heads} = block, rows = block.queries.length, columns = block.keys.length;
  const all = await unpack(block.weights, layers * heads * rows * columns);
  const size = rows * columns;
  const map = (layer, head) => all.subarray((layer * heads + head) * size, (layer * heads + head + 1) * size);
  const hidden = block.hidden && Uint8Array.from(atob(block.hidden), letter => letter.charCodeAt(0));
  return {...block, rows, columns, map, hidden};
}));

function meanOf(block, layer) {
  const mean = new Float32Array(block.rows * block.columns);
  for (let head = 0; head < block.heads; head++) {
    const one = block.map(layer, head);
    for (let i = 0; i < mean.length; i++) mean[i] += one[i] / block.heads;
  }
  return mean;
}

// Attention rollout: (A + I) / 2, with A the mean of a layer's heads, times the same of all before.
function rolloutOf(b, layer) {
  const block = blocks[b], n = block.rows;
  const step = meanOf(block, layer).map((x, i) => (x + (i % (n + 1) === 0 ? 1 : 0)) / 2);
  if (layer === 0) return step;
  const before = weightsOf(b, layer - 1, block.heads + 1), product = new Float32Array(n * n);
  for (let i = 0; i < n; i++) for (let k = 0; k < n; k++) {
    const factor = step[i * n + k];
    if (factor) for (let j = 0; j < n; j++) product[i * n + j] += factor * before[k * n + j];
  }
  return product;
}

const summaries = block => block.self ? ["mean", "rollout"] : ["mean"];
const kept = new Map();
function weightsOf(b, layer, column) {
  const block = blocks[b];
  if (column < block.heads) return block.map(layer, column);
  const key = `${b} ${layer} ${column}`;
  if (!kept.has(key)) {
    kept.set(key, summaries(block)[column - block.heads] === "mean" ? meanOf(block, layer) : rolloutOf(b, layer));
  }
  return kept.get(key);
}
const columnsOf = block => block.heads + summaries(block).length;
const headName = (block, column) => column < block.heads ? `head ${column + 1}` : summaries(block)[column - block.heads];
const nameOf = place => `${blocks[place.block].name}, layer ${place.layer + 1}, ${headName(blocks[place.block], place.head)}`;

// --- State, which the address bar keeps ----------------------------------------------------------

const state = {block: 0, layer: 0, head: 0, row: 0, column: 0, pin: null, dark: false};
const whole = (text, below) => Math.max(0, Math.min(below - 1, Number.parseInt(text, 10) || 0));

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has("b")) state.block = whole(given.get("b"), blocks.length);
  const block = blocks[state.block];
  state.layer = whole(given.get("l") ?? state.layer, block.layers);
  state.head = whole(given.get("h") ?? state.head, columnsOf(block));
  state.row = whole(given.get("q") ?? state.row, block.rows);
  state.column = whole(given.get("k") ?? state.column, block.columns);
  const pin = (given.get("pin") ?? "").split(".");
  state.pin = null;
  if (pin.length === 3) {
    const b = whole(pin[0], blocks.length);
    const place = {block: b, layer: whole(pin[1], blocks[b].layers), head: whole(pin[2], columnsOf(blocks[b]))};
    if (b === state.block) state.pin = place;
  }
}

let addressTimer = 0;
function writeAddress() {  // a little later, and once: browsers count how often a page does this
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => {
    const {block, layer, head, row, column, pin} = state;
    const address = `#b=${block}&l=${layer}&h=${head}&q=${row}&k=${column}` +
      (pin ? `&pin=${pin.block}.${pin.layer}.${pin.head}` : "");
    try {
      if (address !== location.hash) history.replaceState(null, "", address);
    } catch { /* a frame without an address of its own */ }
  }, 200);
}

// --- Colours -------------------------------------------------------------------------------------

const RAMPS = {  // from nothing to one
  light: [[255, 255, 255], [190, 215, 245], [92, 152, 222], [31, 88, 176], [9, 30, 92]],
  dark: [[12, 13, 18], [58, 24, 92], [156, 42, 106], [238, 107, 66], [252, 230, 140]],
};
const DIFFERENCE = {  // from -1 over 0 to 1
  light: [[178, 60, 20], [246, 190, 150], [255, 255, 255], [160, 200, 240], [20, 80, 170]],
  dark: [[255, 150, 90], [130, 60, 30], [16, 18, 23], [30, 70, 130], [130, 190, 255]],
};
const theme = () => state.dark ? "dark" : "light";

function colour(ramp, x) {
  const place = Math.max(0, Math.min(1, x)) * (ramp.length - 1);
  const index = Math.min(ramp.length - 2, Math.floor(place)), part = place - index;
  return ramp[index].map((from, i) => Math.round(from + part * (ramp[index + 1][i] - from)));
}
const tables = {};
function tableOf(ramps) {  // 4096 colours, so that drawing need only look them up
  const key = (ramps === RAMPS ? "weight " : "difference ") + theme();
  if (!tables[key]) {
    const table = new Uint8ClampedArray(4096 * 4);
    for (let i = 0; i < 4096; i++) table.set([...colour(ramps[theme()], i / 4095), 255], 4 * i);
    tables[key] = new Uint32Array(table.buffer);
  }
  return tables[key];
}

function imageOf(values, rows, columns, ramps, toUnit) {
  const image = new ImageData(columns, rows), pixels = new Uint32Array(image.data.buffer);
  const table = tableOf(ramps);
  for (let i = 0; i < values.length; i++) pixels[i] = table[Math.round(4095 * Math.max(0, Math.min(1, toUnit(values[i]))))];
  return image;
}

// --- Shown: the chosen head, or how it differs from the pinned one -----------------------------------

function shown() {
  const weights = weightsOf(state.block, state.layer, state.head);
  if (!state.pin) return {values: weights, ramps: RAMPS, toUnit: x => x, differs: false};
  const other = weightsOf(state.pin.block, state.pin.layer, state.pin.head);
  return {values: weights.map((x, i) => x - other[i]), ramps: DIFFERENCE, toUnit: x => (x + 1) / 2, differs: true};
}
const percent = (x, sign = false) => `${sign && x > 0 ? "+" : ""}${(100 * x).toFixed(1)} %`;
const isHidden = (block, row, column) => Boolean(block.hidden && block.hidden[row * block.columns + column]);

// --- Overview ------------------------------------------------------------------------------------

let thumbnails = [];

function buildOverview() {
  const block = blocks[state.block], grid = $("grid");
  grid.style.gridTemplateColumns = `auto repeat(${block.heads}, minmax(1.4rem, 1fr)) repeat(${summaries(block).length}, minmax(2.4rem, 1fr))`;
  thumbnails = [];
  const top = make("div", {role: "row"}, make("span", {className: "label", role: "columnheader", textContent: "layer"}));
  for (let head = 0; head < columnsOf(block); head++) {
    top.append(make("span", {className: "label", role: "columnheader", textContent: headName(block, head).replace("head ", "")}));
  }
  grid.replaceChildren(top);
  for (let layer = 0; layer < block.layers; layer++) {
    const row = make("div", {role: "row"}, make("span", {className: "label", role: "rowheader", textContent: `${layer + 1}`}));
    for (let head = 0; head < columnsOf(block); head++) {
      const canvas = make("canvas", {width: block.columns, height: block.rows});
      const button = make("button", {type: "button", role: "gridcell", tabIndex: -1}, canvas);
      button.setAttribute("aria-label", `layer ${layer + 1}, ${headName(block, head)}`);
      button.addEventListener("click", () => choose({layer, head}));
      row.append(button);
      thumbnails.push({layer, head, button, canvas});
    }
    grid.append(row);
  }
}

function drawOverview() {
  const block = blocks[state.block];
  for (const {layer, head, canvas} of thumbnails) {
    const image = imageOf(weightsOf(state.block, layer, head), block.rows, block.columns, RAMPS, x => Math.sqrt(x));
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
}

function markOverview() {
  for (const {layer, head, button} of thumbnails) {
    const chosen = layer === state.layer && head === state.head;
    button.setAttribute("aria-selected", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
  }
}

// --- The map -------------------------------------------------------------------------------------

const FONT = '12px "explorer", system-ui, sans-serif';
window.explorerLayout = () => layout;  // where the cells lie, for scripts that drive the page
const LINES = 320;  // width of the lines' drawing
let layout = null;

function measure() {
  const block = blocks[state.block], context = $("map").getContext("2d");
  context.font = FONT;
  const longest = tokens => Math.min(140, Math.max(...tokens.map(token => context.measureText(token).width)));
  const left = longest(block.queries) + 10, top = longest(block.keys) + 10;
  const section = getComputedStyle($("head"));
  const width = $("head").clientWidth - parseFloat(section.paddingLeft) - parseFloat(section.paddingRight);
  const fit = room => Math.min(34, Math.floor((room - left - 12) / block.columns));
  const beside = fit(width - LINES - 16);  // with the lines at its side, if that leaves enough
  const cell = Math.max(9, beside >= 14 ? beside : fit(width));
  layout = {left, top, cell, width: left + cell * block.columns + 12, height: top + cell * block.rows + 4};
}

function drawMap() {
  const block = blocks[state.block], canvas = $("map"), {left, top, cell, width, height} = layout;
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
  const small = new OffscreenCanvas(block.columns, block.rows);
  small.getContext("2d").putImageData(imageOf(values, block.rows, block.columns, ramps, toUnit), 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, left, top, cell * block.columns, cell * block.rows);
  if (block.hidden) hatch(context, block, soft);
  context.font = FONT;
  context.textBaseline = "middle";
  block.queries.forEach((token, row) => {
    context.fillStyle = row === state.row ? accent : ink;
    context.textAlign = "right";
    context.fillText(token, left - 6, top + (row + .5) * cell, left - 8);
  });
  block.keys.forEach((token, column) => {
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
  context.strokeRect(left, top + state.row * cell, cell * block.columns, cell);
  context.strokeRect(left + state.column * cell, top, cell, cell * block.rows);
}

function hatch(context, block, ink) {
  const {left, top, cell} = layout;
  context.save();
  context.strokeStyle = ink;
  context.globalAlpha = .45;
  context.lineWidth = 1;
  context.beginPath();
  for (let row = 0; row < block.rows; row++) for (let column = 0; column < block.columns; column++) {
    if (!isHidden(block, row, column)) continue;
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
  const block = blocks[state.block], {left, top, cell} = layout, box = $("map").getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left - left) / cell), row = Math.floor((event.clientY - box.top - top) / cell);
  if (row < 0 || row >= block.rows || column >= block.columns || column < -left / cell) return null;
  return {row, column: column < 0 ? state.column : column};
}

function describe(row, column) {
  const block = blocks[state.block], {values, differs} = shown();
  const weight = values[row * block.columns + column];
  const masked = isHidden(block, row, column) ? ", masked" : "";
  return `${block.queries[row]} → ${block.keys[column]}: ${percent(weight, differs)}${masked}`;
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

// --- Lines from the chosen query to its keys ----------------------------------------------------------

function drawLines() {
  const block = blocks[state.block], canvas = $("lines"), scale = window.devicePixelRatio || 1;
  const width = LINES, step = 18;
  const height = Math.max(block.rows, block.columns) * step + 34;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), accent = style.getPropertyValue("--accent");
  context.scale(scale, scale);
  context.font = FONT;
  context.textBaseline = "middle";
  const from = width * .36, to = width * .64, weights = weightsOf(state.block, state.layer, state.head);
  context.fillStyle = soft;
  context.textAlign = "right";
  context.fillText("looks", from - 8, 10);
  context.textAlign = "left";
  context.fillText("is looked at", to + 8, 10);
  const y = place => 30 + place * step;
  context.strokeStyle = accent;
  for (let column = 0; column < block.columns; column++) {
    const weight = weights[state.row * block.columns + column];
    if (weight < .005) continue;
    context.globalAlpha = .15 + .85 * weight;
    context.lineWidth = .5 + 6 * weight;
    context.beginPath();
    context.moveTo(from, y(state.row));
    context.bezierCurveTo((from + to) / 2, y(state.row), (from + to) / 2, y(column), to, y(column));
    context.stroke();
  }
  context.globalAlpha = 1;
  block.queries.forEach((token, row) => {
    context.fillStyle = row === state.row ? accent : ink;
    context.textAlign = "right";
    context.fillText(token, from - 8, y(row), from - 12);
  });
  block.keys.forEach((token, column) => {
    context.fillStyle = column === state.column ? accent : ink;
    context.textAlign = "left";
    context.fillText(token, to + 8, y(column), width - to - 12);
  });
}

// --- In words and numbers -------------------------------------------------------------------------

function tellSentence() {
  const block = blocks[state.block], weights = weightsOf(state.block, state.layer, state.head);
  const row = Array.from(weights.subarray(state.row * block.columns, (state.row + 1) * block.columns));
  const best = row.map((weight, column) => [weight, column]).sort((a, b) => b[0] - a[0]).slice(0, 3).filter(([weight]) => weight > 0);
  const parts = best.map(([weight, column]) => `“${block.keys[column]}” ${percent(weight)}`);
  const looks = parts.length ? `looks at ${parts.join(", ")}` : "may see nothing";
  $("sentence").textContent = `${nameOf(state)}: “${block.queries[state.row]}” ${looks}. Chosen cell: ${describe(state.row, state.column)}.`;
}

let tabled = "";
function fillTable() {
  const wanted = JSON.stringify([state.block, state.layer, state.head, state.pin]);
  if (!$("numbers").open || tabled === wanted) return;
  tabled = wanted;
  const block = blocks[state.block], {values, differs} = shown();
  const head = make("tr", {}, make("th", {scope: "col", textContent: "looks \\ at"}), ...block.keys.map(token => make("th", {scope: "col", textContent: token})));
  const rows = block.queries.map((token, row) => make("tr", {}, make("th", {scope: "row", textContent: token}),
    ...block.keys.map((_, column) => make("td", {textContent: percent(values[row * block.columns + column], differs)}))));
  $("table").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

// --- The translator writes -------------------------------------------------------------------------

function showWriting() {
  if (!data.writing) return;
  const {tokens, next} = data.writing, step = Number($("step").value);
  $("written").replaceChildren(...tokens.slice(0, step + 1).flatMap((token, i) => [" ", make("span", {className: i === step ? "now" : "", textContent: token})]));
  $("step").setAttribute("aria-valuetext", `${step + 1} of ${tokens.length}: ${tokens[step]}`);
  $("next").replaceChildren(...next[step].map(([word, probability]) => make("li", {},
    make("meter", {min: 0, max: 1, value: probability, ariaLabel: `${word}: ${percent(probability)}`}), ` ${word} ${percent(probability)}`)));
}

// --- Putting it together ---------------------------------------------------------------------------

function choose(change, {keepStep = false} = {}) {
  const newBlock = change.block !== undefined && change.block !== state.block;
  Object.assign(state, change);
  const block = blocks[state.block];
  state.layer = Math.min(state.layer, block.layers - 1);
  state.head = Math.min(state.head, columnsOf(block) - 1);
  state.row = Math.min(state.row, block.rows - 1);
  state.column = Math.min(state.column, block.columns - 1);
  if (newBlock) {
    state.pin = null;
    buildOverview();
    drawOverview();
    measure();
  }
  if (data.writing && block.steps && !keepStep) {
    $("step").value = state.row;
    showWriting();
  }
  render();
}

function render() {
  for (const [b, option] of [...$("blocks").children].entries()) {
    option.setAttribute("aria-checked", String(b === state.block));
    option.tabIndex = b === state.block ? 0 : -1;
  }
  markOverview();
  $("name").textContent = nameOf(state);
  $("pin").setAttribute("aria-pressed", String(Boolean(state.pin)));
  $("pin").textContent = state.pin ? "Unpin" : "Pin to compare";
  $("compare").textContent = state.pin ? `minus ${nameOf(state.pin)}` : "";
  $("map").setAttribute("aria-label", `${nameOf(state)}: weights of ${blocks[state.block].rows} by ${blocks[state.block].columns} tokens`);
  drawMap();
  drawRamp();
  drawLines();
  tellSentence();
  fillTable();
  writeAddress();
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
  const block = blocks[state.block], {values} = shown();
  const quote = text => `"${text.replace(/"/g, '""')}"`;
  const lines = [["", ...block.keys].map(quote).join(",")];
  block.queries.forEach((token, row) => lines.push([quote(token),
    ...Array.from(values.subarray(row * block.columns, (row + 1) * block.columns), x => x.toFixed(4))].join(",")));
  return lines.join("\r\n") + "\r\n";
}

function svgOf() {
  const block = blocks[state.block], {values, ramps, toUnit} = shown(), {left, top, cell, width, height} = layout;
  const style = getComputedStyle(document.documentElement), ink = style.getPropertyValue("--ink").trim(), back = style.getPropertyValue("--back").trim();
  const context = $("map").getContext("2d");
  const fit = (token, room) => context.measureText(token).width > room ? ` textLength="${room}" lengthAdjust="spacingAndGlyphs"` : "";
  const parts = [`<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="sans-serif" font-size="12" fill="${ink}">`,
    `<title>${escaped(shownName())}</title><rect width="100%" height="100%" fill="${back}"/>`,
    `<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" stroke="${ink}" stroke-opacity=".45"/></pattern>`];
  for (let row = 0; row < block.rows; row++) for (let column = 0; column < block.columns; column++) {
    const value = values[row * block.columns + column], x = left + column * cell, y = top + row * cell;
    const box = `x="${x}" y="${y}" width="${cell}" height="${cell}"`;
    parts.push(`<rect ${box} fill="rgb(${colour(ramps[theme()], toUnit(value)).join(",")})"/>`);
    if (isHidden(block, row, column)) parts.push(`<rect ${box} fill="url(#hatch)"/>`);
  }
  block.queries.forEach((token, row) => parts.push(`<text x="${left - 6}" y="${top + (row + .5) * cell + 4}" text-anchor="end"${fit(token, left - 8)}>${escaped(token)}</text>`));
  block.keys.forEach((token, column) => parts.push(`<text transform="translate(${left + (column + .5) * cell + 4} ${top - 6}) rotate(-90)"${fit(token, top - 8)}>${escaped(token)}</text>`));
  return [...parts, "</svg>"].join("\n");
}

// --- Events ----------------------------------------------------------------------------------------

const ARROWS = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
const wrap = (x, n) => (x + n) % n;

$("grid").addEventListener("keydown", event => {
  const move = ARROWS[event.key], block = blocks[state.block];
  if (!move) return;
  event.preventDefault();
  choose({layer: wrap(state.layer + move[0], block.layers), head: wrap(state.head + move[1], columnsOf(block))});
  thumbnails.find(each => each.layer === state.layer && each.head === state.head).button.focus();
});
$("map").addEventListener("keydown", event => {
  const move = ARROWS[event.key], block = blocks[state.block];
  if (!move) return;
  event.preventDefault();
  choose({row: wrap(state.row + move[0], block.rows), column: wrap(state.column + move[1], block.columns)});
});
$("map").addEventListener("pointermove", event => {
  const cell = cellAt(event), tip = $("tip");
  tip.hidden = cell === null;
  if (cell === null) return;
  if (cell.row !== state.row || cell.column !== state.column) choose(cell);
  tip.textContent = describe(cell.row, cell.column);
  const x = layout.left + (cell.column + 1) * layout.cell + 6;
  tip.style.left = `${Math.max(0, Math.min(x, $("figure").clientWidth + $("figure").scrollLeft - tip.offsetWidth - 4))}px`;
  tip.style.top = `${layout.top + (cell.row + 1) * layout.cell + 4}px`;
});
$("map").addEventListener("pointerleave", () => { $("tip").hidden = true; });
const togglePin = () => choose({pin: state.pin ? null : {block: state.block, layer: state.layer, head: state.head}});
$("pin").addEventListener("click", togglePin);
$("theme").addEventListener("click", () => setTheme(!state.dark));
$("numbers").addEventListener("toggle", fillTable);
$("png").addEventListener("click", () => $("map").toBlob(blob => download(fileName("png"), blob)));
$("svg").addEventListener("click", () => download(fileName("svg"), new Blob([svgOf()], {type: "image/svg+xml"})));
$("csv").addEventListener("click", () => download(fileName("csv"), new Blob(["\ufeff", csvOf()], {type: "text/csv"})));
$("step").addEventListener("input", () => {
  showWriting();
  const isStep = block => block.rows === data.writing.tokens.length && block.steps;
  const shows = isStep(blocks[state.block]) ? state.block : blocks.findLastIndex(isStep);
  if (shows >= 0) choose({block: shows, row: Number($("step").value)}, {keepStep: true});
});
document.addEventListener("keydown", event => {
  if (!$("shortcuts").checked) return;
  if (event.ctrlKey !== event.altKey || event.metaKey) return;  // both together are AltGr
  if (event.key === "[" || event.key === "]") choose({block: wrap(state.block + (event.key === "]" ? 1 : -1), blocks.length)});
  else if (event.key === "p") togglePin();
  else if (data.writing && (event.key === "," || event.key === ".")) {
    $("step").value = Number($("step").value) + (event.key === "." ? 1 : -1);
    $("step").dispatchEvent(new Event("input"));
  }
});
window.addEventListener("resize", () => { measure(); render(); });
window.addEventListener("hashchange", () => { readAddress(); buildOverview(); drawOverview(); measure(); choose({}); });

for (const [b, block] of blocks.entries()) {
  const option = make("button", {type: "button", role: "radio", textContent: block.name});
  option.addEventListener("click", () => choose({block: b}));
  option.addEventListener("keydown", event => {
    const move = ARROWS[event.key];
    if (!move) return;
    event.preventDefault();
    choose({block: wrap(state.block + move[0] + move[1], blocks.length)});
    $("blocks").children[state.block].focus();
  });
  $("blocks").append(option);
}
if (data.writing) {
  $("writing").hidden = false;
  $("step").max = data.writing.tokens.length - 1;
}
readAddress();
if (data.writing && blocks[state.block].steps) $("step").value = state.row;
showWriting();
buildOverview();
state.dark = matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = theme();
measure();
setTheme(state.dark);
document.documentElement.dataset.ready = "true";
})();
