// Screens: the page as a story, one question at a time: one figure, one sentence below it, one button.

import {computeArithmetic, decimal, decodeArithmetic, placesOfLargest, sumOf} from "./arithmetic.js";
import {$, attentions, data, inSentence, isEnd, languageName, make, plural, sequences} from "./data.js";
import {open, render, shownContent} from "./main.js";
import {patternOf, ruleOf} from "./patterns.js";
import {contentOf, features, state, views} from "./registry.js";
import {drawnPlaces, glossOf, measureStory, signOf, storyCaption, storyScene} from "./ribbons.js";
import {Scene, show} from "./scene.js";
import {firstAttention, select} from "./state.js";
import {drawPointed, drawStory, growRibbons, isCoarsePointer, isMotionReduced, isOverToken, isSameToken, story, storyAttention, storyWeights, tokensOf, wholePercent} from "./story.js";
import {lineColour, palette} from "./style.js";
import {part} from "./why.js";

const screens = {
  isAnswered: false,
  guess: null,    // the key that a reader tapped
  struck: null,   // the key that is taken away
  change: null,   // what the model does without it, once it is known
  isOpen: false,  // whether all products are shown
  shown: "",      // the step that was entered last
};

views.screens = {
  sections: ["story", "screen"],
  title: () => shownStep().title(),
  measure: measureStory,
  draw: drawScreen,
  scene: (...options) => storyScene(...options),
  caption: storyCaption,
  weights: storyWeights,
  choose: token => shownStep().choose(token),
  token: () => shownStep().token(),
  isHiding: () => Boolean(shownStep().isHiding),
  isSmall: () => !["look", "without", "pattern"].includes(shownStep().id),  // on a narrow screen, to leave space for what is below
  hasPanel: () => screens.isOpen && shownStep().id === "why",
  marksOf: (side, index) => (side === "queries" && index === shownStep().row ? " asked" : "") + (side === "keys" && index === screens.guess ? index === shownStep().column ? " right" : " wrong" : "") +
    (side === "keys" && index === screens.struck ? " struck" : "") + (side === "queries" && screens.struck !== null && hasFallen(index) ? " fell" : ""),
};

// --- The head that the story shows ----------------------------------------------------------------------

const isTranslation = () => { const attention = attentions[firstAttention()]; return attention.isDecoding && !attention.isSelf && attention.rows > 2; };
const rowAt = (attention, layer, head, row) => attention.map(layer, head).subarray(row * attention.columns, (row + 1) * attention.columns);
const placeOfLargest = numbers => numbers.reduce((best, x, i) => x > numbers[best] ? i : best, 0);

// How clearly a head of cross-attention says which word each word is from: the mean of the largest weights, without those of signs.
function clarityOf(attention, layer, head) {
  const rows = attention.queries.map((token, row) => {
    const weights = rowAt(attention, layer, head, row), best = placeOfLargest(weights);
    return isEnd(token) ? 0 : isEnd(attention.keys[best]) ? -weights[best] : weights[best];
  });
  return sumOf(rows) / rows.length;
}

// [attention, layer, head]: of a translation, the clearest head of the cross-attention; of another model, the clearest with a name.
const MOST_CELLS = 4e6;  // to be looked through for it
let clearest = null;
export function clearestHead() {
  if (clearest) return clearest;
  const first = firstAttention(), places = attentions.flatMap(({layers, heads}, a) => Array.from({length: layers * heads}, (_, i) => [a, Math.floor(i / heads), i % heads]));
  const sizeOf = ([a]) => attentions[a].rows * attentions[a].columns;
  const sorted = (all, valueOf) => all.map(place => [valueOf(place), place]).filter(([value]) => value !== null).sort((x, y) => y[0] - x[0])[0]?.[1];
  const best = isTranslation() ? sorted(places.filter(([a]) => a === first), ([a, layer, head]) => clarityOf(attentions[a], layer, head))
    : sorted(places.filter((place, i) => i * sizeOf(place) <= MOST_CELLS), ([a, layer, head]) => {
      const rule = ruleOf(attentions[a], layer, head);
      return rule && rule.strength - rule.rank;  // the first rules say most
    });
  return clearest = best ?? [first, attentions[first].layers - 1, attentions[first].heads];
}

// --- Words ----------------------------------------------------------------------------------------------

const share = x => wholePercent(x).replace("<", "under ").replace(">", "over ");
const term = textContent => make("b", {className: "term", textContent});
function wordAt(side, index) {
  const token = tokensOf(storyAttention(), side)[index], [begin, end] = side === "queries" ? "“”" : ["", ""], gloss = glossOf(side, token).replace(/(?<=.) \(.*?\)/g, "").replace(/[()]/g, ""), shown = make("b", {className: "word", textContent: begin + inSentence(signOf(token)) + end, lang: data.languages[side === "keys" ? 0 : 1] ?? ""});
  return gloss ? [shown, ` (${gloss})`] : [shown];
}
const inLanguage = (i, word) => `${languageName(i)} ${word}`.trim();

// --- Look: which word did it look at? ---------------------------------------------------------------------

// Rows to ask for: two whose key is theirs alone, and the one whose key stands at another place than itself.
function questionsOf() {
  const [a, layer, head] = clearestHead(), attention = attentions[a], {rows, columns, queryWords: words} = attention, totals = new Float64Array(columns);
  for (let row = 0; row < rows; row++) rowAt(attention, layer, head, row).forEach((x, i) => { totals[i] += x; });
  const found = attention.queries.map((token, row) => {
    const weights = rowAt(attention, layer, head, row), column = placeOfLargest(weights), isWhole = (row === 0 || words[row] === "1") && (row + 1 === rows || words[row + 1] === "1");
    const isClear = isWhole && !isEnd(token) && !isEnd(attention.keys[column]) && weights[column] > .5;
    return {row, column, isClear, own: weights[column] / totals[column], moved: Math.abs(row / (rows - 1) - column / Math.max(1, columns - 1))};
  }).filter(({isClear}) => isClear);
  const far = found.toSorted((x, y) => y.moved - x.moved)[0], others = found.filter(each => each !== far).sort((x, y) => y.own - x.own).slice(0, 2);
  return [...others.sort((x, y) => y.row - x.row), ...(far ? [far] : [])];
}

function lookStep({row, column}, i, all) {
  const attention = attentions[clearestHead()[0]], isFirst = i === 0, isFar = row === 0 && column > .6 * (attention.columns - 1);
  return {
    id: "look", row, column, isHiding: true,
    title: () => `A small network translated this. What did it look at to write each ${inLanguage(1, "word")}?`,
    token: () => screens.isAnswered ? {side: "queries", index: row} : null,
    choose({side, index}) {
      if (side !== "keys" || screens.isAnswered) return;
      Object.assign(screens, {isAnswered: true, guess: index});
      drawScreen();
      if (!isMotionReduced()) growRibbons();
    },
    say() {
      if (!screens.isAnswered) return [`Which ${inLanguage(0, "word")} did the network look at to write `, ...wordAt("queries", row), "? Tap it."];
      const isRight = screens.guess === column, guess = isRight ? ["✓ Yes: it"] : ["✗ Not ", ...wordAt("keys", screens.guess), ": the network"];
      const answer = [...guess, " looked at ", ...wordAt("keys", column), ", ", term(share(rowAt(storyAttention(), state.layer, state.head, row)[column])), ". "];
      if (isFar) answer.push(`To write its first word, it had to look near the end of the ${inLanguage(0, "sentence")}. It cannot translate word by word: that is what attention is for.`);
      else if (isFirst) answer.push("This looking is called ", term("attention"), "; the number is the attention ", term("weight"), ".");
      return answer;
    },
    next: () => screens.isAnswered ? i + 1 < all.length ? "Next word" : null : "",
  };
}

// --- A named head, of pages without a translation -----------------------------------------------------------

const LOOKS = {
  "previous token": "looks at the previous word", itself: "looks at the word itself", "next token": "looks at the next word", "first token": "looks at the first word",
  induction: "looks at what followed the same word before", "end of sentence": "looks at the end of the sentence", broad: "looks at all words at once", diagonal: "goes through the sentence word by word",
};

// The taps of a screen without a question: a word that is tapped shows its lines alone.
const FREE = {
  token: () => story.pointed,
  choose: token => { story.pointed = isSameToken(token, story.pointed) && !isOverToken ? null : token; drawPointed(); },
};

function patternStep() {
  const [a, layer, head] = clearestHead(), name = patternOf(attentions[a], layer, head), attention = attentions[a];
  return {
    id: "pattern", ...FREE,
    title: () => name ? `Head ${head} of layer ${layer} ${LOOKS[name]}` : data.title,
    say: () => ["Each line is a word that looks at another, the thicker the more: this is called ", term("attention"), `. ${isCoarsePointer() ? "Tap" : "Point at"} a word to see only its lines. ` +
      `The network looks in ${plural(attention.layers, "layer")}, several times in each (${plural(attention.heads, "head")}).`],
  };
}

// --- Without a word -------------------------------------------------------------------------------------------

const hasFallen = row => Boolean(screens.change) && screens.change.probabilities[1][row] < screens.change.probabilities[0][row] / 2;

async function takeAway(index) {
  Object.assign(screens, {struck: index, change: null});
  drawScreen();
  const change = await features.live.without(sequences[0].text, index);
  if (!change || screens.struck !== index) return;
  screens.change = change;
  drawScreen();
}

const withoutStep = start => ({
  id: "without", isHiding: true, key: start.column,
  title: () => "Take a word away. Does the network really need it?",
  token: () => null,  // a word that is away has no lines
  enter: () => takeAway(start.column),
  choose: ({side, index}) => { if (side === "keys") takeAway(index); },
  say() {
    if (screens.struck === null) return [`Tap any ${inLanguage(0, "word")} to take it away.`];
    if (!screens.change) return ["The network writes the sentence again without ", ...wordAt("keys", screens.struck), " …"];
    const {labels, probabilities: [before, after], texts: [whole, without]} = screens.change, place = placeOfLargest(before.map((x, i) => x - after[i]));
    const change = before[place] - after[place] < .05 ? ["the probability of no word falls by more than 5 %. "] : ["the probability of ", make("b", {className: "word", textContent: `“${labels[place]}”`}), " falls from ", term(share(before[place])), " to ", term(share(after[place])), ". "];
    return ["Without ", ...wordAt("keys", screens.struck), ", ", ...change, ...(without === whole ? ["It still writes the same sentence."] : ["It now writes: ", make("q", {lang: data.languages[1] ?? "", textContent: without})]), ` Tap another ${inLanguage(0, "word")}.`];
  },
  other: () => screens.struck === null ? "" : "Put it back",
  useOther() { Object.assign(screens, {struck: null, change: null}); drawScreen(); },
});

// --- Where a weight comes from ----------------------------------------------------------------------------------

const MOST_BARS = 3, MOST_PRODUCTS = 4;

const makeTable = (head, rows) => make("table", {}, make("thead", {}, make("tr", {}, ...head.map(textContent => make("th", {scope: "col", textContent})))), make("tbody", {}, ...rows));

// The numbers of a query and of a key whose products are the largest, and what the score adds up.
function multiplication({query, key, products, dots, scores}, row, column) {
  const {size, scale} = storyAttention().arithmetic, best = placesOfLargest(products.map(Math.abs), MOST_PRODUCTS).sort((i, j) => Math.abs(products[j]) - Math.abs(products[i]));
  const line = (name, numbers) => part("tr", "", make("th", {scope: "row"}, ...name), ...best.map(i => make("td", {textContent: decimal(numbers[i], 1)})), make("td", {textContent: size > best.length ? "…" : ""}));
  const rows = [line(wordAt("queries", row), query), line(["× ", ...wordAt("keys", column)], key), line(["= product"], products)];
  rows[2].className = "now";
  const divisor = decimal(1 / scale, 1);
  return [make("table", {}, make("tbody", {}, ...rows)), make("p", {}, `All ${size} products add up to ${decimal(dots[column], 1)}. Divided by ${divisor}, to keep scores small, that is the `, term("score"), ` ${decimal(scores[column], 1)}.`)];
}

const whyStep = ({row, column}) => ({
  id: "why", isHiding: true, row, column,
  title: () => `Where does the weight of ${share(rowAt(storyAttention(), state.layer, state.head, row)[column])} come from?`,
  token: () => ({side: "queries", index: row}),
  choose: ({side, index}) => { if (side === "keys") Object.assign(state, {column: index}); render(); },
  enter: () => Object.assign(state, {row, column, isLocked: true, side: "queries"}),
  say: () => ["The network keeps a list of numbers for ", ...wordAt("queries", row), ", its ", term("query"), ", and one for each ", inLanguage(0, "word"), ", its ", term("key"),
    ". It multiplies them number by number and adds up: the score. The higher a score, the larger its part of the 100 %."],
  extra() {
    const attention = storyAttention(), place = {attention: state.attention, layer: state.layer, head: state.head, row, column: state.column};
    if (!attention.vectors) { decodeArithmetic(attention); return []; }
    const found = computeArithmetic(place), {scores} = found, weights = rowAt(attention, state.layer, state.head, row), most = Math.max(...scores.map(Math.abs));
    const bar = (x, className) => { const fill = part("span", className); fill.style.width = `${Math.max(1, 100 * x)}%`; return part("td", "bars", fill); };
    const best = [...new Set([state.column, ...placesOfLargest(scores, MOST_BARS)])].slice(0, MOST_BARS).sort((i, j) => scores[j] - scores[i]);
    const rows = best.map(key => part("tr", key === state.column ? "now" : "", make("th", {scope: "row"}, ...wordAt("keys", key)), bar(Math.max(0, scores[key]) / most, "score"), make("td", {textContent: decimal(scores[key], 1)}),
      bar(weights[key], "share"), make("td", {textContent: share(weights[key])})));
    const button = make("button", {type: "button", textContent: screens.isOpen ? "Hide the products" : `Show all ${attention.arithmetic.size} products`, ariaExpanded: String(screens.isOpen)});
    button.addEventListener("click", () => { screens.isOpen = !screens.isOpen; render(); });
    return [part("div", "sums", part("div", "", ...multiplication(found, row, state.column)), makeTable(["", "score", "", "weight", ""], rows)), button];
  },
});

// --- Heads ------------------------------------------------------------------------------------------------------

// A small picture of one head's lines.
function drawMini(canvas, layer, head) {
  const {rows, columns, map} = storyAttention(), width = 200, height = 64, scene = new Scene(width, height), weights = map(layer, head), places = drawnPlaces(weights, {rows, columns}).filter(i => weights[i] >= .1);
  const at = (i, count) => (i + .5) * width / count;
  for (const i of places) {
    const [from, to] = [at(i % columns, columns), at(Math.floor(i / columns), rows)].map(x => x.toFixed(1));
    scene.path(`M${from} 6C${from} 32 ${to} 32 ${to} 58`, {stroke: lineColour(head), line: Math.max(.6, 5 * weights[i]), opacity: .25 + .6 * weights[i]});
  }
  for (const [count, y] of [[columns, 3], [rows, 61]]) for (let i = 0; i < count; i++) scene.rect(at(i, count) - 1.5, y - 1.5, 3, 3, {fill: palette().muted});
  show(scene, canvas);
}

// The key that all queries together look at most.
function favouriteOf({map, rows, columns}, head) {
  const weights = map(state.layer, head);
  return placeOfLargest(Float32Array.from({length: columns}, (_, column) => sumOf(Array.from({length: rows}, (_, row) => weights[row * columns + column]))));
}

const headsStep = () => ({
  id: "heads", ...FREE,
  title: () => `${["", "", "Two", "Three", "Four"][storyAttention().heads] ?? storyAttention().heads} looks at once`,
  say: () => [`The network looks in ${storyAttention().heads} ways at once; each of them is a `, term("head"), `. It does so ${storyAttention().layers} times, one after another: these are its `, term("layers"), `, and below are the heads of ${state.layer === storyAttention().layers - 1 ? "the last" : `number ${state.layer + 1}`}. Tap one to see it above.`],
  extra() {
    const attention = storyAttention(), first = clearestHead()[2], clarity = head => (ruleOf(attention, state.layer, head)?.strength ?? -1) + (head === first) / 2;
    const heads = Array.from({length: attention.heads}, (_, head) => head).sort((x, y) => clarity(y) - clarity(x));
    return [part("div", "minis", ...heads.map(head => {
      const canvas = make("canvas", {ariaHidden: "true"}), name = patternOf(attention, state.layer, head), button = part("button", "mini", canvas, part("span", "", ...(name ? [LOOKS[name]] : ["looks most at ", ...wordAt("keys", favouriteOf(attention, head))])));
      button.type = "button";
      button.setAttribute("aria-pressed", String(head === state.head));
      button.addEventListener("click", () => { story.pointed = null; select({head}, {record: false}); $("extra").querySelector(".mini[aria-pressed=true]").focus({preventScroll: true}); });
      drawMini(canvas, state.layer, head);
      return button;
    }))];
  },
});

// --- Learning, and a sentence of one's own ------------------------------------------------------------------------

const written = () => data.title.slice(data.title.indexOf("→") + 1).trim();
const learnStep = () => ({
  id: "learn", ...FREE, time: 0,
  title: () => "Watch it learn",
  say: () => ["The network began with random numbers, and each ", term("update"), " changed them a little. Move the slider to the right: each word finds the few words that it needs. After ", term(data.model.split(", ")[1] ?? data.model), " it writes: ",
    make("q", {lang: data.languages[1] ?? "", textContent: inSentence(written()) || "(nothing)"})],
});
const turnStep = () => ({
  id: "turn", ...FREE,
  title: () => features.live.isTranslator ? "Your turn: give it a sentence" : "Your turn: give it a beginning",
  say: () => ["Choose other words below, or type your own. It writes: ", make("q", {lang: data.languages[1] ?? "", textContent: written()})],
});

// --- One screen after the other -----------------------------------------------------------------------------------

let steps = null;
export function stepsOf() {
  if (steps) return steps;
  const asked = isTranslation() ? questionsOf() : [], [a, , head] = clearestHead(), isHead = head < attentions[a].heads;
  steps = asked.length ? asked.map(lookStep) : [patternStep()];
  if (asked.length && features.live?.isTranslator && attentions[a].keyAxis === "source") steps.push(withoutStep(asked[Math.min(1, asked.length - 1)]));
  if (asked.length && attentions[a].arithmetic) steps.push(whyStep(asked[0]));
  if (isHead && attentions[a].heads > 1) steps.push(headsStep());
  if (data.earlier.length) steps.push(learnStep());
  if (features.live) steps.push(turnStep());
  return steps;
}
export const shownStep = () => stepsOf()[state.screen];
const NEXT = {look: "Next word", without: "Take a word away", why: "Why this weight?", heads: "It looks more than once", learn: "Watch it learn", turn: "Your turn"};

function showClearest() {
  const [attention, layer, head] = clearestHead();
  Object.assign(state, {attention, layer, head, isLocked: false});
}

// Enter a step: its figure is that of the page's own sentence.
function goTo(screen) {
  const content = {text: null, off: [], sequence: 0, time: stepsOf()[screen].time ?? null};
  features.live?.stop();
  Object.assign(state, {screen, view: "screens"});
  if (shownContent !== contentOf(content)) open(content);
  else select({});
}

function drawScreen() {
  const step = shownStep(), key = `${state.screen} ${shownContent}`;
  if (screens.shown !== key) {
    showClearest();
    Object.assign(screens, {shown: key, isAnswered: false, guess: null, struck: null, change: null, isOpen: false});
    story.pointed = null;
    step.enter?.();
    measureStory();
  }
  drawStory();
  $("say-text").replaceChildren(...step.say());
  const next = step.next?.() ?? NEXT[stepsOf()[state.screen + 1]?.id] ?? "";
  $("say-next").hidden = !next;
  $("say-next").textContent = next;
  $("say-back").hidden = !state.screen;
  const other = step.other?.() ?? "";
  $("say-other").hidden = !other;
  $("say-other").textContent = other;
  $("extra").replaceChildren(...(step.extra?.() ?? []));
}

$("say-next").addEventListener("click", () => goTo(state.screen + 1));
$("say-back").addEventListener("click", () => goTo(state.screen - 1));
$("say-other").addEventListener("click", () => shownStep().useOther());
$("to-screens").addEventListener("click", () => goTo(state.screen));
$("laboratory").addEventListener("click", () => {
  select({view: data.decoding && isTranslation() ? "story" : "map", isLocked: false});
  window.scrollBy(0, -1e6);
});
