"""Checks: find where a model sees what it must not, or forgets what it should know.

Three promises are broken most often, and none of them raises an error: that no word sees a later
one, that padding changes nothing, and that writing step by step gives what reading at once gives.
Each check takes any function, of these blocks or not, tries the promise out, and reports every
place where it does not hold. A report is true if all is well, so that a test may say
``assert check_causal(...)``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_blocks._checks import check_callable, check_number, check_size, check_tensor
from transformer_blocks.generation import StepModel

SHOWN = 5  # problems that a printed report lists


@dataclass(frozen=True)
class Report:
    """What a check has found; true if that is nothing.

    Attributes:
        title: What was checked.
        problems: A sentence for each place where the promise is broken.
    """

    title: str
    problems: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        """List the first problems."""
        if not self.problems:
            return f"{self.title}: nothing found"
        lines = [f"{self.title}: {len(self.problems)} found", *self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"and {len(self.problems) - SHOWN} more")
        return "\n  ".join(lines)


@torch.no_grad()
def check_causal(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    window: int | None = None,
    tolerance: float | None = None,
) -> Report:
    """See that no position is told of a later one, and that none is deaf to all that came before.

    Position by position, the input is changed and the outputs are compared. An output that changes
    before the place that was changed is a leak. One that never changes, however much of its past
    is rewritten, while others look around, is deaf: its mask may be inverted.

    Args:
        function: Any module or function from (B, L) ids, or (B, L, width) vectors, to (B, L, ...);
            without randomness, so in eval mode.
        x: An input to try, with two positions or more. Ids are exchanged for others of ``x``, which
            needs at least two different ones.
        window: How many positions the whole function may reach back, itself included; all if not
            given. Each layer of a stack adds the window of its mask, less one.
        tolerance: What counts as no change, in standard deviations of the output; by its dtype if
            not given, 1e-4 in float32.

    Returns:
        The leaks.

    Raises:
        ValueError: If shapes do not fit, if ids are all the same, or if there is nothing to
            compare, such as in an empty batch.

    Example:
        >>> layer = MultiHeadAttention(16, 4).eval()
        >>> x = torch.randn(1, 3, 16)
        >>> print(check_causal(lambda x: layer(x, x, x, causal=True), x))
        causality: nothing found
        >>> print(check_causal(lambda x: layer(x, x, x), x))
        causality: 3 found
          position 0 changes with position 1, which comes later
          position 0 changes with position 2, which comes later
          position 1 changes with position 2, which comes later
    """
    _check_kinds(function, tolerance, x=x)
    if x.dim() < 2 or x.shape[1] < 2:
        raise ValueError(f"x must have shape (B, L, ...) with L of 2 or more, got {tuple(x.shape)}")
    if window is not None:
        check_size(window=window)
    before = function(x.clone()).clone()
    if before.shape[:2] != x.shape[:2]:
        raise ValueError(
            f"function must keep (B, L) = {tuple(x.shape[:2])}, got an output of shape "
            f"{tuple(before.shape)}"
        )
    if problem := _unsteady(before, function(x.clone()), tolerance):
        return Report("causality", (problem,))
    length = x.shape[1]
    noticed = torch.zeros(length, length, dtype=torch.bool)  # (output, input)
    for place in range(length):
        changed = x.clone()
        changed[:, place] = _other(x, place)
        far = _far(before, function(changed), tolerance)  # (B, L, ...)
        noticed[:, place] = far.transpose(0, 1).flatten(1).any(dim=1).cpu()
    mixes = bool((noticed & ~torch.eye(length, dtype=torch.bool)).any())
    problems = []
    for output, row in enumerate(noticed.tolist()):
        first = 0 if window is None else max(0, output - window + 1)
        problems += [
            f"position {output} changes with position {place}, which comes later"
            for place in range(output + 1, length)
            if row[place]
        ]
        problems += [
            f"position {output} changes with position {place}, outside its window of {window}"
            for place in range(first)
            if row[place]
        ]
        if mixes and first < output and not any(row[:output]):
            problems.append(f"position {output} notices no earlier position")
    return Report("causality", tuple(problems))


@torch.no_grad()
def check_padding(
    function: Callable[[Tensor], Tensor],
    sentences: Sequence[Tensor],
    *,
    padding_id: int = 0,
    extra_columns: int = 3,
    tolerance: float | None = None,
) -> Report:
    """See that a sentence gives the same alone, among longer ones, and with yet more padding.

    Args:
        function: Any module or function from (B, S) ids, padded at the end, to (B, S, ...), or to
            something of shape (B, ...) that sums each sentence up; without randomness.
        sentences: Ids of each sentence, of different lengths. Each of shape (S_i,).
        padding_id: What fills the shorter ones up.
        extra_columns: How much padding is added to the batch in a second try.
        tolerance: What counts as no change; see :func:`check_causal`.

    Returns:
        The sentences that were changed.

    Raises:
        ValueError: If there are no two lengths to compare, or nothing else to compare.

    Example:
        >>> encoder = build_encoder(num_layers=1, d_model=16, num_heads=4, d_ff=32).eval()
        >>> embed = TokenEmbedding(10, 16)
        >>> sentences = [torch.tensor([5, 6, 7]), torch.tensor([8])]
        >>> print(check_padding(lambda t: encoder(embed(t), mask=padding_mask(t)), sentences))
        padding: nothing found
        >>> bool(check_padding(lambda t: encoder(embed(t)), sentences))  # the mask is forgotten
        False
    """
    if len({len(sentence) for sentence in sentences}) < 2:
        raise ValueError(
            "sentences must have different lengths, or there is no padding, "
            f"got {[len(sentence) for sentence in sentences]}"
        )
    if not all(map(len, sentences)):
        raise ValueError("sentences must have one token or more each, got an empty one")
    check_size(extra_columns=extra_columns)
    alone = [function(sentence[None].clone())[0].clone() for sentence in sentences]
    for sentence, expected in zip(sentences, alone, strict=True):
        again = function(sentence[None].clone())[0]
        if problem := _unsteady(expected, again, tolerance):
            return Report("padding", (problem,))
    longest = max(map(len, sentences))
    problems = []
    for columns, where in (
        (longest, "among the others"),
        (longest + extra_columns, "with more padding"),
    ):
        batch = sentences[0].new_full((len(sentences), columns), padding_id)
        for row, sentence in zip(batch, sentences, strict=True):
            row[: len(sentence)] = sentence
        together = function(batch)
        for number, (sentence, expected) in enumerate(zip(sentences, alone, strict=True)):
            found = together[number]
            if found.shape != expected.shape:  # a row for each position: compare the real ones
                found = found[: len(sentence)]
            if bool(_far(expected, found, tolerance).any()):
                problems.append(
                    f"sentence {number}, of {len(sentence)} tokens, gives something else {where}, "
                    f"{columns} tokens wide, than alone"
                )
    return Report("padding", tuple(problems))


@torch.no_grad()
def check_cache(
    function: Callable[[Tensor], Tensor],
    begin: Callable[[], StepModel],
    tokens: Tensor,
    *,
    tolerance: float | None = None,
) -> Report:
    """See that writing step by step gives the scores that reading at once gives.

    Halfway the rows are turned round; a step later one is named twice, as a beam search does; and
    yet a step later some are dropped, as those of finished sentences are.

    Args:
        function: Scores every next token of known sentences: (B, L) ids to (B, L, V).
        begin: Called without arguments; gives the same model, ready to write B sentences by steps.
        tokens: Ids to try, with two positions or more. Shape (B, L).
        tolerance: What counts as no change; see :func:`check_causal`.

    Returns:
        The steps whose scores differ.

    Raises:
        ValueError: If shapes do not fit, or there is nothing to compare.

    Example:
        >>> decoder = build_decoder(num_layers=1, d_model=16, num_heads=4, d_ff=32).eval()
        >>> memory, words = torch.randn(2, 4, 16), torch.randn(10, 16)
        >>> class Steps:
        ...     def __init__(self):
        ...         self.cache = decoder.new_cache(memory)
        ...
        ...     def step(self, tokens):
        ...         return decoder(words[tokens[:, None]], cache=self.cache)[:, 0] @ words.T
        ...
        ...     def reorder(self, rows):
        ...         self.cache.reorder(rows)
        >>> tokens = torch.randint(10, (2, 5))
        >>> with torch.no_grad():
        ...     report = check_cache(lambda t: decoder(words[t], memory) @ words.T, Steps, tokens)
        >>> print(report)
        steps: nothing found
    """
    if tokens.dim() != 2 or tokens.shape[1] < 2:
        raise ValueError(
            f"tokens must have shape (B, L) with L of 2 or more, got {tuple(tokens.shape)}"
        )
    rows, length = tokens.shape
    whole = function(tokens.clone()).clone()  # (B, L, V)
    if whole.shape[:2] != tokens.shape:
        raise ValueError(
            f"function must give (B, L, V) with (B, L) = {(rows, length)}, got {tuple(whole.shape)}"
        )
    if problem := _unsteady(whole, function(tokens.clone()), tolerance):
        return Report("steps", (problem,))
    half = length // 2
    moves = {
        half: [*reversed(range(rows))],
        half + 1: [*range(rows), 0],
        half + 2: [*range(1, rows + 1)],
    }
    order = torch.arange(rows, device=tokens.device)  # the sentence that each row writes
    problems: list[str] = []
    model = begin()
    for step in range(length):
        where = "" if step < half else ", after rows were moved"
        try:
            if step in moves:
                chosen = torch.tensor(moves[step], device=tokens.device)
                model.reorder(chosen.cpu())
                order = order[chosen]
            scores = model.step(tokens[order, step])
        except Exception as error:  # whatever a wrong cache makes of it
            problems.append(f"step {step} failed{where}: {error}")
            break
        expected = whole[order, step]
        if scores.shape != expected.shape:
            problems.append(
                f"step {step} must give scores of shape {tuple(expected.shape)}{where}, "
                f"got {tuple(scores.shape)}"
            )
            break
        wrong = _far(expected, scores, tolerance).flatten(1).any(dim=1).nonzero().flatten()
        problems += [f"step {step} of row {row} differs{where}" for row in wrong.tolist()]
    return Report("steps", tuple(problems))


def _other(x: Tensor, place: int) -> Tensor:
    """Make another input for one position: other vectors, or other ids of the same sentences."""
    old = x[:, place].contiguous()
    if x.is_floating_point():
        dice = torch.Generator().manual_seed(place)
        size = float(x.float().std(correction=0)) or 1.0
        return old + size * torch.randn(old.shape, generator=dice).to(old)
    ids = x.unique()
    if len(ids) < 2:
        raise ValueError(f"x must hold at least two different ids, got {ids.tolist()} only")
    following = torch.searchsorted(ids, old) + 1
    return ids[following % len(ids)]


def _check_kinds(function: object, tolerance: float | None, **tensors: Tensor) -> None:
    """Raise unless a function can be called, tensors are some, and a tolerance bounds something."""
    check_callable(function=function)  # type: ignore[arg-type]
    for name, tensor in tensors.items():
        check_tensor(name, tensor)
    if tolerance is not None:
        check_number(tolerance=tolerance)
        if not 0.0 <= tolerance < float("inf"):
            raise ValueError(f"tolerance must be at least 0 and finite, got {tolerance}")


def _far(before: Tensor, after: Tensor, tolerance: float | None) -> Tensor:
    """Tell which numbers differ by more than rounding; infinities are equal to themselves."""
    if before.shape != after.shape:
        raise ValueError(
            f"function must give outputs of one shape, got {tuple(before.shape)} and "
            f"{tuple(after.shape)}"
        )
    if tolerance is None:
        floating = before.dtype if before.is_floating_point() else torch.float32
        tolerance = max(1e-4, 16 * torch.finfo(floating).eps)
    first, second = before.double(), after.double()
    finite = first[first.isfinite()]
    size = finite.std(correction=0).clamp(min=1e-12) if len(finite) else 1.0
    return (first != second) & ~((second - first).abs() / size <= tolerance)


def _unsteady(first: Tensor, second: Tensor, tolerance: float | None) -> str | None:
    """Complain if two equal calls gave different outputs; nothing could be found in empty ones.

    Raises:
        ValueError: If the outputs are empty.
    """
    if not first.numel():
        raise ValueError(f"function must give numbers to compare, got shape {tuple(first.shape)}")
    if bool(first.isnan().any()):
        return "the output holds NaN"
    if bool(_far(first, second, tolerance).any()):
        return "two equal calls differ: put the model into eval mode, where nothing is dropped"
    return None
