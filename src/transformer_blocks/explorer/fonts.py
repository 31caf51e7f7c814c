"""Fonts: where the glyphs of any language come from, for pictures and for pages."""

import importlib.util
import io
import logging
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_blocks.explorer.packages import check_packages

log = logging.getLogger(__name__)

FALLBACK = "DejaVu Sans"  # comes with matplotlib; has the mark of sentencepiece, U+2581
CARRIED = {  # packages that bring a font along, and its file
    "matplotlib_fontja": "ipaexg.ttf",
    "koreanize_matplotlib": "NanumGothic.ttf",
}
FOR_ASIA = "CJK", "ipa", "Nanum", "Unbatang", "Baekmuk", "TakaoGothic", "VL-Gothic", "wqy"
NOTES = [
    "FFTM",
    "PfEd",
    "TSI0",
    "TSI1",
    "TSI2",
    "TSI3",
    "TSI5",
]  # left in fonts by editors of fonts
LAST = 0x024F  # letters up to here, Latin ones, are left to the browser's own fonts


def carried_fonts() -> Iterator[Path]:
    """Find the font files that installed packages carry: IPAexGothic, NanumGothic."""
    for name, file in CARRIED.items():
        package = importlib.util.find_spec(name)
        if package is not None:
            for folder in package.submodule_search_locations or []:
                yield from Path(folder).rglob(file)


def font_for(text: str) -> Any:
    """Find fonts that together have a glyph for every letter of ``text``, for matplotlib.

    Matplotlib's own font has no kanji. IPAexGothic, which the package matplotlib-fontja carries,
    has; any Japanese, Chinese or Korean font of the system serves as well. Where letters remain
    without a glyph, one line in the log says what to install.

    Returns:
        ``matplotlib.font_manager.FontProperties``, for the ``fontproperties`` of any text.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    check_packages("a figure", "matplotlib", extra="plot")
    from matplotlib import font_manager

    for file in carried_fonts():
        if not any(font.fname == str(file) for font in font_manager.fontManager.ttflist):
            font_manager.fontManager.addfont(str(file))
    missing = {ord(letter) for letter in text if not letter.isspace()}
    families = [FALLBACK]
    by_preference = sorted(
        (font for font in font_manager.fontManager.ttflist if "Last Resort" not in font.name),
        key=lambda font: (
            font.name != FALLBACK,
            font.name != "IPAexGothic",
            "CJK" not in font.name,
        ),
    )
    for font in by_preference:
        if not missing:
            break
        glyphs = font_manager.get_font(font.fname).get_charmap()
        if missing.intersection(glyphs):
            missing.difference_update(glyphs)
            families.append(font.name)
    if missing:
        log.warning(
            "no font has %s: `pip install matplotlib-fontja`, or a font such as Noto Sans CJK",
            _named(missing),
        )
    return font_manager.FontProperties(family=list(dict.fromkeys(families)))


def embedded_fonts(text: str, family: str) -> str:
    """Cut the glyphs of ``text`` out of fonts, as rules for a style sheet.

    Letters of the Latin alphabets are left to the reader's own fonts. Without the package fonttools
    or a font with the glyphs, so are the others; the log says which.

    Args:
        text: All that a page shows.
        family: The name that the fonts get.

    Returns:
        ``@font-face`` rules with the fonts inside; empty if nothing is to be embedded.
    """
    missing = {ord(letter) for letter in text if ord(letter) > LAST and not letter.isspace()}
    rules = []
    has_fonttools = importlib.util.find_spec("fontTools") is not None
    if missing and has_fonttools:
        for file in _all_fonts():
            if not missing:
                break
            rule, found = _subset(file, missing, family)
            missing -= found
            rules += [rule] if found else []
    if missing:
        hint = "" if has_fonttools else '; pip install "transformer-blocks[plot]" brings some'
        log.warning(
            "no font to embed has %s: the reader's own must show it%s", _named(missing), hint
        )
    return "\n".join(rules)


def _named(letters: set[int]) -> str:
    """Name up to ten letters: what can be shown as itself, the rest by its number in Unicode."""
    first = sorted(letters)[:10]
    return " ".join(chr(each) if chr(each).isprintable() else f"U+{each:04X}" for each in first)


def _all_fonts() -> Iterator[Path]:
    """Yield the fonts of packages, then those of the system that are for Chinese, Japanese, Korean.

    Others are not looked through: the reader's own system has as much, and knows how to join the
    letters of scripts that need it.
    """
    yield from carried_fonts()
    if importlib.util.find_spec("matplotlib") is not None:
        from matplotlib import font_manager

        yield Path(font_manager.findfont(FALLBACK))
        files = sorted(map(Path, font_manager.findSystemFonts()))
        yield from (file for file in files if any(name in file.name for name in FOR_ASIA))


def _subset(file: Path, wanted: set[int], family: str) -> tuple[str, set[int]]:
    """Cut glyphs out of a font file; tell which it had."""
    from fontTools import subset
    from fontTools.ttLib import TTFont, TTLibError

    options = subset.Options(layout_features=[], hinting=False, notdef_outline=True)
    options.name_IDs = []
    options.drop_tables += NOTES
    packed = io.BytesIO()
    try:
        with TTFont(file, fontNumber=0, lazy=True, recalcTimestamp=False) as font:
            found = wanted & set(font.getBestCmap() or ())
            if not found:
                return "", set()
            cutter = subset.Subsetter(options)
            cutter.populate(unicodes=found)
            cutter.subset(font)
            font.flavor = "woff"
            font.save(packed)
    except (OSError, TTLibError) as error:
        log.warning("%s is no font that can be read: %s", file, error)
        return "", set()
    ranges = ", ".join(f"U+{letter:X}" for letter in sorted(found))
    data = b64encode(packed.getvalue()).decode()
    return (
        f'@font-face {{ font-family: "{family}"; unicode-range: {ranges};'
        f' src: url("data:font/woff;base64,{data}") format("woff") }}'
    ), found
