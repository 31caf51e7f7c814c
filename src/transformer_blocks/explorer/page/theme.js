"use strict";
// The theme is set before the first paint: the one that was chosen last, or the system's.
document.documentElement.dataset.theme = (() => {
  let kept = null;
  try { kept = localStorage.getItem("transformer_blocks.theme"); } catch { /* a sandboxed frame */ }
  if (kept === "light" || kept === "dark") return kept;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
})();
document.documentElement.dataset.view = location.hash.match(/[#&]v=(\w+)/)?.[1] ?? "screens";  // whose width the page has
