// Play: the decoding steps of the output, one after the other.

// The shown decoding step, or that of the locked query; null: the whole output.
const currentStep = () => state.isLocked && state.side === "queries" ? state.row : story.step;
const hasSteps = () => Boolean(data.decoding) && storyAttention().isDecoding;

function showStep(step, {isAnimated = false} = {}) {
  stopAnimation();
  story.step = step;
  story.pointed = null;
  if (isAnimated && !isMotionReduced()) $("story").classList.add("animated");
  else $("story").classList.remove("animated");
  select({isLocked: false, ...(step === null ? {} : {row: step})}, {record: false});
  if (isAnimated && step !== null && !isMotionReduced()) animateStep();
}

function animateStep() {
  const start = performance.now();
  const go = now => {
    const x = Math.min(1, (now - start) / 550), part = 1 - (1 - x) ** 3;
    drawTokenRibbons(part);
    story.frame = x < 1 ? requestAnimationFrame(go) : 0;
  };
  drawTokenRibbons(0);
  story.frame = requestAnimationFrame(go);
}

function stopAnimation() {
  cancelAnimationFrame(story.frame);
  story.frame = 0;
}

function stopPlaying() {
  clearTimeout(story.timer);
  story.isPlaying = false;
  stopAnimation();
}

const lastStep = () => data.decoding.tokens.length - 1;
function showPreviousStep() { stopPlaying(); showStep(currentStep() === null ? lastStep() : Math.max(0, currentStep() - 1)); }
function showNextStep() { stopPlaying(); showStep(currentStep() === null ? 0 : currentStep() === lastStep() ? null : currentStep() + 1, {isAnimated: true}); }

// Scroll until the whole figure is visible, below the buttons, where a window is too low for what is above it.
function revealFigure() {
  const missing = $("story-figure").getBoundingClientRect().bottom - innerHeight, most = $("transport").getBoundingClientRect().top;
  if (missing > 0 && most > 0) window.scrollBy({top: Math.min(missing, most), behavior: isMotionReduced() ? "auto" : "smooth"});
}

// Each step remains long enough to read its candidates.
function startPlaying() {
  revealFigure();
  const pause = isMotionReduced() ? 2600 : 1700;
  story.isPlaying = true;
  showStep(currentStep() === null || currentStep() === lastStep() ? 0 : currentStep() + 1, {isAnimated: true});
  const next = () => {
    const isLast = story.step === lastStep();
    if (isLast) story.isPlaying = false;
    showStep(isLast ? null : story.step + 1, {isAnimated: true});
    if (!isLast) story.timer = setTimeout(next, pause);
  };
  story.timer = setTimeout(next, pause);
}

function drawSteps() {
  $("decoding").hidden = !hasSteps();
  if (!hasSteps()) return;
  const step = currentStep();
  $("play").textContent = story.isPlaying ? "Pause" : "Play";
  $("step").max = String(lastStep());
  $("step").value = String(step ?? lastStep());
  const where = step === null ? "whole output" : `step ${step} (of 0 to ${lastStep()})`;
  $("step").setAttribute("aria-valuetext", where);
  $("step-name").textContent = where;
}

// The tokens generated so far, and the most probable candidates of the shown step.
function drawCandidates() {
  if (!hasSteps()) return;
  const token = shownToken(), {tokens, words, candidates} = data.decoding;
  const step = token?.side === "queries" ? token.index : story.step;
  const key = `${step} ${story.isPlaying}`;
  if (drawCandidates.key === key) return;
  drawCandidates.key = key;
  const generated = $("generated"), list = $("candidates");
  $("step-hint").hidden = step !== null;
  list.hidden = step === null;
  const end = step ?? lastStep(), first = step === null ? 0 : Math.max(0, step - 11), parts = [];
  if (first) parts.push("… ");
  for (let i = first; i <= Math.min(end, first + 24); i++) {
    if (i > first && words[i] === "1") parts.push(" ");
    parts.push(i === step ? make("b", {className: "now", textContent: inSentence(tokens[i])}) : inSentence(tokens[i]));
  }
  if (end > first + 24) parts.push(" …");
  generated.replaceChildren(...parts);
  if (step === null) { list.replaceChildren(); return; }
  list.replaceChildren(...candidates[step].map(([text, probability, isChosen]) => {  // tokens may differ that have the same label
    const bar = make("span", {className: "candidate-bar", ariaHidden: "true"}), fill = make("span");
    fill.style.width = `${100 * probability}%`;
    bar.append(fill);
    return make("li", {className: isChosen ? "picked" : ""}, make("span", {className: "candidate-name", textContent: text === "" ? "␣" : text, title: text}), bar, make("span", {className: "candidate-share", textContent: percent(probability)}));
  }));
}

$("play").addEventListener("click", () => {
  if (story.isPlaying) { stopPlaying(); drawPointed(); drawSteps(); }
  else startPlaying();
});
$("previous").addEventListener("click", showPreviousStep);
$("next").addEventListener("click", showNextStep);
$("step").addEventListener("input", () => { stopPlaying(); showStep(Number($("step").value)); });
