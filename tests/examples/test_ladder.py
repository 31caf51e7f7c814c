"""The steps of the ladder: each runs as a script, and what it says is so."""

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
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Run all steps; what each printed."""
    folder = tmp_path_factory.mktemp("ladder")
    printed = {}
    for number, step in enumerate(STEPS, start=1):
        with redirect_stdout(io.StringIO()) as out:
            step.main(folder)
        assert imread(folder / f"step{number}.png").ndim == 3
        printed[number] = out.getvalue()
    return printed


def test_a_step_runs_as_a_person_runs_it(tmp_path: Path, said: dict[int, str]) -> None:
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
    assert lines[-2] == "Picture: runs/ladder/step2.png"
    assert lines[:-2] == said[2].split("\n")[:-2]


def numbers_after(text: str, label: str) -> list[float]:
    """Find the numbers of the first line that has ``label``, behind it."""
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


def test_one_query_answers_alike_in_a_loop_as_products_and_in_the_library(
    said: dict[int, str],
) -> None:
    answers = [numbers_after(said[1], f"Answer of the {who}:") for who in ("loop", "two products")]
    answers.append(numbers_after(said[1], "Answer of the library:"))
    assert answers[0] == answers[1] == answers[2]
    assert "The weights sum to 1.000." in said[1]


def test_padding_takes_weight_unless_it_is_hidden(said: dict[int, str]) -> None:
    assert min(numbers_after(said[2], "to the padding, without a mask:")) > 0.0
    assert numbers_after(said[2], "to the padding, with the mask: ") == [0.0, 0.0, 0.0]
    without, masked = numbers_after(said[2], "difference from the sentence alone, ")
    assert without > 0.01
    assert masked < 1e-5


def test_the_bare_layer_is_one_query_many_times() -> None:
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    together = step2_many_queries.Lookup()(x, memory, memory)
    for sentence in range(2):
        for query in range(3):
            weights = (memory[sentence] @ x[sentence, query]).softmax(0)
            torch.testing.assert_close(together[sentence, query], weights @ memory[sentence])


def test_only_learned_projections_find_the_friend(said: dict[int, str]) -> None:
    (raw,) = numbers_after(said[3], "raw vectors, no maps:")
    (trained,) = numbers_after(said[3], "four maps, trained:")
    (asked,) = numbers_after(said[3], "which colour has A, B, C ...?':")
    assert raw == pytest.approx(1 / step3_projections.COLOURS, abs=0.05)
    assert min(trained, asked) > 0.97


def test_a_friend_is_the_one_that_is_named_and_its_colour_the_right_answer() -> None:
    items, colours = step3_projections.ITEMS, step3_projections.COLOURS
    x, right = step3_projections.sentences(20)
    for sentence in range(20):
        colour_of = {}
        for item in x[sentence]:
            colour_of[int(item[:items].argmax())] = int(item[-colours:].argmax())
        friends = x[sentence, :, items : 2 * items].argmax(-1).tolist()
        assert [colour_of[friend] for friend in friends] == right[sentence].tolist()


def test_the_scale_keeps_the_spread_at_one_and_the_gradient_alive() -> None:
    torch.manual_seed(0)
    for width in step4_scale.WIDTHS:
        scores = torch.randn(1000, width) @ torch.randn(width, 32)
        plain = step4_scale.measure(scores)
        scaled = step4_scale.measure(scores / math.sqrt(width))
        assert plain.spread == pytest.approx(math.sqrt(width), rel=0.3)
        assert scaled.spread == pytest.approx(1.0, rel=0.3)
        assert scaled.entropy > 2.5
    assert plain.entropy < 0.3
    assert plain.gradient < scaled.gradient / 10


def test_the_gradient_measured_is_that_of_the_softmax() -> None:
    scores = torch.randn(1, 5)
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores[0])
    assert step4_scale.measure(scores).gradient == pytest.approx(float(jacobian.norm()))


def test_a_leak_beats_the_dice_and_a_mask_mends_it(said: dict[int, str]) -> None:
    honest = math.log(step5_masks.SIDES)
    training, writing, change = numbers_after(said[5], "  without a mask")
    assert training < honest / 2 < honest < writing
    assert change > 1e-3
    training, writing, change = numbers_after(said[5], "  with the causal mask")
    assert training > honest - 0.1
    assert writing == pytest.approx(honest, abs=0.2)
    assert change == 0.0


def test_two_heads_tell_what_one_cannot(said: dict[int, str]) -> None:
    rows = re.findall(r"^ +(\d) +(\d+) +(\d+) +(\d\.\d+)$", said[6], re.M)
    right = {int(heads): float(share) for heads, _, _, share in rows}
    assert len({size for _, _, size, _ in rows}) == 1
    assert right[1] == pytest.approx(0.625, abs=0.05)
    assert min(right[2], right[4]) > 0.95


def test_the_friends_of_step_6_have_the_colours_asked_for() -> None:
    items, colours = step6_heads.ITEMS, step6_heads.COLOURS
    x, right = step6_heads.sentences(20)
    names = x[..., :items].argmax(-1)
    own = x[..., 3 * items : 3 * items + colours].argmax(-1)
    friends = x[..., items : 3 * items].unflatten(-1, (2, items)).argmax(-1)
    for sentence in range(20):
        colour_of = dict(zip(names[sentence].tolist(), own[sentence].tolist(), strict=True))
        told = [[colour_of[f] for f in pair] for pair in friends[sentence].tolist()]
        assert told == right[sentence].tolist()


def test_only_positions_tell_who_stands_first(said: dict[int, str]) -> None:
    change, right = numbers_after(said[7], "  without positions")
    assert change < 1e-5
    assert 0.4 < right < 0.6
    change, right = numbers_after(said[7], "  with positions")
    assert change > 1e-3
    assert right > 0.95


def test_the_cat_of_step_7_is_first_where_it_is_said_to_be() -> None:
    tokens, cat_first = step7_positions.sentences(50)
    for sentence, answer in zip(tokens.tolist(), cat_first.tolist(), strict=True):
        cat, dog = (sentence.index(word) for word in (step7_positions.CAT, step7_positions.DOG))
        assert (cat < dog) == bool(answer)


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


def test_merges_shorten_a_text_of_new_words_that_is_restored(said: dict[int, str]) -> None:
    lengths = [int(length) for length in re.findall(r"merges, (\d+) tokens:", said[8])]
    text = step8_byte_pair_encoding.NEW_TEXT
    assert len(text) == lengths[0] > lengths[1] > lengths[2]
    assert f"decoded:  {text}\n" in said[8]
