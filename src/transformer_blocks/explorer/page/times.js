// Times: a slider over the same sequence at several times of a training.

const times = await Promise.all(data.earlier.map(async time => ({...time, attentions: await readMaps(time.maps)})));
for (const {attentions: earlier} of times) earlier.forEach((attention, a) => { attention.isEarlier = Boolean(attentions[a].arithmetic); });
times.push({...data, attentions: [...attentions]});
let timesTimer = 0;

function showTime(index) {
  const {attentions, decoding, title, model} = times[index];
  replaceMaps({attentions, decoding, title, model}, {text: null});
}

function playTimes(index) {
  timesTimer = index < times.length - 1 ? setTimeout(playTimes, 1500, index + 1) : 0;
  showTime(index);
}

function stopTimes() {
  clearTimeout(timesTimer);
  timesTimer = 0;
}

// Write which time is shown; a typed sentence is that of the last one.
function writeTime() {
  $("times-play").textContent = timesTimer ? "Pause" : "Watch it learn";
  $("times-name").textContent = data.model;
  $("times-text").textContent = data.title;
  $("time").value = String(times.findLastIndex(({model}) => model === data.model));
  $("time").setAttribute("aria-valuetext", data.model);
}

function buildTimes() {
  const last = times.length - 1, slider = make("input", {id: "time", type: "range", min: "0", max: String(last), ariaLabel: "time of the training"});
  const play = make("button", {id: "times-play", type: "button"}), note = make("p", {textContent: "The model reads the same tokens each time."});
  slider.addEventListener("input", () => {
    stopTimes();
    showTime(Number(slider.value));
  });
  play.addEventListener("click", () => {
    if (!timesTimer) { playTimes(Number(slider.value) % last); return; }
    stopTimes();
    writeTime();
  });
  $("times").append(play, slider, make("output", {id: "times-name"}), make("span", {id: "times-text"}), note);
  $("times").hidden = false;
  writeTime();
}
buildTimes();
