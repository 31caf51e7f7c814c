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
    "AttnPackedByHead": "queries, keys and values of each head together; "
    "masks of shape (B, H, L, S): True attends to a key",
    "AttnCausalUnlessMasked": "a causal mask of its own, unless one is passed; "
    "masks of shape (B, H, L, S): True attends to a key",
    "AttnCausalOfOneLength": "a causal mask of its own; "
    "masks of shape (B, H, L, S): True attends to a key",
    "AttnInterleaved": "features of the heads interleaved; "
    "masks of shape (B, H, L, S): True attends to a key",
    "PositionsAlongTheBatch": "vectors of shape (L, B, E)",
    "PositionsSinesFirst": "all sines before all cosines",
    "PositionsOfTokens": "made of tokens, without their vectors",
    "attn_pad_mask": "True hides a key",
    "PositionsAlone": "returned without the vectors",
    "positions_of": "",
}
"""Right code, and what is said of its conventions."""
CALLERS = {
    "PositionsAlone": "x + positions(x)",
    "PositionsAlongTheBatch": "museum positions_along_the_batch",
    "AttentionWithoutHeads": "museum boolean_mask_added",
    "AttnCausalUnlessMasked": "must hide the future, too",
}
"""Code that is right if its caller does what is told."""
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
    "AttnToTheNext": ("a position attends to the next one", ""),
    "HeadNearZero": ("masked scores are near zero", "masked_fill(~is_real, 1e-6)"),
    "mask_that_hides_itself": ("a position cannot attend to itself", "triu("),
    "AttnWithOnesAdded": ("a boolean mask is added to the scores", "scores + mask"),
    "pad_mask_over_queries": ("the padding mask is over the queries", ""),
}
"""Wrong code, the mistake, and a part of its line."""
UNNAMED = {
    "AttnOfTwoAxes": "with masks of shape (L, S)",
    "AttnCausalUnlessPadded": "a causal mask with padding is obeyed",
    "AttnAlwaysCausal": "a mask hides keys",
    "AttnPackedInAnotherOrder": "qkv.weight has the order of its name",
    "LayerWithoutResiduals": "residual connections pass the input on",
    "LayerWithNormOfSequences": "a norm is one of a position",
    "ModelFromPositionOne": "a sequence of the largest length is accepted",
}
"""Wrong code that no known mistake explains, and the law."""
OTHERS = "AttnWithRotaryPositions", "PositionsThatAreLearned", "DecoderOfMasksOfItsCaller"
"""Right code of another kind."""


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_of_another_style_passes_with_its_convention(name: str) -> None:
    first, *others = examine(FILE, name)
    assert all(line.startswith("Compare with its caller") for line in others)
    assert CALLERS.get(name, "") in " ".join(others)
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


@pytest.mark.parametrize("name", UNNAMED)
def test_wrong_code_is_refused_without_a_known_mistake(name: str) -> None:
    lines = [line for line in examine(FILE, name) if line.startswith("violated: ")]
    assert len(lines) == 1
    assert UNNAMED[name] in lines[0]


@pytest.mark.parametrize("name", OTHERS)
def test_right_code_of_another_kind_is_not_accused(name: str) -> None:
    lines = examine(FILE, name)
    assert not any("violated" in line.lower() for line in lines)
    assert any(line.startswith("determinism     holds") for line in lines)


def test_a_layer_that_must_be_causal_is_examined_as_such() -> None:
    assert any("--causal" in line for line in examine(FILE, "LayerWithNormOfSequences"))
    lines = examine(FILE, "LayerWithNormOfSequences", causal=True)
    assert any(line.startswith("causality       VIOLATED") for line in lines)


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
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith(f"{FILE} is executed, in a process of its own")
    assert "examined_code.py raises AttributeError: module" in printed
    assert course.main(["examine", str(FILE)]) == 2
    assert course.main(["examine", f"{FILE}:"]) == 2
    assert "must be FILE:CLASS" in capsys.readouterr().err
