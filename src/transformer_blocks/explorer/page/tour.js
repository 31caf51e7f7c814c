// Tour: the parts of the page, one after the other, with the words that they use.

const TOUR = [
  {place: "story-figure", text: "The model reads and writes tokens: words, or parts of words. Each line is an attention weight: the thicker, the more one token (the query) attends to another (the key)."},
  {place: "transport", isThere: first => data.decoding && first.isDecoding, text: "A model writes token by token: Play shows each of these decoding steps, with the tokens that were most probable.",
    show: showNextStep},
  {place: "live", isThere: () => data.live, text: "The model is in this page: type a sentence of your own. A click on one of its tokens, or on a part of the model, leaves it out."},
  {place: "times", isThere: () => data.earlier.length, text: "Watch it learn: the slider goes back to earlier times of the training, from random weights on."},
  {place: "story-bar", text: "A model has several layers, one after the other, and in each of them several heads, which attend to different tokens: compare one head, all, or their mean.",
    show: () => select({heads: Array.from({length: storyAttention().heads}, (_, head) => head)})},
  {place: "why", isThere: first => first.arithmetic || data.leftOut, text: "A click on a token keeps its lines. Below the figure stands how its largest weight arises: the vectors of query and key are multiplied, and a softmax turns the scores into weights.",
    show: () => { select({head: 0}, {record: false}); lockToken({side: "queries", index: 0}); }},
  {place: "overview", text: "The map has all weights in numbers, and a small map of every layer and head. Either view can be saved as a picture.",
    show: () => select({view: "map", head: 0})},
];

let beforeTour = {};  // what was selected

// Show a step of the tour, and after the last one what was shown before it.
function showTour(step = Infinity) {
  document.querySelector(".toured")?.classList.remove("toured");
  const steps = TOUR.filter(({isThere = () => true}) => isThere(attentions[firstAttention()])), isLast = step === steps.length - 1;
  $("tour").hidden = step >= steps.length;
  stopPlaying();
  story.step = null;
  select({...beforeTour, isLocked: false, ...($("tour").hidden ? {} : {view: "story", attention: firstAttention()})}, {record: false});
  if ($("tour").hidden) { $("tour-start").focus({preventScroll: true}); return; }
  const {place, text, show} = steps[step];
  show?.();
  const button = (textContent, other, hidden = false) => {
    const made = make("button", {type: "button", textContent, hidden});
    made.addEventListener("click", () => showTour(other));
    return made;
  };
  const next = button(isLast ? "Done" : "Next", step + 1);
  $("tour").replaceChildren(make("p", {}, make("b", {textContent: `${step + 1} of ${steps.length}. `}), text), button("Back", step - 1, step === 0), next, button("Close", Infinity, isLast));
  $(place).before($("tour"));  // above what it tells of, and covering nothing
  $("tour").style.order = getComputedStyle($(place)).order;
  $(place).classList.add("toured");
  $("tour").scrollIntoView({block: "start", behavior: isMotionReduced() ? "auto" : "smooth"});
  next.focus({preventScroll: true});
}

$("tour-start").addEventListener("click", () => {
  const {view, attention, layer, head, heads} = state;
  beforeTour = {view, attention, layer, head, heads};
  showTour(0);
});
document.addEventListener("keydown", event => { if (event.key === "Escape" && !$("tour").hidden) showTour(); });
