"""Stacks whose decoding steps are compiled ahead of time.

A compiled program receives tensors, returns a tensor, and checks no sizes. All checks are therefore
made before it is called: ``CompiledSteps`` determines the signature of a step and whether a
program for it exists. Every other call falls back to eager execution, through the modules.
"""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from transformer_blocks._contexts import eager_execution
from transformer_blocks._contracts import Function, Size, check
from transformer_blocks.cache import DecoderCache, KeyValueCache, SelfAttentionCache
from transformer_blocks.decoder import Decoder
from transformer_blocks.encoder import Encoder
from transformer_blocks.fast.caching import MIN_CAPACITY
from transformer_blocks.generation.incremental import IncrementalDecoder
from transformer_blocks.inference.export import (
    FEW_ROWS,
    OuterLayers,
    StepSignature,
    agrees_with_eager_step,
    compile_ahead_of_time,
    export_step,
    maximum_length,
    open_library,
)
from transformer_blocks.inference.fingerprint import fingerprint
from transformer_blocks.inference.module import InferenceModule
from transformer_blocks.inference.store import ProgramStore

log = logging.getLogger(__name__)


class CompiledStack(InferenceModule):
    """Base class of stacks whose decoding steps of one position are compiled.

    The output is that of the given stack, up to rounding. The prefill of a prompt, the first step
    of each signature, and every call that is not a decoding step are executed eagerly. Compiled
    steps call no hooks; within :func:`~transformer_blocks.record_attention` all steps are executed
    eagerly, so that their attention weights are recorded.

    Args:
        stack: Stack to replace, whose parts have been prepared.
        store: Where compiled programs are kept for other processes; None to keep none.
    """

    def __init__(self, stack: Encoder | Decoder, store: ProgramStore | None = None) -> None:
        nn.Module.__init__(self)
        self.layers, self.norm = stack.layers, stack.norm
        self._eager_forward: Any = stack.forward
        self._steps = CompiledSteps(stack, store)

    def run_whole_step(
        self, steps: IncrementalDecoder, tokens: Tensor, scores: Tensor | None, count: int
    ) -> list[Tensor] | None:
        """Run a compiled step from the newest tokens to the most probable extensions.

        Args:
            steps: The adapter of this stack, with the layers around it and its cache.
            tokens: Token ids, of shape (N,).
            scores: Score of each hypothesis, of shape (B, K); None if only logits are needed.
            count: Number of extensions to select for each sequence.

        Returns:
            The logits of the next tokens, of shape (N, V), and the scores and indices of the best
            extensions, both of shape (B, count); or None if the step must be executed eagerly.
        """
        if scores is not None and scores.shape[1] == 1 < count:
            return None  # the first step of a beam search: `step` may have a program for it
        outer = OuterLayers(steps.embed, steps.output)
        if not all(map(_is_prepared, outer)) or any(self._steps.hooks(self, outer)):
            return None
        return self._steps.try_step(
            tokens,
            mask=steps._padding,
            causal=True,
            scores=scores,
            outer=outer,
            count=count,
            cache=steps.cache,
        )


class CompiledEncoder(CompiledStack, Encoder):
    """An encoder whose decoding steps are compiled; see :class:`CompiledStack`."""

    def forward(  # noqa: D102
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: SelfAttentionCache | None = None,
    ) -> Tensor:
        if isinstance(cache, SelfAttentionCache):
            output = self._steps.try_step(x, mask=mask, causal=causal, cache=cache)
            if output is not None:
                return output[0]
        return self._eager_forward(x, mask=mask, causal=causal, cache=cache)


class CompiledDecoder(CompiledStack, Decoder):
    """A decoder whose decoding steps are compiled; see :class:`CompiledStack`."""

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
        if isinstance(cache, DecoderCache) and memory is memory_mask is None:
            output = self._steps.try_step(x, mask=mask, causal=causal, cache=cache)
            if output is not None:
                return output[0]
        return self._eager_forward(
            x, memory, mask=mask, memory_mask=memory_mask, causal=causal, cache=cache
        )


@torch.no_grad()
def compile_steps(
    model: nn.Module,
    *,
    batch_size: int = 1,
    beam_size: int = 1,
    embed: Callable[[Tensor, Any], Tensor] | None = None,
    output: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Compile the decoding steps of a prepared model before its first use.

    Otherwise the second step of each signature waits for its compilation. A server calls this
    function once, with the largest batch size and the beam size that it will use. It compiles the
    steps of one sequence, of a batch with up to eight rows in all, and of a batch with more rows;
    each of them with and without a mask: of the memory for a decoder, of the padding of prompts for
    an encoder. Each compilation takes about half a minute.

    Args:
        model: Model that ``prepare(model, compiled=True)`` returned. With ``embed`` and ``output``,
            its stack alone: the argument ``stack`` of
            :class:`~transformer_blocks.generation.IncrementalDecoder`.
        batch_size: Largest number of sequences in a batch.
        beam_size: Number of hypotheses per sequence in beam search; 1 for greedy decoding and for
            sampling.
        embed: The same argument of ``IncrementalDecoder``. With both functions, whole steps are
            compiled, from tokens to the most probable extensions; otherwise those of the stacks.
        output: The same argument of ``IncrementalDecoder``.

    Raises:
        TypeError: If ``model`` is not a module, a size is not an integer, or ``embed`` or
            ``output`` cannot be called.
        ValueError: If a size is not positive, the model has no steps to compile, or only one of
            ``embed`` and ``output`` is given.

    Example:
        >>> from transformer_blocks import build_decoder
        >>> from transformer_blocks.inference import compile_steps, prepare
        >>> model = prepare(build_decoder(num_layers=2, d_model=16, num_heads=4, d_ff=32))
        >>> compile_steps(model)
        Traceback (most recent call last):
        ValueError: model must be prepared with compiled=True, got no encoder or decoder that is
    """
    check(nn.Module, model=model)
    check(Size, batch_size=batch_size, beam_size=beam_size)
    outer = None
    if embed is not None and output is not None:
        check(Function, embed=embed, output=output)
        outer = OuterLayers(embed, output)
    elif embed is not None or output is not None:
        raise ValueError("embed and output must be given together, got only one of them")
    stacks = [
        part for part in model.modules() if isinstance(part, CompiledEncoder | CompiledDecoder)
    ]
    if not stacks:
        raise ValueError(
            "model must be prepared with compiled=True, got no encoder or decoder that is"
        )
    for stack in stacks:
        for size in sorted({1, min(2, batch_size), batch_size}):
            _warm_up(stack, size, beam_size, outer or _zeros_for(stack))


def _warm_up(
    stack: CompiledEncoder | CompiledDecoder, batch_size: int, beam_size: int, outer: OuterLayers
) -> None:
    """Run three steps, without a mask and with one: the third step is compiled."""
    layer: Any = stack.layers[0]
    rows = torch.arange(batch_size).repeat_interleave(beam_size)
    scores = torch.zeros(batch_size, beam_size, dtype=torch.float64)
    for is_masked in (False, True):
        cache: Any
        if isinstance(stack, CompiledEncoder):
            cache = stack.new_cache()
        else:
            memory_width = layer.cross_attention.key_projection.in_features
            memory = torch.zeros(batch_size, 2, memory_width, dtype=_dtype_of(stack))
            memory_mask = torch.zeros(batch_size, 1, 1, 2, dtype=torch.bool)
            memory_mask[-1, ..., -1] = True
            cache = stack.new_cache(memory, memory_mask=memory_mask if is_masked else None)
            cache.reorder(rows)
        steps = IncrementalDecoder(stack, cache, embed=outer.embed, output=outer.output)
        if is_masked and isinstance(stack, CompiledEncoder):
            steps.prefill(torch.zeros(2, 2, dtype=torch.int64), lengths=[2, 1])
            steps.reorder(torch.ones_like(rows))  # all rows are padded
        tokens = torch.zeros_like(rows)
        for _ in range(3):
            if steps.step_top_k(tokens, scores, 1 if beam_size == 1 else 2 * beam_size) is None:
                steps.step(tokens)


def _zeros_for(stack: CompiledEncoder | CompiledDecoder) -> OuterLayers:
    """Return layers around a stack that embed all tokens as zeros and return no logits."""
    layer: Any = stack.layers[0]
    d_model, dtype = layer.self_attention.query_projection.in_features, _dtype_of(stack)
    return OuterLayers(
        embed=lambda tokens, _: torch.zeros(*tokens.shape, d_model, dtype=dtype),
        output=lambda hidden: hidden,
    )


def _dtype_of(stack: nn.Module) -> torch.dtype:
    """Return the floating-point dtype of a stack's weights."""
    dtypes = [tensor.dtype for tensor in (*stack.parameters(), *stack.buffers())]
    return next((each for each in dtypes if each.is_floating_point), torch.get_default_dtype())


class CompiledSteps:
    """The decoding steps of a stack: one compiled program for each step signature.

    Args:
        stack: Encoder or decoder whose parts have been prepared.
        store: Where compiled programs are kept for other processes; None to keep none.
    """

    def __init__(self, stack: Encoder | Decoder, store: ProgramStore | None) -> None:
        self.stack = stack
        layers: Sequence[Any] = list(stack.layers)
        self.d_model = layers[0].self_attention.query_projection.in_features if layers else 0
        self.store = store
        self._programs: dict[StepSignature, _Program | None] = {}
        self._empty_buffers: list[Tensor] = []  # for each layer, like its buffer but without rows
        self._hooks: dict[OuterLayers, list[dict[int, Any]]] = {}

    def hooks(self, stack: nn.Module, outer: OuterLayers) -> list[dict[int, Any]]:
        """Return the dictionaries of the hooks that a compiled step would not call."""
        if outer not in self._hooks:
            owners: list[Any] = [getattr(function, "__self__", function) for function in outer]
            parts = [stack, *(part for owner in owners for part in _modules_outside_stacks(owner))]
            names = "_forward_hooks", "_forward_pre_hooks"
            self._hooks[outer] = [getattr(part, name) for part in parts for name in names]
        return self._hooks[outer]

    def try_step(
        self,
        x: Tensor,
        *,
        mask: Tensor | None,
        causal: bool,
        cache: SelfAttentionCache | DecoderCache,
        outer: OuterLayers | None = None,
        scores: Tensor | None = None,
        count: int = 0,
    ) -> list[Tensor] | None:
        """Run a compiled decoding step, if its signature has occurred before.

        The first step of a signature must be executed eagerly, which raises an error if its
        arguments are wrong. Before the second step, the program is compiled; this is logged at
        level INFO. A step with an empty cache uses a program that exists, but none is compiled for
        it.

        Args:
            x: Embedded new tokens, of shape (N, 1, d_model); with outer layers, their ids, (N,).
            mask: For an encoder, the mask of the padding, of shape (N, 1, 1, length + 1), or with
                outer layers the number of padding tokens of each row, of shape (N,).
            causal: The stack's argument ``causal``.
            cache: The cache of the stack, to which the new keys and values are appended.
            outer: Embedding and output layer; None for a step of the stack alone.
            scores: Score of each hypothesis, of shape (B, K); zeros if not given.
            count: Number of extensions to select for each sequence.

        Returns:
            The outputs of the program (:class:`~transformer_blocks.inference.export._Step`), or
            None if the step must be executed eagerly.
        """
        if eager_execution.holders or not isinstance(x, Tensor) or not x.dim():
            return None
        caches = cache.layers_for(x, len(self.stack.layers))
        memory_caches = getattr(cache, "memory", ())
        if isinstance(cache, DecoderCache):
            if mask is not None:  # of the target
                return None
            mask = cache.memory_mask
        rows = scores if scores is not None else x
        batch_size = memory_caches[0].rows if memory_caches else len(rows)
        buffers: list[Any] = [each.buffer for each in caches]
        is_first = all(buffer is None for buffer in buffers)
        if is_first:
            buffers = [like.new_empty(len(x), *like.shape[1:]) for like in self._empty_buffers]
        signature = self._signature(
            x, caches, buffers, memory_caches, mask, causal, batch_size, outer, count
        )
        if signature is None or (is_first and self._programs.get(signature) is None):
            return None
        if signature not in self._programs:
            self._programs[signature] = None
            return None
        if scores is None:
            scores = torch.zeros(batch_size, signature.beam_size, dtype=torch.float64, device="cpu")
        elif scores.shape != (batch_size, signature.beam_size) or scores.dtype != torch.float64:
            return None
        program = self._programs[signature]
        if program is None:
            program = self._programs[signature] = _Program(self.stack, signature, self.store)
            self._empty_buffers = [
                buffer.new_empty(0, *buffer.shape[1:3], MIN_CAPACITY, buffer.shape[4])
                for buffer in buffers
            ]
        length = caches[0].length
        if not program.accepts(x, length):
            return None
        before = [x.contiguous(), torch.empty(length + 1, device="cpu")]
        after = [cast(Tensor, each.buffer) for each in memory_caches]
        if mask is not None:
            after.append(mask.contiguous())
        after.append(scores.contiguous())
        if is_first and program.is_right_when_empty is None:
            # The compiler assumes that sizes are at least 2, also that of the keys, which is 1 now.
            program.is_right_when_empty = agrees_with_eager_step(
                self.stack, signature, program.run, [*before, *buffers, *after]
            )
        if is_first and not program.is_right_when_empty:
            return None
        pairs = zip(caches, buffers, strict=True)
        outputs = program.run(
            [*before, *(layer.reserve(1, first=first) for layer, first in pairs), *after]
        )
        for each in (*caches, cache):
            each.advance(1)
        return outputs

    def _signature(
        self,
        x: Tensor,
        caches: Sequence[KeyValueCache],
        buffers: Sequence[Tensor | None],
        memory_caches: Sequence[KeyValueCache],
        mask: Tensor | None,
        causal: bool,
        batch_size: int,
        outer: OuterLayers | None,
        count: int,
    ) -> StepSignature | None:
        """Return the signature of a step, or None if it must be executed eagerly.

        Nothing but token ids and the length is checked after this method. If it accepted a wrong
        size, the compiled program would read or write beyond the end of a buffer.
        """
        if (
            x.shape[1:] != (() if outer else (1, self.d_model))
            or x.device.type != "cpu"
            or not len(buffers) == len(caches) == len(self.stack.layers) > 0
            or buffers[0] is None
            or torch.is_grad_enabled()
            or torch.is_autocast_enabled("cpu")
            or torch.compiler.is_compiling()
        ):
            return None
        rows, length, dtype = x.shape[0], caches[0].length, buffers[0].dtype
        source_length = memory_caches[0].length if memory_caches else 2
        # The compiler treats dimensions of size 0 and 1 as constants.
        if (
            rows == 0
            or source_length < 2
            or batch_size == 0
            or rows % batch_size != 0
            or x.dtype != (torch.int64 if outer else dtype)
        ):
            return None
        if mask is not None:
            shape: tuple[int, ...] = (batch_size, 1, 1, source_length)
            if not memory_caches:
                if length == 0:
                    return None
                shape = (rows,) if outer else (rows, 1, 1, length + 1)
            if (
                not isinstance(mask, Tensor)
                or mask.shape != shape
                or mask.dtype != (torch.int64 if outer and not memory_caches else torch.bool)
                or mask.device != x.device
            ):
                return None
        head_sizes = []
        memory_buffers = [each.buffer for each in memory_caches]
        for group, group_buffers, expected_rows, expected_length in (
            (caches, buffers, rows, length),
            (memory_caches, memory_buffers, batch_size, source_length),
        ):
            for cache, buffer in zip(group, group_buffers, strict=True):
                if (
                    buffer is None
                    or cache.length != expected_length
                    or buffer.shape[0] != expected_rows
                    or buffer.dtype != dtype
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
            dtype=dtype,
            d_model=self.d_model,
            head_sizes=tuple(head_sizes),
            outer=outer,
            num_extensions=count,
        )


class _Program:
    """The compiled program of a step signature, and the token ids and lengths that it accepts.

    If the step cannot be traced or compiled, for example without a C++ compiler, the program
    accepts nothing, and every step of this signature is executed eagerly. In the eager step with
    outer layers, the stack's part is compiled.
    """

    def __init__(
        self, stack: Encoder | Decoder, signature: StepSignature, store: ProgramStore | None
    ) -> None:
        self.vocabulary_size, self.maximum_length = math.inf, math.inf
        self.has_tokens = signature.outer is not None
        self.is_right_when_empty: bool | None = None
        key = None if store is None else _key(stack, signature)
        if store is not None and key is not None:
            found = store.load(key, open_library)
            if found is not None:
                self.run, facts = found
                self.vocabulary_size = facts["vocabulary_size"]
                self.maximum_length = facts["maximum_length"]
                return
        log.info("compiling the decoding steps for %s, once: about half a minute", signature)
        try:
            program = export_step(stack, signature)
            if signature.outer is not None:
                self.maximum_length = maximum_length(program)
                self.vocabulary_size = _vocabulary_size(signature)
            compile_program = partial(compile_ahead_of_time, prepack=signature.is_prepacked)
            if store is not None and key is not None:
                sizes = self.vocabulary_size, self.maximum_length
                facts = dict(zip(("vocabulary_size", "maximum_length"), sizes, strict=True))
                compile_program.keywords["keep"] = partial(store.save, key, facts=facts)
            self.run = compile_program(program)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            log.warning(
                "the decoding steps for %s cannot be compiled and are executed eagerly: %s: %s",
                *(signature, type(error).__name__, reason),
            )
            self.maximum_length = 0

    def accepts(self, x: Tensor, length: int) -> bool:
        """Return whether the program may be called; it does not check token ids and positions."""
        if length >= self.maximum_length:
            return False
        if not self.has_tokens:
            return True
        ids = x.tolist()
        return min(ids) >= 0 and max(ids) < self.vocabulary_size


def _key(stack: Encoder | Decoder, signature: StepSignature) -> str | None:
    """Return the fingerprint of a step, or None if its program cannot be kept."""
    try:
        return fingerprint(stack, signature)
    except TypeError as error:
        log.warning("the compiled program for %s is not kept: %s", signature, error)
        return None


def _vocabulary_size(signature: StepSignature) -> int:
    """Return the number of logits, which are for ids that the embedding must know too."""
    embed, output = cast(OuterLayers, signature.outer)
    hidden = torch.zeros(1, signature.d_model, dtype=signature.dtype, device="cpu")
    size = output(hidden).shape[1]
    embed(torch.tensor([[size - 1]], device="cpu"), 0)  # raises an error if it does not
    return size


def _is_prepared(function: object) -> bool:
    """Return whether a function is a prepared module or a method of one, with constant weights."""
    return isinstance(getattr(function, "__self__", function), InferenceModule)


def _modules_outside_stacks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and its parts, except encoders and decoders."""
    yield module
    for part in module.children():
        if not isinstance(part, Encoder | Decoder):
            yield from _modules_outside_stacks(part)
