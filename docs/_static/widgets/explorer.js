// The attention maps of chapter 18's translator, in a frame.
(() => {
  const _ = text => text; // marks what docs/_ext/localisation.py translates
  const root = document.getElementById("widget-explorer");
  const page = new URL(`${root.dataset.static}/explorer_book.html#a=2&q=3&k=2`, document.URL);
  const frame = document.createElement("iframe");
  frame.title = _("Attention explorer: all attention weights of the translator for our sentence");
  frame.src = page.href;
  frame.loading = "lazy";
  frame.style.cssText = "width: 100%; height: 62rem; max-height: 92vh; border: 1px solid var(--figure-muted)";
  const link = document.createElement("a");
  link.href = page.href;
  link.textContent = _("The explorer as a page of its own");
  root.append(frame, link);
})();
