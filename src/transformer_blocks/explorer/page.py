"""The page: all attention maps of a model in one HTML file."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from torch import Tensor

from transformer_blocks._contracts import (
    Mask,
    Probability,
    Size,
    Vectors,
    check,
    checked,
)
from transformer_blocks._version import __version__
from transformer_blocks.explorer.arithmetic import (
    TOLERANCE,
    Arithmetic,
    as_bytes,
    as_text,
    compress,
    find_difference,
    largest_size,
    serialize_arithmetic,
    serialize_lines,
)
from transformer_blocks.explorer.checks import Text, Tokens, check_weights
from transformer_blocks.explorer.fonts import embedded_fonts
from transformer_blocks.explorer.live import LiveModel, serialize_live
from transformer_blocks.explorer.still import still_of
from transformer_blocks.explorer.style import LINES, PALETTES
from transformer_blocks.explorer.tokens import encodable, token_labels
from transformer_blocks.files import write_atomically
from transformer_blocks.inspection.patterns import PATTERNS

LEVELS = 4095  # 12 bits per weight, a resolution of 0.024 %
FAMILY = "explorer"  # font family of the embedded fonts
STYLES = ("page", "live", "story", "overview", "map", "why", "screens")
SCRIPTS = (  # in this order, in one scope
    *("data", "registry", "style", "state", "scene", "sentences"),
    *("story", "ribbons", "overview", "map"),
    *("arithmetic", "patterns", "charts", "why", "lens", "poster", "screens"),
)
TIMES = ("times",)  # where the page has earlier or other pages
LIVE = ("blocks", "tokenizer", "search", "live")  # where the page has a model


@checked
@dataclass(frozen=True)
class AttentionMaps:
    """The attention weights of a stack of layers for one sequence.

    Args:
        name: Title of these maps, for example "Cross-attention".
        weights: Attention weights from 0 to 1, of shape (layers, H, L, S).
        queries: The L tokens of the queries.
        keys: The S tokens of the keys; None for self-attention, where they are the queries.
        mask: Boolean mask of shape (L, S), where True hides; masked positions are hatched.
        is_decoding: Whether the queries are the decoding steps in the page's
            :class:`DecodingSteps`.
        arithmetic: The queries, keys and values from which the weights were computed, to show how
            each weight arises; see :func:`~transformer_blocks.explorer.reproduces`.
        query_axis: Name of the axis of the queries.
        key_axis: Name of the axis of the keys.

    Raises:
        TypeError: If an argument is of another type, or ``mask`` is not boolean.
        ValueError: If shapes do not fit, a weight is not a number from 0 to 1, or ``arithmetic``
            does not reproduce the weights.
    """

    name: Text
    weights: Annotated[Tensor, Vectors("layers H L S")]
    queries: Tokens
    keys: Tokens | None = None
    mask: Mask | None = None
    is_decoding: bool = False
    arithmetic: Arithmetic | None = None
    query_axis: Text = "query"
    key_axis: Text = "key"

    def __post_init__(self) -> None:
        name = f"weights of {self.name!r}"
        check_weights(name, self.weights, self.queries, self.key_tokens, self.mask)
        low, high = float(self.weights.detach().min()), float(self.weights.detach().max())
        if not -1e-3 <= low <= high <= 1 + 1e-3:  # false for NaN too
            raise ValueError(f"{name} must be numbers from 0 to 1, got {low} to {high}")
        if self.arithmetic is not None:
            difference, _ = find_difference(self.arithmetic, self.weights, self.mask)
            if difference > TOLERANCE:
                raise ValueError(
                    f"arithmetic of {self.name!r} must reproduce its weights to {TOLERANCE}, got "
                    + (f"a difference of {difference:.4f}" if difference <= 1 else "other shapes")
                )

    def __repr__(self) -> str:
        """Show the name and the shape instead of every weight."""
        return f"AttentionMaps({self.name!r}, weights of shape {tuple(self.weights.shape)})"

    @property
    def key_tokens(self) -> Sequence[str]:
        """The S tokens of the keys; in self-attention, those of the queries."""
        return self.queries if self.keys is None else self.keys


@checked
@dataclass(frozen=True)
class DecodingSteps:
    """The tokens that a model generated, with the candidates of each decoding step.

    Args:
        tokens: The generated tokens, one per decoding step.
        candidates: For each step, the most probable tokens with their probabilities.
        layers: For each layer of the decoder, and for each step, the most probable tokens if the
            output layer read this layer's output, with their probabilities; see
            :func:`~transformer_blocks.inspection.logit_lens`.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If there are no tokens, or not one list of candidates per token, or if a
            probability is not between 0 and 1.
    """

    tokens: Tokens
    candidates: Sequence[Sequence[tuple[str, float]]] = field(repr=False)
    layers: Sequence[Sequence[Sequence[tuple[str, float]]]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for lists in (self.candidates, *(self.layers or ())):
            if not self.tokens or len(self.tokens) != len(lists):
                raise ValueError(
                    "decoding steps must have candidates for each of their tokens, got "
                    f"{len(self.tokens)} tokens and {len(lists)} lists"
                )
            for candidates in lists:
                check(Tokens, candidates=[token for token, _ in candidates])
                for token, probability in candidates:
                    check(Probability, **{f"probability of {token!r}": probability})


@checked
@dataclass(frozen=True)
class Explorer:
    """A page that shows attention maps: save it, or return it from a cell of a notebook.

    Args:
        maps: Attention maps to show, for example those of the encoder's self-attention, the
            decoder's self-attention and the cross-attention, in the order of their buttons.
        title: Title of the page.
        decoding: What the model generated, with the candidates of each step.
        model: Name of the model, which saved pictures show.
        text: What the model read, as one would type it.
        live: The model itself, with which the page translates or continues other texts.
        arithmetic_kilobytes: Largest size of the maps' arithmetic, in kB without compression. If
            it takes more, it is left out; the page says so, and how much it takes.
        earlier: Pages of the same sequence at earlier times of the training, oldest first, which
            a slider shows, without their arithmetic. The ``model`` of each names its time, for
            example "Transformer, 100 updates".
        others: Pages of other sequences, each with earlier ones of its own, to choose from by
            their ``text``. They, too, are without arithmetic; if the page has a model, it computes
            their maps.
        docs: Address of the project's documentation, if the page stands beside it: the steps of
            the arithmetic then link to their chapters and to the reference.
        languages: Language codes of what the model reads and of what it writes, for example
            ``("ja", "en")``.
        glosses: For tokens that the model reads, without markers of subwords, what they mean in the
            reader's language; the page shows it below them.
        slots: For each part of a sentence that a reader can put together, the texts to choose from
            and what they mean. The page's model reads them.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If there are no maps, their queries do not match the decoding steps, or an
            earlier or another page has maps of other names.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder, record_attention
        >>> from transformer_blocks.explorer import AttentionMaps, Explorer
        >>> tokens = ["the", "cat", "sleeps"]
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> with record_attention(encoder) as recorded:
        ...     _ = encoder(torch.randn(1, 3, 16))
        >>> weights = torch.stack([calls[0][0] for calls in recorded.values()])
        >>> page = Explorer([AttentionMaps("Self-attention", weights, tokens)])
        >>> len(page.html) < 200_000  # one file without external resources
        True
    """

    maps: Sequence[AttentionMaps]
    title: Text = "Attention"
    decoding: DecodingSteps | None = None
    model: Text = ""
    text: Text = ""
    live: LiveModel | None = None
    arithmetic_kilobytes: Size = 400
    earlier: Sequence[Self] = field(default=(), repr=False)
    others: Sequence[Self] = field(default=(), repr=False)
    docs: Text = ""
    languages: Sequence[Text] = ()
    glosses: Mapping[str, str] = field(default_factory=dict, repr=False)
    slots: Sequence[Sequence[tuple[str, str]]] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.maps:
            raise ValueError("maps must not be empty, got none")
        names = [each.name for each in self.maps]
        for name, pages in (("earlier", self.earlier), ("others", self.others)):
            check(Sequence[Explorer], **{name: pages})
            for page in pages:
                if (found := [each.name for each in page.maps]) != names:
                    raise ValueError(f"{name} must be pages with the maps {names}, got {found}")
        steps = 0 if self.decoding is None else len(self.decoding.tokens)
        for each in self.maps:
            if each.is_decoding and len(each.queries) != steps:
                raise ValueError(
                    f"queries of {each.name!r} must be the decoding steps, got "
                    f"{len(each.queries)} queries and {steps} steps"
                )

    @property
    def html(self) -> str:
        """The page as one document with scripts, styles, fonts and weights; it loads no files."""
        content = self._content()
        letters = self.live.characters if self.live else ""
        text = encodable(self.title + letters + json.dumps(content, ensure_ascii=False))
        theme = _read("theme.js")
        times, live = self.earlier or self.others, self.live
        names = [*SCRIPTS, *(TIMES if times else ()), *(LIVE if live else ()), "main", "start"]
        parts = [read_script(name) for name in names]
        script = '"use strict";\n(async () => {\n' + "\n".join(parts) + "})();"
        script = re.sub(r"^ *(//.*\n)?|  // .*|(?<=[{(,;])\n", "", script, flags=re.MULTILINE)
        style = "\n".join(
            (embedded_fonts(text, FAMILY), _variables(), *(_read(f"{name}.css") for name in STYLES))
        )
        policy = (
            f"default-src 'none'; script-src {_hash(theme)} {_hash(script)}; "
            f"style-src {_hash(style)}; font-src data:; base-uri 'none'; form-action 'none'"
        )
        contents = {
            "policy": policy,
            "title": escape(encodable(self.title)),
            "version": __version__,
            "theme": theme,
            "style": style,
            "still": self._still(),
            "data": _as_script_data(content),
            "script": script,
        }
        # In one pass, because the title may hold such a placeholder.
        return re.sub(r"\{\{(\w+)\}\}", lambda found: contents[found[1]], _read("page.html"))

    def save(self, path: Path | str) -> None:
        """Save the page to a file; if that fails, an earlier file is unchanged.

        Args:
            path: The file. A device or a pipe is written to, not replaced.

        Raises:
            OSError: If the disk fails, or ``path`` is a symbolic link or a folder.
        """
        write_atomically(path, self.html.encode())

    def _repr_html_(self) -> str:
        """Show the page in a sandboxed frame."""
        return (
            "<iframe sandbox='allow-scripts allow-downloads' style='width:100%;height:760px;"
            f'border:1px solid #8886\' title="{escape(encodable(self.title))}" '
            f'srcdoc="{escape(self.html)}"></iframe>'
        )

    def _still(self) -> str:
        """Draw what the page shows without scripts: of a translation, the cross-attention."""
        cross = [each for each in self.maps if each.is_decoding and each.keys is not None]
        shown = (cross or self.maps)[-1 if cross else 0]
        return still_of(shown.weights[-1], shown.queries, shown.key_tokens)

    def _content(self) -> dict[str, Any]:
        size = largest_size([each.arithmetic for each in self.maps if each.arithmetic is not None])
        fits = size <= self.arithmetic_kilobytes
        return {
            **_serialize_page(self, has_arithmetic=fits),
            "others": [_serialize_page(each, has_maps=not self.live) for each in self.others],
            "levels": LEVELS,
            "live": None if self.live is None else serialize_live(self.live),
            "style": {
                "lines": LINES,
                "palettes": {theme: palette._asdict() for theme, palette in PALETTES.items()},
            },
            "languages": list(self.languages) or [self.live.language if self.live else ""],
            "glosses": dict(self.glosses),
            "slots": self.slots,
            "rules": {each.name: each.rule for each in PATTERNS},
            "lines": serialize_lines() if fits and size else None,
            "docs": self.docs,
            "leftOut": None if fits else math.ceil(size),
        }


def _serialize_page(
    page: Explorer, *, has_maps: bool = True, has_arithmetic: bool = False
) -> dict[str, Any]:
    """Convert what a page shows of one sequence, at all times of a training, to JSON."""
    maps = [_serialize(each, has_arithmetic=has_arithmetic) for each in page.maps if has_maps]
    steps = page.decoding if has_maps else None
    return {
        "title": page.title,
        "model": page.model,
        "text": page.text,
        "maps": maps or None,
        "decoding": None if steps is None else _serialize_steps(steps),
        "earlier": [_serialize_page(each) for each in page.earlier],
    }


def _serialize(maps: AttentionMaps, *, has_arithmetic: bool) -> dict[str, Any]:
    """Convert attention maps to JSON: 12 bits per weight, low bytes before high bytes."""
    layers, heads = maps.weights.shape[:2]
    queries, query_words = _labels(maps.queries)
    keys, key_words = _labels(maps.key_tokens)
    numbers = (maps.weights.detach().cpu().double().clamp(0, 1) * LEVELS).round()
    weights, mask, arithmetic = numbers / LEVELS, maps.mask, maps.arithmetic
    return {
        "name": maps.name,
        "layers": layers,
        "heads": heads,
        "queries": queries,
        "queryWords": query_words,
        "keys": keys,
        "keyWords": key_words,
        "isSelf": maps.keys is None,
        "isDecoding": maps.is_decoding,
        "queryAxis": maps.query_axis,
        "keyAxis": maps.key_axis,
        "weights": compress(numbers.to(torch.int32)),
        "mask": None if mask is None else as_text(as_bytes(mask)),
        "arithmetic": serialize_arithmetic(arithmetic, weights, mask)
        if has_arithmetic and arithmetic is not None
        else None,
    }


def _serialize_steps(decoding: DecodingSteps) -> dict[str, Any]:
    """Convert decoding steps to JSON."""
    labels, words = _labels(decoding.tokens)
    return {
        "tokens": labels,
        "words": words,
        "candidates": _serialize_candidates(decoding, decoding.candidates),
        "layers": decoding.layers
        and [_serialize_candidates(decoding, each) for each in decoding.layers],
    }


def _serialize_candidates(
    decoding: DecodingSteps, steps: Sequence[Sequence[tuple[str, float]]]
) -> list[list[list[Any]]]:
    """Convert candidates to their label, their probability, and 1 for the generated token."""
    candidates, given = [], len(decoding.tokens)
    for chosen, step in zip(decoding.tokens, steps, strict=True):
        # The markers of the generated tokens show which tokenizer made the candidates, too.
        labels = token_labels([*decoding.tokens, *(token for token, _ in step)])
        candidates.append(
            [
                [label.text, round(float(probability), 7), int(token == chosen)]
                for label, (token, probability) in zip(labels[given:], step, strict=True)
            ]
        )
    return candidates


def _labels(tokens: Sequence[str]) -> tuple[list[str], str]:
    """Return tokens without markers of subwords, and a 1 for each that begins a word."""
    labels = token_labels(tokens)
    return [label.text for label in labels], "".join("01"[label.begins_word] for label in labels)


def _read(name: str) -> str:
    """Read one of the files that a page is made of."""
    folder = files("transformer_blocks.explorer").joinpath("page")
    return folder.joinpath(name).read_text(encoding="utf-8")


def read_script(name: str) -> str:
    """Read one of the page's modules as a part of one script, without its imports and exports."""
    return re.sub(r"^import .*\n|^export ", "", _read(f"{name}.js"), flags=re.MULTILINE)


def _variables() -> str:
    """Write the palettes as CSS variables, the light one for documents without a theme."""
    rules = []
    for theme, palette in PALETTES.items():
        selector = ":root" if theme == "light" else f':root[data-theme="{theme}"]'
        names = ("background", "panel", "text", "muted", "accent")
        values = "; ".join(f"--{name}: {getattr(palette, name)}" for name in names)
        rules.append(f"{selector} {{ {values} }}")
    return "\n".join(rules)


def _as_script_data(content: object) -> str:
    """Format JSON that cannot end its script element and contains no markup."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    """Compute the hash that allows a script or a style in a Content-Security-Policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
