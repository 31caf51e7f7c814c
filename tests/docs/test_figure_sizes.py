"""The figures of the book on a telephone: their text is readable, and a tap enlarges them."""

from pathlib import Path

import pytest
from tests.browser import CHROMIUM, in_browser

from cells import LEARN

learn = pytest.importorskip("learn")  # needs the extra docs
STATIC = LEARN.parent / "_static"
FIGURES = sorted((LEARN / "figures").glob("*.svg"))
SIZES = """
() => [...document.querySelectorAll("svg text, svg tspan")].map(text => {
    const {a, b} = text.getScreenCTM();
    return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
})
"""  # in pixels of the screen


@pytest.mark.slow
@in_browser
def test_the_text_of_a_figure_has_ten_pixels_and_a_tap_enlarges_it(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    page_file = tmp_path / "page.html"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        for path in FIGURES:
            page_file.write_text(
                '<!doctype html><html lang="ko"><meta charset="utf-8">'
                f"<style>{(STATIC / 'pages.css').read_text('utf-8')}</style>"
                f"{learn.inline_svg(path, 'A figure.', path.as_uri())}"
                f"<script>{(STATIC / 'pages.js').read_text('utf-8')}</script>",
                encoding="utf-8",
            )
            page.goto(page_file.as_uri())
            assert min(page.evaluate(SIZES)) > 9.9, path.name
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            page.click(".drawing > a", position={"x": 30, "y": 30})
            assert page.inner_text("dialog button") == "닫기"
            page.evaluate("document.querySelector('.drawing').remove()")  # the other one
            assert min(page.evaluate(SIZES)) > 15.9
            page.keyboard.press("Escape")
            page.wait_for_selector("dialog", state="detached")
        browser.close()
