// Tour: up to five steps through the page, each of which shows a part that the page has.

const TOUR = [
  {place: "story-figure", text: "Each line is an attention weight: the thicker, the more one token (the query) attends to another (the key).",
    show: () => select({attention: firstAttention()})},
  {place: "transport", isThere: first => data.decoding && first.isDecoding, text: "A model writes token by token: Play shows each decoding step, with the tokens that were most probable.",
    show: showNextStep},
  {place: "why", isThere: first => first.arithmetic || data.leftOut, text: "A click on a token keeps its lines, and shows how its largest weight arises: from a query and a key, by a softmax.",
    show: () => { select({head: 0}, {record: false}); lockToken({side: "queries", index: 0}); }},
  {place: "story-bar", text: "Each layer has several heads, with weights of their own: compare one, all, or their mean.",
    show: () => select({heads: Array.from({length: storyAttention().heads}, (_, head) => head)})},
  {place: "overview", text: "The map has all weights in numbers, and a small map of every layer and head. Either view can be saved as a picture.",
    show: () => select({view: "map", head: 0})},
];

// Show a step of the tour, and nothing after the last one.
function showTour(step = Infinity) {
  document.querySelector(".toured")?.classList.remove("toured");
  const steps = TOUR.filter(({isThere = () => true}) => isThere(attentions[firstAttention()])), isLast = step === steps.length - 1;
  $("tour").hidden = step >= steps.length;
  if ($("tour").hidden) { $("tour-start").focus({preventScroll: true}); return; }
  const {place, text, show} = steps[step];
  stopPlaying();
  story.step = null;
  select({view: "story", isLocked: false}, {record: false});
  show();
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

$("tour-start").addEventListener("click", () => showTour(0));
document.addEventListener("keydown", event => { if (event.key === "Escape" && !$("tour").hidden) showTour(); });
