// Times: a slider over the same sequence at several times of a training.

const times = await Promise.all(data.earlier.map(async time => ({...time, attentions: await readMaps(time.maps)})));
for (const {attentions: earlier} of times) earlier.forEach((attention, a) => { attention.isEarlier = Boolean(attentions[a].arithmetic); });
times.push({...data, attentions: [...attentions]});

function buildTimes() {
  const last = times.length - 1, slider = make("input", {id: "time", type: "range", min: "0", max: String(last), value: String(last), ariaLabel: "time of the training"});
  const play = make("button", {id: "times-play", type: "button"}), name = make("output", {id: "times-name"}), text = make("span", {id: "times-text"}), note = make("p", {className: "note", textContent: "The model reads the same tokens each time."});
  let timer = 0;
  const write = () => {
    play.textContent = timer ? "Pause" : "Watch it learn";
    name.textContent = data.model;
    text.textContent = document.title;
    slider.setAttribute("aria-valuetext", data.model);
  };
  const stop = () => {
    clearTimeout(timer);
    timer = 0;
  };
  const showTime = index => {
    const {attentions, decoding, title, model} = times[index];
    slider.value = String(index);
    replaceMaps({attentions, decoding, title, model}, {text: null});
    write();
  };
  const playFrom = index => {
    timer = index < last ? setTimeout(playFrom, 1500, index + 1) : 0;
    showTime(index);
  };
  slider.addEventListener("input", () => {
    stop();
    showTime(Number(slider.value));
  });
  play.addEventListener("click", () => {
    if (!timer) { playFrom(Number(slider.value) % last); return; }
    stop();
    write();
  });
  $("times").append(play, slider, name, text, note);
  $("times").hidden = false;
  write();
}
buildTimes();
