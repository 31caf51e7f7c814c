const translator = (() => {
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%/()*+-;,=.?@^_`{|}~";
const DIGITS = Uint8Array.from({length: 128}, (_, code) => Math.max(0, ALPHABET.indexOf(String.fromCharCode(code))));
function bytesOf(text) {
  const bytes = new Uint8Array(Math.floor(text.length * 4 / 5));
  for (let i = 0, at = 0; i < text.length; i += 5) {
    let number = 0;
    for (let j = i; j < i + 5; j++) number = 85 * number + (j < text.length ? DIGITS[text.charCodeAt(j)] : 84);
    for (let shift = 24; shift >= 0; shift -= 8) bytes[at++] = number >>> shift;
  }
  return bytes;
}

// Bytes that were compressed by zlib.
async function inflate(text) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
// Blocks: the forward pass of a model, one function for each block, with the block's name in Python.
//
// A sequence of vectors is one Float32Array, vector after vector. A module has the name, the sizes and
// the weights of a block of the library; a weight is {shape, data}. A run says which parts are switched
// off, by name, and keeps what the blocks recorded, if it records.
//
// A layer is a generator, as all that calls one: it yields after each sublayer, so that the page can do
// something else meanwhile. `finish(work)` is the result of one.


const newRun = ({off = [], isRecording = false} = {}) => ({off: new Set(off), recorded: isRecording ? new Map() : null});
const headPart = (attention, head) => `${attention.name}.heads.${head}`;

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
function linear({weight, bias}, x) {
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
const call = (module, ...inputs) => BLOCKS[module.is](module, ...inputs);

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
const paddingMask = ({padding_id}, source, mask = null) => source.map((token, i) => token === padding_id || Boolean(mask?.[i]));

// Encode a source; return what decodes its targets. A mask hides positions of the source.
function* seq2seq(model, source, run, mask = null) {
  const x = embed(model, model.source_embedding, source, source.map((_, i) => i), run);
  mask = paddingMask(model, source, mask);
  const memory = yield* encoder(model.encoder, x, newCaches(model.encoder), {mask}, run);
  const memories = newCaches(model.decoder, "cross_attention");
  model.decoder.layers.forEach((layer, i) => projectTo(memories[i], layer.cross_attention, memory, run));
  const stack = (x, caches) => decoder(model.decoder, x, memories, caches, mask, run);
  return new IncrementalDecoder(model, model.target_embedding, stack, run);
}

// Read all tokens of a prompt but the last; return what decodes the tokens that follow.
function* languageModel(model, prompt, run) {
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
async function loadModel({tree, shapes, integers, floats}) {
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

// Searches: greedy decoding, sampling and beam search, as in generation/ of the library.
//
// A search is a generator, as the model's layers are. What it returns are {tokens, score, isFinished}, best first.

// The log-probabilities of logits, in float32 as torch has them.
function logSoftmax(logits) {
  let largest = -Infinity, sum = 0;
  for (const logit of logits) if (logit > largest) largest = logit;
  for (const logit of logits) sum += Math.exp(logit - largest);
  return logits.map(logit => logit - largest - Math.log(sum));
}

// The places of the largest numbers, largest first; of equal ones, the first.
function topK(numbers, count) {
  const places = [];
  for (let i = 0; i < numbers.length; i++) {
    if (places.length === count && !(numbers[i] > numbers[places[count - 1]])) continue;
    let at = places.length;
    while (at > 0 && numbers[places[at - 1]] < numbers[i]) at--;
    places.splice(at, 0, i);
    if (places.length > count) places.pop();
  }
  return places;
}

const mostProbable = logProbabilities => topK(logProbabilities, 1)[0];

// A choice of a token at random; with a low temperature, the most probable ones are more frequent.
const sampleAt = (temperature, random = Math.random) => logProbabilities => {
  const probabilities = logSoftmax(logProbabilities.map(x => x / temperature)).map(Math.exp);
  let rest = random() * probabilities.reduce((sum, x) => sum + x, 0);
  const chosen = probabilities.findIndex(x => (rest -= x) < 0);
  return chosen < 0 ? mostProbable(logProbabilities) : chosen;
};

// Greedy decoding or sampling: one token after the other, each chosen by a function of the log-probabilities.
function* generate(model, start, choose, {endId, maxLength}) {
  const tokens = [];
  let token = start, score = 0;
  while (tokens.length < maxLength) {
    const logProbabilities = logSoftmax(yield* model.step([token]));
    token = choose(logProbabilities);
    score += logProbabilities[token];
    if (token === endId) return [{tokens, score, isFinished: true}];
    tokens.push(token);
  }
  return [{tokens, score, isFinished: false}];
}

// Beam search, with the stopping rule and the length penalty of beam.py.
function* beamSearch(model, start, {size, lengthPenalty = .6, endId, maxLength}) {
  const rank = ({tokens, score, isFinished}) => score / ((5 + tokens.length + isFinished) / 6) ** lengthPenalty;
  const byRank = found => found.sort((a, b) => rank(b) - rank(a));
  let beams = [{tokens: [], score: 0, isFinished: false}], finished = [];
  for (let step = 0; step < maxLength; step++) {
    const logits = yield* model.step(beams.map(({tokens}) => tokens.at(-1) ?? start)), count = logits.length / beams.length;
    const scores = new Float32Array(logits.length);
    beams.forEach(({score}, i) => logSoftmax(logits.subarray(i * count, (i + 1) * count)).forEach((x, token) => { scores[i * count + token] = x + Math.fround(score); }));
    const candidates = topK(scores, 2 * size).filter(place => scores[place] > -Infinity).map(place => ({place, parent: Math.floor(place / count), token: place % count, score: scores[place]}));
    const ended = candidates.slice(0, size).filter(({token}) => token === endId).map(({parent, score}) => ({tokens: beams[parent].tokens, score, isFinished: true}));
    finished = byRank([...finished, ...ended]).slice(0, size);
    const extended = candidates.filter(({token}) => token !== endId).slice(0, size);
    if (finished.length === size || !extended.length) return finished;
    beams = extended.map(({parent, token, score}) => ({tokens: [...beams[parent].tokens, token], score, isFinished: false}));
    model.reorder(extended.map(({parent}) => parent));
  }
  return [...finished, ...byRank(beams)].slice(0, size);
}

const data = {"tree": {"is": "Seq2Seq", "source_embedding": {"is": "TokenEmbedding", "weight": 0}, "target_embedding": {"is": "TokenEmbedding", "weight": 1}, "positions": {"is": "SinusoidalPositionalEncoding", "d_model": 32}, "encoder": {"is": "Encoder", "layers": [{"is": "EncoderLayer", "self_attention": {"is": "MultiHeadAttention", "num_heads": 2, "num_key_value_heads": 2, "d_k": 16, "attention_function": null, "query_projection": {"is": "Linear", "weight": 2, "bias": 3}, "key_projection": {"is": "Linear", "weight": 4, "bias": 5}, "value_projection": {"is": "Linear", "weight": 6, "bias": 7}, "output_projection": {"is": "Linear", "weight": 8, "bias": 9}, "transforms": []}, "self_attention_residual": {"is": "PostNorm", "norm": {"is": "LayerNorm", "eps": 1e-05, "weight": 10, "bias": 11}}, "feed_forward": {"is": "FeedForward", "activation": "relu", "up_projection": {"is": "Linear", "weight": 12, "bias": 13}, "down_projection": {"is": "Linear", "weight": 14, "bias": 15}}, "feed_forward_residual": {"is": "PostNorm", "norm": {"is": "LayerNorm", "eps": 1e-05, "weight": 16, "bias": 17}}}]}, "decoder": {"is": "Decoder", "layers": [{"is": "DecoderLayer", "self_attention": {"is": "MultiHeadAttention", "num_heads": 2, "num_key_value_heads": 2, "d_k": 16, "attention_function": null, "query_projection": {"is": "Linear", "weight": 18, "bias": 19}, "key_projection": {"is": "Linear", "weight": 20, "bias": 21}, "value_projection": {"is": "Linear", "weight": 22, "bias": 23}, "output_projection": {"is": "Linear", "weight": 24, "bias": 25}, "transforms": []}, "self_attention_residual": {"is": "PostNorm", "norm": {"is": "LayerNorm", "eps": 1e-05, "weight": 26, "bias": 27}}, "cross_attention": {"is": "MultiHeadAttention", "num_heads": 2, "num_key_value_heads": 2, "d_k": 16, "attention_function": null, "query_projection": {"is": "Linear", "weight": 28, "bias": 29}, "key_projection": {"is": "Linear", "weight": 30, "bias": 31}, "value_projection": {"is": "Linear", "weight": 32, "bias": 33}, "output_projection": {"is": "Linear", "weight": 34, "bias": 35}, "transforms": []}, "cross_attention_residual": {"is": "PostNorm", "norm": {"is": "LayerNorm", "eps": 1e-05, "weight": 36, "bias": 37}}, "feed_forward": {"is": "FeedForward", "activation": "relu", "up_projection": {"is": "Linear", "weight": 38, "bias": 39}, "down_projection": {"is": "Linear", "weight": 40, "bias": 41}}, "feed_forward_residual": {"is": "PostNorm", "norm": {"is": "LayerNorm", "eps": 1e-05, "weight": 42, "bias": 43}}}]}, "output": {"is": "Linear", "weight": 44, "bias": 45}, "begin_id": 0, "padding_id": 15, "context": null}, "shapes": [[15, 32], [15, 32], [32, 32], [32], [32, 32], [32], [32, 32], [32], [32, 32], [32], [32], [32], [64, 32], [64], [32, 64], [32], [32], [32], [32, 32], [32], [32, 32], [32], [32, 32], [32], [32, 32], [32], [32], [32], [32, 32], [32], [32, 32], [32], [32, 32], [32], [32, 32], [32], [32], [32], [64, 32], [64], [32, 64], [32], [32], [32], [15, 32], [15]], "integers": "cmV{#1z3}d0sv5YbPq;%ceBym-Q5j.U046_zt3xns0aws-QA-{jvn33h|vvW@0_mArG0+b3CNNMBWKqZCDbLdNJ?d/zYts@BDD+E=*HrAAhZMqZerFON?MnZ!9xy7$k{pUXq6oSpa%3$HpP^+egQM/1)F,wXh~vO8X**/,Tg9?^|Q3Y;n`z36BH{uSaZ%oN5;;|F)T59_w}A2MUEk?9Q/*jtB9)g;C8s6k`a?9bQ8s!bvWL+Qz~w{3$jC+L6G?nMnd6NNVsyq3kpg.sIO15i2l%{!9nYzHyj0Xp/Z)CtiKb62Mnyw*Z-j@64zEwr%LoX0DSvsk5hx5ce@hWx+xj#)Fq*Gr.Lbhoar*Z*4IRkz0mbk2fx9tvwm^zN=rI`-,2H4j$rkbcCV{mKgV/xC_wh,1u{d1`!Z6Ycvg+|frAq9qX8$hVbr4Z)z~gl?5d0t)vpH@#%wYz5b%70`s_UWi*PEAn^t%$3^*aW#?B}i4Ry3YSKYSx07UqXC%?JaswA=,cd4c;1#`obQgE#HjHS@X-EEP=WM$d,shOn!wSi48*|S|1x,Z*fy+OTxKH0@,SJegif`|8~u=?R0249D6ix$B3hSi+;W{;M@SObN4F.dZ@j{|qd7G%d9Dg=XTMe^PwN;di{+%owLIq4),`t,I6GnKt@,1w9Zf1f3m3c{2#a@5!+xg}Eu@+3G{?qjjSl*GE5.uh6E+;WF}t8}Ow;?t9Reomm1,(y91T4)P(0J2jbhmu`T+1/5Z({u7*^./pR2NzpJU-8cF?V;xB=,jXuEPH.t=k9r=.V,sxw`p$~9~rIR`hrp08v^53YMt/Em(y5avqRuusJ(|/#CGS5s!HSHN(.{@%}*__qyQo1ZSrIS4gy,Vp{,8R;J3@0OhammbT,-Qjp^g`8TNO|dZO8l{6gNaxf`BAcgRoWo;53w.{3ipx4L,VOq=wE/2Oq=`p$Y`N0O$?fg6O/?q3f%Q/KYX$fOawVi#Lh+4`m3g`02n9t$cTtAc-x8c;@;0%BKy3P4+VI3.CwBsaWHM@/2-M8=#_IMXO|8Lh_#YuTh)TtI-E*mG;vHSdD!^}N2Rv?,XQCL@CV/x,~m--yHV.zzA3ht*}U`@VXyq+8CNLZ@+$-LoB0MLa|U?4f%^?N}RGiO-hLb_E1iiRnYe4aqo2?pgN..pbyPgNW-%JUMO^LI)QB3g.s!5IiR=bD}5;#%*$,B^q5Dx657CiGn/#@RHv9b+3dn*.3B_O@|0O`Rby=1c}0)2EqBCWKV-U#sVhleDVGVmdtMazy-(k)%3KOWYbr(cT|6$#bkpmtX(rFl#SwfYr%cdj~Ag8FhkeBRc#,/@%9R%RPEwjr+`3Rklijn(J3mxtg,?WX3vsG(uc/Op^17k,WzGHAZ2rV@+h^HgvbIh4-xk;?HM(=?*;iro4DV2!awVYi;qy$9nNC^6HUrOq=dd5-%llCuVAH~#}/46hgCY.j-TuCJ;AiwuLK#Ywt{+0CfSF6N.T2UbsbXuP,c~?KHj*#Z@D6Pj|;-nwVJ*h@dZK*is+aN*%1Upljbwsboyuc3U16Gt1eO?BF8G^q!/4Swh}WZ|6Ao%`V!^00u_(BOYnQ7|JKSWXX4Oi,B,brp1v/uLcl$#|M;@4vi3Ykiwm=TnY_a3H*ZJW2Y43MtJXO6Ew4W8+S9D0%KLAH{Q).HB5#(3,^QAi4lcI9_v(.LpX@/zR*lXi;PKnu@uf_T2Mp|-SuI2vs.F=,Ps0qATO^BB8;L{h0ckjwy^hRi$E13LaM,fqIiFaU.LN5|RZ3mKr~xeK8WyR{HBaSClXlMG8Bl+i#%bbh/rL6gIfk`e+z;,10kV#1X-1a,x||HA!9)2yPS6LFp!i6;1@l#8Xv*)wyhhX3rwnAG.{2B}mQna}$+!qTDf)okB(z/sE_eQJCBqV*Y29FT;D#I=ti^tZJ3@|N5;J|Z1gjHwfm{lnzMUOmqe)%KQb$%Z3ow13bsw~?)pMIN;X9/5NDo`J{2+8_lWo;$kT8%*4xn3tp`X,^2#~{,{M;C5#+U|p(gAOw#W@{UU08_lSjb+ES4x,!cgW#vHV#4IO^AW;@h;NGnkgiT-$;3r%yEHj8DeZMEw.tB82!8E%b8`CFag}(.S#cm/n,7x,%?dYF5qzR=l$HSb0dl@Jj#XZ{!,JJySbyNw(HIkGQj^ihxLB4xTu!ic7)2JrO1saK+9|idG?+3k|QG^*Kvxya)jA+N3.Rae^,P_3?mObvQB-%!Bja)i5)F+5ha7lH/Hns,,%N!n@@KpQOrIWERa0A0i51J*dG11{Q0*WJdT`B*iNuz@ZzE84*OFaChSkkA8qXRKe2RDc~np^cPTD_$?dX9kI%L_BTxelc2KtKnmi_nucJQGn{kf;q|4`!Dz}2-10)!#zbF1CiLS$sh@RQt{35@SSnV0UsFZ*2ikuZoCLQG=q.$WN=QSFXtb+5Ix1qM#G3gi!ZH3+R/qTlKO|GRXIe}~9/PMZJkbI(a9)_m1k%@h-YSGx/CAuj/GsS()eIEcbltar;_@EOeF9HU`ewDw,bNILP_}#CCdsFq7f?UUwpTDY=4(pYO5d.O-zJSiv4`pSKN%?vl4XC*,W-`/.f?Uk+T)#Pp`7,ew8w#oXzt*6.tTmKG*z/Gji`S@Pu8uxX*j{HalFE{4CbWuj.AK%%UtC;|_H#)t*t%y`uRZE*CTY@_GfDqgND1E*om-@A$xnL0F$IKR{Lk`ekFA+jQe|8@/L;)D4,TPfd)B%EzoA7zl}=r}dR4JKq~Ghfe5Z9TJ2JAsnr(WTR4nQ#El@=AM?)s,=jgy@UYXsXA^ncj3q{/Tx6r5z?Rgy1q@zo1mG$MH^51UqO$jD}LwsY7lOBLQhCve91G=E2FstHcg}CLk8iN~@/}^L8_JXm=hme=0`C0Q+cZ_t|PF_4b6J#C#6gb=UWGa,|`Qi2GA!}COn_eL$%fuW9VH4al`4toyp.Lc=(PtT1(+bS?8+d1}DY8_(ui$R~H(I3UZnE^NJ@_r8eVp$7*TS_CZ+rjjj!?B)U(BN{)%{r8LE`qABdhBeNh)#7=c.Xuq7_ir;1%gs=toB9Fos(hE;4VQjDHUKfE+W@?(Jt@qpy@g{q{mm$XJgEAd$JyFM(Cw1lBUBo+ZxxWLk#qk7j`Nc4|-qEYTbWAmUt-2UIIr.3F/=No8OI1FpHti7j*|BDMmdmk;R)%Gr;BRI~;E+~DR_Ad-ls`F_jOh8kTp81{r0l$g_WcrD6t`^3iXusdp)LsSnne}_wvuU+BxA+)yA)hQ^2`Oa_,)Or9ilfW/%X}#ObDG~3#`IcRHBxxHICRO48/rgp}#@px3krd~omO%HvbsgFBBc#lBdA|pW2tO{z%4-C7e*u/9zWNDat8jfCJG6si?4W;Xs;L06AO2BG`4y0jpkK/R;ANLn%P(C#!ALc{zH2?LE8^Ol/@/+}SDxsYy9G{TZ$;oG*,/1WymLCx%R}iVtV+rnv_#o}bjgT5$?i.H,J0ME`wrk?rNzo2RI1g|b5Kr.ci)U1kn`qdBElC3%xLjT,m~.cmR=9DA;$z6()^~m9$}-tjnT0.Z)2_WqXQd^7=$ti/eq3YeDt{dT(6%PQ|0+~K5f2U8QQiJx=rnaFO}p^*CIFou#3)WP-gg#`BA|wptMV,HGs6ixLJ,AQ%up-s,$q+_S_8/u_$%O3dOL6d{g.nGP4o-V5`P(X)qa}qeH?|r%0?$=$y3uu%-l3N?`qbtkf7gN5io0WXm#v4ui#F#iSlz9|hhRC9M}y{`Elqy{+r_m0?h5guR;30Zt+p_QVbrHw1bs$^jOk^tsBb2d,cj_!hx(Q_PdieeDouCs4b@#Q`VItP}.roQix.{bL(V5-wnF3npRImJgNR+Q@6N{QmVbJ.W1!6yN?y;BL5m@=0U/7O?Mjx34,v5GZR~6ob@NX5mi/ZoEk69iVmOzk9PtyQu1_N!fiCfFiln*F$;-,1^E8E{_/by|moSl{?qTOO)@31?H(4*;i.SHV#q?iMs)8g;|dwndq+wW=!jKrmsO*Aac^o^ko,Gv2}O!qL,HS#w5hE$=oK-orX}iQ%PpPik@DwUSFNl=q#}~2GjVc)h2}4$}4*uD%_F=Aam8Hr#E~BfMus56_N`d*mw(c2A,LGI+0*KNu(gy%H(@/86o.K!d.LNje9*9,RKzjkSSto7P+N/8p;~,/2^chRhp,#bW$gW.BzR49rZ2HxBRkt`0wj#YM^q2rfl$siV1WkA~3}S$9ZqCU6}e`8,isTX?TRg6wmmD78tT,sgC058WEC5bvjH}lxn#I6w-4*p()8j%#.%KMYB+jiGN`,23*eO66%`f8-mA~W8-fqzC~`^tXnh|6qc8n*Pop/6ExaO?7D5Q@Zr2=C8,SX^4hINX7a1)05t=d8.rXtxO7OAPwHAMhlnls*KB21+d1DM#m-lH;)?ftGu+t8Uf})8+H~Zz7foYIcCqa(o9Ohd1=3yA.uLLPwDRpImkpvLe_o9.K*Dq`*Xidwy46Bo/UQ,QR9s3eyFe@YS2N9(s}I0cFrT*U/Smge;qa+(Et|d4vub*v1f`.EzNPxPk|y_jAP^_Y7,.b-Pg6DQw/$smjXH8(2U{kdt2.!)RiyOx`HqlM`CwIw-fv3Ea|hM1diB7oxlPTlFIvM+HkqX{WfQ`%/6|Bq6mYF9fHs@2R$xa~Jq96{Y0_Vg=M`2y9C$UksbY!Us0rk^3Dp6b%umME3%#tANIY$=u@u-^ZV$h8%exp5`pY=*`3k+n%v(pTM#rk}D_A!rsU?3PF@R1=)sSSdyM(gRG/|z6E9|pWMHbl_o8NDsVb6AO@.~S}NbOsJ0DeqXvTk2S{2n2nnNBI3h6Fj.9w+$@m-,Iu%`$5#bzTZE!FYJI`X27S_b/dl1*GsMXgVMMsEZ%zMo9i4iFdsT^+$#jeD*u|*@r5;NSkxYwtc-vm#ZI2;`XD;EdCG)vW,w2iBSFLVxGZ?GV3%bEs,d!4G@v9g0kxZh{uiT^miL6H*}tAJb`2pv1grba~XSAE~@W)I*8ya0HxESwE`7hn{I5jo!75QI91_u|J9oJET^*2=k~.Gc^7B~7=E9-pvbMe/j}.4,hADN.,e=X7p-8MBu(0y2Q%uoxW@7f0/ez(sj2Erje;G!Bd@+%w|8?mk$z8.n^$,)0xl3Q1F4=W5/zkD4N@DZ=1.!fQ%,Wtw%;MJmARWJJw3F+hSYq~6#So5mjn.RZ1RUx5H9XZCJHtvifhVb3vZs{ecUyc,dh@Xeux%RIw-z*4YF}.R|K@hXU@`C9wk~{Pu|PyN~q+ASQG0nZ;58?RqrovZH7.Tzpx0;(6T4?`8gT*,qr!^msw?s!rcWbBfq2MS7466R|kIwfMW)J`!8-krgT$19N+a=(kB@y1Ul)(V0SD1vLljeqUh.t2?$`(tW$g7RJfQb=M*?p.sT|L,#x,MhaV10xM}ZEwvpm,QpD{`XgJ;a*TDU#tQ@PfrOkCLL`=YB#qbqZyyl6~c#-Lt4Q$~FP!E^r,V.T,a@KOBoUm0gJo7I9dINA=Wy=5Pwyqy(Ld.s@8$Z6IT354|@;*EKDc8UCgCM6rO9qg*zKxPL58Kt4n3Nc6;e{}rGkTw^3z$FMyK3K,oj?e7s@*axmK}ze*/Q-OGVANXjf%d5UIm%#.s;G@;E$*6;,Ab;nsg7=Fb_Ft.$E2~{u|a$**BH{JK8CQh=4/xuLtWK9yJ#p2ID_3_qpbKsT~}f)egPtWqJCMmAvz*_wAAOh(%szr2ij`vZ;44S`7HlLzXVAeY_#G@NuzC{qyRatvo=yHGPr3/w5lMu,CC-#JTX)Hpoz%gEop-`qV#R9pqZh/gTvEvP%tmMu;m*V(_%BM)FV4N(@SDyMmGM1olf+hcR@yYf8DBrei?H%wg~f%t0/T-/R3D*^6cS;E@2-%0%gEu%a%?2OT-F!d^c_jFz2DsPxbUiz^*Oxg8iHGs2Cjl}8(P+DQ!9sYUV%a{@s1@RgIWhWA$_!$kT@Vuk}W;_{P0v8dmI1vW*DkDe+ac,gsetc!x#5SQBef2.AJD.*#gGs8iSc9zM=cV@%,,X}HJ4a%~,Ok-QhW,k-9E,z+Q)K^kniCz$WuY5AkdPli?zvy36hhue+fPk}tE0uhXl$If6/xKTl;$%FTNsd!s63T(qPp8+LYowQ1z(uXGr/S#`5h}X1d;}C!H{(Je`hPD;xZ=KcpR)tU9=W!~pk8)E)wG/%DI_~}4QH,`6.)a;50x9z+T.w1D8Bd4NIQ3Rs)-o;qIoY=L^MCM9?YG;r|oJS)0Bx(HY4hz3SPs;0l$$8IcvF(2FX$=?3!m*uW150S+dKkG|7VHj.|c^1)570bf~C)G{(ieO)gBf;{s=%Qpc(Q!PE!j9*9B{{rqA_y-y-0!U{q#=|hr1j9@Ecm.zI6,W!*MaU;ZRWk6`_)Dd/f/Tcny!KFyYYgMt{OCyah=?a0JDF_-6V6eG5p,ByPyP?vy#1kz/{X2gm;ZzB)hZn;n_E?;lXaJ9,Nc%IP_8rC,UU}7?IwHZ{vJ+;$YvIluegvzCmG..SVg*g=vit!MpFSsI1Bym.eO?Y!5.=i(2y|ROwO%;/y!AygJrVs$(eC_o)g;`?Cpi^R`f14deYB))cL#TFpr6grvpd^c@*Z~;$BtRj2IR{_4mH~VlvTK-T;SF{B|hHZo5m7h6J7tO3gMW1Le@flay(kLZ0qSjVbH5bTE6VPo$!.OehP3XRts-c.-IO3+%h22vn(27`O|LkdVd0B;dN.{nJH1tEDBGSL{%^SCb7,|xjhTln1-v@$~zKUg%RT{w1GNJ,qCnNDeKI1KUrq$-Tgy4ux~`lejs(=p!BX;w!4y%%KJ!_YRR2rh09vQqjLQ0mViL^-.mi58RiH{ex/FsW0P?KXrY+1A}~|WB.Eo,GD/#Dh`a1Gx,2jVmV;H0$(e^(MVMm%MB0z`mb|jf-is#pOV+OI9O$HpZk0^-?4fGrL2MqmX/@;l|78J5H(HeD8Wdz!OJvvEZHs)Mb9GjN3i*yK4(8UfH~cz^O){^36A`muF8fFy$^!l$hx*/Z7f,?CbwEtdi|;=KcnN=IgX|/CEUv0/=BnM#3g%7|C(7pIjz,}c$Bm_VIE_*+Zl!nTr242qZrYjk*1n#l5N_AgZ`)$M28@Om)p?}d9xh|vylmi?ia9/@u#Ijxf?bJdFX10Db9t37Bo-T?qu}%C$KgNWk6JMTNrF1NvF,6%v~)SEn}.t6FBU*)r=o|p3c}^NzUqVR%nCLlYGNY/%{pSaTb#EEQh/5?9SoCegh^n0Vfn6`6QVC~(dpKGt$so*1#||zkr(%WttZlSUmZONafZczV2D*@7=O,`X/xj6=SsI//,Yblj}|A|OnDNCP+/~j06OK$ZnhJo$xR!1V8ihR!lr%/%n)9Eu-m)IXh_L.pq;Nl;W?vc(}MO;bh_Tv8Z!}o5_ITR97KT,R-uHSfR?u+.!HRaAIT*vPgW9oI!FM7LNJ3=GTcP41;*+@,h$ZY)h(Kt;NLm5Zf`z6Jc0U/;v561Tm)Fr87PwTS#HJt.=FMgr0hlTgeD.#Xx3|;71}_D@tp=rKcxF%RU.yRf-1;{5h~pjX}PE)z%ebC(;h{iH3N/Q29aa8zsv?JFSIBN70Y,b+qX49cJ97*iNYrN3_%q|CC8J9L!p@;EZ5yd3HR.v/*DCNi1+v0eYR|UX8#Jbt)erI.j~,76#R$uU%46Ty~yKl;OyDfX`YBo`NU!bL$@|WYkD.0DH}H~ok/j=_s?uV|4B0Rzd,J_V_~^+^{T/MqzDoMbRb)/J$T8kXBr%iy0?M`/G8t;S0|3mo6a8jgCB0L,e{av_53V(0frxj0`IC?-_dUXybX3oc~vWNvO8UCWk4(yff|.((Hw;.8LwH|s9D!d-3qX0=j?3k.I-D~*?w(9uCsO+q=y77ECRgOcb0CUSus^P9qO~E@UMWAHof/CJ-p*qkLE8qZO8eo6i2l)!.*N+zUtB|*;.~zXph{1%A`6iUkhA{eTlme.SMWw;Q,hMMwO}5`EFErJ|AWGD(x`+L3Jv=M!d{C@GcQlGYYOU8%j`Euxt!XCkonlCmvhcg^DhV.U}xA0*WL5)t65TI5uwmv)yGJx{)oYqDe1u.qsK`W9Qyl6ri}mA1W!V@=%wPB1vJz8gsV?+L*+A*=~9Um@nh^{@m{UD^Tj5k?n?kior,8gpW.%UzSp^uWz_YeofL`f!H1e82?pQ5^{RG#yXHmCV_T{?,(BVRt$KXZ`AWX`hPiK$bV{ejKaD2aVK=k7+;n7O`$n/;9Y/UlqJgwK!fB{B|Yso@?Fr,*GaNCNSIyr`pBDR6JIign)p?@tt|r#ZfbU,eJ-O*-iuuxNPNUQ4Fup8ZJ6n=xz+TCD5XT~)#AjcZwns_mw87fuKm5E/Zt.2)r??CRzJK1s@Xp5F7t*2I`Fw3E|1p_+*D9drGeC3eAX4SCEHbR{;,I=ww?B`Uwm8vgV2!wSse(y;E2*VC;3unEU*%u=BZyyCy^*Mi8.R|{g.wB.FjudQQ={-gB-j0u{07l$^8q*@Opi!Yl{eg,idU({RTn@6b8qlOkczb!R3mzRxbA.^3?11;CeQ^MYB?%Rg|H|+k4~^{QC)Um+~mVaBOkvNHXMu=d)~cy8qOW!LtOQs?3/%?sP#Lfi)gxkGc%o!x4Gj=1Hj!VDaM1zy~tYYLa%s{A@D+H4x@$=fupt1)ZZJTC3*W9qM1wCEFi3?FKp}.N9`zHewcNXGKQqQc;4EqFl}^{{3g957+$;K5T$/+%0|n58+yCuJI$5VWWe52xC@A-nUGpAu;7lsIMd-oc-rAN5I4SZBJxzDWzw|rz/xV=UQ(1U?OL(_**g@YQtk+NeSXS52MM?^F0_Dqs.}!dJudLY7C_dGQEVU2r_=*,!-d5p;ha5GB7P(;=ez@i7vURY18xXPLXF7Eh;Gjhtw?cJ|pW;oML(wXqI!sp+!q=%AlQg(3ny_u6x_@UTV5bOu+TTvD5$4(DxYy1@ng!Eu6_i`+uhe7Dg!Qds}8;O_g~d^Nk?J#FEWDh$-MC^MudVPN0UATG(P+,xBC1=irRTx{!P%fkAG^IT+h8{~$|5P`f~Z3YA4}8zOIRDSRp/{C#2dx1R*jh(}dPa#fAJSdKr)K4IK,C^@kuMN?b6X`vr|+/?r!D01ud6yoh2^Kbp,E@,_0=#6BHwFY1A476{Ch00(i6),7GXu-X#)yd#=prqhf;Rw7ePqT;%$o*+TnH*RwI6mp?RZb!R`!`6V+3zTk_e0GThMb9CEovITeXb@Y4@D.tm}ZmZfAWjOyk7}T,oL9;MP42xT~s-%T)vL_qkm^1#M(/Vax.*}RZ6nL%x(m|W~vNeL$AV=S637y?0P3.vRow^I+Ov)wQF2~CiGNAU-Nbkepcg0bE9Y^SQnulb@^6$P@0SEO-b,+!b8K_vvyw=qE^-Oh1Xo0(GiOx@ejYc);+/1E(gmi$NR1OtHkNQCPvOGrL-jqt3v7KHQk5vwxf;5?)Xrv=B/$-ta)kWlY8QlrcjdEUGuTOlkQH,auixe=m+_5*utv5UGHP5y)CecG`~=L$+te^c)jsK`MmH|.RqmQ/DuZ/XD46/%{J+z3ZuTUer10#lZ^T_y^)UAO`;/9{Cf4YbXf6~j0_-/3}rRUT`M/p^`}R8KS#.5+ev@-V8N0Xar?RpgXJ|}gX@/{h*FjG.u.i=#RqL^Mp`snT#eX%Qmx)WPiddP.@4oCVkt@thP~6-d8x{)WB6OuOcX~1KInH=pVszGGHeDG2OVz)s8-on62qn45,y~$xMcSt1IP8^Iak-u)q3UBTgD?;{|6Z*wgXPmQO/Zbluf|W)iud0m@vBhWN5l~ZHdT;vc=%Ow~te;yVOFPjATSvRDzUWW;K|Vg!1z/#yN2K1#x!c/hEN|kE$P4//vnd9iFO.O,pdZm(m$t^OXjC9S3$R=aR}CpweIEMt-$=B{iiZf.gAq_x+;mtR1v4V;2immO;sBmY+V!{Sq$YEp|V(VPtY@9KL;a6c/j{SWNf{iMD{Y_aNm@3/nHkkAal1wT#oHb0KHRsQBSeY%ddMNei0IH|j`0FS0XUS6Zd-KH)RmoV$,YE7^BHx@cA@BMp!7`DitZ-R-stM33AG`z@(goex*xZ`Lhuq`FS=n88GI7eSvuCbz3?KB%=$nWChi*2Um0{I7{Ot%iQVo/q)wR1uO*$Ck4FZ5(Y`W3mgI=0e5KDRGeIcCiMXmT(b-m-S_vPq=(ROQJo7g7SCv0hKbArBod0C|(Vmm0oqd$vuL8Lbd)@D%1a@1X_=wknp/6HaXbO=r=f_+)/jY(ik#hpVkExt`,v2/XsAVR$vCCeWzV2HF5;!@p=;Jq6LJ9v?_xGOVf%9i?h8+=C/==LkNW2A3McHnKHc)X#E?sMYirix.yoppmbvFIUN7JF=cV%6C%J$Li7`,g9yU(Y}NeZ72/.Uz.7)(itu6Q7^?~lvqv+efRW1iR9,6Z{E9T!RcytMCF.f+rzgmbnmWt`B{|czfIbhWk{W~6r1Y2=?5_1auT78XwmP}Gwuw||uh6@~A1neF2SYpKEYGAQiV|A}=O$3VnN^Qj/fes=.L/C?29v#r^H~s{=mt9_)CV7?pKrCOvUqP5I*TRJAk4c)Ems+JRA)g@sz6VT!?^Xbv2{*{TsIRmg*bw!@==UPvkY/0^4L?pJ++D*CfCE=o/*.!N,3_3X}W,Llp/G}QlQB?T#Iveb_.}aoocR5x,$6U{,!6uYmFomLgw5qcx;FC)*L80N)FzeI=Jf}Sjqjhgy?D.41Vet*ru+~xiZK;6lMJJsxqxCMb7%A=pKP4aUZXtJx`$u%tbGBu^RLdozXaU^r*8R;W025F-CUbYjm3.M_Z@els+H-#RT_6dms5+8-`p~X~1ECz+0s1VP+%WtF*=go?-f{DB8L*jExuI9O!#7EoQ81y-d3|VZ5B2-{ENdCxuJGc2q=f;y*d|zoYI*#x;BA.w@rD0o$qwFMYx/8Bm|RWtz,_MD%yzRQC(rkbjXOu}CVW!YU)C$YwKn2UPOg@3-Hg()!xNxjLThJ%?8zPx;Qs.0oRtrt7.4-()cRs?NGS-zRa(fV*@_q|(;mi%!mdZ|0).dhQVebbq!,QNOMi|Ct(bH0e^ZGpmj$JkH3bYKpA6QdUtTT/x3rea^C7b4P7;ys2eeD~5qK{k(I`70ymuXeYC%n$FDI+ko1nTTwA|-DlvA%DNX!gzzh22v-K.cE,`y{pjXwi3iqIcdNafyzB8KZg/xXjm{-_ctJerto;P4l}(epN9x*)UC*gEw6(wm4e{yIVm{_=ZU5ylWPg9^#jiNUoKA%+-w`$^.75,v?I@znBzLQkjm-%v4~XGIOEIx9#E==UEr*|~pia{%VdugUwm;8J5vk-fSL(tb+o;Sj2j1h8)Y~,d2K0=vE)h|kp8?aHd%fcj6IuxHufg#g/{*^rCfrX7_n(a*o@8r,6}QCfs,9SpGomHNTThyb*rwHd$;)evHY*2t@jSkFZJ_,-=tdD|Ae3}P(Eoo}hiE$I8yY?PkBppEy)4PX+Kfmy*.{,89PWnJ%?k-IK4z+O)hzU+?mdYFieD)BS_q_;FOT$2Q$qZ_F0HB`xkUIC=aScM-VE{.49$C51EP%2%HyKSxHT53PsMEZ#+~pd-j)t*)jed7W2=eBGj-v2qdZF,z~odKcBRzh+XY;qho`9~5_@PUY}n}H(r*X*5At5wvPj|C/jU9dp.=!W?k2EAhG!TY(dB9JwO6j*wh40l8!x_a`-nT8wn$?R{(}H_%w4(5O#Z}tyoUU}nGsyxni2;H.Qk-p6g98+s81Nu7te{(qNN3Rnpzs.%),`5,x8pjifd4Nk`.JUV28zQyWs)let0N90BxJ4XY|*S)u|mg?ek-hKu*1==XQ|ee?k@^dw?Yg7VP_wpQSmkNM43fopYB0lKtvpu49JJI%+H/qm`KP4ept=,HQL!1Q9V{S*H}4f8)NbKlb6vQ`daGlh$5S.(Z0ttO03wH4wra8#7g.`*W3lsL%Iv|Bb^z-(STe-(dkUto;!El1rNrw+JB%5PG9zc=,1fbf2$ihEmA/ED8K{?XtYM1gH!?4MBFW`}s#tT!pvah-xH(Pxlzq#HLK;6hq`9Uw_DL,G%bFVgAF7e|}uC2sF4-$r/zY7!+/MoE(;7BsXDOmPl=.t(();_yvZM6{NwuDV3CqP7?gZiTaI3o`-*1wlYBdjVTb*bP{K.?/`#oRF2GW#e3x5f(ne1XVJV`f=L;56Z2xjayH!65/{GH_=c7o)jJ0w/ZCNwMHX-Co|MrXKu3?to`YU.ar5_U=5mnt^ts-e(bQ0u5cXmq`ZX~FUB%.om%lIhf^W}_n@WN88b5v`-cY~3my9-RTpsGfdUdiwU(fr0D(hE?.d%dH.k.vGJ^95A`6IO*zyli_.;zpdMDh,y5k^Fm2cxnlVRh4MvE04otp_f)!0pJN(-rRRNc|*U+wrq5r(g`!T7ALdPmO)4_C;t/t!ofmU{JvU,UVssjmTK3uAszHifwBqj|-z}.m63ZAE%5{a3)6xxUf0hQ)l1$5?Wl=$/FIpSY+_p4%uXW;Hp`RvZEVG%fjbArq~nQc++Bh.Ul!KK.{)hV4.`{A?GF.?8suzIHeKw_.T!tRpy13vzgUXP/{xAORDBtRJ)wp*7!;yHJ|v`m@*qs0ppmDvZpig/K;gQKaST}T#hth?3_PPG=ODnoLjHeEzG9fik~`#Ul5Ply69K|5=9V3!{NWcBlpB/#~*C`N5P2yrec2dj1Y|txO2I}Zp_n,{5J0G!ZX2Nlso!!URCt*vk#Qho2+lijsFyDSdBAOE,{yR=#0=T*@~4hKH}AeS;rjkQ3HkL;/3^q9J`Bze(lCpH)*AlIC_VQ@@b+dSvl$vK)4bPue?o+!@t,)1T{ywqo^pWF^My$dwgkrx%`;x^!v2j{-z#(W+,FS/GSM{V`~){QRMj0r`,oL(9~n?q=?eKe/4}=GD8WIU5r2c)e*rrq/P,bPj$I^IDqWubk;xuIM20#,;nXx{|de7(X-8uXRi7eHc(YxS(SL/HK8T|Cl{4Cks8t%fdT8TV!kwn^p)~=bU(Q{PK9FOoSsjS`.G*6fj@_KjLpD.@$UYFNSx`vs/|3Xr#c5DbnI)7Ael~?ZeeJsrA$g.zRE(p{DBK+8#Gb^%y-X}QGVnBHzT2a@~fXa)zUj}sMr%dl_t)ue8Y,ec3)AG/L`!iYgrJPNIHajj5}rsm6*`v5z5S#Qn6MfG,IV;$`m2kX0UXE*#Jv;Kx7Pm1C/.14`!wLD?dK9_#lpxSd^RUzB{RX.Fhn@nQ5|hRgb$SGJn_BQkiK-Rr1~ewDl~J8^F?~mcxgC5iYfyi,cfG1%h6@D4Y=9;8D.,YAg8)(-@_/0HRH?m1eK?O#9VL?3AjX+8r0rtCo9zO%zynIY;LBfOSE;yj^!3Eb4p1w8bt-PBk6uS|;yUG*RFiww$KVE!w.ht-7+tyk`/3br1Q*FG0#A{u7jUOAKA}!%D`8r7Rb6lB-NzImvBotk_.cifpFLldCx@0Jtq{8fBAfDy9S@-4*^7_dm}wh52JQ9{m4UN*`FU{{(I;ubr4WCm-$J{eikl00M#eH$+u?mGqS?Igedz%u|!~^K4W*,c(~9?e4bUHAz}CPmAx?0l%yVqaQJCshHNKx!%63o_^oMp0gtVvd8DrB,AO,^6x`S%wvh-aTtA`*;F78Z@W7g^/MMRVP9Zg=ks^LGM+(QkGK}EIm^}MC{hFHW^*+.D|.5*`=?`-Mbj@?$Yw^6X8j,(DGFGP.hiK?+1QeYq,hs)$G~O1n;w;3eoNwp1b}j,qDLavU%qT5?Pz(BaOmD%QkenR2#07He7MBTYn%cOQ~m-JHvIt9Dkz,aYdD,pQOfhmY$@G5jXlDN0-eUU!xx-a{f1gHYfM8q`Og*_n;y31^#Hdz7RLUcyrVQmCck`V;Ie^?-tz%+ET.ArgkS$)|5oIR_+(Drd5xMnPvkE=F?J!,JTy;u$V)x(i.UNYEe6cD1,Wco6LnI*`{Y)k9V2.66crJg*/KNRBoD6FDnTdD!0+,0hF%4+Ijr=0.+n7l?HkdG/66o8;TQqvB$95fNDH3xGvyuMl@gg1`j~bDcrA^}Vw//~tB}(-{ZQW_m0i~AnSI9/BS9zBeB2YP1_qF)b2#T3p_QlSG/{;V6D~xyYh#T6te{Oj6;D-i#gcQzqv;y/vuRZAc|PAp4Y;YOSeF_|rUJ0MM%MUbsv7dJ9+PY$|2B}6%Iqq}Z6q/*2D/1#Y8d=LifVJ^a8=Q3qTFTYK%Y|3qj!mI8z50ca}G%EO?vVvT~i?;=hsx3Mq*^@1;G3?(H-*@.}tRFr/H-Me7J_`@D0e=X*h.ye$#Vvv1gDaV{F,E/8o^Uh+Nk.-.U4HU-i?5v6JGZYt!q8IzWBH)gL#`Tvd3B$feQcL%Z)88(`o(LsEy{c5H5`s3}Czh.3wVSnVuq54NEF/}uZUjveTpB`wq;al*AXB!9NU+UuOp*NeHyZ`gz%OB2sAx~P$ijtayRfZExL73^TgGma_(^Dd)M3qC}%b^T24x?x*#=5R@Y/39yE5V)9+;Z`/oK(H^}q.oOEVgDNSTD#0h4XO=30a%nUit(b+j!Rq3/vT=y@/idRm=tolLbH8?._v6(cbT-4j4q9+Zd{35L9Lqx{8F~kjOo6gb+_QnP2)dLoaGBt.@3!p!9TvUe/-.M/6J1nXCMh;A?93#Ts|bxg#VYl49`t_?B76.Of@IS!a6(Km!G8lY)Wzto#wl?-z1H_ZcPrTHavT)4pP7Hz3_StdYzC1,BHk=oJWEhABTJygN7^I(/{I/eG}M.my5WUge!l%$w~Wd.0dWsrbVfoGXzkL`8cT7p;?rV1cNoNAC}!kXJ9LqjL$cY.}Gn1Wz{IDjpm;wEl9}$)n`+#gQ4Bx1P?be-j#cW)n__.+P@uvQ/L#Z?hh3+f=lk++lXVWc}FKM@;1R?pVid|8-n=-SDWf%dT=v?G$~NWh}i~cI{0zMF`nMQ.#X=$LMn|@v!=G5my1fSW-0FB7WLa*jdo%}(J%0;35VbDkwZa8Ow}%pIRRE^r^Q*D(tf{Ew5$VpW;%Pu#;E3MIj%V*uMbdClZ@K7hN|BYear(@o5pTTr+Mf!X_c*ZE!4$Q_0fD6HSEKM)Z=G^A#k8.bfM{UIXNF@rBTxWrYv;sno;W!T_PW_k2-HeWyFTb`*RHEO}{cp%oasG99KI;!^q+X=zjNUwg8=M172(@%.E/l;4@Ua2}LulQ-8Tc`yVHn_SI6+.W|gr(%`Vzxk.;2Q4h4)TYt;%FcV`rf19ILRnh!TcE@qn.J;.B|3NDxy,x;`.vgwfS=MLo,vFIe7L404t@eVaS}!a%gG*%N,MbqZtu2Ph8,2m`g)ugVW4G|{Gu(z5bN!)aULy#s4|3,}l|jK~DhD)W{Gt-zTJq^Lx|n1JDFdD}Omyq8Ixdz@*_pu`o/^=FsE|.U+qsZF;=dC06}XOC7P}+z{5l(j./ga2S1RrTUH/NicElKdHSg)s{L6k~LtbOd)lSlV(Yg#UGiRema`e$L$z)92+%xhNVoSX|$Ax;J|F_?cDr#LfP(6XK9TA(%a#s/FZ^)w,YAI$;naCt^xlsW1aru;iK/djB4P@y`qhL/j19@b9mixcZ`9_SSf0h!KVl!zP1iL32c}eVJZgJQp4KjN%;re80iyf0Vh0B3i3KyV3FPY03s$WaqMk(fguc/rda?1a?L9xRlSFcbQqA/S|8d/-oj7N~_SeS9Mzya(hO}!swsmE.7(sh-w^.mkwR|7v{ai44}zs-U%PLO8p)=-k2T;mDyoql1ZmzNGdXy`9Q?k^p`rmaLRU7RZj^+LdboMA#o=Qdlu!7}MUS8r;KY|Nw=PgpXG.=)M?`=xm!5jST2{$PjHrIslcU}O{u!?!Gwb%pM^ZJ!E*JSTG02D1|nv}x0e|F9Ozw#4^5kZux6{W2=fH.;y!4//uJ2K;^x?U?RA*?Zgaf/dr/BGNgKE4RH`=;AbSpMugek*pJ%J%#-xnpse}=A+BM0`d{LMo9tr.wqJvxWmd3MLY(tRN?i!9^u-e{Kh_;oI/L.@hi#HZ{1Qn3gmXCsD#vu-J?B@T%l?NYT`})E7dcKQwD$~NW-BaVu,b)srGG)3(Dnksx0K!1c~SvZ$4t*@rhnZA,ghQjVMlYcuoQWSolLpPa@9gOD,rFit_(!(x}m5Q%.h!ezvp$C2n,}qgGC7w*e$7nLd*iPFX$18T^ruXpnay=mlPBo,n$@vs~!v*su!#d4nm|6h3CbsVOn0etxP!8X0s6^jB{WL$(^32T0Gle0lbc3|hTnW(K7kC,4boc);owPl!jW,G?(Vb`Nh/X3Icr_A0}i#B{.t|IBNECNc9Kz6T+HB`kZzoBVuR-jGh|GB5Rp52YM8$guJx8TcQ)GAh2.;xvwpNXcU109e?*|4+WYo;FKd#!%v/Mi8F`NdE*aDNLfp`u-egI#^@MzV=I8@nGh^;+Y4z*E5w-TS?m,b720lG{5S5HSRK)kJ5%jB/BO.C|H6vxPNN$y8Cio6H_29;k.UCFVf38j@+gm2|-M1y7e=7K#~UCY2K*!;LURcnD#-GWKK6)mSO$;^/wLi/WSsNVt(Dlx(vbfO)4Kvf6;gjFnVSNZi,58FifNdluk0I`=`IgtcA.f1I|?p4Cnm9WY`9Lhb#HN/I7vd?8P#K*w5rJBMU%F!I`nORsR8?esFH*p$)_P+Y89Uo7I$gUco_ZDgU{8rz~xG!U+SGUra}YvTtnpB1wB/vjsb5D;qa3Ga$Th?_qCI;Rt%(7_kZA%-/HA)7f!muNlH#HB0|cn6p!eyG8mQCk|Qub_H;PdXzHazNb?;xv37cg`E7?yJ`-Nu+k@MfSlWpvdKA$))AFTrfkq`my=IP@Yw.Z+=}D=8dn~ywBV-tXenwD;D;l$#+tJTi/7brqDn^i{epUHJ;tU-Nd_x#xs!UMPgNq$jB7gr{tL89VuLhy=)o$Yd@2+.;^6b9U^}0~1bloHN?M!zJ%Jm1dm%JZBrAOH+fee)OzS7nuoj^gR.B{hxtn17,PNUBhl(ALCiK}{O}pNli2,l,bz-|K)4Y`L4U;94T5?xq7+VM;t3a;HIRYhu_$sfZW0Stv185.B?KKB#C_r;L.KOH`1RI~HU!z!_cgQf7K)h6qj.hGcr5s~Q2Iz|JKyxp)G__5H7|PsYz$;Qi?RaF9i+KyB+C5spX_p/vSn9v!D?`wczt48q2b`-HG2{6_(8K^zvdq{}e?X-kuaC-kc^}t=*%(;e5C2$GGU({`WZMghljd$Aab36,_/G5~q/x/ZUsz55tgzsF#*_!@r8c?U1aDY0YJXLbvdB?C)sW?09Y^*oPQ5sz)ifH)yxb)$vSx#tX0#5B_Cu.JX-Cphg*4,x0;8Sdtns1RD`$3oHkAO5MZ`+s3{/?8k$c@;Iq3P8QJqnF=T26qDNXRkzu641Z4q?+QiUGv=u@ri-G,!.ie~7Q4c*9}w{xeOrh@k=%IWFKwFXOO7r$?eUY31r(KStk5FhOEU/zbc=MbWnxyPb=Ibn,-^N9W@`qB-XQrr*NDB3diQ@iCassVt`^mJwAP{;PtuzlbGM3b3V*,l*|q;OL*`pnvd12ImoZ5u1^#4Bya-!tnp%;~9#/;ora9#mXY$MtCp+H9d-q1c*Vm1x+8Ffeo)c%cMDNbnN6_7gh`XP#W6u^)3^@o*$x!hZ4rm*}lyQ!kHv%4GMiyw=S-1EP#N#{kqo($t)Bby(v1i9)7dza?=Q,?}rtm$4j9VybaoHK`Wv?o$3N4QWTDNb;zUDYJe(y?|dB=iHZmqLJcip)3n#jNz+3Ev6~h@WhRyo@$}_Kq|vbj=AG{=!Hva%@IOvBJYm#kdjtupO4qMwa,/ZXGqi|zoVr@KxwLd|3W?d6X-2WXJtDBM|a5D9HD~Hh#S9U`^X.3A4.Sb3.j$e(uR0|pryYbI2SA)w%?c-Iscv$TLDKgGsrL^J}D=z{h_O_s{+T|$s^{W=pS*iZBANa=.;U#fsKEAEoyq)af{#t#j4C8.ulQ|/tIdHi6kjm-*eur?RS*B=YXsF.I2j1jVPsmqIDM.p~?{j^Wa%z$(w.8-;ojG0m%FI3+EKIEn?%LSkWM=Os8jL@16mgzEyGg{f^C=pOEwkFH*a1s7~~jB;QoE@@,mvQf^F#oQE6Cf^z~h0e}CL$WHU?jU~YM`!WlR.!!_~gTEi$!aME$wbe+/usfDad7lUAT(KO6=FjjYO#T^,5L8={mCvxERg?CXA{eLj6.|Z`z08rT/}E*;Z_X~Acmc}J15(g~=w_^?qGP^g*37=clD)zJ2=}Ze57pYDg1q$wZ*^%`M2kc@$OclervHP+GyM`dp$aE%8YX8=r@sesI/Nt,kQYaXHl^QFRJwmp_*y+L$+L~v{rOVU-/}0XT6k$^?bt=-aE|?%7Y/hZMn{+*WvrVK4N!`+s!O5q;gRm_xOLY?FdF#1h7#u_ZwV9k+5pKrrYj{ZvRxULpsa_,*@(z;SO1=JIAt,dpzFcr4,QXGFEx4l1ch?%`_20FUZPr~Q/P{rni#j!t--2BGY?.zp?m#dd,GY,g(eXYIiCB8T71Gs;QY)$HUq7WSbY7kE;uH#%eK#mTGx,Hq$#~=8Js=(_6lNDVpGZH@bbfKhjO##5Kgj`BE2FDwsp/|B1H|{KCUmLYM9xeq}!i2((U=cD5+^Ea+jtj=hT`jzu)l0z}hhZc!9cAR2W*wf#=?jb$X|gsG,%o!jyzjX$TE-RZhj3S%8P5T%U#n8yEsCcQh/T|JOmh9f?P@d-)3qKfOO9VH9vf=$h*R-KxX6Qng.CDD@LkXeHTm{#YQqr^1,ds?L^UUDUs*wtObp(1exTYkoVe_#a(FS1SsM$rkt=3+6Kgq18VXaBo)%U?0)Yf}.rRt23XqB,.dIOxgIv/yTxm!!5JOx;?3T8x33NT}I2HkUrJ6?sojvUe/e~9xQ_MYTke!9Ppj*tO+F|DRX5VH,=BE3P|-wNp|%6LNe#C2VKleZp._/UzGuEH.oNm%PSd6OD)L75b?`,4)).3Wc=jlYcJWyKkw84je*{|^1(~x5#u!32a~b0T6F?PV-kDzV8tfK(L{Nm+X!btXkU8^pJv{I1;;1vm;4XpQ*v#Ofi4$`qPq4cY()L,gO~Pc^#x{wE!V;tKG+?dHm{@aGNoYqsE^xL=JLaJa-f-?)QgYn.`Pnrzd42VKiT@fZ?}_jB3|_osmu96B}t}jB9=$YNfKs@/jE^`uQl=#CkMd-m+8JXEkgl1@3IS~dQF,;b?q;HF?gBk?;Q1ZqQ``K.UC5P3=)asm?;La!mh_$$|ooF6MOPYMMf^swA{ZO{`Aa9GT}`;aiCWcb4zxieYOX(CuDc#EQ_aC/3@aCelnJUcI.#f9Lw@8tG$A4@aX7B^)eXzL4k??b8buD3H08fh_)*6mPnFkoi#1I_Y%eMa)GTLS;j~2B6zzWIxKI(EPYv@.^qmz@JgoO)n/`~+p8x)R/OlH*|D0Oxks0JRK)5X={UjN{f~3SPk_v_KX+*jvIgXv)Nd7GiFFu=ZD0bp0ppf-hXTtJ-o`QX#58p++cgz89Z1M/sv_=c;y~#5g1a$)%s$FFUR{lA7s+(g.,1M1GFuiOp)^2V`RASf6T5NG7)|EKtPCmL@)v|uuL-/$%wIcpx)dzM+QdEwog~RLSUY5dYJ!9-_M13qN6;ho^nOxjT`yVald,!/Qq#k1cJok//yYjquF^S+5pUn~;=hnor^CCYh9pl`{k#tCwFRwjEjaL8eNtu2NCR9{aX.pbY~#rJ*623p##t{$6ST0TX13ny.tBeFB2;N;G?}1f(tV?K*a{HDcWCq2TlHmV?p+{C(VY2U9MnW21KRx{3wx^`qm?5X!Yw?OGtj;6S|T-WpP%4lu|/y{,dM*W%5Sr3E)J(JiE~V0OB}DgBq@YForSbdO%NT/I.3(fJd.PznudGRGc~,CIK53sB+VXOtEen8m6D4h/yu.SlUJ,0SsXZ)ULql=T5$ZyPo.k8Sb0jZY1}JD),YA!RHNrvG3`b}F87CG+#T2zk*+DX%-0VN3TKKrs.8u}3/vP9z=8?i#`8q6bfU)|+p,gy3nDMyC;gi-ei#_e.=jzB0mx_n=8)6-@*}M4`cELlGK8WHkx=Q=B$dqiTz.5mW83+13Wo,ggJ+DMnHy}dIZjWsK2Zv%E,QjxD`jo5,^ak|Hev5s(TOrf)%w?}$Zz?Vz!#^3xFaK_4@9JDyu+(i^ULF(nVvR1GqGX6+LCPIl)79#s*Wy@Ft|cMgg}$W,GMshf#|DA=l!lqSFaNa-ge)S`$P89?QMDnRpFM`JIn}RYLJFT$Iz`.2tRqts%;DXK@jVKaROsEyq2=oW!C#Mx`tQcb+-6=TMRdfNlB5}07fMXx2RFTjW0l0{}aTr@q!vlGwpQ_S1JZc*GdiL40R)Jq)3DaaL8IhMYQ{#s?UcP!Jfh(_*~I7F^tmzpt)3=B{,jb?~a^zJ/jexw2h+_(4*u~x2a@$Jc;K{=5n?})|BYFao,sWm.jhxXoyD2u=4BTB*|NE$raRivv)wTjA,Xa?i*SX{=S@sndNKMGjJsEmYz#?#5Bv6m^J_Pu;vnGLAF=xC7rH.Au?wxYxeDQ7LvJC/NT0ig1#d^*E*YV)J#FR^T+3rH.v+G2tL4)Oc($FD^3(eoH!5._rihOaNsugEH$mPX,h5;u5sV,wY$dkUuAWrnR{i,+yg~LapFS7y%7`,7mEJx3)BI;KSUmJs4cFFCQo;m^iK.KpJaxi%h)99(bmC3vBes#npIOg)5-MTNObWWMq4f,D,GE6#;@^tVJ2V,k3ZTBBzrTp$L7cjo0cz!-rPs657l44M949./.5wX-`p`c78pq}S)A0VcUK9=TxjV1?RsDF_fQGdr|aM`xF%|xQuN5tO8P,jGN7xmXFjz5*1G/vuKj`m!ZGR5Le3KLrlA,nvm2e$18wWj)V^5mrM7@~%||c$V%tUSEymzfZJ`xb9xi,C2/T1%0kQY^b*2Gv+S2a#66H6qHrGmRCoeBwHu@6Zc/BP)bl,f+sGJVo-f3|DV8RFY8ACSCrL))Z4|l(^cwVDFtuOaA53nJvZ6UJCt77uheEp)/Eht3JvRSQrN)d$dC.24dQ1~)vrV,3W1nK3S3mILJW{=EZl6LH$O+GNtkxUL+PK=rNW#@qP8@)5ypc1OS7fbWzEEH=ai8h+/ruELPV;1y?5-o;hduZcN#*P16lm#Wqvr3fr+tdeX3Zux38lK,d_nk6MHY-ggv-6_hXTl5w_JLz(mM-G!(=(o}noy;WN5^a(mB$3d(AQ-@eypoH9W|6wu?M!RuCcf==M)WQDa(7qcx{Kgns!4;$IKo(eq9+LCQXvo.k,D_x@tKpVogxdUk2p{tmy2*Zmr|*HfpzOB9LB2Z{61Dn?4h1N8H07/6~evS=#*o#*ZX?$HQu,*?awG%HT^uX6(tfp@jB3AgufxTg_+fg_|~qq@_)ov8cO$apg+BAXSZ!UvFZZKKIoeyfl_nnZrKsrno$C)yE/HmwA_MInL#bN9~f|Ciq4El.vr7?-Lnd)Z5/WeAlh5TplHo54P%O|B|?..}NTo@7p0A|HCJq..VXd@5VnD$uz.By7xEWQxxBC2yZ)LR7o=G5nIMQvJbKttG`nkc?@ke1_AnJDk|Itd,8GET76HNh_D;4d8j7,Ded%e6Q6U_uOM+j1#ZdM$HPNkrg4,rY}Ht64@5$zD/3f7?Fi^4ExR.iH5jTe=i}+;1)eiY+fGej,t;n5_k33|)Jy!qs}~VS`{Jv.RBQyFr0zM{^CIwe{DMQP|K@N}Z-w)=FFCpA`0AbWZt)c!U=h@iY;tPtc66Q~O-F$y_nxhzW`x%f!gKNrmvSX@{k-tkui9JuwV9{rAN0qoifbPeg@GZ!dt/nSQ96ZvCZ+3pF3qNaqn/b_UOYnh-,^YzXA#X2@@J9DxZb$ltcxYLE(Bw^6*BDoQ*eM1?qAx}UT.A*j;r.~nK/)23A7o{gw{AM-n-q}+$|m`x_.n0aVe9PeTsLR^!vx0^ROP~uto?)IfUxfIcQW%lgS28{F${hh.DvjV5L6)3vl,2Ew=SPm#LQ/a!7XxMv2$=tck4O;`/OxQB=Un)?!M=GBSUAt9aYlYf;-2v@DhiwwP4p5EubH3p+a}y1TU^zP#h{nC*L?b40pu!5cthKoi5t#v6go@6{3!jGyXv12N5fb?x5D_~zk|ZmWjQ!EF,,8xW$UOLt5CUWhpF(BPTW6R^(7pBPvx@LQ7np=R~AN~QWwWewDp5LtXP=IVw.gF#%q+IdOyqG|,@.X_.23uM1og0lz_^0Zej3uZV.r3=y7qmW!TAt`Fg8hd|l6g@%(RK?kORurNKOz$-=euWuaczBUMAHrfaHQ665ULyic#p7CAf2`ie`5TO,.pA%8QM)ct3=L4`Y!xhsw{84WFh}p_PMYyG3i(HB;wI2FG{1^EyyNDVY6fneo{|~7nJZm#7~cEG`O?TTZVH^,zfdE-^Zli10xj;f,6TR~4`(yLOX-dUl;^^B*@W#Y58wVHK}lF/Qc{fE@QPZ?wf6-XF}Ic3@~._63xdt,qrUJ?ZIwi22){!KF%2HWL7~HticM4D@{z#g/+;KQ6=F+u$/29ssxnUxPN$c*I~5x!Zt7jZXv+L}8ubS^Ldpa|WNeR%KlMGc@+C4X?9uOhM6_Uxv~mj{M)O;gG6$#ci+Y!QUz%{RZ5==o?R^`/OkHAk#jAiO8N;~MCa=#-,$A4-(q=lS#abm-xa(tC@tcqV75zXC_b83VKE5ra(zL+gVvS;VH;#bF;V(7E0!dr$4aX@u_3gKD1hkyubiE06+dXYVGYYAq.OG%zE=Dz4.bz{/7p;kQaexK67;)MDXMDKa7VGP#=3W5)r}H=#1n|mdOi)I7E+|0qgV.z5.nm^VAnV)(x=JUHwmLGbX/0$Kz!9/-9)h/oK^sfkXSO%=gM)W-Txu!Vb4{4qn+stx$GN#w4NI.cX3Ir5C@YRY)c@J|a+xFalYg|,Y?XEP*aRAZywAh#.cW``84x)UZq#@SD@aCPFyqsM1oWVLrpLI},wv{~vyW/pdL|mN1=}7^lqB$O$.8PJ1Gu5Be4v0?/6O=*0.{.mtW/Mxl#8@uOY3P0sns,Y%@/CQG3gV}Eb.awwRE6`*m?wS4Z6H2uh50u+2/3!KOGV=N~C5G`Thdp=n0dmp%LBfVQqD9kUJ!0E84K$zGl{RE55pK@JFJjIrA78(mGKvW8z^j5WhYkmbR,zV6E,;gBTACTlK|($t#hYMQ,iJf|stxiW0k.-gtJX478nW_!dey`oL0e,g,U/nrk77m+kuCnDp)l+^iz#Y1h2BzzNheI|Ok5q0OC?!VVpjH(ZUf5(QYNUdXn_n2AxKyD}Rbn^6ywa44QUJ#oojZgt#dX)$neQ.DdshSX8oU6Qa|vbJq?__os,NE9CZ8W^DhgY-OCzqncg6CbUAU`AuEmktA6!IzeI_Wg${_cI|VS,D%Yq!L#,H9~CHW57T_9n6?/5C3d=K@Vl9rUscO*q#*/EzB^GPAnhLYR+kH^*YdeZ5yM1(_Qc~PVHCtnseeAuAFo;u)98Wcvnoj!Zfb6`RQLHy0x=4`2VsVUk6(-qcT3l@;Aiapig*BvOLuUx~.}zCPDmIE.y4y,W)nWrd{We,,8kcZuUGUanO.}_Qzm~i5nL!j4ZhSGeq$i*W.==FJLY}l!w)NwWYHV%kbb1y9JM#@D%GTU3bELna#~.`rhP4)drG0BNnLx.Np~|)EXvf%PP1hT^ege?$~Kzv2U*CM(yIc+Ky+I-6(Vg5=B,$9%/A=mKpw#c@=qfD~y_+iu|4*`V!0a)J1|e@m+Ig-PWl4I?KM#e?e|o6kkzJhve?6Qg32(LPgF{e~z5k`|hQq+X6N=KtB0RAJWwB`UqXP5F/?Wtqv~3ESpUxI8;}b#|LnSG5,o+c?*)%7h0aD48C=AkvhvbW#vkh86Q7P7j+6HP1sz#lMZI{vghWOR/o}cVug.vRM.k$%G^`)Q_MPJY3s3CfsyWr/y+.CtO!!6Nry0O!)bqHJMa)V*)QI.oOE`8%xEEvDB$_J@7nSDNX%KG$-qpZNf1k)L-+cd_?+,.?k,7?RYP@mSDl.9,`$Ia8RY9}2{hgM-Yth@PYhy*kO%V,-S8cZ+^-n?032i`H5wZ_SVaVv3Kl8U/t)/qt%6ZS6+%k7?-ca=+c!JK6cI95yx=!Q7O9R(s{F_1(5bVA(Ln33!*U%vAOPGXou83%Bk8y#kou1DJP,CkHI.-VsD90sIBw;BQZC7)zF)ON@v}WH9xT/hOJ17gJl2C{lILST;)CYK%e9i0`bRPmQehzvS7+YIZ4tl;D(x8h%^n=eJ%03%(g63g-%9!ze7oA%MmYF-BUYZ7+a,DcB)oDgz-I{jy0GKOtEI~g,qjZa(twA35o!_g_paD%iU#xCCAOD(,{wG8(_@5w8Eh.8Gu4RbOYVNiXhYx94~;xp_M-?j$v/2E1JO7UZOO)=KZ}`d_lL}--h!P#R|s#Ic%0^`+gB^{qZtQurmK?l.^@0S/EG~2g97a~9{*@6-m5/=-i.8xTe-ILAhr.mUHk8Lbm4R0k$Q2YML=x9,Q,h?rEMp4Fv}KpPok%f@/+z@ZRRf?)0VP$;WIc4XCUTOiU^vJt$QEEWZ-rSf@e0g0ZF**40bNEo7ZojK.4ZPy|}4i_eIqbt!8*SD`FBTZM|MNF)8I;-X2!t7L~Jn!0K;Iik40@-7_/-zl1D.s%Q.#;}|-IoeP3utn^`rh.yLC6Om89K$?FuLq?cX,an,1#20`B+hB*v/7rP_uhPF@DdNIfmf|qi?e(3(?qSs!/quhKfJzEferc523dM^kEROW`X?fT}`CBqf0M?2wxG7iUyaF9bE,,)j;Rz#u$`4fMgtCbaRv2R-Xl_Xil^zA-!6p^Ztu6Ds;SmRIW{)SjrB=6u$C.qAS#w{8GmvDXT{#1`LpuZ(#py@Y#ArBbscFh|8BXV544AYw-~=M.t4oSGX@8*`viIL)L;0oqD3,2cS^49~o|6N%mo;td2UiltktGPFDcz!wt.|4QQ8sdI7)xw`_3q`{Out5Vjic2D7UTte?uS2Ue2p4$_@eE6N_CdjsFa8G;QENv)uT.OO/7`_wU^|Q6`D2shMTx*g~Mo1)mVGXc9L|^3Q|l,g2opB8m)a,$DOC3wlN4Ncgs+m7yA(H`a(ucA)/S}c(6!QqE+@^W-m_Bojq}4uU9!EuC_lxNe)%i1,Bm)ol%$E*p.AV1rTYL#vwf_aUNBy!@YnH8kD8q/YS0Z;P7+(O9Bd1C$wa28}5TeS,MtQ^ra.f)`uyg(!zARqq}u?g*IBy=DX~E-LkO|Mz24ReRZd1LK!EKb-syjV^AdIsv#o/Ya3ek20uP=#%m60.._J,rQ_9Cic!hZAiqa,b.mmP/`El2q%ri3V_Id~L7CEBQ$dssY~=tvUZ_ef;6#hBZlHE5=#vYse4YqdWW`b56=,{WL^$uu`G41JuqslOL%U!~Os8#FhLUH@WeWSGSN7F}y;fR;KbjYg4rojWq}0@R!E{UxSri6/%jRznTCWku2/HU/p=xG=9)E,,ZAV,xBhIb`/F!eEtJ5t}UpVi^EW^L*B5%%}S|`_w-eHp@beW#avhQH!$W!%M9|@mHX1kmD7a^Yk)kOI0s|rr=^OeVDGGoT./Nh^1xzO0J+FfpW5;wg@S$8/k!2VQU#V`!U454ON.+ipKTDDG?u`557N=g!/$tZiB?P.6|.lb03Q-Zox|G#yYaJWh%daP@@5X0z1RRpe7aQeJyF`b,PcAxAtiQ.j*Pi/U$v.Wke,VS/VLFtf}@XoZRs4QHFnrJ5oM@+L/_)pf%MWm8?l5WP{rB-`otA0IYIaam=4!s?r;{Y4onm|E%`!vxxc+qs%7_hx8ie}Am)xPCWWYmg#N@}AbS`ZO3x7zUOHWx_Uvko+B/jd?YV}1R,`cFqO3C/XA/1lG?La(AF^jG.3(%k/_Es4,m{6MQ(p@Yh,AihKoZhIB#MM9p~J6T3R|4!tWh%`(YPIt8~IJF?,N#jJbSq1CGDXDH*jxF7{Nr@ZSXf-qcE43*?tNAC`0^JADQe7I5sXH1WCWl?2a{tp.M|N*`BcOUlqyu605Ytvkv2T3bWi2^f.o?I0=l7v7uTwDP,U^GB.cFz|xzqNMCs-?Q3tV!(i5k1lt`P~,BF=SXhVEFL8,J,$ZL?.P*SU0HAI~OBYTL1CK,Q|fQ+tM?vdEybXzSva5JG4w4u28qHgPvaUV1/TfY-39Xa$2v.HzD.@sWpjdX=8bt*^r8JPIVmj!zYQUhTKU8#+2/xlVZsvsvI5pYPJHSI,-eJcT=t*2BM!*d|CBLU(rzgS+TxG%RAhlv5.G`H9qz;/Nf5a-1z(=%n2obdbt!l-k)GaVokF{pGO*j_,i2T.HIxb=Yh8{kks}O1XwnYBpY%a}Qj=j-RWxzB%nDn,8w@G.Wz8Z|z_qeh|YYaCufY92|wsu)7X+6Uv2T=QXgkj7vkXsj+6)!XDUJwwXWKcusfP|3_).avO4|xc)ZZPlFSEc)Yvvu#S_!M6^wubDBc`obApxsaabA`9l4M1B/Ml@;l70R5eCPHAw2Y=VDPtBaF@dK,r$I4DqNE.E|qV=(,*Owljn*`QPbNmhrV5|KTC6`Z/k5!nIpVdGCUjRDy2KvDYC(;xf/QTxbvO^~8=b.tqKURFfZ;9UANz-2SSmZ6t{}ZE4l,;|koY.-SNBWrdV(T8rqLwfRYp8,As+ju7QaIw~0VGUig;_mF3`Xn{C{u9Bjck2w_cZLG#m=HtITT=cOZ)^,n7j=w6uAhiJlp`Eb~{vJ#pP8qo--aADm5_$(Mzr|^cT7-eHXcc*sU_dj/`d1n9N0FXqmQeBqo8O=t5nB(=Nh=QIn`/O}c+h`;Tk3!fKHuP5gn6I./S+gEK}jCwtXBoP@a_?j`~#6fCxhpc5J-S{Z)Nhxo?|~+lQ=jptX@?yv$L,?=,r3x!xws}Z?)lYVP4V!MqI6MS8D!/_V_`v9s=j0epfj;,,VbT@ol)lLQHtV!mjK}X6QEtAnP{3S$T5G;(*(?nubHB*9?qh.sD/eOD^ndrG=8cu8}Tqcd|-do-B=}_-g,+yiY%DF.v9ZY%aVK@yuvL.+id_-_|.nHTbQkm5+pngjmMLI{`}z..KyQqb8QG^xJ8c._ImiF9=^g40`ts)M~UCY=OF7Xwta+ehDRbaUA-z|D~f/yxm1hZRhbe8^T1|DJb%0aR_Mo!78Y)KHr;SezUrq;NKksT1ZA1jK2Snl;ocE{#P*Bq|$f3YVKdx,/secIKo^x3Lrb7Pj^S9_$*M#Drbu$CD.LwfB!33zP0KUbo6am^V)m/`?aapaE0LB!6/jLaf1me%(4kB.C)a#r$tUG=cIjzL;kHYeP?Jf5igVYy0Gn~v}5npgU~37*l-Y_o|?6-FcPZfWnJ1Mo!$PiBJ6tAKQ~PIk7m7Yv6=Ecc4LGSm!HT|j21g#;3hzqzaA%SYe;@`{V?XZkLjdgfP+WOlHHfj)Q2H9)O_/dtnAe*ppYZ9N%(3vr8u!x#$)OyrNd?8(^3@Lu(s^yw%X;7p.2C-G~*M%$7L6zhwT-8AKPaJeZ%QiZ}%6pihR0p9jG0!FF5u2ui}{xnbb^3NDEx!/9xKK@y-vJ{|A5/jV=", "floats": "cmV~$33$}yoxpKILIN1beb3~YnOrlOT##h`-}lWA5CjpSQt`o~`@q`Lr53Cpmysj4fLlaG4X1!myY,m_sY_=5zc,=awM$nEXx%NkrKj7qEv?iRMQi){+`!W;XDus;lEH1vriSCdGc4sfZsh.m*vvhA5yK*aw6c*fcXN`j/_OY+)Dk8_Ghu4Di3V~gBSt+@BDBy=jM+4@fCx3jC?rCF66z.plK#Y8Fh|YG#8mqwlho@.CO`HLnb-aOrp}(EP($u{4eB*7+l|^~uEPDDm,yP3-D8UFGg?TLP7-ucN-eFF)5/Zq$S0R}n/_sKdO}o_AWj3_#HpZ~N+RUZ#;QbFDw%vZG0l52d7?Y7yCijL?7`%,,f+cr5;rEVj?GFeN)/WwC--`EPxV~lSYk`6*qfa=ocymblRTfur-(WtbW=eqmMBG}(LoIz)Kfqel{6A%E)A4YK^4^m2-8RbHN-fhYrNy;syD?ZQy-Z-IFZUWuj.2!(!bp#%;)`SD(0%z.H+^f-C|,8i%$~=Ibgo8dpPU=z|.GkIaSn9PZc4$Xdz6LLZ(qeHW5O!Q9/0mnklA(Fva8/Bab|SWa$|m)nBmG1el?}Pu*_zGG.nWi*,sVXnw|i)8+rCS/@22$5OvG7yU!#Aw6Z@^IFUcI?,kCt89@G*)D_fplp^wSu1_AS+.c2(kttvUk0U5Mr1@rWV7_kb{Ui*.63mLkY3p;8|5rF(XR/?@-O;hdYU)Q1ovh0LqA6k.l6M2bB~?iR+?w^dbgM7jM2Ag*GcxS?vMQm?tA7le=0!=$R.m7Tt^{)^(rW/ihMFDqL@qyn8wFmA@yAHvY0}M406b(h;puYA9xcfB$q-id-,d@g)3eq/D3$#t00X$a+ty-a`@DnKswpfl1UZ?q)|#5%XO98=EQwhUr7z,`+8MFu3ta/?lk|R-|)U}Z`T{m.-t?v+*$p^$33op)XP-5-71.q{-`bPWnH8N{u_*I$jxvUv{py8z}.AM.1qAn)OvkhXC#Ih^%v_1rS4x{*o~gv#cMi}TB;=`ivqGpr;e*$kTSBl=H-(~4wDFwLxd@0Fqw%=rJM+9WRpfVRb-RL6wXtp?IzC4evxMBI`dU;qP}3B),5~BJnvo5HGHf+.X}R}G^hP6J!2;8QRA6/8s{e_,OXDuJS_b(B-.;}2IPJjkUkld2W3EZ$gm8{hz!fH?3C@/Cp)EIM/u#slZWJ98IWF?s?*H,-XLqZ=9inW|0?VJznEjXC0XjO)1aO-.F#yi.Gye0_`_zte#!LebN+*.{$d9F9M?t*QKHn-#P!S|N;T7{rj9/.M%wA1f(9CBCPoL)OgokI/_XjI{-mwe*!T1q^Nxn.o93YYL0{6.%sXmbwcDdhQh9EnIc+{Q@9BQs;/xlrr(A*kv%X5$-|M/2Kodc_sU*fEO7JM5nL5g8WE!/wP|FO;X{ClD%7{}*hyZoOna8TcF0VKFNn(Y!/s/~YlT7n^y!upLD*g0C@Bb3T-c0{.?;|gnT+hj|+Y,Mtu6e%K/hN+WOZ|s;B9)tp5+%YsVszpWXAX^Y5T}`P.S(2g66z?To-WF0V-7JYsU=DiU39R+cDaCk!#e*?dxvux_ixro_HDgj9yS@wav8eV-sOI%32XEmY3{e?DJ`?5dapgNpLefNM}P_,EGA3{D4?2Kh!dfnR_ck;Nj)Adc(f8GObMmb6C*~HsqCTNeA9cx,k?Dd++VF9.J$F{WWZ(EY8N(3^+ruM0r#1,.RHb-%QU1{z5iyP-Ng,1hPll=Abqk{cFT~A$ZFXv.t#^-q*sPzlWda*WJGq!Kg)XADEG@(WI%.wSbAlP?2@/zT~^Cs{eoGenf61oz`U*BF^BbQ8nBo32j/s?O|w%^n#Y{yj%zHj+nq4$%pn$;PtAP$8,XK)F%d6D4^6Z/lbOV5U?JDj#5|gqjiHOV%%qVb8d%6pBq*kn2rb+|8/R5Q),Y`pal46p`?J/~vqbm#^WD$/|MjdJGpqG(D,*8FoAZ?0CUe1j=C3u~c7ReFcUd+^XOmAAFp~gL8mXay7)`Wdh*O27omsSyO^670QpsFGbRpCdq=~l@!PJVbqu$GjJCb!.%RQ1a63e.AlE;#5UR5fb+L~OJd^cI_E$,ph{FC=@iH+S^Nlh*A_NLAy_9tIUHWH_qMix=aQaWiNN(*hoY34RsNMPy25TJn/jm%;Wi/#hphNT!L+b?L9y}}HWld3TFY|,gUVlpYSz8Nq-)vuZjsTF2.@(OV`ffr0rH|hJd.AQY~4QP6*hag$ZV,zoXvyeH2m`Q.;+)g,iw6la}I;o|JIE}1i7TwIDl^EsJ(Bl7%Q+kPU^Ba9pFPm2Xq,O?Vrngw!_ZiUN@q!-JeOjP5y4B{esW-,H#rCR+*(/!d^O8R-t7M(*l80nO*2tjjkU,%eei@d{vQak3R_T=;a-TdP+hv0c$e`?/A?cHTStGr/Ue2fX`,L{h`M_*-PSfp|^.Zw-pXlAT!2Q;{s4-LN-qLR+U!.2yYtk%sk-K2tG@rA#y0=WWe/9_alOlpN5vQCWVTzefH(6wnPZ.F+(LggbM3_#5Tq?,,fqXh?p@t~AKry*wU?}IWUW|Mav=N|#Ao/zAood1asGx;hViZ$?VFCpNbj18fx7(0iV*7M%.RB7GLD!/rT*%#QR=QEQRRjL8JEiyN3V)}|apUG;Q|(^V9yi;a)pobpZqOo|,EFYD8nW~35_`Z6YoohWhuljx!|Zi+uFC9m3v{)O+jRY%KiNh6x3$`wa^Lp5h|o-oFgFvVhei_AQo.x?D59Pk+G%AbQ6NkmMKlp7LM_v%XFdz`oR+/?dd1vfqvmV2#%0.Q*7@(6.6/d,.A#yZ`ac@fANya_^Ql@J)D5mj.+IKcrE9X6{F5./2W3=_%0YQt4$6KxActjC4#{D8QufPnIU.j8h.XfHIW7lfRGyY^$Wt;ZkH|hbB9GcGcf|h9U9#i$@9t(7^?z-b*}L5Ip2_0_?oszW_fzvD_om%uQ}zuzvFCz4X)oJb.^WPekJ(N3iWefnBIaYblXm7~@R-G14CPE5Urc3BkINm8.3wd}__s_(Ps8}L?u30(FX}%4Np?$7", "tokenizers": [], "endId": 1, "maxLength": 9, "language": "", "sourceWords": ["。", "は", "ます", "を", "パン", "子供", "犬", "猫", "米", "肉", "見", "買い", "食べ", "魚", "鳥"], "targetWords": ["<bos>", "<eos>", ".", "bird", "bread", "buys", "cat", "child", "dog", "eats", "fish", "meat", "rice", "sees", "the"], "choices": [{"猫": "cat", "犬": "dog", "鳥": "bird", "子供": "child"}, {"魚": "fish", "肉": "meat", "パン": "bread", "米": "rice"}, {"食べ": "eats", "買い": "buys", "見": "sees"}]};
return {data, loadModel, seq2seq, newRun, finish, generate, mostProbable, headPart};
})();
