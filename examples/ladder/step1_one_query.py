"""Step 1: one vector reads a memory.

    python examples/ladder/step1_one_query.py

A memory holds words, each with a *key*, by which it is found, and a *value*, what it has to say. A
*query* asks. The dot product of query and key is the score. The softmax makes weights of them: the
exponential of each, divided by the sum of all. The answer is the sum of the values, each times its
weight. That is attention. The rest of the ladder makes it fast, learned, and safe.
"""

import math
from pathlib import Path

import torch

from drawing import FOLDER, heat_map, new_figure, save
from transformer_blocks import scaled_dot_product_attention

WORDS = ["cat", "dog", "bread", "park"]
# Features of a key:        animal, food, place
KEYS = torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.1, 0.0, 1.0]])
# What a value says:        legs, price
VALUES = torch.tensor([[4.0, 20.0], [4.0, 30.0], [0.0, 2.0], [0.0, 0.0]])
QUERY = torch.tensor([3.0, 0.0, 0.0])  # "an animal, please"


def read_in_a_loop(query: list[float]) -> tuple[list[float], list[float], list[float]]:
    """Attend with nothing but numbers: scores, weights, answer."""
    scores = []
    for key in KEYS.tolist():
        scores.append(sum(q * k for q, k in zip(query, key, strict=True)))
    likeness = [math.exp(score) for score in scores]
    weights = [each / sum(likeness) for each in likeness]
    answer = [0.0, 0.0]
    for weight, value in zip(weights, VALUES.tolist(), strict=True):
        answer = [a + weight * v for a, v in zip(answer, value, strict=True)]
    return scores, weights, answer


def read_as_products(query: torch.Tensor) -> torch.Tensor:
    """Attend with one product for all scores and one for the sum."""
    weights = (KEYS @ query).softmax(dim=0)  # (S,)
    return weights @ VALUES


def main(folder: Path = FOLDER) -> None:
    """Print every number on the way, then draw what a louder query does."""
    scores, weights, answer = read_in_a_loop(QUERY.tolist())
    print("The query 'an animal, please' is (3, 0, 0). Score: query times key, summed.\n")
    print("word   key              score  exp(score)  weight  value (legs, price)")
    for word, key, score, weight, value in zip(
        WORDS, KEYS.tolist(), scores, weights, VALUES.tolist(), strict=True
    ):
        key_text = ", ".join(f"{number:.1f}" for number in key)
        print(
            f"{word:6s} ({key_text})  {score:5.2f}  {math.exp(score):10.2f}  {weight:6.3f}  "
            f"({value[0]:.0f}, {value[1]:.0f})"
        )
    print(f"\nThe weights sum to {sum(weights):.3f}.")
    print(f"Answer of the loop:          {[round(a, 4) for a in answer]}")
    print(f"Answer of the two products:  {[round(a, 4) for a in read_as_products(QUERY).tolist()]}")
    query, key, value = (x[None, None] for x in (QUERY[None], KEYS, VALUES))  # (1, 1, L or S, d)
    mixed, _ = scaled_dot_product_attention(query, key, value, scale=1.0)  # or it divides: step 4
    print(f"Answer of the library:       {[round(a, 4) for a in mixed.flatten().tolist()]}")
    print(
        """
Most of the answer comes from the two animals: almost four legs, and a price between theirs. The
others, which have no legs, pull it down a little: the look-up is soft."""
    )

    loudness = [0.0, 1.0, 3.0, 10.0, 100.0]
    table = torch.stack([(KEYS @ QUERY * (times / 3)).softmax(0) for times in loudness])
    print("\nThe louder the query, the harder the choice: its largest weight")
    for times, row in zip(loudness, table, strict=True):
        print(f"  animal = {times:5.1f}: {row.max():.3f}")
    print("A query of zeros takes the mean of the memory; an endless one takes a single word.")
    figure, (axes,) = new_figure(1, width=5.5)
    rows = [f"animal = {times:g}" for times in loudness]
    heat_map(axes, table, rows=rows, columns=WORDS, title="weights of one query, louder and louder")
    save(figure, "step1", folder)


if __name__ == "__main__":
    main()
