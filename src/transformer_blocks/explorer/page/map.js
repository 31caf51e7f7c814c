// Map: the attention weights of one head, or their difference to a pinned head.

views.map = {
  name: "Map",
  sections: ["overview", "head"],
  lead: () => "Each cell is an attention weight: the darker, the more the token of the row attends to the token of the column.",
  measure: measureMap,
  draw: drawMap,
  scene: mapScene,
};

// What is shown: values with their colours, from 0 (or minus `most`) to `most`, the largest.
function shown() {
  const weights = weightsOf(state.attention, state.layer, state.head);
  const largest = values => values.reduce((most, x) => Math.max(most, Math.abs(x)), 1e-6);
  if (!state.pin) {
    const most = largest(weights);
    return {values: weights, ramp: "weights", most, toUnit: x => x / most, differs: false};
  }
  const other = weightsOf(state.pin.attention, state.pin.layer, state.pin.head);
  const values = weights.map((x, i) => x - other[i]), most = largest(values);
  return {values, ramp: "differences", most, toUnit: x => (x / most + 1) / 2, differs: true};
}

const LINES = 320;  // width of the drawing of the lines
let layout = null;
window.explorerLayout = () => layout;  // positions of the cells, for scripts that control the page

// Place the map within a width: labels on the left and above, square cells.
function layOut(width, largestCell = 34) {
  const attention = attentions[state.attention];
  const longest = tokens => Math.min(140, Math.max(...tokens.map(token => textWidth(token, 12))));
  const left = longest(attention.queries) + 10, top = longest(attention.keys) + 10;
  const cell = Math.max(9, Math.min(largestCell, Math.floor((width - left - 12) / attention.columns)));
  return {left, top, cell, width: left + cell * attention.columns + 12, height: top + cell * attention.rows + 4};
}

function measureMap() {
  const section = getComputedStyle($("head"));
  const width = $("head").clientWidth - parseFloat(section.paddingLeft) - parseFloat(section.paddingRight);
  const beside = layOut(width - LINES - 16);  // with the lines beside the map, if there is enough room
  layout = beside.cell >= 14 ? beside : layOut(width);
}

// The map as a scene; also the picture that is saved, then without a selection.
function mapScene(colours, {left, top, cell, width, height} = layout, {isPicture = true} = {}) {
  const attention = attentions[state.attention], {values, ramp, toUnit} = shown(), scene = new Scene(width, height);
  scene.cells(left, top, cell, cell, attention.rows, attention.columns, coloursOf(values, colours[ramp], toUnit));
  if (attention.mask) hatch(scene, attention, colours.muted, {left, top, cell});
  attention.queries.forEach((token, row) => scene.text(left - 6, top + (row + .5) * cell, token, {
    fill: !isPicture && row === state.row ? colours.accent : colours.text, anchor: "end", room: left - 8,
  }));
  attention.keys.forEach((token, column) => {
    const upright = isUpright(token), x = left + (column + .5) * cell, y = top - 6;
    scene.text(x, y, token, {
      fill: !isPicture && column === state.column ? colours.accent : colours.text, upright, angle: -90, room: top - 8,
    });
  });
  if (!isPicture) {
    scene.rect(left, top + state.row * cell, cell * attention.columns, cell, {stroke: colours.accent, line: 1.5});
    scene.rect(left + state.column * cell, top, cell, cell * attention.rows, {stroke: colours.accent, line: 1.5});
  }
  return scene;
}

function hatch(scene, attention, ink, {left, top, cell}) {
  const parts = [];
  for (let row = 0; row < attention.rows; row++) for (let column = 0; column < attention.columns; column++) {
    if (!isMasked(attention, row, column)) continue;
    const x = left + column * cell, y = top + row * cell;
    parts.push(`M${x} ${y + cell}L${x + cell} ${y}M${x} ${y + cell / 2}L${x + cell / 2} ${y}M${x + cell / 2} ${y + cell}L${x + cell} ${y + cell / 2}`);
  }
  scene.path(parts.join(""), {stroke: ink, opacity: .45});
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
  const {ramp, most, differs} = shown(), canvas = $("ramp"), context = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x++) {
    context.fillStyle = `rgb(${colour(palette()[ramp], x / (canvas.width - 1)).join(" ")})`;
    context.fillRect(x, 0, 1, canvas.height);
  }
  $("low").textContent = differs ? percent(-most) : "0 %";
  $("high").textContent = `${percent(most, differs)} (largest)`;
}

// --- Lines from the selected query to the keys --------------------------------------------------------

function drawLines() {
  const attention = attentions[state.attention], colours = palette(), width = LINES, step = 18;
  const scene = new Scene(width, Math.max(attention.rows, attention.columns) * step + 34);
  const from = width * .36, to = width * .64, weights = weightsOf(state.attention, state.layer, state.head);
  scene.text(from - 8, 10, attention.queryAxis, {fill: colours.muted, anchor: "end", room: from - 12});
  scene.text(to + 8, 10, attention.keyAxis, {fill: colours.muted, room: width - to - 12});
  const y = place => 30 + place * step;
  for (let column = 0; column < attention.columns; column++) {
    const weight = weights[state.row * attention.columns + column];
    if (weight < .005) continue;
    const middle = (from + to) / 2;
    scene.path(`M${from} ${y(state.row)}C${middle} ${y(state.row)} ${middle} ${y(column)} ${to} ${y(column)}`,
      {stroke: colours.accent, opacity: .15 + .85 * weight, line: .5 + 6 * weight});
  }
  attention.queries.forEach((token, row) => scene.text(from - 8, y(row), token, {
    fill: row === state.row ? colours.accent : colours.text, anchor: "end", room: from - 12,
  }));
  attention.keys.forEach((token, column) => scene.text(to + 8, y(column), token, {
    fill: column === state.column ? colours.accent : colours.text, room: width - to - 12,
  }));
  show(scene, $("lines"));
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
  const head = make("tr", {}, make("th", {scope: "col", textContent: `${attention.queryAxis} \\ ${attention.keyAxis}`}), ...attention.keys.map(token => make("th", {scope: "col", textContent: token})));
  const rows = attention.queries.map((token, row) => make("tr", {}, make("th", {scope: "row", textContent: token}),
    ...attention.keys.map((_, column) => make("td", {textContent: percent(values[row * attention.columns + column], differs)}))));
  $("table").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

function drawMap(isNew) {
  const attention = attentions[state.attention];
  if (isNew) { buildOverview(); drawOverview(); measureMap(); }
  markOverview();
  $("name").textContent = nameOf(state);
  $("pin").setAttribute("aria-pressed", String(Boolean(state.pin)));
  $("pin").textContent = state.pin ? "Unpin" : "Pin to compare";
  $("compare").textContent = state.pin ? `minus ${nameOf(state.pin)}` : "";
  $("map").setAttribute("aria-label", `${nameOf(state)}: attention weights of ${attention.rows} queries and ${attention.columns} keys`);
  show(mapScene(palette(), layout, {isPicture: false}), $("map"));
  drawRamp();
  drawLines();
  describeQuery();
  fillTable();
}

// --- Events ----------------------------------------------------------------------------------------

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
  if (!state.isLocked && (cell.row !== state.row || cell.column !== state.column)) select(cell, {record: false});
  tip.textContent = describe(cell.row, cell.column);
  const x = layout.left + (cell.column + 1) * layout.cell + 6;
  tip.style.left = `${Math.max(0, Math.min(x, $("figure").clientWidth + $("figure").scrollLeft - tip.offsetWidth - 4))}px`;
  tip.style.top = `${layout.top + (cell.row + 1) * layout.cell + 4}px`;
});
$("map").addEventListener("pointerleave", () => { $("tip").hidden = true; });
$("map").addEventListener("click", event => {
  const cell = cellAt(event);
  if (cell !== null) select({...cell, isLocked: true});
});
const togglePin = () => select({pin: state.pin ? null : {attention: state.attention, layer: state.layer, head: state.head}});
$("pin").addEventListener("click", togglePin);
$("weights").addEventListener("toggle", fillTable);
