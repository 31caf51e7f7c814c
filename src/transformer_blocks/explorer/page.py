"""The page: all weights of a model in one file that opens anywhere."""

import base64
import hashlib
import json
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_blocks.explorer.fonts import embedded_fonts

LEVELS = 4095  # 12 bits a weight: a step is 0.024 %
FAMILY = "explorer"  # the name of the embedded font


@dataclass(frozen=True)
class AttentionMaps:
    """The attention of a stack of layers over one sentence.

    Args:
        name: Such as "Cross-attention".
        weights: Between 0 and 1. Shape (layers, H, L, S).
        queries: The L tokens that look.
        keys: The S tokens that are looked at; None for self-attention, where they are the same.
        hidden: Which cells a mask hides. Shape (L, S).
        steps: Whether the rows are the steps of the :class:`Writing` that the page shows.

    Raises:
        TypeError: If ``hidden`` is not boolean.
        ValueError: If shapes do not fit, or a weight is not a number from 0 to 1.
    """

    name: str
    weights: Tensor
    queries: Sequence[str]
    keys: Sequence[str] | None = None
    hidden: Tensor | None = None
    steps: bool = False

    def __post_init__(self) -> None:
        size = len(self.queries), len(self.columns)
        if self.weights.dim() != 4 or tuple(self.weights.shape[2:]) != size:
            raise ValueError(
                f"weights of {self.name!r} must have shape (layers, H, L, S) with (L, S) = {size} "
                f"tokens, got {tuple(self.weights.shape)}"
            )
        if not self.weights.numel():
            raise ValueError(f"weights of {self.name!r} must not be empty, got none")
        low, high = float(self.weights.detach().min()), float(self.weights.detach().max())
        if not -1e-3 <= low <= high <= 1 + 1e-3:  # which NaN is not either
            raise ValueError(
                f"weights of {self.name!r} must be numbers from 0 to 1, got {low} to {high}"
            )
        if self.hidden is not None and self.hidden.dtype != torch.bool:
            raise TypeError(f"hidden must be bool, got dtype={self.hidden.dtype}")
        if self.hidden is not None and tuple(self.hidden.shape) != size:
            raise ValueError(
                f"hidden must have shape (L, S) = {size}, got {tuple(self.hidden.shape)}"
            )

    def __repr__(self) -> str:
        """Name the block and its sizes, not every weight."""
        return f"AttentionMaps({self.name!r}, weights of shape {tuple(self.weights.shape)})"

    @property
    def columns(self) -> Sequence[str]:
        """The tokens that are looked at."""
        return self.queries if self.keys is None else self.keys


@dataclass(frozen=True)
class Writing:
    """What a model wrote, with what it might have written instead.

    Args:
        tokens: One after the other.
        candidates: For each, the likeliest words at its place, with their probabilities.

    Raises:
        ValueError: If there are not as many lists of candidates as tokens, or no tokens.
    """

    tokens: Sequence[str]
    candidates: Sequence[Sequence[tuple[str, float]]] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.candidates):
            raise ValueError(
                "writing must have candidates for each of its tokens, got "
                f"{len(self.tokens)} tokens and {len(self.candidates)} lists"
            )
        for words in self.candidates:
            for word, chance in words:
                if not 0 <= chance <= 1:  # which NaN is not
                    raise ValueError(f"chance of {word!r} must be in [0, 1], got {chance}")


@dataclass(frozen=True)
class Explorer:
    """A page that shows attention; save it, or leave it at the end of a notebook's cell.

    Args:
        blocks: What to show, in order.
        title: Above it.
        writing: What was written, step by step.

    Raises:
        ValueError: If there is nothing to show.

    Example:
        >>> words = ["the", "cat", "sleeps"]
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> with record_attention(encoder) as maps:
        ...     _ = encoder(torch.randn(1, 3, 16))
        >>> weights = torch.stack([calls[0][0] for calls in maps.values()])  # (layers, H, L, L)
        >>> page = Explorer([AttentionMaps("Self-attention", weights, words)])
        >>> len(page.html) < 100_000  # one file, which needs no network
        True
    """

    blocks: Sequence[AttentionMaps]
    title: str = "Attention"
    writing: Writing | None = None

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ValueError("blocks must hold at least one, got none")
        for block in self.blocks:
            if block.steps and (
                self.writing is None or len(block.queries) != len(self.writing.tokens)
            ):
                written = 0 if self.writing is None else len(self.writing.tokens)
                raise ValueError(
                    f"rows of {block.name!r} must be the steps of the writing, got "
                    f"{len(block.queries)} rows and {written} steps"
                )

    @property
    def html(self) -> str:
        """The page, with scripts, styles, fonts and weights in one document that loads nothing."""
        folder = files("transformer_blocks.explorer")
        template, style, script = (
            folder.joinpath(name).read_text(encoding="utf-8")
            for name in ("page.html", "page.css", "page.js")
        )
        content = self._content()
        text = self.title + json.dumps(content, ensure_ascii=False)
        style = f"{embedded_fonts(text, FAMILY)}\n{style}"
        policy = (
            f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
            "font-src data:; base-uri 'none'; form-action 'none'"
        )
        parts = {
            "policy": policy,
            "title": escape(_printable(self.title)),
            "style": style,
            "data": _as_script_data(content),
            "script": script,
        }
        pieces = template.split("{{")  # in one pass: a title may hold the name of a part
        return pieces[0] + "".join(
            parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces[1:])
        )

    def save(self, path: Path | str) -> None:
        """Write the page, whole or not at all."""
        path, html = Path(path), self.html
        partial = path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            created = partial.open("x", encoding="utf-8")  # "x" follows no symbolic link
            try:
                with created as file:
                    file.write(html)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:  # a full disk does not tell which file it was
            raise OSError(error.errno, error.strerror, str(path)) from error

    def _repr_html_(self) -> str:
        """Show the page in a frame that can reach nothing around it."""
        return (
            "<iframe sandbox='allow-scripts allow-downloads' style='width:100%;height:760px;"
            f'border:1px solid #8886\' title="{escape(self.title)}" '
            f'srcdoc="{escape(self.html)}"></iframe>'
        )

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = {"levels": LEVELS, "blocks": list(map(_pack, self.blocks))}
        if self.writing is not None:
            content["writing"] = {
                "tokens": list(self.writing.tokens),
                "next": [
                    [[word, round(float(chance), 4)] for word, chance in words]
                    for words in self.writing.candidates
                ],
            }
        return content


def save_explorer(
    path: Path | str,
    blocks: Sequence[AttentionMaps],
    *,
    title: str = "Attention",
    writing: Writing | None = None,
) -> None:
    """Write an :class:`Explorer` to one HTML file, whole or not at all.

    Args:
        path: The file.
        blocks: What to show, in order.
        title: Above it.
        writing: What was written, step by step.
    """
    Explorer(blocks, title, writing).save(path)


def _pack(block: AttentionMaps) -> dict[str, Any]:
    """Turn a block into what the page reads: 12 bits a weight, low and high bytes apart."""
    layers, heads = block.weights.shape[:2]
    rounded = (block.weights.detach().double().clamp(0, 1) * LEVELS).round()
    numbers = rounded.to(torch.int32).flatten()
    planes = bytes((numbers & 255).tolist()) + bytes((numbers >> 8).tolist())
    packed: dict[str, Any] = {
        "name": block.name,
        "layers": layers,
        "heads": heads,
        "queries": list(block.queries),
        "keys": list(block.columns),
        "self": block.keys is None,
        "steps": block.steps,
        "weights": base64.b64encode(zlib.compress(planes, 9)).decode(),
    }
    if block.hidden is not None:
        cells = bytes(block.hidden.flatten().int().tolist())
        packed["hidden"] = base64.b64encode(cells).decode()
    return packed


def _as_script_data(content: object) -> str:
    """Write JSON that a browser cannot take for the end of its element, or for markup."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _printable(text: str) -> str:
    """Replace what UTF-8 cannot write, halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _hash(text: str) -> str:
    """Name a script or a style in a Content-Security-Policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
