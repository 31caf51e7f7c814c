"""Torch's calls: blocks in the place of torch's modules, called with the arguments of these.

A model that was written for ``torch.nn`` calls its parts as torch does: ``src_key_padding_mask=``,
``attn_mask=``, sequence first unless ``batch_first=True``, a decoder without a causal mask unless
``tgt_mask`` is one. The modules here translate such a call for a block, and nothing else.

A mask is boolean, or of floats that are 0 or -inf, as ``generate_square_subsequent_mask`` makes
them; other floats, which torch adds to the scores, have no equivalent here. The hint ``is_causal``
is not needed: the mask that torch demands with it is applied.
"""

import torch
from torch import Tensor, nn

TorchMask = Tensor | None


class TorchCall(nn.Module):
    """Base class of a block that is called as a module of torch is.

    Args:
        block: The block.
        batch_first: Whether sequences have the shape (B, L, d_model), and not (L, B, d_model).
    """

    def __init__(self, block: nn.Module, *, batch_first: bool) -> None:
        super().__init__()
        self.block, self.batch_first, self.training = block, batch_first, block.training

    def enter(self, x: Tensor) -> Tensor:
        """Return sequences as the block takes them, (B, L, d_model).

        Args:
            x: Sequences (B, L, d_model) or (L, B, d_model), or a single one (L, d_model).
        """
        return x[None] if x.dim() == 2 else x if self.batch_first else x.transpose(0, 1)

    def leave(self, y: Tensor, x: Tensor) -> Tensor:
        """Return outputs (B, L, d_model) in the form in which the sequences were passed."""
        return y[0] if x.dim() == 2 else y if self.batch_first else y.transpose(0, 1)


class TorchAttention(TorchCall):
    """A :class:`~transformer_blocks.MultiHeadAttention`, called as ``nn.MultiheadAttention``."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: TorchMask = None,
        need_weights: bool = True,
        attn_mask: TorchMask = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the output, and the weights if they are needed, before dropout.

        The arguments are those of ``nn.MultiheadAttention``. Without the weights, which are
        computed for themselves, it is faster.
        """
        inputs = self.enter(query), self.enter(key), self.enter(value)
        mask = _combine(len(inputs[0]), attn_mask, key_padding_mask, is_causal)
        output = self.leave(self.block(*inputs, mask=mask), query)
        if not need_weights:
            return output, None
        weights: Tensor = self.block.attention_weights(*inputs[:2], mask=mask)  # type: ignore[operator]
        weights = weights.mean(dim=1) if average_attn_weights else weights
        return output, weights[0] if query.dim() == 2 else weights


class TorchEncoder(TorchCall):
    """An encoder or its layer, called as ``nn.TransformerEncoder`` or its layer."""

    def forward(
        self,
        src: Tensor,
        mask: TorchMask = None,
        src_key_padding_mask: TorchMask = None,
        is_causal: bool | None = None,
        *,
        src_mask: TorchMask = None,
    ) -> Tensor:
        """Compute the output; ``mask`` is ``src_mask`` for torch's layer."""
        x, mask = self.enter(src), src_mask if mask is None else mask
        mask = _combine(len(x), mask, src_key_padding_mask, is_causal)
        return self.leave(self.block(x, mask=mask), src)


class TorchDecoder(TorchCall):
    """A decoder or its layer, called as ``nn.TransformerDecoder`` or its layer."""

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: TorchMask = None,
        memory_mask: TorchMask = None,
        tgt_key_padding_mask: TorchMask = None,
        memory_key_padding_mask: TorchMask = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Compute the output, causal only if ``tgt_mask`` is."""
        x = self.enter(tgt)
        mask = _combine(len(x), tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        memory_mask = _combine(len(x), memory_mask, memory_key_padding_mask, memory_is_causal)
        options = {"mask": mask, "memory_mask": memory_mask, "causal": False}
        return self.leave(self.block(x, self.enter(memory), **options), tgt)


def _combine(batch: int, mask: TorchMask, padding: TorchMask, hint: bool | None) -> TorchMask:
    """Combine two masks of torch, (L, S) or (B * H, L, S), and (B, S), to one of this package.

    The padding of a single sequence is (S,).

    Raises:
        ValueError: If a mask holds other numbers than 0 and -inf, or a hint lacks its mask.
    """
    if hint and mask is None:
        raise ValueError("attn_mask must be given with is_causal=True, as in torch")
    found = []
    if mask is not None:
        mask = _as_boolean("attn_mask", mask)
        found.append(mask.unflatten(0, (batch, -1)) if mask.dim() == 3 else mask)
    if padding is not None:
        padding = _as_boolean("key_padding_mask", padding)
        found.append((padding[None] if padding.dim() == 1 else padding)[:, None, None])
    return found[0] | found[-1] if found else None


def _as_boolean(name: str, mask: Tensor) -> Tensor:
    """Convert a mask of 0 and -inf; a boolean one is returned as it is."""
    if mask.dtype == torch.bool:
        return mask
    hides = mask == -torch.inf
    if not mask.is_floating_point() or mask.masked_fill(hides, 0.0).any():
        raise ValueError(f"{name} must be boolean, or hold 0 and -inf alone, got other numbers")
    return hides
