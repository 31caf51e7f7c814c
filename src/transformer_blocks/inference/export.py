"""Programs: a step written down by ``torch.export``, and machine code of it by AOTInductor."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from transformer_blocks.cache import DecoderCache, KeyValueCache, SelfAttentionCache
from transformer_blocks.decoder import Decoder
from transformer_blocks.encoder import Encoder
from transformer_blocks.inference.linear import prepacking_when_compiled

FEW_ROWS = 8  # up to so many, a compiler's own product is faster than oneDNN's

Run = Callable[[list[Tensor]], list[Tensor]]


class StepSignature(NamedTuple):
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

    def __str__(self) -> str:
        """Name the rows it is for, as the log shows it."""
        if self.many:
            return f"more than {FEW_ROWS} rows"
        return f"2 to {FEW_ROWS} rows" if self.several or self.beams > 1 else "a single row"


def export_step(stack: Encoder | Decoder, kind: StepSignature) -> ExportedProgram:
    """Write down what a step computes, whatever its lengths.

    Args:
        stack: An encoder or a decoder, with prepared parts.
        kind: Of the step.

    Returns:
        A program of the inputs of :class:`_Step`, which writes into ``past``.
    """
    # Sizes that may change are made up, all different: equal ones would be taken for one.
    depth, length, source, many = len(stack.layers), 13, 11, 61
    rooms = [room for room in range(101, 103 + 2 * depth) if room % many]
    sentences, several, rows_of_several = 1, {}, {}
    if kind.several:
        sentences = many if kind.many else FEW_ROWS // kind.beams
        number = Dim("B")
        several = {0: number}
        rows_of_several = {0: kind.beams * number if kind.beams > 1 else number}
    rows = sentences * kind.beams
    past = [
        torch.zeros(rows, 2, heads, room, width, dtype=kind.dtype, device="cpu")
        for (heads, width), room in zip(kind.layouts[:depth], rooms, strict=False)
    ]
    memory = [
        torch.zeros(sentences, 2, heads, source, width, dtype=kind.dtype, device="cpu")
        for heads, width in kind.layouts[depth:]
    ]
    x = torch.zeros(rows, 1, kind.width, dtype=kind.dtype, device="cpu")
    written = torch.empty(length, device="cpu")
    inputs: list[Any] = [x, written, past, memory]
    changes: list[Any] = [
        rows_of_several,
        {0: Dim.DYNAMIC},
        [rows_of_several | {3: Dim.DYNAMIC} for _ in past],
        [several | {3: Dim.DYNAMIC} for _ in memory],
    ]
    if kind.masked:
        inputs.append(torch.zeros(sentences, 1, 1, source, dtype=torch.bool, device="cpu"))
        changes.append(several | {3: Dim.DYNAMIC})
    with _undisturbed(), prepacking_when_compiled() if kind.many else nullcontext():
        return torch.export.export(
            _Step(stack, beams=kind.beams, causal=kind.causal),
            tuple(inputs),
            dynamic_shapes=tuple(changes),
            prefer_deferred_runtime_asserts_over_guards=True,
        )


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
            own = SelfAttentionCache(len(past))
            own.layers = slots
            return self.stack(x, causal=self.causal, cache=own)
        cache = DecoderCache([_Slot(each, each.shape[3]) for each in memory])
        cache.layers, cache.memory_mask, cache._rows_per_memory = slots, memory_mask, self.beams
        return self.stack(x, causal=self.causal, cache=cache)


class _Slot(KeyValueCache):
    """A cache in a buffer with room enough, of which nothing is checked: its sizes are symbols."""

    def __init__(self, buffer: Tensor, length: int) -> None:
        super().__init__()
        self._buffer: Tensor = buffer
        self._length = length

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        newest = torch.stack((keys, values), dim=1)
        self._buffer[..., self._length : self._length + 1, :] = newest
        self._length += 1
        return self.read()


def compile_ahead_of_time(program: ExportedProgram, *, many: bool) -> Run:
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
