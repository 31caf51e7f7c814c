// Times: sequences to choose from, and a slider over the times of a training at which the model read them.

const readTime = async ({maps, ...time}) => {
  const attentions = maps && await readMaps(maps);
  for (const attention of attentions ?? []) attention.isEarlier = hasArithmetic;
  return {...time, attentions};
};
const hasArithmetic = attentions.some(({arithmetic}) => arithmetic);
const sequences = await Promise.all([data, ...data.others].map(async (page, i) => {
  const earlier = await Promise.all(page.earlier.map(readTime));
  return {text: page.text, times: [...earlier, i ? await readTime(page) : {...data, attentions: [...attentions]}]};
}));
const timesOf = () => sequences[state.sequence].times, lastTime = () => timesOf().length - 1;
let timesTimer = 0, shownTime = "0 null";

// Show what the page has of a sequence at a time; what it does not have, the model in the page computes.
function showTime(sequence, index, record = false) {
  const {text, times} = sequences[sequence], {attentions, decoding, title, model} = times[index], time = index < times.length - 1 ? index : null;
  shownTime = `${sequence} ${time}`;
  if (isInLive) $("live-text").value = text;
  if (!attentions) {
    Object.assign(state, {sequence, time});
    runText();
    return;
  }
  if (isInLive) readText();
  replaceMaps({attentions, decoding, title, model}, {text: null, sequence, time}, record);
}

function playTimes(index) {
  timesTimer = index < lastTime() ? setTimeout(playTimes, 1500, index + 1) : 0;
  showTime(state.sequence, index);
}

function stopTimes() {
  clearTimeout(timesTimer);
  timesTimer = 0;
}

// Write which sequence and which time is shown; a typed sentence is that of the last one.
function writeTime() {
  for (const [i, button] of [...sequenceRow.querySelectorAll("button")].entries()) {
    button.setAttribute("aria-pressed", String(i === state.sequence && [null, sequences[i].text].includes(state.text)));
  }
  $("times").hidden = !lastTime() && isInLive;
  $("times-play").hidden = $("time").hidden = !lastTime();
  $("times-play").textContent = timesTimer ? "Pause" : "Watch it learn";
  $("times-name").textContent = data.model;
  $("times-text").textContent = data.title;
  $("time").max = String(lastTime());
  $("time").value = String(state.time ?? lastTime());
  $("time").setAttribute("aria-valuetext", data.model);
}

// Show the sequence and the time of the address.
function showTimeOfAddress() {
  readAddress();
  if (`${state.sequence} ${state.time}` === shownTime) { writeTime(); return; }
  stopTimes();
  showTime(state.sequence, state.time ?? lastTime());
  dropAddress();
  readAddress();
  render(true);
}

const sequenceRow = make("div", {id: "sequences", hidden: sequences.length === 1}, make("span", {className: "note", textContent: "Try another:"}));
const isInLive = Boolean(data.live);
function buildTimes() {
  const slider = make("input", {id: "time", type: "range", min: "0", ariaLabel: "time of the training"});
  const play = make("button", {id: "times-play", type: "button"}), note = make("p", {textContent: "The translation above is what the model writes by itself at this time. The figure shows how it attends while it reads the translation of the last time, always the same tokens.", hidden: !data.earlier.length});
  slider.addEventListener("input", () => {
    stopTimes();
    showTime(state.sequence, Number(slider.value));
  });
  play.addEventListener("click", () => {
    if (!timesTimer) { playTimes(Number(slider.value) % lastTime()); return; }
    stopTimes();
    writeTime();
  });
  sequences.forEach(({text}, i) => {
    const button = make("button", {type: "button", textContent: text, lang: data.live?.language ?? ""});
    button.addEventListener("click", () => {
      stopTimes();
      showTime(i, sequences[i].times.length - 1, true);
    });
    sequenceRow.append(button);
  });
  $("times").append(...(isInLive ? [] : [sequenceRow]), play, slider, make("output", {id: "times-name"}), make("span", {id: "times-text"}), note);
  window.addEventListener("popstate", showTimeOfAddress);
}
buildTimes();
