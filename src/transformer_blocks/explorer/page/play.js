// Play: the decoding steps of the output, one after the other.

import {$, data, make, percent} from "./data.js";
import {forgetting, state} from "./registry.js";
import {select} from "./state.js";
import {drawPointed, drawTokenRibbons, isMotionReduced, shownToken, story, storyAttention} from "./story.js";

// The shown decoding step, or that of the locked query; null: the whole output.
const currentStep = () => state.isLocked && state.side === "queries" ? state.row : story.step;
export const hasSteps = () => Boolean(data.decoding) && storyAttention().isDecoding;

function showStep(step, {isAnimated = false} = {}) {
  stopAnimation();
  story.step = step;
  story.pointed = null;
  if (isAnimated && !isMotionReduced()) $("story").classList.add("animated");
  else $("story").classList.remove("animated");
  select({isLocked: false, ...(step === null ? {} : {row: step})}, {record: false});
  if (isAnimated && step !== null && !isMotionReduced()) animateStep();
}

export function animateStep() {
  const start = performance.now();
  const go = now => {
    const x = Math.min(1, (now - start) / 550), part = 1 - (1 - x) ** 3;
    drawTokenRibbons(part);
    story.frame = x < 1 ? requestAnimationFrame(go) : 0;
  };
  drawTokenRibbons(0);
  story.frame = requestAnimationFrame(go);
}

export function stopAnimation() {
  cancelAnimationFrame(story.frame);
  story.frame = 0;
}

export function stopPlaying() {
  clearTimeout(story.timer);
  story.isPlaying = false;
  stopAnimation();
}

const lastStep = () => data.decoding.tokens.length - 1;
export function showPreviousStep() { stopPlaying(); showStep(currentStep() === null ? lastStep() : Math.max(0, currentStep() - 1)); }
export function showNextStep() { stopPlaying(); showStep(currentStep() === null ? 0 : currentStep() === lastStep() ? null : currentStep() + 1, {isAnimated: true}); }

// Each step remains long enough to read its candidates.
function startPlaying() {
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

export function drawSteps() {
  $("transport").hidden = !hasSteps();
  if (!hasSteps()) return;
  const step = currentStep();
  $("play").textContent = story.isPlaying ? "Pause" : "Play";
  $("step").max = String(lastStep());
  $("step").value = String(step ?? lastStep());
  const where = step === null ? "whole output" : `step ${step} (of 0 to ${lastStep()})`;
  $("step").setAttribute("aria-valuetext", where);
  $("step-name").textContent = where;
}

// The most probable candidates of the shown step; tokens may differ that have the same label.
export function drawCandidates() {
  const token = shownToken(), step = !hasSteps() ? null : token?.side === "queries" ? token.index : story.step, list = $("candidates");
  list.hidden = step === null;
  if (drawCandidates.key === step) return;
  drawCandidates.key = step;
  list.replaceChildren(...(step === null ? [] : data.decoding.candidates[step]).map(([text, probability, isChosen]) => {
    const bar = make("span", {className: "candidate-bar", ariaHidden: "true"}), fill = make("span");
    fill.style.width = `${100 * probability}%`;
    bar.append(fill);
    return make("li", {className: isChosen ? "picked" : ""}, make("span", {className: "candidate-name", textContent: text === "" ? "␣" : text, title: text}), bar, make("span", {className: "candidate-share", textContent: percent(probability)}));
  }));
}
forgetting.push(() => { drawCandidates.key = undefined; });

$("play").addEventListener("click", () => {
  if (story.isPlaying) { stopPlaying(); drawPointed(); drawSteps(); }
  else startPlaying();
});
$("previous").addEventListener("click", showPreviousStep);
$("next").addEventListener("click", showNextStep);
$("step").addEventListener("input", () => { stopPlaying(); showStep(Number($("step").value)); });
