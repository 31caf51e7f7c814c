r"""N-grams: a language model of counts, with Kneser-Ney smoothing.

Before neural models, the probability of a word w after a history h of n - 1 words was estimated
from counts. Most histories never occur in the training text, and most of those that do are never
followed by this w. So a discount D is subtracted from every count, and the probability that it
frees is distributed by the model of one word less ("Improved
Backing-Off for M-gram Language Modeling", Kneser and Ney 1995,
https://doi.org/10.1109/ICASSP.1995.479394, interpolated as in "An Empirical Study of Smoothing
Techniques for Language Modeling", Chen and Goodman 1999, https://doi.org/10.1006/csla.1999.0128):

.. math::

   P_n(w \mid h) = \frac{\max(c(hw) - D_n,\ 0)}{c(h)}
                   + \frac{D_n\, T(h)}{c(h)}\, P_{n-1}(w \mid h')

T(h) is the number of different words that occur after h, and h' is h without its first word;
:math:`P_0` is uniform. The idea of Kneser and Ney is what the shorter histories count: not how
often hw occurs, but after how many *different* words. "Francisco" is frequent but follows "San"
alone, so it is improbable after any other word. The discount is
:math:`D_n = n_1 / (n_1 + 2 n_2)`, where :math:`n_1` and :math:`n_2` are the numbers of n-grams
that occur once and twice.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence


class NgramModel:
    """An n-gram model with interpolated Kneser-Ney smoothing.

    Args:
        tokens: The token ids of the training text.
        order: The order n: the probability of a token depends on the n - 1 tokens before it.
        vocabulary: The number V of token ids.

    Example:
        >>> model = NgramModel([1, 2, 3, 1, 2, 3, 1, 2, 0], order=3, vocabulary=5)
        >>> model.probability([1, 2], 3) > model.probability([1, 2], 0) > 0
        True
        >>> round(sum(model.probability([1, 2], token) for token in range(5)), 9)
        1.0
    """

    def __init__(self, tokens: Sequence[int], *, order: int, vocabulary: int) -> None:
        self.order, self.vocabulary = order, vocabulary
        counts = [
            Counter(zip(*(tokens[start:] for start in range(n)), strict=False))
            for n in range(1, order + 1)
        ]
        for n in range(order - 1):  # lower orders count the different words before them
            counts[n] = Counter(longer[1:] for longer in counts[n + 1])
        self.discounts = [_discount(of_n) for of_n in counts]
        self.followers: defaultdict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
        for of_n in counts:
            for (*history, token), count in of_n.items():
                self.followers[tuple(history)][token] = count
        self.totals = {history: sum(seen.values()) for history, seen in self.followers.items()}

    def probability(self, history: Sequence[int], token: int) -> float:
        """Compute the probability of a token after the last ``order - 1`` tokens of a history."""
        probability = 1.0 / self.vocabulary
        for n in range(self.order):  # from a history of no token to one of n - 1
            known = tuple(history[len(history) - n :])
            seen = self.followers.get(known)
            if seen is None or len(known) < n:
                break  # longer histories do not occur either
            discount = self.discounts[n]
            freed = discount * len(seen)
            count = max(seen.get(token, 0) - discount, 0.0)
            probability = (count + freed * probability) / self.totals[known]
        return probability

    def loss(self, tokens: Sequence[int]) -> float:
        """Sum the negative log-probabilities (in nats) of all tokens but the first."""
        total = 0.0
        for position in range(1, len(tokens)):
            history = tokens[max(0, position - self.order + 1) : position]
            total -= math.log(self.probability(history, tokens[position]))
        return total


def _discount(counts: Counter[tuple[int, ...]]) -> float:
    """Compute the discount of one order."""
    once = sum(count == 1 for count in counts.values())
    twice = sum(count == 2 for count in counts.values())
    return once / (once + 2 * twice) if once and twice else 0.5
