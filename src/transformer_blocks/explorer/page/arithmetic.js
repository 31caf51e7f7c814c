// Arithmetic: a weight computed again from queries, keys and values, and its numbers as text.

import {attentions, inSentence, inflate, isMasked, percent} from "./data.js";
import {render} from "./main.js";
import {forgetting} from "./registry.js";

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

// Decode the vectors of an attention when they are first needed, then draw what shows them.
export async function decodeArithmetic(attention) {
  if (attention.vectors !== undefined) return;
  const {queries, keys, values, size, valueSize} = attention.arithmetic;
  attention.vectors = null;
  const [query, key, value] = await Promise.all([
    decodeVectors(attention, queries, attention.rows, size),
    decodeVectors(attention, keys, attention.columns, size),
    decodeVectors(attention, values, attention.columns, valueSize),
  ]);
  attention.vectors = {query, key, value};
  if (attentions.includes(attention)) render();
}

export function dot(x, y) {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
  return sum;
}
export const sumOf = numbers => numbers.reduce((sum, x) => sum + x, 0);
export const normOf = vector => Math.sqrt(dot(vector, vector));

function softmax(scores) {
  const largest = Math.max(...scores), exps = scores.map(score => Math.exp(score - largest)), sum = sumOf(exps);
  return {largest, exps, sum, weights: exps.map(x => x / sum)};
}

// The vectors of the head that was shown last.
let headVectors = {key: ""};
forgetting.push(() => { headVectors.key = ""; });
function vectorsOf(a, layer, head) {
  const key = `${a} ${layer} ${head}`;
  if (headVectors.key !== key) {
    const {query, key: keyAt, value: valueAt} = attentions[a].vectors, positions = Array.from({length: attentions[a].columns}, (_, i) => i);
    const keys = positions.map(i => keyAt(layer, head, i)), values = positions.map(i => valueAt(layer, head, i));
    headVectors = {key, query: row => query(layer, head, row), keys, values, norms: values.map(normOf)};
  }
  return headVectors;
}

// Attention of one query, step by step as in attention.py.
export function computeArithmetic({attention: a, layer, head, row, column}) {
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

export const MINUS = "\u2212";
export function decimal(x, digits = 2) {
  if (x === -Infinity) return `${MINUS}\u221e`;
  const text = Math.abs(x).toFixed(Math.abs(x) >= 1000 ? 0 : digits);
  return x < 0 && Number(text) !== 0 ? MINUS + text : text;
}
export const small = x => x === 0 ? "0" : x >= .001 ? x.toFixed(3) : x.toExponential(0).replace("-", MINUS);  // of an exponential
export const inBrackets = x => x < 0 ? `(${decimal(x)})` : decimal(x);
export const exactPercent = x => `${(100 * x).toFixed(2)}\u00a0%`;
export const roundPercent = x => percent(x).replace(" ", "\u00a0");
export const quoted = token => `\u201c${inSentence(token)}\u201d`;

// The places of the largest of some numbers, in the order of the places.
export function placesOfLargest(numbers, count) {
  const places = Array.from(numbers, (_, i) => i);
  if (places.length > count) places.sort((i, j) => numbers[j] - numbers[i]);
  return places.slice(0, count).sort((i, j) => i - j);
}
