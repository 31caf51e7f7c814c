"""Step 2: many queries at once, as a layer.

    python examples/ladder/step2_many_queries.py

A sentence asks with all its words, and a batch with all its sentences. Nothing new happens: a row
of scores for each query, a softmax of each row. Only sentences differ in length: the shorter ones
are filled up with *padding*, which must not be read. A mask says where it is; True hides.
"""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from drawing import FOLDER, heat_map, new_figure, save
from transformer_blocks import padding_mask, scaled_dot_product_attention

VOCABULARY = ["<pad>", "the", "cat", "drinks", "milk", "sleeps"]


class Lookup(nn.Module):
    """Attention as a layer that has nothing to learn yet."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Mix values.

        Args:
            query: Shape (B, L, d).
            key: Shape (B, S, d).
            value: Shape (B, S, d).
            mask: True hides a key. Shape (B, 1, S).

        Returns:
            Shape (B, L, d).
        """
        return self.weights(query, key, mask) @ value

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compare every query with every key. Shape (B, L, S)."""
        scores = query @ key.transpose(-2, -1)  # (B, L, S)
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)  # whose exponential is zero
        return scores.softmax(dim=-1)


def main(folder: Path = FOLDER) -> None:
    """Show that the layer is step 1 for each query, and what padding does without a mask."""
    torch.manual_seed(0)
    tokens = torch.tensor([[1, 2, 3, 4], [1, 2, 5, 0]])  # the second sentence has three words
    embedding = torch.randn(len(VOCABULARY), 8) / 2
    x = embedding[tokens]  # (2, 4, 8)
    layer = Lookup()

    together = layer(x, x, x)
    one = (x[0] @ x[0, 2]).softmax(0) @ x[0]  # step 1, for the word "drinks" of the first sentence
    print("tokens (B, L) =", tuple(tokens.shape), "  vectors (B, L, d) =", tuple(x.shape))
    print(
        "weights (B, L, S) =", tuple(layer.weights(x, x).shape), "  answer =", tuple(together.shape)
    )
    print(f"\n'drinks' alone and in the layer: difference {(together[0, 2] - one).abs().max():.1e}")

    mask = padding_mask(tokens).squeeze(1)  # (B, 1, S); the library's has an axis for heads
    open_weights, masked_weights = layer.weights(x, x), layer.weights(x, x, mask)
    short = x[1:, :3]  # the second sentence, never padded
    alone = layer(short, short, short)
    print("\n'the cat sleeps', padded to four:")
    print("  weight that goes to the padding, without a mask:", rounded(open_weights[1, :3, 3]))
    print("  weight that goes to the padding, with the mask: ", rounded(masked_weights[1, :3, 3]))
    error_open = (together[1, :3] - alone[0]).abs().max()
    error_masked = (layer(x, x, x, mask)[1, :3] - alone[0]).abs().max()
    print(
        f"  difference from the sentence alone, without: {error_open:.2f}, with: {error_masked:.1e}"
    )

    mixed, _ = scaled_dot_product_attention(*[x[:, None]] * 3, mask=padding_mask(tokens), scale=1.0)
    error = (mixed[:, 0] - layer(x, x, x, mask)).abs().max()
    print(f"\nThe library's attention, with an axis for heads, differs by {error:.1e}")

    words = [VOCABULARY[token] for token in tokens[1]]
    figure, (left, right) = new_figure(2)
    heat_map(left, open_weights[1], rows=words, columns=words, title="without a mask")
    heat_map(right, masked_weights[1], rows=words, columns=words, title="padding hidden")
    save(figure, "step2", folder)


def rounded(numbers: Tensor) -> list[float]:
    """Make numbers short enough to print."""
    return [round(number, 3) for number in numbers.tolist()]


if __name__ == "__main__":
    main()
