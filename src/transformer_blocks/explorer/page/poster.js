// Poster: the shown view as a picture with title, legend and background, and the weights as a file.

import {hatching} from "./charts.js";
import {$, attentions, data, headName, make, nameOf, percent} from "./data.js";
import {state, views} from "./registry.js";
import {Scene, fontsFor, paint, svgOf, textWidth, textsOf} from "./scene.js";
import {coloursOf, palette} from "./style.js";

function download(name, blob) {
  const link = make("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
const fileName = ending => `${subjectsOf().slice(data.model ? 1 : 0).join(" ").toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-")}.${ending}`;

function csvOf() {
  const attention = attentions[state.attention], values = views[state.view].weights();
  const quote = text => `"${text.replace(/"/g, '""')}"`;
  const lines = [["", ...attention.keys].map(quote).join(",")];
  attention.queries.forEach((token, row) => lines.push([quote(token),
    ...Array.from(values.subarray(row * attention.columns, (row + 1) * attention.columns), x => x.toFixed(4))].join(",")));
  return lines.join("\r\n") + "\r\n";
}
const saveWeights = () => download(fileName("csv"), new Blob(["\ufeff", csvOf()], {type: "text/csv"}));

// --- The picture --------------------------------------------------------------------------------------

// Break a text into lines of at most `room`: at spaces, and between Chinese, Japanese and Korean letters.
const PIECES = /[（「『【]*[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}][ー、。，．！？」』）】…]*|[^\s\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]+|\s+/gu;
function wrapText(text, room, {size, weight = "normal", most}) {
  const fits = line => textWidth(line.trim(), size, weight) <= room, lines = [""];
  const pieces = (text.slice(0, 1000).match(PIECES) ?? []).flatMap(piece => fits(piece) ? [piece] : [...piece]);
  for (const piece of pieces) {
    if (fits(lines.at(-1) + piece)) lines[lines.length - 1] += piece;
    else lines.push(piece);
  }
  const shown = lines.slice(0, most).map(line => line.trim());
  if (lines.length > most) {
    const letters = [...shown.pop()];
    while (letters.length && !fits(`${letters.join("")}…`)) letters.pop();
    shown.push(`${letters.join("").trimEnd()}…`);
  }
  return shown;
}

// The entries of a map's legend: each has a width and draws itself from x on, around the height y.
function legendEntries(most, colours, unit) {
  const attention = attentions[state.attention], size = 12 * unit, gap = 7 * unit, entries = [];
  const label = text => ({width: textWidth(text, size), draw: (scene, x, y) => scene.text(x, y, text, {size, fill: colours.text})});
  const joined = (...parts) => ({
    width: parts.reduce((width, part) => width + part.width + gap, -gap),
    draw(scene, x, y) { for (const part of parts) { part.draw(scene, x, y); x += part.width + gap; } },
  });
  const width = 150 * unit, height = 11 * unit, steps = 150;
  const name = headName(attention, state.head) === "rollout" ? "attention rollout" : "attention weight";
  const places = Float32Array.from({length: steps}, (_, i) => i / (steps - 1));
  const bar = {width, draw(scene, x, y) {
    scene.cells(x, y - height / 2, width / steps, height, 1, steps, coloursOf(places, colours.weights, place => place));
    scene.rect(x, y - height / 2, width, height, {stroke: colours.muted, line: .75 * unit});
  }};
  entries.push(joined(label(name), label("0 %"), bar, label(percent(most))));
  if (attention.mask?.some(Boolean)) {
    const side = 14 * unit, swatch = {width: side, draw(scene, x, y) {
      scene.path(hatching(x, y - side / 2, side, side), {stroke: colours.muted, line: unit});
      scene.rect(x, y - side / 2, side, side, {stroke: colours.muted, line: .75 * unit});
    }};
    entries.push(joined(swatch, label("masked")));
  }
  return entries;
}

// What is shown: the model, then the attention, layer and heads.
const subjectsOf = () => [data.model, nameOf(state)].filter(Boolean);
const subjectOf = () => subjectsOf().join(" · ");

// The shown view as a scene with all that a reader needs who does not have the page.
function posterOf() {
  const colours = palette(), view = views[state.view], body = view.scene(colours);
  const scale = Math.max(1, Math.min(1.5, 420 / body.width)), room = Math.max(460, Math.ceil(body.width * scale));
  const unit = Math.max(1, Math.min(2, room / 700)), margin = Math.round(28 * unit);
  const scene = new Scene(room + 2 * margin, 0);
  scene.rect(0, 0, scene.width, 0, {fill: colours.background});
  let y = margin;
  const write = (text, {size, leading, fill, weight, most}) => {
    for (const line of wrapText(text, room, {size, weight, most})) {
      scene.text(margin, y + leading / 2, line, {size, fill, weight, room});
      y += leading;
    }
  };
  write(document.title, {size: 20 * unit, leading: 27 * unit, fill: colours.text, weight: "bold", most: 3});
  y += 3 * unit;
  const subtitle = {size: 13 * unit, leading: 19 * unit, fill: colours.muted, most: 2};
  const isShort = textWidth(subjectOf(), subtitle.size) <= room;
  for (const text of isShort ? [subjectOf()] : subjectsOf()) write(text, subtitle);
  y += 16 * unit;
  scene.add(body, margin + (room - body.width * scale) / 2, y, scale);
  y += body.height * scale + 16 * unit;
  const note = (view.caption?.() ?? "").replace(nameOf(state), "").replace(/^: /, "");  // what the view says about itself
  if (note) {
    write(note.replace(/^./u, letter => letter.toUpperCase()), {size: 12 * unit, leading: 17 * unit, fill: colours.muted, most: 3});
    y += 5 * unit;
  }
  let x = margin;
  const leading = 24 * unit, space = 22 * unit;
  const place = (width, isLast) => {  // in this row of the legend, or in the next one
    if (x > margin && x + width > margin + room) { x = margin; y += leading; }
    if (isLast) x = margin + room - width;
  };
  for (const entry of view.most ? legendEntries(view.most(), colours, unit) : []) {
    place(entry.width);
    entry.draw(scene, x, y + leading / 2);
    x += entry.width + space;
  }
  const sign = "transformer_blocks", size = 11 * unit;
  place(textWidth(sign, size), true);
  scene.text(margin + room, y + leading / 2, sign, {size, fill: colours.muted, anchor: "end"});
  scene.height = Math.ceil(y + leading + margin - 6 * unit);
  scene.shapes[0].height = scene.height;  // of the background
  return scene;
}

// Pixels of a picture for each of the scene: at least 2, and as many as make it 1,600 wide, but no
// side longer than 8,000, which every browser's canvas allows. Shapes are painted in that size.
const pixelsOf = scene => Math.min(Math.max(2, 1600 / scene.width), 8000 / Math.max(scene.width, scene.height));

function pngOf(scene) {  // at once: Canvas.toBlob may wait until the browser is idle
  const pixels = pixelsOf(scene), canvas = make("canvas");
  canvas.width = Math.round(scene.width * pixels);
  canvas.height = Math.round(scene.height * pixels);
  const context = canvas.getContext("2d", {alpha: false});
  context.setTransform(canvas.width / scene.width, 0, 0, canvas.height / scene.height, 0, 0);
  paint(scene, context);
  const text = canvas.toDataURL("image/png").split(",")[1];
  if (!text) throw new RangeError("the canvas is too large");
  return new Blob([Uint8Array.from(atob(text), letter => letter.charCodeAt(0))], {type: "image/png"});
}
const fileOf = scene => `<?xml version="1.0" encoding="UTF-8"?>\n` +
  svgOf(scene, {title: document.title, description: subjectOf(), fonts: fontsFor(textsOf(scene))}) + "\n";

function savePng() {
  try {
    download(fileName("png"), pngOf(posterOf()));
  } catch {
    saveSvg();  // a picture of any size
  }
}
const saveSvg = () => download(fileName("svg"), new Blob([fileOf(posterOf())], {type: "image/svg+xml"}));

$("save-svg").addEventListener("click", saveSvg);
$("save-png").addEventListener("click", savePng);
$("save-csv").addEventListener("click", saveWeights);
