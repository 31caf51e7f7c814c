// Logit lens: what the output layer would predict after each layer.

import {quoted, roundPercent} from "./arithmetic.js";
import {$, attentions, data, make} from "./data.js";
import {forgetting, state} from "./registry.js";
import {shownToken} from "./story.js";
import {part} from "./why.js";

function makeScrolling(label, ...children) {
  const region = make("div", {className: "scroll", tabIndex: 0, role: "region"}, ...children);
  region.setAttribute("aria-label", label);
  return region;
}

const ORDINALS = ["most probable", "2nd", "3rd"];
let shownLens = "";
forgetting.push(() => { shownLens = ""; });
// It is that of the token that a reader chose.
export function drawLens() {
  const attention = attentions[state.attention], steps = data.decoding, layers = steps && (steps.layers ?? [steps.candidates]);
  const chosen = state.view === "story" ? shownToken() : state.isLocked ? {side: "queries", index: state.row} : null, step = chosen?.index;
  $("lens").hidden = !layers || !attention.isDecoding || chosen?.side !== "queries" || state.view === "screens";
  const key = $("lens").hidden ? "" : String(step);
  if (key === shownLens) return;
  shownLens = key;
  if (key === "") return;
  const token = steps.tokens[step], tops = layers.map(layer => layer[step] ?? []);
  const first = tops.findIndex(top => top[0]?.[2]), count = Math.max(...tops.map(top => top.length));
  const rows = tops.map((top, layer) => {
    const cells = Array.from({length: count}, (_, i) => {
      if (!top[i]) return make("td");
      const [text, probability, isChosen] = top[i], bar = part("span", "bar");
      bar.style.width = `${100 * probability}%`;
      return part("td", isChosen ? "chosen" : "", bar, part("div", "candidate", make("span", {textContent: text}), part("span", "probability", roundPercent(probability))));
    });
    const name = make("th", {scope: "row"}, steps.layers ? `layer ${layer}` : "all layers");
    return part("tr", layer === first ? "first" : "", name, ...cells);
  });
  const head = make("tr", {}, make("th", {scope: "col", textContent: "after"}), ...Array.from({length: count}, (_, i) => make("th", {scope: "col", textContent: ORDINALS[i] ?? `${i + 1}th`})));
  const result = first < 0 ? `${quoted(token)} is the most probable token after none of the layers.`
    : `${quoted(token)} becomes the most probable token after layer ${first} (of 0 to ${layers.length - 1}).`;
  $("lens").replaceChildren(make("h2", {textContent: `Logit lens: how ${quoted(token)} was predicted, step ${step}`}),
    make("p", {}, make("strong", {id: "lens-result", textContent: result}), " The logit lens applies the output layer to the output of every decoder layer (nostalgebraist, 2020)."),
    makeScrolling("probabilities after each layer", make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
}
