"""The program for published models: what it prints for each kind, and what it refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pretrained.published import TEXTS

import pretrained
from common.options import SamplingOptions
from common.searches import sampling
from transformer_blocks import beam_search, greedy_search
from transformer_blocks.pretrained import from_pretrained

Publish = Callable[[str], Path]
SETTINGS = SamplingOptions(temperature=2.0, top_p=0.9, seed=3)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """Run the program, and return the lines that it prints."""
    assert pretrained.main([*map(str, arguments)]) == 0
    return capsys.readouterr().out.split("\n")[:-1]


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("marian", []),
        ("t5", ["--beam", "3"]),
        ("gpt2", []),
        ("llama", ["--sample", "--seed", "4", "--top-k", "50"]),
    ],
)
def test_each_text_has_the_line_that_it_has_alone(
    family: str,
    options: list[str],
    published: Publish,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, lines = published(family), tmp_path / "lines.txt"
    texts = [text for text in TEXTS if len(text) < 12 and "\n" not in text]
    arguments = ["--length", 6, *options]
    alone = [run(capsys, folder, text, *arguments)[0] for text in texts]
    lines.write_text("\n".join(texts[2:]) + "\n", encoding="utf-8")
    for batch_tokens in (1, 10000):
        monkeypatch.setattr(pretrained, "BATCH_TOKENS", batch_tokens)
        assert run(capsys, folder, *texts[:2], "--file", lines, *arguments) == alone
    assert alone[texts.index("")] == ""
    if family in ("gpt2", "llama"):
        assert alone[0].startswith(texts[0])


SEARCHES: list[tuple[str, list[str], Any]] = [
    ("gpt2", [], lambda *given, **options: greedy_search(*given, **options)[0]),
    (
        *("gpt2", ["--beam", "3"]),
        lambda *given, **options: beam_search(*given, beam_size=3, length_penalty=0.6, **options)[
            0
        ][0],
    ),
    (
        *("marian", ["--sample", "--seed", "3", "--top-p", "0.9", "--temperature", "2"]),
        lambda *given, **options: sampling(SETTINGS)(*given, **options)[0],
    ),
]


@pytest.mark.parametrize(
    ("family", "options", "search"), SEARCHES, ids=["greedy", "beam", "sample"]
)
def test_the_options_reach_the_search(
    family: str,
    options: list[str],
    search: Any,
    published: Publish,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = published(family)
    model: Any
    model, tokenizer = from_pretrained(folder)
    ids = tokenizer.encode("the cat")
    found = model.generate([ids], search, end_id=tokenizer.end_ids, max_length=[9])
    expected = tokenizer.decode(found.tokens, ids if family == "gpt2" else [])
    expected = "the cat" * (family == "gpt2") + expected.replace("\r", " ").replace("\n", " ")
    assert run(capsys, folder, "the cat", "--length", 9, *options) == [expected]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_most_similar_texts_are_printed_first(
    family: str, published: Publish, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("東京\nthe cat\n\ndog on the mat\n犬は\nthe cat\n", encoding="utf-8")
    found = run(capsys, published(family), "the cat", "--file", lines, "--best", "3")
    rows = [line.split("\t") for line in found]
    assert rows[:2] == [["1.0000", "the cat"]] * 2
    assert len(rows) == 3
    model, tokenizer = from_pretrained(published(family))
    with torch.no_grad():
        a, b = (model(torch.tensor([tokenizer.encode(t)])).mean(1) for t in ("the cat", rows[2][1]))
    similarity = float(torch.nn.functional.cosine_similarity(a, b))
    assert float(rows[2][0]) == pytest.approx(similarity, abs=1e-4)


WRONG: list[tuple[str, list[str], str]] = [
    ("bert", ["a"], "the first text and one of the others must hold text"),
    ("bert", [" ", "a"], "the first text and one of the others must hold text"),
    ("gpt2", ["a", "--file", "none.txt"], "none.txt: No such file"),
    ("gpt2", [], "give texts or --file"),
    ("gpt2", ["a", "--beam", "5000"], "beam_size"),
    ("gpt2", ["a", "--length", "0"], '"0" for --length. Must be >= 1'),
    ("gpt2", ["a", "--length", "5000"], "a text and --length must not exceed 1024 tokens"),
    ("gpt2", ["a", "--top-k", "3"], "--top-k requires --sample"),
    ("gpt2", ["a", "--sample", "--beam", "2"], "--beam cannot be combined with --sample"),
]


@pytest.mark.parametrize(("family", "arguments", "message"), WRONG)
def test_an_impossible_option_is_reported_in_one_line(
    family: str,
    arguments: list[str],
    message: str,
    published: Publish,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert pretrained.main([str(published(family)), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_a_model_that_cannot_be_loaded_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrained.main([str(tmp_path), "a"]) == 2
    assert "config.json: No such file" in capsys.readouterr().err
