"""Ranges: the rules that numbers on command lines and in configurations must obey."""

from collections.abc import Callable

RULES: dict[str, Callable[[float], bool]] = {
    "above 0": lambda x: 0 < x < 2**63,
    "at least 0": lambda x: 0 <= x < 2**63,
    "in [0, 1)": lambda x: 0 <= x < 1,
    "in (0, 1]": lambda x: 0 < x <= 1,
    "in [0, 10]": lambda x: 0 <= x <= 10,
    "from 1 to 1000": lambda x: 1 <= x <= 1000,
    "from 1 to 100000": lambda x: 1 <= x <= 100_000,
    "from 1 to 1000000": lambda x: 1 <= x <= 1_000_000,
    "not NaN": lambda x: x == x,
}
"""The test of each rule, by the words in which error messages state it. NaN passes none."""


def describe_rule(rule: str, value: float) -> str:
    """Return the words of the rule that a value breaks, with the upper bound if it is too large."""
    return f"{rule} and below 2**63" if value >= 2**63 and "to" not in rule else rule
