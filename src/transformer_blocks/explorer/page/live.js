// Live: a sentence of one's own, which the model in the page translates or continues, also without some of its parts.

const {live: {endId, maxLength, language}, model: liveName} = data, MOST_CANDIDATES = 5, CONTINUATION = 40;
const liveModel = loadModel(data.live), isTranslator = data.live.tree.is === "Seq2Seq";
const tokenizers = Promise.all(data.live.tokenizers.map(async text => readTokenizer(await inflate(text))));
const live = {
  text: data.text, // the text that was run last
  run: 0,          // number of the latest run: an earlier one is given up
  ids: [],         // the tokens of the text: a source with its end token, or a prompt
  off: new Set(),  // names of parts that are switched off: a head, a residual connection, "positions", "source 3"
  results: {},     // what the model found: whole, and without these parts
};

// The page stays in use while the model computes: a message waits for what the browser has to do, and is not slowed down as timers are.
const pauses = new MessageChannel(), waiting = [];
pauses.port1.onmessage = () => waiting.shift()();
let lastPause = 0;
async function pause() {
  if (performance.now() - lastPause < 12) return;
  await new Promise(resolve => {
    waiting.push(resolve);
    pauses.port2.postMessage(null);
  });
  lastPause = performance.now();
}

// The result of a generator; null if it is that of a run, and another has begun meanwhile.
async function compute(work, number = null) {
  for (;;) {
    const {done, value} = work.next();
    if (number !== null && live.run !== number) return null;
    if (done) return value;
    await pause();
  }
}

// --- Texts and tokens ---------------------------------------------------------------------------------

async function idsOf(text) {
  const [tokenizer] = await tokenizers;
  const encodeLine = line => encodeText(tokenizer, cleanText(line, language));
  return isTranslator ? [...encodeLine(text).slice(0, maxLength - 1), endId] : text.split("\n").flatMap(line => [endId, ...encodeLine(line)]);
}

// Tokens as labels without marks of spaces, and a 1 for each that begins a word; see tokens.py.
function labelTokens(tokenizer, ids) {
  const pieces = ids.map(id => tokenizer.pieces[id]), isSpecial = piece => piece.type !== NORMAL;
  const hasMarks = pieces.some(piece => !isSpecial(piece) && piece.text.startsWith(MARK));
  const labels = pieces.map(piece => isSpecial(piece) || !hasMarks ? piece.text : piece.text.replace(/^\u2581+/, "").replaceAll(MARK, " ") || "␣");
  const begins = pieces.map((piece, i) => !hasMarks || i === 0 || isSpecial(piece) || isSpecial(pieces[i - 1]) || piece.text.startsWith(MARK));
  return {labels, words: begins.map(Number).join("")};
}

// --- Running the model --------------------------------------------------------------------------------

const hiddenSources = off => paddingMask(data.live.tree, live.ids, live.ids.map((_, i) => off.has(`source ${i}`)));
const begin = (model, run) => isTranslator ? seq2seq(model, live.ids, run, hiddenSources(run.off)) : languageModel(model, live.ids, run);

// Random numbers that are the same for each run with one seed.
const randomFrom = seed => () => {
  seed = seed + 0x6d2b79f5 | 0;
  const mixed = Math.imul(seed ^ seed >>> 15, 1 | seed);
  return ((mixed + Math.imul(mixed ^ mixed >>> 7, 61 | mixed) ^ mixed) >>> 0) / 2 ** 32;
};

// Search with some parts switched off; return the tokens that were found, and the milliseconds of a token.
async function search(off, seed) {
  const model = await liveModel, number = live.run, method = $("live-method").value, began = performance.now();
  const start = isTranslator ? model.begin_id : live.ids.at(-1);
  const limits = isTranslator ? {endId, maxLength: Math.min(2 * live.ids.length + 10, maxLength)} : {endId: null, maxLength: CONTINUATION};
  const choose = method === "greedy" ? mostProbable : sampleAt(Number(method), randomFrom(seed));
  const [found] = await compute(function* () {
    const steps = yield* begin(model, newRun({off}));
    return yield* method === "beam" ? beamSearch(steps, start, {size: 4, ...limits}) : generate(steps, start, choose, limits);
  }(), number) ?? [];
  return found && {...found, milliseconds: (performance.now() - began) / (found.tokens.length + Number(found.isFinished))};
}

// Run the model over all tokens at once; `next` are those that it chose.
function* readAll(model, {tokens, isFinished}, run) {
  const next = isFinished ? [...tokens, endId] : tokens, all = isTranslator ? [model.begin_id, ...next] : [...live.ids, ...next].slice(-(model.context ?? Infinity));
  const inputs = all.slice(0, -1), steps = yield* isTranslator ? begin(model, run) : languageModel(model, inputs.slice(0, 1), run);
  return {inputs, outputs: all.slice(1), next, hidden: yield* steps.hidden(inputs)};
}

// The probability of each token of a text, after those before it, with some parts switched off.
async function probabilitiesOf(found, off) {
  const model = await liveModel, {outputs, next, hidden} = await compute(readAll(model, found, newRun({off}))), size = hidden.length / outputs.length, probabilities = [];
  for (let row = outputs.length - next.length; row < outputs.length; row++) {
    probabilities.push(Math.exp(logSoftmax(linear(model.output, hidden.subarray(row * size, (row + 1) * size)))[outputs[row]]));
    await pause();
  }
  return probabilities;
}

// Run the model over all tokens, and keep the weights of every layer and head, and all candidates.
async function record(found, off) {
  const model = await liveModel, kinds = await tokenizers, written = kinds.at(-1), run = newRun({off, isRecording: true});
  const {inputs, outputs, hidden} = await compute(readAll(model, found, run)), input = labelTokens(written, inputs), output = labelTokens(written, outputs);
  const stacks = isTranslator ? [
    {name: "Encoder self-attention", layers: model.encoder.layers, kind: "self_attention", queries: labelTokens(kinds[0], live.ids), axes: ["source", "source"]},
    {name: "Decoder self-attention", layers: model.decoder.layers, kind: "self_attention", queries: input, axes: ["target (input of the decoder)", "target (input of the decoder)"]},
    {name: "Cross-attention", layers: model.decoder.layers, kind: "cross_attention", queries: output, keys: labelTokens(kinds[0], live.ids), axes: ["target", "source"]},
  ] : [{name: "Self-attention", layers: model.decoder.layers, kind: "self_attention", queries: input, axes: ["query", "key"]}];
  const candidatesOf = async x => {
    const size = x.length / outputs.length, candidates = [];
    for (const [row, chosen] of outputs.entries()) {
      const logits = linear(model.output, x.subarray(row * size, (row + 1) * size)), probabilities = logSoftmax(logits).map(Math.exp);
      const best = topK(probabilities, MOST_CANDIDATES), {labels} = labelTokens(written, [...outputs, ...best]);
      candidates.push(best.map((token, i) => [labels[outputs.length + i], probabilities[token], Number(token === chosen)]));
      await pause();
    }
    return candidates;
  };
  const {layers, norm} = model.decoder, ofLayers = [];
  for (const {name} of layers) ofLayers.push(await candidatesOf(norm ? call(norm, run.recorded.get(name)) : run.recorded.get(name)));
  return {
    attentions: stacks.map(stack => observed(stack, run)),
    decoding: {tokens: output.labels, words: output.words, candidates: await candidatesOf(hidden), layers: ofLayers},
  };
}

// What the page needs to know of the attention of a stack.
function observed({name, layers, kind, queries, keys = queries, axes}, run) {
  const records = layers.map(layer => run.recorded.get(layer[kind].name)), {num_heads: heads, d_k: size} = layers[0][kind];
  const rows = queries.labels.length, columns = keys.labels.length, isSelf = keys === queries, isDecoding = !(isTranslator && axes[0] === "source");
  const hidden = axes[1] === "source" ? hiddenSources(run.off) : null;
  const mask = Uint8Array.from({length: rows * columns}, (_, i) => Number(hidden ? hidden[i % columns] : i % columns > Math.floor(i / columns)));
  const vectors = numbersOf => (layer, head, position) => {
    const from = (position * heads + head) * size;
    return Float64Array.from(numbersOf(records[layer]).subarray(from, from + size));
  };
  return {
    name, layers: layers.length, heads, rows, columns, isSelf, isDecoding, queryAxis: axes[0], keyAxis: axes[1],
    queries: queries.labels, queryWords: queries.words, keys: keys.labels, keyWords: keys.words, mask: mask.some(Boolean) ? mask : null,
    map: (layer, head) => records[layer].weights.subarray(head * rows * columns, (head + 1) * rows * columns),
    arithmetic: {size, valueSize: size, scale: 1 / Math.sqrt(size), causal: false},
    off: new Set(layers.flatMap((layer, i) => Array.from({length: heads}, (_, head) => head).filter(head => run.off.has(headPart(layer[kind], head))).map(head => `${i} ${head}`))),
    vectors: {query: vectors(({queries}) => queries), key: vectors(({cache}) => cache.keys), value: vectors(({cache}) => cache.values)},
  };
}

// --- Showing what was found ---------------------------------------------------------------------------

async function textOf(tokens) {
  const written = (await tokenizers).at(-1), lines = [[]];
  for (const token of isTranslator ? tokens : [...live.ids.slice(1), ...tokens]) {
    if (token === endId) lines.push([]);
    else lines.at(-1).push(token);
  }
  return lines.map(line => decodeText(written, line)).join("\n");
}

const NOTHING = {row: 0, column: 0, isLocked: false};

// What is selected remains if the same tokens stand there.
function keptSelection(others) {
  const {attention: a, row, column} = state, next = others[a];
  return attentions[a]?.queries[row] === next?.queries[row] && attentions[a].keys[column] === next.keys[column] ? {} : NOTHING;
}

async function translateAgain(selection = null) {
  const number = ++live.run, seed = number, off = new Set(live.off);
  await pause();
  const whole = await search(new Set(), seed), without = whole && off.size ? await search(off, seed) : whole;
  if (!without) return;
  const found = await record(without, off), texts = [await textOf(whole.tokens), await textOf(without.tokens)], probabilities = [];
  if (off.size) for (const parts of [new Set(), off]) probabilities.push(await probabilitiesOf(whole, parts));
  const {labels} = labelTokens((await tokenizers).at(-1), whole.isFinished ? [...whole.tokens, endId] : whole.tokens);
  if (live.run !== number) return;
  live.results = {whole: texts[0], without: texts[1], milliseconds: whole.milliseconds, labels, probabilities};
  const title = `${isTranslator ? `${$("live-text").value.trim()} → ` : ""}${texts[1]}`;
  if (hasTimes) stopTimes();
  replaceMaps({...found, title, model: liveName}, {...selection ?? keptSelection(found.attentions), text: live.text, time: null});
  showResults();
}

function showResults() {
  const {whole, without, milliseconds, labels, probabilities: [before, after]} = live.results, names = [...live.off].map(nameOfPart);
  $("live-whole").replaceChildren(make("b", {textContent: isTranslator ? "Translation" : "Text"}), make("span", {textContent: whole}));
  $("live-without").hidden = !names.length;
  const marked = markDifference(without, whole);
  $("live-without").replaceChildren(make("b", {textContent: `Without ${names.join(", ")}`}), make("span", {}, ...marked));
  $("live-change").hidden = !names.length;
  if (names.length) $("live-change").replaceChildren(make("p", {className: "note", textContent: `How probable each token of ${isTranslator ? "the translation" : "the text"} is, with and without it:`}),
    make("ol", {}, ...labels.map((label, i) => make("li", {className: after[i] < before[i] / 2 ? "fell" : ""}, make("b", {textContent: label}), make("span", {textContent: `${wholePercent(before[i])} → ${wholePercent(after[i])}`})))));
  const what = names.length ? (without === whole ? "The same text without it. " : "The figure shows the model without it. ") : "";
  $("live").dataset.shown = live.run;
  $("live-status").replaceChildren(...(live.isUnknown ? [make("b", {textContent: "The model has no token for a part of this text: it reads <unk> instead. "})] : []),
    `${what}${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms a token, computed in this page.`);
}

// The words of a text, those that another text lacks as marks.
function markDifference(text, other) {
  const words = new Set(other.split(/\s+/));
  return text.split(/(\s+)/).map(word => word.trim() === "" || words.has(word) ? word : make("mark", {textContent: word}));
}

// --- Parts to switch off ------------------------------------------------------------------------------

const SUBLAYERS = {self_attention: "self-attention", cross_attention: "cross-attention", feed_forward: "feed-forward"};

function nameOfPart(name) {
  if (name === "positions") return "positional encoding";
  if (name.startsWith("source ")) return `“${inSentence(live.labels[Number(name.slice(7))])}”`;
  const [, stack, layer, part, head] = name.match(/^(\w+)\.layers\.(\d+)\.(\w+?)(?:_residual|\.heads\.(\d+))$/);
  const place = `${isTranslator ? `${stack} ` : ""}layer ${layer}`;
  return head === undefined ? `the residual connection of ${SUBLAYERS[part]}, ${place}` : `head ${head} of ${SUBLAYERS[part]}, ${place}`;
}

function partButton(name, textContent) {
  const button = make("button", {type: "button", textContent, ariaLabel: `switch off ${nameOfPart(name)}`});
  button.dataset.part = name;
  return button;
}

function buildSource() {
  $("live-tokens").hidden = !isTranslator;
  if (isTranslator) $("live-tokens").replaceChildren(make("span", {className: "note", textContent: "Tokens:"}), ...live.labels.map((label, i) => partButton(`source ${i}`, label)));
}

async function buildParts() {
  const model = await liveModel, rows = [make("p", {}, partButton("positions", `positional encoding${model.positions ? "" : " (rotary)"}`))];
  for (const stack of isTranslator ? ["encoder", "decoder"] : ["decoder"]) model[stack].layers.forEach((layer, i) => {
    for (const [part, title] of Object.entries(SUBLAYERS)) {
      if (!layer[part]) continue;
      const heads = Array.from({length: layer[part].num_heads ?? 0}, (_, head) => partButton(headPart(layer[part], head), String(head)));
      const name = make("span", {className: "note", textContent: `${isTranslator ? `${stack} ` : ""}layer ${i}, ${title}${heads.length ? ": heads" : ""}`});
      rows.push(make("p", {}, name, ...heads, partButton(`${layer[part].name}_residual`, "residual")));
    }
  });
  $("live-list").append(...rows);
  markParts();
}

function markParts() {
  for (const button of $("live").querySelectorAll("[data-part]")) button.setAttribute("aria-pressed", String(live.off.has(button.dataset.part)));
  $("live-reset").hidden = !live.off.size;
}

// --- The box ------------------------------------------------------------------------------------------

async function readText() {
  live.text = $("live-text").value;
  live.ids = await idsOf($("live-text").value);
  live.isUnknown = live.ids.includes((await tokenizers)[0].unknown);
  live.labels = labelTokens((await tokenizers)[0], live.ids).labels;
  for (const name of [...live.off]) if (name.startsWith("source ")) live.off.delete(name);
  buildSource();
  markParts();
}

async function runText(selection = NOTHING) {
  await readText();
  if (live.ids.length > 1) { translateAgain(selection); return; }
  live.run++;
  for (const id of ["live-whole", "live-without", "live-change"]) $(id).replaceChildren();
  $("live-status").textContent = "There is no text: the figure shows the last one.";
}

// Run the model with the text of the address, by default the page's own, and select what the address selects.
function runAddress() {
  const text = new URLSearchParams(location.hash.slice(1)).get("s") ?? data.text;
  if (text === live.text || state.time !== null) return;
  $("live-text").value = text;
  runText({});
}

function buildLive() {
  const methods = [["beam", "4 beams"], ["greedy", "greedy"], ["0.5", "temperature 0.5"], ["1", "temperature 1"]].slice(isTranslator ? 0 : 1);
  const named = /^[a-z]{2,3}$/.test(language) ? ` in ${new Intl.DisplayNames(["en"], {type: "language"}).of(language)}` : "";
  const input = make("input", {id: "live-text", type: "text", maxLength: 2000, autocomplete: "off", spellcheck: false, lang: language, value: data.text});
  const method = make("select", {id: "live-method", ariaLabel: "search"}, ...methods.map(([value, textContent]) => make("option", {value, textContent})));
  const start = make("button", {id: "live-run", type: "button", textContent: isTranslator ? "Translate" : "Continue"});
  const reset = make("button", {id: "live-reset", type: "button", textContent: "Switch all on", hidden: true});
  $("live").append(make("div", {id: "live-form"}, make("label", {htmlFor: "live-text", textContent: `Your own ${isTranslator ? "sentence" : "beginning"}${named}`}), input, method, start),
    ...(hasTimes ? [sequenceRow] : []), make("div", {id: "live-tokens"}), make("p", {id: "live-whole"}), make("p", {id: "live-without", hidden: true}), make("div", {id: "live-change", hidden: true}),
    make("p", {id: "live-status", role: "status", textContent: "The model is in this page: it runs here, and nothing is sent anywhere. A click on a token or a part switches it off."}),
    make("details", {id: "live-parts"}, make("summary", {textContent: "Switch off parts of the model"}), make("div", {id: "live-list"})), reset);
  $("live").hidden = false;
  let timer = 0;
  const runSoon = delay => {
    clearTimeout(timer);
    timer = setTimeout(() => runText(), delay);
  };
  input.addEventListener("keydown", event => { if (event.key === "Enter" && !event.isComposing) runSoon(0); });
  input.addEventListener("input", event => { if (!event.isComposing) runSoon(400); });
  input.addEventListener("compositionend", () => runSoon(400));
  start.addEventListener("click", () => runSoon(0));
  method.addEventListener("change", () => runSoon(0));
  $("live").addEventListener("click", async event => {
    const name = event.target.closest("button")?.dataset.part, label = event.target.textContent, isPending = input.value !== live.text;
    if (!name && event.target !== reset) return;
    if (isPending) {  // the text was changed a moment ago: the button is of the text before
      clearTimeout(timer);
      await readText();
    }
    if (!name) live.off.clear();
    else if ((!name.startsWith("source ") || live.labels[Number(name.slice(7))] === label) && !live.off.delete(name)) live.off.add(name);
    markParts();
    if (live.ids.length > 1) translateAgain(isPending ? NOTHING : null);
  });
  buildParts();
  readText();
  runAddress();
  window.addEventListener("popstate", runAddress);
}
buildLive();
