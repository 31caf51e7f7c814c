"""Japanese in code: a kanji or kana is exactly two columns wide, in any font.

The tables of ``format_mask`` count two columns for such a letter, as terminals do. A browser takes
Japanese from another font than the Latin letters, whose widths do not match; so every wide letter
of a code block gets a box of two columns.
"""

import re
import unicodedata
from collections.abc import Iterator

from pygments.formatters import HtmlFormatter
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge

ABOVE_LATIN = re.compile("[\u1100-\U0010ffff]")


class ColumnFormatter(HtmlFormatter):
    """Pygments' HTML, with a box around every wide letter."""

    def wrap(self, source: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """Pass on the lines, boxes added."""
        for is_code, line in super().wrap(source):
            yield is_code, ABOVE_LATIN.sub(_box, line)


def _box(match: re.Match[str]) -> str:
    letter = match[0]
    wide = unicodedata.east_asian_width(letter) in "WF"
    return f'<span class="wide">{letter}</span>' if wide else letter


def setup(app: Sphinx) -> dict[str, bool]:
    """Make Sphinx highlight with the formatter above."""
    PygmentsBridge.html_formatter = ColumnFormatter
    return {"parallel_read_safe": True, "parallel_write_safe": True}
