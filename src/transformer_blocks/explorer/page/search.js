// Searches: greedy decoding, sampling and beam search, as in generation/ of the library.
//
// A search is a generator, as the model's layers are. What it returns are {tokens, score, isFinished}, best first.

// The log-probabilities of logits, in float32 as torch has them.
export function logSoftmax(logits) {
  let largest = -Infinity, sum = 0;
  for (const logit of logits) if (logit > largest) largest = logit;
  for (const logit of logits) sum += Math.exp(logit - largest);
  return logits.map(logit => logit - largest - Math.log(sum));
}

// The places of the largest numbers, largest first; of equal ones, the first.
export function topK(numbers, count) {
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

export const mostProbable = logProbabilities => topK(logProbabilities, 1)[0];

// A choice of a token at random; with a low temperature, the most probable ones are more frequent.
export const sampleAt = (temperature, random = Math.random) => logProbabilities => {
  const probabilities = logSoftmax(logProbabilities.map(x => x / temperature)).map(Math.exp);
  let rest = random() * probabilities.reduce((sum, x) => sum + x, 0);
  const chosen = probabilities.findIndex(x => (rest -= x) < 0);
  return chosen < 0 ? mostProbable(logProbabilities) : chosen;
};

// Greedy decoding or sampling: one token after the other, each chosen by a function of the log-probabilities.
export function* generate(model, start, choose, {endId, maxLength}) {
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
export function* beamSearch(model, start, {size, lengthPenalty = .6, endId, maxLength}) {
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
