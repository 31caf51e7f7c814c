// Registry: what is selected, and what the scripts add to it. It imports nothing, so that all others can.

export const views = {};     // by name, see main.js
export const features = {};  // what the scripts add that only some pages have: times, live
export const forgetting = [];  // what scripts do when other maps are shown

export const state = {
  view: "screens",  // "screens"; in the laboratory, "story" or "map"
  screen: 0,        // index of the screen
  attention: 0,     // index of the attention maps
  layer: 0,
  head: 0,          // column of the overview: a head, the mean or rollout
  row: 0,           // selected query
  column: 0,        // selected key
  side: "queries",  // side of the token that the story shows alone while it is locked
  isLocked: false,  // whether a pointer that moves over tokens or cells leaves the selection as it is
  text: null,       // the typed text that the page shows
  off: [],          // names of the model's parts that are switched off
  sequence: 0,      // index of the page's sequence, and of the time of a training; null: the last one
  time: null,
};
export const contentOf = ({text, off, sequence, time}) => JSON.stringify([text, off, sequence, time]);
