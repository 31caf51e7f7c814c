"""The text uses the field's terms: words of our own for them are left out."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT_OUT = {
    # pattern: the field's term
    r"linear maps?\b": "linear layer, projection",
    r"bends?\b": "nonlinearity, activation function",
    r"dice\b|die is thrown": "random numbers, random mask",
    r"(hidden|visible) cells?\b": "masked position",
    r"sees? nothing|seen nothing": "fully masked",
    r"hands? (over|on)\b|handed (over|on)\b": "value; passes",
    r"(looks?|looked|looking) (at|into|back|over|around|ahead)\b": "attends to",
    r"\bmix(es|ed|ing)? (value|the value|what)": "weighted sum of the values",
    r"\bmixtures?\b(?! of experts)": "weighted sum, output",
    r"\b(asks?|asked|asking) (as|louder|together)\b": "query",
    r"\bthinks? (about|on|for)\b": "feed-forward network",
    r"\bway of looking\b": "attention head",
    r"\blikeliest\b": "most probable",
    r"\bchances?\b": "probability",
    r"\b(goes?|went|gone|going) on\b": "continues, resumes",
    r"\busual way\b": "eager execution",
    r"\bmachine code\b": "compiled program",
    r"\bwaves?\b": "sinusoid",
    r"\b(nobody|everybody|whoever)\b": "no position, each process",
    r"\blook(s|ed|ing)? up\b": "attends to, embeds",
    r"\b(writes?|wrote|written|writing) down\b": "exports, records",
    r"\bpacked\b(?! documents)": "prepared, prepacked",
    r"\b(sorts?|sorted|sorting) weights?\b": "prepacked weights",
    r"\bprices?\b": "bias",
    r"\bword by word\b": "token by token",
    r"\bwriters?\b": "model, decoder",
    r"\bshouts?\b|\blouder\b": "larger scores",
    r"\bfeels? the (loss|distance)\b": "gradient",
    r"\blearnt\b": "learned",
    r"\btells? (apart|how|whether|what|the rest)\b": "shows, describes, returns",
}
READ = {".py", ".md", ".html", ".js", ".toml"}
STORY = "src/transformer_blocks/explorer/page/screens.js"
EXCEPTIONS = [
    # (file, text)
    (STORY, ""),  # whose readers learn the terms from it, in words that they know
    ("docs/_static/explorer_book.html", ""),  # which holds its scripts
    ("examples/translation/rnn_attention.py", "packed = pack_padded_sequence"),  # torch's name
    ("examples/translation/rnn_attention.py", "self.encoder(packed)"),
    ("benchmarks/harness.py", "differs by chance"),  # at random
]


@cache
def texts() -> dict[str, str]:
    """Read what a user reads: sources, programs, pages."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    for folder in ("src", "examples", "docs", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in READ and "_build" not in path.parts:
                found.append(path)
    return {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in found
        if "katex" not in path.parts
    }


@pytest.mark.parametrize("pattern", LEFT_OUT)
def test_the_text_uses_the_field_s_term(pattern: str) -> None:
    found = []
    for name, text in texts().items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            number, begin = text.count("\n", 0, match.start()), text.rfind("\n", 0, match.start())
            line = text[begin + 1 :].partition("\n")[0]
            if not any(file == name and allowed in line for file, allowed in EXCEPTIONS):
                found.append(f"{name}:{number + 1}: {match.group()!r} in {line.strip()!r}")
    assert found == [], f"write {LEFT_OUT[pattern]!r} instead"


def test_the_exceptions_are_needed() -> None:
    for name, text in EXCEPTIONS:
        assert text in (ROOT / name).read_text("utf-8"), (name, text)
