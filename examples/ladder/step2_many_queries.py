"""Step 2: many queries in a batch.

    python examples/ladder/step2_many_queries.py

A sequence has a query at each position, and a batch has many sequences. Matrix products compute all
of them at once: a row of scores for each query, and a softmax over each row. The sequences of a
batch differ in length, so the shorter ones are filled up with *padding*, which must not be attended
to. A boolean mask marks it; True hides a key.
"""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from drawing import FOLDER, heat_map, new_figure, save
from transformer_blocks import padding_mask, scaled_dot_product_attention

VOCABULARY = ["<pad>", "the", "cat", "drinks", "milk", "sleeps"]


class DotProductAttention(nn.Module):
    """Dot-product attention as a layer, which has no parameters yet."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Compute an output vector for each query.

        Args:
            query: Query vectors, of shape (B, L, d).
            key: Key vectors, of shape (B, S, d).
            value: Value vectors, of shape (B, S, d).
            mask: Boolean mask of shape (B, 1, S); True hides a key.

        Returns:
            Output vectors, of shape (B, L, d).
        """
        return self.weights(query, key, mask) @ value

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute the attention weights of every query, of shape (B, L, S)."""
        scores = query @ key.transpose(-2, -1)  # (B, L, S)
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)  # the exponential of which is zero
        return scores.softmax(dim=-1)


def main(folder: Path = FOLDER) -> None:
    """Compare the layer with step 1, then padded sequences with and without a mask."""
    torch.manual_seed(0)
    tokens = torch.tensor([[1, 2, 3, 4], [1, 2, 5, 0]])  # the second sequence has three tokens
    embedding = torch.randn(len(VOCABULARY), 8) / 2
    x = embedding[tokens]  # (2, 4, 8)
    layer = DotProductAttention()

    output = layer(x, x, x)
    one = (x[0] @ x[0, 2]).softmax(0) @ x[0]  # step 1 for "drinks" in the first sequence
    print("tokens (B, L) =", tuple(tokens.shape), "  vectors (B, L, d) =", tuple(x.shape))
    print(
        "weights (B, L, S) =", tuple(layer.weights(x, x).shape), "  output =", tuple(output.shape)
    )
    difference = (output[0, 2] - one).abs().max()
    print(f"\nThe outputs for 'drinks' in the batch and by step 1 differ by {difference:.1e}.")

    mask = padding_mask(tokens).squeeze(1)  # (B, 1, S); the library's has a dimension for heads
    unmasked_weights, masked_weights = layer.weights(x, x), layer.weights(x, x, mask)
    short = x[1:, :3]  # the second sequence without padding
    alone = layer(short, short, short)
    print("\nThe sequence 'the cat sleeps', padded to four tokens:")
    print("  weights of the padding, without a mask:", rounded(unmasked_weights[1, :3, 3]))
    print("  weights of the padding, with the mask: ", rounded(masked_weights[1, :3, 3]))
    unmasked_error = (output[1, :3] - alone[0]).abs().max()
    masked_error = (layer(x, x, x, mask)[1, :3] - alone[0]).abs().max()
    print(
        f"  difference from the unpadded sequence, without a mask: {unmasked_error:.2f}, "
        f"with the mask: {masked_error:.1e}"
    )

    expected, _ = scaled_dot_product_attention(
        *[x[:, None]] * 3, mask=padding_mask(tokens), scale=1.0
    )
    error = (expected[:, 0] - layer(x, x, x, mask)).abs().max()
    print(f"\nThe library's attention, which has a dimension for heads, differs by {error:.1e}.")

    words = [VOCABULARY[token] for token in tokens[1]]
    figure, (left, right) = new_figure(2)
    heat_map(left, unmasked_weights[1], queries=words, keys=words, title="without a mask")
    heat_map(right, masked_weights[1], queries=words, keys=words, title="with a padding mask")
    save(figure, "step2", folder)


def rounded(numbers: Tensor) -> list[float]:
    """Round numbers to three digits for printing."""
    return [round(number, 3) for number in numbers.tolist()]


if __name__ == "__main__":
    main()
