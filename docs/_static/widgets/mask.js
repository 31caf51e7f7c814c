// A mask painter: the reader masks positions of a table, and is warned of what looks like a mistake.
(() => {
  const _ = text => text; // marks what docs/_ext/localisation.py translates
  const words = ["猫", "は", "魚", "を", "食べ", "ます", "。", "<pad>"];
  const size = words.length;
  const isPadding = words.map(word => word === "<pad>");
  const root = document.getElementById("widget-mask");
  root.innerHTML = `
    <style>
      #widget-mask table { width: 100%; max-width: 24rem; border-collapse: collapse; margin: 0.8rem 0; table-layout: fixed; }
      #widget-mask th { font-weight: normal; font-size: 0.8rem; padding: 0; text-align: center; white-space: nowrap; }
      #widget-mask tbody th { padding-right: 0.25rem; text-align: right; }
      #widget-mask td { padding: 1px; border: 0; }
      #widget-mask td button { display: block; width: 100%; height: 2.2rem; margin: 0; padding: 0; cursor: pointer;
        border: 1px solid var(--figure-muted); border-radius: 3px; font: inherit;
        color: var(--figure-ink); background: var(--figure-panel); }
      #widget-mask td button[aria-pressed="false"] { background: #0072b280; }
      #widget-mask .choices { display: flex; flex-wrap: wrap; gap: 0.4rem; }
      #widget-mask .choices button { padding: 0.25rem 0.7rem; cursor: pointer; font: inherit; border-radius: 4px;
        border: 1px solid var(--figure-muted); color: var(--figure-ink); background: var(--figure-panel); }
      #widget-mask ul { margin: 0.4rem 0 0; padding-left: 1.2rem; }
      #widget-mask p { margin: 0.3rem 0; }
    </style>
    <div class="choices" role="group" aria-label="${_("masks")}"></div>
    <table><caption>${_("rows: queries; columns: keys; x: masked")}</caption>
    <thead><tr><td style="width: 2rem"></td></tr></thead><tbody></tbody></table>
    <p class="row" aria-live="polite"></p>
    <ul aria-live="polite"></ul>`;
  const rows = words.map((word, query) => words.map((other, key) => key > query || isPadding[key]));
  const cells = [];
  let current = [2, 2]; // the position that the keyboard reaches

  const isFuture = (query, key) => key > query;
  const setAll = rule => rows.forEach((row, query) => row.forEach((masked, key) => { row[key] = rule(query, key); }));
  const choices = {
    [_("causal")]: () => setAll((query, key) => rows[query][key] || isFuture(query, key)),
    [_("padding")]: () => setAll((query, key) => rows[query][key] || isPadding[key]),
    [_("invert")]: () => setAll((query, key) => !rows[query][key]),
    [_("clear")]: () => setAll(() => false),
  };

  // The warnings of explain_mask, and two about this sentence in a decoder.
  const findMistakes = () => {
    const found = [];
    const all = rows.flatMap((row, query) => row.map((masked, key) => ({ masked, query, key })));
    const same = rule => all.every(each => each.masked !== rule(each.query, each.key));
    const hidden = {
      [_("the future")]: isFuture,
      [_("padding")]: (query, key) => isPadding[key],
      [_("the future and padding")]: (query, key) => isFuture(query, key) || isPadding[key],
    };
    for (const [name, rule] of Object.entries(hidden)) {
      if (same(rule)) found.push(_(`The mask looks inverted: its inverse would hide ${name}. True hides.`));
    }
    rows.forEach((row, query) => {
      if (row.every(Boolean)) found.push(_(`Query ${words[query]} is fully masked: its output is zero.`));
    });
    const leaks = rows.flatMap((row, query) => row.some((masked, key) => !masked && isFuture(query, key)
      && !isPadding[key]) ? [words[query]] : []);
    if (leaks.length) {
      found.push(_(`Attends to its future: ${leaks.join(" ")}. Right in an encoder, a leak in a decoder.`));
    }
    const readers = rows.flatMap((row, query) => row.some((masked, key) => !masked && isPadding[key])
      ? [words[query]] : []);
    if (readers.length) found.push(_(`Padding is not masked for: ${readers.join(" ")}.`));
    return found;
  };

  const draw = () => {
    rows.forEach((row, query) => row.forEach((masked, key) => {
      const button = cells[query][key];
      button.setAttribute("aria-pressed", String(masked));
      button.textContent = masked ? "x" : "";
      button.tabIndex = query === current[0] && key === current[1] ? 0 : -1;
    }));
    const [query] = current;
    const attended = words.filter((word, key) => !rows[query][key]).join(" ") || _("no key");
    root.querySelector(".row").textContent = _(`Query ${words[query]} attends to: ${attended}`);
    const found = findMistakes();
    root.querySelector("ul").replaceChildren(...(found.length ? found : [_("No warning.")]).map(text => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }));
  };
  const select = (query, key) => {
    current = [query, key];
    draw();
  };

  for (const [name, change] of Object.entries(choices)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => { change(); draw(); });
    root.querySelector(".choices").append(button);
  }
  const label = (row, word, scope) => {
    const head = document.createElement("th");
    head.scope = scope;
    head.textContent = word === "<pad>" ? "pad" : word;
    if (word !== "<pad>") head.lang = "ja";
    row.append(head);
  };
  words.forEach(word => label(root.querySelector("thead tr"), word, "col"));
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  words.forEach((word, query) => {
    const row = root.querySelector("tbody").insertRow();
    label(row, word, "row");
    cells.push(words.map((other, key) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-label", _(`query ${word}, key ${other}, masked`));
      button.addEventListener("focus", () => select(query, key));
      button.addEventListener("click", () => { rows[query][key] = !rows[query][key]; select(query, key); });
      button.addEventListener("keydown", event => {
        if (!steps[event.key]) return;
        event.preventDefault();
        const [down, right] = steps[event.key];
        cells[Math.min(size - 1, Math.max(0, query + down))][Math.min(size - 1, Math.max(0, key + right))].focus();
      });
      row.insertCell().append(button);
      return button;
    }));
  });
  draw();
})();
