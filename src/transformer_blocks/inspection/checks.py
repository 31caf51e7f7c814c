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

    def __str__(self) -> str:
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
    tolerance: float = 1e-4,
) -> Report:
    """See that no position is told of a later one, and that each is told of the earlier ones.

    Position by position, the input is changed and the outputs are compared. An output that changes
    before the place that was changed is a leak. One that never changes at all, however much of its
    past is rewritten, is deaf: its mask may be inverted.

    Args:
        function: Any module or function from (B, L) ids, or (B, L, width) vectors, to (B, L, ...);
            without randomness, so in eval mode.
        x: An input to try, with two positions or more. Ids are exchanged for others of ``x``, which
            needs at least two different ones.
        window: How many positions each may look back, itself included; all if not given.
        tolerance: What counts as no change, in standard deviations of the output.

    Returns:
        The leaks.

    Raises:
        ValueError: If shapes do not fit, or ids are all the same.

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
    if x.dim() < 2 or x.shape[1] < 2:
        raise ValueError(f"x must have shape (B, L, ...) with L of 2 or more, got {tuple(x.shape)}")
    before = function(x)
    if before.shape[:2] != x.shape[:2]:
        raise ValueError(
            f"function must keep (B, L) = {tuple(x.shape[:2])}, got an output of shape "
            f"{tuple(before.shape)}"
        )
    if problem := _unsteady(before, function(x), tolerance):
        return Report("causality", (problem,))
    problems = []
    reach = torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool)  # (output, input)
    for place in range(x.shape[1]):
        changed = x.clone()
        changed[:, place] = _other(x, place)
        reach[:, place] = _differs(before, function(changed), tolerance)
    for output, row in enumerate(reach.tolist()):
        first = 0 if window is None else max(0, output - window + 1)
        problems += [
            f"position {output} changes with position {place}, which comes later"
            for place in range(output + 1, len(row))
            if row[place]
        ]
        problems += [
            f"position {output} changes with position {place}, outside its window of {window}"
            for place in range(first)
            if row[place]
        ]
        deaf = [place for place in range(first, output + 1) if not row[place]]
        if deaf:
            places = ", ".join(map(str, deaf))
            problems.append(f"position {output} does not notice position {places}")
    return Report("causality", tuple(problems))


@torch.no_grad()
def check_padding(
    function: Callable[[Tensor], Tensor],
    sentences: Sequence[Tensor],
    *,
    padding_id: int = 0,
    more: int = 3,
    tolerance: float = 1e-4,
) -> Report:
    """See that a sentence gives the same alone, among longer ones, and with yet more padding.

    Args:
        function: Any module or function from (B, S) ids, padded at the end, to (B, S, ...), or to
            something of shape (B, ...) that sums each sentence up; without randomness.
        sentences: Ids of each sentence, of different lengths. Each of shape (S_i,).
        padding_id: What fills the shorter ones up.
        more: How many columns of padding are added to the batch in a second try.
        tolerance: What counts as no change, in standard deviations of the output.

    Returns:
        The sentences that were changed.

    Raises:
        ValueError: If there are no two lengths to compare.

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
    alone = [function(sentence[None])[0] for sentence in sentences]
    again = [function(sentence[None])[0] for sentence in sentences]
    for first, second in zip(alone, again, strict=True):
        if problem := _unsteady(first[None], second[None], tolerance):
            return Report("padding", (problem,))
    longest = max(map(len, sentences))
    problems = []
    for columns, where in ((longest, "among the others"), (longest + more, "with more padding")):
        batch = sentences[0].new_full((len(sentences), columns), padding_id)
        for row, sentence in zip(batch, sentences, strict=True):
            row[: len(sentence)] = sentence
        together = function(batch)
        for number, (sentence, expected) in enumerate(zip(sentences, alone, strict=True)):
            found = together[number]
            if found.shape != expected.shape:  # a row for each position: compare the real ones
                found = found[: len(sentence)]
            if bool(_differs(expected[None], found[None], tolerance).any()):
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
    tolerance: float = 1e-4,
) -> Report:
    """See that writing step by step gives the scores that reading at once gives.

    Halfway the rows are turned round, and one of them is named twice, as a beam search would do.

    Args:
        function: Scores every next token of known sentences: (B, L) ids to (B, L, V).
        begin: Called without arguments; gives the same model, ready to write B sentences by steps.
        tokens: Ids to try, with two positions or more. Shape (B, L).
        tolerance: What counts as no change, in standard deviations of the scores.

    Returns:
        The steps whose scores differ.

    Raises:
        ValueError: If shapes do not fit.

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
        ...     def select(self, rows):
        ...         self.cache.select(rows)
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
    whole = function(tokens)  # (B, L, V)
    if whole.shape[:2] != tokens.shape:
        raise ValueError(
            f"function must give (B, L, V) with (B, L) = {(rows, length)}, got {tuple(whole.shape)}"
        )
    if problem := _unsteady(whole, function(tokens), tolerance):
        return Report("steps", (problem,))
    order = torch.arange(rows)
    model = begin()
    problems = []
    for step in range(length):
        if step == length // 2:
            chosen = torch.tensor([*reversed(range(rows)), 0])
            model.select(chosen)
            order = order[chosen]
        scores = model.step(tokens[order, step])
        if scores.shape != whole[order, step].shape:
            problems.append(
                f"step {step} must give scores of shape {tuple(whole[order, step].shape)}, "
                f"got {tuple(scores.shape)}"
            )
            break
        wrong = _differs(whole[order, step][None], scores[None], tolerance).nonzero().flatten()
        where = "" if step < length // 2 else ", after rows were moved"
        problems += [f"step {step} of row {row} differs{where}" for row in wrong.tolist()]
    return Report("steps", tuple(problems))


def _other(x: Tensor, place: int) -> Tensor:
    """Make another input for one position: other vectors, or other ids of the same sentences."""
    old = x[:, place].contiguous()
    if x.is_floating_point():
        return old + 3 * x.std() + torch.linspace(-1, 1, old.numel()).view_as(old).to(old)
    ids = x.unique()
    if len(ids) < 2:
        raise ValueError(f"x must hold at least two different ids, got {ids.tolist()} only")
    following = torch.searchsorted(ids, old) + 1
    return ids[following % len(ids)]


def _differs(before: Tensor, after: Tensor, tolerance: float) -> Tensor:
    """Tell which places of the second dimension differ in any row. Shape (L,)."""
    if before.shape != after.shape:
        raise ValueError(
            f"function must give outputs of one shape, got {tuple(before.shape)} and "
            f"{tuple(after.shape)}"
        )
    size = before.double().std(correction=0).clamp(min=1e-12)
    change = (after.double() - before.double()).abs() / size
    far = ~(change <= tolerance)  # NaN is a difference too
    return far.transpose(0, 1).flatten(1).any(dim=1).cpu()


def _unsteady(first: Tensor, second: Tensor, tolerance: float) -> str | None:
    """Complain if two equal calls gave different outputs."""
    if not bool(_differs(first, second, tolerance).any()):
        return None
    if bool(first.isnan().any()):
        return "the output holds NaN"
    return "two equal calls differ: put the model into eval mode, where nothing is dropped"
