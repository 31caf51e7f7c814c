"""Fonts: find and embed glyphs of any language, for figures and for pages."""

import importlib.util
import io
import logging
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from transformer_blocks.explorer.packages import check_packages

log = logging.getLogger(__name__)

FALLBACK = "DejaVu Sans"  # comes with matplotlib; has U+2581, which marks words in SentencePiece
BUNDLED = {  # packages that contain a font, and its file
    "matplotlib_fontja": "ipaexg.ttf",
    "koreanize_matplotlib": "NanumGothic.ttf",
}
CJK_NAMES = "CJK", "ipa", "Nanum", "Unbatang", "Baekmuk", "TakaoGothic", "VL-Gothic", "wqy"
EDITOR_TABLES = ("FFTM", "PfEd", "TSI0", "TSI1", "TSI2", "TSI3", "TSI5")  # of font editors
JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u1800-\u18af\ufb50-\ufdff\ufe70-\ufeff]"
)  # scripts
LAST_LATIN = 0x024F  # characters up to here are left to the browser's fonts


def known_fonts() -> list[Any]:
    """List matplotlib's fonts: those of installed packages, its own, other CJK fonts, the others.

    CJK stands for Chinese, Japanese and Korean. The packages have IPAexGothic and NanumGothic.
    """
    from matplotlib.font_manager import fontManager

    bundled: list[str] = []
    for name, file in BUNDLED.items():
        package = importlib.util.find_spec(name)
        for folder in package.submodule_search_locations or () if package else ():
            bundled += map(str, Path(folder).rglob(file))
    known = {font.fname for font in fontManager.ttflist}
    for path in bundled:
        if path not in known:
            fontManager.addfont(path)

    def preference(font: Any) -> tuple[int, bool, bool]:
        place = bundled.index(font.fname) if font.fname in bundled else len(bundled)
        return place, font.name != FALLBACK, not is_cjk(font)

    found = (font for font in fontManager.ttflist if Path(font.fname).is_file())  # not removed
    return sorted((font for font in found if "Last Resort" not in font.name), key=preference)


def is_cjk(font: Any) -> bool:
    """Return whether a font's file has the name of a Chinese, Japanese or Korean font."""
    return any(name in Path(font.fname).name for name in CJK_NAMES)


def font_for(text: str) -> Any:
    """Find matplotlib fonts that together have a glyph for every character of ``text``.

    Matplotlib's default font has no kanji. IPAexGothic, which the package matplotlib-fontja
    contains, has them, and so has any Japanese, Chinese or Korean font of the system. If characters
    remain without a glyph, a warning says what to install.

    Args:
        text: All text that the font must show.

    Returns:
        A ``matplotlib.font_manager.FontProperties``, for the ``fontproperties`` of any text.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    check_packages("a figure", "matplotlib", extra="plot")
    from matplotlib import font_manager

    fallback = font_manager.get_font(font_manager.findfont(FALLBACK)).get_charmap()
    missing = {ord(each) for each in text if not each.isspace()} - set(fallback)
    families = [FALLBACK]
    families += [font.name for font, _ in _fonts_with(missing, known_fonts() if missing else ())]
    if missing:
        _warn(missing, "`pip install matplotlib-fontja`, or a font such as Noto Sans CJK")
    return font_manager.FontProperties(family=list(dict.fromkeys(families)))


def embedded_fonts(text: str, family: str) -> str:
    """Embed subsets of fonts with the glyphs of ``text`` into rules of a style sheet.

    Latin characters are left to the browser's fonts, and so are scripts whose letters join, such as
    Arabic: a subset has no rules of how they join. Without matplotlib or a font with the
    glyphs, other characters are too, and a warning names them.

    Args:
        text: All text of the page.
        family: Font family name of the embedded fonts.

    Returns:
        ``@font-face`` rules with embedded fonts; empty if no font is needed.
    """
    text = JOINING.sub("", text)
    missing = {ord(each) for each in text if ord(each) > LAST_LATIN and not each.isspace()}
    has_packages = importlib.util.find_spec("matplotlib") is not None
    rules: list[str] = []
    if missing and has_packages:
        # The browser has other fonts too, and can shape the scripts that need it.
        fonts = (font for font in known_fonts() if font.name == FALLBACK or is_cjk(font))
        found = _fonts_with(missing, fonts)
        rules = [_subset(Path(font.fname), characters, family) for font, characters in found]
    if missing:
        hint = "" if has_packages else '; pip install "transformer-blocks[plot]" installs some'
        _warn(missing, f"the browser's fonts must show them{hint}")
    return "\n".join(rules)


def _fonts_with(missing: set[int], fonts: Iterable[Any]) -> Iterator[tuple[Any, set[int]]]:
    """Yield each font with glyphs of missing characters, which are then no longer missing."""
    from matplotlib.font_manager import get_font

    for font in fonts:
        if missing and (found := missing.intersection(get_font(font.fname).get_charmap())):
            missing -= found
            yield font, found


def _warn(characters: set[int], hint: str) -> None:
    """Log up to ten characters: printable ones as they are, the others by their code point."""
    names = [chr(each) if chr(each).isprintable() else f"U+{each:04X}" for each in characters]
    log.warning("no font has %s: %s", " ".join(sorted(names)[:10]), hint)


def _subset(file: Path, characters: set[int], family: str) -> str:
    """Build a rule with the glyphs of some characters of a font file."""
    from fontTools import subset
    from fontTools.ttLib import TTFont

    options = subset.Options(layout_features=[], hinting=False, notdef_outline=True, name_IDs=[])
    options.drop_tables += EDITOR_TABLES
    buffer = io.BytesIO()
    with TTFont(file, fontNumber=0, lazy=True, recalcTimestamp=False) as font:
        subsetter = subset.Subsetter(options)
        subsetter.populate(unicodes=characters)
        subsetter.subset(font)
        font.flavor = "woff"
        font.save(buffer)
    ranges = ", ".join(f"U+{character:X}" for character in sorted(characters))
    data = b64encode(buffer.getvalue()).decode()
    return (
        f'@font-face {{ font-family: "{family}"; unicode-range: {ranges};'
        f' src: url("data:font/woff;base64,{data}") format("woff") }}'
    )
