# %% [markdown]
# # 2 A sentence attends to itself
#
# **How can every token of a sentence use the information of all others, in one
# computation?**
#
# In [chapter 1](01_one_query.ipynb), one query read three values, and we invented
# the query. A model of language has no such query. It has a sentence:
#
# > 猫は魚を食べます。 — *The cat eats fish.*
#
# The verb 食べ (eat) alone contains neither who eats nor what is eaten. This
# information is in other tokens. A model therefore computes a new vector for
# each token, which contains information from the whole sentence.
#
# *Self-attention* computes it with the operation of chapter 1. Every position
# of the sentence has a query, and the keys and values come from the same
# sentence. In this chapter, the vector of a token is its query, its key and its
# value at once. [Chapter 3](03_projections.ipynb) gives each role its own vector.
#
# That all positions are computed at once is what the paper removed recurrence for: the
# steps of a training no longer wait for each other. It costs something, as the number of
# scores grows with the square of the length, and it does not make every model better:
# [chapter 11](11_before_transformers.ipynb) counts and measures both.
#
# ## By hand
#
# Take three tokens with two features: is the token about an animal, is it about
# food? A fish is both.
#
# | token | vector **x** = (animal, food) |
# | --- | --- |
# | 猫 cat | (1, 0) |
# | 魚 fish | (1, 1) |
# | 食べ eat | (0, 1) |
#
# **1. Scores.** There are three queries and three keys, and therefore nine
# scores. Each is the dot product of two vectors. A row belongs to a query, a
# column to a key.
#
# | query | key 猫 | key 魚 | key 食べ |
# | --- | --- | --- | --- |
# | 猫 | 1 | 1 | 0 |
# | 魚 | 1 | 2 | 1 |
# | 食べ | 0 | 1 | 1 |
#
# The table is symmetric: the score of the query 猫 with the key 魚 is that of the
# query 魚 with the key 猫. Before you read on, predict: are the weights symmetric
# as well?
#
# **2. Weights.** The softmax works on each row separately. With e = 2.718 and
# e² = 7.389, the sum of the exponentials is 2.718 + 2.718 + 1 = 6.437 in the
# first row, and 2.718 + 7.389 + 2.718 = 12.826 in the second.
#
# | query | weight of 猫 | weight of 魚 | weight of 食べ |
# | --- | --- | --- | --- |
# | 猫 | 2.718 / 6.437 = 0.422 | 0.422 | 1 / 6.437 = 0.155 |
# | 魚 | 2.718 / 12.826 = 0.212 | 7.389 / 12.826 = 0.576 | 0.212 |
# | 食べ | 0.155 | 0.422 | 0.422 |
#
# The weights are not symmetric. 猫 gives 魚 a weight of 0.422, but 魚 gives 猫
# only 0.212, because its largest score is the one with itself.
#
# **3. Outputs.** Each row of weights gives one weighted sum of the vectors.
#
# | query | animal | food |
# | --- | --- | --- |
# | 猫 | 0.422 + 0.422 = 0.84 | 0.422 + 0.155 = 0.58 |
# | 魚 | 0.212 + 0.576 = 0.79 | 0.576 + 0.212 = 0.79 |
# | 食べ | 0.155 + 0.422 = 0.58 | 0.422 + 0.422 = 0.84 |
#
# The vector of 猫 had no feature *food*. Its output has 0.58 of it: the token now
# carries information about its sentence.
#
# ## The whole sentence
#
# A third feature, *grammar*, marks は, を, ます and 。 as tokens of grammar. The
# table of weights then has seven rows for $L = 7$ queries, and seven columns for
# $S = 7$ keys.
#
# ![A table of 7 by 7 attention weights for the sentence 猫は魚を食べます。 The row of 猫 gives 0.26 to 猫 and to 魚 and 0.10 to each other token. The row of 魚 gives 0.44 to itself. The rows of the four tokens of grammar are equal: 0.20 for each of them, 0.07 for the others. Beside it are the outputs: three features for each of the seven tokens.](figures/sentence_attends_to_itself.svg)
#
# The rows of は, を, ます and 。 are equal, because we gave these tokens the same
# vector. Attention uses only the vectors, not the order of the tokens.
# [Chapter 8](08_positions.ipynb) adds the positions.
#
# ## From loops to matrix products
#
# The calculation by hand is a loop over the queries, and inside it a loop over
# the keys:

# %%
import torch

FEATURES = {  # animal, food, grammar
    "<pad>": [0.0, 0.0, 0.0],
    "猫": [1.0, 0.0, 0.0],
    "魚": [1.0, 1.0, 0.0],
    "食べ": [0.0, 1.0, 0.0],
    "は": [0.0, 0.0, 1.0],
    "を": [0.0, 0.0, 1.0],
    "ます": [0.0, 0.0, 1.0],
    "。": [0.0, 0.0, 1.0],
}


def attend_with_loops(query, key, value):
    outputs = []
    for q in query:
        scores = torch.stack([(q * k).sum() for k in key])
        weights = scores.softmax(dim=0)
        outputs.append(sum(w * v for w, v in zip(weights, value)))
    return torch.stack(outputs)


sentence = ["猫", "は", "魚", "を", "食べ", "ます", "。"]
x = torch.tensor([FEATURES[token] for token in sentence])  # (7, 3)
for token, output in zip(sentence, attend_with_loops(x, x, x)):
    print(token, [round(number, 2) for number in output.tolist()])

# %% [markdown]
# A loop computes one number after another. Processors multiply whole matrices much
# faster, because they compute many numbers at once. Both loops are matrix products.
# Put the queries into the rows of a matrix $Q$ of shape (L, d), the keys into $K$ of
# shape (S, d), and the values into $V$ of shape (S, d). Then
#
# - the scores are $Z = Q K^T$, of shape (L, d) × (d, S) = (L, S): row $i$, column $j$
#   is the dot product of query $i$ and key $j$,
# - the weights $A$ are the softmax of each row of $Z$, of the same shape (L, S),
# - the outputs are $O = A V$, of shape (L, S) × (S, d) = (L, d): row $i$ is the
#   weighted sum of the values with the weights of query $i$.
#
# In PyTorch, `@` multiplies the matrices in the last two dimensions. All dimensions
# before them are computed in parallel. A *batch* of $B$ sentences is a tensor of shape
# (B, L, d), and the same code attends within each of them. `key.transpose(-2, -1)`
# swaps the last two dimensions, which gives $K^T$ for each sentence.
#
# The softmax goes over the keys, which are the last dimension: `dim=-1`.
#
# ## Sentences of different lengths
#
# The sentences of a batch have different lengths, but a tensor is rectangular.
# The shorter sentences are filled up with a special token, the *padding*. Our
# second sentence is shorter by two tokens:
#
# > 魚を食べます。 — *(It) eats fish.*
#
# Padding carries nothing that a query could use, so no query may attend to it. A
# *padding mask* marks the padding. In this book a mask is a boolean tensor, and **True
# hides** a key. The score of a hidden key is set to $-\infty$ before the softmax, and
# $e^{-\infty} = 0$: the weight is zero, and the other weights sum to 1.

# %% [markdown] tags=["formula"]
# $$Z = Q K^T$$
#
# $$Z_{ij} = -\infty \quad \text{if key } j \text{ is hidden}$$
#
# $$A_{ij} = \frac{e^{Z_{ij}}}{\sum_{m=1}^{S} e^{Z_{im}}}$$
#
# $$O = A V$$


# %% tags=["implementation"]
def attend(query, key, value, mask=None):
    """Attention of all queries at once.

    query (B, L, d), key and value (B, S, d); mask of
    shape (B, 1, S) or (B, L, S), where True hides.
    """
    scores = query @ key.transpose(-2, -1)  # (B, L, S)
    if mask is not None:
        scores = scores.masked_fill(mask, -torch.inf)
    weights = scores.softmax(dim=-1)  # over the keys
    return weights @ value, weights


# %% [markdown]
# Here is the batch. Its tokens are numbers, the positions in the list of all
# tokens; padding is token 0. The tensor `vectors[tokens]` holds the vector of
# each token.

# %%
VOCABULARY = list(FEATURES)
vectors = torch.tensor(list(FEATURES.values()))  # (8, 3)
short = ["魚", "を", "食べ", "ます", "。", "<pad>", "<pad>"]
tokens = torch.tensor(
    [[VOCABULARY.index(t) for t in each] for each in (sentence, short)]
)
x = vectors[tokens]
mask = (tokens == 0)[:, None, :]
outputs, weights = attend(x, x, x, mask)
print("tokens  (B, L)   ", tuple(tokens.shape))
print("vectors (B, L, d)", tuple(x.shape))
print("mask    (B, 1, S)", tuple(mask.shape))
print("weights (B, L, S)", tuple(weights.shape))
print("outputs (B, L, d)", tuple(outputs.shape))

# %% [markdown]
# The mask has one row for each sentence. Its middle dimension has size 1, so that
# PyTorch applies the same row to all queries of the sentence.
#
# ## The same, by the library
#
# [`padding_mask`](../reference/blocks/masks.md#padding_mask) builds the mask from the tokens. The
# library's tensors have a dimension for heads after the batch, as in chapter 1.
# Therefore its mask has the shape (B, 1, 1, S). `scale=1.0` leaves the scores as
# they are; the library's default is the subject of [chapter 4](04_scale.ipynb).

# %% tags=["proof"]
from transformer_blocks import (
    padding_mask,
    scaled_dot_product_attention,
)

head = x[:, None]  # (B, 1, L, d): one head
theirs, their_weights = scaled_dot_product_attention(
    head, head, head, mask=padding_mask(tokens), scale=1.0
)
assert torch.equal(padding_mask(tokens)[:, 0], mask)
assert torch.allclose(theirs[:, 0], outputs, atol=1e-6)
assert torch.allclose(their_weights[:, 0], weights, atol=1e-6)
looped = attend_with_loops(x[0], x[0], x[0])
assert torch.allclose(looped, outputs[0], atol=1e-6)
print(
    "largest difference:", (theirs[:, 0] - outputs).abs().max().item()
)

# %% [markdown]
# ## What does the padding change?
#
# The vector of our padding is zero. One might think that it needs no mask.
# Predict: which weight does a query give to a key that is a vector of zeros?

# %%
_, unmasked = attend(x, x, x)
print("weights of the query 魚, second sentence")
print("without   with mask   token")
for token, before, after in zip(short, unmasked[1, 0], weights[1, 0]):
    print(f"{before:7.3f} {after:11.3f}   {token}")

# %% [markdown]
# The dot product with a vector of zeros is 0, and $e^0 = 1$: a score of zero is
# an ordinary score. Without the mask, each padding token receives as much weight
# as を, ます and 。 do.
#
# ![Two tables of attention weights of the sentence 魚を食べます。 with two padding tokens. Without a mask, the columns of the padding hold weights of 0.07 to 0.14. With the padding mask, these columns are hatched and empty, and the other weights of each row are larger.](figures/padding_mask_weights.svg)
#
# How much padding a sentence gets depends on the longest sentence of its batch.
# The next table pads the second sentence to several lengths. It shows the sum of
# the weights of all padding, and how far the outputs are from those of the
# sentence without padding.

# %%
alone = x[1:, :5]
expected, _ = attend(alone, alone, alone)
print("          without mask      with mask")
print("length   weight   error   weight   error")
for length in [5, 7, 10, 20, 50]:
    padded = torch.zeros(1, length, 3)
    padded[:, :5] = alone
    hidden = torch.arange(length)[None, None, :] >= 5
    cells = [f"{length:6d}"]
    for each in (None, hidden):
        output, weight = attend(padded, padded, padded, each)
        on_padding = weight[0, :5, 5:].sum(dim=-1).mean()
        error = (output[:, :5] - expected).abs().max()
        cells.append(f"{on_padding:8.2f} {error:7.2f}")
    print("".join(cells))

# %% [markdown]
# Without a mask, the result for a sentence depends on the other sentences of the
# batch. In a batch with a sentence of 50 tokens, most of the weight goes to the
# padding, and the outputs shrink towards the padding's value, zero. With the
# mask, the outputs stay the same at every length.
#
# The mask hides keys. It does not remove queries: the two padding positions of
# the second sentence still have rows in the table, and outputs. Those outputs are
# not used: no other position attends to them, and the loss of a model skips them
# ([chapter 13](13_text_to_batches.ipynb)).
#
# ## Broken on purpose
#
# **The mask is forgotten.** No error is raised, the shapes are right, and a model
# that is trained this way even learns something. Such mistakes are found by
# comparing outputs. [`check_soundness`](../reference/tools/inspection.md#check_soundness) calls a
# function with each sequence alone, without padding and with it. The outputs must
# be equal.

# %% tags=["broken"]
from textwrap import fill

from transformer_blocks.inspection import check_soundness


def masked(tokens):
    x = vectors[tokens]
    return attend(x, x, x, (tokens == 0)[:, None, :])[0]


def forgotten(tokens):
    x = vectors[tokens]
    return attend(x, x, x)[0]


def check(function):
    soundness = check_soundness(
        function, tokens, only="padding", padding_id=0
    )
    return soundness["padding"]


print(check(masked))
report = check(forgotten)
print(len(report.problems), "violations without the mask:")
for problem in report.problems:
    print(fill(problem, 46, initial_indent="- "))

# %% [markdown]
# Sequence 0, the longest of the batch, has no padding, so `check_soundness` appends
# three padding tokens to it.
#
# **The softmax goes over the wrong dimension.** A softmax over the queries,
# `dim=-2`, raises no error either. Now each *column* sums to 1, and the outputs
# are not averages of the values: a row may sum to less or more than 1.

# %% tags=["broken"]
scores = x @ x.transpose(-2, -1)
print("sums of the rows, first sentence")
for dim in (-1, -2):
    sums = scores[0].softmax(dim=dim).sum(dim=-1)
    row = " ".join(f"{total:.2f}" for total in sums.tolist())
    print(f"dim={dim}: {row}")

hidden = scores.masked_fill(mask, -torch.inf)
count = hidden.softmax(dim=-2)[1].isnan().sum().item()
print("dim=-2 with the mask:", count, "weights are NaN")

# %% [markdown]
# With padding, the mistake becomes visible: each of the two padding columns holds
# seven scores of $-\infty$, and the softmax of such a column is $0 / 0$, which is
# *not a number* (NaN).
# `assert torch.allclose(weights.sum(dim=-1), torch.ones(()), atol=1e-6)`
# finds the mistake with and without padding.
#
# **A row without any key.** The same $0 / 0$ occurs with the right dimension if
# every key of a row is hidden, for example because a batch contains an empty
# sentence. One NaN spreads to all parameters of a model at the next update. The
# library returns zeros for such a row: attention weights of zero and an output of
# zero.

# %% tags=["broken"]
empty = torch.zeros(1, 3, dtype=torch.long)  # nothing but padding
x_empty = torch.ones(1, 3, 2)
_, naive = attend(x_empty, x_empty, x_empty, (empty == 0)[:, None])
vector = x_empty[:, None]
output, zeros = scaled_dot_product_attention(
    vector, vector, vector, mask=padding_mask(empty), scale=1.0
)
print("naive:  ", naive[0, 0])
print("library:", zeros[0, 0, 0], output[0, 0, 0])

# %% [markdown]
# ## Exercises
#
# Replace the body of each function, and run the check below it.
#
# ### Exercise 1: repair the shapes
#
# *Medium, about 15 minutes.*
#
# This function receives `query` of shape (B, L, d), `key` and `value` of shape
# (B, S, d), and a mask of shape **(B, S)**, where True hides. It must return the
# outputs, of shape (B, L, d). It has four mistakes, one in each line. Three of
# them raise an error; one does not.
#
# <details><summary>Hint</summary>
#
# Note the shape of each result beside its line. Over which dimension must the
# weights sum to 1?
#
# </details>


# %% tags=["stub"]
def repaired(query, key, value, mask):
    scores = query @ key
    scores = scores.masked_fill(mask, -torch.inf)
    weights = scores.softmax(dim=0)
    return value @ weights


# %% tags=["check"]
generator = torch.Generator().manual_seed(0)
q, k, v = (
    torch.randn(shape, generator=generator)
    for shape in [(2, 4, 8), (2, 6, 8), (2, 6, 8)]
)
hide = torch.arange(6) >= torch.tensor([[6], [3]])  # (2, 6)
expected, _ = scaled_dot_product_attention(
    q[:, None],
    k[:, None],
    v[:, None],
    mask=hide[:, None, None],
    scale=1.0,
)
found = repaired(q, k, v, hide)
assert found.shape == (2, 4, 8), f"the shape is {tuple(found.shape)}"
difference = (found - expected[:, 0]).abs().max()
assert difference < 1e-6, f"outputs differ by up to {difference:.3f}"


# %% tags=["solution"]
def repaired(query, key, value, mask):
    scores = query @ key.transpose(-2, -1)  # (B, L, d) @ (B, d, S)
    scores = scores.masked_fill(mask[:, None, :], -torch.inf)
    weights = scores.softmax(dim=-1)  # the silent mistake
    return weights @ value  # (B, L, S) @ (B, S, d)


# %% [markdown]
# ### Exercise 2: a mask from lengths
#
# *Easy, about 10 minutes.*
#
# A batch often comes with the length of each sentence instead of padding tokens.
# Build the padding mask from the lengths, an integer tensor of shape (B,), and
# the padded length $S$. Return a boolean tensor of shape (B, 1, S), where True
# hides. One comparison with `torch.arange(size)` is enough.
#
# <details><summary>Hint</summary>
#
# A position is padding if it is not smaller than the length. `lengths[:, None,
# None]` has the shape (B, 1, 1).
#
# </details>


# %% tags=["stub"]
def mask_from_lengths(lengths, size):
    return torch.zeros(len(lengths), 1, size, dtype=torch.bool)


# %% tags=["check"]
built = mask_from_lengths(torch.tensor([7, 5]), 7)
assert built.shape == (2, 1, 7), f"the shape is {tuple(built.shape)}"
assert torch.equal(built, mask), f"{built} instead of {mask}"
built = mask_from_lengths(torch.tensor([1, 0, 4]), 4)
hidden = built.sum(dim=-1).flatten().tolist()
assert hidden == [3, 4, 0], f"{hidden} positions are hidden"


# %% tags=["solution"]
def mask_from_lengths(lengths, size):
    positions = torch.arange(size)  # (S,)
    return positions >= lengths[:, None, None]  # (S,) and (B, 1, 1)


# %% [markdown]
# ### Exercise 3: a row without any key
#
# *Medium, about 20 minutes.*
#
# Write a softmax over the last dimension that returns zeros for a fully masked
# row. It receives scores of shape (B, L, S) and a mask of shape (B, 1, S). The
# gradient of the scores must be finite as well. Replacing NaN by zero afterwards
# mends the weights, but the gradient of the softmax remains NaN in such a row. It
# reaches the scores if $-\infty$ was *added* to them; `masked_fill` stops it.
# Hint: `mask.all(dim=-1, keepdim=True)` marks the fully masked rows.
#
# <details><summary>Hint</summary>
#
# Leave fully masked rows unmasked at first, so that no NaN arises, and set
# their weights to zero at the end.
#
# </details>


# %% tags=["stub"]
def masked_softmax(scores, mask):
    return scores.masked_fill(mask, -torch.inf).softmax(dim=-1)


# %% tags=["check"]
from transformer_blocks import attention_weights

generator = torch.Generator().manual_seed(0)
hide = torch.tensor([[[False, False, True]], [[True, True, True]]])
keys = torch.randn(2, 3, 4, generator=generator)
given = (keys @ keys.transpose(-2, -1)).requires_grad_()
result = masked_softmax(given, hide)
right = attention_weights(
    keys[:, None], keys[:, None], mask=hide[:, None], scale=1.0
)
assert result.isfinite().all(), "some weights are NaN"
assert torch.allclose(result, right[:, 0], atol=1e-6), (
    f"{result.tolist()} instead of {right[:, 0].tolist()}"
)
result.square().sum().backward()
assert given.grad.isfinite().all(), "the gradient is not finite"


# %% tags=["solution"]
def masked_softmax(scores, mask):
    # Leave fully masked rows as they are, so that no NaN arises ...
    fully_masked = mask.all(dim=-1, keepdim=True)
    scores = scores.masked_fill(mask & ~fully_masked, -torch.inf)
    # ... and set their weights to zero afterwards.
    return scores.softmax(dim=-1).masked_fill(mask, 0.0)


# %% [markdown]
# ## What you can do now
#
# In self-attention, every position is query, key and value, and a few products
# of matrices compute all of it at once. You can follow the shapes, hide padding
# with a mask, and find a softmax over the wrong dimension, which raises no
# error.
#
# ## Where to go
#
# - Here, one vector was query, key and value. Learned projections separate these
#   roles: [chapter 3](03_projections.ipynb).
# - A second kind of mask hides future tokens, and masks are combined:
#   [chapter 5](05_masks.ipynb).
# - The mask rule and all masks of the library: [`masks`](../reference/blocks/masks.md).
