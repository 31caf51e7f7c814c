"""How fast the blocks are, and how much memory they take, beside those of other libraries.

    make bench-blocks                        # or: python benchmarks/blocks.py
    python benchmarks/blocks.py --only torch ours --shapes 32x32x256 --rounds 11

Everything is float32, with heads of 64 and a feed-forward four times as wide as the model, after
the same warm-up. "Half padding": the sentences have a quarter to three quarters of the length (a
single one a half), and a mask says so. "Training" is a forward and a backward pass, with dropout of
0.1 as each library places it. All but x-transformers drop what a sublayer adds; torch and Hugging
Face drop attention weights too; and between the maps of the feed-forward, all but ours, which
follows the paper. The contestants:

- ``torch``: ``nn.MultiheadAttention`` with ``need_weights=False``, ``nn.TransformerEncoderLayer``,
  ``nn.TransformerDecoderLayer``, ``nn.TransformerEncoder``; ``torch, weights``: the attention as it
  is called by default; ``torch, attention dropout``: as its layers call it, dropping weights;
- ``ours``; ``ours, prepared``: as a finished model is used; ``ours compiled``: by ``torch.compile``;
  ``ours, torch's dropouts``: attention weights and feed-forward too;
- ``x-transformers``, with ``attn_flash``; ``transformers``: Marian's layers.

Each line gives milliseconds and how many times the speed of torch's that is; then the share of the
peak that the machine reaches in one large matrix product, and the peak memory of a pass.
"""

import argparse
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from contest import Prepare, Result, draw, hold, write_json

THREADS = 2
PACKAGES = ("torch", "transformers", "x-transformers", "transformer-blocks")
SHAPES = {"32x32x256": (32, 32, 256), "16x128x512": (16, 128, 512), "1x2048x512": (1, 2048, 512)}
LAYERS = 3
"""Of the stack that is timed as ``encoder``."""


class Cell(NamedTuple):
    """One pass of one block.

    Attributes:
        block: "attention", "encoder layer", "decoder layer" or "encoder", a stack.
        training: Whether there is a backward pass, and dropout.
        padded: Whether about half of the positions are padding.
        batch: B.
        length: L, and S.
        width: d_model.
    """

    block: str
    training: bool
    padded: bool
    batch: int
    length: int
    width: int

    def __str__(self) -> str:
        """Name the row of the table."""
        mode = "training" if self.training else "forward"
        padding = ", half padding" if self.padded else ""
        return f"{self.block}, {mode}{padding}, {self.batch} x {self.length} x {self.width}"

    @property
    def operations(self) -> float:
        """Floating-point operations of the matrix products, padding included."""
        positions, squares = self.batch * self.length, self.batch * self.length**2
        attention = 8.0 * positions * self.width**2 + 4.0 * squares * self.width
        feed_forward = 16.0 * positions * self.width**2
        amount = {
            "attention": attention,
            "encoder layer": attention + feed_forward,
            "decoder layer": 2 * attention + feed_forward,
            "encoder": LAYERS * (attention + feed_forward),
        }[self.block]
        return amount * (3.0 if self.training else 1.0)


def cells_of(shapes: Sequence[tuple[int, int, int]]) -> list[Cell]:
    """List the rows of the table."""
    rows = (
        ("attention", False, False),
        ("attention", False, True),
        ("attention", True, False),
        ("attention", True, True),
        ("encoder layer", True, False),
        ("encoder layer", True, True),
        ("decoder layer", True, False),
        ("encoder", False, True),
    )
    return [Cell(*row, *shape) for row in rows for shape in shapes]


Block = Callable[[Any, Any, Any], Any]
"""From x (B, L, d_model), memory (B, S, d_model) and padding (B, S) or None to an output."""


def build_torch(
    cell: Cell, *, weights: bool = False, attention_dropout: float = 0.0
) -> tuple[Any, Block] | None:
    """Build torch's block."""
    import torch
    from torch import nn

    sizes: dict[str, Any] = {"batch_first": True, "dropout": 0.1}
    heads = cell.width // 64
    if cell.block == "attention":
        attention = nn.MultiheadAttention(
            cell.width, heads, dropout=attention_dropout, batch_first=True
        )
        return attention, lambda x, _, padding: attention(
            x, x, x, key_padding_mask=padding, need_weights=weights
        )[0]
    if weights or attention_dropout:
        return None  # a layer never asks for weights, and always drops some
    if cell.block == "decoder layer":
        decoder = nn.TransformerDecoderLayer(cell.width, heads, 4 * cell.width, **sizes)
        causal = nn.Transformer.generate_square_subsequent_mask(cell.length, dtype=torch.float32)
        return decoder, lambda x, memory, padding: decoder(
            x, memory, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=padding
        )
    layer = nn.TransformerEncoderLayer(cell.width, heads, 4 * cell.width, **sizes)
    if cell.block == "encoder layer":
        return layer, lambda x, _, padding: layer(x, src_key_padding_mask=padding)
    stack = nn.TransformerEncoder(layer, LAYERS)
    return stack, lambda x, _, padding: stack(x, src_key_padding_mask=padding)


def build_ours(cell: Cell, *, more_dropout: float = 0.0) -> tuple[Any, Block]:
    """Build this library's block; it can drop attention weights and in the feed-forward as well."""
    from transformer_blocks import (
        DecoderLayer,
        EncoderLayer,
        FeedForward,
        MultiHeadAttention,
        PostNorm,
        build_encoder,
    )

    def attend() -> MultiHeadAttention:
        return MultiHeadAttention(cell.width, cell.width // 64, dropout=more_dropout)

    def mask(padding: Any) -> Any:
        return None if padding is None else padding[:, None, None]

    feed_forward = FeedForward(cell.width, 4 * cell.width, dropout=more_dropout)
    norm = partial(PostNorm, cell.width)
    if cell.block == "attention":
        attention = attend()
        return attention, lambda x, _, padding: attention(x, x, x, mask=mask(padding))
    if cell.block == "decoder layer":
        decoder = DecoderLayer(attend(), attend(), feed_forward, residual=norm)
        return decoder, lambda x, memory, padding: decoder(x, memory, memory_mask=mask(padding))
    if cell.block == "encoder layer":
        layer = EncoderLayer(attend(), feed_forward, residual=norm)
        return layer, lambda x, _, padding: layer(x, mask=mask(padding))
    stack = build_encoder(
        num_layers=LAYERS, d_model=cell.width, num_heads=cell.width // 64, d_ff=4 * cell.width
    )
    return stack, lambda x, _, padding: stack(x, mask=mask(padding))


def build_packed(cell: Cell) -> tuple[Any, Block] | None:
    """Build this library's block as a finished model is used: prepared."""
    from transformer_blocks.inference import prepare

    if cell.training:
        return None
    prepared = prepare(build_ours(cell)[0].eval())
    inputs = 3 if cell.block == "attention" else 1  # query, key, value
    return prepared, lambda x, _, padding: prepared(
        *[x] * inputs, mask=None if padding is None else padding[:, None, None]
    )


def build_x_transformers(cell: Cell) -> tuple[Any, Block] | None:
    """Build the block of x-transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import x_transformers

    heads = cell.width // 64
    if cell.block == "attention":
        attention = x_transformers.Attention(dim=cell.width, heads=heads, flash=True)
        return attention, lambda x, _, padding: first(
            attention(x, mask=None if padding is None else ~padding)
        )
    options: dict[str, Any] = {"attn_flash": True, "ff_dropout": 0.1, "layer_dropout": 0.0}
    sizes: dict[str, Any] = {"dim": cell.width, "heads": heads, **options}
    if cell.block == "decoder layer":
        decoder = x_transformers.Decoder(depth=1, cross_attend=True, **sizes)
        return decoder, lambda x, memory, padding: decoder(
            x, context=memory, context_mask=None if padding is None else ~padding
        )
    stack = x_transformers.Encoder(depth=LAYERS if cell.block == "encoder" else 1, **sizes)
    return stack, lambda x, _, padding: stack(x, mask=None if padding is None else ~padding)


def build_transformers(cell: Cell) -> tuple[Any, Block] | None:
    """Build the block of Hugging Face's Marian; it has no causal flag, so masks are made."""
    import torch
    import transformers
    from transformers.models.marian import modeling_marian

    config = transformers.MarianConfig(
        d_model=cell.width,
        encoder_layers=LAYERS,
        encoder_attention_heads=cell.width // 64,
        decoder_attention_heads=cell.width // 64,
        encoder_ffn_dim=4 * cell.width,
        decoder_ffn_dim=4 * cell.width,
        activation_function="relu",
        dropout=0.1,
        attention_dropout=0.1,
        activation_dropout=0.1,
    )
    config._attn_implementation = "sdpa"

    def additive(padding: Any) -> Any:
        if padding is None:
            return None
        mask = torch.zeros(padding.shape).masked_fill(padding, -torch.inf)
        return mask[:, None, None].expand(-1, 1, cell.length, -1)

    if cell.block == "attention":
        attention = modeling_marian.MarianAttention(cell.width, cell.width // 64, config=config)
        return attention, lambda x, _, padding: attention(x, attention_mask=additive(padding))[0]
    if cell.block == "encoder layer":
        layer = modeling_marian.MarianEncoderLayer(config)
        return layer, lambda x, _, padding: first(layer(x, additive(padding)))
    if cell.block == "decoder layer":
        decoder = modeling_marian.MarianDecoderLayer(config)
        causal = torch.full((cell.length, cell.length), -torch.inf).triu(1)[None, None]
        return decoder, lambda x, memory, padding: first(
            decoder(
                x,
                attention_mask=causal.expand(len(x), -1, -1, -1),
                encoder_hidden_states=memory,
                encoder_attention_mask=additive(padding),
            )
        )
    layers = torch.nn.ModuleList(modeling_marian.MarianEncoderLayer(config) for _ in range(LAYERS))

    def encode(x: Any, _: Any, padding: Any) -> Any:
        mask = additive(padding)
        for each in layers:
            x = first(each(x, mask))
        return x

    return layers, encode


def first(output: Any) -> Any:
    """Take the tensor out of what a layer of Marian returns, whichever version it is."""
    return output[0] if isinstance(output, tuple) else output


Build = Callable[[Cell], tuple[Any, Block] | None]


def make_pass(cell: Cell, build: Build, *, compiled: bool = False) -> Callable[[], object] | None:
    """Set up one pass of a block."""
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    built = build(cell)
    if built is None:
        return None
    module, block = built
    module.train(cell.training)
    if compiled:
        block = torch.compile(block)
    x, memory = (torch.randn(cell.batch, cell.length, cell.width) for _ in range(2))
    padding = None
    if cell.padded:
        shares = torch.linspace(0.25, 0.75, cell.batch) if cell.batch > 1 else torch.tensor([0.5])
        lengths = shares.mul(cell.length).long()
        padding = torch.arange(cell.length) >= lengths[:, None]
    upstream = torch.randn_like(x)
    if not cell.training:
        return torch.no_grad()(lambda: block(x, memory, padding))
    x.requires_grad_()
    memory.requires_grad_()

    def train() -> None:
        block(x, memory, padding).backward(upstream)
        for tensor in (x, memory, *module.parameters()):
            tensor.grad = None

    return train


def make_contestant(build: Build, *, compiled: bool = False) -> Prepare:
    """Be a contestant; called in its own process."""
    return partial(make_pass, build=build, compiled=compiled)


BUILDS: dict[str, Build] = {
    "torch": build_torch,
    "torch, weights": partial(build_torch, weights=True),
    "torch, attention dropout": partial(build_torch, attention_dropout=0.1),
    "ours": build_ours,
    "ours, prepared": build_packed,
    "ours, torch's dropouts": partial(build_ours, more_dropout=0.1),
    "x-transformers": build_x_transformers,
    "transformers": build_transformers,
}


def peak_operations() -> float:
    """Measure how many operations a second a large matrix product reaches."""
    import torch

    torch.set_num_threads(THREADS)
    a, b = torch.randn(2, 2048, 2048).unbind()
    seconds = []
    for _ in range(10):
        started = time.perf_counter()
        torch.mm(a, b)
        seconds.append(time.perf_counter() - started)
    return 2 * 2048**3 / min(seconds)


def peak_memory(build: Build, cell: Cell) -> float:
    """Measure by how many MB a pass makes the process larger, at its peak, in a process of its own.

    Linux tells the peak, and forgets an earlier one when asked. Large tensors are made to go back
    to the system at once, so that the second pass shows what one needs.
    """
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure_memory, args=(sender, build, cell), daemon=True)
    process.start()
    del os.environ["MALLOC_MMAP_THRESHOLD_"]
    megabytes: float = receiver.recv()
    process.join()
    return megabytes


def _measure_memory(sender: Any, build: Build, cell: Cell) -> None:
    work = make_pass(cell, build)
    if work is None:
        return sender.send(float("nan"))
    work()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    work()
    return sender.send((_status("VmHWM") - before) / 1024)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().split("\n")
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def show_shares(results: Sequence[Result], cells: Sequence[Cell], peak: float) -> None:
    """Print which share of the machine's peak each contestant reached."""
    print(f"\nshare of the peak, {peak / 1e9:.0f} billion operations a second")
    for cell in cells:
        shares = [
            f"{result.contestant} {cell.operations / result.median / peak:.0%}"
            for result in results
            if result.cell == cell
        ]
        print(f"{cell!s:50}  {'  '.join(shares)}")


def show_memory(names: Sequence[str], cells: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """Print and return the peak memory of the passes that have a backward one."""
    print("\npeak memory, MB (share of the first)")
    table: dict[str, dict[str, float]] = {}
    for cell in cells:
        if cell.training:
            row = {name: peak_memory(BUILDS[name], cell) for name in names if name in BUILDS}
            base = next(iter(row.values()))
            shown = [f"{name} {size:.0f} ({size / base:.2f})" for name, size in row.items()]
            print(f"{cell!s:50}  {'  '.join(shown)}", flush=True)
            table[str(cell)] = row
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Hold the contest that the command line asks for."""
    contestants: dict[str, Callable[[], Prepare]] = {
        name: partial(make_contestant, build) for name, build in BUILDS.items()
    }
    contestants["ours compiled"] = partial(make_contestant, build_ours, compiled=True)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=contestants, default=list(BUILDS))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rows", default="", help="only rows that begin so")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-memory", action="store_true", help="time only")
    parser.add_argument("--output", type=Path, help="write every round to this file, as JSON")
    parser.add_argument("--picture", type=Path, help="draw the speeds into this file")
    options = parser.parse_args(arguments)
    cells = [
        cell
        for cell in cells_of([SHAPES[name] for name in options.shapes])
        if str(cell).startswith(options.rows)
    ]
    chosen = {name: contestants[name] for name in options.only}
    results = hold(chosen, cells, rounds=options.rounds)
    show_shares(results, cells, peak_operations())
    memory = {}
    if not options.no_memory and sys.platform == "linux":
        memory = show_memory(options.only, cells)
    if options.output:
        write_json(options.output, results, PACKAGES, memory=memory)
    if options.picture:
        draw(options.picture, results)


if __name__ == "__main__":
    main()
