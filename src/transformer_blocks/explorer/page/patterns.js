// Patterns: names of heads whose weights follow a simple rule, as in inspection/patterns.py.

import {dot, normOf, placesOfLargest, sumOf} from "./arithmetic.js";
import {isEnd, isOff} from "./data.js";

// The rule that a head satisfies, as {name, rank, strength}; null if there is none.
export const ruleOf = (attention, layer, column) => column < attention.heads && !isOff(attention, layer, column) ? (attention.ruleAt ??= findPatterns(attention))(layer, column) : null;
export const patternOf = (...place) => ruleOf(...place)?.name ?? null;  // for example "previous token"

// A function of layer and head that returns the first rule that the head satisfies, and how clearly, or null.
function findPatterns({heads, rows, columns, isSelf, keys: tokens, mask, map}) {
  const isLater = i => i % columns > Math.floor(i / columns), hasLater = head => map(0, head).some((x, i) => x > 0 && isLater(i));
  const isCausal = !mask && isSelf && rows === columns && !Array.from({length: heads}, (_, head) => head).some(hasLater);
  const queries = Array.from({length: rows}, (_, row) => row), keys = Array.from({length: columns}, (_, column) => column), found = new Map();
  const isOpen = (row, column) => !(mask ? mask[row * columns + column] : isCausal && column > row), openKeys = queries.map(row => keys.filter(column => isOpen(row, column)).length);
  const counted = queries.filter(row => openKeys[row] >= 3), mean = numbers => numbers.length < 2 ? NaN : sumOf(numbers) / numbers.length;
  const meanWeight = (isTarget, needsTarget = true) => weights => mean(queries.flatMap(row => {
    const targets = keys.filter(column => isOpen(row, column) && isTarget(row + columns - rows, column));
    if (openKeys[row] < 3 * targets.length || !(needsTarget ? targets.length : openKeys[row])) return [];
    return sumOf(targets.map(column => weights[row * columns + column]));
  }));
  const entropy = weights => mean(counted.map(row =>
    -sumOf([...weights.subarray(row * columns, (row + 1) * columns)].map(x => x > 0 ? x * Math.log(x) : 0)) / Math.log(openKeys[row])));
  const correlation = weights => {
    if (counted.length < 4) return NaN;
    const best = counted.map(row => placesOfLargest(weights.subarray(row * columns, (row + 1) * columns), 1)[0]);
    const [x, y] = [counted, best].map(places => places.map(place => place - mean(places)));
    return dot(x, y) / (normOf(x) * normOf(y));
  };
  const used = keys.filter(column => queries.some(row => isOpen(row, column))), last = used.findLastIndex(column => !isEnd(tokens[column]));
  const ends = used.slice(last + 1), cross = [
    ["end of sentence", .5, meanWeight((_, key) => ends.includes(key), false)],
    ["broad", .8, entropy],
  ];
  const rules = isSelf ? [
    ["previous token", .5, meanWeight((query, key) => key === query - 1)],
    ["itself", .5, meanWeight((query, key) => key === query)],
    ["next token", .5, meanWeight((query, key) => key === query + 1)],
    ["first token", .5, meanWeight((_, key) => key === 0)],
    ["induction", .5, meanWeight((query, key) => key > 0 && key < query && tokens[key - 1] === tokens[query])],
    ...cross,
  ] : [...cross, ["diagonal", .9, correlation]];
  const firstRule = weights => {
    for (const [rank, [name, least, measure]] of rules.entries()) {
      const strength = measure(weights);
      if (strength >= least) return {name, rank, strength};
    }
    return null;
  };
  return (layer, head) => {
    const place = `${layer} ${head}`;
    if (!found.has(place)) found.set(place, firstRule(map(layer, head)));
    return found.get(place);
  };
}
