// Filters of the museum: only the cards of a library, or of what one check finds, are shown.
document.addEventListener("DOMContentLoaded", () => {
  const cards = [...document.querySelectorAll(".exhibits li")];
  const status = document.createElement("p");
  status.setAttribute("role", "status");
  const selects = Object.entries({ library: "Published in", check: "Found by" }).map(([key, text]) => {
    const label = document.createElement("label"), select = document.createElement("select"), counts = {};
    for (const card of cards) counts[card.dataset[key]] = (counts[card.dataset[key]] || 0) + 1;
    const names = Object.keys(counts).sort((a, b) => counts[b] - counts[a] || a.localeCompare(b, "en"));
    select.append(new Option("all", ""), ...names.map(name => new Option(`${name} (${counts[name]})`, name)));
    select.name = key;
    label.append(`${text} `, select);
    return { key, label, select };
  });
  const show = () => {
    for (const card of cards) card.hidden = !selects.every(({ key, select }) => ["", card.dataset[key]].includes(select.value));
    status.textContent = `${cards.filter(card => !card.hidden).length} of ${cards.length} exhibits`;
  };
  const root = document.getElementById("widget-museum");
  root.append(...selects.map(({ label }) => label), status);
  root.addEventListener("change", show);
  show();
});
