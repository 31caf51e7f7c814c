"""Unit 3: sinusoidal positional encodings."""

from typing import Any

import torch

from coursework.grader import Unit, normal

X = normal(3, 5, 6)
UNIT = Unit(__name__, "positional encodings")
UNIT.calls(
    "sinusoidal_table",
    "position column",
    columns_are_pairs_of_a_sine_and_a_cosine_of_one_angle=(40, 6),
    an_odd_size_ends_with_a_sine=(5, 7),
)


@UNIT.law("SinusoidalPositionalEncoding", expected=list)
def nothing_of_it_is_trained_or_saved(my: Any) -> Any:
    """Its parameters and its state_dict()."""
    module = my.SinusoidalPositionalEncoding(6, max_length=11)
    saved = [f"{name!r} in its state_dict()" for name in module.state_dict()]
    return saved + [f"{name!r} would be trained" for name, _ in module.named_parameters()]


UNIT.calls(
    "SinusoidalPositionalEncoding",
    "sequence position feature",
    sizes=(6, 11),
    each_position_gets_its_encoding=(X,),
)


@UNIT.law("SinusoidalPositionalEncoding", "sequence position feature")
def steps_with_an_offset_give_what_a_full_pass_gives(my: Any) -> Any:
    """One position at a time."""
    module = my.SinusoidalPositionalEncoding(6, max_length=11)
    return torch.cat([module(X[:, i : i + 1], offset=i) for i in range(5)], dim=1)
