// Beam search, one step at a time, with one to three beams.
(() => {
  const _ = text => text; // marks what docs/_ext/localisation.py translates
  const next = {
    "": { a: 0.6, the: 0.4 },
    a: { cat: 0.4, dog: 0.3, bird: 0.3 },
    the: { cat: 0.9, dog: 0.1 },
    cat: { "(end)": 1 }, dog: { "(end)": 1 }, bird: { "(end)": 1 },
  };
  const root = document.getElementById("widget-beam");
  const make = (name, parent, text = "") => {
    const element = document.createElement(name);
    element.textContent = text;
    parent.append(element);
    return element;
  };
  const controls = make("p", root);
  const label = make("label", controls, `${_("beams")} `);
  const size = make("select", label);
  for (const number of [1, 2, 3]) make("option", size, number);
  size.value = 2;
  const forward = make("button", controls, _("Next step"));
  const again = make("button", controls, _("Start again"));
  forward.type = again.type = "button";
  const status = make("p", root);
  status.setAttribute("aria-live", "polite");
  const table = make("table", root);
  const head = make("tr", make("thead", table));
  for (const name of [_("candidate"), _("probability"), _("kept")]) make("th", head, name);
  const body = make("tbody", table);
  let beams, step;

  const show = candidates => {
    body.replaceChildren();
    for (const { words, probability, kept } of candidates) {
      const row = make("tr", body);
      if (kept) row.className = "kept";
      make("td", row, words.join(" "));
      make("td", row, probability.toFixed(2));
      make("td", row, kept ? _("yes") : _("no"));
    }
  };
  const restart = () => {
    beams = [{ words: [], probability: 1 }];
    step = 0;
    forward.disabled = false;
    show([]);
    status.textContent = _("Nothing is written yet.");
  };
  const advance = () => {
    const candidates = beams.flatMap(({ words, probability }) =>
      Object.entries(next[words.at(-1) ?? ""]).map(([word, each]) =>
        ({ words: [...words, word], probability: probability * each })));
    candidates.sort((first, second) => second.probability - first.probability);
    candidates.forEach((each, rank) => { each.kept = rank < Number(size.value); });
    beams = candidates.filter(each => each.kept);
    step += 1;
    show(candidates);
    const best = beams[0];
    const finished = best.words.at(-1) === "(end)";
    forward.disabled = finished;
    status.textContent = finished
      ? _(`Finished: “${best.words.slice(0, -1).join(" ")}” with ${best.probability.toFixed(2)}.`)
      : _(`Step ${step}: ${candidates.length} candidates, ${beams.length} kept.`);
  };
  forward.addEventListener("click", advance);
  again.addEventListener("click", restart);
  size.addEventListener("change", restart);
  restart();
})();
