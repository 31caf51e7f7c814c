"""The saved page: its content, its fonts, and refused arguments."""

import logging
import math
import re
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.explorer.page import HOSTILE, TARGET, data_of, inflate, make_explorer, weights
from tests.explorer.page_script import Script
from torch import Tensor

from transformer_blocks import causal_mask
from transformer_blocks.explorer import AttentionMaps, DecodingSteps, Explorer
from transformer_blocks.explorer.fonts import embedded_fonts
from transformer_blocks.explorer.tokens import token_labels


def test_the_page_holds_every_weight_with_12_bits() -> None:
    explorer = make_explorer()
    above = replace(explorer.maps[0], weights=torch.full((2, 3, 5, 5), 1.0005))  # by rounding
    explorer = replace(explorer, maps=[*explorer.maps, above])
    content = data_of(explorer.html)
    for maps, saved in zip(explorer.maps, content["maps"], strict=True):
        planes = np.frombuffer(inflate(saved["weights"]), np.uint8)
        low, high = planes.reshape(2, -1).astype(int)
        found = (low + 256 * high).reshape(maps.weights.shape) / content["levels"]
        expected = maps.weights.clamp(max=1).numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=0.5001 / 4095)
        assert saved["keys"] == [label.text for label in token_labels(maps.key_tokens)]
    assert len(repr(explorer)) < 500  # names, and not every weight


def test_the_markers_of_candidates_are_those_of_the_generated_tokens() -> None:
    maps, steps = make_explorer().maps[:1], DecodingSteps(["▁x"], [[("Ġy", 0.5)]])
    content = data_of(Explorer(maps, decoding=steps).html)
    assert content["decoding"]["candidates"] == [[["Ġy", 0.5, 0]]]


def test_heads_are_named_by_their_mask_and_causal_ones_without_it_by_the_causal_mask() -> None:
    future = causal_mask(8)
    far = future | ~torch.ones(8, 8, dtype=torch.bool).triu(-2)

    def names(masked: Tensor, mask: Tensor | None, keys: list[str] | None = None) -> Any:
        equal = torch.zeros(1, 1, 8, 8).masked_fill(masked, -torch.inf).softmax(dim=-1)
        maps = AttentionMaps("a", equal, list("abcdefgh"), keys, mask)
        return Script(Explorer([maps]).html)("patternOf(attentions[0], 0, 0)")

    assert names(future, future) == names(future, None) == names(far, far) == "broad"
    assert names(far, None) is names(future, None, list("abcdefgh")) is None
    after = ~torch.eye(8, dtype=torch.bool).roll(1, dims=1)
    assert names(after, None) == "next token"


def test_tokens_cannot_end_the_data_or_fill_placeholders_of_the_template() -> None:
    html = Explorer(
        [AttentionMaps(HOSTILE[0], weights(1, 1, 4, 4), HOSTILE)], title="{{data}}<b>"
    ).html
    assert data_of(html)["maps"][0]["queries"] == HOSTILE
    assert html.count("<script") == html.count("</script>") == 3
    assert "<title>{{data}}&lt;b&gt;</title>" in html


def test_six_layers_of_eight_heads_over_64_tokens_stay_below_a_megabyte() -> None:
    words = [f"token{number}" for number in range(64)]
    maps = [AttentionMaps(name, weights(6, 8, 64, 64), words) for name in "abc"]
    assert len(Explorer(maps).html.encode()) < 1_000_000


def test_a_page_is_saved_whole_or_not_at_all_and_links_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer, path = make_explorer(), tmp_path / "page.html"
    path.mkdir()
    with pytest.raises(OSError, match=r"page\.html"):
        explorer.save(path)
    path.rmdir()
    explorer.save(path)
    assert path.read_text(encoding="utf-8") == explorer.html
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    monkeypatch.setattr(secrets, "token_hex", lambda count: "guessed")
    other = tmp_path / "other"
    other.write_text("unchanged")
    (tmp_path / ".guessed.part").symlink_to(other)
    with pytest.raises(FileExistsError) as caught:
        explorer.save(path)
    assert caught.value.filename == str(path)
    assert other.read_text() == "unchanged"
    assert (tmp_path / ".guessed.part").is_symlink()  # it is not removed either


@pytest.mark.parametrize(
    ("text", "embedded", "warnings"),
    [
        ("the cat", [], 0),  # Latin characters are left to the browser
        ("▁the 猫", ["▁", "猫"], 0),  # with the word mark of SentencePiece
        ("고양이 猫", ["고", "양", "이", "猫"], 0),
        ("قط", [], 0),  # letters that join, which a subset would separate
        ("\U000e0fff", [], 1),  # which no font has
    ],
)
def test_glyphs_that_are_not_latin_are_embedded_and_missing_ones_are_logged(
    text: str, embedded: list[str], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        rules = embedded_fonts(text, "family")
    codes = {int(code, 16) for code in re.findall(r"U\+([0-9A-F]+)", rules)}
    assert codes == set(map(ord, embedded))
    assert rules.count('font-family: "family"') == rules.count("@font-face") >= bool(embedded)
    assert len(caplog.messages) == warnings == caplog.text.count("U+E0FFF")


def test_without_matplotlib_a_page_is_saved_and_a_warning_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with caplog.at_level(logging.WARNING):
        assert "@font-face" not in make_explorer().html
    assert 'pip install "transformer-blocks[plot]"' in caplog.text


MAPS = AttentionMaps("a", torch.ones(1, 1, 4, 4), TARGET)
PAGE, OTHER = Explorer([MAPS]), Explorer([replace(MAPS, name="b")])
DECODING = [replace(MAPS, is_decoding=True)]
STEPS = DecodingSteps(["a"], [[]])


@pytest.mark.parametrize(
    ("whole", "change", "error", "message"),
    [
        (MAPS, {"queries": ["a"]}, ValueError, r"^weights of 'a' must have shape \(L, S\) = \(1"),
        (MAPS, {"weights": MAPS.weights * torch.nan}, ValueError, "must be numbers from 0 to 1"),
        (MAPS, {"weights": MAPS.weights * 1.01}, ValueError, "must be numbers from 0 to 1"),
        (MAPS, {"weights": MAPS.weights[:0]}, ValueError, "must not be empty"),
        (MAPS, {"weights": MAPS.weights.to("meta")}, ValueError, "must have values, got a tensor"),
        (MAPS, {"mask": causal_mask(3)}, ValueError, r"^mask must have shape \(L, S\) = \(4, 4\)"),
        (PAGE, {"maps": []}, ValueError, "^maps must not be empty, got none$"),
        (PAGE, {"maps": DECODING}, ValueError, "got 4 queries and 0 steps$"),
        (PAGE, {"maps": DECODING, "decoding": STEPS}, ValueError, "got 4 queries and 1 steps$"),
        (PAGE, {"earlier": [OTHER]}, ValueError, r"^earlier .* the maps \['a'\], got \['b'\]$"),
        (PAGE, {"others": [OTHER]}, ValueError, r"^others .* the maps \['a'\], got \['b'\]$"),
        (PAGE, {"earlier": [1]}, TypeError, r"^earlier\[0\] must be an instance of Explorer, got"),
        (STEPS, {"tokens": [], "candidates": []}, ValueError, "got 0 tokens and 0 lists$"),
        (STEPS, {"candidates": []}, ValueError, "got 1 tokens and 0 lists$"),
        (STEPS, {"layers": [[[]], []]}, ValueError, "got 1 tokens and 0 lists$"),
        (STEPS, {"candidates": [[("b", math.nan)]]}, ValueError, "^probability of 'b' .*=nan$"),
        (STEPS, {"layers": [[[("b", 2.0)]]]}, ValueError, "^probability of 'b' .*=2.0$"),
    ],
)
def test_what_does_not_fit_is_refused(
    whole: Any, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        replace(whole, **change)


def test_characters_that_cannot_be_encoded_and_weights_with_gradients_are_shown(
    tmp_path: Path,
) -> None:
    tokens = ["\ud800", "\x1b", "\ufffe", "a"]
    maps = AttentionMaps("\udfff", weights(1, 1, 4, 4).requires_grad_(), tokens)
    page = Explorer([maps], "\ud800")
    page.save(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert data_of(html)["maps"][0]["keys"] == ["\ufffd", *tokens[1:]]
    assert "<title>\ufffd</title>" in html
    assert page._repr_html_().encode()
