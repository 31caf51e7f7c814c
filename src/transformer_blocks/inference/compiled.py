"""Compiled steps: one call for one word, made of the modules by a compiler.

``torch.export`` writes down what a step computes, for whatever lengths; AOTInductor makes machine
code of it, which takes tensors, gives a tensor, and checks nothing on its way. So all is checked
here, before: what signature of step it is, and whether there is code for it. What is no plain step takes
the usual way, through the modules.
"""

import logging
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from transformer_blocks._checks import check_module, check_size
from transformer_blocks._contexts import SharedContext
from transformer_blocks.cache import DecoderCache, KeyValueCache, SelfAttentionCache, undo_on_error
from transformer_blocks.decoder import Decoder
from transformer_blocks.encoder import Encoder
from transformer_blocks.inference.export import (
    FEW_ROWS,
    Run,
    StepSignature,
    compile_ahead_of_time,
    export_step,
)
from transformer_blocks.inference.module import InferenceModule

log = logging.getLogger(__name__)


class CompiledEncoder(InferenceModule, Encoder):
    """An encoder whose steps of one position are compiled.

    Prompts, the first step of a signature, and whatever else is no plain step, take the usual way. Hooks
    are not called in a step, but :func:`~transformer_blocks.record_attention` sees it.

    Args:
        encoder: The stack to replace, with prepared parts.
    """

    def __init__(self, encoder: Encoder) -> None:
        nn.Module.__init__(self)
        self.layers, self.norm = encoder.layers, encoder.norm
        self._eager_forward = encoder.forward
        self._steps = CompiledSteps(encoder)

    @undo_on_error
    def forward(  # noqa: D102
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: SelfAttentionCache | None = None,
    ) -> Tensor:
        stepped = None
        if isinstance(cache, SelfAttentionCache) and mask is None:
            stepped = self._steps.take(x, cache.layers, causal=causal)
        if stepped is not None:
            return stepped
        return self._eager_forward(x, mask=mask, causal=causal, cache=cache)


class CompiledDecoder(InferenceModule, Decoder):
    """A decoder whose steps of one position are compiled; like :class:`CompiledEncoder`.

    Args:
        decoder: The stack to replace, with prepared parts.
    """

    def __init__(self, decoder: Decoder) -> None:
        nn.Module.__init__(self)
        self.layers, self.norm = decoder.layers, decoder.norm
        self._eager_forward = decoder.forward
        self._steps = CompiledSteps(decoder)

    @undo_on_error
    def forward(  # noqa: D102
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        causal: bool = True,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        stepped = None
        if isinstance(cache, DecoderCache) and memory is mask is memory_mask is None:
            stepped = self._steps.take(
                x, cache.layers, cache.memory, cache.memory_mask, causal=causal
            )
        if stepped is not None:
            return stepped
        return self._eager_forward(
            x, memory, mask=mask, memory_mask=memory_mask, causal=causal, cache=cache
        )


@torch.no_grad()
def compile_steps(model: nn.Module, *, sentences: int = 1, beams: int = 1) -> None:
    """Compile the decoding steps of a prepared model before it is used.

    Otherwise the second step of each signature is compiled while a search waits for it. A server calls
    this once, with the largest batch and the beams that it searches with. Half a minute each, it
    compiles the steps of one sentence, of several with up to eight rows in all, and of more rows;
    for a decoder, each with a masked memory and without.

    Args:
        model: What ``prepare(model, compiled=True)`` returned.
        sentences: Largest number of sentences in a batch.
        beams: Rows of a sentence: the beam size, or 1 for greedy search and for sampling.

    Raises:
        TypeError: If a number is no whole number.
        ValueError: If a number is not positive, or the model has no steps to compile.

    Example:
        >>> model = prepare(build_decoder(num_layers=2, d_model=16, num_heads=4, d_ff=32))
        >>> compile_steps(model)
        Traceback (most recent call last):
        ValueError: model must be prepared with compiled=True, got no encoder or decoder that is
    """
    check_module(model=model)
    check_size(sentences=sentences, beams=beams)
    stacks = [
        part for part in model.modules() if isinstance(part, CompiledEncoder | CompiledDecoder)
    ]
    if not stacks:
        raise ValueError(
            "model must be prepared with compiled=True, got no encoder or decoder that is"
        )
    for stack in stacks:
        for batch in sorted({1, min(2, sentences), sentences}):
            _take_steps(stack, batch, beams)


def _take_steps(stack: CompiledEncoder | CompiledDecoder, sentences: int, beams: int) -> None:
    """Take three steps of zeros: one begins the past, one is noted, and one is compiled."""
    layer: Any = stack.layers[0]
    width = layer.self_attention.query_projection.in_features
    dtypes = [each.dtype for each in (*stack.parameters(), *stack.buffers())]
    dtype = next((each for each in dtypes if each.is_floating_point), torch.get_default_dtype())
    rows = torch.arange(sentences).repeat_interleave(beams)
    caches: list[Any] = []
    if isinstance(stack, CompiledEncoder):
        caches.append(stack.new_cache())
    else:
        memory_width = layer.cross_attention.key_projection.in_features
        memory = torch.zeros(sentences, 2, memory_width, dtype=dtype)
        mask = torch.zeros(sentences, 1, 1, 2, dtype=torch.bool)
        mask[-1, ..., -1] = True
        caches += [stack.new_cache(memory), stack.new_cache(memory, memory_mask=mask)]
    for cache in caches:
        if isinstance(stack, CompiledDecoder):
            cache.reorder(rows)
        for _ in range(3):
            stack(torch.zeros(len(rows), 1, width, dtype=dtype), causal=True, cache=cache)


_uncompiled = SharedContext()


def uncompiled() -> SharedContext:
    """Have all stacks take their steps through the modules, as long as the context lasts."""
    return _uncompiled


class CompiledSteps:
    """The steps of a stack: machine code for each signature of them.

    Args:
        stack: An encoder or a decoder, with prepared parts.
    """

    def __init__(self, stack: Encoder | Decoder) -> None:
        self.stack = stack
        layers: Sequence[Any] = list(stack.layers)
        self.width = layers[0].self_attention.query_projection.in_features if layers else 0
        self._runs: dict[StepSignature, Run | None] = {}

    def take(
        self,
        x: Tensor,
        past: Sequence[KeyValueCache],
        memory: Sequence[KeyValueCache] = (),
        memory_mask: Tensor | None = None,
        *,
        causal: bool,
    ) -> Tensor | None:
        """Take a step, if it is a plain one, of a signature that was met before.

        The first of a signature goes the usual way, which tells if something is wrong with it. The
        second is compiled before it is taken, as the log says (level INFO).

        Args:
            x: The newest position. Shape (N, 1, d_model).
            past: What each layer keeps of the earlier ones; the newest is added.
            memory: What each layer of a decoder looks up in the source.
            memory_mask: Hides source positions. Shape (B, 1, 1, S).
            causal: As the stack takes it.

        Returns:
            What the stack gives, shape (N, 1, d_model), or None.
        """
        signature = (
            None if _uncompiled.holders else self._kind(x, past, memory, memory_mask, causal)
        )
        if signature is None or signature not in self._runs:
            if signature is not None:
                self._runs[signature] = None
            return None
        run = self._runs[signature]
        if run is None:
            log.info("compiling the steps of %s: half a minute, once", signature)
            run = self._runs[signature] = compile_ahead_of_time(
                export_step(self.stack, signature), many=signature.many
            )
        tensors = [x.contiguous(), x.new_empty(past[0].length + 1)]
        tensors += [each.reserve(1) for each in past]
        tensors += [cast(Tensor, each.buffer) for each in memory]
        if memory_mask is not None:
            tensors.append(memory_mask.contiguous())
        return run(tensors)[0]

    def _kind(
        self,
        x: Tensor,
        past: Sequence[KeyValueCache],
        memory: Sequence[KeyValueCache],
        memory_mask: Tensor | None,
        causal: bool,
    ) -> StepSignature | None:
        """Find out what signature of step this is; None if it is no plain one, or wrong.

        Nothing is checked after this: a size that is wrong here is read beyond the end of memory.
        """
        if (
            not isinstance(x, Tensor)
            or x.dim() != 3
            or x.shape[1:] != (1, self.width)
            or x.device.type != "cpu"
            or not len(past) == len(self.stack.layers) > 0
            or torch.is_grad_enabled()
            or torch.is_autocast_enabled("cpu")
            or torch.compiler.is_compiling()
        ):
            return None
        rows, length = x.shape[0], past[0].length
        sentences, source = (memory[0].rows, memory[0].length) if memory else (rows, 2)
        # To a compiler, sizes of 0 and 1 are cases of their own.
        if rows == 0 or length == 0 or source < 2 or sentences == 0 or rows % sentences:
            return None
        if memory_mask is not None and (
            memory_mask.shape != (sentences, 1, 1, source) or memory_mask.dtype != torch.bool
        ):
            return None
        layouts = []
        for caches, count, positions in ((past, rows, length), (memory, sentences, source)):
            for each in caches:
                buffer = each.buffer
                if (
                    buffer is None
                    or each.length != positions
                    or buffer.shape[0] != count
                    or buffer.dtype != x.dtype
                    or not buffer.is_contiguous()
                    or (caches is memory and buffer.shape[3] != source)
                ):
                    return None
                layouts.append((buffer.shape[2], buffer.shape[4]))
        return StepSignature(
            several=sentences > 1,
            beams=rows // sentences,
            many=rows > FEW_ROWS,
            masked=memory_mask is not None,
            causal=causal,
            dtype=x.dtype,
            width=x.shape[2],
            layouts=tuple(layouts),
        )
