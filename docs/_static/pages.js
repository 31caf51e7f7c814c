// A click on a figure shows it on the whole screen, where it can be scrolled and zoomed; without scripts, its file.
document.addEventListener("click", event => {
  const link = event.target.closest(".drawing > a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const dialog = document.createElement("dialog"), button = document.createElement("button");
  dialog.className = "enlarged";
  button.textContent = { ja: "閉じる", ko: "닫기" }[document.documentElement.lang] || "Close";
  dialog.append(button, link.firstElementChild.cloneNode(true));
  dialog.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
});

// A table, the output of a program or a formula that is wider than the screen scrolls within its own box, which the Tab key
// reaches. (Python code wraps instead.) The captions of the navigation are headings, whose level the theme leaves out.
document.addEventListener("DOMContentLoaded", () => {
  const scrolling = ".table-wrapper, .formula, [class^=highlight-]:not([class*=python], [class*=default]) pre";
  for (const box of document.querySelectorAll(scrolling)) box.tabIndex = 0;
  for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = 2;
});
