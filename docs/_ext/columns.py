"""Columns: make a Japanese character in a code block exactly two columns wide, in any font.

The tables of ``format_mask`` count two columns for such a character, as terminals do. A browser
takes Japanese and Latin characters from different fonts, whose widths do not match. Therefore each
wide character of a code block is put into a box that is two columns wide.
"""

import re
from collections.abc import Iterator

from pygments.formatters import HtmlFormatter
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge

WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff01-\uff60]"
)


class ColumnFormatter(HtmlFormatter):
    """Pygments' HTML formatter, with a box around each wide character."""

    def wrap(self, source: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """Yield the formatted lines with the boxes."""
        for is_code, line in super().wrap(source):
            yield is_code, WIDE.sub(r'<span class="wide">\g<0></span>', line)


def setup(app: Sphinx) -> dict[str, bool]:
    """Make Sphinx highlight code with this formatter."""
    PygmentsBridge.html_formatter = ColumnFormatter
    return {"parallel_read_safe": True, "parallel_write_safe": True}
