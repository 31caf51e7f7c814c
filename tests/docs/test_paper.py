"""The ledger of the paper: every name on its pages exists, and what no other test proves."""

import inspect
import math
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from common.training import make_adam
from paper import table1, table3
from transformer_blocks import (
    MultiHeadAttention,
    attention_weights,
    noam_rate,
    scaled_dot_product_attention,
    sinusoidal_table,
    sliding_window_mask,
)
from transformer_blocks.explorer.page import read_script
from translation.decoding import length_limit
from translation.transformer import Transformer

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs" / "paper").glob("*.md")}
LEDGER = "\n".join(PAGES[name] for name in ("architecture", "why", "training", "results"))
CODE = re.findall(r"^\[?`([\w.]+)`.*:\n\n```python\n((?:.+\n)+)```", LEDGER, re.M)
"""The objects whose code is quoted, and their lines."""


# The ledger


def source_of(path: str) -> str:
    """Return the source of an object, given its dotted path; of a module, its whole file."""
    found: Any = pkgutil.resolve_name(path)
    return inspect.getsource(inspect.unwrap(getattr(found, "fget", found)))


def test_every_line_of_code_occurs_once_in_its_object() -> None:
    assert len(CODE) > 80
    for path, quoted in CODE:
        lines = [line.strip() for line in source_of(path).splitlines()]
        assert [line for line in quoted.splitlines() if lines.count(line) != 1] == [], path


def test_every_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", LEDGER)
    assert len(named) > 100
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text("utf-8"), name


def test_every_entry_has_its_code_its_proof_and_its_chapter() -> None:
    entries = re.split(r"^#+ (?!\d\.|Section|Appendix)", LEDGER, flags=re.M)[1:]
    assert len(entries) > 60
    for entry in entries:
        assert entry.count("- **Learn**: [chapter") == 1, entry
        assert ("```python" in entry and "- **Proof**: `" in entry) or "Not built" in entry, entry
    titles = " ".join(entry.partition("\n")[0] for entry in entries)
    assert re.findall(r"Equation (\d)", titles) == ["1", "2", "3"]
    assert {*re.findall(r"Figures? (\d)", titles)} == {"1", "2", "3"}
    assert {*re.findall(r"Table (\d)", titles)} == {"1", "2", "3"}


def test_the_rows_of_the_tables_are_those_that_the_programs_compute() -> None:
    rows = re.findall(r"^- \*\*(Here|Measured)\*\*, row `(.+)`", LEDGER, re.M)
    of_table_1 = [row for kind, row in rows if kind == "Measured"]
    assert {*of_table_1, "convolutional, k = 3, dilated"} == table1.ROWS.keys()
    assert [row for kind, row in rows if kind == "Here"] == [*table3.ROWS]


def test_all_deviations_are_listed() -> None:
    def words(found: list[str]) -> list[str]:
        return [" ".join(re.sub(r"^> ", "", each, flags=re.M).split()) for each in found]

    told = re.findall(r"^> \*\*Deviation\*\*: ((?:.+\n)+)", LEDGER, re.M)
    listed = re.findall(r"^- \[.*:\n((?:  .+\n)+)", PAGES["deviations"], re.M)
    assert len(told) > 20
    assert words(told) == words(listed)


def test_the_page_on_javascript_names_every_function_in_its_order_with_its_python_code() -> None:
    listed = re.findall(
        r"^\*\*`(\w+)`\*\*(?:, in Python (`.*?`)\.\s)?", PAGES["javascript"], re.M | re.S
    )
    kinds = r"(?:async )?function\*?|class|const"
    defined = re.findall(rf"^(?:{kinds}) (\w+)", read_script("blocks"), re.M)
    assert [name for name, _ in listed] == defined
    for path in re.findall(r"`([\w.]+)`", " ".join(paths for _, paths in listed)):
        assert callable(pkgutil.resolve_name(f"transformer_blocks.{path}")), path


# Section 3


def operations(layer: nn.Module, *inputs: Tensor) -> int:
    """Count the floating-point operations of a call."""
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        layer(*inputs)
    return int(counter.get_total_flops())


def explicit_layer(d_model: int, heads: int) -> MultiHeadAttention:
    return MultiHeadAttention(d_model, heads, attention_function=scaled_dot_product_attention)


def test_heads_change_the_number_of_weights_and_not_that_of_operations() -> None:
    x = torch.randn(1, 20, 64)
    counts, weights = set(), []
    for heads in (1, 2, 4, 8):
        layer = explicit_layer(64, heads)
        counts.add(operations(layer, x, x, x))
        weights.append(layer.attention_weights(x, x).numel())
    assert counts == {4 * 20 * 20 * 64 + 8 * 20 * 64 * 64}
    assert weights == [heads * 20 * 20 for heads in (1, 2, 4, 8)]


def test_the_wavelengths_are_a_geometric_progression() -> None:
    d_model = 512
    table = sinusoidal_table(2, d_model)
    frequencies = torch.atan2(table[1, 0::2], table[1, 1::2])  # the angle of position 1
    wavelengths = 2 * math.pi / frequencies
    ratios = wavelengths[1:] / wavelengths[:-1]
    torch.testing.assert_close(ratios, torch.full_like(ratios, 10000 ** (2 / d_model)))
    assert float(ratios[0]) == pytest.approx(1.0366, abs=1e-4)
    assert float(wavelengths[0]) == pytest.approx(2 * math.pi)
    assert float(wavelengths[-1] / (2 * math.pi)) == pytest.approx(9647, abs=1)


# Section 4: table 1

SIZES = [(16, 32), (32, 32), (16, 64), (48, 96)]


@pytest.mark.parametrize(("n", "d"), SIZES)
def test_operations_grow_as_table_1_says(n: int, d: int) -> None:
    def restricted(x: Tensor) -> Tensor:
        return table1.restricted_self_attention(x, neighbours=5)

    def count(layer: table1.Layer) -> int:
        return table1.count_operations(layer, n, d)

    assert count(table1.self_attention) == 4 * n * n * d
    assert count(table1.Recurrent(d)) == 4 * n * d * d
    for k in (3, 5):
        assert count(table1.Convolutional(d, width=k)) == 2 * k * n * d * d
    assert count(restricted) == 4 * 5 * n * d


@pytest.mark.parametrize(("n", "d"), SIZES)
def test_sequential_operations_are_those_of_table_1(n: int, d: int) -> None:
    expected = {"recurrent": n, "convolutional": 1}
    for name, measure in table1.ROWS.items():
        assert measure(n, d).sequential == expected.get(name.split(",")[0], 2)


@pytest.mark.parametrize("n", [8, 9, 10, 27, 28])
def test_path_lengths_are_those_of_table_1(n: int) -> None:
    dilated = next(layers for layers in range(n) if 3**layers >= n)  # the logarithm, rounded up
    assert {name: measure(n, 4).path for name, measure in table1.ROWS.items()} == {
        "self-attention": 1,
        "recurrent": n,
        "convolutional, k = 3": math.ceil((n - 1) / 2),
        "convolutional, k = 3, dilated": dilated,
        "restricted, r = 5": math.ceil(2 * (n - 1) / 4),
    }


def test_restricted_attention_equals_attention_with_a_window_mask() -> None:
    x = torch.randn(1, 12, 8, dtype=torch.float64)
    heads = x.unsqueeze(1)
    mask = sliding_window_mask(12, window=3)  # itself and two on each side
    expected, _ = scaled_dot_product_attention(heads, heads, heads, mask=mask)
    found = table1.restricted_self_attention(x, neighbours=5)
    torch.testing.assert_close(found, expected.squeeze(1))


# Section 5


def test_adam_has_the_settings_of_the_paper() -> None:
    (group,) = make_adam(nn.Linear(2, 2)).param_groups
    assert group["betas"] == (0.9, 0.98)
    assert group["eps"] == 1e-9
    assert group["weight_decay"] == 0


def test_the_rate_of_the_base_model_peaks_at_update_4000() -> None:
    rates = {step: noam_rate(step, d_model=512) for step in range(1, 20_000)}
    assert max(rates, key=lambda step: rates[step]) == 4000
    assert rates[4000] == pytest.approx(1 / math.sqrt(512 * 4000))
    assert f"{rates[4000]:.6f}" == "0.000699"


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_dropout_applies_to_the_sums_of_embeddings_and_positions(side: str) -> None:
    torch.manual_seed(0)
    model = Transformer(20, 20, num_layers=1, d_model=64, num_heads=2, d_ff=8, dropout=0.25)
    inputs: list[Tensor] = []
    model.get_submodule(side).register_forward_pre_hook(lambda part, args: inputs.append(args[0]))
    tokens = torch.randint(4, 20, (8, 40))
    embedding = model.get_submodule(f"{'source' if side == 'encoder' else 'target'}_embedding")
    model.train()(tokens, tokens)
    (dropped,) = inputs
    kept = dropped != 0  # a sum is zero only where it was dropped
    assert 0.22 < 1 - kept.float().mean() < 0.28
    expected = model.positions(embedding(tokens)) / 0.75
    torch.testing.assert_close(dropped[kept], expected[kept])


# Section 6


def test_a_translation_is_at_most_twice_as_long_as_its_source_and_ten_tokens() -> None:
    assert [length_limit(60, length) for length in (0, 7, 30)] == [12, 26, 60]


@cache
def counted() -> dict[str, int]:
    """Count the parameters of every row of table 3."""
    return {name: table3.count_parameters(row) for name, row in table3.ROWS.items()}


def test_every_row_of_table_3_has_the_parameters_of_its_entry() -> None:
    found = re.findall(r"row `(.+)`: ([\d,]+) parameters", LEDGER)
    assert {row: int(number.replace(",", "")) for row, number in found} == counted()
    base = counted()["base"]
    assert all(counted()[name] == base for name in counted() if name[0] in "AD")
    assert counted()["E: learned positions"] - base == 512 * 512
    for name, row in table3.ROWS.items():
        if row.millions is not None:  # as rounded in the paper, with a matrix of another size
            difference = row.millions - counted()[name] / 1e6
            assert -1.5 < difference < 4.5
            entry = LEDGER.partition(f"row `{name}`")[0].rpartition("\n### ")[2]
            assert f"{row.millions} million" in entry


def test_the_paper_counts_about_41100_rows_in_its_shared_matrix() -> None:
    ranges = {
        name: table3.implied_vocabulary(row, counted()[name])
        for name, row in table3.ROWS.items()
        if row.millions is not None
    }
    low, high = ranges.pop("big")
    assert (round(low), round(high)) == (35_368, 36_344)
    assert (round(ranges["base"][0]), round(ranges["base"][1])) == (39_841, 41_794)
    low, high = max(each[0] for each in ranges.values()), min(each[1] for each in ranges.values())
    assert low < 41_100 < high
    assert (round(low), round(high)) == (41_003, 41_209)


@pytest.mark.parametrize("causal", [True, False])
def test_keys_of_another_size_compute_the_equation_of_the_paper(causal: bool) -> None:
    layer = table3.KeySizeAttention(16, 2, d_k=3).double()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    outputs = []
    for head in range(2):
        query, key = (
            (x @ projection.weight.T[:, 3 * head : 3 * head + 3]).unsqueeze(1)
            for projection in (layer.query_projection, layer.key_projection)
        )
        value = (x @ layer.value_projection.weight.T[:, 8 * head : 8 * head + 8]).unsqueeze(1)
        weights = attention_weights(query, key, causal=causal)
        outputs.append((weights @ value).squeeze(1))
    expected = torch.cat(outputs, -1) @ layer.output_projection.weight.T
    torch.testing.assert_close(layer(x, x, x, causal=causal), expected)
