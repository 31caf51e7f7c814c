// Tokenizer: from a text to token ids and back, as SentencePiece computes both from the file of its model,
// and the library tokenizers for byte-level byte pairs.

export const MARK = "\u2581";  // a space
export const NORMAL = 1, UNKNOWN = 2, CONTROL = 3;  // types of pieces
const UNIGRAM = 1;  // type of a model; the other one is of byte pairs

// --- Text (text_files.py) -----------------------------------------------------------------------------

const SPACES = /[\s\x1c-\x1f\x85]+/gu, UNSEEN = /(?![\s\x1c-\x1f\x85])[\p{Cc}\p{Cf}\p{Cs}]|\ufeff/gu;
const CJK = "\\u2e80-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{3ffff}";
const CJK_SPACE = new RegExp(`(?<=[${CJK}]) | (?=[${CJK}!?])`, "gu");

// The one spelling of a line that the model was trained on.
export function cleanText(text, language) {
  if (language === "en") text = text.replace(/[‘’´]/g, "'").replace(/[“”]/g, '"');
  text = text.replace(UNSEEN, "").normalize("NFKC").replace(SPACES, " ").replace(/^ | $/g, "");
  if (language === "ja" || language === "zh") {
    for (let joined; (joined = text.replace(CJK_SPACE, "").normalize("NFKC")) !== text;) text = joined;
  }
  return text;
}

// --- The file of a model ------------------------------------------------------------------------------

// The fields of a message of Protocol Buffers: for each number, its values as numbers or bytes.
function fieldsOf(bytes) {
  const fields = {}, view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  const readNumber = () => {
    for (let number = 0, factor = 1; ; factor *= 128) {
      number += (bytes[at] & 127) * factor;
      if (bytes[at++] < 128) return number;
    }
  };
  while (at < bytes.length) {
    const tag = readNumber(), kind = tag & 7;
    let value;
    if (kind === 0) value = readNumber();
    else if (kind === 5) { value = view.getFloat32(at, true); at += 4; }
    else if (kind === 1) { value = view.getFloat64(at, true); at += 8; }
    else { const size = readNumber(); value = bytes.subarray(at, at += size); }
    (fields[tag >> 3] ??= []).push(value);
  }
  return fields;
}

const utf8 = bytes => new TextDecoder().decode(bytes);

// The parts of a model's file that encode and decode; see sentencepiece_model.proto for the numbers.
export function readTokenizer(bytes) {
  if (bytes[0] === "{".charCodeAt(0)) return readBytePairs(JSON.parse(utf8(bytes)));
  const model = fieldsOf(bytes), trainer = fieldsOf(model[2][0]), normalizer = fieldsOf(model[3][0]);
  const read = (fields, number, missing) => fields[number]?.[0] ?? missing;
  const pieces = model[1].map(message => {
    const fields = fieldsOf(message);
    return {text: utf8(fields[1][0]), score: read(fields, 2, 0), type: read(fields, 3, NORMAL)};
  });
  const other = pieces.find(({type}) => ![NORMAL, UNKNOWN, CONTROL].includes(type));
  if (other) throw new Error(`the page knows no pieces of the type ${other.type}: ${other.text}`);
  const normal = pieces.filter(({type}) => type === NORMAL), ids = new Map(pieces.flatMap(({text, type}, id) => type === NORMAL ? [[text, id]] : []));
  return {
    pieces,
    ids,
    scoreOf: (left, right) => pieces[ids.get(left + right)]?.score,  // of their union
    longest: normal.reduce((most, {text}) => Math.max(most, [...text].length), 1),
    lowest: normal.reduce((least, {score}) => Math.min(least, score), Infinity),
    unknown: pieces.findIndex(({type}) => type === UNKNOWN),
    surface: trainer[44] ? utf8(trainer[44][0]) : " \u2047 ",
    isUnigram: read(trainer, 3, UNIGRAM) === UNIGRAM,
    charsmap: readCharsmap(read(normalizer, 2, new Uint8Array())),
    hasPrefix: Boolean(read(normalizer, 3, 1)),
    isTrimmed: Boolean(read(normalizer, 4, 1)),
  };
}

// --- Normalisation (normalizer.cc) --------------------------------------------------------------------

// The replacements of texts by others: a trie in a double array, and the texts that it points to.
function readCharsmap(bytes) {
  if (bytes.length < 4) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length), size = view.getUint32(0, true);
  return {units: Uint32Array.from({length: size / 4}, (_, i) => view.getUint32(4 + 4 * i, true)), texts: bytes.subarray(4 + size)};
}

// The longest text at a place that has a replacement: its length in bytes, and the replacement; null if there is none.
function longestReplacement({units, texts}, bytes, start) {
  const offsetOf = unit => (unit >>> 10) << ((unit & 512) >>> 6);
  let place = offsetOf(units[0]), found = null;
  for (let at = start; at < bytes.length; at++) {
    place ^= bytes[at];
    const unit = units[place];
    if (unit === undefined || (unit & 0x800000ff) !== bytes[at]) break;
    place ^= offsetOf(unit);
    if (unit >>> 8 & 1) {
      const from = units[place] & 0x7fffffff;
      found = {length: at + 1 - start, text: utf8(texts.subarray(from, texts.indexOf(0, from)))};
    }
  }
  return found;
}

// Replace what the model replaces; then mark spaces, of which single ones remain.
function normalize({charsmap, hasPrefix, isTrimmed}, text) {
  let replaced = text;
  if (charsmap) {
    const bytes = new TextEncoder().encode(text), parts = [];
    for (let at = 0; at < bytes.length;) {
      const found = longestReplacement(charsmap, bytes, at);
      const length = found ? found.length : bytes[at] < 128 ? 1 : bytes[at] < 224 ? 2 : bytes[at] < 240 ? 3 : 4;
      parts.push(found ? found.text : utf8(bytes.subarray(at, at + length)));
      at += length;
    }
    replaced = parts.join("");
  }
  if (isTrimmed) replaced = replaced.replace(/ +/g, " ").replace(/^ /, "");
  const marked = text === "" ? "" : (hasPrefix ? MARK : "") + replaced.replaceAll(" ", MARK);
  return isTrimmed ? marked.replace(/\u2581+$/, "") : marked;
}

// --- Encoding (unigram_model.cc, bpe_model.cc) --------------------------------------------------------

// The segmentation of the largest sum of scores (Viterbi), in float32 as there.
function segmentByUnigrams({ids, pieces, longest, lowest, unknown}, letters) {
  const best = Array.from({length: letters.length + 1}, () => null);  // of the pieces that end before a letter
  best[0] = {score: 0};
  const consider = (end, score, piece) => {
    if (best[end] === null || score > best[end].score) best[end] = {score: Math.fround(score), piece};
  };
  for (let start = 0; start < letters.length; start++) {
    const {score} = best[start];
    let text = "";
    for (let end = start + 1; end <= Math.min(letters.length, start + longest); end++) {
      text += letters[end - 1];
      const id = ids.get(text);
      if (id !== undefined) consider(end, pieces[id].score + score, {start, id});
    }
    if (!ids.has(letters[start])) consider(start + 1, Math.fround(Math.fround(lowest - 10) + score), {start, id: unknown});
  }
  const found = [];
  for (let end = letters.length; end > 0; end = best[end].piece.start) found.push(best[end].piece.id);
  return found.reverse();
}

// Merge the adjacent pieces whose union has the largest score, the leftmost first, until no union is a piece.
function segmentByBytePairs({ids, scoreOf, unknown}, letters) {
  const parts = [...letters], scoreAt = i => (i + 1 < parts.length ? scoreOf(parts[i], parts[i + 1]) : undefined) ?? -Infinity;
  const scores = parts.map((_, i) => scoreAt(i));  // of each part with the next one
  for (;;) {
    const best = scores.reduce((best, score, i) => score > scores[best] ? i : best, 0);
    if (!(scores[best] > -Infinity)) return parts.map(text => ids.get(text) ?? unknown);
    parts.splice(best, 2, parts[best] + parts[best + 1]);
    scores.splice(best, 1);
    for (const i of [best - 1, best]) if (i >= 0) scores[i] = scoreAt(i);
  }
}

// --- Byte-level byte pairs (GPT-2, Llama 3) -----------------------------------------------------------

// Each byte is written as a letter: a printable one of Latin-1 as itself, the others as the letters from U+0100 on.
const LETTERS = Array.from({length: 256}, (_, byte) => byte);
LETTERS.filter(byte => byte < 33 || byte > 126 && byte < 161 || byte === 173).forEach((byte, i) => { LETTERS[byte] = 256 + i; });
const BYTES = new Map(LETTERS.map((letter, byte) => [letter, byte]));
const textOfBytes = bytes => new TextDecoder("utf-8", {ignoreBOM: true}).decode(Uint8Array.from(bytes));

function bytesOfLetters(letters) {
  const bytes = Array.from(letters, letter => BYTES.get(letter.charCodeAt(0)));
  return bytes.includes(undefined) ? [...new TextEncoder().encode(letters)] : bytes;  // of a token that is none of bytes
}

// `before` are the tokens that precede a text; `isWhole` says that a word that is a token is not merged.
function readBytePairs({tokens, special, merges, pattern, before, isWhole}) {
  const specials = new Set(special), ranks = new Map(merges.map((pair, i) => [pair, -i]));
  const pieces = tokens.map((letters, id) => {
    const bytes = bytesOfLetters(letters);
    return specials.has(id) ? {text: letters, type: CONTROL} : {bytes, text: textOfBytes(bytes).replaceAll(" ", MARK).replaceAll("\n", "↵"), type: NORMAL};
  });
  const ids = new Map(tokens.flatMap((letters, id) => specials.has(id) ? [] : [[letters, id]]));
  return {pieces, ids, before, isWhole, pattern: new RegExp(pattern, "gu"), scoreOf: (left, right) => ranks.get(`${left} ${right}`)};
}

function encodeBytes(tokenizer, text) {
  const words = text.replace(/[\ud800-\udfff]/gu, "").match(tokenizer.pattern) ?? [];
  return words.flatMap(word => {
    const letters = Array.from(new TextEncoder().encode(word), byte => String.fromCharCode(LETTERS[byte])), whole = tokenizer.ids.get(letters.join(""));
    return tokenizer.isWhole && whole !== undefined ? [whole] : segmentByBytePairs(tokenizer, letters);
  });
}

// --- Encoding and decoding ----------------------------------------------------------------------------

// The token ids of a text; unknown tokens beside each other are one.
export function encodeText(tokenizer, text) {
  if (tokenizer.pattern) return encodeBytes(tokenizer, text);
  const letters = [...normalize(tokenizer, text.replace(/[\0\ud800-\udfff]/gu, "\ufffd"))];
  const found = (tokenizer.isUnigram ? segmentByUnigrams : segmentByBytePairs)(tokenizer, letters);
  return found.filter((id, i) => id !== tokenizer.unknown || found[i - 1] !== id);
}

export function decodeText({pattern, pieces, unknown, surface, hasPrefix, isTrimmed}, ids) {
  ids = ids.filter(id => pieces[id].type !== CONTROL);
  if (pattern) return textOfBytes(ids.flatMap(id => pieces[id].bytes));
  let text = "";
  ids.forEach((id, i) => {
    let piece = id === unknown ? surface : pieces[id].text;
    if (text === "" && (isTrimmed || hasPrefix && i === 0) && piece.startsWith(MARK)) piece = piece.slice(1);
    text += piece.replaceAll(MARK, " ");
  });
  return text;
}
