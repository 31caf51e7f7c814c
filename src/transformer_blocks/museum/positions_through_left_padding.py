"""Positions counted through the padding on the left.

A tool that records the activations of language models puts several prompts into one batch with
padding on the left, and passes the ids and the mask to GPT-2, but no positions. The model then
counts them from the start of the row: the first real token of a short prompt is not at position
zero.

The mask is right, so that padding is not attended to, and the longest prompt of each batch is
right. All shorter ones are computed at shifted positions. The report of June 2026 measures the
effect: one padded position changes the most probable next token for most prompts, two change it for
all. There was no error.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inspection import Soundness, check_soundness
from transformer_blocks.museum.exhibit import Exhibit, seeded


class Broken(nn.Module):
    """A causal language model with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.positional = nn.Embedding(32, 16)
        self.query_key_value = nn.Linear(16, 48)
        self.output = nn.Linear(16, 20)

    def positions(self, attention_mask: Tensor) -> Tensor:
        # the fault: the padding is counted
        return torch.arange(attention_mask.shape[1], device=attention_mask.device)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embedding(ids) + self.positional(self.positions(attention_mask))
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        length = ids.shape[1]
        past = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
        mask = past & attention_mask.bool()[:, None, :]
        return self.output(x + F.scaled_dot_product_attention(query, key, value, attn_mask=mask))


class Mended(Broken):
    """The same, with positions counted along the real tokens of each row."""

    def positions(self, attention_mask: Tensor) -> Tensor:
        return (attention_mask.cumsum(dim=1) - 1).clamp(min=0)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two prompts, the second with padding on the left."""
    ids = torch.tensor([[5, 3, 8, 2, 7, 4], [0, 0, 0, 6, 9, 1]])
    attention_mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]])
    return check_soundness(model, (ids, attention_mask), causal=True, padding_id=0)


EXHIBIT = Exhibit(
    title="Positions counted through the padding on the left",
    theme="padding",
    source="https://github.com/ndif-team/nnsight/issues/672",
    found_by="batch",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
