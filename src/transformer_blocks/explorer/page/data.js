// Data: the page's JSON, and the attention weights of every layer and head.

export const data = JSON.parse(document.getElementById("data").textContent);

export const $ = id => document.getElementById(id);
export const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// Bytes in base 85: four of them in five characters, of which each is a digit.
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
export async function inflate(text) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

await Promise.all([...document.fonts].map(font => font.load()));  // a canvas does not load fonts
const readMaps = maps => Promise.all(maps.map(async ({weights, ...attention}) => {
  const {layers, heads} = attention, rows = attention.queries.length, columns = attention.keys.length, size = rows * columns;
  const planes = await inflate(weights), count = layers * heads * size;
  // Weights have 12 bits each: all low bytes, then all high bytes.
  const map = (layer, head) => {
    const start = (layer * heads + head) * size, numbers = new Float32Array(size);
    for (let i = 0; i < size; i++) numbers[i] = (planes[start + i] + 256 * planes[count + start + i]) / data.levels;
    return numbers;
  };
  return {...attention, rows, columns, map, mask: attention.mask && bytesOf(attention.mask)};
}));
export const attentions = await readMaps(data.maps);

// The page's sequences, each at the times of a training; what has no maps, the model in the page computes.
const hasArithmetic = attentions.some(({arithmetic}) => arithmetic);
const readTime = async ({maps, ...time}) => {
  const read = maps && await readMaps(maps);
  for (const attention of read ?? []) attention.isEarlier = hasArithmetic;
  return {...time, attentions: read};
};
export const sequences = await Promise.all([data, ...data.others].map(async (page, i) => {
  const earlier = await Promise.all(page.earlier.map(readTime));
  return {text: page.text, times: [...earlier, i ? await readTime(page) : {...data, attentions: [...attentions]}]};
}));

// Heads of a layer that are not switched off; a page without a model has no others.
export const isOff = (attention, layer, head) => Boolean(attention.off?.has(`${layer} ${head}`));
export const headsOn = (attention, layer) => Array.from({length: attention.heads}, (_, head) => head).filter(head => !isOff(attention, layer, head));

function meanOf(attention, layer) {
  const mean = new Float32Array(attention.rows * attention.columns), heads = headsOn(attention, layer);
  for (const head of heads) {
    const one = attention.map(layer, head);
    for (let i = 0; i < mean.length; i++) mean[i] += one[i] / heads.length;
  }
  return mean;
}

// Attention rollout: the product of (A + I) / 2 over the layers, where A is the mean of the heads.
function rolloutOf(a, layer) {
  const attention = attentions[a], n = attention.rows;
  const step = weightsOf(a, layer, attention.heads).map((x, i) => (x + (i % (n + 1) === 0 ? 1 : 0)) / 2);
  if (layer === 0) return step;
  const before = weightsOf(a, layer - 1, attention.heads + 1), product = new Float32Array(n * n);
  for (let i = 0; i < n; i++) for (let k = 0; k < n; k++) {
    const factor = step[i * n + k];
    if (factor) for (let j = 0, to = i * n, from = k * n; j < n; j++) product[to + j] += factor * before[from + j];
  }
  return product;
}

// The columns of the overview are the heads, then the mean, and rollout for self-attention.
export const summaries = attention => attention.isSelf ? ["mean", "rollout"] : ["mean"];
export const columnsOf = attention => attention.heads + summaries(attention).length;
export const summaryCache = new Map();
export function weightsOf(a, layer, column) {
  const attention = attentions[a];
  if (isOff(attention, layer, column)) return new Float32Array(attention.rows * attention.columns);
  if (column < attention.heads) return attention.map(layer, column);
  const key = `${a} ${layer} ${column}`;
  if (!summaryCache.has(key)) {
    summaryCache.set(key, summaries(attention)[column - attention.heads] === "mean" ? meanOf(attention, layer) : rolloutOf(a, layer));
  }
  return summaryCache.get(key);
}

// What a reader takes for one letter, for example a letter with its accents, or a Korean syllable of several parts.
const segmenter = globalThis.Intl?.Segmenter && new Intl.Segmenter(undefined, {granularity: "grapheme"});
export const lettersIn = text => segmenter ? Array.from(segmenter.segment(text), ({segment}) => segment) : [...text];

// A token within a sentence: not longer than a line, and without effect on the direction of the text around it.
const LONGEST_NAME = 60;
const TURNS_TEXT = /[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
export function inSentence(text) {
  if (text.length > LONGEST_NAME) {
    const letters = lettersIn(text.slice(0, 100 * LONGEST_NAME));
    if (letters.length > LONGEST_NAME) text = `${letters.slice(0, LONGEST_NAME - 1).join("")}…`;
  }
  return TURNS_TEXT.test(text) ? `\u2068${text.replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd")}\u2069` : text;
}

export const END_TOKENS = ["</s>", "<eos>", "[SEP]", "<sep>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>"];
export const isEnd = token => END_TOKENS.includes(token) || /^\p{P}+$/u.test(token.trim());

export const headName = (attention, column) => column < attention.heads ? `head ${column}` : summaries(attention)[column - attention.heads];
export const nameOf = ({attention: a, layer, head}) => `${attentions[a].name}, layer ${layer}, ${headName(attentions[a], head)}${isOff(attentions[a], layer, head) ? ", switched off" : ""}`;
export const isMasked = (attention, row, column) => Boolean(attention.mask && attention.mask[row * attention.columns + column]);
export const languageName = (i, reader = "en") => /^[a-z]{2,3}$/.test(data.languages[i] ?? "") ? new Intl.DisplayNames([reader], {type: "language"}).of(data.languages[i]) : "";
export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
export const percent = (x, sign = false) => `${sign && x >= .0005 ? "+" : ""}${(100 * x).toFixed(1).replace("-0.0", "0.0")} %`;
