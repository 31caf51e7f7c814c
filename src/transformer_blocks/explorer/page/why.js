// Why: the arithmetic of the selected weight, where the page has its data.

const hasArithmetic = () => Boolean(attentions[state.attention].arithmetic) && state.head < attentions[state.attention].heads;

function drawWhy() {
  $("why").hidden = !hasArithmetic();
}
