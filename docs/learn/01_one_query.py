# %% [markdown]
# # 1 One query reads a memory
#
# **How can a network look something up, and still be trained by gradient descent?**
#
# A dictionary in Python finds the value of a key, or it fails. Nothing about
# it can be learned: a small change of the key changes nothing, or everything.
# *Attention* is a lookup that always succeeds and changes smoothly. It
# compares a **query** with every **key**, turns the results into **weights**
# that are positive and sum to 1, and returns the weighted sum of the
# **values**.
#
# Everything else in this book is built on this one operation. In this chapter
# you compute it by hand, then as a loop, then with the library.
#
# When a chatbot remembers the name that you gave it an hour ago, or a
# translator knows which of two nouns *it* refers to, then this lookup has found the
# answer. Nothing in a Transformer is used more often.
#
# ## By hand
#
# One sentence accompanies us through the book:
#
# > 猫は魚を食べます。 — *The cat eats fish.*
#
# We begin with three of its words. Each has a key with three features, which
# we invent here: is the word about an animal, about food, about an action?
# Each also has a value, the information that a reader receives: number of
# legs, and mass in kg. The query asks for animals. Its factor 2 says how
# much a match counts.
#
# | word | key **k** | value **v** |
# | --- | --- | --- |
# | 猫 cat | (1, 0, 0) | (4, 4) |
# | 魚 fish | (0.5, 1, 0) | (0, 1) |
# | 食べます eats | (0, 0, 1) | (0, 0) |
#
# The query is **q** = (2, 0, 0). Three steps lead to the output.
#
# **1. Scores.** The score of a key is its dot product with the query: multiply
# feature by feature, and add.
#
# | word | **q** · **k** | score |
# | --- | --- | --- |
# | 猫 | 2 · 1 + 0 · 0 + 0 · 0 | 2 |
# | 魚 | 2 · 0.5 + 0 · 1 + 0 · 0 | 1 |
# | 食べます | 2 · 0 + 0 · 0 + 0 · 1 | 0 |
#
# Drawn as arrows, the dot product is the length of the query times the shadow that
# the key casts on it. The shadow of 魚 has the length 0.5, so its score is
# 2 · 0.5 = 1. A key at a right angle to the query scores 0, and one that points away
# from it less than 0.
#
# ![A query arrow of length 2, and a key arrow of length 1 that turns around its origin. An orange line is the shadow of the key on the query, and an orange bar the score: 2 if both point in one direction, 1 at 60 degrees, 0 at a right angle, −2 if the key points away.](figures/dot_product.svg)
#
# **2. Weights.** A softmax turns the scores into weights: take the exponential
# of each score, which is positive, and divide by the sum of all, which is
# 7.389 + 2.718 + 1 = 11.107.
#
# | word | score | exp(score) | weight |
# | --- | --- | --- | --- |
# | 猫 | 2 | 7.389 | 7.389 / 11.107 = 0.665 |
# | 魚 | 1 | 2.718 | 2.718 / 11.107 = 0.245 |
# | 食べます | 0 | 1.000 | 1.000 / 11.107 = 0.090 |
#
# **3. Output.** Multiply each value by its weight, and add.
#
# - legs: 0.665 · 4 + 0.245 · 0 + 0.090 · 0 = 2.66
# - mass: 0.665 · 4 + 0.245 · 1 + 0.090 · 0 = 2.91 kg
#
# The output is mostly that of the cat, with a little of the fish. No weight is
# zero. Therefore every key and every value influences the output, and each can
# be improved by gradient descent.
#
# ![The query (2, 0, 0) is compared with the keys of three words. Their scores 2, 1 and 0 become the weights 0.665, 0.245 and 0.090, and the weighted sum of the values is the output (2.66, 2.91).](figures/one_query.svg)
#
# ## The formula and the code
#
# With $S$ keys $k_1, \dots, k_S$ of $d$ features each and as many values, the
# three steps are the three lines below. They are equation 1 of
# [*Attention Is All You Need*](https://arxiv.org/abs/1706.03762) for one query,
# without its factor $1 / \sqrt{d_k}$, which is the subject of
# [chapter 4](04_scale.ipynb).

# %% [markdown] tags=["formula"]
# $$s_j = q \cdot k_j = \sum_{i=1}^{d} q_i \, k_{ji}$$
#
# $$w_j = \frac{e^{s_j}}{\sum_{m=1}^{S} e^{s_m}}$$
#
# $$o = \sum_{j=1}^{S} w_j \, v_j$$

# %% tags=["implementation"]
from math import exp


def attend(query, keys, values):
    """Read a memory: scores, weights, weighted sum."""
    scores = []
    for key in keys:
        products = [q * k for q, k in zip(query, key)]
        scores.append(sum(products))
    total = sum(exp(score) for score in scores)
    weights = [exp(score) / total for score in scores]
    output = [0.0] * len(values[0])
    for weight, value in zip(weights, values):
        for i, v in enumerate(value):
            output[i] += weight * v
    return output, weights


# %%
words = ["猫", "魚", "食べます"]
keys = [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]
values = [[4.0, 4.0], [0.0, 1.0], [0.0, 0.0]]

output, weights = attend([2.0, 0.0, 0.0], keys, values)
for word, weight in zip(words, weights):
    print(f"{weight:.3f}  {word}")
print([round(number, 2) for number in output])

# %% [markdown]
# The numbers are those that we computed by hand.
#
# ## The same, by the library
#
# The library's function is
# [`scaled_dot_product_attention`](../reference/blocks/attention.md#scaled_dot_product_attention). It computes many
# queries of many sequences and many heads at once. Therefore it expects
# tensors with four dimensions: sequences in the batch $B$, heads $H$,
# positions, features. Here, the first two are 1, and so is the number of
# queries. It returns the outputs and the weights.

# %% tags=["proof"]
import torch

from transformer_blocks import scaled_dot_product_attention

query = torch.tensor([2.0, 0.0, 0.0]).reshape(1, 1, 1, 3)
key = torch.tensor(keys).reshape(1, 1, 3, 3)
value = torch.tensor(values).reshape(1, 1, 3, 2)
theirs, their_weights = scaled_dot_product_attention(
    query, key, value, scale=1.0
)
assert torch.allclose(theirs.flatten(), torch.tensor(output), atol=1e-6)
assert torch.allclose(
    their_weights.flatten(), torch.tensor(weights), atol=1e-6
)
print("output ", theirs.shape)
print("weights", their_weights.shape)

# %% [markdown]
# ## How sharp is the lookup?
#
# The factor of the query decides how much of the weight goes to the best key.
# With a query of zeros, the weights are equal, and the output is the mean of the
# values. With a large query, one weight approaches 1: attention then copies a
# single value.

# %%
print("query        weights              legs")
for factor in [0.0, 1.0, 2.0, 5.0, 20.0]:
    output, weights = attend([factor, 0.0, 0.0], keys, values)
    row = "  ".join(f"{weight:.3f}" for weight in weights)
    print(f"({factor:4.1f}, 0, 0)  {row}  {output[0]:.2f}")

# %% [markdown]
# Multiplying all scores by a number is the same as dividing them by its
# reciprocal, which is called the *temperature*: a low temperature sharpens the
# weights. You will meet it again when a model samples its next word, in
# [chapter 16](16_choose_words.ipynb).
#
# <!-- widget: softmax -->
#
# ![The softmax of the scores 2, 1 and 0 at the temperatures 0.2, 1 and 5: from almost all weight on the first key to almost equal weights.](figures/temperature.svg)
#
# ## Broken on purpose
#
# The formula is right, and the code above follows it. It still fails for large
# scores. Predict what happens for the query (800, 0, 0) before you read on.

# %% tags=["broken"]
try:
    attend([800.0, 0.0, 0.0], keys, values)
except OverflowError as error:
    print("OverflowError:", error)

scores = torch.tensor([800.0, 400.0, 0.0])
naive = scores.exp() / scores.exp().sum()
print("naive softmax in torch:", naive)
print("torch.softmax:         ", scores.softmax(dim=0))

# %% [markdown]
# The largest number in double precision is about $1.8 \cdot 10^{308}$, and
# $e^{800}$ is about $10^{347}$. Python raises an error. Tensors are worse: $e^{800}$ becomes infinity, and infinity divided by
# infinity is *not a number* (NaN), without any error. A single NaN then spreads
# through the whole network.
#
# The remedy is a property of the softmax: adding the same number to all scores
# changes no weight, because the factor $e^c$ cancels. So we subtract the
# largest score first. The largest exponential is then $e^0 = 1$:
#
# $$w_j = \frac{e^{s_j - c}}{\sum_m e^{s_m - c}}, \qquad c = \max_m s_m$$
#
# `torch.softmax` and the library do this. Write it yourself in exercise 3.
#
# ## Exercises
#
# Replace the body of each function, and run the check below it. A solution is
# folded under each exercise.
#
# ### Exercise 1: one output by hand
#
# *Easy, about 10 minutes.*
#
# A second query asks for food: (0, 2, 0). Compute the three weights and the
# output with pencil and paper. Calculate with four decimals, and round the results
# to two.
#
# <details><summary>Hint</summary>
#
# The scores are 0, 2 and 0, and $e^2$ is 7.389.
#
# </details>


# %% tags=["stub"]
def by_hand():
    weights = [0.0, 0.0, 0.0]  # your numbers for 猫, 魚, 食べます
    output = [0.0, 0.0]  # legs, mass
    return weights, output


# %% tags=["check"]
weights, output = by_hand()
expected, exact = attend([0.0, 2.0, 0.0], keys, values)
for mine, right in zip(weights, exact):
    assert abs(mine - right) < 0.006, f"the weight {mine} is wrong"
for mine, right in zip(output, expected):
    assert abs(mine - right) < 0.006, f"the output {mine} is wrong"


# %% tags=["solution"]
def by_hand():
    # Scores 0, 2, 0; exponentials 1, 7.389, 1; their sum 9.389.
    weights = [0.11, 0.79, 0.11]  # 1 / 9.389, 7.389 / 9.389, ...
    output = [0.43, 1.21]  # 0.1065 * 4,  0.1065 * 4 + 0.787 * 1
    return weights, output


# %% [markdown]
# ### Exercise 2: without a loop
#
# *Easy, about 10 minutes.*
#
# All scores are one product of the matrix of keys (S, d) with the query (d,).
# The output is a product of the weights (S,) with the matrix of values (S, d_v).
# Write attention with these two products and `torch.softmax`.
#
# <details><summary>Hint</summary>
#
# `keys @ query` has the shape (S,). What must stand to the left of `values`?
#
# </details>


# %% tags=["stub"]
def attend_with_products(query, keys, values):
    scores = torch.zeros(len(keys))  # replace: a product
    weights = scores.softmax(dim=0)
    return weights.sum() * values[0]  # replace: another product


# %% tags=["check"]
generator = torch.Generator().manual_seed(0)
q, k, v = (
    torch.randn(shape, generator=generator)
    for shape in [(3,), (5, 3), (5, 2)]
)
expected, _ = attend(q.tolist(), k.tolist(), v.tolist())
found = attend_with_products(q, k, v)
assert found.shape == (2,), f"the shape is {tuple(found.shape)}"
assert torch.allclose(found, torch.tensor(expected), atol=1e-6), (
    f"{found.tolist()} instead of {expected}"
)


# %% tags=["solution"]
def attend_with_products(query, keys, values):
    weights = (keys @ query).softmax(dim=0)  # (S, d) @ (d,) -> (S,)
    return weights @ values  # (S,) @ (S, d) -> (d,)


# %% [markdown]
# ### Exercise 3: a softmax that does not overflow
#
# *Easy, about 5 minutes.*
#
# Write the softmax of a list of scores with `exp`, so that it works for scores
# of any size.
#
# <details><summary>Hint</summary>
#
# `max(scores)` is the $c$ of the last formula. Subtract it before you call
# `exp`.
#
# </details>


# %% tags=["stub"]
def safe_softmax(scores):
    total = sum(exp(score) for score in scores)
    return [exp(score) / total for score in scores]


# %% tags=["check"]
found = safe_softmax([800.0, 800.0, -800.0])
assert found == [0.5, 0.5, 0.0], f"{found}: subtract the maximum"
for c in [-800.0, 0.0, 800.0]:
    found = safe_softmax([2.0 + c, 1.0 + c, c])
    for mine, right in zip(found, [0.665, 0.245, 0.090]):
        assert abs(mine - right) < 0.001, f"wrong for c = {c}"


# %% tags=["solution"]
def safe_softmax(scores):
    largest = max(scores)
    shifted = [exp(score - largest) for score in scores]  # at most 1
    return [number / sum(shifted) for number in shifted]


# %% [markdown]
# ## What you can do now
#
# Attention compares a query with keys, turns the scores into weights by a
# softmax, and returns the weighted sum of the values. You can compute this with
# a pencil, as a loop and as two products, and you know why the largest score is
# subtracted first.
#
# ## Where to go
#
# - One query has read three values. A sentence has a query at *every* position,
#   and a batch has many sentences: [chapter 2](02_self_attention.ipynb).
# - The paper's equation and its figure: [`attention`](../reference/blocks/attention.md).
# - Where queries, keys and values come from in a network:
#   [chapter 3](03_projections.ipynb).
