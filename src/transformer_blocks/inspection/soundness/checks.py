"""Checks: find errors in masks and caches that raise no exception.

Three properties of a Transformer are violated most often: no output depends on later positions
(causality), padding does not change any output, and cached decoding steps give the same logits as
one full forward pass. Each check takes any model or function, made of these blocks or not, calls it
with changed inputs, and reports every violation of the property. A report is true if there is none,
so a test may read ``assert check_causal(...)``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, repeat
from typing import Annotated

import torch
from torch import Tensor

from transformer_blocks._contracts import (
    Factory,
    Function,
    Ids,
    Size,
    check_tensor,
    checked,
)
from transformer_blocks.generation import StepModel
from transformer_blocks.inspection.comparison import (
    Tolerance,
    describe,
    find_instability,
    measure_changes,
    measure_scales,
    perturb,
)

SHOWN = 5  # violations that a printed report lists


@dataclass(frozen=True)
class Report:
    """The result of a check; true if no violation was found.

    Attributes:
        title: Name of the property that was checked.
        problems: A sentence for each violation.
        not_tried: Why the check could not be run; empty if it was run.
    """

    title: str
    problems: tuple[str, ...]
    not_tried: str = ""

    def __bool__(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        """List the first violations."""
        if self.not_tried:
            return f"{self.title}: not tried: {self.not_tried}"
        if not self.problems:
            return f"{self.title}: no violation found"
        count = len(self.problems)
        title = f"{self.title}: {count} violation{'s' if count > 1 else ''} found"
        return "\n  ".join((title, *list_first(self.problems)))


def list_first(problems: Sequence[str]) -> list[str]:
    """List the first of many violations, and say how many more there are."""
    more = len(problems) - SHOWN
    return [*problems[:SHOWN], *([f"and {more} more"] if more > 0 else [])]


@checked
@torch.no_grad()
def check_causal(
    function: Function[Callable[[Tensor], Tensor]],
    x: Annotated[Tensor, check_tensor],
    *,
    window: Size | None = None,
    tolerance: Tolerance | None = None,
) -> Report:
    """Check that no output depends on later positions, and that it depends on earlier ones.

    The input is perturbed at one position at a time, and the outputs are compared. If an output at
    an earlier position changes, information leaks from the future. If an output depends on no
    earlier position, while others depend on positions besides their own, the mask may be inverted.

    Args:
        function: A module or function from token ids of shape (B, L), or vectors of shape
            (B, L, size), to outputs of shape (B, L, ...). It must be deterministic, so modules must
            be in evaluation mode.
        x: An input with at least two positions. Token ids are replaced by others of ``x``, which
            must hold at least two different ones.
        window: Number of positions on which an output may depend, its own included; all by default.
            Each layer of a stack adds the window of its mask minus one.
        tolerance: Largest change that is ignored, in standard deviations of the output. The default
            depends on the dtype of the output, 1e-4 in float32.

    Returns:
        A report of the violations.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If shapes do not fit, if all ids are the same, or if the outputs are empty.

    Example:
        >>> import torch
        >>> from transformer_blocks import MultiHeadAttention
        >>> from transformer_blocks.inspection import check_causal
        >>> layer = MultiHeadAttention(16, 4).eval()
        >>> x = torch.randn(1, 3, 16)
        >>> print(check_causal(lambda x: layer(x, x, x, causal=True), x))
        causality: no violation found
        >>> print(check_causal(lambda x: layer(x, x, x), x))
        causality: 3 violations found
          position 0 changes with position 1, which comes later
          position 0 changes with position 2, which comes later
          position 1 changes with position 2, which comes later
    """
    if x.dim() < 2 or x.shape[1] < 2:
        raise ValueError(f"x must have shape (B, L, ...) with L of 2 or more, got {tuple(x.shape)}")
    expected = function(x.clone()).clone()
    if expected.shape[:2] != x.shape[:2]:
        raise ValueError(
            f"function must keep (B, L) = {tuple(x.shape[:2])}, got an output of shape "
            f"{tuple(expected.shape)}"
        )
    if problem := find_instability(expected, function(x.clone()), tolerance):
        return Report("causality", (problem,))
    length, scales = (
        x.shape[1],
        measure_scales(expected if expected.dim() > 2 else expected.flatten()),
    )
    depends = torch.zeros(length, length, dtype=torch.bool)  # (output, input)
    for position in range(length):
        perturbed = x.clone()
        perturbed[:, position] = perturb(x[:, position], x, seed=position)
        changes = measure_changes(expected, function(perturbed), tolerance, scales=scales)
        depends[:, position] = changes.transpose(0, 1).flatten(1).any(dim=1)  # of (B, L, ...)
    has_attention = bool((depends & ~torch.eye(length, dtype=torch.bool)).any())
    problems = []
    for output, row in enumerate(depends):
        first = max(0, output + 1 - (window or length))
        for position in row.nonzero().flatten().tolist():
            change = f"position {output} changes with position {position}"
            if position > output:
                problems.append(f"{change}, which comes later")
            elif position < first:
                problems.append(f"{change}, outside its window of {window}")
        if has_attention and first < output and not bool(row[:output].any()):
            problems.append(f"position {output} changes with no earlier position")
    return Report("causality", tuple(problems))


@checked
@torch.no_grad()
def check_padding(
    function: Function[Callable[[Tensor], Tensor]],
    sequences: Sequence[Tensor],
    *,
    padding_id: int = 0,
    extra_padding: Size = 3,
    tolerance: Tolerance | None = None,
) -> Report:
    """Check that padding does not change the outputs of a sequence.

    Each sequence is processed alone, in a padded batch with the others, and with more padding.

    Args:
        function: A module or function from token ids of shape (B, S), padded at the end, to outputs
            of shape (B, S, ...), or of shape (B, ...), one per sequence. It must be deterministic.
        sequences: Token ids of each sequence, of shape (S_i,), with at least two different lengths.
        padding_id: Id of the padding token.
        extra_padding: Number of padding tokens that are added to the batch in a second test.
        tolerance: Largest change that is ignored; see :func:`check_causal`.

    Returns:
        A report of the sequences whose outputs change.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If all sequences have the same length, one is empty, or the outputs are empty.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder, padding_mask, TokenEmbedding
        >>> from transformer_blocks.inspection import check_padding
        >>> encoder = build_encoder(num_layers=1, d_model=16, num_heads=4, d_ff=32).eval()
        >>> embed = TokenEmbedding(10, 16)
        >>> sequences = [torch.tensor([5, 6, 7]), torch.tensor([8])]
        >>> print(check_padding(lambda t: encoder(embed(t), mask=padding_mask(t)), sequences))
        padding: no violation found
        >>> bool(check_padding(lambda t: encoder(embed(t)), sequences))  # without the mask
        False
    """
    lengths = [len(sequence) for sequence in sequences]
    if len(set(lengths)) < 2:
        raise ValueError(
            f"sequences must have different lengths, or there is no padding, got {lengths}"
        )
    if not all(lengths):
        raise ValueError("sequences must have one token or more each, got an empty one")
    alone = [function(sequence[None].clone())[0].clone() for sequence in sequences]
    for sequence, expected in zip(sequences, alone, strict=True):
        again = function(sequence[None].clone())[0]
        if problem := find_instability(expected, again, tolerance):
            return Report("padding", (problem,))
    has_positions = len({each.shape for each in alone}) > 1
    scales = measure_scales(torch.cat(alone) if has_positions else torch.stack(alone))
    problems = []
    for padded_length in (max(lengths), max(lengths) + extra_padding):
        batch = sequences[0].new_full((len(sequences), padded_length), padding_id)
        for row, sequence in zip(batch, sequences, strict=True):
            row[: len(sequence)] = sequence
        outputs = function(batch)
        for number, (length, expected) in enumerate(zip(lengths, alone, strict=True)):
            output = outputs[number]
            if output.shape != expected.shape:  # one output per position: without the padding
                output = output[:length]
            size = float(measure_changes(expected, output, tolerance, scales=scales).max())
            if size:
                problems.append(
                    f"the output of sequence {number} changes if it is padded from {length} to "
                    f"{padded_length} tokens, {describe(size)}"
                )
    return Report("padding", tuple(problems))


@checked
@torch.no_grad()
def check_cache(
    function: Function[Callable[[Tensor], Tensor]],
    new_step_model: Factory[Callable[[], StepModel]],
    tokens: Annotated[Tensor, Ids("B L")],
    *,
    tolerance: Tolerance | None = None,
) -> Report:
    """Check that cached decoding steps give the same logits as one full forward pass.

    Halfway, the rows of the batch are reversed; one step later, one is repeated, as in a beam
    search; and another step later, one is removed, as a finished hypothesis is.

    The same tokens are then decoded again, as a cache may keep something of the first generation.
    If the model has a method ``prefill``, which appends several tokens to the cache, as that of
    :class:`~transformer_blocks.generation.IncrementalDecoder` does, two and three tokens are
    appended at once, at the beginning and after others.

    Args:
        function: The full forward pass, from token ids of shape (B, L) to logits of shape
            (B, L, V), with teacher forcing.
        new_step_model: Function without arguments that returns the same model with an empty cache,
            ready for the first decoding step of B sequences.
        tokens: Token ids to decode, of shape (B, L), with at least two positions.
        tolerance: Largest difference that is ignored; see :func:`check_causal`.

    Returns:
        A report of the decoding steps whose logits differ.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If shapes do not fit, or the outputs are empty.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_decoder
        >>> from transformer_blocks.inspection import check_cache
        >>> decoder = build_decoder(num_layers=1, d_model=16, num_heads=4, d_ff=32).eval()
        >>> memory, embeddings = torch.randn(2, 4, 16), torch.randn(10, 16)
        >>> class Steps:
        ...     def __init__(self):
        ...         self.cache = decoder.new_cache(memory)
        ...
        ...     def step(self, tokens):
        ...         x = embeddings[tokens[:, None]]
        ...         return decoder(x, cache=self.cache)[:, 0] @ embeddings.T
        ...
        ...     def reorder(self, rows):
        ...         self.cache.reorder(rows)
        >>> tokens = torch.randint(10, (2, 5))
        >>> def full_pass(tokens):
        ...     return decoder(embeddings[tokens], memory) @ embeddings.T
        >>> print(check_cache(full_pass, Steps, tokens))
        cache: no violation found
    """
    if tokens.shape[1] < 2:
        raise ValueError(
            f"tokens must have shape (B, L) with L of 2 or more, got {tuple(tokens.shape)}"
        )
    rows, length = tokens.shape
    full_pass = function(tokens.clone()).clone()  # (B, L, V)
    if full_pass.shape[:2] != tokens.shape:
        raise ValueError(
            f"function must return (B, L, V) with (B, L) = {(rows, length)}, "
            f"got {tuple(full_pass.shape)}"
        )
    if problem := find_instability(full_pass, function(tokens.clone()), tolerance):
        return Report("cache", (problem,))
    scales = measure_scales(full_pass if full_pass.dim() > 2 else full_pass.flatten())
    half = length // 2
    reorders = {
        half: [*reversed(range(rows))],
        half + 1: [*range(rows), 0],
        half + 2: [*range(1, rows + 1)],
    }

    def decode(
        lengths: Iterator[int], reorders: Mapping[int, Sequence[int]], when: str
    ) -> list[str]:
        """Decode the tokens, so many at once, with a new model; describe what differs."""
        model, problems, step = new_step_model(), list[str](), 0
        order = torch.arange(rows, device=tokens.device)  # the sequence in each row of the cache
        while step < length:
            stop = min(step + next(lengths), length)
            place = (
                f"step {step}" if stop == step + 1 else f"one pass of tokens {step} to {stop - 1}"
            )
            after = "" if step < half or not reorders else " after a reorder"
            try:
                if step in reorders:
                    selected = torch.tensor(reorders[step], device=tokens.device)
                    model.reorder(selected.cpu())
                    order = order[selected]
                if stop == step + 1:
                    logits, expected = model.step(tokens[order, step]), full_pass[order, step]
                else:
                    logits = model.prefill(tokens[order, step:stop])  # type: ignore[attr-defined]
                    expected = full_pass[order, step:stop]
            except Exception as error:  # a wrong cache may raise anything
                return [*problems, f"{place} failed{after}{when}: {error}"]
            step = stop
            if logits is None:  # the next step shows what the cache holds
                continue
            if logits.shape != expected.shape:
                return [
                    *problems,
                    f"{place} must return logits of shape {tuple(expected.shape)}{after}{when}, "
                    f"got {tuple(logits.shape)}",
                ]
            sizes = measure_changes(expected, logits, tolerance, scales=scales)
            problems += [
                f"{place} of row {row} differs{after}{when}, {describe(size)}"
                for row, size in enumerate(sizes.flatten(1).amax(dim=1).tolist())
                if size
            ]
        return problems

    has_prefill = hasattr(new_step_model(), "prefill")
    plans = [(2, 1), (1, 3)] if has_prefill else [(1,)]  # so many tokens at once, in turn
    problems = decode(repeat(1), reorders, "")
    for number, plan in enumerate(plans, 2):
        if not problems:
            problems = decode(cycle(plan), {}, f" in generation {number}")
    return Report("cache", tuple(problems))
