"""Stacks whose decoding steps are compiled ahead of time.

A compiled program receives tensors, returns a tensor, and checks no sizes. All checks are therefore
made before it is called: ``CompiledSteps`` determines the signature of a step and whether a
program for it exists. Every other call falls back to eager execution, through the modules.
"""

import logging
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from transformer_blocks._checks import check_module, check_size
from transformer_blocks._contexts import eager_execution
from transformer_blocks.cache import DecoderCache, KeyValueCache, SelfAttentionCache, undo_on_error
from transformer_blocks.decoder import Decoder
from transformer_blocks.encoder import Encoder
from transformer_blocks.inference.export import (
    FEW_ROWS,
    CompiledProgram,
    StepSignature,
    compile_ahead_of_time,
    export_step,
)
from transformer_blocks.inference.module import InferenceModule

log = logging.getLogger(__name__)


class CompiledEncoder(InferenceModule, Encoder):
    """An encoder whose decoding steps of one position are compiled.

    The output is that of the given encoder, up to rounding. The prefill of a prompt, the first step
    of each signature, and every call that is not a decoding step are executed eagerly. Compiled
    steps call no hooks; within :func:`~transformer_blocks.record_attention` all steps are executed
    eagerly, so that their attention weights are recorded.

    Args:
        encoder: Stack to replace, whose parts have been prepared.
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
        output = None
        if isinstance(cache, SelfAttentionCache):
            output = self._steps.try_step(x, cache.layers, mask=mask, causal=causal)
        if output is not None:
            return output
        return self._eager_forward(x, mask=mask, causal=causal, cache=cache)


class CompiledDecoder(InferenceModule, Decoder):
    """A decoder whose decoding steps of one position are compiled; see :class:`CompiledEncoder`.

    Args:
        decoder: Stack to replace, whose parts have been prepared.
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
        output = None
        if isinstance(cache, DecoderCache) and memory is mask is memory_mask is None:
            output = self._steps.try_step(
                x, cache.layers, cache.memory, mask=cache.memory_mask, causal=causal
            )
        if output is not None:
            return output
        return self._eager_forward(
            x, memory, mask=mask, memory_mask=memory_mask, causal=causal, cache=cache
        )


@torch.no_grad()
def compile_steps(model: nn.Module, *, batch_size: int = 1, beam_size: int = 1) -> None:
    """Compile the decoding steps of a prepared model before its first use.

    Otherwise the second step of each signature waits for its compilation. A server calls this
    function once, with the largest batch size and the beam size that it will use. It compiles the
    steps of one sequence, of a batch with up to eight rows in all, and of a batch with more rows;
    each of them with and without a mask: of the memory for a decoder, of the padding of prompts for
    an encoder. Each compilation takes about half a minute.

    Args:
        model: Model that ``prepare(model, compiled=True)`` returned.
        batch_size: Largest number of sequences in a batch.
        beam_size: Number of hypotheses per sequence in beam search; 1 for greedy decoding and for
            sampling.

    Raises:
        TypeError: If ``model`` is not a module, or a size is not an integer.
        ValueError: If a size is not positive, or the model has no steps to compile.

    Example:
        >>> model = prepare(build_decoder(num_layers=2, d_model=16, num_heads=4, d_ff=32))
        >>> compile_steps(model)
        Traceback (most recent call last):
        ValueError: model must be prepared with compiled=True, got no encoder or decoder that is
    """
    check_module(model=model)
    check_size(batch_size=batch_size, beam_size=beam_size)
    stacks = [
        part for part in model.modules() if isinstance(part, CompiledEncoder | CompiledDecoder)
    ]
    if not stacks:
        raise ValueError(
            "model must be prepared with compiled=True, got no encoder or decoder that is"
        )
    for stack in stacks:
        for size in sorted({1, min(2, batch_size), batch_size}):
            _warm_up(stack, size, beam_size)


def _warm_up(stack: CompiledEncoder | CompiledDecoder, batch_size: int, beam_size: int) -> None:
    """Run three steps on zeros, without a mask and with one: the third step is compiled."""
    layer: Any = stack.layers[0]
    d_model = layer.self_attention.query_projection.in_features
    dtypes = [tensor.dtype for tensor in (*stack.parameters(), *stack.buffers())]
    dtype = next((each for each in dtypes if each.is_floating_point), torch.get_default_dtype())
    rows = torch.arange(batch_size).repeat_interleave(beam_size)
    for is_masked in (False, True):
        cache: Any
        masks: list[Tensor | None] = [None] * 3  # of the padding
        if isinstance(stack, CompiledEncoder):
            cache = stack.new_cache()
            if is_masked:
                masks = [torch.zeros(len(rows), 1, 1, n, dtype=torch.bool) for n in (1, 2, 3)]
        else:
            memory_width = layer.cross_attention.key_projection.in_features
            memory = torch.zeros(batch_size, 2, memory_width, dtype=dtype)
            memory_mask = torch.zeros(batch_size, 1, 1, 2, dtype=torch.bool)
            memory_mask[-1, ..., -1] = True
            cache = stack.new_cache(memory, memory_mask=memory_mask if is_masked else None)
            cache.reorder(rows)
        for mask in masks:
            x = torch.zeros(len(rows), 1, d_model, dtype=dtype)
            stack(x, mask=mask, causal=True, cache=cache)


class CompiledSteps:
    """The decoding steps of a stack: one compiled program for each step signature.

    Args:
        stack: Encoder or decoder whose parts have been prepared.
    """

    def __init__(self, stack: Encoder | Decoder) -> None:
        self.stack = stack
        layers: Sequence[Any] = list(stack.layers)
        self.d_model = layers[0].self_attention.query_projection.in_features if layers else 0
        self._programs: dict[StepSignature, CompiledProgram | None] = {}

    def try_step(
        self,
        x: Tensor,
        caches: Sequence[KeyValueCache],
        memory_caches: Sequence[KeyValueCache] = (),
        *,
        mask: Tensor | None,
        causal: bool,
    ) -> Tensor | None:
        """Run a compiled decoding step, if its signature has occurred before.

        The first step of a signature must be executed eagerly, which raises an error if its
        arguments are wrong. Before the second step, the program is compiled; this is logged at
        level INFO.

        Args:
            x: Embedded new tokens, of shape (N, 1, d_model).
            caches: Self-attention cache of each layer; the new keys and values are appended.
            memory_caches: Keys and values of the memory for each decoder layer; empty for an
                encoder.
            mask: For an encoder, the mask of the padding, of shape (N, 1, 1, length + 1); for a
                decoder, that of the memory, of shape (B, 1, 1, S).
            causal: The stack's argument ``causal``.

        Returns:
            The output of the stack, of shape (N, 1, d_model), or None if the step must be executed
            eagerly.
        """
        signature = None
        if not eager_execution.holders:
            signature = self._signature(x, caches, memory_caches, mask, causal)
        if signature is None or signature not in self._programs:
            if signature is not None:
                self._programs[signature] = None
            return None
        program = self._programs[signature]
        if program is None:
            log.info("compiling the decoding steps for %s, once: about half a minute", signature)
            program = self._programs[signature] = compile_ahead_of_time(
                export_step(self.stack, signature), autotune=not signature.is_prepacked
            )
        tensors = [x.contiguous(), x.new_empty(caches[0].length + 1)]
        tensors += [cache.reserve(1) for cache in caches]
        tensors += [cast(Tensor, cache.buffer) for cache in memory_caches]
        if mask is not None:
            tensors.append(mask.contiguous())
        return program(tensors)[0]

    def _signature(
        self,
        x: Tensor,
        caches: Sequence[KeyValueCache],
        memory_caches: Sequence[KeyValueCache],
        mask: Tensor | None,
        causal: bool,
    ) -> StepSignature | None:
        """Return the signature of a step, or None if it must be executed eagerly.

        Nothing is checked after this method. If it accepted a wrong size, the compiled program
        would read or write beyond the end of a buffer.
        """
        if (
            not isinstance(x, Tensor)
            or x.dim() != 3
            or x.shape[1:] != (1, self.d_model)
            or x.device.type != "cpu"
            or not len(caches) == len(self.stack.layers) > 0
            or torch.is_grad_enabled()
            or torch.is_autocast_enabled("cpu")
            or torch.compiler.is_compiling()
        ):
            return None
        rows, length = x.shape[0], caches[0].length
        batch_size, source_length, masked_length = rows, 2, length + 1
        if memory_caches:
            batch_size, source_length = memory_caches[0].rows, memory_caches[0].length
            masked_length = source_length
        # The compiler treats dimensions of size 0 and 1 as constants.
        if (
            rows == 0
            or length == 0
            or source_length < 2
            or batch_size == 0
            or rows % batch_size != 0
        ):
            return None
        if mask is not None and (
            not isinstance(mask, Tensor)
            or mask.shape != (batch_size, 1, 1, masked_length)
            or mask.dtype != torch.bool
            or mask.device != x.device
        ):
            return None
        head_sizes = []
        for group, expected_rows, expected_length in (
            (caches, rows, length),
            (memory_caches, batch_size, source_length),
        ):
            for cache in group:
                buffer = cache.buffer
                if (
                    buffer is None
                    or cache.length != expected_length
                    or buffer.shape[0] != expected_rows
                    or buffer.dtype != x.dtype
                    or not buffer.is_contiguous()
                    or (group is memory_caches and buffer.shape[3] != source_length)
                ):
                    return None
                head_sizes.append((buffer.shape[2], buffer.shape[4]))
        return StepSignature(
            is_batch=batch_size > 1,
            beam_size=rows // batch_size,
            is_prepacked=rows > FEW_ROWS,
            is_masked=mask is not None,
            causal=causal,
            dtype=x.dtype,
            d_model=x.shape[2],
            head_sizes=tuple(head_sizes),
        )
