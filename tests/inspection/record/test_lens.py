"""The logit lens reads each layer as the output layer reads the last one."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import PostNorm, PreNorm, build_decoder
from transformer_blocks.inspection import logit_lens

SIZES: dict[str, Any] = {"num_layers": 3, "d_model": 8, "num_heads": 2, "d_ff": 12}


@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
def test_the_lens_of_a_layer_is_the_prediction_of_the_model_that_ends_there(residual: Any) -> None:
    decoder = build_decoder(**SIZES, dropout=0.5, residual=residual).train()
    output, x, memory = nn.Linear(8, 20), torch.randn(2, 4, 8), torch.randn(2, 5, 8)
    norm = nn.Identity() if decoder.norm is None else decoder.norm
    assert isinstance(norm, nn.Identity) == (residual is PostNorm)
    layers: Any = decoder.layers

    def predict() -> Tensor:
        torch.manual_seed(0)
        logits: Tensor = output(decoder(x, memory))
        return logits

    full, parameters = predict(), list(decoder.parameters())
    gradients = torch.autograd.grad(full.sum(), parameters)
    with logit_lens(layers, lambda hidden: output(norm(hidden))) as lens:
        assert torch.equal(predict(), full)  # also of the random numbers of its dropout
        for found, expected in zip(
            torch.autograd.grad(predict().sum(), parameters), gradients, strict=True
        ):
            assert torch.equal(found, expected)
    assert [len(calls) for calls in lens] == [2, 2, 2]
    assert not any(calls[0].requires_grad for calls in lens)
    for count in (3, 2, 1):
        decoder.layers = layers[:count]
        torch.testing.assert_close(lens[count - 1][0], predict().softmax(-1).detach())
    assert not any(layer._forward_hooks for layer in layers)


def test_layers_of_other_libraries_that_return_tuples_are_read() -> None:
    layer = nn.GRU(4, 4)
    with logit_lens([layer], lambda hidden: hidden.half()) as lens:
        output, _ = layer(torch.randn(2, 3, 4))
    assert lens[0][0].dtype == torch.float32
    torch.testing.assert_close(lens[0][0], output.softmax(-1), atol=1e-3, rtol=0.0)


def test_no_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^layers must not be empty, got none$"):
        logit_lens([], nn.Linear(2, 2)).__enter__()
