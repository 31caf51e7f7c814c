"""Compiled steps: one call for one word, made of the modules by a compiler.

``torch.export`` writes down what a step computes, for whatever lengths; AOTInductor makes machine
code of it, which takes tensors, gives a tensor, and checks nothing on its way. So all is checked
here, before: what kind of step it is, and whether there is code for it. What is no plain step takes
the usual way, through the modules.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from transformer_blocks.cache import DecoderCache, EncoderCache, KeyValueCache
from transformer_blocks.decoder import Decoder
from transformer_blocks.encoder import Encoder
from transformer_blocks.packing.linear import sorting_when_compiled

FEW_ROWS = 8  # up to so many, a compiler's own product is faster than oneDNN's

Run = Callable[[list[Tensor]], list[Tensor]]


class CompiledEncoder(Encoder):
    """An encoder whose steps of one position are compiled.

    Prompts, the first step, and whatever else is no plain step, take the usual way; so does a step
    that hooks watch, as those of :func:`~transformer_blocks.record_attention` do.

    Args:
        encoder: The stack to replace, with packed parts.
    """

    def __init__(self, encoder: Encoder) -> None:
        nn.Module.__init__(self)
        self.layers, self.norm = encoder.layers, encoder.norm
        self._usual_way = encoder.forward
        self._steps = CompiledSteps(encoder)

    def forward(  # noqa: D102
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: EncoderCache | None = None,
    ) -> Tensor:
        stepped = None
        if cache is not None and mask is None:
            stepped = self._steps.take(x, cache.past, causal=causal)
        if stepped is not None:
            return stepped
        return self._usual_way(x, mask=mask, causal=causal, cache=cache)


class CompiledDecoder(Decoder):
    """A decoder whose steps of one position are compiled; like :class:`CompiledEncoder`.

    Args:
        decoder: The stack to replace, with packed parts.
    """

    def __init__(self, decoder: Decoder) -> None:
        nn.Module.__init__(self)
        self.layers, self.norm = decoder.layers, decoder.norm
        self._usual_way = decoder.forward
        self._steps = CompiledSteps(decoder)

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
        if cache is not None and memory is None and mask is None and memory_mask is None:
            stepped = self._steps.take(
                x, cache.past, cache.memory, cache.memory_mask, causal=causal
            )
        if stepped is not None:
            return stepped
        return self._usual_way(
            x, memory, mask=mask, memory_mask=memory_mask, causal=causal, cache=cache
        )


_uncompiled = False


@contextmanager
def uncompiled() -> Iterator[None]:
    """Have all stacks take their steps through the modules, as long as the context lasts."""
    global _uncompiled
    before, _uncompiled = _uncompiled, True
    try:
        yield
    finally:
        _uncompiled = before


class CompiledSteps:
    """The steps of a stack: machine code for each kind of them.

    Args:
        stack: An encoder or a decoder, with packed parts.
    """

    def __init__(self, stack: Encoder | Decoder) -> None:
        self.stack = stack
        self._runs: dict[Kind, Run | None] = {}

    def take(
        self,
        x: Tensor,
        past: Sequence[KeyValueCache],
        memory: Sequence[KeyValueCache] = (),
        memory_mask: Tensor | None = None,
        *,
        causal: bool,
    ) -> Tensor | None:
        """Take a step, if it is a plain one, of a kind that was met before.

        The first of a kind goes the usual way, which tells if something is wrong with it.

        Args:
            x: The newest position. Shape (N, 1, d_model).
            past: What each layer keeps of the earlier ones; the newest is added.
            memory: What each layer of a decoder looks up in the source.
            memory_mask: Hides source positions. Shape (B, 1, 1, S).
            causal: As the stack takes it.

        Returns:
            What the stack gives, shape (N, 1, d_model), or None.
        """
        kind = None if _uncompiled else self._kind(x, past, memory, memory_mask, causal)
        if kind is None or kind not in self._runs:
            if kind is not None:
                self._runs[kind] = None
            return None
        run = self._runs[kind]
        if run is None:
            run = self._runs[kind] = to_machine_code(self._export(kind), many=kind.many)
        tensors = [x.contiguous(), torch.empty(past[0].length + 1)]
        tensors += [each.claim(1) for each in past]
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
    ) -> "Kind | None":
        """Find out what kind of step this is; None if it is no plain one, or wrong.

        Nothing is checked after this: a size that is wrong here is read beyond the end of memory.
        """
        if (
            x.dim() != 3
            or x.shape[1] != 1
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
        return Kind(
            several=sentences > 1,
            beams=rows // sentences,
            many=rows > FEW_ROWS,
            masked=memory_mask is not None,
            causal=causal,
            dtype=x.dtype,
            width=x.shape[2],
            layouts=tuple(layouts),
        )

    def _export(self, kind: "Kind") -> ExportedProgram:
        """Write down what a step of a kind computes, whatever its lengths."""
        # Sizes that may change are made up, all different: equal ones would be taken for one.
        length, source, room = 13, 11, 101
        sentences, several, rows_of_several = 1, {}, {}
        if kind.several:
            sentences = 61 if kind.many else FEW_ROWS // kind.beams
            number = Dim("B")
            several = {0: number}
            rows_of_several = {0: kind.beams * number if kind.beams > 1 else number}
        rows, depth = sentences * kind.beams, len(self.stack.layers)
        past = [
            torch.zeros(rows, 2, heads, room + layer, width, dtype=kind.dtype)
            for layer, (heads, width) in enumerate(kind.layouts[:depth])
        ]
        memory = [
            torch.zeros(sentences, 2, heads, source, width, dtype=kind.dtype)
            for heads, width in kind.layouts[depth:]
        ]
        x, written = torch.zeros(rows, 1, kind.width, dtype=kind.dtype), torch.empty(length)
        inputs: list[Any] = [x, written, past, memory]
        changes: list[Any] = [
            rows_of_several,
            {0: Dim.DYNAMIC},
            [rows_of_several | {3: Dim.DYNAMIC} for _ in past],
            [several | {3: Dim.DYNAMIC} for _ in memory],
        ]
        if kind.masked:
            inputs.append(torch.zeros(sentences, 1, 1, source, dtype=torch.bool))
            changes.append(several | {3: Dim.DYNAMIC})
        with _undisturbed(), sorting_when_compiled() if kind.many else nullcontext():
            return torch.export.export(
                _Step(self.stack, beams=kind.beams, causal=kind.causal),
                tuple(inputs),
                dynamic_shapes=tuple(changes),
                prefer_deferred_runtime_asserts_over_guards=True,
            )


class Kind(NamedTuple):
    """What is fixed in a compiled step.

    Attributes:
        several: Whether it is of several sentences; their number may change.
        beams: Rows of a sentence that share its memory.
        many: Whether there are more than a few rows.
        masked: Whether source positions are hidden.
        causal: As the stack takes it.
        dtype: Of all numbers.
        width: d_model.
        layouts: Heads and their width, of the past of each layer, and of its memory.
    """

    several: bool
    beams: int
    many: bool
    masked: bool
    causal: bool
    dtype: torch.dtype
    width: int
    layouts: tuple[tuple[int, int], ...]


class _Step(nn.Module):
    """A step as a function of tensors alone, which is what can be exported."""

    def __init__(self, stack: Encoder | Decoder, *, beams: int, causal: bool) -> None:
        super().__init__()
        self.stack, self.beams, self.causal = stack, beams, causal

    def forward(
        self,
        x: Tensor,
        written: Tensor,
        past: list[Tensor],
        memory: list[Tensor],
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Take the newest position of each row.

        Args:
            x: Shape (N, 1, d_model).
            written: Anything with one number more than positions are written: a program takes
                sizes from tensors.
            past: The buffers of each layer, into which the newest keys and values are written.
                Shape (N, 2, H, room, d_k).
            memory: The same of the source. Shape (B, 2, H, S, d_k).
            memory_mask: Shape (B, 1, 1, S).
        """
        slots: list[KeyValueCache] = [_Slot(each, written.shape[0] - 1) for each in past]
        if not memory:
            own = EncoderCache(len(past))
            own.past = slots
            return self.stack(x, causal=self.causal, cache=own)
        cache = DecoderCache([_Slot(each, each.shape[3]) for each in memory])
        cache.past, cache.memory_mask, cache._rows_per_sentence = slots, memory_mask, self.beams
        return self.stack(x, causal=self.causal, cache=cache)


class _Slot(KeyValueCache):
    """A cache in a buffer with room enough, of which nothing is checked: its sizes are symbols."""

    def __init__(self, buffer: Tensor, length: int) -> None:
        super().__init__()
        self._buffer: Tensor = buffer
        self._length = length

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        newest = torch.stack((keys, values), dim=1)
        self._buffer[..., self._length : self._length + 1, :] = newest
        self._length += 1
        return self.read()


def to_machine_code(program: ExportedProgram, *, many: bool) -> Run:
    """Make machine code of a program.

    Args:
        program: What to translate.
        many: Whether it works on more than a few rows.

    Returns:
        A function of the program's inputs, in one list, to its outputs.
    """
    options: dict[str, Any] = {"freezing": True}  # weights become part of the code
    if not many:  # it tries products of its own, and keeps those that are faster
        options |= {
            "max_autotune_gemm": True,
            "max_autotune_gemm_backends": "CPP,ATEN",
            "autotune_num_choices_displayed": 0,
            "max_autotune_report_choices_stats": False,
        }
    with TemporaryDirectory() as folder, _undisturbed():
        path = torch._inductor.aot_compile(
            program.module(check_guards=False),
            *program.example_inputs,
            options=options | {"aot_inductor.output_path": folder},
        )
        return torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1).run


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Compile for good, whatever the caller's mode is, and without torch's warnings of itself."""
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")
        yield
