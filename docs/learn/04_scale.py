# %% [markdown]
# # 4 Why sqrt(d_k)
#
# **Why are the scores divided by the square root of the size of a key, and not by
# something else, or not at all?**
#
# The paper's attention has one factor that the previous chapters left out:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$
#
# Here $d_k$ is the number of features of a query and of a key. The paper explains
# the factor in one sentence and a footnote (section 3.2.1): for large $d_k$, the
# dot products become large, and the softmax then has extremely small gradients.
# This chapter derives the first half of this sentence by hand, and measures the
# second half.
#
# A forgotten square root raises no error. It only makes a trained translator
# worse, or prevents a large layer from learning, and one may search for days.
# At the end of this chapter you can recognise it from a single number. (If you
# only want to know why the factor is there, the first three sections are
# enough.)
#
# ## By hand: how large is a score?
#
# Before training, the features of queries and keys are random numbers. Take the
# simplest ones: each feature is +1 or −1, with the probability 1/2 each,
# independently of all others. Its mean is 0. Its *variance*, the mean of the
# squared distance from the mean, is 1.
#
# A product of two such features is +1 or −1 again. A score is the sum of $d$ products,
# so all its values can be listed. The variance is then the sum of each squared value
# times its probability:
#
# | d | possible scores, with their probabilities | variance | standard deviation |
# | --- | --- | --- | --- |
# | 1 | −1 (1/2), 1 (1/2) | 1 | 1 |
# | 2 | −2 (1/4), 0 (1/2), 2 (1/4) | 4 · 1/4 + 4 · 1/4 = 2 | 1.41 |
# | 4 | −4 (1/16), −2 (4/16), 0 (6/16), 2 (4/16), 4 (1/16) | 2 · 16 · 1/16 + 2 · 4 · 4/16 = 4 | 2 |
#
# The *standard deviation* is the square root of the variance. It says how far from
# 0 a score typically is. Predict it for $d = 64$, the size in the paper.
#
# The table follows a rule that holds for all features with mean 0 and variance 1,
# as long as they are independent:
#
# - The mean of a product is $E[q_i k_i] = E[q_i] \, E[k_i] = 0$.
# - Its variance is therefore $E[q_i^2 k_i^2] = E[q_i^2] \, E[k_i^2] = 1$.
# - The variance of a sum of independent numbers is the sum of their variances:
#
# $$\mathrm{Var}(q \cdot k) = \sum_{i=1}^{d} \mathrm{Var}(q_i k_i) = d$$
#
# So the standard deviation of a score is $\sqrt{d}$: it is 8 for $d = 64$. Divided
# by $\sqrt{d}$, a score has the standard deviation 1 for every $d$.
#
# ## By hand: what do large scores do?
#
# Take two keys with the scores $s$ and 0. The weight of the first is
# $w = e^s / (e^s + 1)$. The derivative of a weight by its own score is
# $w (1 - w)$. It says how much the weight changes if training changes the score.
#
# | s | weight w | 1 − w | derivative w (1 − w) |
# | --- | --- | --- | --- |
# | 0 | 0.5 | 0.5 | 0.25 |
# | 1 | 0.731 | 0.269 | 0.197 |
# | 2 | 0.881 | 0.119 | 0.105 |
# | 4 | 0.982 | 0.018 | 0.018 |
# | 8 | 0.99966 | 0.00034 | 0.00034 |
#
# At a difference of 8, which is common for $d = 64$ without the factor, the
# derivative is about 750 times smaller than at 0. The softmax is *saturated*:
# one key receives nearly all the weight, and gradient descent can hardly change
# it, even if it is the wrong key.
#
# ![Bars for the weights of eight keys, for d of 4, 16, 64 and 256. In the upper row, without the factor, the largest weight grows with d until one bar of nearly 1 remains. In the lower row, divided by the square root of d, all bars stay below one half.](figures/softmax_against_d.svg)
#
# ## The formula and the code

# %% [markdown] tags=["formula"]
# $$A = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right)$$
#
# $$O = A \, V$$

# %% tags=["implementation"]
from math import log, sqrt

import torch


def attend(query, key, value):
    """Scaled dot-product attention.

    query (..., L, d_k), key (..., S, d_k),
    value (..., S, d_v)
    """
    scores = query @ key.transpose(-2, -1)  # (..., L, S)
    scores = scores / sqrt(query.shape[-1])
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


# %% [markdown]
# This is the whole equation 1 of the paper. It is the default of
# [`scaled_dot_product_attention`](../reference/blocks/attention.md#scaled_dot_product_attention), so the argument
# `scale=1.0` of the previous chapters is no longer needed.

# %% tags=["proof"]
from transformer_blocks import scaled_dot_product_attention

torch.manual_seed(0)
query, key, value = torch.randn(3, 2, 1, 5, 64).unbind()
output, weights = attend(query, key, value)
theirs, their_weights = scaled_dot_product_attention(query, key, value)
assert torch.allclose(theirs, output, atol=1e-6)
assert torch.allclose(their_weights, weights, atol=1e-6)
print("output ", tuple(output.shape), "weights", tuple(weights.shape))

# %% [markdown]
# ## Two measures
#
# To see the effect on many queries and keys, we need two numbers for a row of
# weights.
#
# The **entropy** measures how evenly the weight is spread. It is 0 if one weight is
# 1, and $\ln S$ if all $S$ weights are equal.
#
# The **Jacobian** $J$ of the softmax is the table of all derivatives: of each weight
# by each score. Its norm, the square root of the sum of all squares, measures how
# strongly the weights react to the scores. If it is 0, no gradient passes.

# %% [markdown] tags=["formula"]
# $$H = -\sum_{j=1}^{S} w_j \ln w_j$$
#
# $$J_{ij} = \frac{\partial w_i}{\partial s_j} = \begin{cases} w_i (1 - w_i) & i = j \\ -w_i \, w_j & i \neq j \end{cases}$$
#
# $$\lVert J \rVert = \sqrt{\sum_{i,j} J_{ij}^2}$$


# %% tags=["implementation"]
def entropy(scores):
    """Entropy of the weights of each row."""
    weights = scores.softmax(dim=-1)
    logarithms = scores.log_softmax(dim=-1)
    return -(weights * logarithms).sum(dim=-1)


def jacobian(weights):
    """Derivatives of all weights by all scores."""
    column = weights[..., None]
    row = weights[..., None, :]
    return weights.diag_embed() - column * row


# %% tags=["proof"]
s = torch.tensor([2.0, 1.0, 0.0])
automatic = torch.autograd.functional.jacobian(
    lambda s: s.softmax(dim=0), s
)
by_formula = jacobian(s.softmax(dim=0))
assert torch.allclose(by_formula, automatic, atol=1e-6)
assert abs(entropy(torch.zeros(32)).item() - log(32)) < 1e-5
for row in automatic.tolist():
    print("".join(f"{number:8.3f}" for number in row))

# %% [markdown]
# The scores 2, 1 and 0 are those of chapter 1. A higher first score increases the
# first weight (0.223) and decreases the two others.
#
# ## Measured
#
# Now 1,000 random queries and 32 random keys, whose features have mean 0 and
# variance 1, for several sizes $d$. The columns are the standard deviation of the
# scores, the mean entropy ($\ln 32 = 3.47$ for equal weights), the median norm of
# the Jacobian, and the share of *saturated* queries, whose norm is below 0.01.
# Predict the column of the norm before you read it: does it fall from line to
# line?


# %%
def measure(scores):
    norms = jacobian(scores.softmax(dim=-1)).flatten(1).norm(dim=1)
    return [
        scores.std().item(),
        entropy(scores).mean().item(),
        norms.median().item(),
        (norms < 0.01).float().mean().item(),
    ]


torch.manual_seed(0)
rows = {"not divided": [], "by sqrt(d)": [], "by d": []}
for d in [4, 16, 64, 256, 1024]:
    scores = torch.randn(1000, d) @ torch.randn(d, 32)
    for name, divisor in zip(rows, [1, sqrt(d), d]):
        rows[name].append((d, *measure(scores / divisor)))
print("   d    std  entropy   norm  saturated")
for name, lines in rows.items():
    print(name)
    for d, std, h, norm, saturated in lines:
        cells = f"{d:4d} {std:6.2f} {h:8.2f} {norm:6.3f}"
        print(f"{cells} {saturated:10.1%}")

# %% [markdown]
# - **Not divided**, the standard deviation is $\sqrt{d}$, as derived. The entropy
#   falls towards 0. At $d = 64$, a fifth of the queries is saturated before training
#   has begun; at $d = 1024$, almost three quarters.
# - **Divided by sqrt(d)**, nothing depends on $d$, except for randomness.
# - **Divided by d**, the standard deviation is $1 / \sqrt{d}$. The weights are almost
#   equal, whatever the query is.
#
# ![Two diagrams against the head size d from 4 to 1024. The entropy without division falls from 2.3 to 0.1; divided by the square root of d it stays at 3.0; divided by d it approaches 3.47. The norm of the Jacobian without division rises from 0.30 to 0.34 at d of 16, then falls to 0; the other two stay near 0.24 and 0.17.](figures/entropy_and_gradient.svg)
#
# Without division, the norm first rises, from 0.297 to 0.335, before it falls. As the
# scores grow, the weight of 32 keys first moves to a few of them. A few keys react most
# strongly: if two share the weight equally, the norm is 0.5, its maximum (exercise 2
# derives it). Then a single key has all the weight, and the norm is 0.
#
# ## Does it matter in training?
#
# The friends task of [chapter 3](03_projections.ipynb) shows it. Each of its 16
# features becomes a random vector of $d$ features, and a layer with one head of
# size $d$ learns the task with 100 updates. The table shows the accuracy, the mean of
# three seeds (0, 1, 2), for three divisors of the scores and three learning rates.
# These 54 trainings take about a minute and a half, so their output is recorded.

# %%
import torch.nn.functional as F

from transformer_blocks import SingleHeadAttention


def make_batch(count, embedding):
    """The friends task, with vectors of d features for its items."""
    names = torch.rand(count, 6).argsort(dim=-1)
    friends = (names + torch.randint(1, 6, (count, 6))) % 6
    colours = torch.randint(4, (count, 6))
    place = (names[:, None] == friends[:, :, None]).int().argmax(-1)
    ids = torch.stack([names, 6 + friends, 12 + colours], dim=-1)
    return embedding[ids].sum(dim=-2), colours.gather(1, place)


def accuracy(output, target):
    guess = output[..., :4].argmax(dim=-1)  # four logits
    return (guess == target).float().mean().item()


def train(d, scale, rate=0.001, steps=100):
    embedding = torch.randn(16, d) / sqrt(3)  # variance of x is 1
    layer = SingleHeadAttention(d, scale=scale, bias=False)
    optimizer = torch.optim.Adam(layer.parameters(), lr=rate)
    for _ in range(steps):
        x, target = make_batch(32, embedding)
        logits = layer(x, x, x)[..., :4]
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer, embedding


# %% tags=["recorded"]
print("  d  learning rate    none  sqrt(d)      d")
for d in [64, 256]:
    for rate in [0.001, 0.003, 0.01]:
        cells = f"{d:3d} {rate:14}"
        for divisor in [1, sqrt(d), d]:
            results = []
            for seed in range(3):
                torch.manual_seed(seed)
                layer, embedding = train(d, 1 / divisor, rate)
                x, target = make_batch(500, embedding)
                results.append(accuracy(layer(x, x, x), target))
            cells += f"{sum(results) / 3:8.2f}"
        print(cells)

# %% [markdown]
# - At $d = 64$, the factor makes little difference in this small task: without it,
#   the accuracy is 0.96 at the highest learning rate, and 1.00 otherwise.
# - At $d = 256$, the scores begin with a standard deviation of 16. Without division,
#   the task is learned only at the lowest learning rate. At the highest, the
#   accuracy is 0.32, not much above a guess (0.25).
# - Divided by $d$, the layer learns as well as, or better than, divided by
#   $\sqrt{d}$; only at $d = 64$ and the lowest rate it has not finished (0.97).
#
# The last item is a surprise: dividing by $d$ is not wrong. It makes the weights equal
# *at the beginning*, but they still have a gradient (a norm of 0.17), and training
# changes them. The derivation by hand assumed independent features, and a trained query
# and its key are not independent: their products have a mean above zero, and a sum of
# $d$ such products grows as $d$, not as $\sqrt{d}$. For this reason, [Yang et al.
# (2022)](https://arxiv.org/abs/2203.03466) divide by $d$ when they transfer learning
# rates from small models to large ones. Most published models use $\sqrt{d_k}$; what
# matters most is that the scores do not begin large.
#
# ## Broken on purpose
#
# **Trained weights meet another factor.** A model's weights are learned with one
# factor. If they are loaded into code with another one, every shape is right, and
# no error is raised. We train a layer with the usual factor, and run it with
# three. [`ablate`](../reference/tools/inspection.md#ablate) removes the factor of a
# trained model inside a `with` block. [`record_attention`](../reference/tools/inspection.md#record_attention)
# records the weights of every layer of a model. Predict which factor does the
# most harm.

# %% tags=["broken"]
from contextlib import nullcontext

from transformer_blocks import record_attention
from transformer_blocks.inspection import ablate

torch.manual_seed(0)
layer, embedding = train(64, scale=None)  # 1 / sqrt(64)
x, target = make_batch(1000, embedding)


def evaluate(name, context):
    with context, record_attention(layer) as maps:
        output = layer(x, x, x)
    [(weights,)] = maps.values()  # one layer, one call
    spread = torch.special.entr(weights).sum(dim=-1).mean().item()
    print(f"{name:11s} {accuracy(output, target):8.3f} {spread:8.2f}")


print(f"divisor     accuracy  entropy (ln 6 = {log(6):.2f})")
evaluate("sqrt(d) = 8", nullcontext())
evaluate("1 (ablated)", ablate(layer, scale=True))
layer.scale = 1 / 64
evaluate("d = 64", nullcontext())

# %% [markdown]
# Divided by 64 instead of 8, the weights are almost equal: the entropy is about
# 1.76 of at most 1.79. The layer averages all items, and about a third of the answers
# is wrong.
#
# Without the factor, the scores are 8 times as large and the entropy is 0. Here
# this does no harm, because each query needs exactly one key. Heads that average
# over several keys suffer: the library's translator, trained for 40 minutes on real
# sentences, falls from 44.0 to 39.2 BLEU, a measure of translation quality, if
# `examples/ablate.py` removes the factor. (These are validation sentences and greedy
# decoding. On the test sentences, with beam search, the same translators have 39.4
# BLEU: [chapter 11](11_before_transformers.ipynb).)
#
# Two checks find the mistake. Compare the outputs with those of the original code,
# as in the proofs of this book. If there is no original, record the weights: an
# entropy near $\ln S$ or near 0 in *every* head of a model is suspicious.
#
# ## Exercises
#
# Replace the body of each function, and run the check below it.
#
# ### Exercise 1: variance by hand
#
# *Easy, about 10 minutes.*
#
# The features of a query are +2 or −2, those of a key +1 or −1, with the
# probability 1/2 each, independently of each other. There are $d = 9$ features.
# Return four numbers: the variance of one product, the variance of a score, the
# standard deviation of a score, and the factor by which scores must be multiplied
# for a standard deviation of 1.
#
# <details><summary>Hint</summary>
#
# A product is +2 or −2, so what is the mean of its square? And variances of independent
# numbers add up.
#
# </details>


# %% tags=["stub"]
def by_hand():
    product, score, deviation, factor = 0.0, 0.0, 0.0, 0.0
    return product, score, deviation, factor


# %% tags=["check"]
generator = torch.Generator().manual_seed(1)
signs = torch.randint(2, (2, 200_000, 9), generator=generator) * 2.0 - 1
products = 2 * signs[0] * signs[1]
sampled = products.sum(dim=-1)
product, score, deviation, factor = by_hand()
assert abs(product - products.var()) < 0.1, "one product: 1 or 4?"
assert abs(score - sampled.var()) < 0.5, "variances add up"
assert abs(deviation - sampled.std()) < 0.05, "a square root"
scaled = (factor * sampled).std()
assert abs(scaled - 1) < 0.01, f"the deviation becomes {scaled:.2f}"


# %% tags=["solution"]
def by_hand():
    product = 4.0  # a product is +2 or -2: its square is 4
    score = 9 * product  # the sum of nine variances: 36
    deviation = 6.0  # the square root of 36
    return product, score, deviation, 1 / deviation


# %% [markdown]
# ### Exercise 2: the norm for n equal weights
#
# *Medium, about 15 minutes.*
#
# If $n$ weights are $1/n$ each, what is the norm of the Jacobian? Count the entries:
# $n$ of them are on the diagonal, and $n (n - 1)$ are beside it. Return the norm as
# a formula of $n$, without tensors. The formula explains why two keys have the maximum.
#
# <details><summary>Hint</summary>
#
# An entry on the diagonal is $(n - 1) / n^2$, one beside it $-1 / n^2$. Add up
# the squares.
#
# </details>


# %% tags=["stub"]
def norm_of_equal_weights(n):
    return 1 / n


# %% tags=["check"]
for n in [1, 2, 3, 32, 1000]:
    exact = jacobian(torch.full((n,), 1 / n)).norm().item()
    assert abs(norm_of_equal_weights(n) - exact) < 1e-4, n


# %% tags=["solution"]
def norm_of_equal_weights(n):
    # Diagonal: n entries 1/n (1 - 1/n) = (n - 1) / n^2.
    # Beside it: n (n - 1) entries -1 / n^2.
    # Sum of squares: (n (n-1)^2 + n (n-1)) / n^4 = (n - 1) / n^2.
    return sqrt(n - 1) / n


# %% [markdown]
# ### Exercise 3: diagnose the factor
#
# *Medium, about 20 minutes.*
#
# You receive the attention weights of an untrained layer, of shape (N, S): N random
# queries, S keys, and a head of size 64. Its scores were either not divided, divided
# by $\sqrt{d}$, or divided by $d$. Return `"none"`, `"sqrt"` or `"d"`. Compare the mean
# entropy with its largest possible value, $\ln S$. `torch.special.entr(weights)` returns
# $-w \ln w$ for each weight.
#
# <details><summary>Hint</summary>
#
# Compute $\ln S$ minus the entropy for each of the three kinds of scores, and
# choose limits between them.
#
# </details>


# %% tags=["stub"]
def diagnose(weights):
    return "sqrt"


# %% tags=["check"]
generator = torch.Generator().manual_seed(1)
for size in [8, 32, 128]:
    raw = torch.randn(500, 64, generator=generator) @ torch.randn(
        64, size, generator=generator
    )
    for name, divisor in [("none", 1), ("sqrt", 8), ("d", 64)]:
        found = diagnose((raw / divisor).softmax(dim=-1))
        assert found == name, f"{size} keys: {found} instead of {name}"


# %% tags=["solution"]
def diagnose(weights):
    entropy = torch.special.entr(weights).sum(dim=-1).mean()
    missing = log(weights.shape[-1]) - entropy  # 0: equal weights
    if missing < 0.1:
        return "d"
    return "sqrt" if missing < 1 else "none"


# %% [markdown]
# ## What you can do now
#
# The standard deviation of a score grows as $\sqrt{d_k}$, large scores saturate
# the softmax, and then its gradient vanishes. You can derive the factor,
# measure its effect, and recognise a wrong one from the entropy of the weights.
#
# ## Where to go
#
# - The equation is complete now. Which keys a query may attend to is decided by
#   masks: [chapter 5](05_masks.ipynb).
# - In a layer with several heads, $d_k$ is the size of one head:
#   [chapter 6](06_heads.ipynb).
# - Another way to limit the scores, normalised queries and keys:
#   [`query_key_norm`](../reference/variants/query_key_norm.md).
