// Style: the palettes of the light and the dark theme, and the colours of weights.

import {data} from "./data.js";

export const theme = () => document.documentElement.dataset.theme;
export const palette = () => data.style.palettes[theme()];  // background, panel, text, muted, accent, weights, differences
export const lineColour = head => data.style.lines[head % data.style.lines.length];

export const channels = hex => [1, 3, 5].map(start => Number.parseInt(hex.slice(start, start + 2), 16));
export function colour(ramp, x) {  // [red, green, blue] of a number from 0 to 1
  const place = Math.max(0, Math.min(1, x)) * (ramp.length - 1);
  const index = Math.min(ramp.length - 2, Math.floor(place)), part = place - index;
  const from = channels(ramp[index]), to = channels(ramp[index + 1]);
  return from.map((channel, i) => Math.round(channel + part * (to[i] - channel)));
}

const colourTables = new Map();
function colourTableOf(ramp) {  // 4096 precomputed colours
  const key = ramp.join();
  if (!colourTables.has(key)) {
    const table = new Uint8ClampedArray(4096 * 4);
    for (let i = 0; i < 4096; i++) table.set([...colour(ramp, i / 4095), 255], 4 * i);
    colourTables.set(key, new Uint32Array(table.buffer));
  }
  return colourTables.get(key);
}

export function coloursOf(values, ramp, toUnit) {  // for Scene.cells
  const colours = new Uint32Array(values.length), table = colourTableOf(ramp);
  for (let i = 0; i < values.length; i++) colours[i] = table[Math.round(4095 * Math.max(0, Math.min(1, toUnit(values[i]))))];
  return colours;
}
