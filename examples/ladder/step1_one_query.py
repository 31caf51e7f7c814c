"""Step 1: attention of one query.

    python examples/ladder/step1_one_query.py

Attention retrieves information from a set of *values*. Each value has a *key*, a vector that
describes it, and a *query* vector describes what is searched for. The dot product of query and key
is their *score*. A softmax turns the scores into *weights*, which are positive and sum to 1: the
exponential of each score, divided by the sum of all exponentials. The output is the sum of the
values, each multiplied by its weight. The following steps make this fast, learned, and safe.
"""

import math
from pathlib import Path

import torch

from drawing import FOLDER, heat_map, new_figure, save
from transformer_blocks import scaled_dot_product_attention

WORDS = ["cat", "dog", "bread", "park"]
# Features of a key:        animal, food, place
KEYS = torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.1, 0.0, 1.0]])
# Features of a value:      legs, mass in kg
VALUES = torch.tensor([[4.0, 4.0], [4.0, 30.0], [0.0, 1.0], [0.0, 0.0]])
QUERY = torch.tensor([3.0, 0.0, 0.0])  # for animals


def attend_in_a_loop(query: list[float]) -> tuple[list[float], list[float], list[float]]:
    """Compute scores, weights and output number by number."""
    scores = []
    for key in KEYS.tolist():
        scores.append(sum(q * k for q, k in zip(query, key, strict=True)))
    exponentials = [math.exp(score) for score in scores]
    weights = [each / sum(exponentials) for each in exponentials]
    output = [0.0, 0.0]
    for weight, value in zip(weights, VALUES.tolist(), strict=True):
        output = [o + weight * v for o, v in zip(output, value, strict=True)]
    return scores, weights, output


def attend_with_products(query: torch.Tensor) -> torch.Tensor:
    """Compute the output with two matrix products, one for the scores and one for the sum."""
    weights = (KEYS @ query).softmax(dim=0)  # (S,)
    return weights @ VALUES


def main(folder: Path = FOLDER) -> None:
    """Print every number of the computation, then scale the query and draw the weights."""
    scores, weights, output = attend_in_a_loop(QUERY.tolist())
    print("The query for animals is (3, 0, 0). A score is the dot product of query and key.\n")
    print("word   key              score  exp(score)  weight  value (legs, kg)")
    for word, key, score, weight, value in zip(
        WORDS, KEYS.tolist(), scores, weights, VALUES.tolist(), strict=True
    ):
        key_text = ", ".join(f"{number:.1f}" for number in key)
        print(
            f"{word:6s} ({key_text})  {score:5.2f}  {math.exp(score):10.2f}  {weight:6.3f}  "
            f"({value[0]:.0f}, {value[1]:.0f})"
        )
    products = attend_with_products(QUERY)
    print(f"\nThe weights sum to {sum(weights):.3f}.")
    print(f"Output of the loop:          {[round(o, 4) for o in output]}")
    print(f"Output of the two products:  {[round(o, 4) for o in products.tolist()]}")
    query, key, value = (x[None, None] for x in (QUERY[None], KEYS, VALUES))  # (1, 1, L or S, d)
    expected, _ = scaled_dot_product_attention(query, key, value, scale=1.0)  # scaling is step 4
    print(f"Output of the library:       {[round(o, 4) for o in expected.flatten().tolist()]}")
    print(
        """
Most of the output comes from the two animals: almost four legs, and a mass between theirs. The
other words have small weights, but none is zero: attention is a soft form of lookup, and can
therefore be trained by gradient descent."""
    )

    factors = [0.0, 1.0, 3.0, 10.0, 100.0]
    table = torch.stack([(KEYS @ QUERY * (factor / 3)).softmax(0) for factor in factors])
    print("\nA query of larger norm concentrates the weights. The largest weight for (x, 0, 0):")
    for factor, row in zip(factors, table, strict=True):
        print(f"  x = {factor:5.1f}: {row.max():.3f}")
    print(
        "With x = 0 the output is the mean of all values. As x grows, it approaches a single value."
    )
    figure, (axes,) = new_figure(1, width=5.5)
    queries = [f"({factor:g}, 0, 0)" for factor in factors]
    heat_map(
        axes,
        table,
        queries=queries,
        keys=WORDS,
        title="attention weights of queries of increasing norm",
    )
    save(figure, "step1", folder)


if __name__ == "__main__":
    main()
