"""The page's numbers reproduce each attention weight; where they do not, there are none."""

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.explorer.page import data_of, inflate, make_explorer_with_arithmetic
from tests.explorer.page_script import Script
from tests.inspection.foreign import FAMILIES
from torch import Tensor

from transformer_blocks import AdditiveAttention, ALiBi, __version__, attention_weights, causal_mask
from transformer_blocks.explorer import (
    Arithmetic,
    AttentionMaps,
    DecodingSteps,
    Explorer,
    explore,
    reproduces,
)
from transformer_blocks.explorer import arithmetic as module
from transformer_blocks.explorer.arithmetic import largest_size
from transformer_blocks.inspection import Projections
from transformer_blocks.inspection.patterns import PATTERNS

LEARN = Path(__file__).parents[2] / "docs" / "learn"
REFERENCE = "../reference/blocks/attention.html"
QUERIES, KEYS = list("abcdef"), list("uvwxyz!")


def vectors(length: int = 6, key_length: int = 7, size: int = 16, value_size: int = 3) -> Any:
    """Make queries, keys and values of two layers of three heads."""
    return (
        torch.randn(2, 3, length, size),
        torch.randn(2, 3, key_length, size),
        torch.randn(2, 3, key_length, value_size),
    )


def decode(part: dict[str, Any], *shape: int) -> Tensor:
    """Decode numbers as the page does."""
    planes = inflate(part["data"])
    low, high = planes[: len(planes) // 2], planes[len(planes) // 2 :]
    pairs = (a | b << 8 for a, b in zip(low, high, strict=True))
    numbers = [number - 2**16 if number >= 2**15 else number for number in pairs]
    steps = torch.tensor(part["step"], dtype=torch.float64)
    return torch.tensor(numbers).view(2, 3, *shape) * steps.view(2, 3, 1, 1)


@pytest.mark.parametrize("scale", [None, 0.7])
def test_the_page_s_numbers_reproduce_each_weight_within_its_resolution(
    scale: float | None,
) -> None:
    query, key, value = vectors()
    mask = torch.zeros(6, 7, dtype=torch.bool)
    mask[:, 5:] = True
    mask[2] = True  # a fully masked row
    weights = attention_weights(query, key, mask=mask, scale=scale)
    arithmetic = Arithmetic(query, key, value, scale)
    maps = AttentionMaps("a", weights, QUERIES, KEYS, mask=mask, arithmetic=arithmetic)
    content = data_of(Explorer([maps]).html)
    found = content["maps"][0]["arithmetic"]
    assert (found["size"], found["valueSize"], found["causal"]) == (16, 3, False)
    queries, keys = decode(found["queries"], 6, 16), decode(found["keys"], 7, 16)
    torch.testing.assert_close(queries, query.double(), atol=1e-4, rtol=0.0)
    torch.testing.assert_close(decode(found["values"], 7, 3), value.double(), atol=1e-4, rtol=0.0)
    scores = (queries @ keys.mT * found["scale"]).masked_fill(mask, -math.inf)
    recomputed = scores.softmax(dim=-1).nan_to_num(0.0)
    shown = (weights.double() * content["levels"]).round() / content["levels"]
    difference = float((recomputed - shown).abs().max())
    assert difference <= 1 / content["levels"]
    assert found["difference"] == pytest.approx(difference, abs=1e-6)


def test_a_causal_mask_that_is_not_given_is_found_and_stated() -> None:
    query, key, value = vectors(6, 6)
    weights = attention_weights(query, key, causal=True)
    maps = AttentionMaps("a", weights, QUERIES, arithmetic=Arithmetic(query, key, value))
    assert data_of(Explorer([maps]).html)["maps"][0]["arithmetic"]["causal"] is True
    masked = AttentionMaps(
        "a", weights, QUERIES, mask=causal_mask(6), arithmetic=Arithmetic(query, key, value)
    )
    assert data_of(Explorer([masked]).html)["maps"][0]["arithmetic"]["causal"] is False


def test_weights_that_are_not_those_of_equation_1_are_not_reproduced() -> None:
    query, key, value = vectors(6, 6, 8)
    arithmetic = Arithmetic(query, key, value)
    weights = attention_weights(query, key)
    assert reproduces(arithmetic, weights)
    assert not reproduces(arithmetic, weights[:, :2])
    capped = (5 * (query @ key.mT / math.sqrt(8) / 5).tanh()).softmax(-1)
    biased = ALiBi(3).attention_weights(query, key)
    additive = AdditiveAttention(8, 3).attention_weights(query, key)
    other_mask = attention_weights(query, key, mask=torch.eye(6, dtype=torch.bool))
    for other in (capped, biased, additive, other_mask, weights.roll(1, 1)):
        assert not reproduces(arithmetic, other)
        with pytest.raises(ValueError, match=r"^arithmetic of 'a' must reproduce its weights to"):
            AttentionMaps("a", other.detach(), QUERIES, arithmetic=arithmetic)
    assert reproduces(arithmetic, weights + 1e-3)


def test_arithmetic_beyond_the_limit_is_left_out_and_the_page_says_so() -> None:
    query, key, value = vectors(6, 6, 64, 72)
    arithmetic = Arithmetic(query, key, value)
    maps = AttentionMaps("a", attention_weights(query, key), QUERIES, arithmetic=arithmetic)
    assert largest_size([arithmetic]) == 18.0  # exactly the limit, below which it is left out
    for limit, is_shown in ((18, True), (17, False)):
        page = Explorer([maps], arithmetic_kilobytes=limit)
        content, script = data_of(page.html), Script(page.html, "#v=map&q=2&k=3&lock=1")
        assert bool(content["maps"][0]["arithmetic"]) is bool(content["lines"]) is is_shown
        assert (content["leftOut"] is None) is is_shown
        assert not is_shown or len(json.dumps(content["maps"][0]["arithmetic"])) < 19_000
        said = script("$('why').hidden ? '' : String($('why').textContent)")
        assert ("were left out: they take 18 kB" in said) is not is_shown
        assert f"Made with transformer_blocks {__version__}." in page.html
    assert len(data_of(replace(page, arithmetic_kilobytes=content["leftOut"]).html)["lines"]) > 0


def test_each_step_is_one_line_of_the_source_and_names_a_chapter() -> None:
    lines = module.serialize_lines()
    assert lines is not None
    assert [*lines] == ["scores", "scale", "mask", "softmax", "output"]
    path = Path(str(sys.modules["transformer_blocks.attention"].__file__))
    source = path.read_text("utf-8").splitlines()
    for line in lines.values():
        assert source[line["line"] - 1].strip() == line["code"]
        number, title = re.fullmatch(r"Chapter (\d+): (.+)", line["chapter"]).groups()  # type: ignore[union-attr]
        chapter = LEARN / f"{Path(line['page']).stem}.py"
        assert line["page"] == f"learn/{chapter.stem}.html"
        assert f"# # {number} {title}\n" in chapter.read_text("utf-8")


def test_beside_the_documentation_each_step_links_to_its_chapter_and_its_source() -> None:
    for docs, pages in (("", []), ("../", ["../learn/03_projections.html", REFERENCE])):
        page = replace(make_explorer_with_arithmetic(), docs=docs)
        script = Script(page.html, "#v=map&a=2&h=0&q=1&k=1&lock=1")
        links = script("$('why-body').querySelectorAll('a').map(each => each.href)")
        assert links[:2] == pages
        assert len(links) == 5 * len(pages)
        assert "Chapter 3: Queries, keys, values \u00b7 attention.py, line" in script.text("why")
    assert (LEARN.parent / REFERENCE.removeprefix("../").replace(".html", ".md")).is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": torch.ones(2, 3, 7, 15)}, "query and key must agree in size d_k"),
        ({"query": torch.ones(2, 3, 0, 16)}, "query must not be empty"),
        ({"value": torch.full((2, 3, 7, 3), math.nan)}, "value must be finite, got"),
    ],
)
def test_queries_keys_and_values_that_do_not_fit_are_refused(
    change: dict[str, Any], message: str
) -> None:
    parts = dict(zip(("query", "key", "value"), vectors(), strict=True))
    with pytest.raises(ValueError, match=f"^{message}"):
        Arithmetic(**(parts | change))


def test_axes_names_of_heads_and_tokens_of_each_layer_are_on_the_page() -> None:
    weights = torch.stack([torch.eye(6).roll(-1, 1), torch.full((6, 6), 1 / 6), torch.eye(6)])
    candidates = [[("x", 0.123456)], [("y", 1.0)]]
    html = Explorer(
        [
            AttentionMaps("a", weights[None], QUERIES, query_axis="target", key_axis="source"),
            AttentionMaps("b", weights[None], QUERIES, QUERIES),
        ],
        decoding=DecodingSteps(["x", "y"], candidates, [candidates, candidates[::-1]]),
    ).html
    content = data_of(html)
    first, second = content["maps"]
    assert (first["queryAxis"], first["keyAxis"]) == ("target", "source")
    assert (second["queryAxis"], second["keyAxis"]) == ("query", "key")
    names = Script(html)("attentions.map(a => [0, 1, 2, 3].map(head => patternOf(a, 0, head)))")
    assert names == [["previous token", "broad", "itself", None], [None, "broad", "diagonal", None]]
    assert content["rules"] == {each.name: each.rule for each in PATTERNS}
    assert first["arithmetic"] is content["lines"] is None
    generated = [[["x", 0.123456, 1]], [["y", 1.0, 1]]]  # 1: the generated token
    others = [[["y", 1.0, 0]], [["x", 0.123456, 0]]]
    assert content["decoding"]["layers"] == [generated, others]


# --- Recorded from models ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "has_arithmetic"),
    [("BERT", True), ("Marian", True), ("Qwen 3", True), ("T5", False), ("Gemma 2", False)],
)
def test_explore_finds_the_arithmetic_where_it_is_that_of_equation_1(
    name: str, has_arithmetic: bool
) -> None:
    family = FAMILIES[name]
    tokens: Any = (list("abcdefg"), list("wxyz")) if family.kind == "both" else None
    options: dict[str, Any] = {"tokens": tokens, "sequence": 1}
    page = explore(family.build(), family.inputs(padded=True), **options)
    for maps in page.maps:
        # T5's cross-attention is the only one of its attentions without a bias.
        is_plain = has_arithmetic or (name, maps.name) == ("T5", "Cross-attention")
        assert (maps.arithmetic is not None) is is_plain
        if maps.arithmetic is not None:
            assert maps.arithmetic.query.shape[:3] == maps.weights.shape[:3]


def test_what_was_recorded_of_unlike_layers_is_no_arithmetic() -> None:
    query, key, value = vectors(6, 6, 8)
    weights = attention_weights(query, key)
    layers = [Projections(*each, 8**-0.5) for each in zip(query, key, value, strict=True)]
    batches = [each.map(lambda x: x[None]) for each in layers]
    found = Arithmetic.of(batches, weights)
    assert found is not None
    assert torch.equal(found.query, query)
    assert Arithmetic.of(batches[:1], weights) is None
    assert Arithmetic.of([], weights) is None
    assert Arithmetic.of([batches[0], batches[1]._replace(scale=1.0)], weights) is None
    narrow = batches[1].map(lambda x: x[..., :2])
    assert Arithmetic.of([batches[0], narrow], weights) is None
    assert Arithmetic.of([each.map(lambda x: x * torch.nan) for each in batches], weights) is None
    assert Arithmetic.of(batches, weights.flip(0)) is None
