"""Scorers: functions that give each token of a text its probability, as bits per byte need them.

A score compares models only if the probabilities are those of a distribution. Published scores were
too good to be true for three reasons: a probability depended on later tokens; it was computed for
the tokens of the text alone, so that those of the whole vocabulary summed to more than one; or the
model had learned from the text before it was scored. The last two are the same in numbers: a token
that was read, or learned, before it is scored is likely whichever token it is, so that the
probabilities of all of them sum to more than one.
"""

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor

from transformer_blocks._contracts import Function, Ids, Size, checked, raise_type_error
from transformer_blocks.inspection.checks import Report
from transformer_blocks.inspection.comparison import (
    Tolerance,
    epsilon,
    find_largest,
    measure_differences,
    perturb,
    to_float64,
)
from transformer_blocks.inspection.soundness.dependence import choose_positions

SUMMED = 4  # positions at which the probabilities of all tokens are summed, one call each


@checked
def check_scorer(
    score: Function[Callable[[Tensor], Tensor]],
    tokens: Annotated[Tensor, Ids("L")],
    *,
    vocabulary_size: Size,
    tolerance: Tolerance | None = None,
) -> Report:
    """Check that a score of a text is that of a probability distribution, token by token.

    - The probabilities of all tokens of the vocabulary at one position sum to one.
    - They do not depend on the token that stands there, nor on later ones.
    - Two equal calls give equal scores: no call has learned from an earlier one.

    A model may learn from the text while it scores it (test-time training), if each token is scored
    first. The check need not know how the scorer works: it changes the tokens, all from one
    position on, and at four positions it puts each token of the vocabulary in turn.

    Args:
        score: A function from token ids, of shape (L,), to log-probabilities in nats. Of shape
            (L,) or (L - 1,): those of the tokens, the first of which may have none. Of shape
            (L, V) or (L - 1, V): those of the whole vocabulary, from which the tokens' are taken.
            Of shape (): their sum, such as ``-bits_per_byte * number_of_bytes * math.log(2)``; the
            text is then also scored without its last tokens. Each call begins with the same model,
            for example a copy. Random numbers are the same in each call.
        tokens: Token ids of a text, of shape (L,), with at least two different ones. A model that
            reads or learns in blocks needs two blocks or more.
        vocabulary_size: V, the number of tokens between which the probabilities are divided. A
            score of the tokens alone is computed 4 V times; use a small vocabulary.
        tolerance: Largest difference that is ignored, in nats. The default is 1e-4 in float32, and
            larger in half precision.

    Returns:
        A report of the positions whose probabilities are none.

    Raises:
        TypeError: If an argument is of the wrong type, or ``score`` returns no tensor.
        ValueError: If ``score`` returns another shape, or ``tokens`` holds only one id.

    Example:
        >>> import torch
        >>> from transformer_blocks.inspection import check_scorer
        >>> logits = torch.randn(10, 10)  # of the next token, given the last one
        >>> def score(tokens):
        ...     return logits[tokens[:-1]].log_softmax(-1).gather(1, tokens[1:, None])[:, 0]
        >>> tokens = torch.randint(10, (20,))
        >>> print(check_scorer(score, tokens, vocabulary_size=10))
        scorer: no violation found
        >>> def mean_of_neighbours(tokens):  # each score knows the score of the next token
        ...     return (score(tokens) + score(tokens).roll(-1)) / 2
        >>> bool(check_scorer(mean_of_neighbours, tokens, vocabulary_size=10))
        False
    """

    def run(tokens: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[tokens.device] if tokens.is_cuda else []):
            torch.manual_seed(0)
            scores = score(tokens.clone())
        if not isinstance(scores, Tensor) or not scores.is_floating_point():
            raise_type_error("score", "a function that returns log-probabilities", scores)
        return scores.detach().clone()

    length, scores = len(tokens), run(tokens)
    shapes = [(n, *last) for n in (length, length - 1) for last in ((), (vocabulary_size,))]
    if scores.shape not in ((), *shapes):
        raise ValueError(
            "score must return log-probabilities of shape (), (L,), (L - 1,), (L, V) or (L - 1, V) "
            f"with L={length} and V={vocabulary_size}, got {tuple(scores.shape)}"
        )
    if tolerance is None:
        tolerance = max(1e-4, 16 * epsilon(scores) * find_largest(scores))
    if bool((measure_differences(scores, run(tokens)) > tolerance).any()):
        return Report("scorer", ("two equal calls give other scores, or one that is no number",))
    first = length - len(scores) if scores.dim() else 2  # the first token whose score is checked

    def sum_at(position: int) -> Tensor:
        """Sum the probabilities of all tokens at a position; return the logarithm."""
        later = tokens[position + 1 :] if scores.dim() else tokens[:0]
        found = []
        for token in range(vocabulary_size):
            text = torch.cat([tokens[:position], tokens.new_tensor([token]), later])
            found.append(to_float64(run(text)))
        if scores.dim():
            return torch.stack(found)[:, position - first].logsumexp(0)
        return torch.stack(found).logsumexp(0) - to_float64(run(tokens[:position]))

    problems = []
    others = perturb(tokens, tokens, seed=0)
    for position in choose_positions(length) if scores.dim() else ():
        after = run(torch.cat([tokens[:position], others[position:]]))
        known = max(position - first + scores.dim() - 1, 0)  # a distribution before its token
        sizes = measure_differences(scores, after).view(len(scores), -1).amax(1)[:known]
        if bool((sizes > tolerance).any()):
            problems.append(
                f"the score of token {int(sizes.argmax()) + first} depends on the tokens from "
                f"{position} on: it changes by up to {float(sizes.max()):.2g} nats"
            )
    if scores.dim() == 2:
        sums = dict(enumerate(to_float64(scores).logsumexp(1), first))
    else:
        chosen = torch.linspace(first, length - 1, SUMMED).round().long().unique().tolist()
        sums = {position: sum_at(position) for position in chosen}
    problems += [
        f"the probabilities of all tokens at position {position} sum to {float(total.exp()):.4g}"
        for position, total in sums.items()
        if not abs(float(total)) <= tolerance
    ]
    return Report("scorer", tuple(problems))
