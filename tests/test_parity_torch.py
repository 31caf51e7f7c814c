"""The same weights in ``torch.nn`` and here give the same outputs and the same gradients."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from tests.pairs import every_pair
from torch import Tensor, nn

from transformer_blocks import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    build_decoder,
    build_encoder,
    causal_mask,
    fused_attention,
    padding_mask,
    scaled_dot_product_attention,
)

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
D_MODEL, HEADS, D_FF, LAYERS = 8, 2, 12, 2
SOURCE_PADDING = torch.tensor([[False, False, False, False], [False, False, True, True]])
TARGET_PADDING = torch.tensor([[False, False, True], [False, False, False]])

every_block = every_pair(
    {"dtype": TOLERANCE, "norm_first": [False, True], "activation": [F.relu, F.gelu]}
)


def under_torch_names(ours: nn.Module) -> dict[str, list[Tensor]]:
    """Map torch's parameter names to our parameters; several, if torch concatenates them."""
    if isinstance(ours, MultiHeadAttention):
        inputs = ours.query_projection, ours.key_projection, ours.value_projection
        if len({projection.in_features for projection in inputs}) == 1:
            names = {"in_proj_weight": [projection.weight for projection in inputs]}
        else:
            stems = zip("qkv", inputs, strict=True)
            names = {f"{stem}_proj_weight": [projection.weight] for stem, projection in stems}
        if inputs[0].bias is not None:
            names["in_proj_bias"] = [projection.bias for projection in inputs]
        return names | _under("out_proj", ours.output_projection)
    if isinstance(ours, FeedForward):
        return _under("linear1", ours.up_projection) | _under("linear2", ours.down_projection)
    if isinstance(ours, EncoderLayer):
        return (
            _under("self_attn", ours.self_attention)
            | under_torch_names(ours.feed_forward)
            | _under("norm1", ours.self_attention_residual.norm)
            | _under("norm2", ours.feed_forward_residual.norm)
        )
    if isinstance(ours, DecoderLayer):
        return (
            _under("self_attn", ours.self_attention)
            | _under("multihead_attn", ours.cross_attention)
            | under_torch_names(ours.feed_forward)
            | _under("norm1", ours.self_attention_residual.norm)
            | _under("norm2", ours.cross_attention_residual.norm)
            | _under("norm3", ours.feed_forward_residual.norm)
        )
    names = {}
    if isinstance(ours, Encoder | Decoder):
        for number, layer in enumerate(ours.layers):
            names |= _under(f"layers.{number}", layer)
        return names if ours.norm is None else names | _under("norm", ours.norm)
    return {name: [parameter] for name, parameter in ours.named_parameters()}


def _under(prefix: str, module: nn.Module) -> dict[str, list[Tensor]]:
    return {f"{prefix}.{name}": parts for name, parts in under_torch_names(module).items()}


def assert_parity(
    names: dict[str, list[Tensor]],
    theirs: nn.Module,
    run_ours: Callable[..., Tensor],
    run_theirs: Callable[..., Tensor],
    inputs: Sequence[Tensor],
) -> None:
    """Copy random weights to torch's module, then compare outputs and all gradients."""
    parameters = dict(theirs.named_parameters())
    assert parameters.keys() == names.keys()
    for name, parts in names.items():
        for part in parts:
            nn.init.normal_(part, std=0.3)
        parameters[name].data.copy_(torch.cat(parts))
    outputs, input_gradients = [], []
    for run in (run_ours, run_theirs):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        output = run(*leaves)
        output_gradient = torch.linspace(-1.0, 1.0, output.numel(), dtype=output.dtype)
        output.backward(output_gradient.view_as(output))
        outputs.append(output.detach())
        input_gradients.append([leaf.grad for leaf in leaves])
    tolerance = TOLERANCE[inputs[0].dtype]
    torch.testing.assert_close(*outputs, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(*input_gradients, rtol=tolerance, atol=tolerance)
    for name, parts in names.items():
        ours = torch.cat([part.grad for part in parts if part.grad is not None])
        torch.testing.assert_close(ours, parameters[name].grad, rtol=tolerance, atol=tolerance)


def torch_options(dtype: torch.dtype, norm_first: bool, activation: Any) -> dict[str, Any]:
    return {
        "dim_feedforward": D_FF,
        "dropout": 0.0,
        "activation": activation,
        "norm_first": norm_first,
        "batch_first": True,
        "dtype": dtype,
    }


def our_options(norm_first: bool, activation: Any) -> dict[str, Any]:
    return {
        "num_layers": LAYERS,
        "d_model": D_MODEL,
        "num_heads": HEADS,
        "d_ff": D_FF,
        "dropout": 0.0,
        "activation": activation,
        "residual": PreNorm if norm_first else PostNorm,
    }


def ours_of(padding: Tensor) -> Tensor:
    """Convert torch's padding mask, of shape (B, S), to one of this package."""
    return padding_mask((~padding).int())


def source_and_target(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 4, D_MODEL, dtype=dtype), torch.randn(2, 3, D_MODEL, dtype=dtype)


@every_pair(
    {
        "dtype": TOLERANCE,
        "attention_function": [fused_attention, scaled_dot_product_attention],
        "bias": [True, False],
        "widths": [(None, None), (6, 5)],
        "padded": [False, True],
        "causal": [False, True],
    }
)
def test_multi_head_attention_equals_torch_s(
    dtype: torch.dtype,
    attention_function: Any,
    bias: bool,
    widths: tuple[int | None, int | None],
    padded: bool,
    causal: bool,
) -> None:
    theirs = nn.MultiheadAttention(
        D_MODEL, HEADS, bias=bias, kdim=widths[0], vdim=widths[1], batch_first=True, dtype=dtype
    )
    ours = MultiHeadAttention(
        D_MODEL,
        HEADS,
        key_width=widths[0],
        value_width=widths[1],
        bias=bias,
        attention_function=attention_function,
    ).to(dtype)
    attn_mask = causal_mask(4) if causal else None
    padding = SOURCE_PADDING if padded else None

    def run_theirs(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output, weights = theirs(
            query,
            key,
            value,
            attn_mask=attn_mask,
            key_padding_mask=padding,
            average_attn_weights=False,
        )
        mask = None if padding is None else ours_of(padding)
        torch.testing.assert_close(
            ours.attention_weights(query, key, mask=mask, causal=causal),
            weights,
            rtol=TOLERANCE[dtype],
            atol=TOLERANCE[dtype],
        )
        return output

    def run_ours(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mask = None if padding is None else ours_of(padding)
        return ours(query, key, value, mask=mask, causal=causal)

    inputs = [torch.randn(2, 4, width or D_MODEL, dtype=dtype) for width in (None, *widths)]
    assert_parity(under_torch_names(ours), theirs, run_ours, run_theirs, inputs)


def torch_stacks(
    dtype: torch.dtype, norm_first: bool, activation: Any, final_norm: bool
) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    options = torch_options(dtype, norm_first, activation)
    norms = [nn.LayerNorm(D_MODEL, dtype=dtype) if final_norm else None for _ in range(2)]
    encoder_layer = nn.TransformerEncoderLayer(D_MODEL, HEADS, **options)
    decoder_layer = nn.TransformerDecoderLayer(D_MODEL, HEADS, **options)
    return (
        nn.TransformerEncoder(encoder_layer, LAYERS, norms[0], enable_nested_tensor=False),
        nn.TransformerDecoder(decoder_layer, LAYERS, norms[1]),
    )


@every_pair(
    {
        "dtype": TOLERANCE,
        "norm_first": [False, True],
        "activation": [F.relu, F.gelu],
        "causal": [False, True],
    }
)
def test_encoder_equals_torch_s(
    dtype: torch.dtype, norm_first: bool, activation: Any, causal: bool
) -> None:
    ours = build_encoder(**our_options(norm_first, activation)).to(dtype)
    theirs, _ = torch_stacks(dtype, norm_first, activation, final_norm=norm_first)
    future = causal_mask(4) if causal else None
    assert_parity(
        under_torch_names(ours),
        theirs,
        lambda x: ours(x, mask=ours_of(SOURCE_PADDING), causal=causal),
        lambda x: theirs(x, mask=future, src_key_padding_mask=SOURCE_PADDING),
        [torch.randn(2, 4, D_MODEL, dtype=dtype)],
    )


@every_block
def test_decoder_equals_torch_s(dtype: torch.dtype, norm_first: bool, activation: Any) -> None:
    ours = build_decoder(**our_options(norm_first, activation)).to(dtype)
    _, theirs = torch_stacks(dtype, norm_first, activation, final_norm=norm_first)
    source, target = source_and_target(dtype)
    assert_parity(
        under_torch_names(ours),
        theirs,
        lambda x, memory: ours(x, memory, memory_mask=ours_of(SOURCE_PADDING)),
        lambda x, memory: theirs(
            x, memory, tgt_mask=causal_mask(3), memory_key_padding_mask=SOURCE_PADDING
        ),
        [target, source],
    )


@every_block
def test_whole_transformer_equals_torch_s(
    dtype: torch.dtype, norm_first: bool, activation: Any
) -> None:
    """``nn.Transformer`` ends both stacks with a norm, in either norm order."""
    encoder = build_encoder(**our_options(norm_first, activation))
    decoder = build_decoder(**our_options(norm_first, activation))
    for stack in (encoder, decoder):
        stack.norm = nn.LayerNorm(D_MODEL)
        stack.to(dtype)
    their_encoder, their_decoder = torch_stacks(dtype, norm_first, activation, final_norm=True)
    theirs = nn.Transformer(
        D_MODEL,
        HEADS,
        custom_encoder=their_encoder,
        custom_decoder=their_decoder,
        batch_first=True,
        dtype=dtype,
    )

    def run_ours(source: Tensor, target: Tensor) -> Tensor:
        mask = ours_of(SOURCE_PADDING)
        memory = encoder(source, mask=mask)
        return decoder(target, memory, mask=ours_of(TARGET_PADDING), memory_mask=mask)

    assert_parity(
        _under("encoder", encoder) | _under("decoder", decoder),
        theirs,
        run_ours,
        lambda source, target: theirs(
            source,
            target,
            tgt_mask=causal_mask(3),
            src_key_padding_mask=SOURCE_PADDING,
            tgt_key_padding_mask=TARGET_PADDING,
            memory_key_padding_mask=SOURCE_PADDING,
        ),
        source_and_target(dtype),
    )
