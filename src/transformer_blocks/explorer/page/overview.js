// Overview: a small map of every layer and head, of their mean, and of attention rollout.

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
    const image = new ImageData(attention.columns, attention.rows);
    new Uint32Array(image.data.buffer).set(coloursOf(weightsOf(state.attention, layer, head), palette().weights, Math.sqrt));
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

$("grid").addEventListener("keydown", event => {
  const move = ARROWS[event.key], attention = attentions[state.attention];
  if (!move) return;
  event.preventDefault();
  select({layer: wrap(state.layer + move[0], attention.layers), head: wrap(state.head + move[1], columnsOf(attention))});
  thumbnails.find(each => each.layer === state.layer && each.head === state.head).button.focus();
});
