# %% [markdown]
# # 9 A layer that trains
#
# **What must surround attention, so that a network of many layers can be
# trained?**
#
# Attention passes information between positions. A model stacks 6, 12 or 100
# layers of it, and a stack of attention alone cannot be trained well. In this
# chapter you add the other parts of the paper's layer, one at a time: a
# feed-forward network, residual connections, layer normalisation, dropout. Then
# you assemble the layer, and measure what happens to the gradient without each
# part.
#
# ## The feed-forward network
#
# The output of attention is a weighted sum of values, and a value is a linear
# projection of its word. If a sequence has a single word, its weight is 1, and
# attention is a linear layer: it cannot even compute an absolute value. For
# this, each layer has a second part, the *position-wise feed-forward network*: a linear layer
# from d_model to a larger size d_ff, a nonlinearity, and a linear layer back.
# The nonlinearity of the paper is the ReLU, $\max(0, x)$.
#
# By hand, with d_model = 2 and d_ff = 4, without biases: the weights below
# compute the absolute value of each feature, for example of $x = (2, -3)$.
#
# | step | result |
# | --- | --- |
# | $x W_1$: each feature, and its negative | (2, -3, -2, 3) |
# | $\max(0, x W_1)$: negative numbers become 0 | (2, 0, 0, 3) |
# | $\max(0, x W_1) W_2$: features 1 + 3, and 2 + 4 | (2, 3) |
#
# It is equation 2 of the paper (section 3.3). *Position-wise* means that every
# position is transformed separately, with the same weights.

# %% [markdown] tags=["formula"]
# $$h = \max(0, x W_1 + b_1)$$
#
# $$\mathrm{FFN}(x) = h W_2 + b_2$$

# %% tags=["implementation"]
import torch


def feed_forward(x, w1, b1, w2, b2):
    """Expand, apply a ReLU, project back."""
    h = (x @ w1 + b1).clamp(min=0)  # (.., d_ff)
    return h @ w2 + b2  # (.., d_model)


# %%
w1 = torch.tensor([[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, -1.0]])
x = torch.tensor([2.0, -3.0])
print(feed_forward(x, w1, 0.0, w1.abs().T, 0.0))

# %% [markdown]
# The paper uses d_ff = 4 · d_model. How many of a layer's parameters are then
# in this network? It is often said: two thirds. Predict whether that holds for
# the encoder layer, for the decoder layer, or for both.
# [`build_encoder`](../reference/blocks/builders.md#build_encoder) builds the layers of the paper.

# %%
from transformer_blocks import build_decoder, build_encoder


def count(module):
    return sum(weight.numel() for weight in module.parameters())


for build in [build_encoder, build_decoder]:
    layer = build(num_layers=1).layers[0]  # d_model 512, d_ff 2048
    inner, total = count(layer.feed_forward), count(layer)
    name = type(layer).__name__
    print(f"{name}: {inner:,} of {total:,}")
    print(f"              {inner / total:.1%}")

# %% [markdown]
# It holds for the encoder layer, and so for the layers of a language model such as GPT-2,
# which have the same parts: one attention layer and a network with d_ff = 4 · d_model. The
# decoder layer of the paper has two attention layers
# ([chapter 12](12_encoder_decoder.ipynb)), and the feed-forward network is one
# half of it.
#
# ## Residual connections
#
# Neither part replaces its input: what it computes is *added* to it, $x + f(x)$. This
# is a *residual connection* ([He et al. 2015](https://arxiv.org/abs/1512.03385)), and
# $f$, attention or feed-forward network, is called the *sublayer*.
#
# Why? The gradient of a stack is a product of the derivatives of its layers.
# Suppose that each of 12 layers has the derivative 0.1. Without residual
# connections the gradient at the bottom is $0.1^{12}$, one millionth of a
# millionth. With them, each derivative is $1 + 0.1$, and the product is
# $1.1^{12} = 3.1$: the sum passes the gradient to its input undiminished, and
# the sublayer only adds to it.
#
# The vectors to which all sublayers add are called the *residual stream*. Each
# sublayer reads from it, computes something, and adds the result.
#
# ![Two residual streams, each a thick line from left to right with four sublayers beside it that read from the line and add to it. With post-norm, above, a layer normalisation sits on the line after each addition. With pre-norm, below, it sits on the branch before each sublayer, and a last one at the end of the line.](figures/residual_stream.svg)
#
# ## Layer normalisation
#
# Sums grow: after 12 additions the numbers are larger than before. *Layer
# normalisation* ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)) brings each
# vector back to mean 0 and variance 1, for every position separately. By hand, for a stream $x$ = (1, 2, 0, 5) and a sublayer's
# output $f(x)$ = (1, 0, 2, 1):
#
# | step | result |
# | --- | --- |
# | sum $x + f(x)$ | (2, 2, 2, 6) |
# | mean | (2 + 2 + 2 + 6) / 4 = 3 |
# | sum minus mean | (-1, -1, -1, 3) |
# | variance | (1 + 1 + 1 + 9) / 4 = 3 |
# | divided by $\sqrt{3} = 1.732$ | (-0.577, -0.577, -0.577, 1.732) |
#
# In the formula, LN stands for layer normalisation. Two learned vectors follow, a gain $\gamma$ and a shift $\beta$, which begin as
# ones and zeros. A tiny $\varepsilon$ prevents a division by zero.

# %% [markdown] tags=["formula"]
# $$\mu = \frac{1}{d} \sum_{i=1}^{d} x_i$$
#
# $$\sigma^2 = \frac{1}{d} \sum_{i=1}^{d} (x_i - \mu)^2$$
#
# $$\mathrm{LN}(x)_i = \gamma_i \frac{x_i - \mu}{\sqrt{\sigma^2 + \varepsilon}} + \beta_i$$


# %% tags=["implementation"]
def layer_norm(x, gain=1, shift=0, eps=1e-5):
    """Normalise vectors, (..., d_model)."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred**2).mean(-1, keepdim=True)
    normed = centred / (variance + eps).sqrt()
    return gain * normed + shift


# %% tags=["proof"]
from torch import nn

from transformer_blocks import FeedForward

stream = torch.tensor([1.0, 2.0, 0.0, 5.0])
output = torch.tensor([1.0, 0.0, 2.0, 1.0])
normed = layer_norm(stream + output)
print(normed)
expected = nn.LayerNorm(4)(stream + output)
assert torch.allclose(normed, expected, atol=1e-6)

torch.manual_seed(0)
theirs = FeedForward(d_model=16, d_ff=64)
up, down = theirs.up_projection, theirs.down_projection
x = torch.randn(2, 5, 16)
mine = feed_forward(x, up.weight.T, up.bias, down.weight.T, down.bias)
assert torch.allclose(mine, theirs(x), atol=1e-6)

# %% [markdown]
# Where does the normalisation stand? There are two answers.
#
# - **Post-norm**, the paper (section 3.1): $\mathrm{LayerNorm}(x + f(x))$. The
#   stream itself is normalised after each addition.
# - **Pre-norm**: $x + f(\mathrm{LayerNorm}(x))$. Only what the sublayer reads is
#   normalised, so that the stream runs from the first layer to the last without
#   interruption; one more normalisation follows at its end.
#
# Most models of today use pre-norm. [Xiong et al.
# (2020)](https://arxiv.org/abs/2002.04745) compared both; below you measure the
# difference.
#
# ## Dropout
#
# A large model can learn its training data by heart. *Dropout* ([Srivastava et al.
# 2014](https://jmlr.org/papers/v15/srivastava14a.html)) makes that harder: in each training step, every number is set to zero with probability
# $p$, at random, so that no feature can rely on a particular other one. The
# remaining numbers are divided by $1 - p$, so that the expected value stays the
# same: of $x = 1$ with $p = 0.1$, it is $0.9 \cdot 1 / 0.9 + 0.1 \cdot 0 = 1$.
#
# After training, in *evaluation mode*, dropout does nothing. `model.eval()`
# switches to this mode, and `model.train()` back.

# %%
from transformer_blocks import Dropout

torch.manual_seed(0)
ones, p = torch.ones(10_000), 0.1
keep = torch.rand(10_000) >= p
mine = ones * keep / (1 - p)
dropout = Dropout(p)
for name, y in [
    ("mine", mine),
    ("training", dropout.train()(ones)),
    ("evaluation", dropout.eval()(ones)),
]:
    values = ", ".join(f"{number:.3f}" for number in y.unique())
    print(f"{name:10s}  mean {y.mean():.3f}  values {values}")

# %% [markdown]
# The paper applies dropout with $p = 0.1$ at two places (section 5.4): to the
# output of each sublayer, before it is added, and to the sum of embedding and
# positional encoding.
#
# ## The layer
#
# Now all parts are there: attention and a feed-forward network, each with
# dropout, a residual connection, and a normalisation. The constructor receives
# the first two, so that any of them can be exchanged.

# %% [markdown] tags=["formula"]
# $$z = \mathrm{LN}(x + \mathrm{Attention}(x))$$
#
# $$y = \mathrm{LN}(z + \mathrm{FFN}(z))$$


# %% tags=["implementation"]
class Layer(nn.Module):
    """An encoder layer with post-norm."""

    def __init__(self, attention, ffn, d_model):
        super().__init__()
        self.attention = attention
        self.ffn = ffn
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, mask=None):
        y = self.attention(x, x, x, mask=mask)
        z = self.norm1(x + self.dropout(y))
        y = self.ffn(z)
        return self.norm2(z + self.dropout(y))


# %% [markdown]
# The library's [`EncoderLayer`](../reference/blocks/encoder.md#encoderlayer) is made of the same
# parts, and so is torch's `TransformerEncoderLayer`. We copy the weights, and
# compare. [`to_torch`](../reference/tools/interop.md#to_torch) converts the library's layer
# to torch's.

# %% tags=["proof"]
from transformer_blocks import (
    EncoderLayer,
    MultiHeadAttention,
    PostNorm,
)
from transformer_blocks.interop import to_torch


def copy_weights(mine, theirs):
    pairs = [
        (mine.attention, theirs.self_attention),
        (mine.ffn, theirs.feed_forward),
        (mine.norm1, theirs.self_attention_residual.norm),
        (mine.norm2, theirs.feed_forward_residual.norm),
    ]
    for part, source in pairs:
        part.load_state_dict(source.state_dict())


def make_parts():
    return MultiHeadAttention(16, 4), FeedForward(16, 64)


theirs = EncoderLayer(*make_parts(), residual=lambda: PostNorm(16))
mine = Layer(*make_parts(), d_model=16)
copy_weights(mine, theirs)
mine.eval(), theirs.eval()
assert torch.allclose(mine(x), theirs(x), atol=1e-5)

torch_layer = to_torch(theirs).eval()
assert torch.allclose(mine(x), torch_layer(x), atol=1e-5)
print(type(torch_layer).__name__, torch_layer(x).shape)

# %% [markdown]
# ## The beginning of training
#
# Before the first update, all weights are random. How large may they be? The
# paper does not state it. The library draws them as proposed by [Glorot and
# Bengio (2010)](https://proceedings.mlr.press/v9/glorot10a.html), known as
# *Xavier initialisation*: the larger the layer, the smaller its weights, so that
# a vector keeps its size. We send a random vector of 512 features through 12
# linear layers.

# %%
torch.manual_seed(0)
for name, initialise in [
    ("std 1", lambda w: nn.init.normal_(w, std=1.0)),
    ("std 0.01", lambda w: nn.init.normal_(w, std=0.01)),
    ("Xavier", nn.init.xavier_uniform_),
]:
    vector = torch.randn(512)
    for _ in range(12):
        vector = initialise(torch.empty(512, 512)) @ vector
    print(f"{name:9s} std after 12 layers: {vector.std():.1e}")

# %% [markdown]
# With a standard deviation of 1 the numbers explode, with 0.01 they vanish, and
# with Xavier they keep their size.
#
# ## Which part keeps the gradient?
#
# The task is to sort a sequence of 8 symbols: for each position, a stack of 12 layers
# predicts the symbol that stands there after sorting. Before any training, we compute
# the gradient of the loss, and its norm in each layer.
#
# We compare four stacks: one without residual connections and normalisation, one with
# residual connections only, one with post-norm and one with pre-norm.
# ([`ablate`](../reference/tools/inspection.md#ablate) removes the residual connections.)
# Predict which gradients vanish or explode.

# %%
from contextlib import nullcontext

import torch.nn.functional as F

from transformer_blocks import (
    PreNorm,
    Residual,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
)
from transformer_blocks.inspection import ablate


class Sorter(nn.Module):
    def __init__(self, residual):
        super().__init__()
        self.embedding = TokenEmbedding(8, 32)
        self.positions = SinusoidalPositionalEncoding(32)
        self.encoder = build_encoder(
            num_layers=12,
            d_model=32,
            num_heads=4,
            d_ff=128,
            dropout=0.0,
            residual=residual,
        )
        self.output = nn.Linear(32, 8)

    def forward(self, tokens):
        x = self.positions(self.embedding(tokens))
        return self.output(self.encoder(x))  # (B, 8, 8)


def compute_loss(model, count=64):
    tokens = torch.randint(8, (count, 8))
    target = tokens.sort(dim=1).values
    return F.cross_entropy(
        model(tokens).flatten(0, 1), target.flatten()
    )


def without_norm(d_model, dropout):
    return PostNorm(d_model, dropout=dropout, norm=nn.Identity())


def without_residuals(model):
    found = model.named_modules()
    names = [name for name, part in found if isinstance(part, Residual)]
    return ablate(model, residuals=names)


def gradient_norms(residual, has_residuals=True):
    torch.manual_seed(0)
    model = Sorter(residual)
    context = (
        nullcontext() if has_residuals else without_residuals(model)
    )
    with context:
        compute_loss(model).backward()
    return [
        torch.stack([w.grad.norm() for w in layer.parameters()]).norm()
        for layer in model.encoder.layers
    ]


# %%
print("gradient norm      layer 1   layer 6  layer 12")
for name, residual, has_residuals in [
    ("neither", without_norm, False),
    ("residual only", without_norm, True),
    ("post-norm", PostNorm, True),
    ("pre-norm", PreNorm, True),
]:
    norms = gradient_norms(residual, has_residuals)
    shown = (f"{norms[number]:10.2g}" for number in (0, 5, 11))
    print(f"{name:16s}", *shown, sep="")

# %% [markdown]
# Without either part the gradient vanishes towards the first layer, as the
# product of small derivatives did. Residual connections alone do the opposite:
# the numbers of the stream grow from layer to layer, and the gradient explodes.
# With both parts, in either order, it stays between 0.1 and 1.5. It is often said
# that residual connections prevent vanishing gradients; that is one half of the
# story. (Normalisation *without* residual connections is the fifth case, and comes
# below, in *Broken on purpose*.)
#
# Post-norm and pre-norm differ in the upper layers. With pre-norm the stream has
# become long there, the normalisation at its end divides by its length, and the
# gradient of layer 12 is one third of that of layer 1. With post-norm all layers
# have gradients of the same size. Xiong et al. derive an upper bound for the
# gradient of the last layer, before training. With pre-norm it falls as
# $1 / \sqrt{N}$ with the number of layers $N$; with post-norm it does not fall. With 2, 6, 12 and 24 layers and
# 10 seeds (`docs/experiments/depth.py`) we measured 0.42, 0.27, 0.21 and 0.18
# with pre-norm, a slower fall, and 0.62, 0.69, 0.78 and 0.79 with post-norm.
#
# ![Gradient norm of each of 12 layers on a logarithmic scale, for four stacks. Without either part it is far below one and falls towards the first layer; with residual connections only it grows from hundreds in the last layer to tens of thousands in the first; with post-norm and with pre-norm it stays between 0.1 and 1.5.](figures/layer_gradients.svg)
#
# ## Warm-up
#
# The paper increases the learning rate linearly from almost zero for 4,000 updates, the
# *warm-up*, and then decreases it with the inverse square root of the step (section
# 5.3, equation 3). The paper gives no reason, but Xiong et al. propose one: before
# training, the gradients near the output of a post-norm stack are large, and updates
# with a large rate would make training unstable. With the step $s$ and the number of
# warm-up updates $w$:

# %% [markdown] tags=["formula"]
# $$m = \min(s^{-0.5},\; s \cdot w^{-1.5})$$
#
# $$rate = d_{model}^{-0.5} \cdot m$$


# %% tags=["implementation"]
def rate(step, d_model=512, warmup=4000):
    """Compute the learning rate of an update."""
    rising = step * warmup**-1.5
    falling = step**-0.5
    return d_model**-0.5 * min(rising, falling)


# %% tags=["proof"]
from transformer_blocks import noam_rate

for step in [1, 1000, 4000, 16_000, 100_000]:
    assert rate(step) == noam_rate(step, d_model=512)
    print(f"update {step:7,d}  rate {rate(step):.7f}")

# %% [markdown]
# The peak is at step 4,000, where both terms are equal: 0.0007 for the base
# model. At step 16,000, four times later, the rate is one half of it.
#
# ![The learning rate of the base model: a straight line up to 0.0007 at step 4,000, then a slow decrease to 0.00014 at step 100,000.](figures/learning_rate.svg)
#
# Is warm-up necessary? We train the 12 layers with post-norm to sort, with Adam
# and the large rate 0.003, once from the first update on, and once after a
# linear warm-up of 200 updates. The loss of a model that guesses is
# $\ln 8 = 2.08$. This takes about two minutes; the seed is 0.

# %% tags=["recorded"]
torch.set_num_threads(1)


def factor(update, warmup):
    return min(1.0, update / warmup) if warmup else 1.0


def train(residual, warmup, peak=3e-3, updates=500):
    torch.manual_seed(0)
    model = Sorter(residual)
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for update in range(1, updates + 1):
        adam.param_groups[0]["lr"] = peak * factor(update, warmup)
        loss = compute_loss(model, 32)
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        return compute_loss(model, 500).item()


print(f"no warm-up:             loss {train(PostNorm, 0):.3f}")
print(f"warm-up of 200 updates: loss {train(PostNorm, 200):.3f}")

# %% [markdown]
# Without warm-up, the model guesses. The experiment
# `docs/experiments/depth.py` repeats this with seeds 0, 1 and 2, two rates and
# both orders. The numbers are means of the loss on 500 other sequences.
#
# | stack of 12 layers | warm-up | rate 0.001 | rate 0.003 |
# | --- | --- | --- | --- |
# | post-norm | none | 0.146 | 2.014 |
# | post-norm | 200 updates | 0.197 | 0.102 |
# | pre-norm | none | 0.033 | 0.007 |
# | pre-norm | 200 updates | 0.032 | 0.130 |
#
# At the large rate, post-norm fails with all three seeds without warm-up, and
# learns with all three with it. At the small rate it learns in both cases. Pre-norm
# needs no warm-up here; at the large rate its mean loss is even lower without. So
# in this experiment, warm-up makes the difference for post-norm at the large rate.
# It is one small task with three seeds and 500 updates, of which warm-up takes 200.
# Do not read a general rule from it.
#
# ## Broken on purpose
#
# **Without residual connections.** The gradients of the post-norm stack are
# healthy. Now remove only its residual connections. Predict the gradients, and
# what else is lost. For the second question we measure how much the vectors of
# different positions differ, as 1 minus the mean of their cosine similarities.

# %% tags=["broken"]
torch.manual_seed(0)
model = Sorter(PostNorm).double()  # small differences count
tokens = torch.tensor([[3, 1, 4, 1, 5, 7, 2, 6]])


def differences(model):
    x = model.positions(model.embedding(tokens))
    found = []
    for layer in model.encoder.layers:
        x = layer(x)
        unit = F.normalize(x[0], dim=-1)
        products = unit @ unit.T  # (L, L), ones on the diagonal
        found.append(1 - (products.sum().item() - 8) / 56)
    shown = (f"{found[number]:7.0e}" for number in (0, 1, 2, 5, 11))
    return "".join(shown)


norms = gradient_norms(PostNorm, has_residuals=False)
print(f"gradient: {norms[0]:.2f} to {norms[-1]:.2f}")
print("layer             1      2      3      6     12")
with torch.no_grad():
    print(f"intact      {differences(model)}")
    with without_residuals(model):
        print(f"no residuals{differences(model)}")

# %% [markdown]
# The gradients are of the usual size, and show nothing. But after three layers
# the eight positions have almost the same vector, and after six layers no
# difference is left that we could measure with 64 bits. No later layer can
# recover what distinguished them. Such a model cannot sort. A weighted average makes vectors similar; the
# residual connection adds back what was different. In the intact stack the
# vectors also become more similar before training, but far more slowly. [Dong et
# al. (2021)](https://arxiv.org/abs/2103.03404) prove how fast attention alone
# converges to this state, without residual connections and feed-forward networks.
#
# **Dropout in evaluation.** `model.eval()` was forgotten. No error is raised,
# and the outputs look plausible. Two equal calls differ, and the checks of this
# library find it before they check anything else.

# %% tags=["broken"]
from textwrap import fill

from transformer_blocks.inspection import check_soundness

layer = Layer(
    *make_parts(), d_model=16
)  # in training mode, as every new module
first, second = layer(x), layer(x)
print(f"training mode: {(first - second).abs().max():.2f}")
soundness = check_soundness(lambda x: layer(x), x, only="causality")
print(fill(soundness["determinism"].problems[0], 48))

layer.eval()
print(f"evaluation mode: {(layer(x) - layer(x)).abs().max():.2f}")

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: two thirds
#
# *Easy, about 10 minutes.*
#
# Compute the share of the feed-forward network without building a layer. The
# function receives `d_model`, `d_ff` and the number of attention layers, 1 for
# an encoder layer and 2 for a decoder layer. It returns the share as a number
# from 0 to 1, and counts the weight matrices only, without biases and
# normalisations. An attention layer has four matrices of d_model times d_model:
# for queries, keys, values and the output.
#
# <details><summary>Hint</summary>
#
# Count matrices: two of $d_{model} \cdot d_{ff}$ in the network, four of
# $d_{model}^2$ in each attention layer.
#
# </details>


# %% tags=["stub"]
def share(d_model, d_ff, attention_layers):
    return 2 / 3  # replace


# %% tags=["check"]
for attention_layers, build in [(1, build_encoder), (2, build_decoder)]:
    for d_ff in [2048, 512]:
        layer = build(num_layers=1, d_ff=d_ff).layers[0]
        right = count(layer.feed_forward) / count(layer)
        mine = share(512, d_ff, attention_layers)
        assert abs(mine - right) < 0.002, (d_ff, attention_layers)


# %% tags=["solution"]
def share(d_model, d_ff, attention_layers):
    feed_forward = 2 * d_model * d_ff
    attention = 4 * d_model**2
    return feed_forward / (feed_forward + attention_layers * attention)


# %% [markdown]
# ### Exercise 2: remove the warm-up
#
# *Easy, about 10 minutes.*
#
# Write the schedule without its warm-up: the rate begins at the peak of `rate`,
# stays there until the step `warmup`, and then decreases as before. The function
# receives a step, counted from 1, and returns the rate. (In a
# notebook, you can also run `train` above with `PreNorm`, and with other values
# of `peak`.)
#
# <details><summary>Hint</summary>
#
# Without warm-up, the first of the two terms in the minimum does not grow any
# more. What is its value at the step `warmup`?
#
# </details>


# %% tags=["stub"]
def rate_without_warmup(step, d_model=512, warmup=4000):
    return rate(step, d_model, warmup)  # replace


# %% tags=["check"]
peak = rate(4000)
for step in [1, 100, 3999, 4000]:
    assert abs(rate_without_warmup(step) - peak) < 1e-12, step
for step in [4001, 16_000]:
    assert abs(rate_without_warmup(step) - rate(step)) < 1e-12, step


# %% tags=["solution"]
def rate_without_warmup(step, d_model=512, warmup=4000):
    return d_model**-0.5 * min(warmup**-0.5, step**-0.5)


# %% [markdown]
# ### Exercise 3: from post-norm to pre-norm
#
# *Medium, about 15 minutes.*
#
# Write the method `forward` of a layer with pre-norm. It has the parts of
# `Layer`, and receives and returns vectors of shape (B, L, d_model).
#
# <details><summary>Hint</summary>
#
# Normalise what goes into each part, and add what comes out to the vector that
# was not normalised.
#
# </details>


# %% tags=["stub"]
class PreNormLayer(Layer):
    def forward(self, x, mask=None):
        y = self.attention(x, x, x, mask=mask)
        z = self.norm1(x + self.dropout(y))
        y = self.ffn(z)
        return self.norm2(z + self.dropout(y))


# %% tags=["check"]
theirs = EncoderLayer(*make_parts(), residual=lambda: PreNorm(16))
mine = PreNormLayer(*make_parts(), d_model=16)
for weight in theirs.parameters():  # also those of the normalisations
    nn.init.normal_(weight, std=0.5)
copy_weights(mine, theirs)
mine.eval(), theirs.eval()
difference = (mine(x) - theirs(x)).abs().max()
assert difference < 1e-4, f"differs by {difference:.2g}: norm first?"


# %% tags=["solution"]
class PreNormLayer(Layer):
    def forward(self, x, mask=None):
        y = self.norm1(x)
        x = x + self.dropout(self.attention(y, y, y, mask=mask))
        return x + self.dropout(self.ffn(self.norm2(x)))


# %% [markdown]
# ## What you can do now
#
# A layer adds the outputs of attention and of a feed-forward network to the
# residual stream, and normalisation keeps it in bounds. You can build a layer
# in both orders, count its weights, and say what a warm-up is for.
#
# ## Where to go
#
# - When is a translation good? [Chapter 10](10_measure.ipynb).
# - How sentences were translated before: [chapter 11](11_before_transformers.ipynb).
# - A stack of these layers is the encoder. The decoder has one sublayer more:
#   [chapter 12](12_encoder_decoder.ipynb).
# - The whole recipe of training, with the schedule:
#   [chapter 14](14_train.ipynb).
# - The library's parts: [`residual`](../reference/blocks/residual.md),
#   [`feed_forward`](../reference/blocks/feed_forward.md),
#   [`encoder`](../reference/blocks/encoder.md), [`schedule`](../reference/blocks/schedule.md).
# - Find out why a model is wrong: `python examples/course.py debug 13`
#   ([all cases](../howto/debug_a_transformer.md)).
