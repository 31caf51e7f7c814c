"""Unit 3: sinusoidal positional encodings."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from coursework.grader import Mistake, Unit, normal

X = normal(3, 4, 6)


def answer(
    *,
    column: Any = lambda c, d_model: (c // 2, c % 2 == 0),
    first: int = 0,
    base: float = 10000.0,
    begin: Any = lambda offset: offset,
    is_along_batch: bool = False,
    scale: float = 1.0,
) -> dict[str, Any]:
    """Compute the table number by number."""

    def sinusoidal_table(length: int, d_model: int) -> Tensor:
        table = torch.zeros(length, d_model)
        for position in range(length):
            for c in range(d_model):
                pair, is_sine = column(c, d_model)
                angle = (position + first) / base ** (2 * pair / d_model)
                table[position, c] = math.sin(angle) if is_sine else math.cos(angle)
        return table

    class SinusoidalPositionalEncoding(nn.Module):
        """Adds rows of the table."""

        def __init__(self, d_model: int, max_length: int = 5000) -> None:
            super().__init__()
            self.register_buffer("table", sinusoidal_table(max_length, d_model), persistent=False)

        def forward(self, x: Tensor, offset: int = 0) -> Tensor:
            """Add the encodings."""
            rows = self.get_buffer("table")[begin(offset) :]
            added = rows[: x.shape[0], None] if is_along_batch else rows[: x.shape[1]]
            return x * scale + added

    return {
        "sinusoidal_table": sinusoidal_table,
        "SinusoidalPositionalEncoding": SinusoidalPositionalEncoding,
    }


UNIT = Unit(
    "positional encodings",
    answer,
    [
        Mistake(
            "each column has a frequency of its own",
            {"column": lambda c, d_model: (c, c % 2 == 0)},
            "sinusoid_frequencies",
        ),
        Mistake(
            "sines and then cosines",
            {"column": lambda c, d: (c % ((d + 1) // 2), c < (d + 1) // 2)},
        ),
        Mistake(
            "sine and cosine are exchanged", {"column": lambda c, d_model: (c // 2, c % 2 == 1)}
        ),
        Mistake("the frequencies fall half as fast", {"base": 100.0}),
        Mistake("positions begin at one", {"first": 1}),
        Mistake("the offset is ignored", {"begin": lambda offset: 0}, "positions_restart"),
        Mistake("positions along the batch", {"is_along_batch": True}, "positions_along_the_batch"),
        Mistake("the vectors are multiplied by sqrt(d_model) again", {"scale": 6**0.5}),
    ],
)


@UNIT.law("sinusoidal_table", "position column")
def columns_are_pairs_of_a_sine_and_a_cosine_of_one_angle(my: Any) -> Any:
    """Forty positions."""
    return my.sinusoidal_table(40, 6)


@UNIT.law("sinusoidal_table", "position column")
def an_odd_size_ends_with_a_sine(my: Any) -> Any:
    """Seven columns."""
    return my.sinusoidal_table(5, 7)


@UNIT.law("SinusoidalPositionalEncoding", expected=list)
def nothing_of_it_is_trained_or_saved(my: Any) -> Any:
    """Names in the state and of parameters."""
    module = my.SinusoidalPositionalEncoding(6, max_length=9)
    return [*module.state_dict(), *dict(module.named_parameters())]


@UNIT.law("SinusoidalPositionalEncoding", "sequence position feature")
def each_position_gets_its_encoding(my: Any) -> Any:
    """The same in each sequence."""
    return my.SinusoidalPositionalEncoding(6, max_length=9)(X)


@UNIT.law("SinusoidalPositionalEncoding", "sequence position feature")
def steps_with_an_offset_give_what_a_full_pass_gives(my: Any) -> Any:
    """One position at a time."""
    module = my.SinusoidalPositionalEncoding(6, max_length=9)
    return torch.cat([module(X[:, i : i + 1], offset=i) for i in range(4)], dim=1)
