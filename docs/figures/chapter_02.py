"""Figures of chapter 2: a sentence attends to itself."""

import torch
from matplotlib.figure import Figure

from style import GREEN, INK, figure, new_figure, weight_table
from transformer_blocks import attention_weights, padding_mask

# animal, food, grammar
FEATURES = {
    "PAD": [0.0, 0.0, 0.0],
    "猫": [1.0, 0.0, 0.0],
    "魚": [1.0, 1.0, 0.0],
    "食べ": [0.0, 1.0, 0.0],
    "は": [0.0, 0.0, 1.0],
    "を": [0.0, 0.0, 1.0],
    "ます": [0.0, 0.0, 1.0],
    "。": [0.0, 0.0, 1.0],
}
SENTENCE = ["猫", "は", "魚", "を", "食べ", "ます", "。"]
SHORT = ["魚", "を", "食べ", "ます", "。", "PAD", "PAD"]


def vectors(tokens: list[str]) -> torch.Tensor:
    """Return the vectors of some tokens, of shape (1, 1, L, 3): one sequence, one head."""
    return torch.tensor([[[FEATURES[token] for token in tokens]]])


@figure
def sentence_attends_to_itself() -> Figure:
    """Draw the weights of the running sentence, and the outputs beside them."""
    x = vectors(SENTENCE)
    weights = attention_weights(x, x, scale=1.0)[0, 0]
    made = new_figure(6.4, 3.7)
    left, right = made.subplots(1, 2, width_ratios=(7, 3.2))
    weight_table(left, weights.tolist(), queries=SENTENCE, keys=SENTENCE)
    left.set_title("weights (L × S)")
    left.set_xlabel("keys", labelpad=6)
    left.set_ylabel("queries")
    outputs = (weights @ x[0, 0]).tolist()
    names = ["animal", "food", "gramm."]
    weight_table(right, outputs, queries=SENTENCE, keys=names, color=GREEN)
    right.set_title("outputs (L × d)")
    right.set_xlabel("features", labelpad=6)
    for text in right.texts:
        text.set_color(INK)
    return made


@figure
def padding_mask_weights() -> Figure:
    """Draw the weights of a padded sentence without and with the padding mask."""
    x = vectors(SHORT)
    mask = padding_mask(torch.tensor([[token != "PAD" for token in SHORT]], dtype=torch.long))
    made = new_figure(6.4, 3.5)
    left, right = made.subplots(1, 2)
    for axes, given, title in ((left, None, "without a mask"), (right, mask, "with the mask")):
        weights = attention_weights(x, x, mask=given, scale=1.0)[0, 0]
        hidden = None if given is None else given.expand(1, 1, 7, 7)[0, 0].tolist()
        weight_table(axes, weights.tolist(), queries=SHORT, keys=SHORT, masked=hidden, title=title)
    return made
