// Temperature, top-k and top-p, on the recorded probabilities of the words that follow "to".
(() => {
  const _ = text => text; // marks what docs/_ext/localisation.py translates
  const recorded = {
    the: 0.3589, school: 0.0785, bed: 0.0459, Hanako: 0.0383, Mary: 0.0344, Tokyo: 0.0306,
    Taro: 0.0287, Tom: 0.0278, five: 0.0258, Kyoto: 0.0258, music: 0.0211, four: 0.0201,
  };
  const root = document.getElementById("widget-nucleus");
  const make = (name, parent, text = "") => {
    const element = document.createElement(name);
    element.textContent = text;
    parent.append(element);
    return element;
  };
  const slider = (name, min, max, step, value) => {
    const label = make("label", root, `${name} `);
    label.style.display = "block";
    const input = make("input", label);
    Object.assign(input, { type: "range", min, max, step });
    input.value = value;
    const output = make("output", label);
    input.addEventListener("input", draw);
    return { get value() { output.textContent = ` ${input.value}`; return Number(input.value); } };
  };
  const temperature = slider(_("temperature"), 0.1, 3, 0.1, 1);
  const k = slider("top-k", 1, 12, 1, 12);
  const p = slider("top-p", 0.05, 1, 0.05, 0.5);
  const table = make("table", root);
  const head = make("tr", make("thead", table));
  for (const name of [_("after “to”"), _("probability"), ""]) make("th", head, name);
  const body = make("tbody", table);
  const rows = Object.keys(recorded).map(word => {
    const row = make("tr", body);
    make("td", row, word);
    const number = make("td", row);
    const cell = make("td", row);
    cell.className = "bar";
    return { row, number, bar: make("span", cell) };
  });
  const status = make("p", root);
  status.setAttribute("aria-live", "polite");

  function draw() {
    const powers = Object.values(recorded).map(each => each ** (1 / temperature.value));
    const chosen = powers.slice(0, k.value); // the words are in order of probability
    const total = chosen.reduce((sum, each) => sum + each, 0);
    const limit = p.value;
    let before = 0;
    let kept = 0;
    rows.forEach(({ row, number, bar }, index) => {
      const probability = index < chosen.length ? chosen[index] / total : 0;
      const inside = probability > 0 && before < limit - 1e-9;
      before += probability;
      kept += inside;
      row.className = inside ? "kept" : "";
      number.textContent = probability.toFixed(3);
      bar.style.width = `${100 * probability}%`;
    });
    status.textContent = _(`The next word is drawn from ${kept} of 12 words.`);
  }
  draw();
})();
