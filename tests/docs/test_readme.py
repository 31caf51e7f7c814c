"""What the README says of other libraries is what those do that are installed."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text("utf-8").split())

IDS = torch.arange(5, 15).view(2, 5)
PADDING = torch.tensor([[False] * 5, [True] * 5])  # the second sequence is padding alone
LEFT = torch.tensor([[False] * 5, [True] * 2 + [False] * 3])
SIZES: dict[str, Any] = {"vocab_size": 20, "num_hidden_layers": 1, "num_attention_heads": 4}


def of_masked_rows(projection: nn.Module, call: Callable[[], object], masked: Tensor) -> str:
    """Return what attention gives to its output projection at fully masked queries."""
    inputs: list[Tensor] = []
    handle = projection.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    with torch.no_grad():
        call()
    handle.remove()
    [found] = [each[masked] for each in inputs]
    if found.isnan().any():
        return "NaN"
    return "weights" if found.any() else "zeros"


def test_the_versions_are_those_that_the_project_is_tested_with() -> None:
    pinned = (ROOT / "constraints.txt").read_text("utf-8")
    for name in ("torch", "x-transformers", "transformers"):
        [version] = re.findall(rf"(?m)^{name}==(\S+)$", pinned)
        assert f" {name} {version} (" in README, "measure again, with the test below"


def test_a_query_whose_keys_are_all_masked_in_torch() -> None:
    assert "| NaN or zeros, by path |" in README
    x = torch.randn(2, 5, 16)
    outputs: dict[bool, Tensor] = {}
    for is_requested in (True, False):
        theirs = nn.MultiheadAttention(16, 4, batch_first=True)  # its output's bias is zero
        found = theirs(x, x, x, key_padding_mask=PADDING, need_weights=is_requested)[0]
        outputs[is_requested] = found[1]
    assert outputs[True].isnan().all()
    assert not outputs[False].any()
    with torch.no_grad():  # and in evaluation mode: the fast path
        found = theirs.eval()(x, x, x, key_padding_mask=PADDING, need_weights=False)[0]
    assert found[1].isnan().all()


def test_a_query_whose_keys_are_all_masked_in_x_transformers() -> None:
    assert "| zeros, but for one path |" in README
    module = pytest.importorskip("x_transformers")
    x = torch.randn(2, 5, 16)
    found: set[tuple[str, bool, bool, str]] = set()
    for is_flash in (True, False):
        for kind, padding in (("Encoder", PADDING), ("Decoder", PADDING), ("Decoder", LEFT)):
            sizes = {"dim": 16, "depth": 1, "heads": 4, "attn_dim_head": 4}
            model = getattr(module, kind)(**sizes, attn_flash=is_flash)
            [attention] = [m for name, m in model.named_modules() if name.endswith("to_out")]
            result = of_masked_rows(attention, partial(model, x, mask=~padding), padding)
            if result != "zeros":
                found.add((kind, is_flash, padding is LEFT, result))
    assert found == {("Decoder", False, True, "weights")}


@pytest.mark.parametrize("mode", ["sdpa", "eager"])
def test_a_query_whose_keys_are_all_masked_in_transformers(mode: str) -> None:
    assert "| zeros or weights on padding, by mode |" in README
    hf = pytest.importorskip("transformers")
    small = {**SIZES, "hidden_size": 16, "intermediate_size": 32, "attn_implementation": mode}
    bert = hf.BertModel(hf.BertConfig(**small)).eval()
    llama = hf.LlamaModel(hf.LlamaConfig(**small)).eval()
    sizes = {"d_model": 16, "d_kv": 4, "num_layers": 1, "num_heads": 4, "d_ff": 32}
    t5 = hf.T5EncoderModel(hf.T5Config(vocab_size=20, **sizes, attn_implementation=mode)).eval()
    expected = "zeros" if mode == "sdpa" else "weights"
    for model, name, padding, result in (
        (bert, "encoder.layer.0.attention.output.dense", PADDING, expected),
        (llama, "layers.0.self_attn.o_proj", LEFT, expected),
        (t5, "encoder.block.0.layer.0.SelfAttention.o", PADDING, "weights"),
    ):

        def call(model: nn.Module = model, padding: Tensor = padding) -> object:
            return model(IDS, attention_mask=(~padding).long())

        assert of_masked_rows(model.get_submodule(name), call, padding) == result, name
