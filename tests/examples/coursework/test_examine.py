"""Code of other styles is examined: right code passes, wrong code is refused, with its mistake."""

import re
from pathlib import Path

import pytest

import course
from coursework.examine import examine

FILE = Path(__file__).with_name("examined_code.py")
RIGHT = {
    "AttentionReturningAPair": "masks of shape (B, L, S): True attends to a key",
    "AttentionToMemory": "masks of shape (B, H, L, S): True hides a key",
    "OneHeadAttention": "masks of shape (B, L, S): True hides a key",
    "AttnOfOneLayer": "",
    "AttentionWithoutHeads": "masks of shape (B, L, S): added to the scores",
    "PositionsOfSinusoids": "",
    "AttentionWithTemperature": "True attends to a key",
    "mask_of_a_lower_triangle": "True attends to a key",
    "padding_mask_of": "True attends to a key",
    "AttnOfAConfig": "a causal mask of its own; projections in the order k, q, v; "
    "masks of shape (B, S): 1 attends, 0 hides",
    "AttentionSequenceFirst": "vectors of shape (L, B, E); "
    "masks of shape (L, S): True hides a key; masks of shape (B, S): True hides a key",
    "HeadOfLengths": "masks of shape (B, S): lengths",
    "PositionsAlone": "returned without the vectors",
    "positions_of": "",
}
"""Right code, and what is said of its masks."""
WRONG = {
    "AttentionScaledByModel": ("the scores are scaled by d_model", "self.hidden_dim**0.5"),
    "AttentionCutWithoutTranspose": (
        "heads are cut without a transpose",
        "reshape(batch, self.n_head",
    ),
    "AttentionWithEqualRows": (
        "a fully masked row has equal weights",
        "masked_fill(mask == 0, -1e9)",
    ),
    "AttentionNotScaled": ("the scores are not scaled", ""),
    "PositionsAlongTheBatch": ("positions along the batch", "x.size(0)"),
    "AttnToTheNext": ("a position attends to the next one", ""),
    "HeadNearZero": ("masked scores are near zero", "masked_fill(~is_real, 1e-6)"),
    "mask_that_hides_itself": ("a position cannot attend to itself", "triu("),
}
"""Wrong code, the mistake, and a part of its line."""


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_of_another_style_passes_with_its_convention(name: str) -> None:
    first, *others = examine(FILE, name)
    assert others == []
    held = re.search(r": (\d+) of \1 laws hold", first)
    assert held
    assert held[1] != "0"
    assert first.endswith(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_wrong_code_is_refused_with_its_mistake_and_its_line(name: str) -> None:
    lines = examine(FILE, name)
    mistake, part = WRONG[name]
    assert any(line.startswith("violated: ") for line in lines)
    (told,) = (line for line in lines if line.startswith("a known mistake"))
    assert mistake in told
    assert part in told


def test_a_convention_is_chosen_by_as_many_laws_as_possible() -> None:
    first, *_ = examine(FILE, "AttentionScaledByModel")
    assert first.endswith("masks of shape (B, H, L, S): True hides a key")


def test_a_layer_is_examined_by_all_checks() -> None:
    lines = examine(FILE, "SequenceFirst")
    assert any("batch" in line and "VIOLATED" in line for line in lines)
    assert any("A batch that is taken as the sequence" in line for line in lines)
    assert not any("violated" in line.lower() for line in examine(FILE, "GatedLayer"))


def test_the_program_says_that_it_executes_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert course.main(["examine", f"{FILE}:mask_of_a_lower_triangle"]) == 0
    assert course.main(["examine", f"{FILE}:mask_that_hides_itself"]) == 1
    assert course.main(["examine", f"{FILE}:nothing"]) == 1
    printed = capsys.readouterr().out
    assert "is executed, in a process of its own" in printed.splitlines()[0]
    assert "examined_code.py raises AttributeError: module" in printed
    assert course.main(["examine", str(FILE)]) == 2
    assert course.main(["examine", f"{FILE}:"]) == 2
    assert "must be FILE:CLASS" in capsys.readouterr().err
