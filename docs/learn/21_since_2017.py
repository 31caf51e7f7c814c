# %% [markdown]
# # 21 Since 2017
#
# **Which parts of the Transformer have been replaced since the paper, and why?**
#
# The paper's model translates. Most of today's models continue a text: they
# consist of a decoder alone and are much larger. The paper's base model has 65
# million parameters, [LLaMA](https://arxiv.org/abs/2302.13971) has up to 65
# billion. The layer itself has changed much less than its size: attention, a
# feed-forward network, residual connections and normalisation are all still there. Almost every part has been
# replaced by a close relative, each for a reason that one can compute.
#
# ![Two layers side by side. Left, 2017: causal self-attention with 8 heads, add, LayerNorm, feed-forward network with ReLU, add, LayerNorm, on embeddings plus sinusoids. Right, today: RMSNorm, grouped-query attention whose queries and keys are normalised and rotated, add, RMSNorm, SwiGLU, add, and a last RMSNorm above the stack.](figures/side_by_side.svg)
#
# | part | 2017 | today | reason |
# | --- | --- | --- | --- |
# | stack | encoder and decoder | decoder only | one task: the next token |
# | place of the norm | after the sublayer | before it | deep stacks train stably |
# | norm | LayerNorm | RMSNorm | cheaper, as good |
# | positions | added sinusoids | rotary | scores depend on the offset |
# | keys and values | one head per query head | shared by a group | smaller cache |
# | queries, keys | as projected | normalised | bounded scores |
# | feed-forward | ReLU | gated, SwiGLU | lower loss at equal size |
# | biases | in feed-forward networks and norms | few or none | stable training |
#
# A decoder-only model has no source and therefore no cross-attention. What remains
# of a decoder layer is an encoder layer with a causal mask. In this library it is
# an encoder that is called with `causal=True`. Pre-norm was the subject of
# [chapter 9](09_layer.ipynb). It can be trained without a warm-up, but large models keep
# one: LLaMA's has 2,000 updates. We now take the other parts one by one.
#
# ## RMSNorm
#
# LayerNorm subtracts the mean of a vector and divides by its standard deviation.
# RMSNorm ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)) does not
# subtract. It divides by the *root mean square*. By hand, for the vector (3, 4):
#
# | step | LayerNorm | RMSNorm |
# | --- | --- | --- |
# | subtract | mean 3.5: (-0.5, 0.5) | nothing: (3, 4) |
# | divide by | standard deviation 0.5 | √((9 + 16) / 2) = 3.536 |
# | result | (-1, 1) | (0.849, 1.131) |
#
# Both have a learned gain $g$ for each feature. LayerNorm has a bias in addition.

# %% [markdown] tags=["formula"]
# $$\mathrm{rms}(x) = \sqrt{\frac{1}{d} \sum_{i=1}^{d} x_i^2 + \epsilon}$$
#
# $$y_i = g_i \, \frac{x_i}{\mathrm{rms}(x)}$$

# %% tags=["implementation"]
import torch


def rms_norm(x, gain, eps=1e-6):
    """Divide by the root mean square: (..., d)."""
    square = x.pow(2).mean(dim=-1, keepdim=True)
    return gain * x / (square + eps).sqrt()


# %% tags=["proof"]
from torch import nn

from transformer_blocks import PreNorm

torch.manual_seed(0)
residual = PreNorm(16, norm=nn.RMSNorm(16, eps=1e-6)).eval()
nn.init.normal_(residual.norm.weight)
x = torch.randn(2, 5, 16)
mine = x + rms_norm(x, residual.norm.weight).tanh()
assert torch.allclose(residual(x, torch.tanh), mine, atol=1e-6)
print(rms_norm(torch.tensor([3.0, 4.0]), torch.ones(2)))

# %% [markdown]
# Here, tanh takes the place of a sublayer. The library's residual connections
# accept any normalisation.
#
# ## Rotary positions
#
# Sinusoids are added to the embeddings once, at the bottom. *Rotary positional
# encoding* (RoPE, [Su et al. 2021](https://arxiv.org/abs/2104.09864)) leaves the
# embeddings as they are. In every layer it takes the features of each query and
# key in pairs, as points of a plane, and rotates each by an angle that is
# proportional to the position.
#
# By hand, with one pair and 60° per position. The query is (1, 0), which points to
# 0°. The key is (0, 1), which points to 90°. Both have the length 1, so their
# dot product is the cosine of the angle between them.
#
# | query at | key at | query points to | key points to | score |
# | --- | --- | --- | --- | --- |
# | 2 | 2 | 120° | 90° + 120° = 210° | cos 90° = 0 |
# | 2 | 1 | 120° | 90° + 60° = 150° | cos 30° = 0.87 |
# | 1 | 2 | 60° | 90° + 120° = 210° | cos 150° = -0.87 |
# | 9 | 8 | 540° | 90° + 480° = 570° | cos 30° = 0.87 |
#
# Positions 2 and 1 give the same score as 9 and 8: only the offset counts. But its
# **sign** counts, too: one position before is not the same as one position after.
# And the score still depends on the content, the two vectors themselves.
#
# In the formula, $m$ is the position, and $i = 0, 1, \dots$ is the number of the pair:

# %% [markdown] tags=["formula"]
# $$x'_{2i} = x_{2i} \cos m\theta_i - x_{2i+1} \sin m\theta_i$$
#
# $$x'_{2i+1} = x_{2i} \sin m\theta_i + x_{2i+1} \cos m\theta_i$$
#
# $$\theta_i = 10000^{-2i / d_k}$$


# %% tags=["implementation"]
def rotate(x, start=0):
    """Rotate the pairs of (L, d_k) by position."""
    length, d_k = x.shape
    m = start + torch.arange(length)[:, None]
    pair = torch.arange(0, d_k, 2)  # 0, 2, 4, ...
    theta = 10000 ** (-pair / d_k)
    cos, sin = (m * theta).cos(), (m * theta).sin()
    even, odd = x[:, 0::2], x[:, 1::2]  # pairs
    rotated = torch.empty_like(x)
    rotated[:, 0::2] = even * cos - odd * sin
    rotated[:, 1::2] = even * sin + odd * cos
    return rotated


# %% tags=["proof"]
from transformer_blocks import RotaryPositionalEncoding

torch.manual_seed(0)
x = torch.randn(6, 16)
rotary = RotaryPositionalEncoding(d_k=16)
for start in (0, 40):
    expected = rotary.transform_queries(x[None, None], start=start)
    assert torch.allclose(rotate(x, start), expected[0, 0], atol=1e-5)
print("equal, of shape", list(x.shape))

# %% [markdown]
# Measure the claim with random vectors of 16 features, hence eight pairs, each
# with an angle of its own:

# %%
query, key = torch.randn(2, 1, 16)


def score(query_position, key_position):
    q, k = rotate(query, query_position), rotate(key, key_position)
    return (q @ k.T).item()


for m, n in ((5, 3), (105, 103), (3, 5), (4, 4)):
    print(f"query at {m:3d}, key at {n:3d}: {score(m, n):6.2f}")

# %% [markdown]
# ![The score of one fixed query and one fixed key against their offset from -30 to 30, an irregular curve that is not symmetric around 0. The curve for a query at position 100 lies exactly on that for a query at position 40.](figures/rotary_scores.svg)
#
# The two dots are the offsets 2 and -2 from above. Values are not rotated. They
# carry content.
#
# ## Trained short, tested long
#
# Sinusoids and rotations exist for every position. [Chapter 8](08_positions.ipynb)
# showed that this is not enough: its model failed on sequences longer than those of
# its training. Two other parts leave embeddings, queries and keys as they are, and
# change the *scores* instead. *ALiBi* ([Press et al.
# 2021](https://arxiv.org/abs/2108.12409)) subtracts the distance of query and key,
# times a slope that differs between heads. The *relative position bias* of T5
# ([Raffel et al. 2020](https://arxiv.org/abs/1910.10683)) is a learned number for each
# *bucket* of distances. Short distances have a bucket each. Longer ones share buckets
# whose size grows logarithmically, and all distances from 128 on share the last.
#
# The title of ALiBi's paper is its claim: *train short, test long*. We train small
# language models on sequences of 64 tokens, with six ways to encode positions, and
# test them on sequences of 64 to 512 tokens. Two questions need care.
#
# *Is there anything to gain?* The text is generated, and each document has frequent
# names of its own. An ideal reader, who knows the rules of the generator, predicts the
# next name of a document better from 512 tokens than from 64. The perplexity of this
# reader can be computed, and falls from 3.60 to 3.11.
#
# *Are the lengths compared fairly?* All of them are measured on the same tokens, the
# last 32 of 256 new documents. Only the number of tokens that precede them differs.
# Each measured token has at least 32 before it, so that none is counted that has hardly
# any context.
#
# A table of learned positions ends where training ended. Here, it is simply made
# longer, and its later rows keep their random initial values.
#
# All models have two layers and 1,000 updates. Predict what happens to the six
# perplexities when the sequence becomes 2, 4 and 8 times as long. The cell shows the
# means of three seeds, which 12 minutes of one CPU core computed:
#
# ```
# python docs/experiments/extrapolation.py
# ```

# %%
import json
from pathlib import Path

file = Path("../experiments/results/extrapolation.json")
record = json.loads(file.read_text(encoding="utf-8"))
lengths, results = record["settings"]["lengths"], record["results"]
print("tokens        ", *(f"{length:6d}" for length in lengths))
for name, found in results.items():
    row = found if name == "ideal" else found["mean"]
    print(f"{name:14s}", *(f"{each:6.2f}" for each in row))

# %% [markdown]
# ![Two diagrams of perplexity against the length of the sequence, 64 to 512 tokens. Sinusoidal and learned positions rise steeply at 128 tokens, to about 10 and 9. No positions, relative bias and rotary stay level or fall at 128 tokens and then rise, to 7.3, 6.0 and 4.9 at 512. ALiBi falls slowly from 3.94 to 3.76. The ideal reader falls from 3.60 to 3.11.](figures/extrapolation.svg)
#
# (A line is the mean of three seeds, its band reaches from the lowest to the highest.
# The line of the learned positions is dotted, since no table of trained rows is so
# long.)
#
# With sinusoids, and with untrained rows, the mean perplexity more than doubles as soon
# as the sequence is twice as long. The authors of the paper chose sinusoids because they
# might extrapolate (section 3.5); here they do not, as in [chapter 8](08_positions.ipynb). With ALiBi it falls at each doubling, with every
# seed, from 3.94 to 3.76 (standard deviation between seeds 0.03). So the claim holds
# for these models. But the other rows show that it is not the whole story:
#
# - **Rotary positions and relative biases allow twice the length.** Their perplexity
#   falls there, too, and that of rotary positions is lowest of all, 3.74. It rises
#   later: at 8 times the length, it is 4.9 and 6.0.
# - **A trained bias for every distance is not enough.** In the model with relative
#   biases, all distances from 15 on share one number in each head, which was trained. Its
#   perplexity rises nevertheless. A probable reason, which we did not measure: a longer
#   sequence has more keys with this bias, and together they get more weight than in
#   training.
# - **Without any positions** the model does not become worse at twice the length,
#   either: the causal mask is there ([chapter 8](08_positions.ipynb)).
# - **ALiBi does not lose, but it gains little.** From 64 to 512 tokens, the ideal reader
#   gains 14 %, ALiBi 5 %, and by the last doubling 0.3 %. At the distance 512, its four
#   heads subtract 128, 32, 8 and 2 from the score. Tokens with so little weight do not
#   disturb, and hardly help.
#
# This is one kind of text and one size, and the training sequences are short. Elsewhere,
# relative biases may be better than rotary positions. That a position is *defined* beyond
# the training length says little; a measurement decides.
#
# Many published models with rotary positions got their long context by further training
# on longer sequences, with slower rotations, so that the angles stay in the range of the
# first training. *Position interpolation* ([Chen et al.
# 2023](https://arxiv.org/abs/2306.15595)) slows all rotations, Llama 3.1 only the slow
# ones. Both are in [`rotary_scaling`](../reference/variants/rotary_scaling.md).
#
# ## Grouped-query attention
#
# While a model writes, the keys and values of all earlier tokens lie in a cache
# ([chapter 16](16_choose_words.ipynb)). Each step reads all of it, and all weights, and this
# reading, not the arithmetic, limits the speed. In *grouped-query attention*
# ([Ainslie et al. 2023](https://arxiv.org/abs/2305.13245)) several query heads
# share one head of keys and values. With $G$ such heads, a layer stores $2 G d_k$
# numbers for each token, instead of $2 H d_k$. By hand, for $d = 512$ and $H = 8$
# heads of 64:
#
# | G | numbers for each token | 1,000 tokens, 6 layers, 2 bytes each |
# | --- | --- | --- |
# | 8 | 2 · 8 · 64 = 1,024 | 12.3 MB |
# | 2 | 2 · 2 · 64 = 256 | 3.1 MB |
#
# Is that much? The six layers have 4 · 512² + 2 · 512 · 2,048 = 3.1 million weights each,
# 37.7 MB in all. For one sequence of 1,000 tokens, a step reads three times as many bytes of
# weights as of the cache. But a batch reads the weights once, and a cache for each of its
# sequences: from four sequences on, or from one of 4,000 tokens, the cache is the larger part.

# %%
from transformer_blocks import KeyValueCache, MultiHeadAttention

x = torch.randn(1, 10, 512)  # ten tokens
for groups in (8, 2):
    layer = MultiHeadAttention(
        512, 8, num_key_value_heads=groups, bias=False
    )
    cache = KeyValueCache()
    with torch.no_grad():
        layer(x, x, x, causal=True, cache=cache)
    stored = sum(each.numel() for each in cache.read())
    weights = sum(each.numel() for each in layer.parameters())
    print(f"G = {groups}: {stored // 10} numbers a token,")
    print(f"       {weights:,} weights")

# %% [markdown]
# The layer has fewer weights, too: the projections of keys and values shrink from
# 512 to 128 outputs.
#
# ## A gated feed-forward network
#
# ReLU decides with the same number whether a unit is active and how much.
# *SwiGLU* ([Shazeer 2020](https://arxiv.org/abs/2002.05202)) has two projections:
# one is the content, the other, through the function
# $\mathrm{silu}(z) = z / (1 + e^{-z})$, is the gate that multiplies it. If the gate
# has $z = 2$ and the content is 3, the unit is silu(2) · 3 = 1.76 · 3 = 5.28.
#
# $$\mathrm{FFN}(x) = \bigl(\mathrm{silu}(x W) \odot x V\bigr) \, W_2$$
#
# Three matrices instead of two: with two thirds of the inner size, the number of
# weights is the same. Shazeer measured a lower loss, and writes that he has no
# explanation for it.
#
# ## No biases, normalised queries and keys
#
# In the paper, the feed-forward networks and LayerNorm have biases. (This library's
# attention has them too, unless `bias=False`.) PaLM ([Chowdhery et al.
# 2022](https://arxiv.org/abs/2204.02311)) left out all of them, and found the training
# of large models more stable. LLaMA has none either. *Query-key normalisation* ([Henry
# et al. 2020](https://arxiv.org/abs/2010.04245)) applies a norm to each query and each
# key, because nothing else bounds their lengths: in the training of large vision models
# ([Dehghani et al. 2023](https://arxiv.org/abs/2302.05442)), they grew until the
# softmax saturated ([chapter 4](04_scale.ipynb)) and the training diverged.
#
# ## One stack, other parts
#
# The library's classes receive their parts as arguments. So today's layer is not
# a new class. [`build_encoder`](../reference/blocks/builders.md#build_encoder) accepts a *factory* for
# each part, a function that returns a new one for every layer.

# %%
from functools import partial

from transformer_blocks import (
    FeedForward,
    GatedFeedForward,
    QueryKeyNorm,
    build_encoder,
)
from transformer_blocks.inspection import check_soundness


def rms_pre_norm(d_model, dropout):
    norm = nn.RMSNorm(d_model)
    return PreNorm(d_model, dropout=dropout, norm=norm)


def grouped():
    transforms = [QueryKeyNorm(8), RotaryPositionalEncoding(8)]
    return MultiHeadAttention(
        64,
        8,
        num_key_value_heads=2,
        bias=False,
        transforms=transforms,
    )


parts = {
    "residual": rms_pre_norm,
    "attention": grouped,
    "feed_forward": lambda: GatedFeedForward(64, 170),
}
SIZES = {"num_layers": 2, "d_model": 64, "num_heads": 8}
PAPER = {"feed_forward": lambda: FeedForward(64, 256)}
models = {"2017": {}, **{name: {name: parts[name]} for name in parts}}
models["today"] = parts
x = torch.randn(1, 6, 64)
print("replaced       weights   causal")
for name, replaced in models.items():
    stack = build_encoder(**SIZES, **PAPER | replaced).eval()
    count = sum(each.numel() for each in stack.parameters())
    causal = check_soundness(
        partial(stack, causal=True), x, only="causality"
    )
    print(f"{name:13s} {count:8,d}   {bool(causal)}")

# %% [markdown]
# `residual` is pre-norm with RMSNorm, `attention` is grouped-query attention with
# rotary positions and normalised queries and keys. Every combination runs, and
# stays causal.
#
# ## Is today's model better?
#
# `examples/generate_text.py` trains both styles on generated stories: two layers,
# about 380,000 parameters, 1,000 updates, seed 0. Predict the difference in
# perplexity before you read on.
#
# ```
# for style in today 2017; do
#     python examples/generate_text.py train --style $style --run runs/$style
#     python examples/generate_text.py evaluate --run runs/$style
# done
# ```
#
# | model | perplexity |
# | --- | --- |
# | `--style today` | 1.419 |
# | `--style 2017` | 1.422 |
# | 5-grams | 1.990 |
#
# The last row is a table of counts, as in [chapter 16](16_choose_words.ipynb), but the
# next token depends on the last four.
#
# There is no meaningful difference. One seed and a simple text cannot show one.
# The replaced parts were chosen for depth, long contexts, fast decoding and long
# trainings, and a model of two layers has none of these problems. A claim
# that a part is better needs the size at which it was measured. [All results](../results.md) are
# told with their commands.
#
# ## Since 2023
#
# Newer models continue in two directions: a token needs less memory in the cache, and less time in the feed-forward networks.
#
# **Windows, and a sink.** In every other layer of gpt-oss ([OpenAI
# 2025](https://arxiv.org/abs/2508.10925)) a token attends to the last 128 tokens only, so
# that the layer's cache stops growing. The other layers see the whole text. A window has a
# difficulty: the weights of a softmax sum to 1, even if no key fits. Models that were trained with full attention give this weight to the first tokens, whatever they are, and fail when the window no
# longer contains these *sinks* ([Xiao et al. 2023](https://arxiv.org/abs/2309.17453)). In gpt-oss, a sink is one more term in the
# denominator, learned for each head, without a value. By hand, for two keys and
# a sink of $e^0$:
#
# | scores | weights | with a sink |
# | --- | --- | --- |
# | 0, 0 | 1/2, 1/2 | 1/3, 1/3 |
# | -4, -4 | 1/2, 1/2 | $e^{-4} / (1 + 2 e^{-4})$ = 0.018 each |
#
# In the second row the head attends to almost nothing.

# %% tags=["proof"]
from transformer_blocks import SinkAttention

scores = torch.tensor([[0.0, 0.0], [-4.0, -4.0]])
sink = torch.zeros(2, 1)
with_sink = torch.cat([scores, sink], dim=-1).softmax(dim=-1)[:, :-1]
query = torch.tensor([0.0, -4.0]).view(1, 1, 2, 1)
key = torch.ones(1, 1, 2, 1)
with torch.no_grad():
    theirs = SinkAttention(1).attention_weights(query, key)[0, 0]
assert torch.allclose(with_sink, theirs, atol=1e-6)
print(with_sink)

# %% [markdown]
# **A mixture of experts** ([Shazeer et al. 2017](https://arxiv.org/abs/1701.06538), since 2023 in many large models). Two thirds of a
# layer's weights are in its feed-forward network, and every token is multiplied with all of them. A mixture has many such networks, the
# *experts*, and a *router*, a linear layer that chooses a few for each token. The memory is that of all experts, the arithmetic that of the chosen ones:


# %% tags=["implementation"]
def mixture(x, router, experts, k):
    """Each token x[i] uses k of the experts: (N, d)."""
    logits, chosen = router(x).topk(k)  # (N, k)
    weights = logits.softmax(dim=-1)
    output = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        token, place = (chosen == number).nonzero().T
        weight = weights[token, place, None]
        output[token] += weight * expert(x[token])
    return output


# %% tags=["proof"]
from transformer_blocks import MixtureOfExperts

torch.manual_seed(0)
layer = MixtureOfExperts(
    64,
    num_experts=8,
    top_k=2,
    expert=lambda: GatedFeedForward(64, 170),
).eval()
x = torch.randn(5, 64)  # five tokens
with torch.no_grad():
    mine = mixture(x, layer.router, layer.experts, 2)
    assert torch.allclose(layer(x[None])[0], mine, atol=1e-6)
    chosen = layer.router(x).topk(2).indices
one = sum(each.numel() for each in layer.experts[0].parameters())
print("chosen", chosen.tolist())
print(f"{8 * one:,} weights, a token uses {2 * one:,}")

# %% [markdown]
# ![Five tokens above a router and eight experts. One token after another is marked, with lines through the router to its two experts, which light up. Below stands the number of tokens of each expert: 0, 1, 2, 1, 3, 1, 1, 1.](figures/experts.svg)
#
# In the figure, words stand for the five vectors. Expert 4 computes three of them, expert 0 none: nothing here
# makes the router use all of its experts. To keep all of them in use, training adds a term to the loss or a bias to the router ([`routing`](../reference/variants/routing.md)).
#
# **Latent attention.** DeepSeek-V2 ([2024](https://arxiv.org/abs/2405.04434)) stores no keys and values of heads. A linear layer compresses a token to one short *latent vector* $c$, and two others compute the keys
# and values of all heads from it. Only $c$ is stored, and one small rotated key. And since $q \cdot (W c) = (W^T q) \cdot c$, the keys need not be computed again at
# each step: the query is multiplied by $W^T$ instead, and compared with $c$ itself. Likewise the $c$ are summed with the weights first, and the sum is multiplied once by the matrix of the values.
# (A rotation would stand between $W^T$ and the query. So the rotated key, which all heads share, is computed beside $c$.)

# %%
from transformer_blocks import LatentAttention

layer = LatentAttention(
    512,
    8,
    latent_size=96,
    value_size=64,
    rotary=RotaryPositionalEncoding(32),
)
x, cache = torch.randn(1, 10, 512), KeyValueCache()
with torch.no_grad():
    layer(x, x, x, causal=True, cache=cache)
stored = sum(each.numel() for each in cache.read())
print(f"{stored // 10} numbers a token")

# %% [markdown]
# These are half as many as with two groups above, and every head has keys of its own. How
# much do the published models save? Their configurations say how many
# numbers a layer stores for a token, and how many layers attend to the whole text. (The last column is what a text of 131,072 tokens would need; GPT-2 XL reads
# 1,024 and Llama 3 8B 8,192.)

# %%
published = {  # layers, numbers a token in each
    "GPT-2 XL (2019)": (48, 2 * 25 * 64),  # 25 heads of 64
    "Llama 3 8B (2024)": (32, 2 * 8 * 128),  # 8 groups of 128
    "Qwen3 30B-A3B (2025)": (48, 2 * 4 * 128),  # 4 groups of 128
    "DeepSeek-V3 (2024)": (61, 512 + 64),  # c and a rotated key
    "gpt-oss-20b (2025)": (12, 2 * 8 * 64),  # 12 of 24 layers
}
print("                     bytes     GiB for")
print("                   a token  131,072 tokens")
for name, (layers, numbers) in published.items():
    size = 2 * layers * numbers  # two bytes for each number
    print(f"{name:20s}{size:8,d} {size * 131072 / 2**30:9.1f}")

# %% [markdown]
# The largest of these models, DeepSeek-V3 with 671 billion weights, needs a quarter of the
# cache of GPT-2 XL with its 1.5 billion. And of the 256 experts in most of its layers a token uses 8
# (and one more that all tokens share): 37 billion of the 671 billion weights.
#
# Their architectures are in the library, too. [Chapter 17](17_your_own_gpt.ipynb) has that of GPT-2; beside its file are `llama_family.py`,
# `qwen3.py`, `gpt_oss.py` and `deepseek_v3.py`, each of which composes a model from parts like those of this chapter.
#
# ## Broken on purpose
#
# There are two conventions for rotary positions. RoPE's paper and this library
# rotate *neighbours*: features 0 and 1, 2 and 3, and so on. The LLaMA models, as
# published for `transformers`, rotate *halves*: with $d_k = 8$, features 0 and 4,
# 1 and 5. There is no difference in quality, since features have no order. But
# weights that were trained with the one do not fit the other. Predict what
# happens when they are loaded nevertheless.

# %% tags=["broken"]
from transformer_blocks import MultiHeadAttention, record_attention


def pair_up(x):
    """Reorder features 0 to 7 as 0, 4, 1, 5, 2, 6, 3, 7."""
    return x.unflatten(-1, (2, -1)).transpose(-2, -1).flatten(-2)


class Halves(RotaryPositionalEncoding):
    """The other convention: feature i pairs with i + d_k / 2."""

    def transform_queries(self, queries, *, start):
        return super().transform_queries(pair_up(queries), start=start)

    def transform_keys(self, keys, *, start):
        return super().transform_keys(pair_up(keys), start=start)


torch.manual_seed(0)
published = MultiHeadAttention(32, 4, transforms=[Halves(8)]).eval()
loaded = MultiHeadAttention(
    32, 4, transforms=[RotaryPositionalEncoding(8)]
).eval()
print(loaded.load_state_dict(published.state_dict()))
x = torch.randn(1, 8, 32)
soundness = check_soundness(
    lambda x: loaded(x, x, x, causal=True), x, only="causality"
)
print(soundness["causality"])

weights, scores = [], []
for layer in (published, loaded):
    with record_attention(layer) as maps, torch.no_grad():
        layer(x, x, x, causal=True)
        q, k = (
            project(x).unflatten(-1, (4, 8)).transpose(1, 2)
            for project in (
                layer.query_projection,
                layer.key_projection,
            )
        )  # (1, 4, 8, 8): heads, positions, features
        q = layer.transforms[0].transform_queries(q, start=0)
        k = layer.transforms[0].transform_keys(k, start=0)
    weights.append(maps[""][0])
    scores.append(q @ k.transpose(-2, -1) / 8**0.5)
print(f"weights differ by {(weights[0] - weights[1]).abs().max():.2f}")
for offset in (0, 1, 2):
    first, second = (each.diagonal(-offset, 2, 3) for each in scores)
    difference = (first - second).abs().max()
    print(f"offset {offset}: scores differ by {difference:.2f}")

# %% [markdown]
# (`Halves` need not restore the order of the features: the dot product of a query
# and a key does not depend on it.)
#
# All names of weights match, since a rotation has no weights. No shape is wrong, the
# mask is right, and scores depend on the offset in both. A comparison with the original finds it:
# [`record_attention`](../reference/tools/inspection.md#record_attention) shows that the weights differ, and the
# scores say where. At offset 0 both vectors are rotated by the same angles, and the
# scores are equal. At all other offsets they differ. So the projections are right,
# and what depends on the *position* is wrong. Repair it in exercise 3.
#
# ## Exercises
#
# ### Exercise 1: the size of a cache
#
# *Easy, about 5 minutes.*
#
# Return the number of bytes of the cache of a whole model: `layers` layers,
# `groups` heads of keys and values with `d_k` numbers each, for `tokens` tokens, with
# `size` bytes for each number.
#
# <details><summary>Hint</summary>
#
# The keys are half of a cache. What is the other half?
#
# </details>


# %% tags=["stub"]
def cache_bytes(layers, groups, d_k, tokens, size=2):
    return layers * groups * d_k * tokens * size


# %% tags=["check"]
for groups in (8, 2):
    layer, cache = (
        MultiHeadAttention(512, 8, num_key_value_heads=groups),
        KeyValueCache(),
    )
    x = torch.randn(1, 10, 512)
    with torch.no_grad():
        layer(x, x, x, causal=True, cache=cache)
    stored = sum(each.numel() for each in cache.read())
    found = cache_bytes(1, groups, 64, 10, size=1)
    assert found == stored, f"{found} for {stored}: keys and values"
assert cache_bytes(32, 8, 128, 8192) == 2**30, "one GiB"


# %% tags=["solution"]
def cache_bytes(layers, groups, d_k, tokens, size=2):
    keys_and_values = 2 * groups * d_k  # for one token, in one layer
    return layers * tokens * keys_and_values * size


# %% [markdown]
# ### Exercise 2: choose with a bias, weigh without it
#
# *Medium, about 15 minutes.*
#
# DeepSeek-V3 ([2024](https://arxiv.org/abs/2412.19437), section 2.1.2) keeps all experts in use mainly by a bias instead of a term in the loss. The *bias* of an expert that has had
# too few tokens is raised; it is added to the score when the $k$ experts of a token are chosen. The weights
# of the chosen ones are their scores *without* the bias, divided by their sum. For `scores`, between 0 and 1, of shape (N, E), and `bias`,
# of shape (E,), return the weights and the numbers of the chosen experts, both of shape (N, k).
#
# <details><summary>Hint</summary>
#
# `topk` returns the largest values and their places. Only the places are needed; `gather` takes the scores from there.
#
# </details>


# %% tags=["stub"]
def route(scores, bias, k):
    values, chosen = (scores + bias).topk(k)
    return values / values.sum(dim=-1, keepdim=True), chosen


# %% tags=["check"]
torch.manual_seed(0)
scores, some = torch.rand(100, 8), torch.rand(8) - 0.5
for bias in (torch.zeros(8), some):
    weights, chosen = route(scores, bias, 2)
    assert chosen.shape == weights.shape == (100, 2), (
        "two for each token"
    )
    sums = weights.sum(dim=-1)
    assert torch.allclose(sums, torch.ones(100)), "weights sum to 1"
    best = (scores + bias).topk(2).indices
    same = torch.equal(chosen.sort(-1).values, best.sort(-1).values)
    assert same, "choose the largest sums of score and bias"
    ratio = scores.gather(-1, chosen)
    ratio = ratio[:, 0] / ratio[:, 1]
    same = torch.allclose(
        weights[:, 0] / weights[:, 1], ratio, rtol=1e-4
    )
    assert same, "the bias changes the choice, not the weights"


# %% tags=["solution"]
def route(scores, bias, k):
    chosen = (scores + bias).topk(k).indices
    values = scores.gather(-1, chosen)
    return values / values.sum(dim=-1, keepdim=True), chosen


# %% [markdown]
# ### Exercise 3: from halves to neighbours
#
# *Hard, about 30 minutes.*
#
# Reorder the features of one head so that weights of the halves convention fit
# ours. `rows` has the shape (d_k, ...): row $i$ and row $i + d_k / 2$ are a pair, and
# they must become the rows $2i$ and $2i + 1$. Return a tensor of the same shape. The
# check applies your function to every head of the query and key projections.
#
# <details><summary>Hint</summary>
#
# `rows.chunk(2)` returns the halves, and `torch.stack(..., dim=1)` puts their
# rows beside each other.
#
# </details>


# %% tags=["stub"]
def to_neighbours(rows):
    return rows


# %% tags=["check"]
found = to_neighbours(torch.arange(6)).tolist()
assert found == [0, 3, 1, 4, 2, 5], f"{found}: 0 and 3 are a pair"
repaired = MultiHeadAttention(
    32, 4, transforms=[RotaryPositionalEncoding(8)]
).eval()
state = dict(published.state_dict())
for name in state:
    if name.startswith(("query", "key")):
        heads = state[name].split(8)
        state[name] = torch.cat([to_neighbours(head) for head in heads])
repaired.load_state_dict(state)
x = torch.randn(1, 8, 32)
with torch.no_grad():
    same = torch.allclose(
        repaired(x, x, x), published(x, x, x), atol=1e-5
    )
assert same, "right for one vector, but not for rows of weights"


# %% tags=["solution"]
def to_neighbours(rows):
    first, second = rows.chunk(2)  # (d_k / 2, ...) each
    return torch.stack([first, second], dim=1).flatten(0, 1)


# %% [markdown]
# ## What you can do now
#
# Since 2017, nearly every part has been replaced by a cheaper or more stable
# one, and the plan has stayed. You can compute the size of a cache,
# choose experts, and convert weights between two conventions.
#
# ## Where to go
#
# You have reached the end of the path. From here, everything is open:
#
# - Every part, with its equation and its code: [`variants`](../reference/variants/index.md),
#   [`multi_head`](../reference/blocks/multi_head.md), [`builders`](../reference/blocks/builders.md).
# - The paper, once more. Most of its sentences are now familiar:
#   [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762).
# - The papers that followed: [GPT-3](https://arxiv.org/abs/2005.14165), almost the
#   same layers as GPT-2 with 175 billion parameters;
#   [LLaMA](https://arxiv.org/abs/2302.13971), which combines pre-norm with RMSNorm,
#   rotary positions and SwiGLU.
# - Fine-tuning with low-rank adaptation (LoRA): the weights of a trained model are
#   frozen, and some of its linear layers get two small matrices that are trained on a new
#   domain: [`lora`](../reference/variants/lora.md), and
#   [how to do it](../howto/fine_tune_with_lora.md).
# - Your own experiment: train `examples/generate_text.py` on a text of yours, swap
#   one part, and measure with three seeds.
