"""Alterations: what changes a module without its class is found, and nothing else is."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import LanguageModel, MultiHeadAttention, build_language_model
from transformer_blocks._alteration import alteration
from transformer_blocks.interop import from_torch

HALF: Callable[..., Tensor] = torch.Tensor.half


def double(module: Any, *args: Any, **options: Any) -> Any:
    return 2 * type(module)(*args, **options)


CHANGES: dict[str, Callable[[Any], object]] = {
    "hooks": lambda part: part.register_forward_hook(lambda *_: None),
    "a replaced forward": lambda part: setattr(part, "forward", HALF),
    "a replaced attend": lambda part: setattr(part, "attend", HALF),
}


def model_of() -> LanguageModel:
    return build_language_model(9, num_layers=1, d_model=8, num_heads=2, d_ff=8).eval()


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_on_a_module_is_found(change: str) -> None:
    attention = MultiHeadAttention(8, 2)
    assert alteration(attention) is None
    CHANGES[change](attention)
    assert alteration(attention) == change


def test_a_method_that_another_package_has_replaced_in_the_class_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    for kind in (nn.TransformerEncoderLayer, nn.Linear, nn.Module):
        with monkeypatch.context() as patch:
            name = "__call__" if kind is nn.Module else "forward"
            patch.setattr(kind, name, double)
            with pytest.raises(ValueError, match=f"got a replaced {name}$"):
                from_torch(theirs)
    from_torch(theirs)


def test_a_method_that_another_package_has_added_to_all_modules_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nn.Module, "smart_apply", double, raising=False)  # as transformers does
    assert alteration(nn.Linear(2, 2)) is None


def test_a_subclass_may_have_methods_of_its_own() -> None:
    class Other(MultiHeadAttention):
        def attend(self, *args: Any, **options: Any) -> Tensor:
            return super().attend(*args, **options)

    assert alteration(Other(8, 2)) is None


def test_no_part_of_a_model_of_blocks_is_altered() -> None:
    assert [alteration(part) for part in model_of().modules() if alteration(part)] == []
