// Data: the page's JSON, and the attention weights of every layer and head.

const data = JSON.parse(document.getElementById("data").textContent);

const $ = id => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// Bytes in base64 that were compressed by zlib.
async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Weights have 12 bits each: all low bytes, then all high bytes.
async function decodeWeights(text, count) {
  const planes = await inflate(text), weights = new Float32Array(count);
  for (let i = 0; i < count; i++) weights[i] = (planes[i] + 256 * planes[count + i]) / data.levels;
  return weights;
}

await Promise.all([...document.fonts].map(font => font.load()));  // a canvas does not load fonts
const attentions = await Promise.all(data.maps.map(async attention => {
  const {layers, heads} = attention, rows = attention.queries.length, columns = attention.keys.length;
  const all = await decodeWeights(attention.weights, layers * heads * rows * columns);
  const size = rows * columns;
  const map = (layer, head) => all.subarray((layer * heads + head) * size, (layer * heads + head + 1) * size);
  const mask = attention.mask && Uint8Array.from(atob(attention.mask), letter => letter.charCodeAt(0));
  return {...attention, rows, columns, map, mask};
}));

function meanOf(attention, layer) {
  const mean = new Float32Array(attention.rows * attention.columns);
  for (let head = 0; head < attention.heads; head++) {
    const one = attention.map(layer, head);
    for (let i = 0; i < mean.length; i++) mean[i] += one[i] / attention.heads;
  }
  return mean;
}

// Attention rollout: the product of (A + I) / 2 over the layers, where A is the mean of the heads.
function rolloutOf(a, layer) {
  const attention = attentions[a], n = attention.rows;
  const step = meanOf(attention, layer).map((x, i) => (x + (i % (n + 1) === 0 ? 1 : 0)) / 2);
  if (layer === 0) return step;
  const before = weightsOf(a, layer - 1, attention.heads + 1), product = new Float32Array(n * n);
  for (let i = 0; i < n; i++) for (let k = 0; k < n; k++) {
    const factor = step[i * n + k];
    if (factor) for (let j = 0; j < n; j++) product[i * n + j] += factor * before[k * n + j];
  }
  return product;
}

// The columns of the overview are the heads, then the mean, and rollout for self-attention.
const summaries = attention => attention.isSelf ? ["mean", "rollout"] : ["mean"];
const columnsOf = attention => attention.heads + summaries(attention).length;
const summaryCache = new Map();
function weightsOf(a, layer, column) {
  const attention = attentions[a];
  if (column < attention.heads) return attention.map(layer, column);
  const key = `${a} ${layer} ${column}`;
  if (!summaryCache.has(key)) {
    summaryCache.set(key, summaries(attention)[column - attention.heads] === "mean" ? meanOf(attention, layer) : rolloutOf(a, layer));
  }
  return summaryCache.get(key);
}

const headName = (attention, column) => column < attention.heads ? `head ${column + 1}` : summaries(attention)[column - attention.heads];
const nameOf = place => `${attentions[place.attention].name}, layer ${place.layer + 1}, ${headName(attentions[place.attention], place.head)}`;
const isMasked = (attention, row, column) => Boolean(attention.mask && attention.mask[row * attention.columns + column]);
const percent = (x, sign = false) => `${sign && x > 0 ? "+" : ""}${(100 * x).toFixed(1)} %`;
