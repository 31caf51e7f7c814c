"""Each step of the ladder runs as a script, and its statements hold."""

import io
import json
import math
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

import step1_one_query
import step2_many_queries
import step3_projections
import step4_scale
import step5_masks
import step6_heads
import step7_positions
import step8_byte_pair_encoding

STEPS = [
    step1_one_query,
    step2_many_queries,
    step3_projections,
    step4_scale,
    step5_masks,
    step6_heads,
    step7_positions,
    step8_byte_pair_encoding,
]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Run all steps, and return the text that each prints."""
    folder = tmp_path_factory.mktemp("ladder")
    texts = {}
    for number, step in enumerate(STEPS, start=1):
        with redirect_stdout(io.StringIO()) as out:
            step.main(folder)
        assert imread(folder / f"step{number}.png").ndim == 3
        texts[number] = out.getvalue()
    return texts


def test_a_step_runs_as_a_script(tmp_path: Path, printed: dict[int, str]) -> None:
    result = subprocess.run(
        [sys.executable, str(Path(str(step2_many_queries.__file__)))],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert imread(tmp_path / "runs/ladder/step2.png").ndim == 3
    lines = result.stdout.split("\n")
    assert lines[-2] == "Figure: runs/ladder/step2.png"
    assert lines[:-2] == printed[2].split("\n")[:-2]


def numbers_after(text: str, label: str) -> list[float]:
    """Return the numbers that follow ``label`` in the first line that contains it."""
    line = next(line for line in text.split("\n") if label in line)
    return [float(x) for x in re.findall(r"-?\d+\.\d+(?:e[-+]\d+)?", line.partition(label)[2])]


def test_every_file_of_the_ladder_is_a_step_with_its_command() -> None:
    folder = Path(step1_one_query.__file__).parent
    files = sorted(path.name for path in folder.glob("step*.py"))
    assert files == [Path(str(step.__file__)).name for step in STEPS]
    for number, (step, file) in enumerate(zip(STEPS, files, strict=True), start=1):
        text = step.__doc__ or ""
        assert text.startswith(f"Step {number}: ")
        assert f"python examples/ladder/{file}" in text


def test_loop_products_and_library_compute_the_same_output(
    printed: dict[int, str],
) -> None:
    implementations = "loop", "two products", "library"
    outputs = [numbers_after(printed[1], f"Output of the {name}:") for name in implementations]
    assert outputs[0] == outputs[1] == outputs[2]
    assert "The weights sum to 1.000." in printed[1]


def test_padding_has_weight_unless_it_is_masked(printed: dict[int, str]) -> None:
    assert min(numbers_after(printed[2], "of the padding, without a mask:")) > 0.0
    assert numbers_after(printed[2], "of the padding, with the mask: ") == [0.0, 0.0, 0.0]
    unmasked, masked = numbers_after(printed[2], "difference from the unpadded sequence, ")
    assert unmasked > 0.01
    assert masked < 1e-5


def test_a_layer_computes_step_1_for_each_query() -> None:
    queries, keys = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    output = step2_many_queries.DotProductAttention()(queries, keys, keys)
    for index in range(2):
        for position in range(3):
            weights = (keys[index] @ queries[index, position]).softmax(0)
            torch.testing.assert_close(output[index, position], weights @ keys[index])


def test_only_learned_projections_find_the_friend(printed: dict[int, str]) -> None:
    (unprojected,) = numbers_after(printed[3], "no projections:")
    (trained,) = numbers_after(printed[3], "  trained projections:")
    (cross,) = numbers_after(printed[3], "  accuracy:")
    assert unprojected == pytest.approx(1 / step3_projections.COLOURS, abs=0.05)
    assert min(trained, cross) > 0.97


def test_the_target_of_step_3_is_the_colour_of_the_named_friend() -> None:
    items, colours = step3_projections.ITEMS, step3_projections.COLOURS
    x, target = step3_projections.make_batch(20)
    for index in range(20):
        colour_of = {}
        for item in x[index]:
            colour_of[int(item[:items].argmax())] = int(item[-colours:].argmax())
        friends = x[index, :, items : 2 * items].argmax(-1).tolist()
        assert [colour_of[friend] for friend in friends] == target[index].tolist()


def test_scaled_scores_have_unit_variance_and_a_gradient_for_any_size() -> None:
    torch.manual_seed(0)
    for size in step4_scale.SIZES:
        scores = torch.randn(1000, size) @ torch.randn(size, 32)
        unscaled = step4_scale.measure(scores)
        scaled = step4_scale.measure(scores / math.sqrt(size))
        assert unscaled.deviation == pytest.approx(math.sqrt(size), rel=0.3)
        assert scaled.deviation == pytest.approx(1.0, rel=0.3)
        assert scaled.entropy > 2.5
    assert unscaled.entropy < 0.3
    assert unscaled.gradient < scaled.gradient / 10


def test_the_measured_gradient_is_that_of_the_softmax() -> None:
    scores = torch.randn(1, 5)
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores[0])
    assert step4_scale.measure(scores).gradient == pytest.approx(float(jacobian.norm()))


def test_a_leak_predicts_random_numbers_and_a_causal_mask_prevents_it(
    printed: dict[int, str],
) -> None:
    minimum = math.log(step5_masks.VOCABULARY_SIZE)
    training, decoding, change = numbers_after(printed[5], "  without a mask")
    assert training < minimum / 2 < minimum < decoding
    assert change > 1e-3
    training, decoding, change = numbers_after(printed[5], "  with the causal mask")
    assert training > minimum - 0.1
    assert decoding == pytest.approx(minimum, abs=0.2)
    assert change == 0.0


def test_two_heads_learn_what_one_cannot(printed: dict[int, str]) -> None:
    rows = re.findall(r"^ +(\d) +(\d+) +(\d+) +(\d\.\d+)$", printed[6], re.M)
    accuracies = {int(heads): float(accuracy) for heads, _, _, accuracy in rows}
    assert len({size for _, _, size, _ in rows}) == 1
    assert accuracies[1] == pytest.approx(0.625, abs=0.05)
    assert min(accuracies[2], accuracies[4]) > 0.95


def test_the_targets_of_step_6_are_the_colours_of_the_named_friends() -> None:
    items, colours = step6_heads.ITEMS, step6_heads.COLOURS
    x, target = step6_heads.make_batch(20)
    names = x[..., :items].argmax(-1)
    own = x[..., 3 * items : 3 * items + colours].argmax(-1)
    friends = x[..., items : 3 * items].unflatten(-1, (2, items)).argmax(-1)
    for index in range(20):
        colour_of = dict(zip(names[index].tolist(), own[index].tolist(), strict=True))
        expected = [[colour_of[friend] for friend in pair] for pair in friends[index].tolist()]
        assert target[index].tolist() == expected


def test_only_positions_allow_to_learn_the_order(printed: dict[int, str]) -> None:
    change, accuracy = numbers_after(printed[7], "  without positions")
    assert change < 1e-5
    assert 0.4 < accuracy < 0.6
    change, accuracy = numbers_after(printed[7], "  with positions")
    assert change > 1e-3
    assert accuracy > 0.95


def test_the_target_of_step_7_is_whether_the_cat_comes_first() -> None:
    tokens, target = step7_positions.make_batch(50)
    for sequence, cat_first in zip(tokens.tolist(), target.tolist(), strict=True):
        cat, dog = (sequence.index(token) for token in (step7_positions.CAT, step7_positions.DOG))
        assert (cat < dog) == bool(cat_first)


WORDS = st.lists(st.text("abc", min_size=1, max_size=8), min_size=1, max_size=12).map(" ".join)
"""Few letters, so that many pairs are equally frequent and many overlap, as in aaa."""


@given(text=WORDS, new_text=WORDS, merges=st.integers(0, 20))
def test_merges_and_ids_are_those_of_the_library(text: str, new_text: str, merges: int) -> None:
    size = len(set(text)) + merges
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    pattern = tokenizers.Regex(r" ?[^ \n]+|[ \n]")
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.Split(pattern, "isolated")
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, min_frequency=0, show_progress=False)
    theirs.train_from_iterator([text], trainer)
    learnt = json.loads(theirs.to_str())["model"]
    vocabulary, found = step8_byte_pair_encoding.train(text, size)
    assert vocabulary == learnt["vocab"]
    assert found == [tuple(pair) for pair in learnt["merges"]]
    known = "".join(character for character in new_text if character in text)
    expected = theirs.encode(known).ids
    assert step8_byte_pair_encoding.encode(known, vocabulary, found) == expected


@given(text=st.text(), merges=st.integers(0, 20))
def test_decoding_restores_the_text(text: str, merges: int) -> None:
    vocabulary, learnt = step8_byte_pair_encoding.train(text, len(set(text)) + merges)
    ids = step8_byte_pair_encoding.encode(text, vocabulary, learnt)
    assert step8_byte_pair_encoding.decode(ids, vocabulary) == text


def test_of_equally_frequent_pairs_the_one_with_the_smaller_ids_is_merged() -> None:
    vocabulary, merges = step8_byte_pair_encoding.train("cb ba ac", 6)  # every pair occurs once
    assert vocabulary == {" ": 0, "a": 1, "b": 2, "c": 3, " a": 4, " b": 5}
    assert merges == [(" ", "a"), (" ", "b")]


def test_merges_shorten_a_text_of_new_words_that_is_restored(printed: dict[int, str]) -> None:
    lengths = [int(length) for length in re.findall(r"merges, (\d+) tokens:", printed[8])]
    text = step8_byte_pair_encoding.NEW_TEXT
    assert len(text) == lengths[0] > lengths[1] > lengths[2]
    assert f"decoded:  {text}\n" in printed[8]
