// Main: what all views share.

import {$, attentions, data, make, sequences} from "./data.js";
import {drawChoices} from "./overview.js";
import {contentOf, features, forgetting, state, views} from "./registry.js";
import {ARROWS, dropAddress, readAddress, select, wrap} from "./state.js";
import {theme} from "./style.js";
import {drawWhy} from "./why.js";

const SECTIONS = ["choices", "story", "screen", "overview", "head"];  // that belong to one or two views

export const laboratory = () => Object.keys(views).filter(name => name !== "screens");

// Draw the shown view: anew if it shows something else, or may have another size.
export function render(isNew = false) {
  const view = views[state.view], isLaboratory = state.view !== "screens";
  document.documentElement.dataset.view = state.view;
  for (const section of SECTIONS) $(section).hidden = !view.sections.includes(section);
  $("tools").hidden = !isLaboratory;
  mark($("attentions"), state.attention);
  mark($("views"), laboratory().indexOf(state.view));
  if (isLaboratory) drawChoices();
  if (isNew) view.measure();
  view.draw(isNew);
  $("title").textContent = $("title").title = view.title?.() ?? data.title;
  drawWhy();
  for (const draw of Object.values(features)) draw.draw();
}

// Mark the chosen one of a group of radio buttons.
export function mark(group, chosen) {
  for (const [i, option] of [...group.children].entries()) {
    option.setAttribute("aria-checked", String(i === chosen));
    option.tabIndex = i === chosen ? 0 : -1;
  }
}

// Fill a group of radio buttons, which arrow keys move through; a label says more than the name, for readers who hear it.
export function fillRadioGroup(group, names, choose, labelOf = i => names[i]) {
  group.replaceChildren();
  names.forEach((textContent, i) => {
    const option = make("button", {type: "button", role: "radio", textContent, ariaLabel: labelOf(i)});
    option.addEventListener("click", () => choose(i));
    option.addEventListener("keydown", event => {
      const move = ARROWS[event.key];
      if (!move) return;
      event.preventDefault();
      const next = wrap(i + move[0] + move[1], names.length);
      choose(next);
      group.children[next].focus();
    });
    group.append(option);
  });
}

export function fillAttentions() {
  fillRadioGroup($("attentions"), attentions.map(attention => attention.name), i => select({attention: i}));
  $("attentions").hidden = attentions.length === 1;
}

// --- What the page shows of a text --------------------------------------------------------------------

export let shownContent = contentOf(state);

// Replace the maps, decoding steps, title and name of the model. What is selected remains if the same tokens stand there.
export function replaceMaps({attentions: others, decoding, title, model}, record = false) {
  const {attention: a, row, column, head} = state, next = others[Math.min(a, others.length - 1)];
  const isKept = attentions[a]?.queries[row] === next.queries[row] && attentions[a].keys[column] === next.keys[column];
  attentions.splice(0, attentions.length, ...others);
  Object.assign(data, {decoding, title, model});
  document.title = title;
  shownContent = contentOf(state);
  for (const forget of forgetting) forget();
  fillAttentions();
  state.attention = -1;  // others than before
  select({attention: Math.min(a, others.length - 1), head, ...(isKept ? {} : {row: 0, column: 0, isLocked: false})}, {record});
}

// Show what the state names: what the page holds, or what the model in the page computes.
export async function load({record = false, isAddress = false} = {}) {
  const {text, off, sequence, time} = state, {times} = sequences[sequence], kept = times[time ?? times.length - 1];
  features.live?.stop();
  if (text === null && !off.length && kept.attentions) replaceMaps(kept, record);
  else {
    const refusal = await features.live.show(text ?? sequences[sequence].text, off, record);
    if (refusal) [state.text, state.off, state.sequence, state.time] = JSON.parse(shownContent);
    if (refusal !== "") return;
  }
  if (!isAddress) return;
  dropAddress();
  readAddress();  // whose selection is of these maps
  render(true);
}

// Show another text, sequence or time, or the model without some parts. With `record`, "back" undoes it.
export function open(content, record = true) {
  Object.assign(state, {text: null, off: [], sequence: 0, time: null}, content);
  return load({record});
}

// --- Events -------------------------------------------------------------------------------------------

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("transformer_blocks.theme", name); } catch { /* a sandboxed frame */ }
  markTheme();
  render(true);
}
export const markTheme = () => $("theme").setAttribute("aria-pressed", String(theme() === "dark"));

$("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
let lastWidth = innerWidth;
window.addEventListener("resize", () => {
  const isOnlyBar = innerWidth === lastWidth && matchMedia("(pointer: coarse)").matches;  // a phone's address bar comes and goes
  lastWidth = innerWidth;
  if (!isOnlyBar) render(true);
});
window.addEventListener("popstate", () => {
  dropAddress();
  openAddress();
});

function openAddress() {
  readAddress();
  if (contentOf(state) === shownContent) {
    features.live?.stop();
    render(true);
  } else load({isAddress: true});
}
