# %% [markdown]
# # 5 Masks
#
# **How can a query ignore a key completely, although no weight of a softmax
# is ever zero?**
#
# Two kinds of keys must be hidden from a query. You know the first from
# [chapter 2](02_self_attention.ipynb): the shorter sequences of a batch are filled up
# with *padding*, which carries no meaning. The second is the *future*. A model that
# learns to predict the next token is trained on whole sequences, in which that next
# token is one of the keys. If the model can attend to it, it copies it and learns
# nothing.
#
# A **mask** is a table of booleans with a row for each query and a column for
# each key. It states which keys a query must not attend to. In this library,
# **True hides**: a position of the table that is True is *masked*. This chapter
# combines masks and shows mistakes in them, and the tools that find these mistakes.
#
# Mistakes in masks are easily overlooked. They raise no error, and after a
# forgotten causal mask the loss is *better* than it should be, so that one is
# pleased at first. Many of the published faults in [the museum](../museum/index.md) are of
# this kind.
#
# ## By hand
#
# The three scores of chapter 1 were 2, 1 and 0. We mask the second key. Its
# score is replaced by $-\infty$ *before* the softmax. Its exponential is
# $e^{-\infty} = 0$, and the sum is 7.389 + 0 + 1 = 8.389.
#
# | token | score | masked score | exp | weight |
# | --- | --- | --- | --- | --- |
# | 猫 | 2 | 2 | 7.389 | 7.389 / 8.389 = 0.881 |
# | 魚 | 1 | −∞ | 0 | 0 / 8.389 = 0 |
# | 食べます | 0 | 0 | 1.000 | 1.000 / 8.389 = 0.119 |
#
# The weights still sum to 1. If we set the weight of 魚 to zero *after* the
# softmax of chapter 1, the others would remain 0.665 and 0.090. Their sum is
# 0.755, and the output would be too small by a factor that depends on the
# masked key.
#
# ## Padding and the future
#
# [`padding_mask`](../reference/blocks/masks.md#padding_mask) compares token ids with the id of
# the padding, which is 0. [`causal_mask`](../reference/blocks/masks.md#causal_mask) masks the
# future: position $i$ attends to the positions $0 \dots i$ and to no later
# one. A position is masked if one mask *or* the other masks it. Since True
# hides, masks are combined by the operator `|`.

# %%
import torch

from transformer_blocks import (
    causal_mask,
    format_mask,
    padding_mask,
)

words = ["猫", "は", "魚", "を", "食べ", "ます", "。", "<pad>"]
tokens = torch.tensor([[11, 12, 13, 14, 15, 16, 17, 0]])

mask = padding_mask(tokens) | causal_mask(8)
print(format_mask(mask[0, 0], queries=words, keys=words))
print("padding", tuple(padding_mask(tokens).shape))
print("causal ", tuple(causal_mask(8).shape))
print("both   ", tuple(mask.shape))

# %% [markdown]
# Read the table by rows, where `x` is masked: the query 魚 attends to 猫, は and itself.
# The padding has a query too, whose output is computed and never used.
#
# ![Three tables of eight queries by eight keys. The padding mask hides the last column. The causal mask hides the triangle above the diagonal. Their combination hides both. A fourth table shows the weights if all scores are equal: the row of each query shares the weight 1 among the keys that are not masked.](figures/three_masks.svg)
#
# A mask has the shape (L, S) if it is the same for all sequences of the batch,
# as the causal mask is. Otherwise it has four dimensions (B, H, L, S), of which
# B, H and L may be 1: such a dimension is repeated. The padding mask differs
# between sequences but not between queries. Its shape is (B, 1, 1, S). The
# dimension H counts *heads*, the subject of [chapter 6](06_heads.ipynb).
#
# ## True hides, but not in every library
#
# Before you pass a mask to a function, read what True means there. A mask with
# the wrong meaning has the right shape and the right type, so no error is
# raised.
#
# | function | a masked key is |
# | --- | --- |
# | this library; `Tensor.masked_fill` | True |
# | `torch.nn.MultiheadAttention` | True |
# | `F.scaled_dot_product_attention` of torch | **False** |
# | `attention_mask` of Hugging Face | **0** |
#
# ## The formula and the code
#
# A mask $M$ adds $-\infty$ to the scores of the masked positions. In the formula,
# the matrix $\bar M$ holds these summands. Some queries may have no key left. The
# softmax of such a *fully masked row* divides 0 by 0, which is NaN. The library
# defines the weights of such a row as zero, so the output is zero as well.

# %% [markdown] tags=["formula"]
# $$A = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}} + \bar M\right)$$
#
# $$\bar M_{ij} = \begin{cases} -\infty & \text{if } M_{ij} \\ 0 & \text{otherwise} \end{cases}$$
#
# $$A_{ij} = 0 \quad \text{if all } M_{i1}, \dots, M_{iS}$$
#
# $$O = A V$$


# %% tags=["implementation"]
def masked_attention(query, key, value, mask):
    """Attend to the keys that are not masked."""
    scores = query @ key.transpose(-2, -1)
    scores = scores / query.shape[-1] ** 0.5
    scores = scores.masked_fill(mask, -torch.inf)
    weights = scores.softmax(dim=-1)
    no_key = mask.all(dim=-1, keepdim=True)
    weights = weights.masked_fill(no_key, 0.0)
    return weights @ value, weights


# %% tags=["proof"]
import torch.nn.functional as F

from transformer_blocks import scaled_dot_product_attention

torch.manual_seed(0)
query, key, value = torch.randn(3, 2, 1, 8, 16).unbind()
some_mask = torch.rand(2, 1, 8, 8) < 0.5
some_mask[0, 0, 3] = True  # a fully masked row
output, weights = masked_attention(query, key, value, some_mask)

theirs, their_weights = scaled_dot_product_attention(
    query, key, value, mask=some_mask
)
assert torch.allclose(output, theirs, atol=1e-6)
assert torch.allclose(weights, their_weights, atol=1e-6)

torchs = F.scaled_dot_product_attention(
    query, key, value, attn_mask=~some_mask
)  # the opposite rule: inverted by ~
assert torch.allclose(output, torchs, atol=1e-6)
print("sum of a row:         ", f"{weights[0, 0, 0].sum():.3f}")
print("fully masked, sum:    ", f"{weights[0, 0, 3].sum():.3f}")

# %% [markdown]
# Our function equals the library's, and also torch's if the mask is inverted
# by `~`.
#
# ## Why −∞ and not −1,000,000,000
#
# Many programs replace masked scores by −1e9 instead of
# $-\infty$. The weight $e^{-1000000000}$ is zero in every floating-point format,
# so the two seem to be the same. Predict the difference for a fully masked row,
# and for the format float16, whose largest number is 65,504.

# %%
row = torch.tensor([2.0, 1.0, 0.0])
everything = torch.tensor([True, True, True])
print("-inf:", row.masked_fill(everything, -torch.inf).softmax(0))
print("-1e9:", row.masked_fill(everything, -1e9).softmax(0))
try:
    row.half().masked_fill(everything, -1e9)
except RuntimeError as error:
    print("RuntimeError:", str(error)[:29], "...")

# %% [markdown]
# With −1e9, a fully masked row does not give NaN but *equal weights on all
# masked keys*: the query attends to exactly what the mask should hide, without
# any error. In float16, the number does not exist at all. NaN is at least
# visible, and the zero of the library is right: there is nothing to read.
#
# Fully masked rows are not rare. If the padding is at the *beginning* of a
# sequence, as is usual when a language model generates text in a batch, the
# causal mask leaves the first queries only padding to attend to. One NaN in
# their outputs is enough: in the next layer they are values, and even the
# weight zero times NaN is NaN.
#
# ## Which attention needs which mask
#
# A translator has an encoder, which reads the source, and a decoder, which
# generates the target ([chapter 12](12_encoder_decoder.ipynb)). They contain three
# kinds of attention.
#
# | attention | padding mask | causal mask |
# | --- | --- | --- |
# | self-attention of the encoder | of the source | no |
# | self-attention of the decoder | of the target | yes |
# | cross-attention | of the source | no |
#
# The encoder needs no causal mask, since the whole source is known before the
# first word of the translation. For the same reason, the decoder may attend to
# the whole source in cross-attention. There, L and S are different lengths. The
# padding mask belongs to the *keys*, therefore it is made from the source.
#
# Different lengths also occur in causal self-attention. When a decoder generates
# a text, it keeps the keys and values of the earlier positions in a *cache* and
# computes the queries of the new positions only. The last query is then the
# newest position, and the causal mask is aligned to the *bottom right*: the last
# query attends to every key.
#
# ![Two masks for two queries and five keys. Aligned to the bottom right, the first query attends to the first four keys and the second query to all five. Aligned to the top left, the first query attends to one key and the second query to two.](figures/alignment.svg)
#
# The option `is_causal=True` of `F.scaled_dot_product_attention` is aligned to
# the top left. We ask both functions for the output of the newest position.

# %%
newest = query[:, :, -1:]  # L = 1 query, S = 8 keys
print(format_mask(causal_mask(1, 8)))

every, _ = scaled_dot_product_attention(query, key, value, causal=True)
ours, _ = scaled_dot_product_attention(newest, key, value, causal=True)
torchs = F.scaled_dot_product_attention(
    newest, key, value, is_causal=True
)
expected = every[:, :, -1:]  # the last row of the whole sequence
first = value[:, :, :1]
for name, found, vector in [
    ("ours is the last row:   ", ours, expected),
    ("torch's is the last row:", torchs, expected),
    ("torch's is value 0:     ", torchs, first),
]:
    print(name, torch.allclose(found, vector, atol=1e-5))

# %% [markdown]
# With torch's option, the newest position attends to the first token only. The
# shape of the result is right, and there is no warning.
#
# ## Paint a mask
#
# Choose masks with the buttons, and change single positions by a click, or with
# the arrow keys and the space bar. The warnings follow those of the function
# [`explain_mask`](../reference/tools/inspection.md#explain_mask). Try to make a row fully
# masked, and then invert the causal mask.
#
# <!-- widget: mask -->
#
# ![A table of eight queries by eight keys of the running sentence with one padding token. The future and the padding are masked, and no warning is shown.](figures/mask_painter.svg)
#
# ## The leak laboratory
#
# What happens without the causal mask? We train a model to predict the next
# token at each of ten positions. The tokens are independent random numbers from 0 to 7. **No model
# can predict them.** The best that it can do is to give each of the 8 tokens the
# probability 1/8. Its loss, the average of $-\ln p$ for the probability $p$ that
# it gives to the right token, is then $\ln 8 = 2.08$. It cannot be lower, unless
# the answer *leaks*.
#
# The model is the single attention layer of [chapter 3](03_projections.ipynb). Each
# input vector holds a token and its position, and the first eight features of
# the output are the *logits* of the next token, the scores whose softmax gives
# its probabilities.

# %%
from transformer_blocks import SingleHeadAttention

VOCABULARY, LENGTH = 8, 10


def no_mask(length):
    return torch.zeros(length, length, dtype=torch.bool)


def predict(layer, tokens, make_mask):
    """Logits of each next token: (B, L) to (B, L, VOCABULARY)."""
    length = tokens.shape[1]
    positions = torch.arange(length).expand_as(tokens)
    parts = [F.one_hot(tokens, 8), F.one_hot(positions, LENGTH)]
    x = torch.cat(parts, dim=-1).float()
    return layer(x, x, x, mask=make_mask(length))[..., :VOCABULARY]


def loss_of(layer, tokens, make_mask):
    """Loss of every next token, where all tokens are given."""
    logits = predict(layer, tokens[:, :-1], make_mask)
    return F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])


def train(make_mask, steps=300):
    torch.manual_seed(0)
    layer = SingleHeadAttention(VOCABULARY + LENGTH)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY, (64, LENGTH + 1))
        loss = loss_of(layer, tokens, make_mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"training loss {loss.item():.2f}, {make_mask.__name__}")
    return layer


leaking = train(no_mask)
masked = train(causal_mask)

# %% [markdown]
# Without a mask, the loss is about an eighth of that lower bound. Before you read on,
# predict two numbers for this model: its loss on *new* random sequences, and its
# loss in generation, where it receives the first 1, 3, 5 or 9 tokens and the
# next one does not exist yet.

# %%
models = {"no mask": (leaking, no_mask)}
models["causal mask"] = (masked, causal_mask)
new = torch.randint(VOCABULARY, (2000, LENGTH + 1))
print("            new       generation, given")
print("            data     1     3     5     9")
with torch.no_grad():
    for name, (layer, make_mask) in models.items():
        losses = [loss_of(layer, new, make_mask)]
        for given in [1, 3, 5, 9]:
            logits = predict(layer, new[:, :given], make_mask)
            last = logits[:, -1]  # prediction of the next token
            losses.append(F.cross_entropy(last, new[:, given]))
        print(f"{name:11}", *(f"{loss:5.2f}" for loss in losses))

# %% [markdown]
# The loss on new sequences is as low as in training. **A validation set does not
# find the leak**, because the answer leaks there as well. Only generation shows
# it: after five tokens, the loss is about 3.2, far above 2.08. The model is worse
# than a uniform guess. Its query matches the key of a position that is missing, so
# other positions receive the weight, and their tokens large probabilities.
#
# ![Left: the training loss with the causal mask stays at ln 8 = 2.08, without a mask it falls to about 0.25. Right: the attention weights of the model without a mask. Each query attends to the next position, so the weights form a line beside the diagonal; the last query has no next position.](figures/leak.svg)
#
# The attention weights show how it leaks. Each query attends to the key of the *next*
# position, whose value is the answer. The last of the ten positions has no next one,
# and its loss stays at 2.08. In the mean over the ten positions, that is a share of
# 0.21. A loss that is too good is a reason to search for a leak.
#
# [`check_soundness`](../reference/tools/inspection.md#check_soundness) finds a leak in any model,
# trained or not. It changes one position at a time; no output
# at an earlier position may change.

# %%
from textwrap import fill

from transformer_blocks.inspection import check_soundness


def show(report):
    """Print a report in lines of at most 48 characters."""
    for line in str(report).splitlines()[:4]:
        print(fill(line, 48, subsequent_indent="    "))


some = new[:1, :4]
for model, mask in [(leaking, no_mask), (masked, causal_mask)]:
    soundness = check_soundness(
        lambda t, model=model, mask=mask: predict(model, t, mask),
        some,
        only="causality",
    )
    show(soundness["causality"])

# %% [markdown]
# ## Broken on purpose
#
# A frequent mistake with masks is the opposite rule: a program builds a mask in
# which True means *attend*, and passes it to a layer in which True hides. Here
# are both of our masks, inverted. What does each query attend to now?

# %% tags=["broken"]
from transformer_blocks.inspection import explain_mask

torch.manual_seed(0)
layer = SingleHeadAttention(16)
vectors = torch.randn(20, 16)  # a vector for each token id


def inverted_causal(length):
    return ~causal_mask(length)


def inverted_padding(tokens):
    x = vectors[tokens]
    return layer(x, x, x, mask=~padding_mask(tokens))


wrong = train(inverted_causal)
soundness = check_soundness(
    lambda t: predict(wrong, t, inverted_causal), some, only="causality"
)
show(soundness["causality"])
batch = tokens[:1, :7].repeat(2, 1)
batch[1, 4:] = 0  # padding
soundness = check_soundness(
    inverted_padding, batch, only="padding", padding_id=0
)
show(soundness["padding"])
print()
print(format_mask(~causal_mask(4)))
for warning in explain_mask(~causal_mask(4)).warnings:
    print(fill(warning, 48, subsequent_indent="    "))

# %% [markdown]
# Each query attends to exactly those keys that it must not attend to: to the
# future, or to the padding. The last query of the inverted causal mask is fully
# masked. No error is raised, the shapes are right, and the training loss is the
# smallest of all. Two tools find the mistake:
#
# - [`check_soundness`](../reference/tools/inspection.md#check_soundness) finds outputs that depend
#   on later positions, and outputs that change if the sequence is padded. It also
#   reports that no output depends on an earlier position.
# - [`explain_mask`](../reference/tools/inspection.md#explain_mask) needs no model. It
#   recognises the pattern of the mask.
#
# A test of your own model needs one line: `assert_sound(model, tokens, causal=True)`.
#
# ## Exercises
#
# ### Exercise 1: a masked row by hand
#
# *Easy, about 5 minutes.*
#
# A query has the scores 0, 1, 5 and 1 for four keys. The third key is masked.
# The values of the keys are the numbers 10, 20, 1000 and 0. Compute the four
# weights, rounded to two decimals, and the output, rounded to one decimal
# ($e = 2.718$).
#
# <details><summary>Hint</summary>
#
# The exponential of the masked key is 0. Divide the others by their sum as
# usual.
#
# </details>


# %% tags=["stub"]
def masked_by_hand():
    weights = [0.0, 0.0, 0.0, 0.0]  # your four weights
    output = 0.0  # one number
    return weights, output


# %% tags=["check"]
weights, output = masked_by_hand()
scores = torch.tensor([0.0, 1.0, -torch.inf, 1.0])
exact = scores.softmax(dim=0)
for mine, right in zip(weights, exact.tolist()):
    assert abs(mine - right) < 0.006, "a weight is wrong"
exact_output = exact @ torch.tensor([10.0, 20.0, 1000.0, 0.0])
assert abs(output - exact_output) < 0.06, "the output is wrong"


# %% tags=["solution"]
def masked_by_hand():
    # Exponentials 1, 2.718, 0, 2.718; their sum is 6.437.
    weights = [0.16, 0.42, 0.0, 0.42]
    output = 10.0  # 0.1554 * 10 + 0.4223 * 20
    return weights, output


# %% [markdown]
# ### Exercise 2: diagnose three masks
#
# *Easy, about 10 minutes.*
#
# A decoder receives a sequence of four tokens and one padding token. The first
# table shows its right mask. Three colleagues have built the masks A, B and C
# for it, and each has made another mistake: the whole mask is inverted, the
# padding is forgotten, the masks are combined by `&` instead of `|`, queries and
# keys are exchanged, or each query cannot attend to itself. Which one made
# which?

# %%
MISTAKES = {
    "inverted": lambda padding, causal: ~(padding | causal),
    "padding forgotten": lambda padding, causal: causal,
    "& instead of |": lambda padding, causal: padding & causal,
    "exchanged": lambda padding, causal: (padding | causal).T,
    "itself masked": lambda padding, causal: (
        padding | causal | torch.eye(5, dtype=torch.bool)
    ),
}
TABLES = """
right  A      B      C
.xxxx  .....  xxxxx  ....x
..xxx  x....  .xxxx  ....x
...xx  xx...  ..xxx  ....x
....x  xxx..  ...xx  ....x
....x  xxxxx  ....x  .....
"""
print(TABLES)

# %% [markdown]
# Return three keys of the dictionary `MISTAKES`, in the order A, B, C.
#
# <details><summary>Hint</summary>
#
# Begin with the diagonal and the last column. In which table is a token hidden
# from itself?
#
# </details>


# %% tags=["stub"]
def diagnose():
    return ["inverted", "inverted", "inverted"]


# %% tags=["check"]
lines = [line.split() for line in TABLES.split("\n")[2:7]]
is_padding = torch.tensor([[False] * 4 + [True]]).expand(5, 5)
for number, name in enumerate(diagnose(), start=1):
    drawn = [[mark == "x" for mark in line[number]] for line in lines]
    built = MISTAKES[name](is_padding, causal_mask(5))
    assert built.tolist() == drawn, (
        f"not the mistake of {'ABC'[number - 1]}"
    )


# %% tags=["solution"]
def diagnose():
    # A: the triangle is below the diagonal, and the last row is masked.
    # B: the diagonal is masked; the first query has no key left.
    # C: only what both masks hide is masked.
    return ["exchanged", "itself masked", "& instead of |"]


# %% [markdown]
# ### Exercise 3: a causal mask for a cache
#
# *Medium, about 15 minutes.*
#
# Write a causal mask for L queries and S keys without the library, where S may
# be larger than L. Query $i$ has the position $i + S - L$, since the last query
# has the position of the last key. Return a boolean tensor of shape (L, S), in
# which True hides. `torch.arange` gives the positions.
#
# <details><summary>Hint</summary>
#
# With a cache, the first query does not stand at position 0. Which key must the
# last query still be able to read?
#
# </details>


# %% tags=["stub"]
def my_causal_mask(query_length, key_length):
    queries = torch.arange(query_length)[:, None]
    keys = torch.arange(key_length)[None, :]
    return keys < queries  # replace: which keys are in the future?


# %% tags=["check"]
for sizes in [(1, 1), (4, 4), (1, 6), (2, 5), (3, 8)]:
    mine = my_causal_mask(*sizes)
    assert mine.shape == sizes, "the shape must be (L, S)"
    assert torch.equal(mine, causal_mask(*sizes)), f"wrong: {sizes}"


# %% tags=["solution"]
def my_causal_mask(query_length, key_length):
    shift = key_length - query_length
    queries = torch.arange(query_length)[:, None] + shift
    keys = torch.arange(key_length)[None, :]
    return keys > queries


# %% [markdown]
# ## What you can do now
#
# A mask replaces scores by $-\infty$ before the softmax, and True hides. You
# can combine masks for padding and for the future, read a mask from its table,
# and find a leak by a check instead of by luck.
#
# ## Where to go
#
# - A layer has several attention heads, each with weights of its own:
#   [chapter 6](06_heads.ipynb).
# - The masks of a whole translator in training: [chapter 12](12_encoder_decoder.ipynb).
# - Masks for windows and for several documents in one sequence:
#   [`masks`](../reference/blocks/masks.md).
# - Find out why a model is wrong: `python examples/course.py debug 9`
#   ([all cases](../howto/debug_a_transformer.md)).
