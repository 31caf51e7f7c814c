"""Ahead-of-time compiled steps: traced by ``torch.export``, compiled by AOTInductor."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from transformer_blocks.cache import KeyValueCache
from transformer_blocks.decoder import Decoder
from transformer_blocks.encoder import Encoder
from transformer_blocks.generation.prompts import left_padding_mask
from transformer_blocks.generation.stepping import best_extensions, to_log_probabilities
from transformer_blocks.inference.linear import prepacking_when_compiled

FEW_ROWS = 8
"""Number of rows up to which prepacked weights are not faster than ordinary ones."""

CompiledProgram = Callable[[list[Tensor]], list[Tensor]]
"""A compiled step: takes the inputs of the exported program in one list and returns its outputs."""


class OuterLayers(NamedTuple):
    """The layers around a stack, which are arguments of ``IncrementalDecoder``.

    Attributes:
        embed: Function from tokens and the position of the first of them to the stack's inputs.
        output: Function from the stack's outputs to logits.
    """

    embed: Callable[[Tensor, Any], Tensor]
    output: Callable[[Tensor], Tensor]


class StepSignature(NamedTuple):
    """Everything about a decoding step that is constant in its compiled program.

    Batch size, source length, number of earlier positions and capacity of the caches may change
    between calls of one program, except that a single sequence has a program of its own.

    Attributes:
        is_batch: Whether the step is for more than one sequence.
        beam_size: Number of rows per sequence, which share its memory; 1 without beam search.
        is_prepacked: Whether linear layers use prepacked weights, which are faster for more than
            :data:`FEW_ROWS` rows.
        is_masked: Whether there is a mask: of the memory for a decoder, of the padding for an
            encoder.
        causal: The stack's argument ``causal``, which its attention functions receive.
        dtype: Data type of inputs, weights and caches.
        d_model: Size of the input vectors.
        head_sizes: Number of heads and size of each head, for the self-attention of every layer,
            then for the cross-attention of every layer.
        outer: The layers around the stack; None for a step of the stack alone.
        num_extensions: Number of extensions that a whole step selects for each sequence.
    """

    is_batch: bool
    beam_size: int
    is_prepacked: bool
    is_masked: bool
    causal: bool
    dtype: torch.dtype
    d_model: int
    head_sizes: tuple[tuple[int, int], ...]
    outer: OuterLayers | None = None
    num_extensions: int = 0

    def __str__(self) -> str:
        """Describe the number of rows of the step, for the log."""
        if self.is_prepacked:
            return f"more than {FEW_ROWS} rows"
        return f"2 to {FEW_ROWS} rows" if self.is_batch or self.beam_size > 1 else "a single row"


def export_step(stack: Encoder | Decoder, signature: StepSignature) -> ExportedProgram:
    """Trace a decoding step, with dynamic batch size and lengths.

    Args:
        stack: Encoder or decoder whose parts have been prepared.
        signature: What is constant in the step.

    Returns:
        The program, whose inputs and outputs are those of :class:`_Step`. It writes the new keys
        and values into the buffers of the self-attention caches.
    """
    # Example sizes of dynamic dimensions must differ: torch.export would unify equal ones.
    depth, length, source_length, large_batch = len(stack.layers), 5, 11, 61
    capacities = [size for size in range(101, 103 + 2 * depth) if size % large_batch]
    batch_size, dynamic_batch, dynamic_rows = 1, {}, {}
    beam_size = signature.beam_size
    if signature.is_batch:
        batch_size = large_batch if signature.is_prepacked else FEW_ROWS // beam_size
        dimension = Dim("B")
        dynamic_batch = {0: dimension}
        dynamic_rows = {0: beam_size * dimension if beam_size > 1 else dimension}
    rows = batch_size * beam_size
    zeros = partial(torch.zeros, dtype=signature.dtype, device="cpu")
    buffers = [
        zeros(rows, 2, num_heads, capacity, d_k)
        for (num_heads, d_k), capacity in zip(
            signature.head_sizes[:depth], capacities, strict=False
        )
    ]
    memory_buffers = [
        zeros(batch_size, 2, num_heads, source_length, d_k)
        for num_heads, d_k in signature.head_sizes[depth:]
    ]
    x = zeros(rows, 1, signature.d_model) if signature.outer is None else zeros(rows).long()
    masks, dynamic_masks = [], []
    if signature.is_masked and not memory_buffers and signature.outer is not None:
        masks, dynamic_masks = [zeros(rows).long()], [dynamic_rows]
    elif signature.is_masked:
        shape = batch_size, 1, 1, source_length if memory_buffers else length
        shape = shape if memory_buffers else (rows, *shape[1:])
        masks = [zeros(shape).bool()]
        dynamic_masks = [(dynamic_batch if memory_buffers else dynamic_rows) | {3: Dim.DYNAMIC}]
    inputs: dict[str, tuple[Any, Any]] = {
        "x": (x, dynamic_rows),
        "length_tensor": (zeros(length), {0: Dim.DYNAMIC}),
        "buffers": (buffers, [dynamic_rows | {3: Dim.DYNAMIC} for _ in buffers]),
        "memory_buffers": (
            memory_buffers,
            [dynamic_batch | {3: Dim.DYNAMIC} for _ in memory_buffers],
        ),
        "masks": (masks, dynamic_masks),
        "scores": (zeros(batch_size, beam_size).double(), dynamic_batch),
    }
    examples, dynamic_shapes = zip(*inputs.values(), strict=True)
    prepacking = prepacking_when_compiled() if signature.is_prepacked else nullcontext()
    with _compiler_settings(), prepacking:
        return torch.export.export(
            _Step(stack, signature),
            examples,
            dynamic_shapes=dynamic_shapes,
            prefer_deferred_runtime_asserts_over_guards=True,
        )


class _Step(nn.Module):
    """A decoding step as a function of tensors alone, which ``torch.export`` can trace."""

    def __init__(self, stack: Encoder | Decoder, signature: StepSignature) -> None:
        super().__init__()
        self.stack, self.beam_size, self.causal = stack, signature.beam_size, signature.causal
        self.outer, self.num_extensions = signature.outer, signature.num_extensions
        # Registers the weights around the stack: Inductor cannot prepack those that are constants.
        owners = dict.fromkeys(getattr(each, "__self__", each) for each in signature.outer or ())
        self.owners = nn.ModuleList(each for each in owners if isinstance(each, nn.Module))

    def forward(
        self,
        x: Tensor,
        length_tensor: Tensor,
        buffers: list[Tensor],
        memory_buffers: list[Tensor],
        masks: list[Tensor],
        scores: Tensor,
    ) -> tuple[Tensor, ...]:
        """Compute one new position per row.

        Args:
            x: The newest tokens, of shape (N,). Without outer layers, their embeddings, of shape
                (N, 1, d_model).
            length_tensor: Any tensor of shape (length + 1,), where length is the number of earlier
                positions: a program obtains dynamic sizes from the shapes of tensors.
            buffers: Buffer of each layer's self-attention cache, of shape (N, 2, H, capacity, d_k);
                the new keys and values are written into it.
            memory_buffers: Keys and values of the memory for each decoder layer, of shape
                (B, 2, H, S, d_k); empty for an encoder.
            masks: Empty, or one tensor: for a decoder the mask of the memory, of shape
                (B, 1, 1, S); for an encoder the number of padding tokens of each row, of shape
                (N,), or without outer layers their mask, of shape (N, 1, 1, length + 1).
            scores: Score of each hypothesis, of shape (B, K).

        Returns:
            The logits of the next tokens, of shape (N, V), and the scores and indices of the best
            extensions, both of shape (B, count), as :func:`best_extensions` returns them. Without
            outer layers, the output of the stack alone, of shape (N, 1, d_model).
        """
        length = length_tensor.shape[0] - 1
        mask = masks[0] if masks else None
        if self.outer is not None:
            position: Any = length
            x = x[:, None]
            if mask is not None and not memory_buffers:
                self.outer.embed(x, length)  # so that the program has the limit of the positions
                position = length - mask
                mask = left_padding_mask(mask, length + 1)[:, None, None]
            x = self.outer.embed(x, position)
        hidden = self._run_stack(x, length, buffers, memory_buffers, mask)
        if self.outer is None:
            return (hidden,)
        logits = self.outer.output(hidden[:, 0])
        return logits, *best_extensions(to_log_probabilities(logits), scores, self.num_extensions)

    def _run_stack(
        self,
        x: Tensor,
        length: int,
        buffers: list[Tensor],
        memory_buffers: list[Tensor],
        mask: Tensor | None,
    ) -> Tensor:
        layers: Any = self.stack.layers
        for number, layer in enumerate(layers):
            cache = _ProgramCache(buffers[number], length)
            if memory_buffers:
                memory = _ProgramCache(memory_buffers[number], memory_buffers[number].shape[3])
                x = layer(x, memory, memory_mask=mask, causal=self.causal, cache=cache)
            else:
                x = layer(x, mask=mask, causal=self.causal, cache=cache)
        return x if self.stack.norm is None else self.stack.norm(x)


def maximum_length(program: ExportedProgram) -> float:
    """Return the largest number of positions, the new one included, that a step can have.

    It is where the positional encodings end. The compiled program does not check it.
    """
    placeholder = [
        node
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name == "length_tensor"
    ]
    size = placeholder[0].meta["val"].shape[0]
    limits = program.range_constraints[size.node.expr]
    return float(limits.upper)


def agrees_with_eager_step(
    stack: Encoder | Decoder,
    signature: StepSignature,
    compiled: CompiledProgram,
    tensors: list[Tensor],
) -> bool:
    """Compare a compiled step with an eager one.

    Args:
        stack: The stack that the program was exported from.
        signature: What is constant in the step.
        compiled: The compiled program.
        tensors: Inputs for the program. The buffers of self-attention are not changed, and what
            they hold must not matter.

    Returns:
        Whether the logits, or without outer layers the hidden states, are equal up to rounding.
    """
    depth = len(stack.layers)
    x, length_tensor, scores = tensors[0], tensors[1], tensors[-1]
    end = 2 + len(signature.head_sizes)
    memory_buffers, masks = tensors[2 + depth : end], tensors[end:-1]
    unknown = [torch.full_like(each, torch.nan) for each in tensors[2 : 2 + depth]]
    found = compiled([x, length_tensor, *unknown, *tensors[2 + depth :]])[0]
    unknown = [torch.full_like(each, torch.nan) for each in unknown]
    step = _Step(stack, signature)
    expected = step(x, length_tensor, unknown, memory_buffers, masks, scores)[0]
    if found.shape != expected.shape:
        return False
    difference = (found - expected).abs().max()  # NaN if the program read an unknown position
    return bool(difference <= 0.02 * expected.abs().max())  # rounding may change int8 integers


class _ProgramCache(KeyValueCache):
    """A buffer of sufficient capacity as a cache: its sizes are symbols, and nothing is checked."""

    def __init__(self, buffer: Tensor, length: int) -> None:
        super().__init__()
        self.positions, self.length = buffer, length

    def write(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.positions[..., self.length : self.length + 1, :] = torch.stack((keys, values), dim=1)
        all_keys, all_values = self.positions[..., : self.length + 1, :].unbind(1)
        return all_keys, all_values

    def read(self) -> tuple[Tensor, Tensor]:
        keys, values = self.positions.unbind(1)
        return keys, values

    def advance(self, count: int) -> None:
        """Do nothing: the caller of the program advances its own cache."""


def compile_ahead_of_time(
    program: ExportedProgram, *, prepack: bool, keep: Callable[[Path], object] | None = None
) -> CompiledProgram:
    """Compile a program with AOTInductor.

    Args:
        program: Exported program to compile; its weights become constants of the result.
        prepack: Whether Inductor prepacks the weights of linear layers. For few rows, reading the
            weights dominates, and an ordinary matrix product reads them fastest. Int8 products are
            prepacked by themselves, and generated by Inductor.
        keep: Called with the shared library of the program, which is removed afterwards.

    Returns:
        A function that takes the program's input tensors in one list and returns its outputs. It
        does not check their sizes.
    """
    options: dict[str, Any] = {"freezing": True}
    if "qlinear_pointwise" not in program.graph_module.code:
        options["cpp.weight_prepack"] = prepack
    else:
        options |= {
            "max_autotune_gemm": True,
            "max_autotune_gemm_backends": "CPP,ATEN",
            "autotune_num_choices_displayed": 0,
            "max_autotune_report_choices_stats": False,
        }
    with TemporaryDirectory() as folder, _compiler_settings():
        path = torch._inductor.aot_compile(
            program.module(check_guards=False),
            *program.example_inputs,
            options=options | {"aot_inductor.output_path": folder},
        )
        compiled = open_library(str(path))
        if keep is not None:
            keep(Path(str(path)))
        return compiled


def open_library(path: str) -> CompiledProgram:
    """Load the shared library of a compiled program, which executes its code.

    Args:
        path: The library; it may be removed afterwards.

    Returns:
        A function that takes the program's input tensors in one list and returns its outputs.
    """
    return torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1).run


@contextmanager
def _compiler_settings() -> Iterator[None]:
    """Leave the caller's inference mode and record no gradients; silence torch's own warnings."""
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")
        yield
