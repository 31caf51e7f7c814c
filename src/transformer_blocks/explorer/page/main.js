// Main: what all views share, and the first drawing.

// Draw the shown view: anew if it shows something else, and measured anew if it may have another size.
function render(isNew = false, isMeasured = isNew) {
  const view = views[state.view];
  if (state.view !== "story") stopPlaying();
  for (const [name, {sections}] of Object.entries(views)) {
    for (const section of sections) $(section).hidden = name !== state.view;
  }
  for (const [a, option] of [...$("attentions").children].entries()) mark(option, a === state.attention);
  for (const [i, option] of [...$("views").children].entries()) mark(option, Object.keys(views)[i] === state.view);
  if (isMeasured) view.measure();
  view.draw(isNew);
  $("lead").textContent = view.lead();  // which depends on the layout that was drawn
  drawWhy();
}

function mark(option, isChecked) {
  option.setAttribute("aria-checked", String(isChecked));
  option.tabIndex = isChecked ? 0 : -1;
}

// Fill a group of radio buttons, which arrow keys move through.
function fillRadioGroup(group, names, choose) {
  names.forEach((textContent, i) => {
    const option = make("button", {type: "button", role: "radio", textContent});
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

function fillAttentions() {
  $("attentions").replaceChildren();
  fillRadioGroup($("attentions"), attentions.map(attention => attention.name), i => select({attention: i}));
  $("attentions").hidden = attentions.length === 1;
}

// Replace what the page shows by other maps, decoding steps, title and name of the model.
function replaceMaps({attentions: others, ...shown}, change, record = false) {
  stopPlaying();
  attentions.splice(0, attentions.length, ...others);
  Object.assign(data, shown);
  $("title").textContent = $("title").title = document.title = shown.title;
  for (const kept of [summaryCache, decodedVectors]) kept.clear();
  for (const kept of [headVectors, lastShown, storyWeights, leastDrawn, drawStoryLegend, drawCandidates]) kept.key = "";
  shownLens = shownWhy = shownTable = paintedKey = story.built = story.painted = "";
  overview = story.layout = null;
  story.step = story.pointed = null;
  attentions.forEach(({vectors}, a) => { if (vectors) decodedVectors.set(a, vectors); });
  fillAttentions();
  const {attention, head, heads} = state;
  state.attention = -1;  // others than before
  select({attention: Math.min(attention, attentions.length - 1), head, heads, ...change}, {record});
  if (hasTimes) writeTime();
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("transformer_blocks.theme", name); } catch { /* a sandboxed frame */ }
  markTheme();
  render(true, false);  // the map stays where it was moved to
}
const markTheme = () => $("theme").setAttribute("aria-pressed", String(theme() === "dark"));

document.addEventListener("keydown", event => {
  if (!$("shortcuts").checked || $("poster").open || isTyping(event)) return;
  if (event.ctrlKey !== event.altKey || event.metaKey) return;  // both together are AltGr
  if (event.key === "[" || event.key === "]") select({attention: wrap(state.attention + (event.key === "]" ? 1 : -1), attentions.length)});
  else if (event.key === "p" && state.view === "map") togglePin();
});
$("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
let lastWidth = innerWidth;
window.addEventListener("resize", () => {
  const isOnlyBar = innerWidth === lastWidth && matchMedia("(pointer: coarse)").matches;  // a phone's address bar comes and goes
  lastWidth = innerWidth;
  if (!isOnlyBar) render(true);
});
window.addEventListener("popstate", () => {
  dropAddress();
  stopPlaying();
  $("poster").close();  // it shows what was selected before
  readAddress();
  render(true);
});

fillRadioGroup($("views"), Object.values(views).map(view => view.name), i => {
  select({view: Object.keys(views)[i]});
});
fillAttentions();
readAddress();
markTheme();
render(true);
if (hasTimes) showTimeOfAddress();
scrollToCell();
document.documentElement.dataset.ready = "true";
