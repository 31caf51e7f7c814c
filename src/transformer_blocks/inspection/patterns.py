"""Patterns: names for attention heads whose weights follow a simple rule.

Many heads of a trained Transformer attend to a position that can be named without knowing the
sentence: the previous token, the token itself, a separator at the end, or all positions alike ("An
Analysis of BERT's Attention", Clark et al. 2019, https://arxiv.org/abs/1906.04341, section 3), or
the first token ("Efficient Streaming Language Models with Attention Sinks", Xiao et al. 2023,
https://arxiv.org/abs/2309.17453). An induction head attends to the token that followed an earlier
occurrence of the current one ("In-context Learning and Induction Heads", Olsson et al. 2022,
https://arxiv.org/abs/2209.11895). :func:`head_patterns` names such heads.

A name describes the weights for one sequence. It does not say what the head contributes to the
output; :func:`~transformer_blocks.inspection.ablate` measures that.
"""

import math
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from transformer_blocks._contracts import Mask, Vectors, checked

END_TOKENS = {"</s>", "<eos>", "[SEP]", "<sep>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>"}
FEWEST_QUERIES, FEWEST_MOVES = 2, 4  # that must count for a mean, and for a correlation
FEWEST_KEYS = 3  # of a query that counts: the weights of two keys are nearly determined


Measure = Callable[[Tensor, Tensor, Sequence[str] | None], Tensor]
Targets = Callable[[Tensor, Sequence[str] | None], Tensor | None]


class Pattern(NamedTuple):
    """A rule that names heads.

    Attributes:
        name: The name of the heads that satisfy the rule.
        rule: The rule as a sentence, with the threshold.
        threshold: The smallest number of a head that satisfies the rule.
        measure: Function that computes a number for each head from the weights in float64, of shape
            (H, L, S), the positions that are not masked, of shape (L, S), and the tokens of the
            keys or None. The numbers are NaN where the rule does not apply.
        of_self_attention: Whether the rule is applied to self-attention.
        of_cross_attention: Whether the rule is applied to cross-attention.
    """

    name: str
    rule: str
    threshold: float
    measure: Measure
    of_self_attention: bool = True
    of_cross_attention: bool = False


class HeadPattern(NamedTuple):
    """What the weights of a head show.

    Attributes:
        name: Name of the first rule that the head satisfies; None if it satisfies no rule.
        scores: For each rule that can be applied, the number that is compared with its threshold.
    """

    name: str | None
    scores: dict[str, float]


@checked
@torch.no_grad()
def head_patterns(
    weights: Annotated[Tensor, Vectors("H L S")],
    *,
    keys: Sequence[str] | None = None,
    mask: Mask | None = None,
    self_attention: bool = True,
) -> list[HeadPattern]:
    """Name the heads of a layer whose attention weights follow a simple rule.

    A head gets the name of the first rule that it satisfies, in this order:

    - *previous token*, in self-attention: The mean weight on the previous token is at least 0.5,
      over the queries (2 or more) with at least 3 unmasked keys.
    - *itself*, in self-attention: The mean weight on the query's own token is at least 0.5, over
      the queries (2 or more) with at least 3 unmasked keys.
    - *next token*, in self-attention: The mean weight on the next token is at least 0.5, over the
      queries (2 or more) with at least 3 unmasked keys.
    - *first token*, in self-attention: The mean weight on the first token is at least 0.5, over the
      queries (2 or more) with at least 3 unmasked keys.
    - *induction*, in self-attention: The mean weight on the tokens that followed earlier
      occurrences of the query's token is at least 0.5, over the queries (2 or more) for which these
      are at most a third of the unmasked keys.
    - *end of sentence*: The mean weight on the end tokens and punctuation marks after the last word
      is at least 0.5, over the queries (2 or more) for which these are at most a third of the
      unmasked keys.
    - *broad*: The entropy of the weights, divided by that of equal weights, has a mean of at least
      0.8, over the queries (2 or more) with at least 3 unmasked keys.
    - *diagonal*, in cross-attention: The positions of the queries and those of their keys with the
      largest weight have a correlation of at least 0.9, over the queries (4 or more) with at least
      3 unmasked keys.

    A query whose previous token (own, next, first) does not exist or is masked does not count in
    that rule, nor does one whose token did not occur earlier in that of induction. With these
    rules, equal weights are always *broad*.

    Args:
        weights: Attention weights, of shape (H, L, S). In self-attention with L < S, the last query
            has the position of the last key.
        keys: The S tokens of the keys; without them, no head is named *induction* or *end of
            sentence*. Induction is best seen in random tokens that are repeated.
        mask: Boolean mask of shape (L, S), where True hides. Pass the causal mask where attention
            is causal.
        self_attention: Whether queries and keys are positions of the same sequence.

    Returns:
        For each head, its name, or None if it satisfies no rule, and its scores.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If the shapes do not fit.

    Example:
        >>> import torch
        >>> from transformer_blocks.inspection import head_patterns
        >>> previous = torch.eye(5).roll(-1, dims=1)  # each token attends to the one before
        >>> equal = torch.full((5, 5), 1 / 5)
        >>> both = 0.4 * previous + 0.6 * torch.eye(5)
        >>> heads = head_patterns(torch.stack([previous, equal, both]))
        >>> [head.name for head in heads]
        ['previous token', 'broad', 'itself']
        >>> {name: round(score, 2) for name, score in heads[2].scores.items()}
        {'previous token': 0.4, 'itself': 0.6, 'next token': 0.0, 'first token': 0.2, 'broad': 0.42}
    """
    size = tuple(weights.shape[1:])
    if keys is not None and len(keys) != size[1]:
        raise ValueError(f"keys must be the S = {size[1]} tokens of the keys, got {len(keys)}")
    if mask is not None and tuple(mask.shape) != size:
        raise ValueError(f"mask must have shape (L, S) = {size}, got {tuple(mask.shape)}")
    unmasked = torch.ones(size, dtype=torch.bool) if mask is None else ~mask.cpu()
    scores: list[dict[str, float]] = [{} for _ in weights]
    weights = weights.detach().cpu().double().masked_fill(~unmasked, 0.0)
    for pattern in PATTERNS:
        if pattern.of_self_attention if self_attention else pattern.of_cross_attention:
            numbers = pattern.measure(weights, unmasked, keys).tolist()
            for own, number in zip(scores, numbers, strict=True):
                if not math.isnan(number):
                    own[pattern.name] = number
    thresholds = {pattern.name: pattern.threshold for pattern in PATTERNS}
    return [
        HeadPattern(next((name for name in own if own[name] >= thresholds[name]), None), own)
        for own in scores
    ]


def _weight_on(targets: Targets, *, needs_target: bool = True) -> Measure:
    """Build the measure of the mean weight on some keys.

    A query counts if it has such a key (or any key, if it needs none), and at least three times as
    many keys in all.
    """

    def measure(weights: Tensor, unmasked: Tensor, keys: Sequence[str] | None) -> Tensor:
        found = targets(unmasked, keys)
        if found is None:
            return _unknown(weights)
        found = found & unmasked
        num_targets, num_keys = found.sum(dim=-1), unmasked.sum(dim=-1)
        counts = (num_targets if needs_target else num_keys) > 0
        counts &= num_keys >= FEWEST_KEYS * num_targets
        return _mean((weights * found).sum(dim=-1), counts)

    return measure


def _at(distance: int, unmasked: Tensor, keys: object) -> Tensor:
    """Find the key at a distance from each query."""
    length, key_length = unmasked.shape
    queries = torch.arange(length)[:, None] + key_length - length
    return torch.arange(key_length) == queries + distance


def _first(unmasked: Tensor, keys: object) -> Tensor:
    """Find the first key."""
    return torch.arange(unmasked.shape[1]) == 0


def _followers(unmasked: Tensor, keys: Sequence[str] | None) -> Tensor | None:
    """Find the keys that followed an earlier occurrence of the query's token."""
    if keys is None:
        return None
    length, key_length = unmasked.shape
    followed = [
        [0 < key < query and keys[key - 1] == keys[query] for key in range(key_length)]
        for query in range(key_length - length, key_length)
    ]
    return torch.tensor(followed, dtype=torch.bool).view(unmasked.shape)


def _ends(unmasked: Tensor, keys: Sequence[str] | None) -> Tensor | None:
    """Find the end tokens and punctuation after the last word."""
    if keys is None:
        return None
    used = unmasked.any(dim=0).nonzero().flatten().tolist()  # not padding, which follows the end
    ends = [*takewhile(lambda position: _is_end(keys[position]), reversed(used))]
    return torch.zeros(len(keys), dtype=torch.bool).index_fill(0, torch.tensor(ends).long(), True)


def _is_end(token: str) -> bool:
    """Return whether a token is an end token or punctuation."""
    text = token.strip("▁Ġ ")  # the marks of spaces in subwords
    is_punctuation = bool(text) and all(unicodedata.category(each)[0] == "P" for each in text)
    return text in END_TOKENS or is_punctuation


def _entropy(weights: Tensor, unmasked: Tensor, keys: Sequence[str] | None) -> Tensor:
    """Compute the mean entropy of the weights, relative to that of equal weights."""
    numbers = unmasked.sum(dim=-1)
    largest = numbers.clamp(min=2).double().log()
    entropies = -torch.xlogy(weights, weights).sum(dim=-1)
    return _mean(entropies / largest, numbers >= FEWEST_KEYS)


def _mean(numbers: Tensor, counts: Tensor) -> Tensor:
    """Compute the mean of the numbers (H, L) of the queries that count; NaN if they are too few."""
    return numbers[:, counts].mean(dim=-1) if counts.sum() >= FEWEST_QUERIES else _unknown(numbers)


def _unknown(weights: Tensor) -> Tensor:
    """Return NaN for each head: the rule does not apply."""
    return torch.full((len(weights),), torch.nan)


def _correlation(weights: Tensor, unmasked: Tensor, keys: Sequence[str] | None) -> Tensor:
    """Compute the correlation of the positions of queries and of their keys of largest weight."""
    counts = unmasked.sum(dim=-1) >= FEWEST_KEYS
    best = weights.argmax(dim=-1)[:, counts].double()  # (H, queries)
    if best.shape[1] < FEWEST_MOVES:
        return _unknown(weights)
    queries = torch.arange(len(counts))[counts].double()
    queries, best = queries - queries.mean(), best - best.mean(dim=-1, keepdim=True)
    return best @ queries / (best.norm(dim=-1) * queries.norm())  # NaN if all keys are the same


_COUNTED = "over the queries (2 or more) with at least 3 unmasked keys."
_THIRD = "over the queries (2 or more) for which these are at most a third of the unmasked keys."


def _weight(on: str, counted: str = _COUNTED) -> str:
    return f"The mean weight on {on} is at least 0.5, {counted}"


_FOLLOWERS = "the tokens that followed earlier occurrences of the query's token"
_ENDS = "the end tokens and punctuation marks after the last word"
_ENTROPY = (
    "The entropy of the weights, divided by that of equal weights, has a mean of at least 0.8, "
    f"{_COUNTED}"
)
_CORRELATION = (
    "The positions of the queries and those of their keys with the largest weight have a "
    "correlation of at least 0.9, over the queries (4 or more) with at least 3 unmasked keys."
)
_AT = {distance: _weight_on(partial(_at, distance)) for distance in (-1, 0, 1)}
PATTERNS = (
    Pattern("previous token", _weight("the previous token"), 0.5, _AT[-1]),
    Pattern("itself", _weight("the query's own token"), 0.5, _AT[0]),
    Pattern("next token", _weight("the next token"), 0.5, _AT[1]),
    Pattern("first token", _weight("the first token"), 0.5, _weight_on(_first)),
    Pattern("induction", _weight(_FOLLOWERS, _THIRD), 0.5, _weight_on(_followers)),
    Pattern(
        "end of sentence",
        _weight(_ENDS, _THIRD),
        0.5,
        _weight_on(_ends, needs_target=False),
        of_cross_attention=True,
    ),
    Pattern("broad", _ENTROPY, 0.8, _entropy, of_cross_attention=True),
    Pattern("diagonal", _CORRELATION, 0.9, _correlation, False, of_cross_attention=True),
)
"""The rules of :func:`head_patterns`, in their order."""
