"""Architecture: figure 1 of the paper, drawn from the modules of this library.

``.. architecture::`` builds a small Transformer, runs it once, and records which modules are called
in which order, with hooks. The figure shows these calls: a box for each module, an arrow around
each sublayer for its residual connection, and an arrow from the encoder to each attention whose
keys are the encoder's output. A box links to the chapter that explains its module, or to a page of
the reference as long as there is no such chapter. A module whose class is missing from
:data:`BOXES` makes the build fail.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import torch
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective
from torch import Tensor, nn

from transformer_blocks import (
    EncoderDecoder,
    Residual,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
)


class Box(NamedTuple):
    """How the figure shows a module."""

    label: str  # lines are separated by "/"
    colour: str  # a class of pages.css
    chapter: int  # of docs/learn
    reference: str  # page while the chapter does not exist


BOXES = {
    "TokenEmbedding": Box("Embedding", "rose", 7, "reference/blocks/embedding"),
    "SinusoidalPositionalEncoding": Box(
        "Positional/encoding", "grey", 7, "reference/blocks/embedding"
    ),
    "MultiHeadAttention": Box(
        "Multi-head/self-attention", "orange", 6, "reference/blocks/multi_head"
    ),
    "MultiHeadAttention, causal": Box(
        "Masked multi-head/self-attention", "orange", 5, "reference/blocks/masks"
    ),
    "MultiHeadAttention, memory": Box(
        "Multi-head/cross-attention", "orange", 10, "reference/blocks/decoder"
    ),
    "FeedForward": Box("Feed-forward", "blue", 8, "reference/blocks/feed_forward"),
    "PostNorm": Box("Add & norm", "yellow", 8, "reference/blocks/residual"),
    "Linear": Box("Linear", "purple", 13, "reference/blocks/loss"),
    "Softmax": Box("Softmax", "green", 13, "reference/tools/generation"),
    "Encoder": Box("Encoder", "frame", 10, "reference/blocks/encoder"),
    "Decoder": Box("Decoder", "frame", 10, "reference/blocks/decoder"),
}


class Transformer(nn.Module):
    """The model of figure 1, with small sizes."""

    def __init__(self) -> None:
        super().__init__()
        sizes: dict[str, Any] = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 16}
        self.source_embedding = TokenEmbedding(10, 8)
        self.target_embedding = TokenEmbedding(10, 8)
        self.positions = SinusoidalPositionalEncoding(8)
        self.blocks = EncoderDecoder(build_encoder(**sizes), build_decoder(**sizes))
        self.output = nn.Linear(8, 10)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute the probabilities of the next target tokens."""
        source = self.positions(self.source_embedding(source))
        target = self.positions(self.target_embedding(target))
        return self.softmax(self.output(self.blocks(source, target)))


@dataclass
class Call:
    """A call of a module, and the calls within it."""

    module: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    output: Any = None
    calls: list["Call"] = field(default_factory=list)

    def find(self, name: str) -> "Call":
        """Find the first call, in this one, of a module of a class."""
        found = (call for call in self.walk() if type(call.module).__name__ == name)
        return next(found)

    def walk(self) -> Iterator["Call"]:
        """Yield this call and those within it."""
        yield self
        for call in self.calls:
            yield from call.walk()


def record(model: nn.Module, *inputs: Tensor) -> Call:
    """Run a model, and return the tree of its calls."""
    root = Call(model, inputs, {})
    stack = [root]

    def enter(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        call = Call(module, arguments, keywords)
        stack[-1].calls.append(call)
        stack.append(call)

    def leave(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        stack.pop().output = output

    for module in model.modules():
        module.register_forward_pre_hook(enter, with_kwargs=True)
        module.register_forward_hook(leave)
    with torch.no_grad():
        model(*inputs)
    return root.calls[0]


def box_of(call: Call, memory: Tensor | None = None) -> Box:
    """Return the box of a call; an attention's depends on its keys and on its mask."""
    name = type(call.module).__name__
    if memory is not None and any(argument is memory for argument in call.arguments[1:]):
        name += ", memory"
    elif f"{name}, causal" in BOXES and call.keywords.get("causal"):
        name += ", causal"
    if name not in BOXES:
        raise ExtensionError(f"docs/_ext/architecture.py: BOXES lacks {name!r}")
    return BOXES[name]


# Sizes in the units of the figure. A column is drawn from the bottom to the top.
WIDTH, HALF = 440.0, 66.0  # of the figure; half of a box
LEFT, RIGHT, MIDDLE = 122.0, 318.0, 220.0  # the axes of encoder, decoder, and between them
GAP, LINE = 26.0, 17.0  # between two groups of boxes; of text


class Drawing:
    """The figure as a list of SVG elements, those in front last."""

    def __init__(self, addresses: dict[Box, str]) -> None:
        self.addresses = addresses
        self.arrows: list[str] = []
        self.boxes: list[str] = []

    def link(self, box: Box, name: str, content: str) -> None:
        """Add a link to the page of a box."""
        self.boxes.append(
            f'<a href="{escape(self.addresses[box])}" class="{box.colour}" '
            f'aria-label="{escape(name)}">{content}</a>'
        )

    def box(self, box: Box, x: float, bottom: float, stack: str) -> float:
        """Draw a box on top of ``bottom``, and return its top."""
        lines = box.label.split("/")
        height = 12 + LINE * len(lines)
        top = bottom - height
        text = label(lines, x, top + height / 2)
        name = f"{' '.join(lines)}, {stack}"
        shape = f'<rect x="{x - HALF}" y="{top}" width="{2 * HALF}" height="{height}" rx="7"/>'
        self.link(box, name, shape + text)
        return top

    def arrow(self, *points: tuple[float, float], kind: str = "") -> None:
        """Draw a line with an arrowhead at its end; its corners are rounded."""
        path = f"M{points[0][0]:g} {points[0][1]:g}"
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            near, far = (toward(corner, other, 8.0) for other in (before, after))
            path += f"L{near[0]:g} {near[1]:g}Q{corner[0]:g} {corner[1]:g} {far[0]:g} {far[1]:g}"
        path += f"L{points[-1][0]:g} {points[-1][1]:g}"
        self.arrows.append(f'<path class="arrow {kind}" d="{path}"/>')

    def text(self, lines: str, x: float, y: float, kind: str = "") -> None:
        """Write text that is no link."""
        self.arrows.append(label(lines.split("/"), x, y, kind))


def toward(start: tuple[float, float], end: tuple[float, float], length: float) -> Any:
    """Return the point at a distance from ``start``, on the line to ``end``."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    distance = max((dx**2 + dy**2) ** 0.5, 1e-9)
    ratio = min(length / distance, 0.5)
    return start[0] + dx * ratio, start[1] + dy * ratio


def label(lines: list[str], x: float, y: float, kind: str = "") -> str:
    """Return lines of text, centred at a point."""
    first = y - LINE * (len(lines) - 1) / 2
    spans = "".join(
        f'<tspan x="{x:g}" y="{first + LINE * i:g}">{escape(line)}</tspan>'
        for i, line in enumerate(lines)
    )
    return f'<text class="{kind}">{spans}</text>'


def draw(root: Call, addresses: dict[Box, str]) -> str:
    """Draw the figure."""
    drawing = Drawing(addresses)
    encoder, decoder = root.find("Encoder"), root.find("Decoder")
    tops: dict[str, float] = {}
    memory = encoder.output
    below = split(root, (encoder, decoder))
    bottom = 0.0  # of both columns; the figure is moved into view at the end
    entry = {}
    for x, calls, text in (
        (LEFT, below[0], "source tokens"),
        (RIGHT, below[1], "target tokens,/shifted right"),
    ):
        y = bottom - 50
        drawing.text(text, x, bottom - 24 + LINE / 2 * text.count("/"), "outside")
        for call in calls:
            box = box_of(call)
            drawing.arrow((x, y + 12), (x, y))
            if isinstance(call.module, SinusoidalPositionalEncoding):
                y -= 10
                inner = x + 20 if x < MIDDLE else x - 20
                drawing.boxes.append(plus(x, y))
                drawing.arrows.append(
                    f'<path class="arrow" d="M{inner + (12 if x < MIDDLE else -12):g} {y:g}'
                    f'H{x + (10 if x < MIDDLE else -10):g}"/>'
                )
                entry["positions"] = y
                y -= 10
            else:
                y = drawing.box(box, x, y, "source" if x < MIDDLE else "target") - 14
        entry["encoder" if x < MIDDLE else "decoder"] = y
    positions = BOXES["SinusoidalPositionalEncoding"]
    y = entry["positions"]
    drawing.link(
        positions,
        "Positional encoding",
        sine(y) + label(["Positional", "encoding"], MIDDLE, y, "small"),
    )
    memory_line = None
    for stack, x in ((encoder, LEFT), (decoder, RIGHT)):
        name = type(stack.module).__name__.lower()
        side = -1 if x < MIDDLE else 1
        start = y = entry[name] - 14
        begin = entry[name] + 2
        for residual in stack.calls[0].calls:
            if not isinstance(residual.module, Residual):
                raise ExtensionError(f"{type(residual.module).__name__} is no residual connection")
            own = {id(module) for module in residual.module.modules()}
            branch = y - 12
            y -= GAP
            for call in residual.calls:
                if id(call.module) in own:
                    continue
                drawing.arrow((x, begin), (x, y))
                box = box_of(call, memory)
                previous, y = y, drawing.box(box, x, y, name)
                if any(argument is memory for argument in call.arguments[1:]):
                    memory_line = (previous + y) / 2
            drawing.arrows.append(f'<path class="arrow plain" d="M{x:g} {y:g}v-7"/>')
            middle, y = y - 7, drawing.box(box_of(residual), x, y - 7, name)
            middle = (middle + y) / 2
            edge = x + side * (HALF + 11)
            drawing.arrow(
                (x, branch), (edge, branch), (edge, middle), (x + side * HALF, middle), kind="skip"
            )
            begin = y
        top = y - 14
        tops[name] = y
        drawing.arrows.insert(
            0,
            f'<rect class="stack" x="{x - HALF - 21}" y="{top:g}" width="{2 * HALF + 42}" '
            f'height="{start - top:g}" rx="14"/>',
        )
        drawing.link(
            box_of(stack),
            f"{name.capitalize()}, N× layers",
            f'<rect class="hit" x="{x - 94}" y="{top - 27:g}" width="84" height="22" rx="5"/>'
            + label([name.capitalize()], x - 52, top - 16)
            + label(["N×"], x + side * 100, (start + top) / 2, "count"),
        )
    if memory_line is None:
        raise ExtensionError("no attention of the decoder has the encoder's output as its keys")
    over = tops["encoder"] - 38
    drawing.arrow(
        (LEFT, tops["encoder"]),
        (LEFT, over),
        (MIDDLE, over),
        (MIDDLE, memory_line),
        (RIGHT - HALF, memory_line),
        kind="memory",
    )
    drawing.text("memory", (LEFT + MIDDLE) / 2, over - 11, "outside")
    y = tops["decoder"]
    begin, y = y, y - 14 - 34
    for call in split(root, (encoder, decoder))[2]:
        drawing.arrow((RIGHT, begin), (RIGHT, y))
        begin = drawing.box(box_of(call), RIGHT, y, "output")
        y = begin - 18
    drawing.arrow((RIGHT, begin), (RIGHT, y))
    drawing.text("probabilities of/the next token", RIGHT, y - 22, "outside")
    height = -(y - 44)
    return (
        f'<svg class="architecture" viewBox="0 {-height:g} {WIDTH:g} {height:g}" role="group" '
        'aria-labelledby="architecture-title" xmlns="http://www.w3.org/2000/svg">'
        f'<title id="architecture-title">{TITLE}</title>'
        '<defs><marker id="arrowhead" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.5L8 4L0 7.5z"/>'
        f"</marker></defs>{''.join(drawing.arrows)}{''.join(drawing.boxes)}</svg>"
    )


TITLE = (
    "The Transformer, figure 1 of the paper. Left, the encoder: source tokens are embedded, "
    "positional encodings are added, and N layers of self-attention and a feed-forward network, "
    "each with a residual connection and normalisation, compute the memory. Right, the decoder: N "
    "layers of masked self-attention, cross-attention to the memory, and a feed-forward network; "
    "a linear layer and a softmax compute the probabilities of the next token."
)


def plus(x: float, y: float) -> str:
    """Return the sign of the addition of positional encodings."""
    return (
        f'<g class="plus"><circle cx="{x:g}" cy="{y:g}" r="10"/>'
        f'<path d="M{x - 5:g} {y:g}h10M{x:g} {y - 5:g}v10"/></g>'
    )


def sine(y: float) -> str:
    """Return two circles with a sinusoid, beside the two signs of addition."""
    found = ""
    for x in (LEFT + 45, RIGHT - 45):
        found += (
            f'<circle cx="{x:g}" cy="{y:g}" r="14"/>'
            f'<path class="sine" d="M{x - 10:g} {y:g}q5 -13 10 0t10 0"/>'
        )
    return found


def split(root: Call, stacks: tuple[Call, Call]) -> list[list[Call]]:
    """List the calls outside the two stacks: of the source, of the target, and of the output."""
    outside = [call for call in root.calls if stacks[0] not in [*call.walk()]]
    inputs = [i for i, call in enumerate(outside) if isinstance(call.module, TokenEmbedding)]
    output = next(i for i, call in enumerate(outside) if isinstance(call.module, nn.Linear))
    return [outside[: inputs[1]], outside[inputs[1] : output], outside[output:]]


class architecture(nodes.General, nodes.Element):  # noqa: N801  (a docutils node)
    """The place of the figure on a page."""


class Architecture(SphinxDirective):
    """The directive ``architecture``, without arguments."""

    def run(self) -> list[nodes.Node]:
        """Draw the figure; the addresses of the pages are inserted when the page is written."""
        self.env.note_dependency(__file__)
        tokens = torch.tensor([[1, 2, 3]])
        calls = record(Transformer().eval(), tokens, tokens)
        return [architecture("", svg=draw(calls, {box: f"@{key}@" for key, box in BOXES.items()}))]


def visit(translator: Any, node: architecture) -> None:
    """Output the figure."""
    builder = translator.builder
    pages = sorted(builder.env.found_docs)
    svg = node["svg"]
    for key, box in BOXES.items():
        chapters = [page for page in pages if page.startswith(f"learn/{box.chapter:02d}")]
        page = next(iter(chapters), box.reference)
        if page not in pages:
            raise ExtensionError(f"docs/_ext/architecture.py: there is no page {page}")
        svg = svg.replace(f"@{key}@", builder.get_relative_uri(builder.current_docname, page))
    translator.body.append(svg)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("architecture", Architecture)
    app.add_node(architecture, html=(visit, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
