// Why: the arithmetic of the selected weight, where the page has its queries, keys and values.

const STRONGEST = 5;  // keys that the panel lists; it adds up the others
const decodedVectors = new Map();  // by attention, once they are decoded: null until then
let shownWhy = "", whyWidth = 0;

// --- Queries, keys and values ---------------------------------------------------------------------

// A function of layer, head and position that returns a vector. Numbers have 16 bits: all low
// bytes, then all high bytes.
async function decodeVectors(attention, {step, data: text}, positions, size) {
  const planes = await inflate(text), count = attention.layers * attention.heads * positions * size;
  return (layer, head, position) => {
    const block = layer * attention.heads + head, start = (block * positions + position) * size;
    const vector = new Float64Array(size);
    for (let i = 0; i < size; i++) {
      vector[i] = (planes[start + i] | planes[count + start + i] << 8) << 16 >> 16;
      vector[i] *= step[block];
    }
    return vector;
  };
}

// Decode the vectors of an attention when they are first needed, then draw the panel.
async function decodeArithmetic(a) {
  const attention = attentions[a], {queries, keys, values, size, valueSize} = attention.arithmetic;
  decodedVectors.set(a, null);
  const [query, key, value] = await Promise.all([
    decodeVectors(attention, queries, attention.rows, size),
    decodeVectors(attention, keys, attention.columns, size),
    decodeVectors(attention, values, attention.columns, valueSize),
  ]);
  decodedVectors.set(a, {query, key, value});
  drawWhy();
}

function dot(x, y) {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
  return sum;
}
const sumOf = numbers => numbers.reduce((sum, x) => sum + x, 0);
const normOf = vector => Math.sqrt(dot(vector, vector));

function softmax(scores) {
  const largest = Math.max(...scores), exps = scores.map(score => Math.exp(score - largest)), sum = sumOf(exps);
  return {largest, exps, sum, weights: exps.map(x => x / sum)};
}

// The vectors of the head that was shown last.
let headVectors = {key: ""};
function vectorsOf(a, layer, head) {
  const key = `${a} ${layer} ${head}`;
  if (headVectors.key !== key) {
    const {query, key: keyAt, value: valueAt} = decodedVectors.get(a), positions = Array.from({length: attentions[a].columns}, (_, i) => i);
    const keys = positions.map(i => keyAt(layer, head, i)), values = positions.map(i => valueAt(layer, head, i));
    headVectors = {key, query: row => query(layer, head, row), keys, values, norms: values.map(normOf)};
  }
  return headVectors;
}

// Attention of one query, step by step as in attention.py.
function computeArithmetic({attention: a, layer, head, row, column}) {
  const attention = attentions[a], {arithmetic, columns} = attention, {keys, values, norms, ...vectors} = vectorsOf(a, layer, head);
  const query = vectors.query(row);
  const masked = keys.map((_, i) => isMasked(attention, row, i) || Boolean(arithmetic.causal) && i > row + columns - attention.rows);
  const isFullyMasked = masked.every(Boolean);

  const dots = keys.map(key => dot(query, key));
  const scores = dots.map(x => x * arithmetic.scale);
  const maskedScores = scores.map((score, i) => masked[i] ? -Infinity : score);
  const zeros = {largest: 0, exps: scores.map(() => 0), sum: 0, weights: scores.map(() => 0)};
  const result = isFullyMasked ? zeros : softmax(maskedScores);
  const unscaled = isFullyMasked ? zeros : softmax(dots.map((x, i) => masked[i] ? -Infinity : x));
  const output = new Float64Array(arithmetic.valueSize);
  values.forEach((value, i) => { for (let feature = 0; feature < output.length; feature++) output[feature] += result.weights[i] * value[feature]; });
  const lengths = norms.map((norm, i) => result.weights[i] * norm);
  return {
    ...result, masked, isFullyMasked, dots, scores, output, lengths, query, key: keys[column], value: values[column],
    products: query.map((x, i) => x * keys[column][i]), unscaled: unscaled.weights, weight: result.weights[column],
    contribution: values[column].map(x => result.weights[column] * x), share: lengths[column] / (sumOf(lengths) || 1),
    stored: attention.map(layer, head)[row * columns + column],
  };
}

// --- Numbers as text ------------------------------------------------------------------------------

const MINUS = "\u2212";
function decimal(x, digits = 2) {
  if (x === -Infinity) return `${MINUS}\u221e`;
  const text = Math.abs(x).toFixed(Math.abs(x) >= 1000 ? 0 : digits);
  return x < 0 && Number(text) !== 0 ? MINUS + text : text;
}
const small = x => x === 0 ? "0" : x >= .001 ? x.toFixed(3) : x.toExponential(0).replace("-", MINUS);  // of an exponential
const inBrackets = x => x < 0 ? `(${decimal(x)})` : decimal(x);
const exactPercent = x => `${(100 * x).toFixed(2)}\u00a0%`;
const roundPercent = x => percent(x).replace(" ", "\u00a0");
const quoted = token => `\u201c${inSentence(token)}\u201d`;
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// The places of the largest of some numbers, in the order of the places.
function placesOfLargest(numbers, count) {
  const places = Array.from(numbers, (_, i) => i);
  if (places.length > count) places.sort((i, j) => numbers[j] - numbers[i]);
  return places.slice(0, count).sort((i, j) => i - j);
}

// --- Charts ---------------------------------------------------------------------------------------

const chartColours = () => {
  const colours = palette();
  return {...colours, negative: colours.differences[0], positive: colours.differences.at(-1), bar: colours.weights[3]};
};

// Vectors as strips of cells, and below them a bar for each feature; marks are short lines.
function drawFeatures(canvas, width, {strips, bars, marks = null, name, height}) {
  const colours = chartColours(), left = 54, top = 4, strip = 14, gap = 4;
  const shownCount = Math.max(1, Math.floor((width - left - 4) / 3));
  let places = null;  // of the features that are shown, if there are more than fit
  if (bars.length > shownCount) {
    const most = Float64Array.from(bars, (x, i) => Math.max(Math.abs(x), marks ? Math.abs(marks[i]) : 0));
    places = placesOfLargest(most, shownCount - 1);
  }
  const thin = vector => places ? [...places.map(i => vector[i]), 0] : [...vector];
  const rest = vector => sumOf(vector) - sumOf(places.map(i => vector[i]));
  const heights = thin(bars), lines = marks && thin(marks);
  if (places) {
    heights[heights.length - 1] = rest(bars);
    if (lines) lines[lines.length - 1] = rest(marks);
  }
  const count = heights.length, step = Math.min(40, (width - left - 4) / count), bar = Math.max(1, step * .72);
  const scene = new Scene(width, top + strips.length * (strip + gap) + height + 30);
  let y = top;
  for (const [label, vector] of strips) {
    const numbers = thin(vector), most = numbers.reduce((sum, x) => Math.max(sum, Math.abs(x)), 1e-9);
    scene.text(left - 8, y + strip / 2, label, {size: 11.5, fill: colours.muted, anchor: "end"});
    scene.cells(left, y, step, strip, 1, count, coloursOf(numbers, colours.differences, x => (x / most + 1) / 2));
    scene.rect(left, y, step * count, strip, {stroke: colours.muted, opacity: .5});
    y += strip + gap;
  }
  const high = Math.max(0, ...heights, ...(lines ?? [])), low = Math.min(0, ...heights, ...(lines ?? []));
  const unit = height / (high - low || 1), zero = y + 14 + high * unit, end = left + step * count;
  scene.text(left - 8, zero, name, {size: 11.5, fill: colours.muted, anchor: "end"});
  heights.forEach((x, i) => {
    const size = Math.abs(x) * unit;
    scene.rect(left + i * step + (step - bar) / 2, x > 0 ? zero - size : zero, bar, size, {fill: x > 0 ? colours.positive : colours.negative});
  });
  scene.path(`M${left} ${zero}H${end}`, {stroke: colours.muted});
  const marksOf = lines ? lines.map((x, i) => `M${left + (i + .06) * step} ${zero - x * unit}h${step * .88}`).join("") : "";
  if (marksOf) scene.path(marksOf, {stroke: colours.text, line: 1.5});
  const placed = [];  // where labels are: none covers another
  for (const i of placesOfLargest(heights.map(Math.abs), 5).sort((i, j) => Math.abs(heights[j]) - Math.abs(heights[i]))) {
    const label = places && i === count - 1 ? "others" : String((places ? places[i] : i) + 1);
    const middle = left + (i + .5) * step, half = textWidth(label, 11) / 2 + 2;
    if (Math.abs(heights[i]) * unit < 2 || placed.some(other => Math.abs(other.middle - middle) < other.half + half)) continue;
    placed.push({middle, half});
    const reach = Math.max(Math.abs(heights[i]), lines && lines[i] * heights[i] > 0 ? Math.abs(lines[i]) : 0) * unit;
    scene.text(Math.min(middle, width - half), heights[i] > 0 ? zero - reach - 7 : zero + reach + 8, label, {size: 11, fill: colours.text, anchor: "middle"});
  }
  show(scene, canvas);
}

// Hatching of masked keys: the lines of a cell, as a part of a path.
function hatching(x, y, width, height) {
  const count = Math.max(1, Math.round(width / 7)), step = width / count, parts = [];
  for (let i = 0; i < count; i++) parts.push(`M${x + i * step} ${y + height}l${step} ${-height}`);
  return parts.join("");
}

const box = (x, y, width, height) => `M${x} ${y}h${width}v${height}h${-width}z`;  // as a part of a path

// The scores of all keys as bars; the selected one is marked, masked ones are hatched.
function drawScores(canvas, width, {scores, masked}, column, label) {
  const colours = chartColours(), height = 52, top = 4, left = 54, step = Math.min(44, (width - left - 4) / scores.length);
  const open = scores.filter((_, i) => !masked[i]), high = Math.max(0, ...open), low = Math.min(0, ...open);
  const unit = height / (high - low || 1), zero = top + high * unit, bar = step > 3 ? step * .72 : step;
  const scene = new Scene(width, height + top + 16), bars = [];
  scene.text(left - 8, zero, "score", {size: 11.5, fill: colours.muted, anchor: "end"});
  const ticks = [];
  scores.forEach((score, i) => {
    const x = left + i * step + (step - bar) / 2;
    if (masked[i]) return ticks.push(hatching(left + i * step, top, step, height));
    const size = Math.max(1, Math.abs(score) * unit);
    if (i === column) scene.rect(x, score > 0 ? zero - size : zero, Math.max(2, bar), size, {fill: colours.accent});
    else bars.push(box(x, score > 0 ? zero - size : zero, bar, size));
  });
  scene.path(bars.join(""), {fill: colours.bar});
  scene.path(ticks.join(""), {stroke: colours.muted, opacity: .5});
  scene.path(`M${left} ${zero}H${left + step * scores.length}`, {stroke: colours.muted});
  const middle = left + (column + .5) * step;
  scene.path(`M${middle - 5} ${top + height + 10}h10l-5 -7z`, {fill: colours.accent});
  const room = Math.min(140, width - 20), half = Math.min(room, textWidth(label, 11)) / 2, isLeft = middle + 10 + 2 * half > width;
  scene.text(middle + (isLeft ? -10 : 10), top + height + 8, label, {size: 11, fill: colours.accent, anchor: isLeft ? "end" : "start", room});
  show(scene, canvas);
}

// The weights of a row as parts of a bar, with and without the scale.
function drawShares(canvas, width, rows, column) {
  const colours = chartColours(), left = 58, strip = 18, gap = 6, room = width - left - 2;
  const scene = new Scene(width, rows.length * (strip + gap));
  rows.forEach(([label, weights], i) => {
    const y = i * (strip + gap);
    scene.text(left - 8, y + strip / 2, label, {size: 11.5, fill: colours.muted, anchor: "end"});
    let x = left, chosen = left;
    const boxes = [[], []];  // neighbours differ in colour
    weights.forEach((weight, key) => {
      const size = weight * room;
      if (key === column) chosen = x;
      else if (size > .3) boxes[key % 2].push(box(x, y, size - (size > 3 ? 1 : 0), strip));
      x += size;
    });
    boxes.forEach((parts, i) => scene.path(parts.join(""), {fill: colours.weights[2 + i]}));
    scene.rect(Math.min(chosen, left + room - 1.5), y, Math.max(1.5, weights[column] * room), strip, {fill: colours.accent});
    scene.rect(left, y, room, strip, {stroke: colours.muted, opacity: .5});
  });
  show(scene, canvas);
}

// The keys of a row: masked ones are hatched, the selected one has a frame.
function drawMask(canvas, width, {masked}, column) {
  const colours = chartColours(), height = 24, step = Math.min(34, (width - 6) / masked.length), left = 3;
  const scene = new Scene(width, height + 6), parts = [];
  scene.rect(left, 3, step * masked.length, height, {fill: colours.background});
  masked.forEach((isHidden, i) => {
    const x = left + i * step;
    if (isHidden) parts.push(hatching(x, 3, step, height));
    if (step > 5) parts.push(`M${x} 3v${height}`);
  });
  scene.path(parts.join(""), {stroke: colours.muted, opacity: .6});
  scene.rect(left, 3, step * masked.length, height, {stroke: colours.muted});
  scene.rect(left + column * step, 3, Math.max(2, step), height, {stroke: colours.accent, line: 2.5});
  show(scene, canvas);
}

// --- The panel ------------------------------------------------------------------------------------

const part = (tag, className, ...children) => make(tag, {className}, ...children);
const badge = number => part("span", "badge", String(number));
const chart = (id, label) => {
  const canvas = make("canvas", {id});
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  return part("div", "chart", canvas);
};

// A step: its title, what it shows, and where the library explains and computes it.
function makeStep(number, id, title, ...children) {
  const step = part("article", "step", make("h3", {}, badge(number), ...title), ...children), source = data.lines?.[id];
  step.id = `why-${id}-step`;
  if (source) {
    step.append(part("footer", "source", `${source.chapter} \u00b7 attention.py, line ${source.line}`, make("code", {textContent: source.code})));
  }
  return step;
}

const fraction = (top, bottom) => part("span", "fraction", part("span", "", ...top), part("span", "", ...bottom));
const isRootOf = (scale, size) => Math.abs(scale * Math.sqrt(size) - 1) < 1e-6;  // whether the factor is that of the paper
const root = (...inside) => part("span", "root", "\u221a", part("span", "", ...inside));

// Equation 1 of the paper, and below it the same with the numbers of the selected weight.
function makeEquation(sum, {size, scale}) {
  const isRoot = isRootOf(scale, size);
  const below = isRoot ? [badge(2), root("d", make("sub", {textContent: "k"}))] : [badge(2), "1 / scale"];
  const symbols = part("div", "formula",
    badge(4), "softmax", part("span", "bracket", "("), fraction([badge(1), make("i", {textContent: "QK"}), make("sup", {textContent: "T"})], below),
    badge(3), part("span", "note", "mask"), part("span", "bracket", ")"), badge(5), make("i", {textContent: "V"}));
  const divisor = isRoot ? [root(String(size))] : [decimal(1 / scale)];
  const score = sum.masked ? decimal(-Infinity) : decimal(sum.score);
  const numbers = part("div", "formula numbers",
    fraction([decimal(sum.dot)], divisor), `= ${decimal(sum.score)}`, ...(sum.masked ? [part("span", "note", ` masked: ${score}`)] : []),
    part("span", "arrow", "\u2192"), fraction([`exp(${score})`], [part("span", "note", "sum over all keys")]),
    "=", make("strong", {textContent: exactPercent(sum.weight)}), part("span", "note", "times the value of this key"));
  return part("div", "equation", symbols, numbers);
}

function dotStep(sum, {size}) {
  const largest = placesOfLargest(sum.products.map(Math.abs), 2).sort((i, j) => Math.abs(sum.products[j]) - Math.abs(sum.products[i]));
  const named = largest.map(i => `feature ${i + 1}: ${decimal(sum.query[i])} \u00d7 ${inBrackets(sum.key[i])} = ${decimal(sum.products[i])}`);
  const positive = sumOf(sum.products.filter(x => x > 0)), negative = sumOf(sum.products.filter(x => x < 0));
  return makeStep(1, "scores", ["Dot product of query and key"],
    chart("why-products", `Products of query and key by feature. Largest: ${named.join("; ")}.`),
    part("p", "detail", `Largest: ${named.join("; ")}.`),
    part("p", "result", "q \u00b7 k = ", make("strong", {textContent: decimal(sum.dot)}),
      part("span", "note", `sum of ${plural(size, "product")}: positive ${decimal(positive)}, negative ${decimal(negative)}`)));
}

function scaleStep(sum, {size, scale}, column) {
  const isRoot = isRootOf(scale, size), most = Math.max(...sum.unscaled);
  const rule = sum.isFullyMasked ? "All keys of this row are masked: the scale has no effect on its weights."
    : `The weights of all keys, with and without the ${isRoot ? "division" : "factor"}. Without it, this weight would be ${roundPercent(sum.unscaled[column])}${most > sum.unscaled[column] ? ` and the largest ${roundPercent(most)}` : ""}.`;
  return makeStep(2, "scale", isRoot ? ["Scale by 1 / ", root("d", make("sub", {textContent: "k"}))] : ["Scale"],
    part("p", "detail", rule), chart("why-shares", rule),
    part("p", "result", isRoot ? `${decimal(sum.dot)} / \u221a${size} = ` : `${decimal(sum.dot)} \u00d7 ${decimal(scale, 4)} = `, make("strong", {textContent: decimal(sum.score)})));
}

function maskStep(sum) {
  const count = sum.masked.filter(Boolean).length, of = sum.masked.length;
  const rule = count === 0 ? "No key of this row is masked: every score stays as it is."
    : count === of ? "All keys of this row are masked: its weights and its output are zero."
    : `${count} of ${of} keys of this row ${count === 1 ? "is" : "are"} masked (hatched): the score is replaced by ${decimal(-Infinity)}, the weight is 0.`;
  return makeStep(3, "mask", ["Mask"],
    part("p", "detail", rule), chart("why-mask", rule),
    part("p", "result", `${decimal(sum.score)} \u2192 `, make("strong", {textContent: sum.isMasked ? decimal(-Infinity) : decimal(sum.score)}),
      ...(sum.isMasked ? [part("span", "note", "this key is masked")] : [])));
}

// The strongest keys and the selected one as a table; the others are added up.
function makeKeyTable(sum, place) {
  const attention = attentions[place.attention], names = ["score", sum.isFullyMasked ? "exp" : `exp(score ${MINUS} ${inBrackets(sum.largest)})`, "weight"];
  const most = Math.max(...sum.weights) || 1, strongest = placesOfLargest(sum.weights, STRONGEST);
  const listed = [...new Set([...strongest, place.column])].sort((i, j) => i - j);
  const bar = weight => {
    const line = part("span", "bar");
    line.style.width = `${100 * weight / most}%`;
    return line;
  };
  const cells = (...texts) => texts.map(textContent => make("td", {textContent}));
  const rows = listed.map(key => {
    const button = make("button", {type: "button", textContent: attention.keys[key], title: `key ${key + 1}: ${attention.keys[key]}`});
    button.dataset.key = key;
    button.setAttribute("aria-pressed", String(key === place.column));
    button.addEventListener("click", () => select({column: key, isLocked: true}));
    const score = sum.masked[key] ? decimal(-Infinity) : decimal(sum.scores[key]);
    return part("tr", key === place.column ? "now" : "", make("th", {scope: "row"}, button),
      ...cells(score, small(sum.exps[key])), part("td", "weight", bar(sum.weights[key]), make("span", {textContent: roundPercent(sum.weights[key])})));
  });
  const others = sum.scores.length - listed.length, without = numbers => Math.max(0, sumOf(numbers) - sumOf(listed.map(i => numbers[i])));
  if (others > 0) {
    const weight = without(sum.weights);
    rows.push(part("tr", "", make("th", {scope: "row", textContent: `${plural(others, "other key")}`}), ...cells("", small(without(sum.exps))),
      part("td", "weight", bar(Math.min(weight, most)), make("span", {textContent: roundPercent(weight)}))));
  }
  rows.push(part("tr", "sum", make("th", {scope: "row", textContent: "sum"}), ...cells("", small(sum.sum), roundPercent(sumOf(sum.weights)))));
  const head = make("tr", {}, ...["key", ...names].map(textContent => make("th", {scope: "col", textContent})));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function softmaxStep(sum, place) {
  const attention = attentions[place.attention], weight = make("strong", {id: "why-weight", textContent: exactPercent(sum.weight)});
  const reason = sum.isFullyMasked ? "All keys are masked, so the weight is " : sum.isMasked ? `exp(${decimal(-Infinity)}) = 0, so the weight is `
    : `${small(sum.exps[place.column])} / ${small(sum.sum)} = `;
  return makeStep(4, "softmax", ["Softmax over all keys"],
    chart("why-scores", `Scores of the ${plural(attention.columns, "key")}; that of ${quoted(attention.keys[place.column])} is marked.`),
    makeKeyTable(sum, place),
    part("p", "result", reason, weight, part("span", "note", "the page stores ", make("span", {id: "why-stored", textContent: exactPercent(sum.stored)}), ", rounded")));
}

function outputStep(sum, place) {
  const attention = attentions[place.attention], most = sum.lengths.indexOf(Math.max(...sum.lengths));
  const others = most === place.column ? "no other key supplies more" : `${quoted(attention.keys[most])} supplies most, ${roundPercent(sum.lengths[most] / (sumOf(sum.lengths) || 1))}`;
  const rule = sum.isFullyMasked ? "The output of this row is zero."
    : `This key supplies ${roundPercent(sum.share)} of the sum of the lengths of all keys; ${others}.`;
  return makeStep(5, "output", ["Weight \u00d7 value"],
    chart("why-output", `Value of ${quoted(attention.keys[place.column])} times its weight, by feature, and the head's output.`),
    part("p", "detail", "Bars: the value of this key times its weight. Short lines: the output of the head, the sum over all keys."),
    part("p", "result", `${exactPercent(sum.weight)} \u00d7 v: length `, make("strong", {textContent: decimal(sum.lengths[place.column], 3)}),
      part("span", "note", `length of v: ${decimal(normOf(sum.value))}, of the output: ${decimal(normOf(sum.output))}`)),
    chart("why-lengths", rule), part("p", "detail", rule));
}

function showArithmetic(place) {
  const attention = attentions[place.attention], {arithmetic} = attention, found = computeArithmetic(place);
  const sum = {...found, dot: found.dots[place.column], score: found.scores[place.column], isMasked: found.masked[place.column]};
  const steps = [dotStep(sum, arithmetic), scaleStep(sum, arithmetic, place.column), maskStep(sum), softmaxStep(sum, place), outputStep(sum, place)];
  const focused = document.activeElement?.dataset?.key;
  $("why-body").replaceChildren(makeEquation({...sum, masked: sum.isMasked}, arithmetic), part("div", "steps", ...steps));
  if (focused !== undefined) $("why-body").querySelector(`[data-key="${place.column}"]`)?.focus({preventScroll: true});
  const canvases = [...$("why-body").querySelectorAll(".chart canvas")], widths = new Map(canvases.map(canvas => [canvas.id, canvas.parentElement.clientWidth]));
  const draw = (id, drawing, ...rest) => drawing($(id), widths.get(id), ...rest);
  draw("why-products", drawFeatures, {strips: [["query", sum.query], ["key", sum.key]], bars: sum.products, name: "product", height: 72});
  draw("why-shares", drawShares, [["with", sum.weights], ["without", sum.unscaled]], place.column);
  draw("why-lengths", drawShares, [["lengths", sum.lengths.map(length => length / (sumOf(sum.lengths) || 1))]], place.column);
  draw("why-mask", drawMask, sum, place.column);
  draw("why-scores", drawScores, sum, place.column, attention.keys[place.column]);
  draw("why-output", drawFeatures, {strips: [["value", sum.value]], bars: sum.contribution, marks: sum.output, name: "w \u00d7 v", height: 110});
}

// The mean, rollout and several heads together are made of many weights: offer the heads.
function showHeads({attention: a, layer, head, row, column}) {
  const attention = attentions[a], summary = summaries(attention)[head - attention.heads];
  const sentence = summary === "mean" ? `The mean is the average of the weights of ${plural(attention.heads, "head")}, and each head computes its own.`
    : summary === "rollout" ? "Rollout is a product of the means of this layer and the layers before it, and each of their heads computes its own weight."
    : "Several heads are shown, and each computes its own weight.";
  const buttons = Array.from({length: attention.heads}, (_, i) => {
    const weight = attention.map(layer, i)[row * attention.columns + column];
    const button = make("button", {type: "button"}, `head ${i + 1}`, make("span", {textContent: roundPercent(weight)}));
    button.addEventListener("click", () => {
      select({head: i, isLocked: true});
      $("why-close")?.focus({preventScroll: true});
    });
    return button;
  });
  $("why-body").replaceChildren(part("p", "", `${sentence} Choose a head of layer ${layer + 1} to see how its weight arises:`), part("div", "heads", ...buttons));
}

function buildWhy() {
  const close = make("button", {id: "why-close", type: "button", textContent: "Close"});
  close.addEventListener("click", closeWhy);
  $("why").replaceChildren(part("div", "top", make("h2", {textContent: "Why this weight?"}), make("p", {id: "why-cell"}), close),
    make("p", {id: "why-rule"}), make("div", {id: "why-body"}));
}

const closeWhy = () => select({isLocked: false});
let opener = null;  // what had the focus when the panel was opened
function hideWhy() {
  const isFocused = $("why").contains(document.activeElement);
  $("why").hidden = true;
  shownWhy = "";
  if (isFocused && opener?.isConnected) opener.focus({preventScroll: true});
}

function showWhy(place) {
  const {attention: a, layer, head, row, column} = place, attention = attentions[a];
  if (!$("why").firstChild) buildWhy();
  const name = attention.patterns?.[layer]?.[head] ?? null, isSame = JSON.stringify(place) === shownWhy && $("why").clientWidth === whyWidth;
  if (isSame) return;
  shownWhy = JSON.stringify(place);
  whyWidth = $("why").clientWidth;
  const [from, to] = attention.isSelf ? ["query", "key"] : [attention.queryAxis ?? "query", attention.keyAxis ?? "key"];
  $("why-cell").replaceChildren(
    `${from} `, make("b", {textContent: quoted(attention.queries[row])}), ` \u2192 ${to} `,
    make("b", {textContent: quoted(attention.keys[column])}), part("span", "note", nameOf(place)), ...(name ? [part("span", "label", name)] : []));
  $("why-rule").hidden = !name || !data.rules?.[name];
  $("why-rule").textContent = name ? `${quoted(name)}: ${data.rules?.[name]}` : "";
  if (place.isHead) showArithmetic(place);
  else showHeads(place);
}

// Scroll only if the panel was opened outside the window, and only until its beginning is visible.
function revealWhy() {
  const box = $("why").getBoundingClientRect(), missing = box.top + Math.min(box.height, 360) - innerHeight;
  const isReduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (missing > 0) window.scrollBy({top: missing, behavior: isReduced ? "auto" : "smooth"});
}

let wasLocked = null, isRevealing = false;  // an address with a locked cell opens the panel, but does not scroll to it
function drawWhy() {
  const {attention, layer, head, row, column, isLocked} = state, isHead = head < attentions[attention].heads && !(state.view === "story" && state.heads.length > 1);
  drawLens();
  isRevealing = isLocked && (isRevealing || wasLocked === false);
  wasLocked = isLocked;
  if (!isLocked || !attentions[attention].arithmetic) { hideWhy(); return; }
  if (isHead && !decodedVectors.get(attention)) {
    if (!decodedVectors.has(attention)) decodeArithmetic(attention);
    return;
  }
  if ($("why").hidden) opener = document.activeElement;
  $("why").hidden = false;
  showWhy({attention, layer, head, row, column, isHead, theme: theme()});
  if (isRevealing && isHead) revealWhy();
  isRevealing = false;
}

document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || event.defaultPrevented || $("why").hidden || event.target.closest?.("dialog")) return;
  closeWhy();
});

// --- Logit lens -----------------------------------------------------------------------------------

function makeScrolling(label, ...children) {
  const region = make("div", {className: "scroll", tabIndex: 0, role: "region"}, ...children);
  region.setAttribute("aria-label", label);
  return region;
}

const ORDINALS = ["most probable", "2nd", "3rd"];
let shownLens = "";
function drawLens() {
  const attention = attentions[state.attention], layers = data.decoding?.layers;
  $("lens").hidden = !layers || !attention.isDecoding;
  const key = $("lens").hidden ? "" : String(state.row);
  if (key === shownLens) return;
  shownLens = key;
  if (key === "") return;
  const step = state.row, token = data.decoding.tokens[step], tops = layers.map(layer => layer[step] ?? []);
  const first = tops.findIndex(top => top[0]?.[2]), count = Math.max(...tops.map(top => top.length));
  const rows = tops.map((top, layer) => {
    const cells = Array.from({length: count}, (_, i) => {
      if (!top[i]) return make("td");
      const [text, probability, isChosen] = top[i], bar = part("span", "bar");
      bar.style.width = `${100 * probability}%`;
      return part("td", isChosen ? "chosen" : "", bar, part("div", "candidate", make("span", {textContent: text}), part("span", "probability", roundPercent(probability))));
    });
    const name = make("th", {scope: "row"}, `layer ${layer + 1}`);
    return part("tr", layer === first ? "first" : "", name, ...cells);
  });
  const head = make("tr", {}, make("th", {scope: "col", textContent: "after"}), ...Array.from({length: count}, (_, i) => make("th", {scope: "col", textContent: ORDINALS[i] ?? `${i + 1}th`})));
  const result = first < 0 ? `${quoted(token)} is the most probable token after none of the layers.`
    : `${quoted(token)} becomes the most probable token after layer ${first + 1} of ${layers.length}.`;
  $("lens").replaceChildren(make("h2", {textContent: `Logit lens: how ${quoted(token)} was predicted, step ${step + 1}`}),
    make("p", {}, make("strong", {id: "lens-result", textContent: result}), " The logit lens applies the output layer to the output of every decoder layer (nostalgebraist, 2020)."),
    makeScrolling("probabilities after each layer", make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
}
