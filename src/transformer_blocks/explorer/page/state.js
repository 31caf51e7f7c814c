// State: what is selected is part of the address, so that a link restores it and "back" undoes.

import {attentions, columnsOf, data, sequences, summaryCache} from "./data.js";
import {render} from "./main.js";
import {forgetting, state, views} from "./registry.js";
import {clearestHead, stepsOf} from "./screens.js";

// The attention that a page shows first: of a decoder the cross-attention.
export function firstAttention() {
  const cross = attentions.findLastIndex(attention => attention.isDecoding && !attention.isSelf);
  return Math.max(0, cross >= 0 ? cross : attentions.findIndex(attention => attention.isDecoding));
}

const clampIndex = (text, below) => Math.max(0, Math.min(below - 1, Number.parseInt(text, 10) || 0));

// Select what the address names: without a view of the laboratory, a screen of the story.
export function readAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1)), read = name => parameters.get(name) ?? null;
  state.view = Object.hasOwn(views, read("v")) ? read("v") : "screens";
  state.screen = clampIndex(read("p"), stepsOf().length);
  const [first, firstLayer, firstHead] = state.view === "screens" ? clearestHead() : [firstAttention(), Infinity, Infinity];
  state.attention = clampIndex(read("a") ?? first, attentions.length);
  const attention = attentions[state.attention];
  state.layer = clampIndex(read("l") ?? Math.min(firstLayer, attention.layers - 1), attention.layers);
  state.head = clampIndex(read("h") ?? Math.min(firstHead, attention.heads), columnsOf(attention));
  state.row = clampIndex(read("q"), attention.rows);
  state.column = clampIndex(read("k"), attention.columns);
  state.isLocked = read("lock") === "1";
  state.side = state.isLocked && read("side") === "keys" ? "keys" : "queries";
  state.text = data.live ? read("s") : null;
  state.off = data.live ? (read("off") ?? "").split("~").filter(Boolean) : [];
  state.sequence = clampIndex(read("n"), sequences.length);
  const last = sequences[state.sequence].times.length - 1;
  state.time = read("t") && Number(read("t")) < last ? clampIndex(read("t"), last) : null;
}

function addressOf({view, screen, attention, layer, head, row, column, side, isLocked, text, off, sequence, time}) {
  const place = `a=${attention}&l=${layer}&h=${head}&q=${row}&k=${column}` +
    (isLocked ? `&lock=1${side === "keys" ? "&side=keys" : ""}` : "");
  return `#${view === "screens" ? `p=${screen}` : `v=${view}&${place}`}` + (text === null ? "" : `&s=${encodeURIComponent(text)}`) +
    (off.length ? `&off=${encodeURIComponent(off.join("~"))}` : "") + (sequence ? `&n=${sequence}` : "") + (time === null ? "" : `&t=${time}`);
}

let addressTimer = 0, isRecorded = false;
// Delayed: browsers limit how often a page may do this. Changes in quick succession are one entry
// of the history; what a pointer only passes over is none.
export function updateAddress(record) {
  isRecorded ||= record;
  clearTimeout(addressTimer);
  addressTimer = setTimeout(writeAddress, 200);
}

function writeAddress() {
  const address = addressOf(state), record = isRecorded;
  dropAddress();
  if (address === location.hash) return;
  try {
    if (record) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  } catch { /* a frame without an address */ }
}

// Forget changes that are not yet in the address: another address was opened.
export function dropAddress() {
  clearTimeout(addressTimer);
  isRecorded = false;
}

// Change the selection. With `record`, "back" undoes the change.
export function select(change, {record = true} = {}) {
  const isNew = change.attention !== undefined && change.attention !== state.attention;
  const isOther = change.view !== undefined && change.view !== state.view;
  Object.assign(state, change);
  const attention = attentions[state.attention];
  if (isNew && change.head === undefined) state.head = attention.heads;  // the mean: heads of different stacks have nothing in common
  state.layer = Math.min(state.layer, attention.layers - 1);
  state.head = Math.min(state.head, columnsOf(attention) - 1);
  state.row = Math.min(state.row, attention.rows - 1);
  state.column = Math.min(state.column, attention.columns - 1);
  if (!state.isLocked) state.side = "queries";
  render(isNew || isOther);
  updateAddress(record);
}

forgetting.push(() => summaryCache.clear());

export const ARROWS = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
export const wrap = (x, n) => (x + n) % n;
