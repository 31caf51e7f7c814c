// Ribbons: the places of the tokens and the lines between them, on the page and in pictures.

import {placesOfLargest} from "./arithmetic.js";
import {$, END_TOKENS, data, lettersIn} from "./data.js";
import {state, views} from "./registry.js";
import {Scene, isUpright, mostThatFit, textWidth} from "./scene.js";
import {reader, sayText} from "./sentences.js";
import {COLUMNS, LINES_OF_QUERY, MANY_TOKENS, MOST_RIBBONS, MOST_TOKENS, NARROW, OTHER_SIDE, PERCENT_ROOM, PERCENT_WIDTH, RIBBON_WIDTH, isCoarsePointer, isSummaryShown, shownToken, story, storyAttention, storySentence, storyWeights, tokensOf, weightsAt, wholePercent} from "./story.js";
import {channels, lineColour} from "./style.js";

// --- Places of the tokens -----------------------------------------------------------------------------

// Shorten a text to a width; the whole text remains the label of its button.
function shortenText(text, size, room) {
  if (textWidth(text, size) <= room) return text;
  const letters = lettersIn(text);
  return `${letters.slice(0, mostThatFit(letters.length, count => textWidth(`${letters.slice(0, count).join("")}…`, size) <= room)).join("")}…`;
}

// Whether a token begins and ends its word.
const placeInWord = (words, index) => ({begins: index === 0 || words[index] === "1", ends: index + 1 === words.length || words[index + 1] === "1"});

// What a token means in English, where the page knows it; and the sign of the token that ends a text.
export const glossOf = (side, token) => side === "keys" && reader === "en" && data.glosses[token] || "";
const GLOSS = 13;
export const signOf = token => state.view === "screens" && END_TOKENS.includes(token) ? sayText("end") : token;
const hasGlosses = () => tokensOf(storyAttention(), "keys").some(token => glossOf("keys", token));

// Set one side's tokens in lines of text: subwords of one word together, words apart.
function setLines(side, {width, size, height, isFew}) {
  const attention = storyAttention(), tokens = tokensOf(attention, side), words = side === "keys" ? attention.keyWords : attention.queryWords;
  const items = tokens.map((token, index) => {
    const isChip = token === "" || isUpright(token), {begins, ends} = placeInWord(words, index);
    const pad = isChip ? .45 * size : .22 * size;
    const text = shortenText(signOf(token).replace(/\s/gu, " "), size, Math.min(width - 2 * pad, 16 * size)), gloss = glossOf(side, token);
    const inside = Math.max(textWidth(text, size), textWidth(gloss, GLOSS)) + (begins || isChip ? pad : 1) + (ends || isChip ? pad : 1);
    return {index, text, gloss, isChip, begins, isPiece: !(begins && ends), width: Math.ceil(Math.min(width, Math.max(inside, begins && ends ? 1.1 * size : .7 * size)))};
  });
  const isRightToLeft = 2 * tokens.filter(token => /^\P{L}*[\p{Script=Arabic}\p{Script=Hebrew}]/u.test(token)).length > tokens.length;
  const gapOf = item => item.begins ? (item.isChip ? .35 : .2) * size : 1;
  const natural = items.reduce((sum, item, i) => sum + item.width + (i ? gapOf(item) : 0), 0);
  const breaks = items.filter((item, i) => i && item.begins).length;
  const stretch = isFew && natural <= width && breaks ? Math.min(1.3 * size, (width - natural) / breaks) : 0;
  const lines = [];
  let line = null;
  for (const item of items) {
    const gap = gapOf(item) + (item.begins ? stretch : 0);
    let word = item.width;  // a word is not divided unless it is wider than the line
    for (let i = item.index + 1; i < items.length && !items[i].begins; i++) word += items[i].width + 1;
    const needs = item.begins && word <= width ? word : item.width;
    if (!line || line.width + gap + needs > width + .5) {
      line = {items: [], width: 0};
      lines.push(line);
    }
    item.x = line.width + (line.items.length ? gap : 0);
    line.items.push(item);
    line.width = item.x + item.width;
  }
  for (const line of lines) {
    const shift = isFew ? (width - line.width) / 2 : 0;
    for (const item of line.items) item.x = isRightToLeft ? width - shift - item.x - item.width : item.x + shift;
  }
  lines.forEach((line, i) => line.items.forEach(item => Object.assign(item, {line: i, height})));
  return {items, lines: lines.length};
}

// The width of a token in a column, with what it means below it, or beside it where rows are low.
function widthInColumn(text, gloss, size, isLow) {
  const own = Math.max(textWidth(text, size) + .9 * size, 1.5 * size), other = gloss ? textWidth(gloss, GLOSS) + 4 : 0;
  return Math.ceil(isLow ? own + other : Math.max(own, other));
}

// The widths of both columns, with their percentages: what the longest token needs, as far as there is space.
function columnRooms(width, size, isLow) {
  const needs = ["keys", "queries"].map(side => PERCENT_WIDTH + Math.max(...tokensOf(storyAttention(), side).map(token => widthInColumn(signOf(token), glossOf(side, token), size, isLow))));
  return needs.map((need, i) => Math.min(need, Math.max(COLUMNS * width / 2, COLUMNS * width - needs[1 - i])));
}

// Set one side's tokens below each other; those of the keys end where the ribbons begin.
function setColumn(side, {width, size, height, all, top, room, isLow}) {
  const attention = storyAttention(), tokens = tokensOf(attention, side), step = all / tokens.length;
  return tokens.map((token, index) => {
    const {begins, ends} = placeInWord(side === "keys" ? attention.keyWords : attention.queryWords, index);
    const text = shortenText(signOf(token).replace(/\s/gu, " "), size, room - PERCENT_WIDTH - .9 * size), space = room - PERCENT_WIDTH - 4, meaning = glossOf(side, token);
    const gloss = meaning && shortenText(meaning, GLOSS, space - (isLow ? widthInColumn(text, "", size) : 0)), own = widthInColumn(text, gloss, size, isLow);
    return {index, text, gloss, isChip: token === "" || isUpright(token), begins, isPiece: !(begins && ends), line: index, height, width: own,
      x: side === "keys" ? room - own : width - room, y: top + index * step + (step - height) / 2};
  });
}

// Place both sides within a width: in lines above each other, on a narrow screen in columns beside each
// other. Pictures take the size of text on a screen with a mouse.
function layOutStory(width, {coarse = false, isSmall = false} = {}) {
  const attention = storyAttention(), count = Math.max(attention.rows, attention.columns), isFew = count <= MANY_TOKENS;
  const size = width < 560 ? (count <= 60 ? 16 : 14) : count <= 14 ? 21 : isFew ? 18 : count <= 64 ? 16 : count <= 160 ? 14 : 13;
  const height = coarse ? 44 : Math.round(1.65 * size), step = height + PERCENT_ROOM + 1;
  const shared = {
    attention: state.attention, width, size, isFew, isColumns: width < NARROW, least: isFew || count > MOST_TOKENS ? .01 : .05,
    many: isFew ? RIBBON_WIDTH : Math.max(5, RIBBON_WIDTH * MANY_TOKENS / count),
  };
  if (shared.isColumns) {
    const row = isSmall ? 26 : count > 12 ? 32 : 44, all = count * (row + 4), top = 26;  // the shorter side is spread
    const rooms = columnRooms(width, size, isSmall);
    const [keys, queries] = ["keys", "queries"].map((side, i) => setColumn(side, {width, size, height: row, all, top, room: rooms[i], isLow: isSmall}));
    return {...shared, isLow: isSmall, keys, queries, keyEnd: rooms[0], queryStart: width - rooms[1], height: top + all + 22, isWrapped: false};
  }
  const keyHeight = height + (hasGlosses() ? 1.2 * GLOSS : 0), keyStep = step + keyHeight - height;
  const keys = setLines("keys", {width, size, height: keyHeight, isFew});
  const queries = setLines("queries", {width, size, height, isFew});
  const top = 24, gap = Math.round(Math.max(150, Math.min(220, .3 * width)));
  for (const item of keys.items) item.y = top + item.line * keyStep + PERCENT_ROOM;
  const keyEnd = top + keys.lines * keyStep, queryStart = keyEnd + gap;
  for (const item of queries.items) item.y = queryStart + item.line * step;
  return {
    ...shared, keys: keys.items, queries: queries.items, keyEnd, queryStart,
    height: queryStart + queries.lines * step + 22, isWrapped: Math.max(keys.lines, queries.lines) > 1,
  };
}

export function measureStory() {
  const width = $("story-figure").clientWidth;
  if (width) story.layout = layOutStory(width, {coarse: isCoarsePointer(), isSmall: views[state.view].isSmall?.()});
  story.painted = "";
}

// --- Ribbons ------------------------------------------------------------------------------------------

// Where one summary is shown, each query has a colour that differs from its neighbours'.
const queryColour = row => lineColour(row);

// The width of a ribbon whose weight is 1.
const ribbonWidth = (layout, isAlone) => isAlone || layout.isFew ? RIBBON_WIDTH : layout.many;

// Samples of lines with their weights, from (x, y) to the right.
export function drawRibbonScale(scene, layout, x, y, colours, isAlone) {
  const stroke = isSummaryShown() ? colours.muted : lineColour(state.head), full = ribbonWidth(layout, isAlone);
  [.1, .5, 1].forEach((weight, i) => {
    const from = x + 82 * i;
    scene.path(`M${from} ${y}L${from + 34} ${y}`, {stroke, line: Math.max(.6, full * weight), opacity: .5 + .4 * weight});
    scene.text(from + 40, y, `${100 * weight} %`, {fill: colours.text, size: 12});
  });
}

// The places of the weights of which a ribbon may be drawn: of many tokens, the largest of each query.
export function drawnPlaces(weights, {rows, columns}) {
  if (Math.max(rows, columns) <= MOST_TOKENS) return [...weights.keys()];
  return Array.from({length: rows}, (_, row) => placesOfLargest(weights.subarray(row * columns, (row + 1) * columns), LINES_OF_QUERY).map(column => row * columns + column)).flat();
}

export function sayWhatIsDrawn(layout) {
  const {rows, columns} = storyAttention(), least = wholePercent(leastDrawn(layout));
  return Math.max(rows, columns) > MOST_TOKENS ? `Drawn are the ${LINES_OF_QUERY} largest weights of each query, of at least ${least}.` : `Weights below ${least} are not drawn.`;
}

// The smallest weight of which a ribbon is drawn while no token is isolated, so that there are not too many.
export function leastDrawn(layout) {
  const key = [state.attention, state.layer, state.head, layout.least].join(" ");
  if (leastDrawn.key === key) return leastDrawn.least;
  const weights = storyWeights(), found = drawnPlaces(weights, storyAttention()).map(i => weights[i]).filter(weight => weight >= layout.least);
  const least = found.length > MOST_RIBBONS ? Float32Array.from(found).sort()[found.length - MOST_RIBBONS] : layout.least;
  Object.assign(leastDrawn, {key, least});
  return least;
}

// The ribbons of all tokens, or of one: with {row, column, weight, colour, width}, weak ones first.
export function ribbonsOf(layout, token) {
  const attention = storyAttention(), weights = storyWeights(), ribbons = [], summary = isSummaryShown();
  const each = ribbonWidth(layout, Boolean(token));
  const least = token ? .002 : leastDrawn(layout);
  for (const i of token ? weights.keys() : drawnPlaces(weights, attention)) {
    const row = Math.floor(i / attention.columns), column = i % attention.columns, weight = weights[i];
    if (weight < least || (token && token.index !== (token.side === "queries" ? row : column))) continue;
    ribbons.push({row, column, weight, colour: summary ? queryColour(row) : lineColour(state.head), width: Math.max(.6, each * weight)});
  }
  spreadEnds(ribbons, layout, "queries");
  spreadEnds(ribbons, layout, "keys");
  return ribbons.sort((a, b) => a.weight - b.weight);
}

// Set the ends of ribbons side by side along their token, in the order of their other ends.
function spreadEnds(ribbons, layout, side) {
  const own = side === "queries" ? "row" : "column", other = side === "queries" ? "column" : "row";
  const [place, size] = layout.isColumns ? ["y", "height"] : ["x", "width"];
  const others = layout[OTHER_SIDE[side]], groups = new Map();
  for (const ribbon of ribbons) {
    if (!groups.has(ribbon[own])) groups.set(ribbon[own], []);
    groups.get(ribbon[own]).push(ribbon);
  }
  for (const [index, group] of groups) {
    const item = layout[side][index], total = group.reduce((sum, ribbon) => sum + ribbon.width, 0);
    const room = Math.max(0, item[size] - 4), scale = Math.min(1, room / total), middle = item[place] + item[size] / 2;
    group.sort((a, b) => others[a[other]][place] - others[b[other]][place]);
    let at = middle - total * scale / 2;
    for (const ribbon of group) {
      ribbon[side] = at + ribbon.width * scale / 2;
      at += ribbon.width * scale;
    }
  }
}

const isDarkPalette = colours => channels(colours.background).reduce((sum, x) => sum + x) < 384;

// Ribbons are more opaque on a dark background, where transparent ones would be dull.
export function drawRibbons(scene, layout, ribbons, colours, {isAlone = false} = {}) {
  const least = isDarkPalette(colours) ? .16 : .06;
  for (const ribbon of ribbons) {
    const key = layout.keys[ribbon.column], query = layout.queries[ribbon.row];
    const [from, to] = layout.isColumns ? [key.x + key.width + 1, query.x - 4] : [key.y + key.height + 1, query.y - 4], middle = (from + to) / 2;
    const points = [[ribbon.keys, from], [ribbon.keys, middle], [ribbon.queries, middle], [ribbon.queries, to]]
      .map(point => (layout.isColumns ? point.reverse() : point).map(x => x.toFixed(1)).join(" "));
    const opacity = isAlone ? .4 + least + .45 * ribbon.weight : least + .7 * Math.sqrt(ribbon.weight) * (layout.isFew ? 1 : .8);
    scene.path(`M${points[0]}C${points.slice(1).join(" ")}`,
      {stroke: ribbon.colour, line: ribbon.width, opacity: Math.min(1, opacity)});
  }
}

// The colour of each query, at the ends of its ribbons.
export function drawQueryBars(scene, layout, token) {
  if (!isSummaryShown()) return;
  layout.queries.forEach((item, row) => {
    if (token?.side === "queries" && token.index !== row) return;
    const bar = layout.isColumns ? [item.x - 4, item.y + 2, 3, item.height - 4] : [item.x + 2, item.y - 4, Math.max(4, item.width - 4), 3];
    scene.rect(...bar, {fill: queryColour(row), radius: 1.5});
  });
}

// Percentages at the strongest tokens of the other side, where they do not overlap.
export function drawPercentages(scene, layout, token, colours) {
  const side = OTHER_SIDE[token.side], weights = weightsAt(token), placed = [];
  const best = [...weights.keys()].filter(i => weights[i] >= .03).sort((a, b) => weights[b] - weights[a]).slice(0, 12);
  const extra = [story.pointed?.side === side ? story.pointed.index : -1, state.isLocked ? (side === "keys" ? state.column : state.row) : -1];
  for (const index of new Set([...extra.filter(i => i >= 0), ...best])) {
    const item = layout[side][index], text = wholePercent(weights[index]), half = textWidth(text, 12, "bold") / 2 + 3;
    if (layout.isColumns) {
      const [x, anchor] = side === "keys" ? [item.x - 4, "end"] : [item.x + item.width + 4, "start"];
      scene.text(x, item.y + item.height / 2, text, {size: 12, anchor, fill: colours.text, weight: "bold"});
      continue;
    }
    const x = Math.max(half, Math.min(layout.width - half, item.x + item.width / 2));
    if (placed.some(each => each.line === item.line && Math.abs(each.x - x) < each.half + half)) continue;
    placed.push({line: item.line, x, half});
    scene.text(x, side === "keys" ? item.y - 8 : item.y + item.height + 8, text, {size: 12, anchor: "middle", fill: colours.text, weight: "bold"});
  }
}

// --- The picture for posters --------------------------------------------------------------------------

export function storyScene(colours, {width = 1000} = {}) {
  const token = state.isLocked ? shownToken() : null, layout = layOutStory(width);
  const attention = storyAttention(), scene = new Scene(width, layout.height + 14);
  drawRibbons(scene, layout, ribbonsOf(layout, token), colours, {isAlone: Boolean(token)});
  drawQueryBars(scene, layout, token);
  scene.text(0, 10, axisLabel(attention, "keys"), {fill: colours.muted, size: 15, room: width});
  for (const side of ["keys", "queries"]) for (const item of layout[side]) {
    const shade = shadeOfToken(token, side, item.index, token && token.side !== side ? weightsAt(token)[item.index] : 0, colours);
    const isPlain = !item.isChip && !shade;
    if (!isPlain || layout.isWrapped) scene.rect(item.x, item.y, item.width, item.height, {
      fill: isPlain ? colours.background : colours.panel, radius: 6, opacity: isPlain ? .8 : 1,
      stroke: item.isChip ? mixColours(colours.muted, colours.background, .35) : "none",
    });
    if (item.isPiece) scene.rect(item.x, item.y + item.height - 2, item.width + 1, 2, {fill: colours.muted});
    if (shade) scene.rect(item.x, item.y, item.width, item.height, {fill: shade.colour, opacity: shade.part, radius: 6});
    const isFaint = token && token.side === side && token.index !== item.index, isOwn = token && token.side === side && !isFaint;
    if (isOwn) scene.rect(item.x, item.y, item.width, item.height, {fill: colours.text, radius: 6});
    const middle = item.y + item.height / 2, fill = isOwn ? colours.background : isFaint ? colours.muted : colours.text;
    scene.text(item.x + item.width / 2, middle - (item.gloss ? 8 : 0), item.text, {size: layout.size, anchor: "middle", fill, room: item.width});
    if (item.gloss) scene.text(item.x + item.width / 2, middle + 13, item.gloss, {size: GLOSS, anchor: "middle", fill: isOwn ? fill : colours.muted, room: item.width});
  }
  if (token) drawPercentages(scene, layout, token, colours);
  const scale = 248;
  scene.text(0, layout.height, axisLabel(attention, "queries"), {fill: colours.muted, size: 15, room: width - scale - 140});
  scene.text(width - scale - 10, layout.height, "attention weight", {fill: colours.muted, size: 12, anchor: "end"});
  drawRibbonScale(scene, layout, width - scale, layout.height, colours, Boolean(token));
  return scene;
}

const mixColours = (a, b, part) => `rgb(${channels(a).map((x, i) => Math.round(part * x + (1 - part) * channels(b)[i])).join(" ")})`;

// How a token is shaded while a token of the other side is isolated: by its weight.
export function shadeOfToken(token, side, index, weight, colours) {
  if (!token || token.side === side || weight < .01) return null;
  const row = side === "queries" ? index : token.index;
  const ink = isSummaryShown() ? queryColour(row) : lineColour(state.head);
  return {colour: ink, part: .1 + .4 * weight};
}

// The name of a side with its role: "Source (keys)".
export function axisLabel(attention, side) {
  const axis = side === "keys" ? attention.keyAxis : attention.queryAxis;
  if (axis === "key" || axis === "query") {
    if (attention.isDecoding && attention.isSelf) return `Input of the decoder (${side})`;
    return attention.isDecoding && side === "queries" ? "Output (queries)" : side === "keys" ? "Keys" : "Queries";
  }
  return `${axis[0].toUpperCase()}${axis.slice(1)} (${side})`;
}

export function storyCaption() {
  const token = state.isLocked ? shownToken() : null;
  const what = "Each line is an attention weight: the thicker, the larger";
  const colours = isSummaryShown() ? "; its colour is that of the token below" : "";
  return `${what}${colours}.${token ? ` ${storySentence(token)}` : ` ${sayWhatIsDrawn(layOutStory(1000))}`}`;
}
