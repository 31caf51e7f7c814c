"""Still: what a page shows where scripts are switched off, one picture of its attention weights."""

from html import escape

from torch import Tensor

from transformer_blocks.explorer.checks import Tokens
from transformer_blocks.explorer.tokens import token_labels

ROW, LEFT, RIGHT, WIDTH = 26, 220, 420, 640  # pixels
MOST_TOKENS = 40
LEAST = 0.05  # smallest weight of which a line is drawn


def still_of(weights: Tensor, queries: Tokens, keys: Tokens) -> str:
    """Draw the mean weights of a layer's heads as lines between two columns of tokens.

    Args:
        weights: Attention weights of a layer, of shape (H, L, S).
        queries: The L tokens of the queries; the first 40 are drawn.
        keys: The S tokens of the keys; the first 40 are drawn.

    Returns:
        An SVG element.

    Example:
        >>> import torch
        >>> from transformer_blocks.explorer.still import still_of
        >>> still_of(torch.eye(2)[None], ["a", "b"], ["x", "y"]).count("<path")
        2
    """
    mean = weights.detach().float().mean(dim=0)[:MOST_TOKENS, :MOST_TOKENS]
    parts = []
    for row, column in (mean >= LEAST).nonzero().tolist():
        ends = [ROW * (place + 0.5) for place in (column, row)]
        line = f"M{LEFT + 8} {ends[0]}C320 {ends[0]} 320 {ends[1]} {RIGHT - 8} {ends[1]}"
        width, opacity = 14 * float(mean[row, column]), 0.3 + 0.5 * float(mean[row, column])
        style = f'stroke="#d55e00" stroke-width="{width:.1f}" opacity="{opacity:.2f}"'
        parts.append(f'<path d="{line}" fill="none" {style}/>')
    for tokens, x, anchor in ((keys, LEFT, "end"), (queries, RIGHT, "start")):
        for place, label in enumerate(token_labels(tokens)[:MOST_TOKENS]):
            text = escape(label.text[:20])
            where = f'x="{x}" y="{ROW * (place + 0.5) + 5}" text-anchor="{anchor}"'
            parts.append(f'<text {where} fill="currentColor">{text}</text>')
    height = ROW * max(mean.shape)
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
        f"<title>attention weights</title>{''.join(parts)}</svg>"
    )
