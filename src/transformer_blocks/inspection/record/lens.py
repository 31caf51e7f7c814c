"""Logit lens: what the output layer predicts from the output of each layer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import Function, checked
from transformer_blocks.inspection.changes import hooked


@checked
@contextmanager
def logit_lens(
    layers: Sequence[nn.Module], read: Function[Callable[[Tensor], Tensor]]
) -> Iterator[list[list[Tensor]]]:
    """Record which tokens the output layer would predict from the output of each layer.

    Each layer of a Transformer adds to the residual stream, which the output layer reads after the
    last layer. It can read the outputs of earlier layers as well: they show at which layer a
    prediction arises ("interpreting GPT: the logit lens", nostalgebraist 2020,
    https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru). The output layer was not trained to do so,
    so that the predictions of the first layers may be far from what these layers have computed.

    Recording changes no output. Inside the block, a model compiled by ``torch.compile`` is executed
    eagerly.

    Args:
        layers: The layers of one stack, from the first to the last. If a layer returns a tuple, its
            first element is read.
        read: Function that computes logits, of shape (B, L, V), from the output of a layer, of
            shape (B, L, d_model). It applies what follows the last layer: the final normalisation
            of a pre-norm stack, and the output layer. It must not contain one of the layers.

    Raises:
        TypeError: If a layer is not a module, or ``read`` is not callable.
        ValueError: If there are no layers.

    Yields:
        For each layer, a list with the probabilities of each call, of shape (B, L, V), without
        gradient.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import build_encoder, PreNorm
        >>> from transformer_blocks.inspection import logit_lens
        >>> encoder = build_encoder(
        ...     num_layers=2, d_model=16, num_heads=4, d_ff=32, residual=PreNorm
        ... )
        >>> output = nn.Linear(16, 100)
        >>> with logit_lens(encoder.layers, lambda x: output(encoder.norm(x))) as lens:
        ...     probabilities = output(encoder(torch.randn(1, 5, 16))).softmax(dim=-1)
        >>> torch.allclose(lens[-1][0], probabilities, atol=1e-6)  # the last layer's is the model's
        True
    """
    if not layers:
        raise ValueError("layers must not be empty, got none")
    recorded: list[list[Tensor]] = [[] for _ in layers]

    @torch.no_grad()
    def record(number: int, layer: nn.Module, inputs: object, output: Any) -> None:
        logits = read(output[0] if isinstance(output, tuple) else output)
        precise = torch.promote_types(logits.dtype, torch.float32)
        recorded[number].append(logits.softmax(dim=-1, dtype=precise))

    with hooked(dict(enumerate(layers)), after=record):
        yield recorded
