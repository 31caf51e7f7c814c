"""Units: the twelve units of the course, in their order."""

from coursework import (
    attention,
    bleu,
    embedding,
    feed_forward,
    heads,
    layers,
    loss,
    masks,
    optimizer,
    positions,
    search,
    tokens,
)
from coursework.grader import Unit

UNITS: dict[str, Unit] = {
    "tokens": tokens.UNIT,
    "embedding": embedding.UNIT,
    "positions": positions.UNIT,
    "masks": masks.UNIT,
    "attention": attention.UNIT,
    "heads": heads.UNIT,
    "feed_forward": feed_forward.UNIT,
    "layers": layers.UNIT,
    "loss": loss.UNIT,
    "optimizer": optimizer.UNIT,
    "search": search.UNIT,
    "bleu": bleu.UNIT,
}
"""The units by the names of the reader's files."""
