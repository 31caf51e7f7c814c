// Times: sequences to choose from, and a slider over the times of a training at which the model read them.

import {$, data, make, sequences} from "./data.js";
import {open} from "./main.js";
import {features, state} from "./registry.js";
import {shownStep} from "./screens.js";

const lastTime = () => sequences[state.sequence].times.length - 1;
let timesTimer = 0;

// Show a time of the training; what a slider passes over is no entry of the history.
const showTime = index => open({sequence: state.sequence, time: index < lastTime() ? index : null}, false);

function playTimes(index) {
  timesTimer = index < lastTime() ? setTimeout(playTimes, 1500, index + 1) : 0;
  showTime(index);
}

function stopTimes() {
  clearTimeout(timesTimer);
  timesTimer = 0;
}

// What the model writes by itself at the shown time; a typed sentence is that of the last one.
function drawTimes() {
  if (state.text !== null || state.off.length) stopTimes();
  for (const [i, button] of [...sequenceRow.querySelectorAll("button")].entries()) {
    button.setAttribute("aria-pressed", String(i === state.sequence && state.text === null));
  }
  const isScreen = state.view === "screens", isShown = !isScreen || shownStep().id === "learn";
  $("times").hidden = !isShown || !lastTime() && (isScreen || Boolean(data.live));
  $("times-play").hidden = $("time").hidden = !lastTime();
  $("times-play").textContent = timesTimer ? "Pause" : "Watch it learn";
  $("times-name").textContent = data.model;
  $("time").max = String(lastTime());
  $("time").value = String(state.time ?? lastTime());
  $("time").setAttribute("aria-valuetext", data.model);
}

const sequenceRow = make("div", {id: "sequences", hidden: sequences.length === 1}, make("span", {className: "note", textContent: "Try another:"}));
function buildTimes() {
  const slider = make("input", {id: "time", type: "range", min: "0", ariaLabel: "time of the training"}), play = make("button", {id: "times-play", type: "button"});
  slider.addEventListener("input", () => {
    stopTimes();
    showTime(Number(slider.value));
  });
  play.addEventListener("click", () => {
    if (!timesTimer) { playTimes(Number(slider.value) % lastTime()); return; }
    stopTimes();
    drawTimes();
  });
  sequences.forEach(({text}, i) => {
    const button = make("button", {type: "button", textContent: text, lang: data.languages[0] ?? ""});
    button.addEventListener("click", () => {
      stopTimes();
      open({sequence: i});
    });
    sequenceRow.append(button);
  });
  $("times").append(...(data.live ? [] : [sequenceRow]), play, slider, make("output", {id: "times-name"}),
    make("p", {className: "note", textContent: "Only the lines change: the words shown are those of the finished translation.", hidden: !data.earlier.length}));
}
buildTimes();
features.times = {draw: drawTimes, row: sequenceRow};
