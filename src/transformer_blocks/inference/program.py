"""Programs: a model and its search, compiled ahead of time into a file.

What takes the time of a decoding step for a few sequences is to read all weights of the model, and
to call some hundred operators from Python. A *program* calls two compiled functions instead:
``Prefill`` in ``step.py`` computes the keys and values of sources or prompts, and
``SearchStep`` is a whole step of the search. ``torch.export`` traces both, with symbols for
batch size and lengths. AOTInductor, torch's ahead-of-time compiler, makes C++ code of the traces:
it fuses adjacent operators, tries several matrix products for each layer on this machine, keeps the
fastest, and stores the weights in the layout that it reads.

The loop around the step is in Python. At each step it reads three numbers for each sequence, which
say whether its search is over.
"""

import json
import logging
import math
import platform
import tempfile
import warnings
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, ShapesCollection

from transformer_blocks._alteration import check_unaltered
from transformer_blocks._contracts import Count, Size, checked
from transformer_blocks.fast.caching import grow
from transformer_blocks.files import check_file, open_atomically
from transformer_blocks.generation import Generation
from transformer_blocks.generation.beam import Alpha, BeamSearch, check_beams, check_n_best
from transformer_blocks.generation.prompts import Prompts, to_lists
from transformer_blocks.generation.stepping import (
    EndId,
    MaxLength,
    check_ends,
    check_not_nan,
    limits_and_ends,
)
from transformer_blocks.inference.prepare import prepare
from transformer_blocks.inference.step import Prefill, SearchStep, State
from transformer_blocks.masks import padding_mask
from transformer_blocks.models import LanguageModel, Seq2Seq

SHARE_OVER = 0.25
"""Share of a batch whose searches must be over before they are removed from it: this copies."""

BATCHES = {"single": 1, "batch": 61}
"""The numbers of sequences for which the functions are compiled; all above 1 have one code."""

FILES = {f"{kind}_{name}.pt2" for kind in ("prefill", "step") for name in BATCHES} | {"facts.json"}
"""The files in a program, which is an archive without compression."""

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
    model: LanguageModel | Seq2Seq,
    path: str | PathLike[str],
    *,
    beam_size: Size = 1,
    end_id: EndId | None,
    int8: bool = False,
) -> None:
    """Compile a trained model and its search, and save them as a program.

    This needs a C++ compiler and takes a few minutes. It measures which matrix products are the
    fastest; while other processes use the CPU, it may choose slower ones.

    Args:
        model: The trained model. It is prepared first, as by
            :func:`~transformer_blocks.inference.prepare`, and is not changed.
        path: The file to write, usually with the ending ``.pt2``. It holds the weights four times.
        beam_size: K, the number of hypotheses per sequence; 1 is greedy decoding.
        end_id: Id of the end token; or several such ids; None if there is none.
        int8: Whether linear layers multiply int8 integers, as in ``prepare``.

    Raises:
        TypeError: If an argument is of the wrong type.
        OSError: If the disk fails, the folder of ``path`` does not exist, or ``path`` is a symbolic
            link or a folder. What was there remains.
        ValueError: If the model is not on a CPU or is prepared already, a part of it has hooks or
            replaced methods, a token has no embedding, an end token is not in the vocabulary, or it
            has fewer tokens than ``beam_size``.
        RuntimeError: If a part of the model cannot be traced, or there is no C++ compiler.
    """
    check_file(path, has_folder=True)
    prepared = prepare(model, int8=int8)
    facts = describe(model, beam_size, end_id)
    with tempfile.TemporaryDirectory() as folder, _compiler_settings():
        for name, batch in BATCHES.items():
            functions: dict[str, nn.Module] = {
                "prefill": Prefill(prepared, is_masked=batch > 1),
                "step": SearchStep(prepared, facts["ends"], is_masked=batch > 1),
            }
            for kind, function in functions.items():
                inputs, shapes = _examples(facts, batch, kind)
                try:
                    program = torch.export.export(
                        function,
                        inputs,
                        dynamic_shapes=shapes.dynamic_shapes(function, inputs),
                        prefer_deferred_runtime_asserts_over_guards=True,
                    )
                    positions = min(facts["positions"][kind], _positions(program))
                    facts["positions"][kind] = positions
                    _remove_assertions(program)
                    torch._inductor.aoti_compile_and_package(
                        program,
                        package_path=f"{folder}/{kind}_{name}.pt2",
                        inductor_configs=dict(OPTIONS),
                    )
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}".partition("\n")[0]
                    raise RuntimeError(f"the model cannot be compiled: {reason}") from error
        write_program(path, facts, Path(folder))


def write_program(path: str | PathLike[str], facts: dict[str, Any], folder: Path) -> None:
    """Write facts and the compiled functions in a folder as a program."""
    with open_atomically(path) as opened, zipfile.ZipFile(opened, "w") as archive:
        archive.writestr("facts.json", json.dumps(facts))
        for file in sorted(folder.iterdir()):
            archive.write(file, file.name)


def describe(
    model: LanguageModel | Seq2Seq, beam_size: int, end_id: int | Collection[int] | None
) -> dict[str, Any]:
    """Return the facts that are saved with a program.

    The arguments and errors are those of :func:`save_program`.
    """
    for name, part in model.named_modules():
        check_unaltered(part, name or "the model")
    for tensor in model.state_dict().values():
        if tensor.device.type != "cpu":
            raise ValueError(f"a program needs a model on a CPU, got one on {tensor.device}")
    parts: Any = model
    begin_id: int | None = None
    padding_id = 0
    if isinstance(model, Seq2Seq):
        embedding, target = parts.source_embedding, parts.target_embedding
        begin_id, padding_id = model.begin_id, model.padding_id
    else:
        embedding = target = parts.embedding
    attentions: list[Any] = [layer.self_attention for layer in model.decoder.layers]
    dtype, d_model = embedding.weight.dtype, attentions[0].d_model
    with torch.no_grad():
        vocabulary = model.output(torch.zeros(1, d_model, dtype=dtype)).shape[1]
    _, ends = limits_and_ends([], 1, end_id)
    check_ends(ends, vocabulary)
    check_beams(beam_size, vocabulary)
    _check_token("begin_id", begin_id or 0, target)
    _check_token("padding_id", padding_id, embedding)
    _check_token("output", vocabulary - 1, target)
    if begin_id is not None:
        attentions += [layer.cross_attention for layer in parts.decoder.layers]
    return _environment() | {
        "beam_size": beam_size,
        "ends": sorted(ends),
        "begin_id": begin_id,
        "padding_id": padding_id,
        "inputs": len(embedding.weight),  # number of token ids of sources or prompts
        "dtype": str(dtype).removeprefix("torch."),
        "depth": len(model.decoder.layers),
        "heads": [
            (each.num_key_value_heads, getattr(each, "cached_size", each.d_k))
            for each in attentions
        ],
        "positions": {"prefill": math.inf, "step": math.inf},
    }


def _check_token(name: str, token: int, embedding: Any) -> None:
    """Raise ``ValueError`` if a token has no embedding: compiled code would not notice it."""
    if token >= (known := len(embedding.weight)):
        rule = f"must stay below the {known} tokens of its embedding"
        raise ValueError(f"{name} {rule}, got id {token}")


class Program:
    """A model and its search that were compiled; :func:`load_program` loads one.

    Attributes:
        beam_size: K, the number of hypotheses per sequence; 1 is greedy decoding.
    """

    def __init__(self, facts: dict[str, Any], functions: dict[str, Any]) -> None:
        self.beam_size: int = facts["beam_size"]
        self._facts, self._functions = facts, functions

    @checked
    @torch.inference_mode()
    def generate(
        self,
        prompts: Prompts,
        *,
        max_length: MaxLength,
        length_penalty: Alpha = 0.6,
        lookahead: Count | None = None,
        n_best: Size = 1,
    ) -> list[list[Generation]]:
        """Generate what the model's ``generate`` does with a beam search of the same arguments.

        With a ``beam_size`` of 1, this is what :func:`~transformer_blocks.greedy_search` generates.

        Args:
            prompts: Token ids of each prompt or source, as the model's ``generate`` accepts them.
            max_length: Maximum number of tokens to generate, including the end token; or a list
                with one such number for each sequence.
            length_penalty: As in :func:`~transformer_blocks.beam_search`.
            lookahead: As in ``beam_search``.
            n_best: Number of sequences to return for each prompt; at most ``beam_size``.

        Returns:
            For each prompt, the best sequences, best first.

        Raises:
            TypeError: If an argument is of the wrong type.
            ValueError: If an argument is out of range, a sequence reaches the end of the positional
                encodings, or logits are NaN or infinite.
        """
        prompts = to_lists(prompts)
        self._check(prompts, n_best)
        limits, _ = limits_and_ends(prompts, max_length, None)
        searches = [BeamSearch(self.beam_size, length_penalty, lookahead, each) for each in limits]
        if not searches:
            return []
        steps = max(limits)
        penalties = [1.0, *(searches[0].penalty(count) for count in range(1, steps + 1))]
        table = torch.tensor(penalties, dtype=torch.float64, device="cpu")
        name, length, position, state = self._begin(prompts, steps)
        rows: list[BeamSearch | None] = [*searches, None][: len(state.tokens)]
        for step, number in enumerate(torch.arange(steps, device="cpu").split(1)):
            end = length + step + 2  # the buffers always have room for more than the new position
            self._check_position(position + step + 1, "step")
            if end > state.buffers[0].shape[3]:
                state = state._replace(buffers=[grow(each, end - 2, end) for each in state.buffers])
            *parts, buffers, memory = state
            inputs = [torch.empty(end, device="cpu"), number, table, *parts, *buffers, *memory]
            *new, numbers = self._functions[f"step_{name}"](inputs)
            state = State(*new, *state[len(new) :])
            for row, (best_candidate, worst, best) in enumerate(numbers.tolist()):
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

    def _check(self, prompts: list[list[int]], n_best: int) -> None:
        """Raise if the arguments are out of range: the compiled functions would not notice it."""
        check_n_best(n_best, self.beam_size)
        if [] in prompts and self._facts["begin_id"] is None:
            raise ValueError("prompts must have at least one token each, got an empty one")
        largest = self._facts["inputs"] - 1
        for token in chain.from_iterable(prompts):
            if not 0 <= token <= largest:
                raise ValueError(f"prompts must hold ids in 0..{largest}, got {token}")

    def _check_position(self, count: int, kind: str) -> None:
        """Raise if a function has no positional encodings for so many positions."""
        positions = self._facts["positions"][kind]
        if count > positions:
            raise ValueError(f"the model has positions for {positions:.0f} tokens only")

    def _begin(self, prompts: list[list[int]], steps: int) -> tuple[str, int, int, State]:
        """Compute the keys and values of what precedes the first step.

        Returns:
            The name of the functions to call; the number of positions in the buffers, and how many
            of them are not padding in every sequence; and the state at the first step.
        """
        facts, beam_size, begin_id = self._facts, self.beam_size, self._facts["begin_id"]
        is_seq2seq = begin_id is not None
        before = prompts if is_seq2seq else [prompt[:-1] for prompt in prompts]
        start = [begin_id if is_seq2seq else prompt[-1] for prompt in prompts]
        longest = max(map(len, before))
        self._check_position(longest, "prefill")
        # The compiled functions need lengths of at least 2, and batches of 1 or at least 2.
        length = max(longest, 2) if longest or is_seq2seq else 0
        padding = [[facts["padding_id"]] * (length - len(each)) for each in before]
        parts = (before, padding) if is_seq2seq else (padding, before)
        ids = [[*left, *right] for left, right in zip(*parts, strict=True)]
        tokens = torch.tensor(ids, dtype=torch.int64, device="cpu").view(len(ids), length)
        counts = torch.tensor([*map(len, padding)], device="cpu")
        mask = padding_mask(tokens, facts["padding_id"]) if is_seq2seq else counts
        name, rows = "single", [0]
        if len(ids) > 1 or mask.any():
            name, rows = "batch", [*range(len(ids)), 0][: max(len(ids), 2)]
        tokens, mask = tokens[rows], mask[rows]
        caches = self._functions[f"prefill_{name}"]([tokens, mask]) if length else []
        memory, length = (caches, 0) if is_seq2seq else ([], length)
        shape, dtype = (len(rows), beam_size), getattr(torch, facts["dtype"])
        buffers = []
        for layer, (heads, d_k) in enumerate(facts["heads"][: facts["depth"]]):
            size = len(rows) * beam_size, 2, heads, length + 2, d_k
            buffers.append(torch.empty(size, dtype=dtype, device="cpu"))
            if length:
                buffers[layer][..., :length, :] = caches[layer].repeat_interleave(beam_size, dim=0)
        scores = torch.full(shape, -math.inf, dtype=torch.promote_types(dtype, torch.float32))
        scores[:, 0] = 0.0
        state = State(
            tokens=torch.tensor([[start[row]] * beam_size for row in rows], device="cpu"),
            scores=scores,
            ranks=torch.full((*shape, 2), -math.inf, dtype=torch.float64, device="cpu"),
            ends=torch.zeros(*shape, 2, dtype=torch.int64, device="cpu"),
            paths=torch.zeros(len(rows), steps, beam_size, 2, dtype=torch.int64, device="cpu"),
            origins=torch.zeros(*shape, length + steps, dtype=torch.int64, device="cpu"),
            mask=mask,
            buffers=buffers,
            memory=memory,
        )
        return name, length, 0 if is_seq2seq else longest, state


def load_program(path: str | PathLike[str]) -> Program:
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
                if sorted(archive.namelist()) != sorted(FILES):
                    raise ValueError(f"it must hold {', '.join(sorted(FILES))}")
                facts: dict[str, Any] = json.loads(archive.read("facts.json"))
                archive.extractall(folder, FILES - {"facts.json"})
        except Exception as error:  # zipfile raises many kinds
            raise ValueError(f"{path} is no program that save_program wrote: {error}") from error
        for name, here in _environment().items():
            if facts[name] != here:
                raise ValueError(f"{path} was made for {name} {facts[name]}; this is {here}")
        functions = {}
        for file in Path(folder).iterdir():  # called directly: Python checks each argument
            try:
                functions[file.stem] = torch._inductor.aoti_load_package(str(file)).loader.run
            except RuntimeError as error:
                raise ValueError(f"{path} holds no code that can be loaded: {error}") from error
    return Program(facts, functions)


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


class _AnySize(int):
    """The example size of a dimension that may have any size."""

    dimension: Any = Dim.DYNAMIC


def _examples(
    facts: dict[str, Any], batch: int, kind: str
) -> tuple[tuple[Any, ...], ShapesCollection]:
    """Return inputs of a function, "prefill" or "step", and which of their dimensions are dynamic.

    The example sizes of different dimensions must differ, as equal ones would be taken for one.
    """
    beam_size, heads, depth = facts["beam_size"], facts["heads"], facts["depth"]
    dtype, shapes = getattr(torch, facts["dtype"]), ShapesCollection()
    rows, source = batch * beam_size, _AnySize(11)
    if batch > 1:
        batch, rows = _AnySize(batch), _AnySize(rows)
        batch.dimension = Dim("B")
        rows.dimension = beam_size * batch.dimension if beam_size > 1 else batch.dimension

    def example(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        tensor = torch.zeros(shape, dtype=dtype, device="cpu")
        dynamic = {i: each.dimension for i, each in enumerate(shape) if isinstance(each, _AnySize)}
        shapes[tensor] = dynamic
        return tensor

    has_memory = len(heads) > depth
    mask = example(batch, 1, 1, source, dtype=torch.bool) if has_memory else example(batch)
    if kind == "prefill":
        return (example(batch, source), mask), shapes
    step = (
        example(_AnySize(7), dtype=torch.float32),
        example(1),
        example(_AnySize(37), dtype=torch.float64),
        example(batch, beam_size),
        example(batch, beam_size, dtype=torch.promote_types(dtype, torch.float32)),
        example(batch, beam_size, 2, dtype=torch.float64),
        example(batch, beam_size, 2),
        example(batch, _AnySize(31), beam_size, 2),
        example(batch, beam_size, _AnySize(41)),
        mask,
        [
            example(rows, 2, count, _AnySize(101 + 2 * i), d_k, dtype=dtype)
            for i, (count, d_k) in enumerate(heads[:depth])
        ],
        [example(batch, 2, count, source, d_k, dtype=dtype) for count, d_k in heads[depth:]],
    )
    return step, shapes


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
    inputs = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    # Of Prefill, the length of `tokens`; a step can have as many positions as cached ones, and one.
    name, dimension, more = ("tokens", 1, 0) if "tokens" in inputs else ("length", 0, 1)
    symbol = inputs[name].meta["val"].shape[dimension].node.expr
    return float(program.range_constraints[symbol].upper) - more


def _environment() -> dict[str, Any]:
    """Describe the software and the processor that a program is made for."""
    abilities = [name for name, value in torch.cpu.get_capabilities().items() if value is True]
    return {
        "torch": torch.__version__,
        "processor": f"{platform.machine()} ({', '.join(sorted(abilities))})",
    }


@contextmanager
def _compiler_settings() -> Iterator[None]:
    """Leave inference mode, record no gradients, and silence what torch tells its developers.

    Among it are matrix products that the compiler tries and cannot build.
    """
    logger = logging.getLogger("torch._inductor")
    level = logger.level
    silence = warnings.catch_warnings(action="ignore")
    with silence, torch.inference_mode(False), torch.no_grad():
        logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            logger.setLevel(level)
