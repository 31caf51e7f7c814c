"""The explorer: refused arguments, the saved page, figures, and the page in a browser."""

import base64
import logging
import math
import re
import secrets
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.page import HOSTILE, TARGET, data_of, make_explorer, weights
from torch import Tensor

from transformer_blocks import causal_mask
from transformer_blocks.explorer import (
    AttentionMaps,
    DecodingSteps,
    Explorer,
    save_explorer,
)
from transformer_blocks.explorer.fonts import embedded_fonts
from transformer_blocks.explorer.tokens import token_labels

# --- The saved page ------------------------------------------------------------------------------


def test_the_page_holds_every_weight_with_12_bits() -> None:
    explorer = make_explorer()
    content = data_of(explorer.html)
    for maps, saved in zip(explorer.maps, content["maps"], strict=True):
        planes = np.frombuffer(zlib.decompress(base64.b64decode(saved["weights"])), np.uint8)
        low, high = planes.reshape(2, -1).astype(int)
        found = (low + 256 * high).reshape(maps.weights.shape) / content["levels"]
        np.testing.assert_allclose(found, maps.weights.numpy(), rtol=0, atol=0.5001 / 4095)
        assert saved["keys"] == [label.text for label in token_labels(maps.key_tokens)]


def test_the_representation_has_names_and_not_every_weight() -> None:
    assert repr(make_explorer()) == (
        "Explorer(maps=["
        "AttentionMaps('Encoder self-attention', weights of shape (2, 3, 5, 5)), "
        "AttentionMaps('Decoder self-attention', weights of shape (2, 3, 4, 4)), "
        "AttentionMaps('Cross-attention', weights of shape (2, 3, 4, 5))], "
        "title='猫が眠る。 → the cat sleeps', "
        "decoding=DecodingSteps(tokens=['▁the', '▁cat', '▁sleeps', '</s>']), model='')"
    )


def test_heads_are_named_by_their_mask_and_causal_ones_without_it_by_the_causal_mask() -> None:
    future = causal_mask(8)
    far = future | ~torch.ones(8, 8, dtype=torch.bool).triu(-2)

    def names(masked: Tensor, mask: Tensor | None, keys: list[str] | None = None) -> Any:
        equal = torch.zeros(1, 1, 8, 8).masked_fill(masked, -torch.inf).softmax(dim=-1)
        maps = AttentionMaps("a", equal, list("abcdefgh"), keys, mask)
        return data_of(Explorer([maps]).html)["maps"][0]["patterns"]

    assert names(future, future) == names(future, None) == names(far, far) == [["broad"]]
    assert names(far, None) == names(future, None, list("abcdefgh")) == [[None]]
    after = ~torch.eye(8, dtype=torch.bool).roll(1, dims=1)
    assert names(after, None) == [["next token"]]


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


def test_a_saved_page_leaves_no_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    explorer = make_explorer()
    save_explorer(path, explorer.maps, title=explorer.title, decoding=explorer.decoding)
    assert path.read_text(encoding="utf-8") == explorer.html
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_symbolic_links_are_not_followed_and_errors_name_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, path = tmp_path / "other", tmp_path / "page.html"
    other.write_text("unchanged")
    monkeypatch.setattr(secrets, "token_hex", lambda count: "guessed")
    (tmp_path / ".page.html.part").symlink_to(other)  # a name that can be guessed
    save_explorer(path, make_explorer().maps[:1])
    (tmp_path / ".guessed.part").symlink_to(other)
    with pytest.raises(FileExistsError) as caught:
        save_explorer(path, make_explorer().maps[:1])
    assert caught.value.filename == str(path)
    assert other.read_text() == "unchanged"
    assert (tmp_path / ".guessed.part").is_symlink()  # it is not removed either


def test_japanese_glyphs_are_embedded_and_latin_ones_are_not() -> None:
    rules = embedded_fonts("▁the 猫", "family")
    assert 'font-family: "family"' in rules
    assert "U+732B" in rules
    assert not re.search(r"U\+74\b", rules)
    assert embedded_fonts("the cat", "family") == ""


def test_korean_glyphs_are_embedded_beside_japanese_ones(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        rules = embedded_fonts("고양이 猫", "family")
    assert rules.count("@font-face") == 2
    for letter in "고양이猫":
        assert f"U+{ord(letter):X}" in rules
    assert caplog.messages == []


def test_the_word_mark_of_sentencepiece_is_embedded_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert "U+2581" in embedded_fonts("▁the 猫", "family")
    assert caplog.messages == []


def test_a_glyph_that_no_font_has_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        embedded_fonts("\U000e0fff", "family")
    assert "U+E0FFF" in caplog.text


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"weights": torch.ones(2, 3, 4)},
            ValueError,
            r"^weights of 'a' must have shape \(layers,",
        ),
        ({"weights": weights(1, 1, 4, 3)}, ValueError, r"with \(L, S\) = \(4, 4\) tokens, got"),
        ({"weights": weights(1, 1, 4, 4) * torch.nan}, ValueError, "must be numbers from 0 to 1"),
        ({"weights": weights(1, 1, 4, 4) * 9}, ValueError, "must be numbers from 0 to 1"),
        ({"weights": weights(0, 1, 4, 4)}, ValueError, "must not be empty"),
        ({"weights": weights(1, 1, 4, 4).to("meta")}, ValueError, "must have values, got a tensor"),
        ({"weights": torch.ones(1, 1, 4, 4).int()}, TypeError, "must be floating-point numbers"),
        ({"weights": [[[[1.0]]]]}, TypeError, r"^weights of 'a' must be a tensor, got list"),
        ({"queries": [1, 2, 3, 4]}, TypeError, r"^queries\[0\] must be a string, got"),
        ({"keys": "abcd"}, TypeError, "^keys must be a sequence of strings, got keys='abcd'$"),
        ({"query_axis": None}, TypeError, "^query_axis must be an instance of str"),
        ({"mask": torch.zeros(4, 4)}, TypeError, "^mask must be bool"),
        ({"mask": causal_mask(3)}, ValueError, r"^mask must have shape \(L, S\) = \(4, 4\)"),
    ],
)
def test_weights_and_masks_that_do_not_fit_are_refused(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    parts: dict[str, Any] = {"weights": weights(1, 1, 4, 4)}
    with pytest.raises(error, match=message):
        AttentionMaps("a", **({"queries": TARGET} | parts | change))


def test_empty_pages_and_missing_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^maps must not be empty, got none$"):
        Explorer([])
    only: Any = AttentionMaps("a", weights(1, 1, 4, 4), TARGET)
    with pytest.raises(TypeError, match=r"^maps must be a sequence of AttentionMaps, got "):
        Explorer(only)
    with pytest.raises(TypeError, match=r"^tokens must be a sequence of strings, got tokens='a'$"):
        DecodingSteps("a", [[]])
    with pytest.raises(ValueError, match=r"got 1 tokens and 0 lists$"):
        DecodingSteps(["a"], [])
    with pytest.raises(ValueError, match=r"^probability of 'b' must be in \[0, 1\], got nan$"):
        DecodingSteps(["a"], [[("b", math.nan)]])
    maps = AttentionMaps("a", weights(1, 1, 4, 4), TARGET, is_decoding=True)
    for decoding, steps in ((None, 0), (DecodingSteps(["a"], [[]]), 1)):
        with pytest.raises(ValueError, match=f"got 4 queries and {steps} steps$"):
            Explorer([maps], decoding=decoding)


def test_a_page_that_cannot_be_saved_leaves_no_partial_file(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(OSError, match=r"page\.html"):
        make_explorer().save(tmp_path / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


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


def test_without_fonttools_a_page_is_saved_and_a_warning_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "fontTools", None)
    with caplog.at_level(logging.WARNING):
        assert "@font-face" not in make_explorer().html
    assert 'pip install "transformer-blocks[plot]"' in caplog.text
