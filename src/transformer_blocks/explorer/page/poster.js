// Poster: the shown view as a picture with title, legend and background, and the weights as a file.

import {$, attentions, data, make, nameOf} from "./data.js";
import {state, views} from "./registry.js";
import {Scene, paint, textWidth} from "./scene.js";
import {palette} from "./style.js";

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

// Break a text into lines of at most `room`: at spaces, and within what is wider.
function wrapText(text, room, {size, weight = "normal", most}) {
  const fits = line => textWidth(line.trim(), size, weight) <= room, lines = [""];
  const pieces = text.slice(0, 1000).split(/(?<=\s)/).flatMap(piece => fits(piece) ? [piece] : [...piece]);
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
  write(view.caption(), {size: 12 * unit, leading: 17 * unit, fill: colours.muted, most: 3});
  const sign = "transformer_blocks", size = 11 * unit;
  scene.text(margin + room, y + size, sign, {size, fill: colours.muted, anchor: "end"});
  scene.height = Math.ceil(y + 2 * size + margin);
  scene.shapes[0].height = scene.height;  // of the background
  return scene;
}

// Pixels of a picture for each of the scene: at least 2, and as many as make it 1,600 wide, but no
// side longer than 8,000, which every browser's canvas allows. Shapes are painted in that size.
const pixelsOf = scene => Math.min(Math.max(2, 1600 / scene.width), 8000 / Math.max(scene.width, scene.height));

function savePicture() {
  const scene = posterOf(), pixels = pixelsOf(scene), canvas = make("canvas"), name = fileName("png");
  canvas.width = Math.round(scene.width * pixels);
  canvas.height = Math.round(scene.height * pixels);
  const context = canvas.getContext("2d", {alpha: false});
  context.scale(pixels, pixels);
  paint(scene, context);
  canvas.toBlob(blob => download(name, blob));
}

$("save-png").addEventListener("click", savePicture);
$("save-csv").addEventListener("click", saveWeights);
