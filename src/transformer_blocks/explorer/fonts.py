"""Fonts: find and embed glyphs of any language, for figures and for pages."""

import importlib.util
import io
import logging
from base64 import b64encode
from collections.abc import Iterator
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
EDITOR_TABLES = [
    "FFTM",
    "PfEd",
    "TSI0",
    "TSI1",
    "TSI2",
    "TSI3",
    "TSI5",
]  # tables that font editors leave in font files
LAST_LATIN = 0x024F  # characters up to here are left to the browser's fonts


def bundled_fonts() -> Iterator[Path]:
    """Yield the font files of installed packages: IPAexGothic, NanumGothic."""
    for name, file in BUNDLED.items():
        package = importlib.util.find_spec(name)
        if package is not None:
            for folder in package.submodule_search_locations or []:
                yield from Path(folder).rglob(file)


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

    for file in bundled_fonts():
        if not any(font.fname == str(file) for font in font_manager.fontManager.ttflist):
            font_manager.fontManager.addfont(str(file))
    missing = {ord(character) for character in text if not character.isspace()}
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
            _describe(missing),
        )
    return font_manager.FontProperties(family=list(dict.fromkeys(families)))


def embedded_fonts(text: str, family: str) -> str:
    """Embed subsets of fonts with the glyphs of ``text`` into rules of a style sheet.

    Latin characters are left to the browser's fonts. Without the package fonttools or a font with
    the glyphs, other characters are too, and a warning names them.

    Args:
        text: All text of the page.
        family: Font family name of the embedded fonts.

    Returns:
        ``@font-face`` rules with embedded fonts; empty if no font is needed.
    """
    missing = {ord(each) for each in text if ord(each) > LAST_LATIN and not each.isspace()}
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
        hint = "" if has_fonttools else '; pip install "transformer-blocks[plot]" installs some'
        log.warning(
            "no font to embed has %s: the browser's fonts must show them%s",
            _describe(missing),
            hint,
        )
    return "\n".join(rules)


def _describe(characters: set[int]) -> str:
    """List up to ten characters: printable ones as they are, the others by their code point."""
    first = sorted(characters)[:10]
    return " ".join(chr(each) if chr(each).isprintable() else f"U+{each:04X}" for each in first)


def _all_fonts() -> Iterator[Path]:
    """Yield the fonts of packages, then the system's Chinese, Japanese and Korean fonts.

    Other system fonts are not searched: the browser has them too, and can shape the scripts that
    need it.
    """
    yield from bundled_fonts()
    if importlib.util.find_spec("matplotlib") is not None:
        from matplotlib import font_manager

        yield Path(font_manager.findfont(FALLBACK))
        files = sorted(map(Path, font_manager.findSystemFonts()))
        yield from (file for file in files if any(name in file.name for name in CJK_NAMES))


def _subset(file: Path, characters: set[int], family: str) -> tuple[str, set[int]]:
    """Build a rule with a subset of a font file; return it and the characters it has."""
    from fontTools import subset
    from fontTools.ttLib import TTFont, TTLibError

    options = subset.Options(layout_features=[], hinting=False, notdef_outline=True)
    options.name_IDs = []
    options.drop_tables += EDITOR_TABLES
    buffer = io.BytesIO()
    try:
        with TTFont(file, fontNumber=0, lazy=True, recalcTimestamp=False) as font:
            found = characters & set(font.getBestCmap() or ())
            if not found:
                return "", set()
            subsetter = subset.Subsetter(options)
            subsetter.populate(unicodes=found)
            subsetter.subset(font)
            font.flavor = "woff"
            font.save(buffer)
    except (OSError, TTLibError) as error:
        log.warning("%s cannot be read as a font: %s", file, error)
        return "", set()
    ranges = ", ".join(f"U+{character:X}" for character in sorted(found))
    data = b64encode(buffer.getvalue()).decode()
    return (
        f'@font-face {{ font-family: "{family}"; unicode-range: {ranges};'
        f' src: url("data:font/woff;base64,{data}") format("woff") }}'
    ), found
