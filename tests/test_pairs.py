"""Few cases hold every pair of values of a test's parameters."""

from itertools import combinations, product
from typing import Any

from tests.pairs import every_pair

PARAMETERS: dict[str, Any] = {"a, b": [(1, 1), (1, 2), (2, 2)], "c": "pqr", "d": "st", "e": "uv"}


def test_any_two_values_of_the_parameters_meet_in_a_case() -> None:
    names, cases = every_pair(PARAMETERS).args
    assert names == "a, b, c, d, e"
    found = [((a, b), *rest) for a, b, *rest in cases]
    for one, other in combinations(range(4), 2):
        values = list(PARAMETERS.values())
        met = {(case[one], case[other]) for case in found}
        assert met == set(product(values[one], values[other]))
    assert len(found) == len(set(found)) <= 10  # of 36
