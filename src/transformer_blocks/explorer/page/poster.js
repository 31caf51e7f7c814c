// Poster: the shown view as a picture with title, axes and colour bar, and the weights as a file.

function download(name, blob) {
  const link = make("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
const shownName = () => nameOf(state) + (state.pin ? ` minus ${nameOf(state.pin)}` : "");
const fileName = ending => `${shownName().toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-")}.${ending}`;

function csvOf() {
  const attention = attentions[state.attention], {values} = shown();
  const quote = text => `"${text.replace(/"/g, '""')}"`;
  const lines = [["", ...attention.keys].map(quote).join(",")];
  attention.queries.forEach((token, row) => lines.push([quote(token),
    ...Array.from(values.subarray(row * attention.columns, (row + 1) * attention.columns), x => x.toFixed(4))].join(",")));
  return lines.join("\r\n") + "\r\n";
}

$("csv").addEventListener("click", () => download(fileName("csv"), new Blob(["\ufeff", csvOf()], {type: "text/csv"})));
