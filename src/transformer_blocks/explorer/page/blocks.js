// Blocks: the forward pass of a model, one function for each block, with the block's name in Python.
//
// A sequence of vectors is one Float32Array, vector after vector. A module has the name, the sizes and
// the weights of a block of the library; a weight is {shape, data}. A run says which parts are switched
// off, by name, and keeps what the blocks recorded, if it records.
//
// A layer is a generator, as all that calls one: it yields after each sublayer, so that the page can do
// something else meanwhile. `finish(work)` is the result of one.

import {inflate} from "./data.js";

export const newRun = ({off = [], isRecording = false} = {}) => ({off: new Set(off), recorded: isRecording ? new Map() : null});
export const headPart = (attention, head) => `${attention.name}.heads.${head}`;

// --- Vectors and matrices -----------------------------------------------------------------------------

// The dot product of `size` numbers; four sums, which the processor adds up at the same time.
function dotProduct(x, xStart, y, yStart, size) {
  let a = 0, b = 0, c = 0, d = 0, i = 0;
  for (; i + 3 < size; i += 4) {
    a += x[xStart + i] * y[yStart + i];
    b += x[xStart + i + 1] * y[yStart + i + 1];
    c += x[xStart + i + 2] * y[yStart + i + 2];
    d += x[xStart + i + 3] * y[yStart + i + 3];
  }
  for (; i < size; i++) a += x[xStart + i] * y[yStart + i];
  return a + b + c + d;
}

// x W^T + b for each vector x.
export function linear({weight, bias}, x) {
  const [outputs, inputs] = weight.shape, rows = x.length / inputs, y = new Float32Array(rows * outputs);
  for (let output = 0; output < outputs; output++) {
    const shift = bias ? bias.data[output] : 0;
    for (let row = 0; row < rows; row++) {
      y[row * outputs + output] = dotProduct(weight.data, output * inputs, x, row * inputs, inputs) + shift;
    }
  }
  return y;
}

const add = (x, y) => x.map((number, i) => number + y[i]);

// --- Embedding (embedding.py, variants/rotary.py) -----------------------------------------------------

// The embeddings of tokens; those of torch are not scaled.
function tokenEmbedding({is, weight}, tokens) {
  const size = weight.shape[1], factor = is === "TokenEmbedding" ? Math.sqrt(size) : 1, x = new Float32Array(tokens.length * size);
  tokens.forEach((token, row) => {
    for (let i = 0; i < size; i++) x[row * size + i] = weight.data[token * size + i] * factor;
  });
  return x;
}

// PE(position, 2i) = sin(position / 10000^(2i / d_model)), and its cosine in the next feature.
function sinusoidalPositionalEncoding({d_model}, x, positions, run) {
  if (run.off.has("positions")) return x;
  return x.map((number, i) => {
    const feature = i % d_model, even = feature - feature % 2;
    const angle = positions[(i - feature) / d_model] / 10000 ** (even / d_model);
    return number + (feature === even ? Math.sin(angle) : Math.cos(angle));
  });
}

function learnedPositionalEncoding({weight}, x, positions, run) {
  if (run.off.has("positions")) return x;
  const size = weight.shape[1];
  return x.map((number, i) => number + weight.data[positions[Math.floor(i / size)] * size + i % size]);
}

// Rotate each pair of features of a query or key by an angle proportional to its position.
function rotaryPositionalEncoding({d_k, frequencies, factor}, x, positions, run) {
  if (run.off.has("positions")) return x;
  const rotated = new Float32Array(x.length), width = x.length / positions.length;
  for (let i = 0; i < x.length; i += 2) {
    const pair = i % d_k / 2, isRotated = pair < frequencies.length, angle = isRotated ? positions[Math.floor(i / width)] * frequencies[pair] : 0;
    const scale = isRotated ? factor : 1, cosine = scale * Math.cos(angle), sine = scale * Math.sin(angle);
    rotated[i] = x[i] * cosine - x[i + 1] * sine;
    rotated[i + 1] = x[i] * sine + x[i + 1] * cosine;
  }
  return rotated;
}

// --- Attention (attention.py, multi_head.py, cache.py) ------------------------------------------------

// Scores become weights; those of masked keys are -Infinity, and become 0, also if all are.
function maskedSoftmax(scores) {
  let largest = -Infinity, sum = 0;
  for (const score of scores) if (score > largest) largest = score;
  for (let i = 0; i < scores.length; i++) {
    scores[i] = largest === -Infinity ? 0 : Math.exp(scores[i] - largest);
    sum += scores[i];
  }
  return scores.map(exponential => exponential / (sum || 1));
}

// softmax(q K^T / sqrt(d_k)) V of one query, for the first `count` keys of a head, which begins at `start` in each position.
function scaledDotProductAttention(query, {keys, values, width}, start, count, mask) {
  const size = query.length, scores = new Float32Array(count), output = new Float32Array(size);
  for (let key = 0; key < count; key++) {
    scores[key] = mask?.[key] ? -Infinity : dotProduct(query, 0, keys, key * width + start, size) / Math.sqrt(size);
  }
  const weights = maskedSoftmax(scores);
  for (let key = 0; key < count; key++) {
    for (let i = 0, from = key * width + start; i < size; i++) output[i] += weights[key] * values[from + i];
  }
  return {output, weights};
}

// The keys and values of the positions of one sequence, with their heads side by side.
class KeyValueCache {
  constructor(width) { Object.assign(this, {width, length: 0, keys: new Float32Array(0), values: new Float32Array(0)}); }
  append(keys, values) {
    const end = this.length * this.width;
    for (const [name, added] of [["keys", keys], ["values", values]]) {
      if (this[name].length < end + added.length) {
        const larger = new Float32Array(2 * (end + added.length));
        larger.set(this[name].subarray(0, end));
        this[name] = larger;
      }
      this[name].set(added, end);
    }
    this.length += keys.length / this.width;
  }
  copy() {
    return Object.assign(new KeyValueCache(this.width), this, {keys: this.keys.slice(), values: this.values.slice()});
  }
}

// An empty cache for each layer, of one sequence.
const newCaches = (stack, kind = "self_attention") => stack.layers.map(layer => [new KeyValueCache(layer[kind].num_key_value_heads * layer[kind].d_k)]);

// Append the keys and values of vectors, equally many for each cache.
function projectTo(caches, module, x, run) {
  let keys = linear(module.key_projection, x);
  const values = linear(module.value_projection, x), {width} = caches[0], length = keys.length / width / caches.length;
  const positions = caches.flatMap(cache => Array.from({length}, (_, i) => cache.length + i));
  for (const transform of module.transforms) keys = call(transform, keys, positions, run);
  caches.forEach((cache, i) => {
    const from = i * length * width, to = from + length * width;
    cache.append(keys.subarray(from, to), values.subarray(from, to));
  });
}

// Attend from each vector of x to the positions of its sequence, whose keys and values are in a cache;
// all sequences have equally many vectors. `key` has the vectors to append to the caches; null, if none.
function multiHeadAttention(module, x, key, caches, {causal = false, mask = null}, run) {
  const {num_heads: heads, num_key_value_heads: groups, d_k: size} = module, width = heads * size;
  if (key) projectTo(caches, module, key, run);
  let queries = linear(module.query_projection, x);
  const rows = queries.length / width, length = rows / caches.length;
  const positions = caches.flatMap(cache => Array.from({length}, (_, i) => cache.length - length + i));  // of the last ones
  for (const transform of module.transforms) queries = call(transform, queries, positions, run);
  const outputs = new Float32Array(rows * width), most = caches[0].length, recorded = run.recorded && new Float32Array(heads * rows * most);
  for (let row = 0; row < rows; row++) {
    const cache = caches[Math.floor(row / length)], count = causal ? positions[row] + 1 : cache.length;
    for (let head = 0; head < heads; head++) {
      const start = head * size, query = queries.subarray(row * width + start, row * width + start + size);
      const {output, weights} = scaledDotProductAttention(query, cache, Math.floor(head * groups / heads) * size, count, mask);
      recorded?.set(weights, (head * rows + row) * most);
      if (!run.off.has(headPart(module, head))) outputs.set(output, row * width + start);
    }
  }
  run.recorded?.set(module.name, {queries, cache: caches[0], weights: recorded});
  return linear(module.output_projection, outputs);
}

// --- Feed-forward network (feed_forward.py, variants/gated_feed_forward.py) ---------------------------

// The error function, to 1.5e-7 (Abramowitz and Stegun 1964, formula 7.1.26).
function erf(x) {
  const t = 1 / (1 + .3275911 * Math.abs(x)), series = [1.061405429, -1.453152027, 1.421413741, -.284496736, .254829592];
  return Math.sign(x) * (1 - series.reduce((sum, factor) => (sum + factor) * t, 0) * Math.exp(-x * x));
}
const ACTIVATIONS = {
  relu: x => Math.max(0, x), silu: x => x / (1 + Math.exp(-x)), gelu: x => x / 2 * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: x => x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + .044715 * x ** 3))),
};

function feedForward(module, x) {
  const hidden = linear(module.up_projection, x).map(ACTIVATIONS[module.activation]);
  return linear(module.down_projection, hidden);
}

function gatedFeedForward(module, x) {
  const gate = linear(module.gate_projection, x).map(ACTIVATIONS[module.activation]), up = linear(module.up_projection, x);
  return linear(module.down_projection, gate.map((number, i) => number * up[i]));
}

// --- Residual connection and normalisation (residual.py) ----------------------------------------------

// gamma (x - mean) / sqrt(variance + eps) + beta; without the mean and beta, it is RMSNorm.
function layerNorm({weight, bias, eps}, x, {isCentred = true} = {}) {
  const size = weight.data.length, normalised = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += size) {
    let mean = 0, variance = 0;
    for (let i = 0; i < size; i++) mean += isCentred ? x[start + i] / size : 0;
    for (let i = 0; i < size; i++) variance += (x[start + i] - mean) ** 2 / size;
    const factor = 1 / Math.sqrt(variance + eps);
    for (let i = 0; i < size; i++) normalised[start + i] = (x[start + i] - mean) * factor * weight.data[i] + (bias ? bias.data[i] : 0);
  }
  return normalised;
}

const rmsNorm = (module, x) => layerNorm(module, x, {isCentred: false});

function postNorm({name, norm}, x, sublayer, run) {
  const output = sublayer(x);
  return call(norm, run.off.has(name) ? output : add(x, output));
}

function preNorm({name, norm}, x, sublayer, run) {
  const output = sublayer(call(norm, x));
  return run.off.has(name) ? output : add(x, output);
}

// --- Encoder and decoder (encoder.py, decoder.py) -----------------------------------------------------

function* encoderLayer(module, x, caches, options, run) {
  x = call(module.self_attention_residual, x, x => multiHeadAttention(module.self_attention, x, x, caches, options, run), run);
  yield;
  return call(module.feed_forward_residual, x, x => call(module.feed_forward, x), run);
}

function* encoder(module, x, caches, options, run) {
  for (const [i, layer] of module.layers.entries()) {
    x = yield* encoderLayer(layer, x, caches[i], options, run);
    run.recorded?.set(layer.name, x);
    yield;
  }
  return module.norm ? call(module.norm, x) : x;
}

function* decoderLayer(module, x, memory, caches, mask, run) {
  x = call(module.self_attention_residual, x, x => multiHeadAttention(module.self_attention, x, x, caches, {causal: true}, run), run);
  yield;
  x = call(module.cross_attention_residual, x, x => multiHeadAttention(module.cross_attention, x, null, memory, {mask}, run), run);
  yield;
  return call(module.feed_forward_residual, x, x => call(module.feed_forward, x), run);
}

function* decoder(module, x, memories, caches, mask, run) {
  for (const [i, layer] of module.layers.entries()) {
    x = yield* decoderLayer(layer, x, memories[i], caches[i], mask, run);
    run.recorded?.set(layer.name, x);
    yield;
  }
  return module.norm ? call(module.norm, x) : x;
}

const BLOCKS = {
  FeedForward: feedForward, GatedFeedForward: gatedFeedForward, PostNorm: postNorm, PreNorm: preNorm, LayerNorm: layerNorm, RMSNorm: rmsNorm,
  SinusoidalPositionalEncoding: sinusoidalPositionalEncoding, LearnedPositionalEncoding: learnedPositionalEncoding,
  RotaryPositionalEncoding: rotaryPositionalEncoding,
};
export const call = (module, ...inputs) => BLOCKS[module.is](module, ...inputs);

// --- Models (models.py, generation/incremental.py) ----------------------------------------------------

// A stack, its caches, an embedding and an output layer; all sequences that are decoded have one length.
class IncrementalDecoder {
  constructor(model, embedding, stack, run) {
    Object.assign(this, {model, embedding, stack, run, caches: newCaches(model.decoder), read: [[]]});
  }
  get length() { return this.caches[0][0].length; }
  // The hidden vectors of new tokens, equally many of each sequence.
  *hidden(tokens) {
    const count = tokens.length / this.read.length, positions = tokens.map((_, i) => this.length + i % count);
    return yield* this.stack(embed(this.model, this.embedding, tokens, positions, this.run), this.caches);
  }
  // Append the newest token of each sequence, and return the logits of the next ones.
  *step(tokens) {
    if (this.length === this.model.context) yield* this.makeRoom();
    this.read = this.read.map((read, row) => [...read, tokens[row]]);
    return linear(this.model.output, yield* this.hidden(tokens));
  }
  reorder(rows) {
    this.read = rows.map(row => this.read[row]);
    this.caches = this.caches.map(caches => rows.map((row, i) => rows.indexOf(row) === i ? caches[row] : caches[row].copy()));
  }
  // Replace what fills the context of a language model by the later half of it.
  *makeRoom() {
    const count = Math.max(1, this.model.context >> 1) - 1, {read} = this, rows = [];
    for (const tokens of read) {
      Object.assign(this, {caches: newCaches(this.model.decoder), read: [[]]});
      if (count) yield* this.hidden(tokens.slice(-count));
      rows.push(this.caches);
    }
    Object.assign(this, {read, caches: this.caches.map((_, layer) => rows.map(row => row[layer][0]))});
  }
}

function embed({positions: encoding}, embedding, tokens, positions, run) {
  const x = tokenEmbedding(embedding, tokens);
  return encoding ? call(encoding, x, positions, run) : x;
}

// The positions of a source that are not attended to: its padding, and those that a mask hides.
export const paddingMask = ({padding_id}, source, mask = null) => source.map((token, i) => token === padding_id || Boolean(mask?.[i]));

// Encode a source; return what decodes its targets. A mask hides positions of the source.
export function* seq2seq(model, source, run, mask = null) {
  const x = embed(model, model.source_embedding, source, source.map((_, i) => i), run);
  mask = paddingMask(model, source, mask);
  const memory = yield* encoder(model.encoder, x, newCaches(model.encoder), {mask}, run);
  const memories = newCaches(model.decoder, "cross_attention");
  model.decoder.layers.forEach((layer, i) => projectTo(memories[i], layer.cross_attention, memory, run));
  const stack = (x, caches) => decoder(model.decoder, x, memories, caches, mask, run);
  return new IncrementalDecoder(model, model.target_embedding, stack, run);
}

// Read all tokens of a prompt but the last; return what decodes the tokens that follow.
export function* languageModel(model, prompt, run) {
  const steps = new IncrementalDecoder(model, model.embedding, (x, caches) => encoder(model.decoder, x, caches, {causal: true}, run), run);
  const read = prompt.slice(0, -1), {context} = model;
  const count = context === null || read.length < context ? read.length : Math.max(1, context >> 1) - 1;
  if (count) yield* steps.hidden(read.slice(-count));
  steps.read = [read];
  return steps;
}

function finish(work) {
  for (;;) {
    const {done, value} = work.next();
    if (done) return value;
  }
}

// --- Weights ------------------------------------------------------------------------------------------

// A matrix has 8 bits for each number, and a factor for each row. Factors and vectors are bfloat16: the upper half of a float32.
export async function loadModel({tree, shapes, integers, floats}) {
  const rounded = new Int8Array((await inflate(integers)).buffer), halves = new Uint16Array((await inflate(floats)).buffer);
  const exact = new Float32Array(Uint32Array.from(halves, bits => bits << 16).buffer);
  let at = 0, from = 0;
  const tensors = shapes.map(shape => {
    const [rows, columns] = shape, data = new Float32Array(columns ? rows * columns : exact.subarray(from, from + rows));
    for (let row = 0; columns && row < rows; row++) {
      for (let column = 0; column < columns; column++) data[row * columns + column] = rounded[at++] * exact[from + row];
    }
    from += rows;
    return {shape, data};
  });
  const connect = (module, name) => {
    for (const [key, part] of Object.entries(module)) {
      if (key === "weight" || key === "bias") module[key] = tensors[part];
      else if (part && typeof part === "object") connect(part, name ? `${name}.${key}` : key);
    }
    return Object.assign(module, {name});
  };
  return connect(tree, "");
}
