"""Scorers that give a text its probability are sound, and those that know the text are not."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks.inspection import check_scorer

Scorer = Callable[[Tensor], Tensor]
V, CHUNK = 6, 4
TOKENS = torch.randint(V, (14,), generator=torch.Generator().manual_seed(3))
TABLE = torch.randn(V, V, generator=torch.Generator().manual_seed(4))  # logits given one token


def check(score: Scorer, **options: Any) -> list[str]:
    return list(check_scorer(score, TOKENS, vocabulary_size=V, **options).problems)


def summed(score: Scorer) -> Scorer:
    return lambda tokens: score(tokens).sum()


def pick(log_probabilities: Tensor, tokens: Tensor) -> Tensor:
    return log_probabilities.gather(1, tokens[1:, None])[:, 0]


def bigrams(tokens: Tensor, table: Tensor = TABLE) -> Tensor:
    return table[tokens[:-1]].log_softmax(1)


def of_tokens(tokens: Tensor) -> Tensor:
    return pick(bigrams(tokens), tokens)


def with_a_score_of_the_first_token(tokens: Tensor) -> Tensor:
    return F.pad(of_tokens(tokens), (1, 0), value=-math.log(V))


def of_a_fixed_length(tokens: Tensor) -> Tensor:
    assert len(tokens) == len(TOKENS)
    return of_tokens(tokens)


def in_half_precision(tokens: Tensor) -> Tensor:
    return bigrams(tokens, TABLE.bfloat16())


def with_impossible_tokens(tokens: Tensor) -> Tensor:
    never = torch.tensor([True] + [False] * (V - 1))
    return bigrams(tokens, TABLE.masked_fill(never, -torch.inf))


def with_dropout(tokens: Tensor) -> Tensor:
    return bigrams(tokens, F.dropout(TABLE, 0.2))


# Scorers that learn from the text (parameter-golf, issue 1017: score each token, then learn)


def learn(table: Tensor, chunk: Tensor) -> Tensor:
    table = table.detach().requires_grad_()
    with torch.enable_grad():
        loss = -pick(bigrams(chunk, table), chunk).sum()
    return table - 0.5 * torch.autograd.grad(loss, table)[0]


def chunks(tokens: Tensor) -> list[Tensor]:
    """Cut a text into chunks, each of which begins with the last token of the one before."""
    return [tokens[i : i + CHUNK + 1] for i in range(0, len(tokens) - 1, CHUNK)]


def score_then_learn(tokens: Tensor) -> Tensor:
    table, scores = TABLE, []
    for chunk in chunks(tokens):
        scores.append(pick(bigrams(chunk, table), chunk))
        table = learn(table, chunk)
    return torch.cat(scores)


def learn_then_score(tokens: Tensor) -> Tensor:
    return pick(bigrams(tokens, learn(TABLE, tokens)), tokens)


def learn_each_chunk_then_score_it(tokens: Tensor) -> Tensor:  # SLOT, issue 1336
    return torch.cat([pick(bigrams(c, learn(TABLE, c)), c) for c in chunks(tokens)])


def learn_each_token_then_score_it(tokens: Tensor) -> Tensor:
    """No score depends on a later token, and each on its own."""
    pairs = tokens.unfold(0, 2, 1)
    return torch.cat([pick(bigrams(pair, learn(TABLE, pair)), pair) for pair in pairs])


class LearnsFromCallToCall:
    def __init__(self) -> None:
        self.table = TABLE

    def __call__(self, tokens: Tensor) -> Tensor:
        scores = pick(bigrams(tokens, self.table), tokens)
        self.table = learn(self.table, tokens)
        return scores


# Counts of the text so far (pull request 886: looked up for the next token alone)


def counted(tokens: Tensor, *, normalised: bool, buckets: int = 5) -> Tensor:
    """Mix the model with counts of hashed pairs of tokens."""
    counts, of_context = torch.zeros(buckets), torch.zeros(V)
    scores = []
    for position in range(1, len(tokens)):
        context, token = int(tokens[position - 1]), int(tokens[position])
        keys = (7 * context + torch.arange(V)) % buckets
        total = counts[keys].sum() if normalised else of_context[context]
        counted = counts[keys] / total.clamp(min=1)
        model = TABLE[context].softmax(0)
        mixed = model if not total else 0.5 * model + 0.5 * counted
        scores.append(mixed[token].log())
        counts[keys[token]] += 1
        of_context[context] += 1
    return torch.stack(scores)


def normalised_counts(tokens: Tensor) -> Tensor:
    return counted(tokens, normalised=True)


def hashed_counts(tokens: Tensor) -> Tensor:
    return counted(tokens, normalised=False)


def better_of_two_models(tokens: Tensor) -> Tensor:
    return torch.maximum(of_tokens(tokens), pick(bigrams(tokens, TABLE.T), tokens))


def mean_of_two_models(tokens: Tensor) -> Tensor:
    both = torch.stack([bigrams(tokens), bigrams(tokens, TABLE.T)])
    return both.logsumexp(0) - math.log(2)


def not_shifted(tokens: Tensor) -> Tensor:
    return TABLE[tokens].log_softmax(1)


def logits(tokens: Tensor) -> Tensor:
    return TABLE[tokens[:-1]]


def no_numbers(tokens: Tensor) -> Tensor:
    return of_tokens(tokens) * torch.nan


SOUND = (
    *(bigrams, of_tokens, with_a_score_of_the_first_token, of_a_fixed_length, in_half_precision),
    *(with_impossible_tokens, with_dropout, score_then_learn, normalised_counts),
    *(mean_of_two_models, summed(of_tokens), summed(score_then_learn), summed(normalised_counts)),
)


@pytest.mark.parametrize("score", SOUND)
def test_a_sound_scorer_has_no_violation(score: Scorer) -> None:
    assert check(score) == []


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (learn_then_score, "the score of token 1 depends on the tokens from 2 on: it changes by"),
        (learn_each_chunk_then_score_it, "the score of token 1 depends on the tokens from 2 on"),
        (learn_each_token_then_score_it, "the probabilities of all tokens at position 1 sum to 1."),
        (LearnsFromCallToCall(), "two equal calls give other scores"),
        (hashed_counts, "the probabilities of all tokens at position 13 sum to"),
        (better_of_two_models, "the probabilities of all tokens at position 1 sum to 1."),
        (not_shifted, "the score of token 0 depends on the tokens from 0 on"),
        (logits, "the probabilities of all tokens at position 1 sum to"),
        (lambda tokens: bigrams(tokens) - 0.1, "the probabilities of all tokens at position 1 sum"),
        (no_numbers, "two equal calls give other scores, or one that is no number"),
        (summed(learn_then_score), "the probabilities of all tokens at position"),
        (summed(learn_each_chunk_then_score_it), "the probabilities of all tokens at position"),
        (summed(learn_each_token_then_score_it), "the probabilities of all tokens at position"),
        (summed(hashed_counts), "the probabilities of all tokens at position"),
        (summed(better_of_two_models), "the probabilities of all tokens at position"),
    ],
)
def test_a_scorer_that_knows_the_text_is_found(score: Scorer, message: str) -> None:
    problems = check(score)
    assert any(problem.startswith(message) for problem in problems), problems


def test_scores_of_another_form_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^score must be a function that returns log-prob"):
        check(lambda tokens: tokens)
    with pytest.raises(ValueError, match=r"^score must return log-probabilities of shape \(\), "):
        check(lambda tokens: bigrams(tokens)[:, :-1])


def test_the_tolerance_is_in_nats() -> None:
    assert check(lambda tokens: bigrams(tokens) + 0.01)
    assert check(lambda tokens: bigrams(tokens) + 0.01, tolerance=0.02) == []


def test_the_random_numbers_and_the_text_are_as_before() -> None:
    tokens, state = TOKENS.clone(), torch.random.get_rng_state()

    def score(given: Tensor) -> Tensor:
        torch.rand(1)
        scores = of_tokens(given)
        given.zero_()
        return scores

    assert check(score) == []
    assert torch.equal(tokens, TOKENS)
    assert torch.equal(state, torch.random.get_rng_state())
