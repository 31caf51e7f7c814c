"""Programs name the extra to install where a package is missing."""

import importlib
import sys
from importlib.util import find_spec

import pytest

import common


@pytest.mark.parametrize("package", common.PACKAGES)
def test_a_missing_package_is_named_with_the_extra_that_has_it(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == package else find_spec(name)
    )
    monkeypatch.delitem(sys.modules, "common")
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module("common")
    message = f'this program needs {package}, which is not installed: pip install "'
    assert f'error: {message}transformer-blocks[examples]"\n' == capsys.readouterr().err
