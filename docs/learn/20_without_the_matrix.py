# %% [markdown]
# # 20 Attention without the matrix
#
# **How can one compute the weighted mean of 100,000 values without ever holding its 100,000 weights?**
#
# Attention compares every query with every key. For
# a sequence of $L$ tokens these are $L^2$ weights in each head, and until now we stored all of them, as equation 1
# is written. For 20 tokens they are 400 numbers, which is little. For the 100,000 tokens of a long document they are
# $10^{10}$: 20 GB in half precision, for one head of one layer.
#
# But only the outputs leave the attention, and they are $L$ vectors. *FlashAttention*
# ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)) computes them exactly, without the matrix, and nearly every large model is trained with it. Its trick fits in two lines.
#
# ## By hand: one query, two blocks of keys
#
# The softmax seems to need all scores at once: each weight is divided by the sum of all exponentials, and before
# that, one subtracts the largest score, so that no exponential overflows ([chapter 1](01_one_query.ipynb)). But we are looking for a
# *mean*, and a mean can be updated. The teacher who knows the mean height of twenty pupils, 150 cm, needs only
# one more number for the twenty-first.
#
# One query has the scores 1, 2, 4, 1 for four keys, whose values are the numbers 10, 20, 30, 40. We read two keys at a
# time, and keep three numbers: the largest score so far $m$, the sum $\ell$ of the exponentials, and the weighted sum
# $o$ of the values.
#
# | | first block: scores 1, 2 | second block: scores 4, 1 |
# | --- | --- | --- |
# | largest score m | 2 | 4 |
# | factor for what we have | | e²⁻⁴ = 0.1353 |
# | exponentials | e¹⁻² = 0.3679, e²⁻² = 1 | e⁴⁻⁴ = 1, e¹⁻⁴ = 0.0498 |
# | sum ℓ | 1.3679 | 0.1353 · 1.3679 + 1.0498 = 1.2349 |
# | weighted sum o | 0.3679 · 10 + 1 · 20 = 23.679 | 0.1353 · 23.679 + 30 + 0.0498 · 40 = 35.196 |
#
# At the end, $o / \ell$ = 35.196 / 1.2349 = 28.50. The second row of the table is the trick. After the first block,
# everything was measured relative to the score 2. The second block has a larger score, 4, so both sums are too large by the factor
# e⁴⁻² = 7.39. One multiplication corrects them. Nothing was approximated.
#
# ![Online softmax for one query over four blocks of three keys. A frame moves from block to block over twelve scores; below them stand the terms of the sum. The third block has the largest score, 4: as the frame reaches it, all terms before it shrink by the factor 0.135. The sum is 1.59, 2.79, 1.56 and 2.01 after the four blocks.](figures/online_softmax.svg)
#
# This *online softmax* is older than its use in attention ([Milakov and Gimelshein
# 2018](https://arxiv.org/abs/1805.02867)). For a block $j$ with the keys $K_j$ and the values $V_j$:

# %% [markdown] tags=["formula"]
# $$S_j = \frac{Q K_j^T}{\sqrt{d_k}}, \qquad m_j = \max(m_{j-1}, \mathrm{rowmax}(S_j))$$
#
# $$\ell_j = e^{m_{j-1} - m_j} \, \ell_{j-1} + \mathrm{rowsum}(e^{S_j - m_j})$$
#
# $$O_j = e^{m_{j-1} - m_j} \, O_{j-1} + e^{S_j - m_j} V_j$$
#
# It begins with $m_0 = -\infty$, $\ell_0 = 0$ and $O_0 = 0$. After the last block, the output is $O_j / \ell_j$.

# %% tags=["implementation"]
import torch


def flash(q, k, v, block=64):
    """(L, d_k), (S, d_k), (S, d_v) to (L, d_v)."""
    top = q.new_full((len(q), 1), -torch.inf)
    total = q.new_zeros(len(q), 1)
    out = q.new_zeros(len(q), v.shape[1])
    blocks = zip(k.split(block), v.split(block))
    for k_j, v_j in blocks:
        scores = q @ k_j.T / q.shape[1] ** 0.5
        new = top.maximum(scores.amax(1, keepdim=True))
        factor = (top - new).exp()  # for what we have
        terms = (scores - new).exp()
        total = factor * total + terms.sum(1)[:, None]
        out = factor * out + terms @ v_j
        top = new
    return out / total


# %%
scores = torch.tensor([[1.0], [2.0], [4.0], [1.0]])  # as keys
values = torch.tensor([[10.0], [20.0], [30.0], [40.0]])
one = torch.ones(1, 1)  # the score of query 1 and key k is k
print(f"{flash(one, scores, values, block=2).item():.2f}")

# %% [markdown]
# The proof compares it with equation 1, [`scaled_dot_product_attention`](../reference/blocks/attention.md#scaled_dot_product_attention), for blocks that
# fit and blocks that do not, and for more keys than queries.

# %% tags=["proof"]
from transformer_blocks import scaled_dot_product_attention

torch.manual_seed(0)
for queries, keys, block in ((8, 8, 4), (5, 100, 7), (33, 64, 64)):
    q = torch.randn(queries, 16, dtype=torch.float64)
    k, v = torch.randn(2, keys, 16, dtype=torch.float64)
    expected, _ = scaled_dot_product_attention(
        q[None, None], k[None, None], v[None, None]
    )
    found = flash(q, k, v, block)
    assert torch.allclose(found, expected[0, 0], atol=1e-12)
print("equal for all blocks")

# %% [markdown]
# ## What is saved
#
# The largest tensor of `flash` has $L$ times 64 numbers, whether the 64 are the keys of a block or the features of a value. That of equation 1
# has $L^2$. We count instead of believing it: each result of a function of PyTorch is measured while it is made.

# %%
from torch.overrides import TorchFunctionMode


class Largest(TorchFunctionMode):
    """Remembers the size of the largest tensor that is made."""

    numbers = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.numbers = max(self.numbers, result.numel())
        return result


def explicit(q, k, v):
    return scaled_dot_product_attention(
        q[None, None], k[None, None], v[None, None]
    )[0]


print("     L  equation 1      flash")
for length in (64, 512, 4096):
    q, k, v = torch.randn(3, length, 64)
    sizes = []
    for function in (explicit, flash):
        with Largest() as largest, torch.no_grad():
            function(q, k, v)
        sizes.append(largest.numbers)
    print(f"{length:6d} {sizes[0]:11,d} {sizes[1]:10,d}")

# %% [markdown]
# With a length that is eight times as large, equation 1 needs 64 times the memory, and `flash` 8 times. The counter can be checked against the
# machine. The next cell starts a process for each of the two, which asks the operating
# system for the largest memory that it has ever had, before and after one head of 8,192 tokens.

# %%
import inspect
import subprocess
import sys

program = """
import resource, torch
from transformer_blocks import scaled_dot_product_attention

{functions}

def megabytes():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024  # Linux counts in KiB

torch.set_num_threads(1)
with torch.no_grad():
    {name}(*torch.randn(3, 64, 64))  # what is loaded once
    q, k, v = torch.randn(3, 8192, 64)
    before = megabytes()
    {name}(q, k, v)
print(f"{name:8s} {{megabytes() - before:6.0f}} MB")
"""
functions = inspect.getsource(explicit) + inspect.getsource(flash)
for name in ("explicit", "flash"):
    made = program.format(functions=functions, name=name)
    ran = subprocess.run(
        [sys.executable, "-c", made],
        capture_output=True,
        text=True,
        check=True,
    )
    print(ran.stdout.strip())

# %% [markdown]
# One matrix of 8,192² numbers of four bytes has 268 MB. What `flash` needs fits into memory that was used before, so
# nothing is added.
#
# ## Why it is also faster
#
# `flash` does *more* arithmetic than equation 1. On a GPU it is several times faster nevertheless (7.6 times for GPT-2's attention in figure 1 of its paper), because
# arithmetic is not what the GPU waits for. Count bytes, for one head with $L$ = 4,096 and $d$ = 64 in half precision:
#
# | | bytes |
# | --- | --- |
# | queries, keys, values and outputs | 4 · 4,096 · 64 · 2 = 2.1 MB |
# | the matrix, once | 4,096² · 2 = 33.6 MB |
# | equation 1 writes scores, reads them for the softmax, writes weights, reads them | 4 · 33.6 = 134 MB |
#
# A GPU computes in a small and fast memory beside its cores, some hundred kilobytes, and keeps everything else
# in a large and slow one. One block of scores fits into the small memory, is used there, and is forgotten. So up to sixty times fewer bytes cross the slow connection. (A real
# kernel saves less, as it reads the keys and values again for each block of queries.) In Python, every line of our loop goes through the slow memory;
# the gain needs one program for the whole loop, a *kernel*. PyTorch has one: `scaled_dot_product_attention` in
# `torch.nn.functional`, which [`fused_attention`](../reference/fast/attention.md#fused_attention) calls, the default of this library's layers.
#
# What is never stored cannot be shown, either. That is why [`record_attention`](../reference/tools/inspection.md#record_attention) computes
# the weights a second time, with equation 1.
#
# **The gradient** seems to need the matrix after all: the backward pass multiplies by the weights. But each block of them can be computed
# again, from the queries, the keys and one number for each query that the forward pass keeps,
# $m + \ln \ell$, the logarithm of the sum of its exponentials. Computing twice is cheaper than storing once. Exercise 3 does it for the values.
#
# ## Broken on purpose
#
# The factor is easy to forget, since everything has the right shape and range without it. In the following
# copy, the sums keep the unit of the block that they came from. Predict for which scores the error is too small to notice: if they are
# all small, if they are large, or if the largest is in the first block?

# %% tags=["broken"]
from transformer_blocks.inspection import assert_equivalent


def forgetful(q, k, v, block=64):
    """As flash, but without the factor."""
    top = q.new_full((len(q), 1), -torch.inf)
    total = out = 0
    for k_j, v_j in zip(k.split(block), v.split(block)):
        scores = q @ k_j.T / q.shape[1] ** 0.5
        top = torch.maximum(top, scores.amax(dim=1, keepdim=True))
        terms = (scores - top).exp()
        total = total + terms.sum(dim=1, keepdim=True)
        out = out + terms @ v_j
    return out / total


torch.manual_seed(0)
q, k, v = torch.randn(3, 256, 64)
print("scores   error   largest score first")
for size in (0.01, 0.1, 1, 3):
    scaled = q * size
    error = forgetful(scaled, k, v) - flash(scaled, k, v)
    row = scaled[:1]  # one query, whose best keys come first
    order = (k @ row[0]).argsort(descending=True)
    first = forgetful(row, k[order], v[order])
    first -= flash(row, k[order], v[order])
    print(
        f"{size:6} {error.abs().max():7.3f} {first.abs().max():14.3f}"
    )
try:
    assert_equivalent(flash, forgetful, [q, k, v])
except AssertionError as error:
    print("assert_equivalent finds the", str(error).split(":")[0])

# %% [markdown]
# The first and the third answer are right. At the beginning of a training all scores are near zero, all factors near 1, and the error is within what one may take for rounding in half precision. It grows as the model learns to attend to something. And if the best key is in the first
# block, there is nothing to correct, whatever the scores are. A test with sorted keys, with one block, or with an
# untrained model passes. The comparison with equation 1, on random scores of usual size and more than one block, does not.
#
# ## Exercises
#
# ### Exercise 1: two halves
#
# *Medium, about 15 minutes.*
#
# Two devices have half of the keys each. Each has read its half, and has the three tensors
# `(top, total, out)` of the loop above, of shapes (L, 1), (L, 1) and (L, d_v), *before* the last division. Return the three of all
# keys. (Long sequences are shared among several GPUs in this way.)
#
# <details><summary>Hint</summary>
#
# It is the loop's body with the second half in place of a block; both parts need a factor.
#
# </details>


# %% tags=["stub"]
def merge(first, second):
    return [a + b for a, b in zip(first, second)]


# %% tags=["check"]
def state_of(scores, values):
    top = scores.amax(1, keepdim=True)
    terms = (scores - top).exp()
    return top, terms.sum(1, keepdim=True), terms @ values


torch.manual_seed(1)
scores, values = torch.randn(4, 12) * 5, torch.randn(12, 3)
parts = [
    state_of(scores[:, s], values[s]) for s in (slice(7), slice(7, 12))
]
for halves in (parts, parts[::-1]):
    found = merge(*halves)
    whole = state_of(scores, values)
    names = ("largest score", "sum", "weighted sum")
    for name, mine, right in zip(names, found, whole):
        assert torch.allclose(mine, right, atol=1e-5), f"wrong {name}"


# %% tags=["solution"]
def merge(first, second):
    top = torch.maximum(first[0], second[0])
    factors = (first[0] - top).exp(), (second[0] - top).exp()
    total = factors[0] * first[1] + factors[1] * second[1]
    out = factors[0] * first[2] + factors[1] * second[2]
    return top, total, out


# %% [markdown]
# ### Exercise 2: a block in which everything is hidden
#
# *Medium, about 20 minutes.*
#
# Add a mask to `flash`: `hidden` has the shape (L, S), and True hides a key from a query. Each query sees at least one
# key, but it may see none in the *first* block, as with padding on the left. Then the largest score so far is
# $-\infty$, and $-\infty$ minus $-\infty$ is no number.
#
# <details><summary>Hint</summary>
#
# Hidden scores become `-torch.inf` by `masked_fill`. Where `new` is still infinite, subtract 0 instead of it:
# `new.masked_fill(new == -torch.inf, 0.0)`.
#
# </details>


# %% tags=["stub"]
def masked_flash(q, k, v, hidden, block=4):
    return flash(q, k, v, block)


# %% tags=["check"]
torch.manual_seed(2)
q, k, v = torch.randn(3, 12, 8)
for hidden in (
    torch.ones(12, 12).triu(1).bool(),  # causal
    (torch.arange(12) < 6).expand(12, 12),  # six of padding, left
    torch.rand(12, 12).fill_diagonal_(1) < 0.7,  # the diagonal is seen
):
    found = masked_flash(q, k, v, hidden)
    assert not found.isnan().any(), "infinite minus infinite?"
    expected, _ = scaled_dot_product_attention(
        q[None, None], k[None, None], v[None, None], mask=hidden
    )
    error = (found - expected[0, 0]).abs().max()
    assert error < 1e-5, f"an error of {error:.2g}"


# %% tags=["solution"]
def masked_flash(q, k, v, hidden, block=4):
    top = torch.full((len(q), 1), -torch.inf)
    total, out = torch.zeros(len(q), 1), torch.zeros(len(q), v.shape[1])
    parts = k.split(block), v.split(block), hidden.split(block, dim=1)
    for k_j, v_j, hidden_j in zip(*parts):
        scores = q @ k_j.T / q.shape[1] ** 0.5
        scores = scores.masked_fill(hidden_j, -torch.inf)
        new = torch.maximum(top, scores.amax(dim=1, keepdim=True))
        unit = new.masked_fill(new == -torch.inf, 0.0)
        factor, terms = (top - unit).exp(), (scores - unit).exp()
        total = factor * total + terms.sum(dim=1, keepdim=True)
        out = factor * out + terms @ v_j
        top = new
    return out / total


# %% [markdown]
# ### Exercise 3: backwards without the matrix
#
# *Hard, about 30 minutes.*
#
# With the weights $P$ and the gradient $G$ of the output, the gradient of the values is $P^T G$. Compute it block by
# block. `kept` has the shape (L, 1) and holds $m + \ln \ell$ of each query, which the forward pass kept. No tensor may be as
# large as $P$.
#
# <details><summary>Hint</summary>
#
# A block of weights is `(scores - kept).exp()`. Its product with $G$ gives the gradient of the values of this block;
# `torch.cat` joins them.
#
# </details>


# %% tags=["stub"]
def gradient_of_values(q, k, kept, gradient, block=16):
    weights = (q @ k.T / q.shape[1] ** 0.5 - kept).exp()
    return weights.T @ gradient


# %% tags=["check"]
torch.manual_seed(3)
q, k, v = torch.randn(3, 128, 16)
v.requires_grad_()
gradient = torch.randn(128, 16)
(explicit(q, k, v) * gradient).sum().backward()
kept = (q @ k.T / 4).logsumexp(dim=1, keepdim=True)
with Largest() as largest:
    found = gradient_of_values(q, k, kept, gradient)
assert found.shape == v.grad.shape, f"shape {tuple(found.shape)}"
error = (found - v.grad).abs().max()
assert error < 1e-5, f"an error of {error:.2g}"
assert largest.numbers < 128 * 128, "a tensor as large as the matrix"


# %% tags=["solution"]
def gradient_of_values(q, k, kept, gradient, block=16):
    found = []
    for k_j in k.split(block):
        weights = (q @ k_j.T / q.shape[1] ** 0.5 - kept).exp()
        found.append(weights.T @ gradient)
    return torch.cat(found)


# %% [markdown]
# ## What you can do now
#
# A softmax is a mean, and a mean can be updated. You can compute attention over any number of keys with three
# running tensors, say what it saves and why it is faster, merge the results of several devices, and go backwards
# without storing what went forwards.
#
# ## Where to go
#
# - What the library calls, and when equation 1 is faster: [`fused_attention`](../reference/fast/attention.md#fused_attention).
# - The paper's improvements of the order of its loops: [FlashAttention-2](https://arxiv.org/abs/2307.08691).
# - Other savings for long sequences, by fewer keys or fewer heads of keys: [chapter 21](21_since_2017.ipynb).
