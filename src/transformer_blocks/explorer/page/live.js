// Live: a sentence of one's own, which the model in the page translates or continues, also without some of its parts.

import {quoted} from "./arithmetic.js";
import {call, headPart, languageModel, linear, loadModel, newRun, paddingMask, seq2seq} from "./blocks.js";
import {$, data, inflate, languageName, lettersIn, make, sequences} from "./data.js";
import {open, replaceMaps, shownContent} from "./main.js";
import {contentOf, features, state} from "./registry.js";
import {shownStep} from "./screens.js";
import {beamSearch, generate, logSoftmax, mostProbable, sampleAt, topK} from "./search.js";
import {wholePercent} from "./story.js";
import {MARK, NORMAL, cleanText, decodeText, encodeText, readTokenizer} from "./tokenizer.js";

const {live: {endId, maxLength, language}, model: liveName} = data, MOST_CANDIDATES = 5, CONTINUATION = 40;
const BEAMS = 5;  // as the library's beam search and the programs
const liveModel = loadModel(data.live), isTranslator = data.live.tree.is === "Seq2Seq";
const tokenizers = Promise.all(data.live.tokenizers.map(async text => readTokenizer(await inflate(text))));
const live = {
  text: null,      // the text that was read last
  run: 0,          // number of the latest run: an earlier one is given up
  ids: [],         // the tokens of the text: a source with its end token, or a prompt
  off: new Set(),  // names of parts that the run leaves out: a head, a residual connection, "positions", "source 3"
  results: null,   // what the model found: whole, and without these parts
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
  if (tokenizer.before) return [...tokenizer.before, ...encodeText(tokenizer, text)];
  const encodeLine = line => encodeText(tokenizer, cleanText(line, language));
  return isTranslator ? [...encodeLine(text), endId] : text.split("\n").flatMap(line => [endId, ...encodeLine(line)]);
}

// Tokens as labels without marks of spaces, and a 1 for each that begins a word; see tokens.py.
function labelTokens(tokenizer, ids) {
  const pieces = ids.map(id => tokenizer.pieces[id]), isSpecial = piece => piece.type !== NORMAL;
  const hasMarks = pieces.some(piece => !isSpecial(piece) && piece.text.startsWith(MARK));
  const labels = pieces.map(piece => isSpecial(piece) || !hasMarks ? piece.text : piece.text.replace(/^\u2581+/, "").replaceAll(MARK, " ") || "␣");
  const begins = pieces.map((piece, i) => !hasMarks || i === 0 || isSpecial(piece) || isSpecial(pieces[i - 1]) || /^[\u2581↵]/.test(piece.text));
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

// The number of tokens that a model reads at most: a source, or a text with what is written. Those with a context leave out the beginning.
const mostRead = model => model.context === null ? maxLength : Infinity;

// Search with some parts switched off; return the tokens that were found, and the milliseconds of a token.
async function search(off, seed) {
  const model = await liveModel, number = live.run, method = $("live-method").value, began = performance.now();
  const start = isTranslator ? model.begin_id : live.ids.at(-1);
  const limits = isTranslator ? {endId, maxLength: Math.min(2 * live.ids.length + 10, maxLength)} : {endId: null, maxLength: Math.min(CONTINUATION, mostRead(model) - live.ids.length)};
  const choose = method === "greedy" ? mostProbable : sampleAt(Number(method), randomFrom(seed));
  const [found] = await compute(function* () {
    const steps = yield* begin(model, newRun({off}));
    return yield* method === "beam" ? beamSearch(steps, start, {size: BEAMS, ...limits}) : generate(steps, start, choose, limits);
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
async function recordRun(found, off) {
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
  const records = layers.map(layer => run.recorded.get(layer[kind].name)), {num_heads: heads, num_key_value_heads: groups, d_k: size} = layers[0][kind];
  const rows = queries.labels.length, columns = keys.labels.length, isSelf = keys === queries, isDecoding = !(isTranslator && axes[0] === "source");
  const hidden = axes[1] === "source" ? hiddenSources(run.off) : null;
  const mask = Uint8Array.from({length: rows * columns}, (_, i) => Number(hidden ? hidden[i % columns] : i % columns > Math.floor(i / columns)));
  const vectors = (numbersOf, count) => (layer, head, position) => {
    const from = (position * count + Math.floor(head * count / heads)) * size;
    return Float64Array.from(numbersOf(records[layer]).subarray(from, from + size));
  };
  return {
    name, layers: layers.length, heads, rows, columns, isSelf, isDecoding, queryAxis: axes[0], keyAxis: axes[1],
    queries: queries.labels, queryWords: queries.words, keys: keys.labels, keyWords: keys.words, mask: mask.some(Boolean) ? mask : null,
    map: (layer, head) => records[layer].weights.subarray(head * rows * columns, (head + 1) * rows * columns),
    arithmetic: {size, valueSize: size, scale: 1 / Math.sqrt(size), causal: false},
    off: new Set(layers.flatMap((layer, i) => Array.from({length: heads}, (_, head) => head).filter(head => run.off.has(headPart(layer[kind], head))).map(head => `${i} ${head}`))),
    vectors: {query: vectors(({queries}) => queries, heads), key: vectors(({cache}) => cache.keys, groups), value: vectors(({cache}) => cache.values, groups)},
  };
}

// --- Showing what was found ---------------------------------------------------------------------------

async function textOf(tokens) {
  const written = (await tokenizers).at(-1), lines = [[]];
  if (written.before) return decodeText(written, [...live.ids, ...tokens]);
  for (const token of isTranslator ? tokens : [...live.ids.slice(1), ...tokens]) {
    if (token === endId) lines.push([]);
    else lines.at(-1).push(token);
  }
  return lines.map(line => decodeText(written, line)).join("\n");
}

// Why the model does not read a text; "" if it does.
async function refusalOf(text) {
  const [tokenizer] = await tokenizers, ids = await idsOf(text), name = languageName(0);
  const known = `I know ${tokenizer.pieces.filter(({type}) => type === NORMAL).length} pieces of ${name || "text"}`;
  if (ids.length <= (tokenizer.before ?? [endId]).length) return "There is no text: the figure shows the last one.";
  if (ids.includes(tokenizer.unknown)) {
    const unknown = [...new Set(lettersIn(cleanText(text, language)))].filter(letter => encodeText(tokenizer, letter).includes(tokenizer.unknown)).slice(0, 5);
    return `${known}, and ${unknown.length ? unknown.map(quoted).join(", ") : "a part of this text"} is in none of them. Try one of these sentences.`;
  }
  const most = mostRead(await liveModel) - Number(!isTranslator);
  return ids.length > most ? `This text has ${ids.length} pieces, and I read at most ${most}.` : "";
}

// Read the tokens of a text.
async function readText(text) {
  if (live.text === text) return;
  Object.assign(live, {text, ids: await idsOf(text)});
}

// What the model writes, and what it writes without some parts, with the probability of each token of the former; null if another run began.
async function runBoth(number, text, off) {
  await readText(text);
  await pause();
  if (live.run !== number) return null;
  const whole = await search(new Set(), number), without = whole && off.size ? await search(off, number) : whole;
  if (!without) return null;
  const probabilities = [];
  if (off.size) for (const parts of [new Set(), off]) probabilities.push(await probabilitiesOf(whole, parts));
  const {labels} = labelTokens((await tokenizers).at(-1), whole.isFinished ? [...whole.tokens, endId] : whole.tokens);
  const results = {without, labels, probabilities, texts: [await textOf(whole.tokens), await textOf(without.tokens)], milliseconds: whole.milliseconds};
  return live.run === number ? results : null;
}

// Show what the model makes of a text. Return why it does not read it, and null if another text was asked for meanwhile.
async function showText(text, names, record) {
  const number = ++live.run, off = new Set(names), reason = await refusalOf(text);
  if (live.run !== number) return null;
  if (reason) {
    $("live-status").textContent = reason;
    return reason;
  }
  const results = await runBoth(number, text, off), found = results && await recordRun(results.without, off);
  if (!results || live.run !== number) return null;
  Object.assign(live, {off, results});
  replaceMaps({...found, title: `${isTranslator ? `${text.trim()} → ` : ""}${results.texts[1]}`, model: liveName}, record);
  return "";
}

function drawLive() {
  const isScreen = state.view === "screens";
  $("live").hidden = isScreen && shownStep().id !== "turn";
  if (contentOf(state) !== shownContent || drawLive.key === shownContent) return;
  drawLive.key = shownContent;
  if (document.activeElement !== $("live-text")) $("live-text").value = shownText();
  if (!state.off.length) live.off = new Set();
  const names = [...live.off].map(nameOfPart), isCompared = names.length > 0;
  for (const id of ["live-whole", "live-without", "live-change", "live-reset"]) $(id).hidden = !isCompared;
  markParts();
  $("live").dataset.shown = live.run;
  $("live-status").textContent = live.results && live.text === shownText() ? `${live.results.milliseconds.toFixed(live.results.milliseconds < 10 ? 1 : 0)} ms a token, computed in this page.` : ABOUT_LIVE;
  if (!isCompared) return;
  const {texts: [whole, without], labels, probabilities: [before, after]} = live.results;
  $("live-whole").replaceChildren(make("b", {textContent: isTranslator ? "Translation" : "Text"}), make("span", {textContent: whole}));
  $("live-without").replaceChildren(make("b", {textContent: `Without ${names.join(", ")}`}), make("span", {}, ...markDifference(without, whole)));
  $("live-change").replaceChildren(make("p", {className: "note", textContent: `How probable each token of ${isTranslator ? "the translation" : "the text"} is, with and without it:`}),
    make("ol", {}, ...labels.map((label, i) => make("li", {className: after[i] < before[i] / 2 ? "fell" : ""}, make("b", {textContent: label}), make("span", {textContent: `${wholePercent(before[i])} → ${wholePercent(after[i])}`})))));
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
  const [, stack, layer, part, head] = name.match(/^(\w+)\.layers\.(\d+)\.(\w+?)(?:_residual|\.heads\.(\d+))$/);
  const place = `${isTranslator ? `${stack} ` : ""}layer ${layer}`;
  return head === undefined ? `the residual connection of ${SUBLAYERS[part]}, ${place}` : `head ${head} of ${SUBLAYERS[part]}, ${place}`;
}

function partButton(name, textContent) {
  const button = make("button", {type: "button", textContent, ariaLabel: `switch off ${nameOfPart(name)}`});
  button.dataset.part = name;
  return button;
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
  for (const button of $("live").querySelectorAll("[data-part]")) button.setAttribute("aria-pressed", String(state.off.includes(button.dataset.part)));
}

// Switch a part off, or on again; if the text was changed a moment ago, that text is read first.
function togglePart(name) {
  const isNew = $("live-text").value !== shownText(), off = state.off.includes(name) ? state.off.filter(each => each !== name) : [...state.off, name];
  open(isNew ? {text: $("live-text").value, off} : {text: state.text, sequence: state.sequence, off});
}

// --- The box ------------------------------------------------------------------------------------------

const ABOUT_LIVE = "The network is in this page: it runs here, and nothing is sent anywhere. To make the page small, its numbers are rounded to 8 bits: with all their digits it would now and then write another word.";

const shownText = () => state.text ?? sequences[state.sequence].text;

// Parts of a model remain switched off with another text.
const runText = () => open({text: $("live-text").value, off: state.off});

// One choice for each part of a sentence, with its meaning.
function makeSlots() {
  const lists = data.slots.map(options => make("select", {lang: language, ariaLabel: "a part of the sentence"},
    ...options.map(([text, gloss]) => make("option", {value: text, textContent: gloss ? `${text}  ${gloss}` : text}))));
  for (const list of lists) list.addEventListener("change", () => {
    $("live-text").value = lists.map(each => each.value).join(language === "ja" || language === "zh" ? "" : " ");
    runText();
  });
  return make("div", {id: "slots", hidden: !lists.length}, ...lists);
}

function buildLive() {
  const methods = [["beam", `${BEAMS} beams`], ["greedy", "greedy"], ["0.5", "temperature 0.5"], ["1", "temperature 1"]].slice(isTranslator ? 0 : 1), named = languageName(0);
  const input = make("input", {id: "live-text", type: "text", maxLength: 2000, autocomplete: "off", spellcheck: false, lang: language, value: data.text});
  const method = make("select", {id: "live-method", ariaLabel: "search"}, ...methods.map(([value, textContent]) => make("option", {value, textContent})));
  const reset = make("button", {id: "live-reset", type: "button", textContent: "Switch all on", hidden: true});
  $("live").append(makeSlots(), make("div", {id: "live-form"}, make("label", {htmlFor: "live-text", textContent: `Your own ${isTranslator ? "sentence" : "beginning"}${named && ` in ${named}`}`}), input, method),
    ...(features.times ? [features.times.row] : []), make("p", {id: "live-status", role: "status", textContent: ABOUT_LIVE}),
    make("p", {id: "live-whole", hidden: true}), make("p", {id: "live-without", hidden: true}), make("div", {id: "live-change", hidden: true}), reset,
    make("details", {id: "live-parts"}, make("summary", {textContent: "Switch off parts of the model"}), make("div", {id: "live-list"})));
  let timer = 0;
  const runSoon = delay => {
    clearTimeout(timer);
    timer = setTimeout(runText, delay);
  };
  input.addEventListener("keydown", event => { if (event.key === "Enter" && !event.isComposing) runSoon(0); });
  input.addEventListener("input", event => { if (!event.isComposing) runSoon(400); });
  input.addEventListener("compositionend", () => runSoon(400));
  method.addEventListener("change", () => open({text: input.value, off: state.off}));
  $("live").addEventListener("click", event => {
    const name = event.target.closest("button")?.dataset.part;
    if (name) togglePart(name);
    else if (event.target === reset) open({text: state.text, sequence: state.sequence});
  });
  buildParts();
}
buildLive();

features.live = {
  draw: drawLive,
  isTranslator,
  show: showText,
  stop() { live.run++; },
  // How probable each token of the output is, and what the model writes, without a token of the source.
  without: (text, index) => runBoth(++live.run, text, new Set([`source ${index}`])),
};
