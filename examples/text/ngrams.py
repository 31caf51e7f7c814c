r"""N-grams: the next word by counting, with Kneser and Ney's smoothing.

Before there were neural models, one counted: how often did w follow the last n - 1 words h? Most
such h were never seen, and of those that were, most never before this w. So a little is taken from
every count, a discount D, and what is saved goes to a guess from one word less ("Improved
Backing-Off for M-gram Language Modeling", Kneser and Ney 1995,
https://doi.org/10.1109/ICASSP.1995.479394, interpolated as in "An Empirical Study of Smoothing
Techniques for Language Modeling", Chen and Goodman 1999, https://doi.org/10.1006/csla.1999.0128):

.. math::

   P_n(w \mid h) = \frac{\max(c(hw) - D_n,\ 0)}{c(h)}
                   + \frac{D_n\, T(h)}{c(h)}\, P_{n-1}(w \mid h')

T(h) is the number of different words seen after h, and h' is h without its first word; the last
guess, :math:`P_0`, is the same for all words. The idea of Kneser and Ney is what the shorter
histories count: not how often hw was seen, but after how many *different* words. "Francisco" is
frequent and stands after "San" alone, so after any other word it is a bad guess. The discount is
:math:`D_n = n_1 / (n_1 + 2 n_2)`, of the counts that are 1 and 2.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence


class NgramModel:
    """Guesses the next token from the last few; interpolated Kneser-Ney smoothing.

    Args:
        tokens: A text, as ids.
        order: n, most tokens that are counted together.
        vocabulary: V, number of token ids.

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
        for n in range(order - 1):  # shorter ones count the words before them
            counts[n] = Counter(longer[1:] for longer in counts[n + 1])
        self.discounts = [_discount(of_n) for of_n in counts]
        self.followers: defaultdict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
        for of_n in counts:
            for (*history, token), count in of_n.items():
                self.followers[tuple(history)][token] = count
        self.totals = {history: sum(seen.values()) for history, seen in self.followers.items()}

    def probability(self, history: Sequence[int], token: int) -> float:
        """Say how likely a token is after others, of which the last ``order - 1`` count."""
        chance = 1.0 / self.vocabulary
        for n in range(self.order):  # from no word of the history to n - 1
            known = tuple(history[len(history) - n :])
            seen = self.followers.get(known)
            if seen is None or len(known) < n:
                break  # a longer history was not seen either
            discount = self.discounts[n]
            saved = discount * len(seen)
            own = max(seen.get(token, 0) - discount, 0.0)
            chance = (own + saved * chance) / self.totals[known]
        return chance

    def loss(self, tokens: Sequence[int]) -> float:
        """Sum minus the logarithms (nats) of all tokens but the first, each after those before."""
        total = 0.0
        for place in range(1, len(tokens)):
            history = tokens[max(0, place - self.order + 1) : place]
            total -= math.log(self.probability(history, tokens[place]))
        return total


def _discount(counts: Counter[tuple[int, ...]]) -> float:
    """Compute what is taken from every count."""
    once = sum(count == 1 for count in counts.values())
    twice = sum(count == 2 for count in counts.values())
    return once / (once + 2 * twice) if once and twice else 0.5
