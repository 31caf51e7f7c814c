"""The language model: its baseline, its two styles, its decoding, and the program."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from tests.examples.translation.test_translate import one_error_line
from tests.explorer.live import LivePage
from tests.explorer.page import data_of
from tests.explorer.page_script import Script

import generate_text
from common.errors import UserError
from common.options import SamplingOptions
from common.run import Run
from common.searches import Search, sampling
from common.tokenizer import Tokenizer
from text import writing
from text.learning import TextConfig
from text.models import TextModel, TextSteps, build_text_model
from text.ngrams import NgramModel
from text.source import FEWEST, load_text
from text.stories import toy_text
from text.writing import generate
from transformer_blocks import greedy_search
from transformer_blocks.generation import left_pad

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 2, "d_ff": 48, "dropout": 0.0}
STYLES = ("2017", "today")
TINY = [
    *("--num-layers", "1", "--d-model", "16", "--num-heads", "2", "--d-ff", "24"),
    *("--steps", "8", "--batch-size", "4", "--context", "16", "--vocabulary", "40"),
]
LINES = [f"the {a} saw the {b}." for a in ("cat", "dog", "cow") for b in "abcdefghij"]


def build(style: str, context: int = 12) -> TextModel:
    return build_text_model(30, style=style, **SIZES, context=context).eval()


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A text of thirty lines, in a folder with a comma and a space in its name."""
    path = tmp_path / "my, texts" / "text"
    path.parent.mkdir()
    path.write_text("\n".join(LINES), encoding="utf-8")
    return str(path)


# ------------------------------------------------------------------ n-grams


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_the_probabilities_of_all_tokens_sum_to_one_after_any_history(order: int) -> None:
    rng = Random(order)
    text = [rng.choice((1, 2, 2, 3, 3, 3, 5)) for _ in range(200)]
    model = NgramModel(text, order=order, vocabulary=7)
    seen, unseen = text[3:9], [6, 0, 6, 4]
    for history in ([], [2], seen, unseen, [*unseen, 2, 3], [*seen, 4]):
        chances = [model.probability(history, token) for token in range(7)]
        assert sum(chances) == pytest.approx(1.0, abs=1e-12)
        assert min(chances) > 0.0
    for token in range(7):  # the longer history was never seen
        assert model.probability([6, 2], token) == model.probability([2], token)


def test_bigrams_are_the_formula_worked_out_by_hand() -> None:
    text = [0, 1, 0, 2, 0, 1, 1, 3]  # pairs: 01 twice; 10, 02, 20, 11 and 13 once
    model = NgramModel(text, order=2, vocabulary=4)
    above = 5 / (5 + 2 * 1)  # five pairs seen once, one twice
    # The words before: 0 stands after {1, 2}, 1 after {0, 1}, 2 after {0}, 3 after {1}; six pairs.
    below = 2 / (2 + 2 * 2)
    single = [(kinds - below) / 6 + below * 4 / 6 / 4 for kinds in (2, 2, 1, 1)]
    after_0 = {1: 2, 2: 1}  # three times in all, two different
    for token in range(4):
        own = max(after_0.get(token, 0) - above, 0.0) / 3
        wanted = own + above * 2 / 3 * single[token]
        assert model.probability([0], token) == pytest.approx(wanted)


# ------------------------------------------------------------------ text


def test_no_line_of_the_toy_text_is_there_twice() -> None:
    assert len(set(toy_text())) == len(toy_text())


# ------------------------------------------------------------------ models


def test_both_styles_have_about_as_many_weights() -> None:
    sizes = [sum(weight.numel() for weight in build(style).parameters()) for style in STYLES]
    assert max(sizes) < 1.1 * min(sizes)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("given", [0, 5, 30])
def test_steps_score_as_reading_the_same_window_at_once(style: str, given: int) -> None:
    model = build(style)
    tokens = torch.randint(4, 30, (3, given + 30))
    steps = TextSteps(model, tokens[:, :given])
    start = 0  # of the window that the cache holds
    with torch.no_grad():
        for place in range(given, given + 30):
            if place + 1 - start > model.context:
                start = place + 1 - model.context // 2
            scores = steps.step(tokens[:, place])
            whole = model(tokens[:, start : place + 1])[:, -1]
            torch.testing.assert_close(scores, whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("context", [1, 3, 12])
@torch.no_grad()
def test_prompts_of_unequal_length_continue_as_if_alone(style: str, context: int) -> None:
    model = build(style, context).double()
    prompts = [torch.randint(4, 30, (length,)).tolist() for length in (5, 0, 11, 12, 30, 1, 12)]
    tokens, lengths = left_pad(prompts)
    together = TextSteps(model, tokens, lengths=lengths)
    alone = [TextSteps(model, torch.tensor([ids], dtype=torch.int64)) for ids in prompts]
    rows = list(range(len(prompts)))
    for place in range(30):
        if place in (4, 17):
            chosen = [4, 0, 0, 6, 1, 3] if place == 4 else [2, 0, 5]
            together.reorder(torch.tensor(chosen))
            rows = [rows[row] for row in chosen]
        new = {row: torch.tensor([4 + (place + row) % 26]) for row in rows}
        logits = together.step(torch.cat([new[row] for row in rows]))
        own = {row: alone[row].step(token)[0] for row, token in new.items()}
        for row, found in zip(rows, logits, strict=True):
            torch.testing.assert_close(found, own[row], rtol=0, atol=1e-11)


# ------------------------------------------------------------------ writing


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    text = folder.parent / "text"
    text.write_text("\n".join(LINES), encoding="utf-8")
    assert generate_text.main(["train", "--run", str(folder), "--text", str(text), *TINY]) == 0
    return folder


def load(folder: Path) -> tuple[TextModel, Tokenizer]:
    _, model, (tokenizer,) = Run(folder, TextConfig).load(torch.device("cpu"))
    return model, tokenizer


def sample(**options: Any) -> Search:
    return sampling(SamplingOptions(**options))


MANY = ["the dog saw the a.\nthe cat", "", "the cow", "the dog saw the b.", "the cow"]


@pytest.mark.parametrize(
    ("search", "batch_tokens"),
    [(greedy_search, 10000), (sample(temperature=2.0, top_k=5, seed=3), 130)],
)
def test_many_prompts_are_continued_as_each_alone(
    trained: Path, monkeypatch: pytest.MonkeyPatch, search: Search, batch_tokens: int
) -> None:
    monkeypatch.setattr(writing, "BATCH_TOKENS", batch_tokens)
    model, tokenizer = load(trained)
    together = generate(model, tokenizer, MANY, search, length=20)
    for prompt, text in zip(MANY, together, strict=True):
        assert text.startswith(prompt)
        assert generate(model, tokenizer, [prompt], search, length=20) == [text]
    assert generate(model, tokenizer, [], search, length=20) == []


@pytest.mark.parametrize("seeds", [[None, None], [1, 2]])
def test_without_a_seed_or_with_another_a_prompt_is_continued_differently(
    trained: Path, seeds: list[int | None]
) -> None:
    model, tokenizer = load(trained)
    one, other = (
        generate(model, tokenizer, ["the cat"] * 2, sample(temperature=3.0, seed=seed), length=40)
        for seed in seeds
    )
    assert not {*one} & {*other}
    assert (len({*one}) == 1) == (seeds[0] is not None)


# ------------------------------------------------------------------ the program


def test_prompts_are_continued_in_their_order(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        command = ["generate", "--run", str(trained), "--length", "20", *arguments]
        assert generate_text.main(command) == 0
        return capsys.readouterr().out

    prompts = ["the cat", "the dog saw the a.\nthe cow", ""]
    for options in (["--greedy"], ["--seed", "4"]):
        alone = [run(prompt, *options) for prompt in prompts]
        assert alone[2] == run(*options)
        assert run(*prompts, *options) == "\n".join(alone)


def test_a_text_that_is_too_short_is_refused_and_one_that_is_not_is_counted(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tmp_path / "short"
    short.write_text("one line\n\n" * (FEWEST - 1), encoding="utf-8")
    assert generate_text.main(["train", "--run", str(tmp_path / "a"), "--text", str(short)]) == 2
    error = one_error_line(capsys)
    assert f"at least {FEWEST} lines that are not blank, got {FEWEST - 1} in {short}" in error
    assert not (tmp_path / "a").exists()
    short.write_bytes(b"fine\n\x8c\xa2\n")
    with pytest.raises(UserError, match="short:2 is not UTF-8"):
        load_text(short)
    run = str(tmp_path / "run")
    assert generate_text.main(["train", "--run", run, "--text", file, *TINY]) == 0
    first_line = capsys.readouterr().out.split("\n")[0]
    assert first_line.startswith("28 training lines of ")
    assert " tokens, 1 validation line, 1 test line (cut " in first_line


def test_a_prompt_that_is_no_text_is_refused(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate_text.main(["generate", "--run", str(trained), "good", "a\udc8cb"]) == 2
    assert "the prompt is not UTF-8" in one_error_line(capsys)


# ------------------------------------------------------------------ the page


@pytest.mark.parametrize("style", STYLES)
def test_the_page_continues_texts_beyond_the_context_as_the_model_does(style: str) -> None:
    model = build(style)
    page = LivePage(model)
    for length in (1, 5, 12, 30):
        prompt = [3 + i * i % 25 for i in range(length)]
        (expected,) = model.generate([prompt], greedy_search, end_id=None, max_length=30)
        options = "{endId: null, maxLength: 30}"
        search = f"generate(steps, {prompt[-1]}, mostProbable, {options})"
        found = page(
            f"(steps => finish({search}))(finish(languageModel(model, {prompt}, newRun())))"
        )
        assert found[0]["tokens"] == expected.tokens


@pytest.mark.parametrize("style", STYLES)
def test_explore_shows_a_text_and_its_page_continues_others(
    style: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, output = tmp_path / "run", tmp_path / "page.html"
    keep = ["--run", str(run)]
    assert generate_text.main(["train", "--text", file, *keep, "--style", style, *TINY]) == 0
    capsys.readouterr()
    assert generate_text.main(["explore", "the cat", *keep, "--output", str(output)]) == 0
    title = capsys.readouterr().out.splitlines()[0]
    assert title.startswith("the cat")
    html = output.read_text("utf-8")
    content = data_of(html)
    (maps,) = content["maps"]
    assert maps["isDecoding"]
    assert maps["arithmetic"]["difference"] <= 1 / content["levels"]
    assert len(content["decoding"]["tokens"]) == len(maps["queries"]) <= 16  # the context
    page = Script(html)
    page("$('live-method').value = 'greedy', $('live-text').value = 'the dog', runText(), 0")
    for _ in range(20):
        page("pass(20), 0")  # the page pauses where other scripts have taken time
    assert page("live.results.texts[0]").startswith("the dog")
    assert len(page("attentions[0].queries")) <= 16
