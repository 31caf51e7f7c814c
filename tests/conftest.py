"""What several files of tests share: the built pages, and a browser."""

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests")  # so that a helper's assertion, too, says what it compared

from tests.browser import CHROMIUM  # noqa: E402
from tests.explorer.page import Opened, make_explorer  # noqa: E402

from transformer_blocks.explorer import Explorer  # noqa: E402

ROOT = Path(__file__).parent.parent
NEEDED = ("sphinx", "furo", "myst_parser", "py_mini_racer", "sentencepiece")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name the arguments in the name of a test: "[lengths=7]", where pytest says "[7]"."""
    return f"{argname}={val}" if isinstance(val, bool | int | float | None) else None


@pytest.fixture(scope="session")
def has_docs() -> None:
    """Skip where the pages cannot be built."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the pages need the extra docs, got no {missing}; `make docs` installs it")


@pytest.fixture(scope="session")
def pages(has_docs: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the pages anew, as `make docs` does, and give their folder."""
    html = tmp_path_factory.mktemp("pages") / "html"
    build = subprocess.run(
        [sys.executable, ROOT / "docs" / "_ext" / "pages.py", ROOT / "docs", html],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert build.returncode == 0, build.stdout + build.stderr
    return html


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    """Keep a port that no other program gets, and the processes of a test may listen at."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield str(kept.getsockname()[1])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start Chromium for the tests of a file, which are marked with ``in_browser``."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open pages of explorers, with options of the browser, until the end of a test."""
    pages: list[Opened] = []

    def open_one(explorer: Explorer, **options: Any) -> Opened:
        pages.append(Opened(browser, tmp_path / f"{len(pages)}.html", explorer, **options))
        return pages[-1]

    yield open_one
    for page in pages:
        page.close()


@pytest.fixture
def opened(open_page: Callable[..., Opened]) -> Opened:
    return open_page(make_explorer())


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Save the folder of a model of a family, once; tests copy it before they change it."""
    from tests.pretrained.published import save_folder  # only now: it imports transformers

    folder = tmp_path_factory.mktemp("published, once")
    return cache(lambda family: save_folder(family, folder / family))
