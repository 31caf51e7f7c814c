"""Word alignment: which source token each target token translates, read from cross-attention."""

import inspect
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import checked
from transformer_blocks._tables import text_table
from transformer_blocks.inspection.changes import evaluation
from transformer_blocks.inspection.record.attention_layers import record_attention


@dataclass(frozen=True, eq=False)
class Alignment:
    """A word alignment of a source and a target.

    Attributes:
        pairs: The pairs of source index and target index, by target index.
        weights: The attention weights from which each target token was predicted, of shape (L, S);
            zeros for the first one, the begin token.
        layer: Name of the cross-attention layer from which it is read.
        head: The head of the layer, from 0.
        confidence: For each pair, the attention weight of the source token, from 0 to 1.
        information: For each layer, how many bits a head's weights tell about the source position,
            of shape (H,).
        tokens: The source token and the target token of each pair: words, if they were passed.
    """

    pairs: list[tuple[int, int]]
    weights: Tensor
    layer: str
    head: int
    confidence: list[float]
    information: dict[str, Tensor]
    tokens: list[tuple[str, str]]

    def __repr__(self) -> str:
        """List the tokens of each pair, and how sure it is."""
        rows = [("source", "target", "confidence")]
        pairs = zip(self.tokens, self.confidence, strict=True)
        rows += [(*tokens, f"{confidence:.2f}") for tokens, confidence in pairs]
        return "\n".join([f"{self.layer}, head {self.head}", *text_table(rows)])


@checked
@torch.no_grad()
def align(
    model: nn.Module,
    source: Sequence[int] | Tensor,
    target: Sequence[int] | Tensor,
    *,
    layer: str | None = None,
    head: int | None = None,
    ignored: Collection[int] = (),
    words: tuple[Sequence[str], Sequence[str]] | None = None,
) -> Alignment:
    """Align the tokens of a translation with those of its source, in one forward pass.

    The decoder reads the translation (teacher forcing), whether the model, a beam search or a
    person wrote it. Each target token is paired with the source token to which the decoder attends
    most where it predicts the token.

    Heads differ: some align, and others attend to punctuation or to the previous word. By default
    the head is taken whose weights tell most about the source position: their mutual information
    with the target position, which is zero if all positions attend alike, and large if each attends
    to one position of its own. It is a guess: on data whose alignments are known, find the layer
    and head with the smallest alignment error rate, and name them.

    Args:
        model: An encoder-decoder model: called with source and target ids, of shapes (1, S) and
            (1, L), as :class:`~transformer_blocks.Seq2Seq` is, or one of Hugging Face. Its
            attention must be one that :func:`~transformer_blocks.record_attention` sees. It is set
            to evaluation mode meanwhile.
        source: Source ids, of shape (S,), as the model reads them, with special tokens.
        target: Target ids, of shape (L,), from the begin token to the last token to be aligned.
        layer: Name of the cross-attention layer.
        head: The head of the layer, from 0.
        ignored: Ids of tokens that are not aligned, such as the begin and end tokens: a target
            token that attends most to such a source token has no pair.
        words: The tokens of source and target as text, to be printed instead of ids.

    Returns:
        The pairs, the layer and head, and how sure each pair is; they print as a table.

    Raises:
        ValueError: If the model has no cross-attention, or no such layer, if source has no token
            or target none after the begin token, or if target begins with another one.
        IndexError: If the layer has no such head, or ``words`` are too few.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_seq2seq
        >>> from transformer_blocks.inspection import align
        >>> model = build_seq2seq(20, 20, num_layers=2, d_model=16, num_heads=4, d_ff=32)
        >>> alignment = align(model, [5, 6, 7, 2], [1, 9, 8, 2], ignored=[1, 2])
        >>> all(0 <= s < 3 and 1 <= t < 3 for s, t in alignment.pairs)
        True
        >>> alignment  # doctest: +ELLIPSIS
        decoder.layers..., head ...
        source  target  confidence
        ...
    """
    sides = [torch.as_tensor(each).reshape(-1) for each in (source, target)]
    ids, translation = sides
    if not len(ids):
        raise ValueError("source must have a token, got none")
    if len(translation) < 2:
        found = translation.tolist()
        raise ValueError(f"target must have a token after the begin token, got target={found}")
    config = getattr(model, "config", None)
    begin = getattr(model, "begin_id", getattr(config, "decoder_start_token_id", None))
    if begin is not None and int(translation[0]) != begin:
        raise ValueError(
            f"target must begin with the begin token {begin}, got {int(translation[0])}"
        )
    names = words or [[str(each) for each in side.tolist()] for side in sides]
    maps = _cross_attention(model, ids, translation[:-1])
    information = {name: _information(weights) for name, weights in maps.items()}
    layers = [*maps] if layer is None else [layer]
    if not {*layers} <= {*maps}:
        raise ValueError(f"layer must be one of {[*maps]}, got layer={layer!r}")
    layer = max(layers, key=lambda name: float(information[name].max()))
    head = int(information[layer].argmax()) if head is None else head
    weights = nn.functional.pad(maps[layer][head], (0, 0, 1, 0))  # (L, S)
    left_out = torch.tensor([*ignored], dtype=torch.long)
    confidence, best = weights.max(dim=-1)
    kept = ~torch.isin(translation.cpu(), left_out) & ~torch.isin(ids.cpu()[best], left_out)
    places = kept[1:].nonzero().flatten() + 1
    pairs = list(zip(best[places].tolist(), places.tolist(), strict=True))
    tokens = [(names[0][source], names[1][target]) for source, target in pairs]
    sure = confidence[places].tolist()
    return Alignment(pairs, weights, layer, head, sure, information, tokens)


def _cross_attention(model: nn.Module, source: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Return the weights of each cross-attention, of shape (H, L, S), by name of the layer.

    They are those of L queries and S keys. If both are equal, one more token follows, which changes
    nothing before it.

    Raises:
        ValueError: If there are none.
    """
    length = len(target)
    if length == len(source):
        target = torch.cat([target, target[-1:]])
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    inputs: Any = [each[None].to(device) for each in (source, target)]
    names = inspect.signature(model.forward).parameters
    options = {}
    if "decoder_input_ids" in names:
        inputs, options = (), {"input_ids": inputs[0], "decoder_input_ids": inputs[1]}
    with evaluation(model), record_attention(model, device="cpu") as maps:
        model(*inputs, **options)
    shape = len(target), len(source)
    found = {name: x[0][0].float() for name, x in maps.items() if x[0].shape[-2:] == shape}
    if not found:
        raise ValueError(
            f"model must have cross-attention, got weights of {[*maps] or type(model).__name__}"
        )
    return {name: weights[:, :length] for name, weights in found.items()}


def _information(weights: Tensor) -> Tensor:
    """Return the mutual information of query and key positions, in bits, of shape (H,)."""
    joint = torch.special.entr(weights).sum(-1).mean(-1)
    return (torch.special.entr(weights.mean(-2)).sum(-1) - joint) / math.log(2)
