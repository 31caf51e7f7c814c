"""A browser for the tests that need one: Chromium, driven by playwright, and the rules of axe."""

import importlib.util
import shutil
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
in_browser = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None,
    reason="a browser is needed: `apt-get install chromium`, and the package playwright",
)


AXE = {"preload": False, "iframes": False, "resultTypes": ["violations"]}
"""What axe is asked for: only what is wrong, in one frame; all else takes three times as long."""


def axe() -> str:
    """Return the script that finds what excludes people from a page, or skip the test."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("the package axe-playwright-python is needed")
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")
