"""Decoding algorithms: check a search on models whose best sequences are known."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from transformer_blocks._contracts import Function, checked
from transformer_blocks.inspection.soundness.report import Report
from transformer_blocks.inspection.soundness.tested import first_line

VOCABULARY = 8
END = 0
MAX_LENGTH = 6
IMPOSSIBLE = -30.0  # logit of a token that cannot follow
AFTER_END = -2.0  # logit of every token after the end token, which no search should generate


class KnownModel:
    """A step model with a few possible sequences for each start token.

    The probability of a token is that of all sequences that begin with the prefix and the token,
    divided by that of all that begin with the prefix.
    """

    def __init__(self, start: Tensor) -> None:
        self.prefixes: list[tuple[int, ...]] = [(token,) for token in start.tolist()]

    def step(self, tokens: Tensor) -> Tensor:
        """Append a token to each prefix, and compute the logits of the next."""
        self.prefixes = [
            (*prefix, token) for prefix, token in zip(self.prefixes, tokens.tolist(), strict=True)
        ]
        return torch.stack([self.logits(prefix) for prefix in self.prefixes])

    def logits(self, prefix: tuple[int, ...]) -> Tensor:
        """Compute the logits of the token that follows a prefix, its start token included."""
        written = prefix[2:]  # after the source and the start token
        if END in written:
            logits = torch.full((VOCABULARY,), AFTER_END)
            logits[-1] += 2.0  # another token than the end token
            return logits
        logits = torch.full((VOCABULARY,), IMPOSSIBLE) - torch.arange(VOCABULARY).flip(0) / 10
        for sequence, probability in SEQUENCES.get(prefix[0], {}).items():
            if sequence[: len(written)] == written and len(sequence) > len(written):
                token = sequence[len(written)]
                logits[token] = logits[token].logaddexp(torch.tensor(probability).log())
        return logits

    def reorder(self, rows: Tensor) -> None:
        """Replace each prefix by that of a given row."""
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]


GREEDY = (1, 2, END)
BEST = (4, 5, END)
SHORT = (1, END)
LONG = (2, 3, 4, END)
THIRD = (7, 6, 5, END)
SEQUENCES: Mapping[int, Mapping[tuple[int, ...], float]] = {
    # The most probable first token leads to two equally probable sequences: not the best ones.
    1: {GREEDY: 0.28, (1, 3, END): 0.24, BEST: 0.38, (6, 7, END): 0.1},
    # A short sequence, and a long one that is less probable.
    2: {SHORT: 0.55, LONG: 0.45},
    3: {THIRD: 1.0},
}
"""The possible sequences after each start token, and their probabilities."""
BATCH = {2: SHORT, 1: BEST, 3: THIRD}
CASES: list[tuple[str, Mapping[int, tuple[int, ...]], dict[str, Any]]] = [
    ("greedy decoding", {1: GREEDY}, {"beam_size": 1}),
    ("greedy decoding of a batch", BATCH | {1: GREEDY}, {"beam_size": 1}),
    ("with four beams, the most probable sequence", {1: BEST}, {"beam_size": 4}),
    ("with two beams and length_penalty=0", {2: SHORT}, {"beam_size": 2}),
    ("with length_penalty=2", {2: LONG}, {"beam_size": 2, "length_penalty": 2.0}),
    ("with four beams and a batch", BATCH, {"beam_size": 4}),
    ("with five beams and a batch", BATCH, {"beam_size": 5}),
]
"""What is tried: the best sequence after each start token, and the options of the search."""


@checked
def check_search(search: Function[Callable[..., Any]]) -> Report:
    """Check a decoding algorithm on models whose best sequences are known.

    A wide beam must find the most probable sequence, which greedy decoding misses. A finished
    sequence must keep its tokens and its score. A larger length penalty must favour the longer
    sequence. A beam of one must be greedy decoding. And each sequence of a batch must be the one
    that is found without the others.

    Args:
        search: Function that is called as :func:`~transformer_blocks.beam_search` is:
            ``search(model, start, beam_size=..., end_id=..., max_length=...,
            length_penalty=...)``. Keywords that it does not have are left out; without
            ``beam_size``, it is taken for greedy decoding. It returns, for each start token, the
            best sequence or a list of sequences, best first: token ids without the start token, or
            a :class:`~transformer_blocks.generation.Generation`.

    Returns:
        A report of the violations.

    Raises:
        TypeError: If ``search`` is not a function.

    Example:
        >>> from transformer_blocks import beam_search, greedy_search
        >>> from transformer_blocks.inspection import check_search
        >>> print(check_search(beam_search))
        decoding: no violation found
        >>> print(check_search(greedy_search))
        decoding: no violation found
    """
    keywords = {"beam_size", "end_id", "max_length", "length_penalty"}
    with contextlib.suppress(TypeError, ValueError):  # of functions without a signature
        parameters = inspect.signature(search).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            keywords &= parameters.keys()
    problems = []
    for what, expected, options in CASES:
        if options.get("beam_size", 1) == 1 or keywords >= options.keys():
            everything = {"end_id": END, "max_length": MAX_LENGTH, "length_penalty": 0.0} | options
            accepted = {name: everything[name] for name in everything if name in keywords}
            problems += [f"{what}: {each}" for each in find_mistakes(search, expected, accepted)]
    return Report("decoding", tuple(problems))


def find_mistakes(
    search: Callable[..., Any], expected: Mapping[int, tuple[int, ...]], options: Mapping[str, Any]
) -> Iterator[str]:
    """Search after some start tokens, and describe what is not as expected."""
    model = KnownModel(torch.tensor([*expected]))
    try:
        results = search(model, torch.tensor([*expected]), **options)
        found = [read_tokens(each) for each in results]
    except Exception as error:  # whatever the search raises: the report shows it
        yield f"{type(error).__name__}: {first_line(error)}"
        return
    if len(found) != len(expected):
        yield f"{len(found)} results for {len(expected)} start tokens"
        return
    for (begin, best), tokens in zip(expected.items(), found, strict=True):
        count = len(best) - 1  # without the end token
        is_right = tokens[:count] == best[:count] and all(each == END for each in tokens[count:])
        if not is_right or len(tokens) > MAX_LENGTH:
            yield (
                f"the sequence of the start token {begin} must be {[*best[:count]]}, then the end "
                f"token {END}, in max_length={MAX_LENGTH} tokens, got {[*tokens]}"
            )


def read_tokens(result: Any) -> tuple[int, ...]:
    """Return the token ids of the best sequence."""
    if isinstance(result, Tensor):
        result = result.tolist()
    if hasattr(result, "tokens"):
        result = result.tokens
    if isinstance(result, list | tuple) and result and not isinstance(result[0], int):
        return read_tokens(result[0])
    return tuple(int(token) for token in result)
