"""Speed and peak memory of the blocks, compared with those of other libraries.

    make bench-blocks                        # or: python benchmarks/blocks.py
    python benchmarks/blocks.py --only torch ours --shapes 32x32x256 --rounds 11

All computations are in float32, with a head size of 64, d_ff = 4 * d_model, and one warm-up run. In
the cases with half padding, the sequences have a quarter to three quarters of the length (a single
sequence has half of it), and a padding mask is given. "Training" is a forward and a backward pass,
with dropout of 0.1 where each library applies it: all but x-transformers to the output of every
sublayer, torch and Hugging Face also to the attention weights, all but ours, which follows the
paper, also between the linear layers of the feed-forward network. The implementations:

- ``torch``: ``nn.MultiheadAttention`` with ``need_weights=False``, ``nn.TransformerEncoderLayer``,
  ``nn.TransformerDecoderLayer``, ``nn.TransformerEncoder``; ``torch, weights``: the attention with
  its default arguments; ``torch, attention dropout``: with dropout of the attention weights, as in
  torch's layers;
- ``ours``; ``ours, prepared``: prepared for inference; ``ours compiled``: with ``torch.compile``;
  ``ours, torch's dropouts``: with dropout of attention weights and in the feed-forward network too;
- ``x-transformers``, with ``attn_flash``; ``transformers``: Marian's layers.

The first table contains milliseconds, the speed relative to torch, and the peak memory with weights
and inputs; the second the share of the rate of floating-point operations that the machine reaches
in one large matrix product.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from harness import SetUp, new_parser, run, show

THREADS = 2
SHAPES = {"32x32x256": (32, 32, 256), "16x128x512": (16, 128, 512), "1x2048x512": (1, 2048, 512)}
LAYERS = 3
"""Number of layers of the stack in the cases ``encoder``."""


class Case(NamedTuple):
    """One forward pass, or one forward and backward pass, of a block.

    Attributes:
        block: "attention", "encoder layer", "decoder layer" or "encoder", which is a stack.
        training: Whether the pass includes dropout and a backward pass.
        padded: Whether about half of the positions are padding.
        batch: Batch size B.
        length: Length of the sequence and of the memory, L = S.
        width: Model size d_model.
    """

    block: str
    training: bool
    padded: bool
    batch: int
    length: int
    width: int

    def __str__(self) -> str:
        """Return the name of the table row."""
        mode = "training" if self.training else "forward"
        padding = ", half padding" if self.padded else ""
        return f"{self.block}, {mode}{padding}, {self.batch} x {self.length} x {self.width}"

    @property
    def operations(self) -> float:
        """Number of floating-point operations in the matrix products, padding included."""
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


def make_cases(shapes: Sequence[tuple[int, int, int]]) -> list[Case]:
    """Return the rows of the table."""
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
    return [Case(*row, *shape) for row in rows for shape in shapes]


Block = Callable[[Any, Any, Any], Any]
"""Function of x (B, L, d_model), memory (B, S, d_model) and padding (B, S) or None."""


def build_torch(
    case: Case, *, weights: bool = False, attention_dropout: float = 0.0
) -> tuple[Any, Block] | None:
    """Build torch's block."""
    import torch
    from torch import nn

    sizes: dict[str, Any] = {"batch_first": True, "dropout": 0.1}
    heads = case.width // 64
    if case.block == "attention":
        attention = nn.MultiheadAttention(
            case.width, heads, dropout=attention_dropout, batch_first=True
        )
        return attention, lambda x, _, padding: attention(
            x, x, x, key_padding_mask=padding, need_weights=weights
        )[0]
    if weights or attention_dropout:
        return None  # these options of torch's layers are fixed
    if case.block == "decoder layer":
        decoder = nn.TransformerDecoderLayer(case.width, heads, 4 * case.width, **sizes)
        causal = nn.Transformer.generate_square_subsequent_mask(case.length, dtype=torch.float32)
        return decoder, lambda x, memory, padding: decoder(
            x, memory, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=padding
        )
    layer = nn.TransformerEncoderLayer(case.width, heads, 4 * case.width, **sizes)
    if case.block == "encoder layer":
        return layer, lambda x, _, padding: layer(x, src_key_padding_mask=padding)
    stack = nn.TransformerEncoder(layer, LAYERS)
    return stack, lambda x, _, padding: stack(x, src_key_padding_mask=padding)


def build_ours(case: Case, *, more_dropout: float = 0.0) -> tuple[Any, Block]:
    """Build this library's block, with dropout of attention weights and in the feed-forward too."""
    from transformer_blocks import (
        DecoderLayer,
        EncoderLayer,
        FeedForward,
        MultiHeadAttention,
        PostNorm,
        build_encoder,
    )

    def make_attention() -> MultiHeadAttention:
        return MultiHeadAttention(case.width, case.width // 64, dropout=more_dropout)

    def mask(padding: Any) -> Any:
        return None if padding is None else padding[:, None, None]

    feed_forward = FeedForward(case.width, 4 * case.width, dropout=more_dropout)
    norm = partial(PostNorm, case.width)
    if case.block == "attention":
        attention = make_attention()
        return attention, lambda x, _, padding: attention(x, x, x, mask=mask(padding))
    if case.block == "decoder layer":
        decoder = DecoderLayer(make_attention(), make_attention(), feed_forward, residual=norm)
        return decoder, lambda x, memory, padding: decoder(x, memory, memory_mask=mask(padding))
    if case.block == "encoder layer":
        layer = EncoderLayer(make_attention(), feed_forward, residual=norm)
        return layer, lambda x, _, padding: layer(x, mask=mask(padding))
    stack = build_encoder(
        num_layers=LAYERS, d_model=case.width, num_heads=case.width // 64, d_ff=4 * case.width
    )
    return stack, lambda x, _, padding: stack(x, mask=mask(padding))


def build_prepared(case: Case) -> tuple[Any, Block] | None:
    """Build this library's block, prepared for inference."""
    from transformer_blocks.inference import prepare

    if case.training:
        return None
    prepared = prepare(build_ours(case)[0].eval())
    inputs = 3 if case.block == "attention" else 1  # query, key, value
    return prepared, lambda x, _, padding: prepared(
        *[x] * inputs, mask=None if padding is None else padding[:, None, None]
    )


def build_x_transformers(case: Case) -> tuple[Any, Block] | None:
    """Build the block of x-transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import x_transformers

    heads = case.width // 64
    if case.block == "attention":
        attention = x_transformers.Attention(dim=case.width, heads=heads, flash=True)
        return attention, lambda x, _, padding: first(
            attention(x, mask=None if padding is None else ~padding)
        )
    options: dict[str, Any] = {"attn_flash": True, "ff_dropout": 0.1, "layer_dropout": 0.0}
    sizes: dict[str, Any] = {"dim": case.width, "heads": heads, **options}
    if case.block == "decoder layer":
        decoder = x_transformers.Decoder(depth=1, cross_attend=True, **sizes)
        return decoder, lambda x, memory, padding: decoder(
            x, context=memory, context_mask=None if padding is None else ~padding
        )
    stack = x_transformers.Encoder(depth=LAYERS if case.block == "encoder" else 1, **sizes)
    return stack, lambda x, _, padding: stack(x, mask=None if padding is None else ~padding)


def build_transformers(case: Case) -> tuple[Any, Block] | None:
    """Build the block of Hugging Face's Marian, with additive masks."""
    import torch
    import transformers
    from transformers.models.marian import modeling_marian

    config = transformers.MarianConfig(
        d_model=case.width,
        encoder_layers=LAYERS,
        encoder_attention_heads=case.width // 64,
        decoder_attention_heads=case.width // 64,
        encoder_ffn_dim=4 * case.width,
        decoder_ffn_dim=4 * case.width,
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
        return mask[:, None, None].expand(-1, 1, case.length, -1)

    if case.block == "attention":
        attention = modeling_marian.MarianAttention(case.width, case.width // 64, config=config)
        return attention, lambda x, _, padding: attention(x, attention_mask=additive(padding))[0]
    if case.block == "encoder layer":
        layer = modeling_marian.MarianEncoderLayer(config)
        return layer, lambda x, _, padding: first(layer(x, additive(padding)))
    if case.block == "decoder layer":
        decoder = modeling_marian.MarianDecoderLayer(config)
        causal = torch.full((case.length, case.length), -torch.inf).triu(1)[None, None]
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
    """Return the output tensor of a Marian layer, which is in a tuple in some versions."""
    return output[0] if isinstance(output, tuple) else output


Build = Callable[[Case], tuple[Any, Block] | None]


def make_pass(case: Case, build: Build, *, compiled: bool = False) -> Callable[[], object] | None:
    """Return a function that computes one pass of a block."""
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    built = build(case)
    if built is None:
        return None
    module, block = built
    module.train(case.training)
    if compiled:
        block = torch.compile(block)
    x, memory = (torch.randn(case.batch, case.length, case.width) for _ in range(2))
    padding = None
    if case.padded:
        shares = torch.linspace(0.25, 0.75, case.batch) if case.batch > 1 else torch.tensor([0.5])
        lengths = shares.mul(case.length).long()
        padding = torch.arange(case.length) >= lengths[:, None]
    upstream = torch.randn_like(x)
    if not case.training:
        return torch.no_grad()(lambda: block(x, memory, padding))
    x.requires_grad_()
    memory.requires_grad_()

    def train() -> None:
        block(x, memory, padding).backward(upstream)
        for tensor in (x, memory, *module.parameters()):
            tensor.grad = None

    return train


def make_set_up(build: Build, *, compiled: bool = False) -> SetUp:
    """Return the set-up of an implementation; called in its own process."""
    warm_up = make_pass(Case("attention", False, False, 1, 8, 64), build)  # imports the libraries
    if warm_up is not None:
        warm_up()
    return partial(make_pass, build=build, compiled=compiled)


BUILDS: dict[str, Build] = {
    "torch": build_torch,
    "torch, weights": partial(build_torch, weights=True),
    "torch, attention dropout": partial(build_torch, attention_dropout=0.1),
    "ours": build_ours,
    "ours, prepared": build_prepared,
    "ours, torch's dropouts": partial(build_ours, more_dropout=0.1),
    "x-transformers": build_x_transformers,
    "transformers": build_transformers,
}


def peak_operations() -> float:
    """Measure the floating-point operations per second of a large matrix product."""
    import torch

    torch.set_num_threads(THREADS)
    a, b = torch.randn(2, 2048, 2048).unbind()
    seconds = []
    for _ in range(10):
        started = time.perf_counter()
        torch.mm(a, b)
        seconds.append(time.perf_counter() - started)
    return 2 * 2048**3 / min(seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison that the command-line options select."""
    implementations: dict[str, Callable[[], SetUp]] = {
        name: partial(make_set_up, build) for name, build in BUILDS.items()
    }
    implementations["ours compiled"] = partial(make_set_up, build_ours, compiled=True)
    parser = new_parser(__doc__, implementations)
    parser.set_defaults(only=[*BUILDS])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=[*SHAPES])
    parser.add_argument("--rows", default="", help="only the rows whose names start with this text")
    options = parser.parse_args(arguments)
    cases = [
        case
        for case in make_cases([SHAPES[name] for name in options.shapes])
        if str(case).startswith(options.rows)
    ]
    results = run(options, implementations, cases, memory=True)
    peak = peak_operations()
    title = f"share of the peak rate, {peak / 1e9:.0f} GFLOP/s"
    show(title, results, lambda case, seconds: f"{case.operations / seconds / peak:.0%}")


if __name__ == "__main__":
    main()
