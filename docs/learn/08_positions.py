# %% [markdown]
# # 8 Positions
#
# **How does attention know which word comes first?**
#
# It does not. Attention compares a query with keys, and nothing in this
# comparison depends on where the keys stand. But these two sentences have the
# same words:
#
# > 猫は魚を食べます。 — *The cat eats fish.*
# >
# > 魚は猫を食べます。 — *The fish eats cats.*
#
# In this chapter you see that attention cannot distinguish them. Then you give
# each position a vector of its own, and see why the paper chose sines and
# cosines.
#
# Without the idea of this chapter, a translator would not know who has been
# eaten.
#
# ## By hand
#
# Take only two words, 猫 = (2, 0) and 魚 = (1, 1). To keep the arithmetic
# short, each vector is query, key and value at once, without projections and
# without the factor $1 / \sqrt{d_k}$.
#
# | query | scores of 猫, 魚 | weights of 猫, 魚 | output |
# | --- | --- | --- | --- |
# | 猫 | 4, 2 | 0.881, 0.119 | 0.881 · (2, 0) + 0.119 · (1, 1) = (1.881, 0.119) |
# | 魚 | 2, 2 | 0.5, 0.5 | 0.5 · (2, 0) + 0.5 · (1, 1) = (1.5, 0.5) |
#
# Now write the words in the order 魚 猫, and compute again. Each query meets the
# same keys and the same values. A sum does not depend on the order of its
# terms. The output of 猫 is (1.881, 0.119) again, and that of 魚 is (1.5, 0.5).
#
# Attention is *permutation-equivariant*: if the inputs are permuted, the
# outputs are the same vectors, permuted in the same way. Projections and
# several heads do not change this, because they treat every position alike.
# We check it with the library's attention and the whole sentence.

# %%
import torch

from transformer_blocks import MultiHeadAttention, TokenEmbedding

torch.manual_seed(0)
words = ["猫", "は", "魚", "を", "食べ", "ます", "。"]
tokens = torch.arange(7)[None]  # one id for each word: (1, 7)
order = [2, 1, 0, 3, 4, 5, 6]  # exchanges 猫 and 魚

embedding = TokenEmbedding(vocabulary_size=7, d_model=16)
attention = MultiHeadAttention(16, num_heads=4)


def attend(x):
    return attention(x, x, x)[0].detach()  # (L, d_model)


def show(sentence, vector):
    print(sentence, *(f"{number:6.3f}" for number in vector[:3]))


cat_eats = attend(embedding(tokens))
fish_eats = attend(embedding(tokens[:, order]))
print("output of 猫, three features")
show("猫は魚を食べます。", cat_eats[0])
show("魚は猫を食べます。", fish_eats[2])
assert torch.allclose(fish_eats, cat_eats[order], atol=1e-6)

# %% [markdown]
# The cat that eats and the cat that is eaten have the same output. No layer
# above can repair that: the information is lost.
#
# ## A vector for each position
#
# The remedy of the paper (section 3.5) is short: before the first layer, add
# to each word's [embedding](../glossary.md#embedding) a vector that depends on
# its position. This vector is called a *positional encoding*.
#
# Which vectors are suitable? The number of the position itself, 0, 1, 2, ...,
# grows without limit and would soon be larger than everything in the
# embedding. We want small numbers, a different vector for each position, and
# similar vectors for positions that are near each other.
#
# A clock solves this problem. Its hands move on circles, so that no number
# grows, and they turn at different speeds: the second hand distinguishes near
# moments, the hour hand distant ones. The paper's encoding consists of such
# dials. Each has two features, the sine and the cosine of an angle, which are
# the coordinates of the hand's tip. The hand of the first dial turns by an angle
# of 1 (57 degrees) at each position. The hand of each further dial turns more
# slowly than the one before.
#
# With d_model = 4 there are two dials. The hand of the second dial turns 100
# times more slowly than that of the first.
#
# | position | angle | sine | cosine | angle | sine | cosine |
# | --- | --- | --- | --- | --- | --- | --- |
# | 0 | 0 | 0 | 1 | 0 | 0 | 1 |
# | 1 | 1 | 0.841 | 0.540 | 0.01 | 0.010 | 1.000 |
# | 2 | 2 | 0.909 | -0.416 | 0.02 | 0.020 | 1.000 |
# | 3 | 3 | 0.141 | -0.990 | 0.03 | 0.030 | 1.000 |
#
# The encoding of position 2 is (0.909, -0.416, 0.020, 1.000). The hand of the
# first dial returns to its start after $2\pi \approx 6.3$ positions, that of the
# second after 628.
#
# ![Four dials for each of the positions 0, 1, 2, 3, 10 and 100, for d_model = 8. From one position to the next the hand of the first dial turns by 57 degrees, that of the second by 5.7, of the third by 0.57 and of the fourth by 0.06 degrees.](figures/dials.svg)
#
# ## The formula and the code
#
# In general there are $d_{model} / 2$ dials. The hand of dial $i$, counted from
# 0, turns by the angle $\omega_i = 1 / 10000^{2i / d_{model}}$ at each position.

# %% [markdown] tags=["formula"]
# $$PE_{(pos, 2i)} = \sin \frac{pos}{10000^{2i / d_{model}}}$$
#
# $$PE_{(pos, 2i+1)} = \cos \frac{pos}{10000^{2i / d_{model}}}$$

# %% tags=["implementation"]
from math import cos, sin


def encodings(length, d_model):
    """Compute the encodings of all positions."""
    table = []
    for pos in range(length):
        row = []
        for even in range(0, d_model, 2):  # 2i
            angle = pos / 10000 ** (even / d_model)
            row += [sin(angle), cos(angle)]
        table.append(row)
    return table


# %%
for position, row in enumerate(encodings(4, d_model=4)):
    print(position, " ".join(f"{number:6.3f}" for number in row))

# %% [markdown]
# These are the numbers of the table above. The library computes the same table
# with tensors, in [`sinusoidal_table`](../reference/blocks/embedding.md#sinusoidal_table).
# [`SinusoidalPositionalEncoding`](../reference/blocks/embedding.md#sinusoidalpositionalencoding) is the module that
# adds it to embeddings of shape (B, L, d_model). It has no parameters.

# %% tags=["proof"]
from transformer_blocks import (
    SinusoidalPositionalEncoding,
    sinusoidal_table,
)

mine = torch.tensor(encodings(50, d_model=16))
assert torch.allclose(mine, sinusoidal_table(50, 16).float(), atol=1e-6)

positions = SinusoidalPositionalEncoding(16)
x = embedding(tokens)
assert torch.allclose(positions(x), x + mine[:7], atol=1e-6)

cat_eats = attend(positions(embedding(tokens)))
fish_eats = attend(positions(embedding(tokens[:, order])))
print("output of 猫, with positions")
show("猫は魚を食べます。", cat_eats[0])
show("魚は猫を食べます。", fish_eats[2])

# %% [markdown]
# The two cats now have different outputs.
#
# ![Left: the sine features of four dials over 60 positions; the first oscillates about every six positions, the others more and more slowly. Right: all 32 features of 60 positions as colours; the columns on the left change quickly, those on the right hardly at all.](figures/sinusoids.svg)
#
# ## A shift is a rotation
#
# Distances matter more than positions: in 猫は魚を食べます。 the particle は
# marks the word directly before it, wherever both stand. For this purpose,
# sines and cosines have a special property. A step of $k$ positions turns the
# hand of dial $i$ by $k \omega_i$, *whatever the position is*. By the addition
# theorems,
#
# $$\sin (a + b) = \cos b \sin a + \sin b \cos a$$
#
# $$\cos (a + b) = -\sin b \sin a + \cos b \cos a$$
#
# with $a = pos \, \omega_i$ and $b = k \omega_i$. The four factors with $b$ are a
# rotation matrix, which depends on $k$ only:
#
# $$\begin{pmatrix} \cos k \omega_i & \sin k \omega_i \\ -\sin k \omega_i & \cos k \omega_i \end{pmatrix}$$
#
# With one such block for each dial, $PE_{pos + k} = R_k \, PE_{pos}$: the encoding of the position $k$
# steps further is a linear function of the encoding. Queries and keys are
# linear projections of their inputs, so an attention head can learn to attend
# to a certain distance. The authors expected that this would be learned easily; it is
# their reason for trying sinusoids. They preferred them to learned positions for a second one:
# the model might extrapolate to sequences longer than those of the training (section 3.5).
# That is a hope which they did not measure, and it fails in the measurements below
# and in [chapter 21](21_since_2017.ipynb).
#
# Each dial below has two hands, for two positions at a fixed distance. Move the
# positions: in every dial both hands turn, and the angle between them stays.
#
# <!-- widget: rotation -->
#
# ![Four dials with the hands of two positions that are 2 apart: above for the positions 3 and 5, below for 40 and 42. The hands point elsewhere, but the angles between them are the same: 114.6, 11.5, 1.1 and 0.1 degrees.](figures/rotation.svg)
#
# The dot product of two encodings therefore depends on their distance only: it
# is the sum of the cosines of the angles, $\sum_i \cos k \omega_i$, and largest
# for the distance 0.

# %%
table = sinusoidal_table(100, 32)
print("distance   from 8   from 40   from 80")
for distance in [0, 1, 2, 5, 10]:
    row = [table[p] @ table[p + distance] for p in [8, 40, 80]]
    print(f"{distance:8d}", *(f"{number:8.3f}" for number in row))

# %% [markdown]
# Each row has the same number three times. The product falls with the distance,
# though not steadily, as the figure shows: near positions have similar encodings.
#
# ![The dot products of the encodings of positions 8 and 32 with those of all positions up to 63. Both curves have the same shape, with their peak of 16 at the position itself.](figures/similarity.svg)
#
# ## Learned positions
#
# A table of positions can also be learned: one row of parameters for each
# position, trained like the embeddings. The paper found nearly identical
# results with both (table 3, row E). In the library this is
# [`LearnedPositionalEncoding`](../reference/blocks/embedding.md#learnedpositionalencoding). It has two limits: a
# position beyond the table has no row, and a row is trained only if training
# sequences are that long. Here the table has 8 rows, and the sentence 7 words.

# %%
from textwrap import fill

from transformer_blocks import LearnedPositionalEncoding

learned = LearnedPositionalEncoding(d_model=16, max_length=8)
learned(x.detach()).square().sum().backward()
for position, row in enumerate(learned.weight.grad[4:], start=4):
    print(f"position {position}: gradient {row.norm():.2f}")
try:
    learned(torch.zeros(1, 9, 16))
except ValueError as error:
    print(fill(f"ValueError: {error}", 48))

# %% [markdown]
# The gradient of the last row is zero: no token stood at position 7. A model
# that meets its first sequence of length 8 after training adds a random vector
# there. Sinusoids exist for every position. Whether a model can use them there
# is a different question, which we measure below.
#
# ## Why the embedding is multiplied by sqrt(d_model)
#
# The paper multiplies the embeddings by $\sqrt{d_{model}}$ (section 3.4), and
# gives no reason. Predict the lengths of the vectors that are added, for
# d_model = 512, before you read the output. The library initialises embeddings
# with a standard deviation of $1 / \sqrt{d_{model}}$.

# %%
d_model = 512
embedding_512 = TokenEmbedding(1000, d_model)
rows = embedding_512.weight.norm(dim=1).mean().item()
added = embedding_512(torch.arange(1000)[None]).norm(dim=-1)
position = sinusoidal_table(1000, d_model).norm(dim=1)
print(f"embedding, unscaled     {rows:5.2f}")
print(f"embedding, scaled       {added.mean():5.2f}")
print(f"positions 0 to 999      {position.min():5.2f}", end="")
print(f" to {position.max():.2f}")

# %% [markdown]
# Every positional encoding has the length 16. Without the factor, the word's
# vector would have the length 1, and the position would be 16 times as long.
# With it, both are of the same order of magnitude. The small initial weights
# have a reason, too: the same matrix computes the scores of the output words,
# which must not be large at the start.
#
# ## Does the cat come first?
#
# We train a small model to answer this question. A sequence has 8 random words,
# among them one cat and one dog. The model is one attention layer; the mean of
# its outputs is projected to two numbers, one for each answer. Guessing is
# right in half of the cases.

# %%
import torch.nn.functional as F
from torch import nn

CAT, DOG, LENGTH = 0, 1, 8


def make_batch(count, length=LENGTH):
    tokens = torch.randint(2, 10, (count, length))
    # The first two of a random order are two different places.
    places = torch.rand(count, length).argsort(dim=-1)[:, :2]
    animals = torch.tensor([CAT, DOG]).expand(count, 2)
    cat_is_first = places[:, 0] < places[:, 1]
    # scatter is the reverse of gather: it writes to the places.
    return tokens.scatter(1, places, animals), cat_is_first.long()


class CatFirst(nn.Module):
    def __init__(self, positions, causal=False):
        super().__init__()
        self.embedding = TokenEmbedding(10, 32)
        self.positions = positions
        self.attention = MultiHeadAttention(32, num_heads=4)
        self.output = nn.Linear(32, 2)
        self.causal = causal

    def forward(self, tokens):
        x = self.positions(self.embedding(tokens))
        x = self.attention(x, x, x, causal=self.causal)
        return self.output(x.mean(dim=1))  # (B, 2)


def accuracy(model, length=LENGTH):
    tokens, answers = make_batch(2000, length)
    return (model(tokens).argmax(-1) == answers).float().mean()


def train(model, steps=200):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        tokens, answers = make_batch(64)
        loss = F.cross_entropy(model(tokens), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


# %% [markdown]
# Four models: without positions, with the sinusoids, with learned positions,
# and one without positions whose attention has a causal mask. Predict the four
# accuracies, in particular the last.

# %%
models = {}
for name, positions, causal in [
    ("no positions", nn.Identity(), False),
    ("sinusoids", SinusoidalPositionalEncoding(32), False),
    ("learned", LearnedPositionalEncoding(32, max_length=8), False),
    ("causal mask only", nn.Identity(), True),
]:
    torch.manual_seed(0)
    models[name] = train(CatFirst(positions, causal))
    print(f"{name:18s}{accuracy(models[name]):6.1%}")

# %% [markdown]
# Without positions, the model guesses. Training longer cannot help, because a
# sequence and its permutation have the same output.
#
# The last row surprises many. A causal mask treats positions differently: the
# first attends to one key, the second to two. Attention with a causal mask is
# therefore not permutation-equivariant, and here the dog only has to find out
# whether a cat is among its keys. [Haviv et al.
# (2022)](https://arxiv.org/abs/2203.16634) trained language models with a causal
# mask and without positional encodings; a small network could then predict the
# position of a token from the outputs of the layers. An encoder without positional encodings,
# whose mask hides padding only, cannot distinguish positions.
#
# Now shuffle: how often does a model keep its answer if the words of a sequence
# are permuted at random?

# %%
torch.manual_seed(1)
tokens, _ = make_batch(2000)
shuffled = tokens.gather(1, torch.rand(tokens.shape).argsort(dim=1))
for name in ["no positions", "sinusoids"]:
    model = models[name]
    same = model(tokens).argmax(-1) == model(shuffled).argmax(-1)
    print(f"{name:15s}same answer: {same.float().mean():6.1%}")

# %% [markdown]
# Without positions, no permutation changes an answer. With sinusoids, a random
# permutation exchanges cat and dog in half of the cases, and the answer changes
# as often.
#
# The sinusoids exist for every length, but the model was trained with positions 0
# to 7 only. What does it answer to longer sequences? The following cell trains
# it with the seeds 0 to 4 and measures its accuracy at four lengths. This takes
# about ten seconds; it was run once, and its output is recorded. Predict the
# accuracies first.

# %% tags=["recorded"]
print("length  ", *(f"{length:7d}" for length in [8, 12, 16, 32]))
for seed in range(5):
    torch.manual_seed(seed)
    model = train(CatFirst(SinusoidalPositionalEncoding(32)))
    row = [accuracy(model, length) for length in [8, 12, 16, 32]]
    print(f"seed {seed}: ", *(f"{right:7.1%}" for right in row))

# %% [markdown]
# The accuracy falls for every seed: to 81 to 87 % with 12 words, and to 65 to
# 72 % with 16. With 32 words, four of the models are right in 51 to 59 % of the
# cases. That of seed 0 is right in 36 %: it is worse than a random guess.
# Sinusoids are defined for every position, but that does not mean that a model
# can use positions on which it was not trained. Train it with sequences as long
# as those that it will meet.
#
# ## Broken on purpose
#
# A model that writes a text receives one new token at a time. It keeps the keys
# and values of all earlier tokens in a *cache*, so that only the new token is
# computed ([chapter 16](16_choose_words.ipynb)). The input then has the length 1,
# but the token stands at a later position. The argument `offset` of the
# positional encoding names it.
#
# Here it was forgotten. No error is raised, and all shapes are right.
# [`check_soundness`](../reference/tools/inspection.md#check_soundness) compares the decoding steps
# with one pass over the whole sequence. (It also reorders the rows of the cache, as
# beam search does in chapter 16; hence the method `reorder`.) At which steps do
# they differ?

# %% tags=["broken"]
from textwrap import fill

from transformer_blocks import KeyValueCache
from transformer_blocks.inspection import check_soundness

positions = SinusoidalPositionalEncoding(16)


def whole(tokens):  # (B, L) -> (B, L, d_model)
    x = positions(embedding(tokens))
    return attention(x, x, x, causal=True)


class Steps:
    """The same model, one token for each sequence at a time."""

    def __init__(self):
        self.cache = KeyValueCache()

    def step(self, tokens):  # (B,) -> (B, d_model)
        x = positions(embedding(tokens[:, None]))  # no offset!
        return attention(x, x, x, cache=self.cache)[:, 0]

    def reorder(self, rows):
        self.cache.reorder(rows)


sentences = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [2, 1, 0, 3, 4, 5, 6]])


def check(steps):
    soundness = check_soundness(
        whole, sentences, only="cache", new_step_model=steps
    )
    return soundness["cache"]


report = check(Steps)
print(len(report.problems), "violations, the first:")
print(fill(report.problems[0], 48))

# %% [markdown]
# Step 0 is right, because the position 0 is. All later tokens receive the
# encoding of position 0 as well, and their outputs are wrong: to this model,
# every word is the first. The cache knows how many tokens it holds, and that is
# the missing number.

# %%


class RightSteps(Steps):
    def step(self, tokens):
        x = embedding(tokens[:, None])
        x = positions(x, offset=self.cache.length)
        return attention(x, x, x, cache=self.cache)[:, 0]


check(RightSteps)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: the length of an encoding
#
# *Easy, about 5 minutes.*
#
# All encodings of 512 features had the length (Euclidean norm) 16.00. Why?
# Write a function that receives `d_model`, an even number, and returns the
# length of each encoding as a float, without computing any sine. Begin with one
# dial.
#
# <details><summary>Hint</summary>
#
# What is $\sin^2 a + \cos^2 a$, and how many such pairs has an encoding?
#
# </details>


# %% tags=["stub"]
def length_of_encoding(d_model):
    return float(d_model)  # replace


# %% tags=["check"]
for size in [2, 4, 64, 512]:
    norms = sinusoidal_table(100, size).norm(dim=1)
    mine = length_of_encoding(size)
    assert abs(mine - norms).max() < 1e-6, f"wrong for {size}"


# %% tags=["solution"]
def length_of_encoding(d_model):
    # sin^2 + cos^2 = 1 for each of the d_model / 2 dials.
    return (d_model / 2) ** 0.5


# %% [markdown]
# ### Exercise 2: a shift is a rotation
#
# *Medium, about 20 minutes.*
#
# Build the matrix $R_k$. The function receives `k` and `d_model`, and returns a
# tensor of shape (d_model, d_model) in float64, such that `matrix @ table[p]` is
# `table[p + k]` for every position `p` of `table = sinusoidal_table(...)`. It
# has one block of 2 times 2 numbers for each dial along its diagonal, and is
# zero elsewhere.
#
# <details><summary>Hint</summary>
#
# The four numbers of a block are those of the matrix in the section on
# rotation.
#
# </details>


# %% tags=["stub"]
def rotation(k, d_model):
    matrix = torch.zeros(d_model, d_model, dtype=torch.float64)
    for even in range(0, d_model, 2):
        angle = k / 10000 ** (even / d_model)
        matrix[even, even] = angle  # replace: four numbers of a block
    return matrix


# %% tags=["check"]
table = sinusoidal_table(60, 8)
for k in [1, 5, 20]:
    matrix = rotation(k, 8)
    for p in [0, 7, 39]:
        turned = matrix @ table[p]
        assert torch.allclose(turned, table[p + k], atol=1e-9), (k, p)


# %% tags=["solution"]
def rotation(k, d_model):
    matrix = torch.zeros(d_model, d_model, dtype=torch.float64)
    for even in range(0, d_model, 2):
        angle = k / 10000 ** (even / d_model)
        matrix[even, even] = matrix[even + 1, even + 1] = cos(angle)
        matrix[even, even + 1] = sin(angle)
        matrix[even + 1, even] = -sin(angle)
    return matrix


# %% [markdown]
# ### Exercise 3: padding on the left
#
# *Medium, about 15 minutes.*
#
# When a model continues several texts at once, short ones are padded on the
# *left*, so that all end at the same place. If positions are counted from the
# first column, the padding shifts every word. Write a function that receives
# token ids (B, L), in which 0 is padding, and returns the position of each
# token (B, L): the first real token has the position 0. What padding receives
# does not matter, as long as it is at least 0. `cumsum` is useful.
#
# <details><summary>Hint</summary>
#
# `(tokens != 0).cumsum(dim=1)` counts the real tokens up to each place.
#
# </details>


# %% tags=["stub"]
def positions_of(tokens):
    return torch.arange(tokens.shape[1]).expand(tokens.shape)


# %% tags=["check"]
batch = torch.tensor(
    [[5, 6, 7, 8, 9], [0, 0, 5, 6, 7], [0, 0, 0, 0, 5]]
)
found = positions_of(batch)
assert found.shape == batch.shape, f"shape {tuple(found.shape)}"
assert found.min() >= 0, "no position is negative, not of padding"
assert found[0].tolist() == [0, 1, 2, 3, 4], "a row without padding"
assert found[1, 2:].tolist() == [0, 1, 2], "count the tokens only"
assert found[2, 4] == 0, "the first token has position 0"


# %% tags=["solution"]
def positions_of(tokens):
    is_word = tokens != 0
    return (is_word.cumsum(dim=1) - 1).clamp(min=0)


# %% [markdown]
# ## What you can do now
#
# Attention alone treats a sentence as a bag of words, so each position gets a
# vector of its own. You can build the sinusoids, show that a shift is a
# rotation, and find a forgotten offset in a cache.
#
# ## Where to go
#
# - Attention, positions, and what else? The parts that make a deep stack
#   trainable: [chapter 9](09_layer.ipynb).
# - Current models rotate queries and keys instead of adding a vector (rotary
#   positional encoding), or subtract the distance from the scores (ALiBi):
#   [chapter 21](21_since_2017.ipynb).
# - The modules of this chapter, with all arguments:
#   [`embedding`](../reference/blocks/embedding.md).
# - Find out why a model is wrong: `python examples/course.py debug 21`
#   ([all cases](../howto/debug_a_transformer.md)).
