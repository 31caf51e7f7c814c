// Why: the arithmetic of the selected weight, where the page has its queries, keys and values.

import {MINUS, computeArithmetic, decimal, decodeArithmetic, exactPercent, inBrackets, normOf, placesOfLargest, quoted, roundPercent, small, sumOf} from "./arithmetic.js";
import {drawFeatures} from "./charts.js";
import {$, attentions, data, headsOn, isOff, make, nameOf, plural, summaries, weightsOf} from "./data.js";
import {drawLens} from "./lens.js";
import {patternOf} from "./patterns.js";
import {forgetting, state, views} from "./registry.js";
import {select} from "./state.js";
import {isMotionReduced} from "./story.js";
import {theme} from "./style.js";

const STRONGEST = 5;  // keys that the panel lists; it adds up the others
let shownWhy = "", whyWidth = 0;
forgetting.push(() => { shownWhy = ""; });

export const part = (tag, className, ...children) => make(tag, {className}, ...children);
const badge = number => part("span", "badge", String(number));
const chart = (id, label) => {
  const canvas = make("canvas", {id});
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  return part("div", "chart", canvas);
};

// A step: its title, what it shows, and where the library explains and computes it.
function makeStep(number, id, title, ...children) {
  const step = part("article", "step", make("h3", {}, badge(number), ...title), ...children), source = data.lines?.[id];
  step.id = `why-${id}-step`;
  if (source) {
    const link = (textContent, page) => data.docs ? make("a", {textContent, href: data.docs + page, target: "_top"}) : textContent;
    step.append(part("footer", "source", link(source.chapter, source.page), " \u00b7 ", link(`attention.py, line ${source.line}`, "reference/blocks/attention.html"),
      make("code", {textContent: source.code})));
  }
  return step;
}

const fraction = (top, bottom) => part("span", "fraction", part("span", "", ...top), part("span", "", ...bottom));
const isRootOf = (scale, size) => Math.abs(scale * Math.sqrt(size) - 1) < 1e-6;  // whether the factor is that of the paper
const root = (...inside) => part("span", "root", "\u221a", part("span", "", ...inside));

// Equation 1 of the paper, and below it the same with the numbers of the selected weight.
function makeEquation(sum, {size, scale}) {
  const isRoot = isRootOf(scale, size);
  const below = isRoot ? [badge(2), root("d", make("sub", {textContent: "k"}))] : [badge(2), "1 / scale"];
  const symbols = part("div", "formula",
    badge(4), "softmax", part("span", "bracket", "("), fraction([badge(1), make("i", {textContent: "QK"}), make("sup", {textContent: "T"})], below),
    badge(3), part("span", "note", "mask"), part("span", "bracket", ")"), badge(5), make("i", {textContent: "V"}));
  const divisor = isRoot ? [root(String(size))] : [decimal(1 / scale)];
  const score = sum.masked ? decimal(-Infinity) : decimal(sum.score);
  const numbers = part("div", "formula numbers",
    fraction([decimal(sum.dot)], divisor), `= ${decimal(sum.score)}`, ...(sum.masked ? [part("span", "note", ` masked: ${score}`)] : []),
    part("span", "arrow", "\u2192"), fraction([`exp(${score})`], [part("span", "note", "sum over all keys")]),
    "=", make("strong", {textContent: exactPercent(sum.weight)}), part("span", "note", "times the value of this key"));
  return part("div", "equation", symbols, numbers);
}

function dotStep(sum, {size}) {
  const largest = placesOfLargest(sum.products.map(Math.abs), 2).sort((i, j) => Math.abs(sum.products[j]) - Math.abs(sum.products[i]));
  const named = largest.map(i => `feature ${i}: ${decimal(sum.query[i])} \u00d7 ${inBrackets(sum.key[i])} = ${decimal(sum.products[i])}`);
  const positive = sumOf(sum.products.filter(x => x > 0)), negative = sumOf(sum.products.filter(x => x < 0));
  return makeStep(1, "scores", ["Dot product of query and key"],
    chart("why-products", `Products of query and key by feature. Largest: ${named.join("; ")}.`),
    part("p", "detail", `Largest: ${named.join("; ")}.`),
    part("p", "result", "q \u00b7 k = ", make("strong", {textContent: decimal(sum.dot)}),
      part("span", "note", `sum of ${plural(size, "product")}: positive ${decimal(positive)}, negative ${decimal(negative)}`)));
}

function scaleStep(sum, {size, scale}, column) {
  const isRoot = isRootOf(scale, size), most = Math.max(...sum.unscaled);
  const rule = sum.isFullyMasked ? "All keys of this row are masked: the scale has no effect on its weights."
    : `Without ${isRoot ? "this division" : "this factor"}, the weight would be ${roundPercent(sum.unscaled[column])}${most > sum.unscaled[column] ? ` and the largest ${roundPercent(most)}` : ""}.`;
  return makeStep(2, "scale", isRoot ? ["Scale by 1 / ", root("d", make("sub", {textContent: "k"}))] : ["Scale"],
    part("p", "detail", rule),
    part("p", "result", isRoot ? `${decimal(sum.dot)} / \u221a${size} = ` : `${decimal(sum.dot)} \u00d7 ${decimal(scale, 4)} = `, make("strong", {textContent: decimal(sum.score)})));
}

function maskStep(sum) {
  const count = sum.masked.filter(Boolean).length, of = sum.masked.length;
  const rule = count === 0 ? "No key of this row is masked: every score stays as it is."
    : count === of ? "All keys of this row are masked: its weights and its output are zero."
    : `${count} of ${of} keys of this row ${count === 1 ? "is" : "are"} masked (hatched): the score is replaced by ${decimal(-Infinity)}, the weight is 0.`;
  return makeStep(3, "mask", ["Mask"],
    part("p", "detail", rule),
    part("p", "result", `${decimal(sum.score)} \u2192 `, make("strong", {textContent: sum.isMasked ? decimal(-Infinity) : decimal(sum.score)}),
      ...(sum.isMasked ? [part("span", "note", "this key is masked")] : [])));
}

// The strongest keys that are not masked and the selected one as a table; the others are added up.
function makeKeyTable(sum, place) {
  const attention = attentions[place.attention], names = ["score", sum.isFullyMasked ? "exp" : `exp(score ${MINUS} ${inBrackets(sum.largest)})`, "weight"];
  const most = Math.max(...sum.weights) || 1, strongest = placesOfLargest(sum.weights, STRONGEST);
  const listed = [...new Set([...strongest.filter(key => !sum.masked[key]), place.column])].sort((i, j) => i - j);
  const bar = weight => {
    const line = part("span", "bar");
    line.style.width = `${100 * weight / most}%`;
    return line;
  };
  const cells = (...texts) => texts.map(textContent => make("td", {textContent}));
  const rows = listed.map(key => {
    const button = make("button", {type: "button", textContent: attention.keys[key], title: `key ${key}: ${attention.keys[key]}`});
    button.dataset.key = key;
    button.setAttribute("aria-pressed", String(key === place.column));
    button.addEventListener("click", () => select({column: key, isLocked: true}));
    const score = sum.masked[key] ? decimal(-Infinity) : decimal(sum.scores[key]);
    return part("tr", key === place.column ? "now" : "", make("th", {scope: "row"}, button),
      ...cells(score, small(sum.exps[key])), part("td", "weight", bar(sum.weights[key]), make("span", {textContent: roundPercent(sum.weights[key])})));
  });
  const others = sum.scores.length - listed.length, without = numbers => Math.max(0, sumOf(numbers) - sumOf(listed.map(i => numbers[i])));
  if (others > 0) {
    const weight = without(sum.weights);
    rows.push(part("tr", "", make("th", {scope: "row", textContent: `${plural(others, "other key")}`}), ...cells("", small(without(sum.exps))),
      part("td", "weight", bar(Math.min(weight, most)), make("span", {textContent: roundPercent(weight)}))));
  }
  rows.push(part("tr", "sum", make("th", {scope: "row", textContent: "sum"}), ...cells("", small(sum.sum), roundPercent(sumOf(sum.weights)))));
  const head = make("tr", {}, ...["key", ...names].map(textContent => make("th", {scope: "col", textContent})));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function softmaxStep(sum, place) {
  const attention = attentions[place.attention], weight = make("strong", {id: "why-weight", textContent: exactPercent(sum.weight)});
  const reason = sum.isFullyMasked ? "All keys are masked, so the weight is " : sum.isMasked ? `exp(${decimal(-Infinity)}) = 0, so the weight is `
    : `${small(sum.exps[place.column])} / ${small(sum.sum)} = `;
  return makeStep(4, "softmax", ["Softmax over all keys"],
    makeKeyTable(sum, place),
    part("p", "result", reason, weight, part("span", "note", "the page stores ", make("span", {id: "why-stored", textContent: exactPercent(sum.stored)}), ", rounded")));
}

function outputStep(sum, place) {
  const attention = attentions[place.attention], most = sum.lengths.indexOf(Math.max(...sum.lengths));
  const others = most === place.column ? "no other key supplies more" : `${quoted(attention.keys[most])} supplies most, ${roundPercent(sum.lengths[most] / (sumOf(sum.lengths) || 1))}`;
  const rule = sum.isFullyMasked ? "The output of this row is zero."
    : `This key supplies ${roundPercent(sum.share)} of the sum of the lengths of all keys; ${others}.`;
  return makeStep(5, "output", ["Weight \u00d7 value"],
    chart("why-output", `Value of ${quoted(attention.keys[place.column])} times its weight, by feature, and the head's output.`),
    part("p", "detail", "Bars: the value of this key times its weight. Short lines: the output of the head, the sum over all keys."),
    part("p", "result", `${exactPercent(sum.weight)} \u00d7 v: length `, make("strong", {textContent: decimal(sum.lengths[place.column], 3)}),
      part("span", "note", `length of v: ${decimal(normOf(sum.value))}, of the output: ${decimal(normOf(sum.output))}`)),
    part("p", "detail", rule));
}

function showArithmetic(place) {
  const attention = attentions[place.attention], {arithmetic} = attention, found = computeArithmetic(place);
  const sum = {...found, dot: found.dots[place.column], score: found.scores[place.column], isMasked: found.masked[place.column]};
  const steps = [dotStep(sum, arithmetic), scaleStep(sum, arithmetic, place.column), maskStep(sum), softmaxStep(sum, place), outputStep(sum, place)];
  const focused = document.activeElement?.dataset?.key;
  $("why-body").replaceChildren(makeEquation({...sum, masked: sum.isMasked}, arithmetic), part("div", "steps", ...steps));
  if (focused !== undefined) $("why-body").querySelector(`[data-key="${place.column}"]`)?.focus({preventScroll: true});
  const canvases = [...$("why-body").querySelectorAll(".chart canvas")], widths = new Map(canvases.map(canvas => [canvas.id, canvas.parentElement.clientWidth]));
  const draw = (id, drawing, ...rest) => drawing($(id), widths.get(id), ...rest);
  draw("why-products", drawFeatures, {strips: [["query", sum.query], ["key", sum.key]], bars: sum.products, name: "product", height: 72});
  draw("why-output", drawFeatures, {strips: [["value", sum.value]], bars: sum.contribution, marks: sum.output, name: "w \u00d7 v", height: 110});
}

// The mean, rollout and several heads together are made of many weights: offer the heads.
function showHeads({attention: a, layer, head, row, column}) {
  const attention = attentions[a], summary = summaries(attention)[head - attention.heads];
  const sentence = summary === "mean" ? `The mean is the average of the weights of ${plural(headsOn(attention, layer).length, "head")}, and each head computes its own.`
    : "Rollout is a product of the means of this layer and the layers before it, and each of their heads computes its own weight.";
  const buttons = Array.from({length: attention.heads}, (_, i) => {
    const weight = weightsOf(a, layer, i)[row * attention.columns + column];
    const button = make("button", {type: "button", className: isOff(attention, layer, i) ? "off" : ""}, `head ${i}`, make("span", {textContent: roundPercent(weight)}));
    button.addEventListener("click", () => {
      select({head: i, isLocked: true});
      $("why-close")?.focus({preventScroll: true});
    });
    return button;
  });
  $("why-body").replaceChildren(part("p", "", `${sentence} Choose a head of layer ${layer} to see how its weight arises:`), part("div", "heads", ...buttons));
}

function buildWhy() {
  const close = make("button", {id: "why-close", type: "button", textContent: "Close"});
  close.addEventListener("click", closeWhy);
  $("why").replaceChildren(part("div", "top", make("h2", {textContent: "Why this weight?"}), make("p", {id: "why-cell"}), close),
    make("p", {id: "why-rule"}), make("div", {id: "why-body"}));
}

const closeWhy = () => select({isLocked: false});
let opener = null;  // what had the focus when the panel was opened
function hideWhy() {
  const isFocused = $("why").contains(document.activeElement);
  $("why").hidden = true;
  shownWhy = "";
  if (isFocused && opener?.isConnected) opener.focus({preventScroll: true});
}

function showWhy(place) {
  const {attention: a, layer, head, row, column} = place, attention = attentions[a];
  if (!$("why").contains($("why-cell"))) buildWhy();
  const name = patternOf(attention, layer, head), isSame = JSON.stringify(place) === shownWhy && $("why").clientWidth === whyWidth;
  if (isSame) return;
  shownWhy = JSON.stringify(place);
  whyWidth = $("why").clientWidth;
  const [from, to] = attention.isSelf ? ["query", "key"] : [attention.queryAxis ?? "query", attention.keyAxis ?? "key"];
  $("why-cell").replaceChildren(
    `${from} `, make("b", {textContent: quoted(attention.queries[row])}), ` \u2192 ${to} `,
    make("b", {textContent: quoted(attention.keys[column])}), part("span", "note", nameOf(place)), ...(name ? [part("span", "label", name)] : []));
  $("why-rule").hidden = !name || !data.rules?.[name];
  $("why-rule").textContent = name ? `${quoted(name)}: ${data.rules?.[name]}` : "";
  if (place.isHead) showArithmetic(place);
  else showHeads(place);
}

// Scroll only if the panel was opened outside the window, and only until its beginning is visible.
function revealWhy() {
  const box = $("why").getBoundingClientRect(), missing = box.top + Math.min(box.height, 360) - innerHeight;
  if (missing > 0) window.scrollBy({top: missing, behavior: isMotionReduced() ? "auto" : "smooth"});
}

// Why the page cannot show how a weight arises, or nothing.
function whyNot({arithmetic, isEarlier, ...attention}, layer, head) {
  if (isOff(attention, layer, head)) return `It is that of a head that is switched off, so it is 0 here.`;
  if (arithmetic) return "";
  if (isEarlier) return "The page has the queries, keys and values of the last time only.";
  return data.leftOut ? `The queries, keys and values of this page were left out: they take ${data.leftOut.toLocaleString("en")} kB. ` +
    `In Python, dataclasses.replace(page, arithmetic_kilobytes=${data.leftOut}).save("page.html") keeps them.` : "";
}

export function drawWhy() {
  drawPanel();
  $("to-why").hidden = $("why").hidden || state.view !== "story";
}

let wasLocked = null, isRevealing = false;  // an address with a locked cell opens the panel, but does not scroll to it
function drawPanel() {
  const {attention, layer, head, row, column, isLocked} = state, isHead = head < attentions[attention].heads;
  drawLens();
  isRevealing = isLocked && (isRevealing || wasLocked === false);
  wasLocked = isLocked;
  if (views[state.view].hasPanel?.() === false) { hideWhy(); return; }
  const {arithmetic} = attentions[attention], reason = isLocked && whyNot(attentions[attention], layer, head);
  if (reason) {
    $("why").hidden = false;
    $("why").replaceChildren(make("p", {className: "note", textContent: `Why this weight? ${reason}`}));
    return;
  }
  if (!isLocked || !arithmetic) { hideWhy(); return; }
  if (isHead && !attentions[attention].vectors) { decodeArithmetic(attentions[attention]); return; }
  if ($("why").hidden) opener = document.activeElement;
  $("why").hidden = false;
  showWhy({attention, layer, head, row, column, isHead, theme: theme()});
  if (isRevealing && isHead && state.view !== "story") revealWhy();  // a button of the story leads there, and its lines stay visible
  isRevealing = false;
}

$("to-why").addEventListener("click", () => $("why").scrollIntoView({block: "start", behavior: isMotionReduced() ? "auto" : "smooth"}));
document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || event.defaultPrevented || $("why").hidden || event.target.closest?.("dialog")) return;
  closeWhy();
});
