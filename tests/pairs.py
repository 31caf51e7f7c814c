"""Choose the cases of a test, so that any two values of its parameters meet in one of them."""

from collections.abc import Iterable, Mapping
from itertools import combinations, product
from typing import Any

import pytest


def every_pair(parameters: Mapping[str, Iterable[Any]]) -> pytest.MarkDecorator:
    """Run a test with all pairs of values, in a few of all combinations.

    A fault that shows with one value, or with two values together, shows in one of these cases.

    Args:
        parameters: The values of each parameter. Parameters that belong together have one entry,
            such as ``"queries, keys"``, whose values are tuples.
    """
    values = [list(each) for each in parameters.values()]
    combined = list(product(*(range(len(each)) for each in values)))
    pairs = {numbers: set(combinations(enumerate(numbers), 2)) for numbers in combined}
    missing, chosen = set[Any]().union(*pairs.values()), []
    while missing:
        best = max(combined, key=lambda numbers: len(pairs[numbers] & missing))
        missing -= pairs[best]
        chosen.append(best)
    rows = []
    for numbers in chosen:
        row: list[Any] = []
        for name, each, number in zip(parameters, values, numbers, strict=True):
            row += each[number] if "," in name else [each[number]]
        rows.append(row)
    return pytest.mark.parametrize(", ".join(parameters), rows)
