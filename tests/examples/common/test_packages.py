"""Programs name the extra to install where a package is missing."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    "package",
    ["filelock", "matplotlib", "pooch", "sacrebleu", "safetensors", "sentencepiece"],
)
@pytest.mark.parametrize(
    "module",
    [
        "translation.commands",
        "translation.training",
        "classification.commands",
        "text.commands",
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_has_it(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ("translation", "common", "classification", "text")
    for name in [*sys.modules]:
        if name.split(".")[0] in (*ours, package):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    message = rf'^this program needs {package}, .* pip install "transformer-blocks\[examples\]"$'
    with pytest.raises(ModuleNotFoundError, match=message):
        importlib.import_module(module)
