"""Programs: greedy decoding and beam search, compiled ahead of time into a file.

What takes the time of a decoding step for a few sequences is to read all weights of the model, and
to call some hundred operators from Python. A *program* is a whole step of the search as one
compiled function: ``SearchStep`` in ``step.py``. ``torch.export`` traces it, with symbols for batch
size and lengths. AOTInductor, torch's ahead-of-time compiler, makes C++ code of the trace: it fuses
adjacent operators, tries several matrix products for each layer on this machine, keeps the fastest,
and stores the weights in the layout that it reads.

The loop around the step is in Python. At each step it reads three numbers for each sequence, which
say whether its search is over.
"""

import hashlib
import json
import logging
import math
import platform
import re
import tempfile
import warnings
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from transformer_blocks._contracts import Count, Size, check_tensor, checked
from transformer_blocks.cache import DecoderCache
from transformer_blocks.fast.caching import grow
from transformer_blocks.generation.beam import BeamSearch, Penalty, check_beams
from transformer_blocks.generation.incremental import IncrementalDecoder
from transformer_blocks.generation.protocol import Generation
from transformer_blocks.generation.stepping import (
    EndId,
    MaxLength,
    Start,
    check_ends,
    check_not_nan,
    limits_and_ends,
)
from transformer_blocks.inference.step import SearchStep, State, parts_of

SHARE_OVER = 0.25
"""Share of a batch whose searches must be over before they are removed from it: this copies."""

FUNCTIONS = {"single": 1, "batch": 61}
"""The two functions of a program, and the number of sequences for which each is compiled."""

OPTIONS = {
    "freezing": True,  # weights are constants, and can be stored in another layout
    "cpp.dynamic_threads": True,  # as many threads as the process has that runs the program
    "max_autotune_gemm": True,  # the fastest of several products, as measured
    "max_autotune_gemm_backends": "CPP,ATEN",
    "assert_indirect_indexing": False,  # indices are right by construction
    "autotune_local_cache": False,  # measured anew each time
    "autotune_num_choices_displayed": 0,
    "max_autotune_report_choices_stats": False,
}
"""Options of AOTInductor."""


@checked
def save_program(
    model: IncrementalDecoder,
    path: str | PathLike[str],
    *,
    beam_size: Size = 1,
    end_id: EndId | None,
) -> None:
    """Compile the search with a prepared model, and save it as a program.

    This needs a C++ compiler and takes a minute or two. It measures which matrix products are the
    fastest; while other processes use the CPU, it may choose slower ones.

    Args:
        model: A step model as for :func:`~transformer_blocks.beam_search`, for any source or
            prompt, of a model that :func:`~transformer_blocks.inference.prepare` returned. Its
            ``embed`` and ``output`` are parts of the prepared model, or methods of one.
        path: The file to write, usually with the ending ``.pt2``. It holds the weights twice.
        beam_size: K, the number of hypotheses per sequence; 1 is greedy decoding.
        end_id: Id of the end token; or several such ids; None if there is none.

    Raises:
        TypeError: If ``model`` is not prepared, or an argument is of the wrong type.
        ValueError: If the model is not on a CPU, an end token is not in the vocabulary, or it has
            fewer tokens than ``beam_size``.
        RuntimeError: If a part of the model cannot be traced, or there is no C++ compiler.
    """
    facts, ends = describe(model, beam_size, end_id)
    with tempfile.TemporaryDirectory() as folder, _compiler_settings():
        for name, batch in FUNCTIONS.items():
            step = SearchStep(model, ends, is_masked=batch > 1)
            inputs, shapes = _example(facts, len(model.stack.layers), batch)
            try:
                program = torch.export.export(
                    step,
                    inputs,
                    dynamic_shapes=shapes,
                    prefer_deferred_runtime_asserts_over_guards=True,
                )
                facts["positions"] = _positions(program)
                _remove_assertions(program)
                torch._inductor.aoti_compile_and_package(
                    program,
                    package_path=f"{folder}/{name}.pt2",
                    inductor_configs=dict(OPTIONS),
                )
            except Exception as error:
                reason = str(error).partition("\n")[0]
                kind = type(error).__name__
                raise RuntimeError(f"the search cannot be compiled: {kind}: {reason}") from error
        Path(folder, "facts.json").write_text(json.dumps(facts))
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(Path(folder).iterdir()):
                archive.write(file, file.name)


def describe(
    model: IncrementalDecoder, beam_size: int, end_id: int | Collection[int] | None
) -> tuple[dict[str, Any], list[int]]:
    """Return the facts that are saved with a program, and the ids of the end tokens.

    The arguments and errors are those of :func:`save_program`.
    """
    parts = parts_of(model)
    dtype = next(each.dtype for each in parts[0].state_dict().values() if each.is_floating_point())
    attentions: list[Any] = [layer.self_attention for layer in model.stack.layers]
    if isinstance(model.cache, DecoderCache):
        attentions += [layer.cross_attention for layer in model.stack.layers]
    hidden = torch.zeros(
        1, attentions[0].query_projection.in_features, dtype=dtype, device=_device_of(parts)
    )
    vocabulary = model.output(hidden).shape[1]
    model.embed(torch.tensor([[vocabulary - 1]], device="cpu"), 0)  # an error if it knows fewer
    _, ends = limits_and_ends(hidden[:0], 1, end_id)
    check_ends(ends, vocabulary)
    check_beams(beam_size, vocabulary)
    facts = _environment() | {
        "weights": _hash(model),
        "beam_size": beam_size,
        "vocabulary": vocabulary,
        "dtype": str(dtype).removeprefix("torch."),
        "heads": [(each.key_projection.out_features // each.d_k, each.d_k) for each in attentions],
        "positions": math.inf,
    }
    return facts, sorted(ends)


@checked
def load_program(path: str | PathLike[str]) -> "Program":
    """Load a program. Its code is executed: load only files whose origin you trust.

    Args:
        path: A file that :func:`save_program` wrote.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no program, or one for another version of torch or another processor.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {path}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder)
            facts = json.loads(Path(folder, "facts.json").read_text())
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is no program that save_program wrote") from error
        for name, here in _environment().items():
            if facts[name] != here:
                raise ValueError(f"{path} was made for {name} {facts[name]}; this is {here}")
        functions = {}
        for name in FUNCTIONS:  # loaded as it is, as Python would check each argument
            package = torch._inductor.aoti_load_package(f"{folder}/{name}.pt2")
            functions[name] = package.loader.run
    return Program(facts, functions)


class Program:
    """A search that was compiled; :func:`load_program` loads one.

    A step for a batch of sequences and one for a single sequence are its two functions. The model
    that it was made for computes what precedes the first step: the keys and values of the source or
    the prompt.

    Attributes:
        beam_size: K, the number of hypotheses per sequence; 1 is greedy decoding.
    """

    def __init__(self, facts: dict[str, Any], functions: dict[str, Any]) -> None:
        self.beam_size: int = facts["beam_size"]
        self._facts, self._functions = facts, functions
        self._known_stacks: WeakSet[nn.Module] = WeakSet()  # whose weights are those of the program

    @checked
    @torch.inference_mode()
    def search(
        self,
        model: IncrementalDecoder,
        start: Start,
        *,
        max_length: MaxLength,
        length_penalty: Penalty = 0.6,
        lookahead: Count | None = None,
        n_best: Size = 1,
    ) -> list[list[Generation]]:
        """Generate what :func:`~transformer_blocks.beam_search` generates with the same arguments.

        With a ``beam_size`` of 1, this is what :func:`~transformer_blocks.greedy_search` generates.
        No hooks are called, and nothing of the steps can be recorded.

        Args:
            model: A step model of the prepared model that the program was made for, or of another
                one with the same weights. Its cache holds what precedes ``start``, and is not
                changed.
            start: First token of each sequence, of shape (N,).
            max_length: Maximum number of tokens to generate, including the end token; or a list
                with one such number for each sequence.
            length_penalty: As in ``beam_search``.
            lookahead: As in ``beam_search``.
            n_best: Number of sequences to return for each start; at most ``beam_size``.

        Returns:
            For each start token, the best sequences, best first.

        Raises:
            TypeError: If an argument is of the wrong type.
            ValueError: If the model is not the one that the program was made for, an argument is
                out of range, a sequence reaches the end of the positional encodings, or logits are
                NaN or infinite.
        """
        self._check(model, start, n_best)
        limits, _ = limits_and_ends(start, max_length, None)
        searches = [BeamSearch(self.beam_size, length_penalty, lookahead, each) for each in limits]
        if not searches:
            return []
        steps, length = max(limits), model.cache.length
        longest = searches[limits.index(steps)]
        penalties = [1.0, *(longest.penalty(count) for count in range(1, steps + 1))]
        table = torch.tensor(penalties, dtype=torch.float64, device="cpu")
        name, state = self._begin(model, start, steps)
        rows: list[BeamSearch | None] = [*searches, None][: len(state.tokens)]
        for step, number in enumerate(torch.arange(steps, device="cpu").split(1)):
            end = length + step + 2  # the buffers always have room for more than the new position
            if end - 1 > self._facts["positions"]:
                raise ValueError(f"the model has positions for {end - 2} tokens only")
            state = state._replace(buffers=[grow(each, end - 2, end) for each in state.buffers])
            *parts, buffers, memory = state
            sizes = torch.empty(end, device="cpu")
            *new, facts = self._functions[name]([sizes, number, table, *parts, *buffers, *memory])
            state = State(*new, *state[len(new) :])
            for row, (best_candidate, worst, best) in enumerate(facts.tolist()):
                search = rows[row]
                if search is None:
                    continue
                check_not_nan([best_candidate], step)
                search.length += 1
                if search.length == search.max_length or search.rejects(best, worst):
                    _read_hypotheses(search, state, row)
                    rows[row] = None
            kept = [row for row, search in enumerate(rows) if search is not None]
            if not kept:
                break
            if len(kept) <= (1.0 - SHARE_OVER) * len(rows) and len(rows) > 2:
                rows = [rows[row] for row in kept] if len(kept) > 1 else [rows[kept[0]], None]
                state = _select(state, torch.tensor((kept * 2)[: len(rows)], device="cpu"))
        return [search.results()[:n_best] for search in searches]

    def _check(self, model: IncrementalDecoder, start: Tensor, n_best: int) -> None:
        """Raise unless the program was made for this model and can decode this batch."""
        if n_best > self.beam_size:
            raise ValueError(
                f"n_best must not exceed beam_size, got n_best={n_best} and "
                f"beam_size={self.beam_size}"
            )
        if type(model).step is not IncrementalDecoder.step:
            raise TypeError("model must not override step, which a program does not call")
        if model.stack not in self._known_stacks:
            if _hash(model) != self._facts["weights"]:
                raise ValueError("the program was made for another model, or for other weights")
            self._known_stacks.add(model.stack)
        cache = model.cache
        rows = {each.rows for each in getattr(cache, "memory", ())} | {cache.rows or len(start)}
        if rows != {len(start)}:
            raise ValueError(f"model must have {len(start)} rows, as start, got {max(rows)}")
        check_tensor("start", start)
        for token in start.tolist():
            if not 0 <= token < self._facts["vocabulary"]:
                raise ValueError(
                    f"start must hold ids in 0..{self._facts['vocabulary'] - 1}, got {token}"
                )

    def _begin(self, model: IncrementalDecoder, start: Tensor, steps: int) -> tuple[str, State]:
        """Return the name of the function to call, and the state at the first step."""
        cache, length, beam_size = model.cache, model.cache.length, self.beam_size
        dtype = getattr(torch, self._facts["dtype"])
        mask: Any = None
        memory: list[Any] = []
        if isinstance(cache, DecoderCache):
            memory, mask = [torch.stack(each.read(), 1) for each in cache.memory], cache.memory_mask
            if memory[0].shape[3] == 1:  # which the compiler would take for a constant
                memory = [F.pad(each, (0, 0, 0, 1)) for each in memory]
                mask = torch.tensor([[[[False, True]]]], device="cpu")
            default = torch.zeros(1, 1, 1, memory[0].shape[3], dtype=torch.bool, device="cpu")
        else:
            mask = None if isinstance(model.position, int) else length - model.position
            default = torch.zeros(1, dtype=torch.int64, device="cpu")
        rows = torch.arange(len(start), device="cpu")
        name = "single" if len(rows) == 1 and mask is None else "batch"
        if name == "batch" and len(rows) == 1:
            rows = rows.repeat(2)  # the compiler assumes two sequences
        mask = default if mask is None else mask
        if mask.dim() == 4 and mask.shape[1:3] != (1, 1):
            raise ValueError(f"the mask must have shape (B, 1, 1, S), got {tuple(mask.shape)}")
        mask = mask.expand(len(start), *mask.shape[1:])
        beams = rows.repeat_interleave(beam_size)
        shape = len(rows), beam_size
        buffers = []
        for layer, (heads, d_k) in zip(cache.layers, self._facts["heads"], strict=False):
            buffer = torch.empty(len(beams), 2, heads, length + 2, d_k, dtype=dtype, device="cpu")
            if length:
                buffer[..., :length, :] = torch.stack(layer.read(), 1)[beams]
            buffers.append(buffer)
        scores = torch.full(shape, -math.inf, dtype=torch.promote_types(dtype, torch.float32))
        scores[:, 0] = 0.0
        return name, State(
            tokens=start[beams].long().view(shape),
            scores=scores,
            ranks=torch.full((*shape, 2), -math.inf, dtype=torch.float64, device="cpu"),
            ends=torch.zeros(*shape, 2, dtype=torch.int64, device="cpu"),
            paths=torch.zeros(len(rows), steps, beam_size, 2, dtype=torch.int64, device="cpu"),
            origins=torch.zeros(*shape, length + steps, dtype=torch.int64, device="cpu"),
            mask=mask[rows].contiguous(),
            buffers=buffers,
            memory=[each[rows].contiguous() for each in memory],
        )


def _select(state: State, rows: Tensor) -> State:
    """Select sequences of a batch by their indices."""
    beam_size = state.tokens.shape[1]
    beams = (rows[:, None] * beam_size + torch.arange(beam_size, device="cpu")).flatten()
    *tensors, buffers, memory = state
    selected = [each[rows] for each in tensors]
    return State._make(
        [*selected, [each[beams] for each in buffers], [each[rows] for each in memory]]
    )


def _read_hypotheses(search: BeamSearch, state: State, row: int) -> None:
    """Give a search the hypotheses that the state has for it."""
    path = state.paths[row, : search.length].tolist()

    def tokens(length: int, beam: int) -> list[int]:
        found = []
        for step in reversed(path[:length]):
            beam, token = step[beam]
            found.append(token)
        return found[::-1]

    ranks, ends, scores = (each[row].tolist() for each in (state.ranks, state.ends, state.scores))
    search.finished = [
        Generation(tokens(*end), score, finished=True)
        for (rank, score), end in zip(ranks, ends, strict=True)
        if rank > -math.inf
    ]
    unfinished = [beam for beam, score in enumerate(scores) if score > -math.inf]
    search.beams = [(scores[beam], beam, -1) for beam in unfinished]
    search.hypotheses = [tokens(search.length, beam) for beam in unfinished]


def _example(facts: dict[str, Any], depth: int, batch: int) -> tuple[Any, Any]:
    """Return inputs of a step, and which of their dimensions are dynamic.

    The example sizes of different dimensions must differ, as equal ones would be taken for one.
    """
    beam_size, heads = facts["beam_size"], facts["heads"]
    dtype, any_size = getattr(torch, facts["dtype"]), Dim.DYNAMIC
    sequences: dict[int, Any] = {0: Dim("B")} if batch > 1 else {}
    rows = {0: beam_size * sequences[0]} if sequences and beam_size > 1 else sequences

    def input_of(
        shape: tuple[int, ...], dynamic: dict[int, Any], dtype: torch.dtype = torch.int64
    ) -> tuple[Tensor, dict[int, Any]]:
        return torch.zeros(shape, dtype=dtype, device="cpu"), dynamic

    wide, per_beam = torch.promote_types(dtype, torch.float32), (batch, beam_size)
    mask = input_of((batch,), sequences)
    if len(heads) > depth:
        mask = input_of((batch, 1, 1, 11), sequences | {3: any_size}, torch.bool)
    buffers = [
        input_of((batch * beam_size, 2, each[0], 101 + 2 * i, each[1]), rows | {3: any_size}, dtype)
        for i, each in enumerate(heads[:depth])
    ]
    memory = [
        input_of((batch, 2, each[0], 11, each[1]), sequences | {3: any_size}, dtype)
        for each in heads[depth:]
    ]
    inputs: list[Any] = [
        input_of((7,), {0: any_size}, torch.float32),
        input_of((1,), {}),
        input_of((37,), {0: any_size}, torch.float64),
        input_of(per_beam, sequences),
        input_of(per_beam, sequences, wide),
        input_of((*per_beam, 2), sequences, torch.float64),
        input_of((*per_beam, 2), sequences),
        input_of((batch, 31, beam_size, 2), sequences | {1: any_size}),
        input_of((*per_beam, 41), sequences | {2: any_size}),
        mask,
    ]
    examples, dynamic = zip(*inputs, strict=True)
    lists = [
        [list(part) for part in zip(*each, strict=True)] or [[], []] for each in (buffers, memory)
    ]
    shapes = *dynamic[3:], *(each[1] for each in lists)
    return (*examples, *(each[0] for each in lists)), (*dynamic[:3], shapes)


def _remove_assertions(program: ExportedProgram) -> None:
    """Remove a program's assertions about sizes, which ``search`` ensures.

    One of them demands more than one key, which the first step of a search does not have. Tracing
    adds it because a dimension of size 1 may have any stride; the code is right for one key, too.
    """
    graph = program.graph_module.graph
    assertion = torch.ops.aten._assert_scalar.default
    for node in graph.find_nodes(op="call_function", target=assertion):
        graph.erase_node(node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _positions(program: ExportedProgram) -> float:
    """Return the largest number of positions of a sequence: where positional encodings end."""
    inputs = program.graph.find_nodes(op="placeholder")
    size = next(node for node in inputs if node.name == "length").meta["val"].shape[0]
    return float(program.range_constraints[size.node.expr].upper) - 1.0


def _hash(model: IncrementalDecoder) -> str:
    """Return a hash of the structure and the weights of a model."""
    digest = hashlib.sha256()
    for part in parts_of(model):
        digest.update(re.sub(r" at 0x[0-9a-f]+", "", repr(part)).encode())
        for name, tensor in part.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _environment() -> dict[str, Any]:
    """Describe the software and the processor that a program is made for."""
    abilities = [name for name, value in torch.cpu.get_capabilities().items() if value is True]
    return {
        "torch": torch.__version__,
        "processor": f"{platform.machine()} ({', '.join(sorted(abilities))})",
    }


def _device_of(parts: list[nn.Module]) -> torch.device:
    """Return the CPU, or raise if a tensor is elsewhere."""
    for part in parts:
        for tensor in part.state_dict().values():
            if tensor.device.type != "cpu":
                raise ValueError(f"a program needs a model on a CPU, got one on {tensor.device}")
    return torch.device("cpu")


@contextmanager
def _compiler_settings() -> Iterator[None]:
    """Leave inference mode, record no gradients, and silence what torch tells its developers.

    Among it are matrix products that the compiler tries and cannot build.
    """
    logger = logging.getLogger("torch._inductor")
    level = logger.level
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            logger.setLevel(level)
