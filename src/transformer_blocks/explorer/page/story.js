// Story: the keys above, the queries below, and ribbons between them for all tokens at once.

import {$, END_TOKENS, attentions, data, headsOn, inSentence, isMasked, isOff, make, weightsOf} from "./data.js";
import {drawLens} from "./lens.js";
import {forgetting, state, views} from "./registry.js";
import {axisLabel, drawPercentages, drawQueryBars, drawRibbonScale, drawRibbons, leastDrawn, measureStory, ribbonsOf, sayWhatIsDrawn, shadeOfToken, storyCaption, storyScene} from "./ribbons.js";
import {Scene, paint, show} from "./scene.js";
import {ARROWS, select, wrap} from "./state.js";
import {lineColour, palette, theme} from "./style.js";

views.story = {
  name: "Lines",
  sections: ["choices", "story"],
  choose: lockToken,
  measure: measureStory,
  draw: drawStory,
  scene: (...options) => storyScene(...options),
  caption: storyCaption,
  weights: storyWeights,
};

export const story = {
  layout: null,         // places of the tokens, see layOutStory
  pointed: null,        // {side, index}: the token under the pointer or with the keyboard's focus
  frame: 0,             // of the ribbons that grow
  built: "",            // what the buttons were made for
  painted: "",          // what the ribbons of all tokens were painted for
  drawn: {all: 0, one: 0},  // ribbons in the last drawings
};
forgetting.push(() => {
  story.built = story.painted = "";
  story.layout = story.pointed = null;
  for (const kept of [leastDrawn, drawStoryLegend]) kept.key = "";
});
// For scripts that control the page.
window.explorerStory = width => ({...story, shows: shownToken(), scene: width ? storyScene(palette(), {width}) : null});

export const OTHER_SIDE = {queries: "keys", keys: "queries"};
export const MANY_TOKENS = 24;  // with more tokens, thin lines for all and ribbons for the isolated token only
export const MOST_TOKENS = 40, LINES_OF_QUERY = 3;  // with more tokens, lines of each query's largest weights only
export const MOST_RIBBONS = 1500;  // more would be slow to draw, and hide each other
export const RIBBON_WIDTH = 24;  // width of a ribbon whose weight is 1
export const PERCENT_ROOM = 15, PERCENT_WIDTH = 46;  // of the percentages above the keys and below the queries, or beside them in columns
export const NARROW = 560, COLUMNS = .84;  // a figure of a smaller width has its tokens in columns, together at most this part of it wide
export const isMotionReduced = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
export const isCoarsePointer = () => matchMedia("(pointer: coarse)").matches;

export const storyAttention = () => attentions[state.attention];
export const tokensOf = (attention, side) => side === "keys" ? attention.keys : attention.queries;
const nameToken = text => text === "" ? "the empty token" : `“${inSentence(text)}”`;
export const wholePercent = weight => weight > 0 && weight < .005 ? "<1\u00a0%" : weight > .995 && weight < 1 ? ">99\u00a0%" : `${Math.round(100 * weight)}\u00a0%`;

export const isSummaryShown = () => state.head >= storyAttention().heads;

export function storyWeights() { return weightsOf(state.attention, state.layer, state.head); }

// The weights between a token and every token of the other side.
export function weightsAt({side, index}) {
  const {rows, columns} = storyAttention(), weights = storyWeights();
  if (side === "queries") return weights.subarray(index * columns, (index + 1) * columns);
  return Float32Array.from({length: rows}, (_, row) => weights[row * columns + index]);
}

// The token whose ribbons are shown alone, or null.
export function shownToken() {
  if (views[state.view].token) return views[state.view].token();
  if (state.isLocked) return {side: state.side, index: state.side === "queries" ? state.row : state.column};
  return story.pointed;
}

// --- Sentences ----------------------------------------------------------------------------------------

export function storySentence(token) {
  const attention = storyAttention();
  if (isSummaryShown() ? !headsOn(attention, state.layer).length : isOff(attention, state.layer, state.head)) {
    return `${isSummaryShown() ? "These heads are" : `Head ${state.head} is`} switched off: the model does not use what it would attend to.`;
  }
  if (!token) {
    const weights = storyWeights(), unmasked = Array(attention.rows).fill(attention.columns);
    attention.mask?.forEach((isHidden, i) => { unmasked[Math.floor(i / attention.columns)] -= isHidden; });
    const order = [...weights.keys()].sort((i, j) => weights[j] - weights[i]);
    const best = order.find(i => unmasked[Math.floor(i / attention.columns)] > 1) ?? order[0];  // one key alone has all the weight
    if (!(weights[best] > 0)) return "All weights are zero.";
    const row = Math.floor(best / attention.columns), column = best % attention.columns;
    return `The largest weight: ${nameToken(attention.queries[row])} attends to ${nameToken(attention.keys[column])} (${wholePercent(weights[best])}).`;
  }
  const name = nameToken(tokensOf(attention, token.side)[token.index]), best = attendsMost(token);
  if (token.side === "queries") return best ? `${name} attends most to ${best}.` : `${name} is fully masked: it attends to no token.`;
  return best ? `${name} receives most attention from ${best}.` : `${name} receives no attention.`;
}

function attendsMost(token) {
  const weights = weightsAt(token), names = tokensOf(storyAttention(), OTHER_SIDE[token.side]);
  const sorted = [...weights.keys()].filter(i => weights[i] > 0).sort((a, b) => weights[b] - weights[a]);
  const best = sorted.filter((column, i) => i === 0 || weights[column] >= .005).slice(0, 2);
  return best.map(i => `${nameToken(names[i])} (${wholePercent(weights[i])})`).join(", then ");
}

function writeSentence() {
  const token = shownToken(), attention = storyAttention();
  let text = storySentence(token);
  if (token && state.isLocked) {
    const other = story.pointed?.side === OTHER_SIDE[token.side] ? story.pointed.index : token.side === "queries" ? state.column : state.row;
    const [row, column] = token.side === "queries" ? [token.index, other] : [other, token.index], weights = weightsAt(token);
    const masked = isMasked(attention, row, column) ? ", masked" : "", isStrongest = weights.every(x => x <= weights[other]);
    if (!isStrongest) text += ` The weight of ${nameToken(attention.queries[row])} to ${nameToken(attention.keys[column])} is ${wholePercent(weights[other])}${masked}.`;
  }
  text = text[0].toUpperCase() + text.slice(1);
  if ($("story-sentence").textContent !== text) $("story-sentence").textContent = text;
}

// --- Drawing ------------------------------------------------------------------------------------------

function buildTokens() {
  const attention = storyAttention(), focused = tokenAt(document.activeElement);
  for (const side of ["keys", "queries"]) {
    const items = story.layout[side], group = $(`story-${side}`), tokens = tokensOf(attention, side);
    group.setAttribute("aria-label", `${axisLabel(attention, side)}; arrow keys move, Enter keeps a token`);
    group.replaceChildren(...items.map(item => {
      const token = tokens[item.index], button = make("button", {type: "button", className: item.isChip ? "token chip" : "token"}, item.text);
      if (item.gloss) button.append(make("small", {textContent: item.gloss}));
      button.lang = data.languages[side === "keys" && !attention.isSelf || attention.queryAxis === "source" ? 0 : 1] ?? "";
      if (item.text !== token) { button.ariaLabel = token.trim() === "" ? "empty token" : token; button.title = token; }
      else if (token === "") button.ariaLabel = "empty token";
      else if (item.isPiece) button.title = `${token}: ${item.begins ? "begins" : "continues"} a word`;
      button.tabIndex = -1;
      button.dataset.index = item.index;
      Object.assign(button.style, {
        left: `${item.x}px`, top: `${item.y}px`, width: `${item.width}px`, height: `${item.height}px`,
        fontSize: `${story.layout.size}px`,
      });
      return button;
    }));
    group.children[side === "keys" ? state.column : state.row].tabIndex = 0;
    const isShort = story.layout.isColumns && attention.isSelf;  // both axes are of the same tokens, and there is little room
    $(`story-${side}-axis`).textContent = isShort ? {keys: "Keys", queries: "Queries"}[side] : axisLabel(attention, side);
  }
  if (focused) $(`story-${focused.side}`).children[focused.index]?.focus({preventScroll: true});
  $("story-figure").style.height = `${story.layout.height}px`;
  $("story").classList.toggle("columns", Boolean(story.layout.isColumns));
  $("story").classList.toggle("low", Boolean(story.layout.isLow));
  $("story-queries-axis").style.top = story.layout.isColumns ? "0" : `${story.layout.height - 20}px`;
}

// Paint a scene on one of the two canvases, in at most 12 million pixels.
function paintStory(scene, canvas, part = 1) {
  const area = scene.width * scene.height, scale = Math.min(window.devicePixelRatio || 1, Math.sqrt(12e6 / area));
  const width = Math.round(scene.width * scale), height = Math.round(scene.height * scale), context = canvas.getContext("2d");
  if (canvas.width !== width || canvas.height !== height) {
    Object.assign(canvas, {width, height});
    canvas.style.width = `${scene.width}px`;
    canvas.style.height = `${scene.height}px`;
  }
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, width, height);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.save();
  if (part < 1) {
    context.beginPath();
    context.rect(0, 0, ...(story.layout.isColumns ? [part * scene.width, scene.height] : [scene.width, part * scene.height]));
    context.clip();
  }
  paint(scene, context);
  context.restore();
}

function drawAllRibbons() {
  const {layout} = story, key = [state.attention, state.layer, state.head, theme(), layout.width].join(" ");
  if (story.painted === key) return;
  story.painted = key;
  const scene = new Scene(layout.width, layout.height), ribbons = ribbonsOf(layout, null);
  drawRibbons(scene, layout, ribbons, palette());
  drawQueryBars(scene, layout, null);
  story.drawn.all = ribbons.length;
  paintStory(scene, $("story-all"));
}

// The ribbons of the isolated token; `part` of them while they are animated.
function drawTokenRibbons(part = 1) {
  const token = shownToken(), {layout} = story, scene = new Scene(layout.width, layout.height);
  const ribbons = token ? ribbonsOf(layout, token) : [];
  drawRibbons(scene, layout, ribbons, palette(), {isAlone: true});
  if (token) {
    drawQueryBars(scene, layout, token);
    if (part === 1) drawPercentages(scene, layout, token, palette());
  }
  story.drawn.one = ribbons.length;
  const whole = layout.isColumns ? layout.width : layout.height, reach = (layout.keyEnd + part * (whole - layout.keyEnd)) / whole;
  paintStory(scene, $("story-one"), part < 1 ? reach : 1);
}

// Let the ribbons of the isolated token grow from its end.
export function growRibbons() {
  const start = performance.now();
  const go = now => {
    const x = Math.min(1, (now - start) / 550);
    drawTokenRibbons(1 - (1 - x) ** 3);
    story.frame = x < 1 ? requestAnimationFrame(go) : 0;
  };
  cancelAnimationFrame(story.frame);
  story.frame = requestAnimationFrame(go);
}

// What a pointer or the keyboard changes: the ribbons of one token, shades, percentages and the sentence.
export function drawPointed() {
  const attention = storyAttention(), token = shownToken(), colours = palette();
  drawTokenRibbons();  // first: text on a canvas waits for the styles of changed elements
  const {marksOf = () => "", isHiding = () => false} = views[state.view];
  $("story-all").style.opacity = isHiding() || token ? "0" : "1";
  for (const side of ["keys", "queries"]) {
    const buttons = $(`story-${side}`).children, isOther = token && token.side !== side;
    const weights = isOther ? weightsAt(token) : null;
    for (let index = 0; index < buttons.length; index++) {
      const button = buttons[index], isOwn = Boolean(token) && !isOther && token.index === index;
      const shade = isOther ? shadeOfToken(token, side, index, weights[index], colours) : null;
      const fill = shade ? `color-mix(in srgb, ${shade.colour} ${Math.round(100 * shade.part)}%, var(--panel))` : "";
      const masked = isOther && (side === "keys" ? isMasked(attention, token.index, index) : isMasked(attention, index, token.index));
      const isChosen = state.isLocked && index === (side === "keys" ? state.column : state.row);
      const {isChip, isPiece} = story.layout[side][index], look = `token${isChip ? " chip" : ""}${isPiece ? " piece" : ""}${isOwn ? " shown" : ""}${masked ? " masked" : ""}` +
        `${isChosen ? " chosen" : ""}${token && !isOther && !isOwn ? " faint" : ""}${marksOf(side, index)}`;
      if (button.className !== look) button.className = look;
      const pressed = String(isOwn && state.isLocked);
      if (button.getAttribute("aria-pressed") !== pressed) button.setAttribute("aria-pressed", pressed);
      if (button.style.backgroundColor !== fill) button.style.backgroundColor = fill;
    }
  }
  drawStoryLegend();
  writeSentence();
  drawLens();
}

export function drawStory(isNew) {
  if (story.layout?.attention !== state.attention) measureStory();
  if (!story.layout) return;
  const key = `${state.attention} ${state.view} ${story.layout.width} ${story.layout.size} ${story.layout.height}`;
  if (story.built !== key) {
    if (story.built.split(" ")[0] !== String(state.attention)) story.pointed = null;
    story.built = key;
    buildTokens();
  }
  drawAllRibbons();
  drawPointed();
}

function drawStoryLegend() {
  const {layout} = story, isAlone = shownToken() !== null, key = [isAlone, layout.isFew, state.head, theme(), storyAttention().name, leastDrawn(layout)].join();
  if (drawStoryLegend.key === key) return;
  drawStoryLegend.key = key;
  const scene = new Scene(256, 28);
  drawRibbonScale(scene, layout, 4, 14, palette(), isAlone);
  show(scene, $("story-scale"));
  const parts = [];
  if (isSummaryShown()) parts.push(`The colour of a line is that of the token ${layout.isColumns ? "on the right" : "below"}.`);
  parts.push(isAlone ? "Weights below 0.2 % are not drawn." : `${sayWhatIsDrawn(layout)}${layout.isFew ? "" : " A token that is pointed at shows all its weights."}`);
  const end = END_TOKENS.find(token => [...storyAttention().keys, ...storyAttention().queries].includes(token));
  if (end) parts.push(`${end} is the token that ends a sentence.`);
  $("story-note").textContent = parts.join(" ");
}

// --- Events -------------------------------------------------------------------------------------------

function tokenAt(target) {
  const button = target instanceof Element ? target.closest(".token") : null;
  return button && {side: button.parentElement.id === "story-keys" ? "keys" : "queries", index: Number(button.dataset.index)};
}
export const isSameToken = (a, b) => a?.side === b?.side && a?.index === b?.index;

function pointAt(token) {
  if (isSameToken(token, story.pointed)) return;
  story.pointed = token;
  cancelAnimationFrame(story.frame);
  drawPointed();
}

// Lock a token, or release it if it is locked. While one is locked, a token of the other side selects a cell.
function lockToken(token) {
  const {side, index} = token, shown = shownToken();
  if (state.isLocked && isSameToken(token, shown)) { releaseToken(); return; }
  if (state.isLocked && side !== state.side) { select(side === "keys" ? {column: index} : {row: index}); return; }
  const weights = weightsAt(token), best = weights.indexOf(Math.max(...weights));
  select({isLocked: true, side, row: side === "queries" ? index : best, column: side === "queries" ? best : index});
}

function releaseToken() {
  if (!isOverToken) story.pointed = null;
  select({isLocked: false});
}

export let isOverToken = false;
$("story-figure").addEventListener("pointerover", event => {
  if (event.pointerType === "touch") return;
  const token = tokenAt(event.target);
  isOverToken = Boolean(token);
  pointAt(token);
});
$("story-figure").addEventListener("pointerleave", () => { isOverToken = false; pointAt(null); });
$("story-figure").addEventListener("focusin", event => {
  const token = tokenAt(event.target);
  if (!token) return;
  for (const button of event.target.parentElement.children) if (button.tabIndex === 0) button.tabIndex = -1;
  event.target.tabIndex = 0;
  if (event.target.matches(":focus-visible")) pointAt(token);
});
$("story-figure").addEventListener("focusout", () => { if (!isOverToken) pointAt(null); });
$("story-figure").addEventListener("click", event => {
  const token = tokenAt(event.target);
  if (token) views[state.view].choose(token);
  else if (state.isLocked) releaseToken();
});
$("story-figure").addEventListener("keydown", event => {
  const token = tokenAt(event.target);
  if (!token || event.ctrlKey || event.altKey || event.metaKey) return;
  const buttons = $(`story-${token.side}`).children;
  const move = ARROWS[event.key], ends = {Home: 0, End: buttons.length - 1};
  const next = move ? wrap(token.index + move[0] + move[1], buttons.length) : ends[event.key];
  if (next === undefined) return;
  event.preventDefault();
  buttons[next].focus();
});

document.addEventListener("keydown", event => {
  if (state.view !== "story" || event.defaultPrevented) return;
  if (event.key === "Escape" && (state.isLocked || story.pointed)) { isOverToken = false; releaseToken(); }
});
