// Screens: the page as a story, one question at a time: one figure, one sentence below it, one button.

import {computeArithmetic, decimal, decodeArithmetic, placesOfLargest, sumOf} from "./arithmetic.js";
import {$, attentions, data, inSentence, isEnd, languageName, make, sequences} from "./data.js";
import {open, render, shownContent} from "./main.js";
import {patternOf, ruleOf} from "./patterns.js";
import {contentOf, features, state, views} from "./registry.js";
import {drawnPlaces, glossOf, measureStory, signOf, storyCaption, storyScene} from "./ribbons.js";
import {Scene, show} from "./scene.js";
import {reader, say, sayText} from "./sentences.js";
import {firstAttention, select} from "./state.js";
import {drawPointed, drawStory, growRibbons, isMotionReduced, isOverToken, isSameToken, story, storyAttention, storyWeights, tokensOf, wholePercent} from "./story.js";
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

const share = x => wholePercent(x).replace("<", sayText("under")).replace(">", sayText("over"));
const shareTerm = x => make("b", {className: "term", textContent: share(x)});
const languages = () => ({source: languageName(0, reader) || sayText("source"), target: languageName(1, reader) || sayText("target")});
const quotation = text => make("q", {lang: data.languages[1] ?? "", textContent: text});
function wordAt(side, index) {
  const token = tokensOf(storyAttention(), side)[index], [begin, end] = side === "queries" ? "“”" : ["", ""], gloss = glossOf(side, token).replace(/(?<=.) \(.*?\)/g, "").replace(/[()]/g, ""), shown = make("b", {className: "word", textContent: begin + inSentence(signOf(token)) + end, lang: data.languages[side === "keys" ? 0 : 1] ?? ""});
  return gloss ? [shown, ` (${gloss})`] : [shown];
}

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
    title: () => sayText("lookTitle", languages()),
    token: () => screens.isAnswered ? {side: "queries", index: row} : null,
    choose({side, index}) {
      if (side !== "keys" || screens.isAnswered) return;
      Object.assign(screens, {isAnswered: true, guess: index});
      drawScreen();
      if (!isMotionReduced()) growRibbons();
    },
    say() {
      if (!screens.isAnswered) return say("ask", {word: wordAt("queries", row), ...languages()});
      const weight = rowAt(storyAttention(), state.layer, state.head, row)[column], isRight = screens.guess === column;
      const answer = say(isRight ? "right" : "wrong", {guess: wordAt("keys", screens.guess), looked: wordAt("keys", column), share: shareTerm(weight)});
      return [...answer, ...(isFar ? say("far", languages()) : isFirst ? say("first") : [])];
    },
    next: () => screens.isAnswered ? i + 1 < all.length ? sayText("toLook") : null : "",
  };
}

// --- A named head, of pages without a translation -----------------------------------------------------------

// The taps of a screen without a question: a word that is tapped shows its lines alone.
const FREE = {
  token: () => story.pointed,
  choose: token => { story.pointed = isSameToken(token, story.pointed) && !isOverToken ? null : token; drawPointed(); },
};

function patternStep() {
  const [a, layer, head] = clearestHead(), name = patternOf(attentions[a], layer, head), attention = attentions[a];
  return {
    id: "pattern", ...FREE,
    title: () => name ? sayText("patternTitle", {number: head, place: layer, looks: say(name)}) : data.title,
    say: () => say("pattern", {times: attention.layers, count: attention.heads}),
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
  title: () => sayText("withoutTitle"),
  token: () => null,  // a word that is away has no lines
  enter: () => takeAway(start.column),
  choose: ({side, index}) => { if (side === "keys") takeAway(index); },
  say() {
    if (screens.struck === null) return say("takeAway", languages());
    const away = wordAt("keys", screens.struck);
    if (!screens.change) return say("wait", {away});
    const {labels, probabilities: [before, after], texts: [whole, without]} = screens.change, place = placeOfLargest(before.map((x, i) => x - after[i]));
    const word = make("b", {className: "word", textContent: `“${labels[place]}”`}), hasFallen = before[place] - after[place] >= .05;
    const change = say(hasFallen ? "falls" : "stays", {away, word, before: shareTerm(before[place]), after: shareTerm(after[place])});
    return [...change, ...(without === whole ? say("same") : say("nowWrites", {text: quotation(without)})), ...say("another", languages())];
  },
  other: () => screens.struck === null ? "" : sayText("putBack"),
  useOther() { Object.assign(screens, {struck: null, change: null}); drawScreen(); },
});

// --- Where a weight comes from ----------------------------------------------------------------------------------

const MOST_BARS = 3, MOST_PRODUCTS = 4;

const makeTable = (head, rows) => make("table", {}, make("thead", {}, make("tr", {}, ...head.map(textContent => make("th", {scope: "col", textContent})))), make("tbody", {}, ...rows));

// The numbers of a query and of a key whose products are the largest, and what the score adds up.
function multiplication({query, key, products, dots, scores}, row, column) {
  const {size, scale} = storyAttention().arithmetic, best = placesOfLargest(products.map(Math.abs), MOST_PRODUCTS).sort((i, j) => Math.abs(products[j]) - Math.abs(products[i]));
  const line = (name, numbers) => part("tr", "", make("th", {scope: "row"}, ...name), ...best.map(i => make("td", {textContent: decimal(numbers[i], 1)})), make("td", {textContent: size > best.length ? "…" : ""}));
  const rows = [line(wordAt("queries", row), query), line(["× ", ...wordAt("keys", column)], key), line(say("product"), products)];
  rows[2].className = "now";
  const divisor = decimal(1 / scale, 1);
  return [make("table", {}, make("tbody", {}, ...rows)), make("p", {}, ...say("sum", {size, dot: decimal(dots[column], 1), divisor, number: decimal(scores[column], 1)}))];
}

const whyStep = ({row, column}) => ({
  id: "why", isHiding: true, row, column,
  title: () => sayText("whyTitle", {share: share(rowAt(storyAttention(), state.layer, state.head, row)[column])}),
  token: () => ({side: "queries", index: row}),
  choose: ({side, index}) => { if (side === "keys") Object.assign(state, {column: index}); render(); },
  enter: () => Object.assign(state, {row, column, isLocked: true, side: "queries"}),
  say: () => say("why", {word: wordAt("queries", row), ...languages()}),
  extra() {
    const attention = storyAttention(), place = {attention: state.attention, layer: state.layer, head: state.head, row, column: state.column};
    if (!attention.vectors) { decodeArithmetic(attention); return []; }
    const found = computeArithmetic(place), {scores} = found, weights = rowAt(attention, state.layer, state.head, row), most = Math.max(...scores.map(Math.abs));
    const bar = (x, className) => { const fill = part("span", className); fill.style.width = `${Math.max(1, 100 * x)}%`; return part("td", "bars", fill); };
    const best = [...new Set([state.column, ...placesOfLargest(scores, MOST_BARS)])].slice(0, MOST_BARS).sort((i, j) => scores[j] - scores[i]);
    const rows = best.map(key => part("tr", key === state.column ? "now" : "", make("th", {scope: "row"}, ...wordAt("keys", key)), bar(Math.max(0, scores[key]) / most, "score"), make("td", {textContent: decimal(scores[key], 1)}),
      bar(weights[key], "share"), make("td", {textContent: wholePercent(weights[key])})));
    const button = make("button", {type: "button", textContent: sayText(screens.isOpen ? "hide" : "show", {size: attention.arithmetic.size}), ariaExpanded: String(screens.isOpen)});
    button.addEventListener("click", () => { screens.isOpen = !screens.isOpen; render(); });
    return [part("div", "sums", part("div", "", ...multiplication(found, row, state.column)), makeTable(["", sayText("scoreName"), "", sayText("weightName"), ""], rows)), button];
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
  title: () => sayText("headsTitle", {count: storyAttention().heads}),
  say: () => say("heads", {count: storyAttention().heads, times: storyAttention().layers, place: state.layer + 1}),
  extra() {
    const attention = storyAttention(), first = clearestHead()[2], clarity = head => (ruleOf(attention, state.layer, head)?.strength ?? -1) + (head === first) / 2;
    const heads = Array.from({length: attention.heads}, (_, head) => head).sort((x, y) => clarity(y) - clarity(x));
    return [part("div", "minis", ...heads.map(head => {
      const canvas = make("canvas", {ariaHidden: "true"}), name = patternOf(attention, state.layer, head), button = part("button", "mini", canvas, part("span", "", ...(name ? say(name) : say("looksMost", {favourite: wordAt("keys", favouriteOf(attention, head))}))));
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
  title: () => sayText("learnTitle"),
  say: () => say("learn", {time: make("b", {className: "term", textContent: data.model.split(", ")[1] ?? data.model}), text: quotation(inSentence(written()) || sayText("nothing"))}),
});
const turnStep = () => ({
  id: "turn", ...FREE,
  title: () => sayText(features.live.isTranslator ? "turnTitle" : "beginTitle"),
  say: () => say("turn", {text: quotation(written())}),
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
const NEXT = {look: "toLook", without: "toWithout", why: "toWhy", heads: "toHeads", learn: "toLearn", turn: "toTurn"};

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
  const name = NEXT[stepsOf()[state.screen + 1]?.id], next = step.next?.() ?? (name ? sayText(name) : "");
  $("say-next").hidden = !next;
  $("say-next").textContent = next;
  $("say-back").hidden = !state.screen;
  const other = step.other?.() ?? "";
  $("say-other").hidden = !other;
  $("say-other").textContent = other;
  $("extra").replaceChildren(...(step.extra?.() ?? []));
}

for (const id of ["title", "say", "extra", "laboratory"]) $(id).lang = reader;
$("say-back").textContent = sayText("back");
$("laboratory").textContent = sayText("laboratory");
$("say-next").addEventListener("click", () => goTo(state.screen + 1));
$("say-back").addEventListener("click", () => goTo(state.screen - 1));
$("say-other").addEventListener("click", () => shownStep().useOther());
$("to-screens").addEventListener("click", () => goTo(state.screen));
$("laboratory").addEventListener("click", () => {
  select({view: data.decoding && isTranslation() ? "story" : "map", isLocked: false});
  window.scrollBy(0, -1e6);
});
