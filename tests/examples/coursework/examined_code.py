"""Code in the styles of articles and of other libraries, right and wrong, for ``examine``."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AttentionWithTemperature(nn.Module):
    def __init__(self, temperature: float, attn_dropout: float = 0.1) -> None:
        super().__init__()
        self.temperature, self.dropout = temperature, nn.Dropout(attn_dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Any = None) -> Any:
        scores = torch.matmul(q / self.temperature, k.transpose(-2, -1))
        weights = self.dropout(self.normalise(scores, mask))
        return torch.matmul(weights, v), weights

    def normalise(self, scores: Tensor, mask: Any) -> Tensor:
        if mask is None:
            return F.softmax(scores, dim=-1)
        return F.softmax(scores.masked_fill(mask == 0, -math.inf), dim=-1).masked_fill(mask == 0, 0)


class AttentionWithEqualRows(AttentionWithTemperature):
    def normalise(self, scores: Tensor, mask: Any) -> Tensor:
        return F.softmax(scores if mask is None else scores.masked_fill(mask == 0, -1e9), dim=-1)


class AttentionReturningAPair(nn.Module):
    """With the residual connection and the norm inside; a mask of three axes; a pair returned."""

    def __init__(self, n_head: int, d_model: int, d_k: int, d_v: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.n_head = n_head
        self.w_qs, self.w_ks = (nn.Linear(d_model, n_head * d_k, bias=False) for _ in range(2))
        self.w_vs = nn.Linear(d_model, n_head * d_v, bias=False)
        self.fc = nn.Linear(n_head * d_v, d_model, bias=False)
        self.attention = AttentionWithTemperature(d_k**0.5)
        self.dropout, self.layer_norm = nn.Dropout(dropout), nn.LayerNorm(d_model)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Any = None) -> Any:
        pairs = (self.w_qs, q), (self.w_ks, k), (self.w_vs, v)
        heads = [f(x).view(len(x), x.size(1), self.n_head, -1).transpose(1, 2) for f, x in pairs]
        mask = mask if mask is None else mask.unsqueeze(1)
        attended, weights = self.attention(*heads, mask=mask)
        attended = attended.transpose(1, 2).reshape(q.shape)
        return self.layer_norm(self.dropout(self.fc(attended)) + q), weights


class OneHeadAttention(nn.Module):
    """Four dense layers of one depth; the input attends to the memory."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.q_dense_layer, self.k_dense_layer = nn.Linear(depth, depth), nn.Linear(depth, depth)
        self.v_dense_layer = nn.Linear(depth, depth, bias=False)
        self.output_dense_layer = nn.Linear(depth, depth, bias=False)

    def scale(self) -> float:
        return self.depth**-0.5

    def forward(self, input: Tensor, memory: Tensor, attention_mask: Any = None) -> Tensor:
        query = self.q_dense_layer(input) * self.scale()
        scores = torch.matmul(query, self.k_dense_layer(memory).transpose(1, 2))
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask, torch.finfo(scores.dtype).min)
        attended = torch.matmul(scores.softmax(-1), self.v_dense_layer(memory))
        output: Tensor = self.output_dense_layer(attended)
        return output


class AttentionNotScaled(OneHeadAttention):
    def scale(self) -> float:
        return 1.0


class AttentionToMemory(nn.Module):
    """Several heads, of an input and a memory; True hides."""

    def __init__(self, hidden_dim: int, head_num: int, dropout_rate: float = 0.1) -> None:
        super().__init__()
        self.head_num, self.hidden_dim = head_num, hidden_dim
        self.q_dense, self.k_dense, self.v_dense, self.output_dense = (
            nn.Linear(hidden_dim, hidden_dim) for _ in range(4)
        )

    def scale(self) -> float:
        return float(self.hidden_dim / self.head_num) ** 0.5

    def split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.head_num, -1)).transpose(1, 2)

    def forward(self, input: Tensor, memory: Tensor, attention_mask: Any = None) -> Tensor:
        query = self.split_heads(self.q_dense(input)) / self.scale()
        key, value = self.split_heads(self.k_dense(memory)), self.split_heads(self.v_dense(memory))
        scores = query @ key.transpose(-1, -2)
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask, -1e9)
        attended = (scores.softmax(-1) @ value).transpose(1, 2).reshape(input.shape)
        output: Tensor = self.output_dense(attended)
        return output


class AttentionScaledByModel(AttentionToMemory):
    def scale(self) -> float:
        return float(self.hidden_dim**0.5)


class AttnOfOneLayer(nn.Module):
    """A causal layer of one sequence, without a mask argument."""

    def __init__(self, n_embd: int, num_attention_heads: int, block_size: int = 50) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.n_head = num_attention_heads

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_head, -1)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = map(self.split, self.c_attn(x).split(x.shape[-1], dim=2))
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        output: Tensor = self.c_proj(y.transpose(1, 2).contiguous().view(x.shape))
        return output


class AttentionCutWithoutTranspose(AttnOfOneLayer):
    def split(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        return x.reshape(batch, self.n_head, length, size // self.n_head)


class AttentionWithoutHeads(nn.Module):
    """Attention without weights, of vectors (B, T, E), with a mask that is added."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
        scores = torch.bmm(query, key.transpose(1, 2)) / query.shape[-1] ** 0.5
        if mask is None:
            return torch.bmm(torch.softmax(scores, -1), value)
        weights = torch.softmax(scores.masked_fill(mask < 0, -math.inf), -1)
        return torch.bmm(weights.masked_fill(mask < 0, 0.0), value)


class PositionsOfSinusoids(nn.Module):
    """The positional encoding of a tutorial, named as such by an argument."""

    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 5000) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        table = torch.zeros(max_len, d_model)
        position = torch.arange(max_len).unsqueeze(1)
        rates = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        table[:, 0::2], table[:, 1::2] = torch.sin(position * rates), torch.cos(position * rates)
        self.register_buffer("positions", table)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.dropout(x + self.get_buffer("positions")[: x.size(1)])
        return output


class PositionsAlongTheBatch(PositionsOfSinusoids):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.get_buffer("positions")[: x.size(0), None]


def mask_of_a_lower_triangle(size: int) -> Tensor:
    return torch.triu(torch.ones(1, size, size), diagonal=1) == 0


def mask_that_hides_itself(size: int) -> Tensor:
    return torch.triu(torch.ones(size, size), diagonal=0).bool()


class SequenceFirst(nn.Module):
    def __init__(self, d_model: int, nhead: int) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(d_model, nhead, 20, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)
        return output


class AttnOfAConfig(nn.Module):
    """Packed keys, queries and values, of a configuration, with an own causal mask and padding."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.head_size = config.n_embd // config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.register_buffer("causal", torch.tril(torch.ones(config.block_size, config.block_size)))

    def attends(self, length: int) -> Tensor:
        return self.get_buffer("causal")[:length, :length] != 0

    def forward(self, x: Tensor, attention_mask: Any = None) -> Any:
        key, query, value = (
            part.unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for part in self.c_attn(x).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.head_size)
        scores = scores.masked_fill(~self.attends(x.shape[1]), -math.inf)
        if attention_mask is not None:
            scores = scores + (1 - attention_mask[:, None, None]) * torch.finfo(x.dtype).min
        weights = scores.softmax(-1)
        return self.c_proj((weights @ value).transpose(1, 2).flatten(2)), weights


class AttnToTheNext(AttnOfAConfig):
    def attends(self, length: int) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool).triu(diagonal=2).logical_not()


class AttentionSequenceFirst(nn.Module):
    """Inputs (L, B, E), and a mask of each kind, given to torch's layer."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(embed_dim, num_heads)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Any = None, attn_mask: Any = None
    ) -> Any:
        return self.inner(q, k, v, key_padding_mask, need_weights=True, attn_mask=attn_mask)


class HeadOfLengths(nn.Module):
    """Values, keys and queries of one head without an output projection, and their lengths."""

    def __init__(self, num_hiddens: int, head_size: int) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(num_hiddens, head_size) for _ in range(3))

    def masked(self, scores: Tensor, is_real: Tensor) -> Tensor:
        return scores.masked_fill(~is_real, -1e6)

    def forward(self, v: Tensor, k: Tensor, q: Tensor, valid_lens: Any) -> Tensor:
        queries, keys = self.query(q), self.key(k)
        scores = torch.bmm(queries, keys.transpose(1, 2)) / keys.shape[-1] ** 0.5
        if valid_lens is not None:
            is_real = torch.arange(keys.shape[1])[None, None] < valid_lens[:, None, None]
            scores = self.masked(scores, is_real)
        return torch.bmm(scores.softmax(-1), self.value(v))


class HeadNearZero(HeadOfLengths):
    def masked(self, scores: Tensor, is_real: Tensor) -> Tensor:
        return scores.masked_fill(~is_real, 1e-6)


class PositionsAlone(PositionsOfSinusoids):
    def forward(self, x: Tensor) -> Tensor:
        return self.get_buffer("positions")[: x.size(1)].expand_as(x)


def positions_of(position: int, d_model: int) -> Tensor:
    return PositionsOfSinusoids(d_model).get_buffer("positions")[None, :position]


def padding_mask_of(seq: Tensor, pad_idx: int) -> Tensor:
    return (seq != pad_idx).unsqueeze(-2)


class GatedLayer(nn.Module):
    """Three projections, but no attention."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.up, self.gate, self.down = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.down(self.up(x) * self.gate(x).sigmoid())
        return output


class AttnMasked(nn.Module):
    """Several heads of one sequence, with a mask of two to four axes in which True attends."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def merge(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)

    def masked(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return scores if mask is None else scores.masked_fill(~mask, -math.inf)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = self.split(self.wq(x)), self.split(self.wk(x)), self.split(self.wv(x))
        scores = self.masked(query @ key.mT / query.shape[-1] ** 0.5, mask)
        output: Tensor = self.wo(self.merge(scores.softmax(-1) @ value))
        return output


class AttnInterleaved(AttnMasked):
    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2)

    def merge(self, heads: Tensor) -> Tensor:
        return heads.permute(0, 2, 3, 1).flatten(2)


class AttnCausalUnlessMasked(AttnMasked):
    def masked(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        return super().masked(scores, causal if mask is None else mask)


class AttnCausalUnlessPadded(AttnCausalUnlessMasked):
    """Padding (B, S) takes the place of its causal mask."""

    def masked(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return super().masked(scores, mask if mask is None else mask[:, None, None])


class AttnOfTwoAxes(AttnMasked):
    """A mask of two axes is taken for that of one query."""

    def masked(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return super().masked(scores, mask[-1:] if mask is not None and mask.ndim == 2 else mask)


class AttnWithOnesAdded(AttnMasked):
    def masked(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return scores if mask is None else scores + mask.bool().float()


class AttnWithRotaryPositions(AttnMasked):
    def split(self, x: Tensor) -> Tensor:
        first, second = super().split(x).chunk(2, -1)
        angles = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)[:, None]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


class AttnAlwaysCausal(AttnMasked):
    """It may attend to a memory, and its mask is always causal, too."""

    def keys(self, x: Tensor, memory: Tensor) -> int:
        return memory.shape[1]

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        query, key = self.split(self.wq(x)), self.split(self.wk(memory))
        future = torch.ones(x.shape[1], self.keys(x, memory), dtype=torch.bool).triu(1)
        scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(future, -math.inf)
        weights = self.masked(scores, mask).softmax(-1)
        output: Tensor = self.wo(self.merge(weights @ self.split(self.wv(memory))))
        return output


class AttnCausalOfOneLength(AttnAlwaysCausal):
    """It refuses a memory of another length."""

    def keys(self, x: Tensor, memory: Tensor) -> int:
        return x.shape[1]


class AttnPackedByHead(nn.Module):
    """Each head has its queries, keys and values beside each other."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.qkv(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2).chunk(3, dim=-1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = self.parts(x)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        output: Tensor = self.proj(attended.transpose(1, 2).flatten(2))
        return output


class AttnPackedInAnotherOrder(AttnPackedByHead):
    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        parts = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return parts[2], parts[1], parts[0]


class PositionsSinesFirst(PositionsOfSinusoids):
    def forward(self, x: Tensor) -> Tensor:
        table = self.get_buffer("positions")[: x.size(1)]
        return x + torch.cat((table[:, 0::2], table[:, 1::2]), -1)


class PositionsOfTokens(PositionsOfSinusoids):
    def forward(self, x: Tensor) -> Tensor:
        _, length = x.shape
        return self.get_buffer("positions")[:length]


class PositionsThatAreLearned(nn.Module):
    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_len, d_model)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = x + self.table(torch.arange(x.size(1), device=x.device))
        return output


class ModelFromPositionOne(nn.Module):
    def __init__(self, vocab_size: int, d_model: int, max_len: int) -> None:
        super().__init__()
        self.tokens, self.table = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)

    def forward(self, idx: Tensor) -> Tensor:
        output: Tensor = self.tokens(idx) + self.table(
            torch.arange(1, idx.size(1) + 1, device=idx.device)
        )
        return output


def attn_pad_mask(seq_q: Tensor, seq_k: Tensor) -> Tensor:
    return seq_k.eq(0).unsqueeze(1).expand(-1, seq_q.size(1), -1)


def pad_mask_over_queries(seq: Tensor, pad_idx: int) -> Tensor:
    return (seq != pad_idx).unsqueeze(1).unsqueeze(3)


class LayerWithoutResiduals(nn.Module):
    """The attention's residual connection is missing."""

    def __init__(self, d_model: int, nhead: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.norm, self.up = nn.LayerNorm(d_model), nn.Linear(d_model, d_model)

    def normed(self, x: Tensor) -> Tensor:
        output: Tensor = self.norm(x)
        return output

    def attend(self, x: Tensor) -> Tensor:
        output: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return output

    def forward(self, x: Tensor) -> Tensor:
        x = self.attend(self.normed(x))
        output: Tensor = x + self.up(self.normed(x))
        return output


class LayerWithNormOfSequences(LayerWithoutResiduals):
    def normed(self, x: Tensor) -> Tensor:
        return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-6)

    def attend(self, x: Tensor) -> Tensor:
        return x + super().attend(x)


class DecoderOfMasksOfItsCaller(LayerWithoutResiduals):
    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Any, memory_mask: Any) -> Tensor:  # type: ignore[override]
        y = self.normed(tgt)
        x = tgt + self.attention(y, y, y, attn_mask=tgt_mask, need_weights=False)[0]
        y = self.normed(x)
        x = x + self.attention(y, memory, memory, attn_mask=memory_mask, need_weights=False)[0]
        return x + self.up(self.normed(x)).relu()
