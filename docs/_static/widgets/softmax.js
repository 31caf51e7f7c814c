// Softmax of three scores at a temperature that the reader chooses.
(() => {
  const _ = text => text; // marks what docs/_ext/localisation.py translates
  const words = ["猫", "魚", "食べます"];
  const scores = [2, 1, 0];
  const root = document.getElementById("widget-softmax");
  root.innerHTML = `
    <label>${_("temperature")} <input type="range" min="-1" max="1" step="0.02" value="0">
    <output></output></label>
    <table><thead><tr><th>${_("word")}</th><th>${_("score")}</th><th colspan="2">${_("weight")}</th></tr></thead>
    <tbody></tbody></table>`;
  const slider = root.querySelector("input");
  const body = root.querySelector("tbody");
  for (const [index, word] of words.entries()) {
    const row = body.insertRow();
    row.innerHTML = `<td lang="ja">${word}</td><td>${scores[index]}</td><td></td>
      <td class="bar"><span></span></td>`;
  }
  const draw = () => {
    const temperature = 10 ** slider.value;
    const largest = Math.max(...scores) / temperature; // subtracted, so that nothing overflows
    const exponentials = scores.map(score => Math.exp(score / temperature - largest));
    const total = exponentials.reduce((sum, each) => sum + each, 0);
    root.querySelector("output").textContent = temperature.toFixed(2);
    exponentials.forEach((each, index) => {
      const cells = body.rows[index].cells;
      cells[2].textContent = (each / total).toFixed(3);
      cells[3].firstChild.style.width = `${(100 * each) / total}%`;
    });
  };
  slider.addEventListener("input", draw);
  draw();
})();
