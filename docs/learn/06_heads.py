# %% [markdown]
# # 6 Heads
#
# **How can one query read two positions, and still know which value came from
# which?**
#
# In the sentence 猫は魚を食べます。 the verb needs to know who eats *and* what is
# eaten. A softmax yields one set of weights, and attention one weighted sum. If
# the verb attends to 猫 and to 魚, it receives their sum. *Multi-head attention*
# computes several attentions in parallel, each on a part of the features, and
# concatenates their outputs. It costs no additional parameters.
#
# Almost nothing in a sentence depends on one other word alone. To choose
# between *eats* and *eat*, a translator must know the subject and the verb at
# once.
#
# ## By hand: what a sum forgets
#
# An item has two friends, and each friend has a colour. The value of red is
# (1, 0), that of blue is (0, 1). The item attends to both friends with the
# weight ½ each, and should return the colour of the first friend and that of
# the second.
#
# | first friend | second friend | ½ · first + ½ · second |
# | --- | --- | --- |
# | red (1, 0) | blue (0, 1) | (0.5, 0.5) |
# | blue (0, 1) | red (1, 0) | (0.5, 0.5) |
#
# The two cases need opposite answers but have the same output. Whatever comes
# after attention cannot separate them. (Unequal weights are a subject of their own,
# below.) Two attentions can: one attends to the
# first friend, the other to the second, and the outputs are *concatenated*, not
# added.
#
# | first friend | second friend | head 0 | head 1 | concatenated |
# | --- | --- | --- | --- | --- |
# | red | blue | (1, 0) | (0, 1) | (1, 0, 0, 1) |
# | blue | red | (0, 1) | (1, 0) | (0, 1, 1, 0) |
#
# ## By hand: split and concatenate
#
# Where do the heads come from? The vector of each position is cut into $H$ equal
# parts of $d_k = d / H$ features. Head 0 takes the first part of *every*
# position, head 1 the second part, and so on. Here are $L = 2$ positions with
# $d = 4$ features and $H = 2$ heads, so $d_k = 2$:
#
# | position | vector | in head 0 | in head 1 |
# | --- | --- | --- | --- |
# | 0 | (1, 2, 3, 4) | (1, 2) | (3, 4) |
# | 1 | (5, 6, 7, 8) | (5, 6) | (7, 8) |
#
# Each head contains the whole sequence, in narrower vectors. The shape (B, L, d)
# becomes (B, H, L, d_k). After attention, the parts of each position are put
# beside each other again.
#
# ![A table of four positions by six features is cut into three groups of two columns. Each group is the input of one head, with all four positions. Each head attends by itself, and their outputs are put beside each other in a table of the first size, which the output projection reads.](figures/split_heads.svg)

# %%
import torch

x = torch.tensor([[[1, 2, 3, 4], [5, 6, 7, 8]]])  # (B, L, d)
parts = x.unflatten(-1, (2, 2))  # (B, L, H, d_k)
heads = parts.transpose(1, 2)  # (B, H, L, d_k)
print("head 0:", heads[0, 0].tolist())
print("head 1:", heads[0, 1].tolist())
merged = heads.transpose(1, 2).flatten(2)  # (B, L, d)
print("merged:", merged[0].tolist())

# %% [markdown]
# ## The formula and the code
#
# Section 3.2.2 of the paper gives each head projections of its own,
# $W_i^Q$, $W_i^K$ and $W_i^V$, from $d$ to $d_k$ features. We multiply by one
# $d \times d$ matrix instead, and split the result: the matrices of the heads
# are its groups of $d_k$ columns. (The paper counts heads from 1. This book counts them
# from 0, as Python does.) The output projection $W^O$ reads the
# concatenated heads, so each of its outputs can use all of them.

# %% [markdown] tags=["formula"]
# $$\begin{aligned} & \mathrm{MultiHead}(Q, K, V) \\ & \quad = \mathrm{Concat}(h_1, \dots, h_H)\, W^O \end{aligned}$$
#
# $$\begin{aligned} h_i = \mathrm{Attention}(& Q W_i^Q, \\ & K W_i^K, \\ & V W_i^V) \end{aligned}$$
#
# $$d_k = d / H$$


# %% tags=["implementation"]
def split(x, heads):
    """(B, L, d) to (B, H, L, d_k)."""
    parts = x.unflatten(-1, (heads, -1))
    return parts.transpose(1, 2)


def merge(x):
    """(B, H, L, d_k) to (B, L, d)."""
    return x.transpose(1, 2).flatten(2)


def multi_head(query, key, value, w, heads):
    q = split(query @ w["Q"], heads)
    k = split(key @ w["K"], heads)
    v = split(value @ w["V"], heads)
    scores = q @ k.transpose(-2, -1)
    scores = scores / q.shape[-1] ** 0.5
    outputs = scores.softmax(dim=-1) @ v
    return merge(outputs) @ w["O"]


# %% [markdown]
# We copy the weights of a [`MultiHeadAttention`](../reference/blocks/multi_head.md#multiheadattention) and
# compare three ways to compute the same: our function, the library's layer, and
# `torch.nn.MultiheadAttention`. A fourth follows the paper to the letter, with a
# loop over the heads and their own columns. (A linear layer of torch multiplies
# by the transposed weight, hence `.T`.)

# %% tags=["proof"]
from torch import nn

from transformer_blocks import (
    MultiHeadAttention,
    scaled_dot_product_attention,
)

torch.manual_seed(0)
ours = MultiHeadAttention(24, 4, bias=False)
w = {
    "Q": ours.query_projection.weight.T,
    "K": ours.key_projection.weight.T,
    "V": ours.value_projection.weight.T,
    "O": ours.output_projection.weight.T,
}
query, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
output = multi_head(query, memory, memory, w, heads=4)
expected = ours(query, memory, memory)
assert torch.allclose(output, expected, atol=1e-6)

torchs = nn.MultiheadAttention(24, 4, bias=False, batch_first=True)
with torch.no_grad():
    together = torch.cat([w["Q"], w["K"], w["V"]], dim=1)
    torchs.in_proj_weight.copy_(together.T)
    torchs.out_proj.weight.copy_(w["O"].T)
theirs, _ = torchs(query, memory, memory)
assert torch.allclose(output, theirs, atol=1e-6)

outputs = []
for columns in torch.arange(24).split(6):  # d_k = 6 columns each
    q, k, v = (
        (x @ w[name][:, columns])[:, None]  # (B, 1, L, d_k)
        for x, name in [(query, "Q"), (memory, "K"), (memory, "V")]
    )
    head, _ = scaled_dot_product_attention(q, k, v)
    outputs.append(head[:, 0])
by_head = torch.cat(outputs, dim=-1) @ w["O"]
assert torch.allclose(output, by_head, atol=1e-6)
print("output", tuple(output.shape))
for heads in [1, 2, 4]:
    layer = MultiHeadAttention(24, heads)
    size = sum(each.numel() for each in layer.parameters())
    print(f"{heads} heads of {layer.d_k:2} features: {size} parameters")

# %% [markdown]
# The number of parameters does not depend on the number of heads, since more
# heads are narrower heads. The cost of the products is similar, too:
# $H$ heads with $d / H$ features multiply as much as one head with $d$ features.
# The paper says so in section 3.2.2. Only the weights themselves grow: there are
# $H$ tables of $L \times S$ instead of one.
#
# ## The task of two friends
#
# We extend the friends task of [chapter 3](03_projections.ipynb). Six items have a name,
# the names of *two* friends, and a colour out of four. Each item must return the
# colours of both friends, in order. The first eight features of the output are the
# logits of the two answers. (In the code, `argsort` of random numbers makes a random
# order; `argsort` of an order gives the place of each name in it, and `gather` picks
# numbers at such places.)

# %%
import torch.nn.functional as F

COLOURS, D_MODEL = 4, 24


def make_batch(count):
    """Items, colours of the friends, places of the friends."""
    names = torch.rand(count, 6).argsort(dim=-1)
    order = torch.rand(count, 6, 6) + 2 * F.one_hot(names, 6)
    friends = order.argsort(dim=-1)[..., :2]  # own name comes last
    colours = torch.randint(COLOURS, (count, 6))
    x = torch.zeros(count, 6, D_MODEL)
    x[..., :6] = F.one_hot(names, 6)
    x[..., 6:18] = F.one_hot(friends, 6).flatten(2)
    x[..., 18:22] = F.one_hot(colours, COLOURS)
    # The argsort of an order answers: where does each name stand?
    place_of = names.argsort(dim=-1)[:, None].expand(-1, 6, -1)
    places = place_of.gather(2, friends)  # (B, 6, 2)
    answers = colours[:, None].expand(-1, 6, -1).gather(2, places)
    return x, answers, places


def predict(layer, x):
    """Logits of both answers: (B, 6, 2, COLOURS)."""
    return layer(x, x, x)[..., : 2 * COLOURS].unflatten(-1, (2, -1))


def train(layer, steps=400):
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(steps):
        x, answers, _ = make_batch(64)
        logits = predict(layer, x).flatten(0, 2)
        loss = F.cross_entropy(logits, answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer


@torch.no_grad()
def accuracies(layer):
    """Share of right answers for the first and second friend."""
    torch.manual_seed(1)
    x, answers, _ = make_batch(2000)
    right = predict(layer, x).argmax(dim=-1) == answers
    return right.float().mean(dim=(0, 1)).tolist()


# %% [markdown]
# A random guess is right in a quarter of the cases. Predict the accuracy of one
# head before you read on. By the argument above, it must attend to both friends
# with equal weights, and can only guess which colour belongs to which. Or does it
# attend to one friend and ignore the other?

# %%
layers = {}
print("heads    both   first  second")
for heads in [1, 2, 4]:
    torch.manual_seed(0)
    layers[heads] = train(MultiHeadAttention(D_MODEL, heads))
    first, second = accuracies(layers[heads])
    both = (first + second) / 2
    print(f"{heads:5} {both:7.3f} {first:7.3f} {second:7.3f}")

# %% [markdown]
# Two heads solve the task, and four do not improve on it. The single head does not
# guess: it is almost always right about *one* friend, and almost as bad as a random
# guess about the other.
#
# [`record_attention`](../reference/tools/inspection.md#record_attention) records the weights of
# every head while the layer runs. How much weight does each head give to the
# first friend, and to the second?

# %%
from transformer_blocks.inspection import record_attention


@torch.no_grad()
def weights_on_friends(layer):
    """Mean weight of each head on each friend: (H, 2)."""
    x, _, places = make_batch(1000)
    with record_attention(layer) as maps:
        layer(x, x, x)
    weights = maps[""][0]  # of the only layer: (B, H, 6, 6)
    heads = weights.shape[1]
    places = places[:, None].expand(-1, heads, -1, -1)
    return weights.gather(3, places).mean(dim=(0, 2))


print("          weight on first  on second")
for heads in [1, 2, 4]:
    for number, pair in enumerate(weights_on_friends(layers[heads])):
        first, second = pair.tolist()
        name = f"head {number} of {heads}"
        print(f"{name:12} {first:11.2f} {second:10.2f}")

# %% [markdown]
# Each of the two heads has one friend of its own. The single head attends to *both*,
# with almost equal weights; but not quite. Therefore its output for (red, blue) is a
# little redder than for (blue, red). The output projection amplifies this small
# difference, and the colour with the larger weight wins, for *both* answers. The other
# friend's answer is right if both friends happen to have the same colour.
#
# ![Three tables of attention weights for six items, whose two friends are framed. One head gives about half of the weight to each of the two friends. Of two heads, one gives nearly all of the weight to the first friend and the other to the second friend.](figures/heads_weights.svg)
#
# Is this an accident of the seed? The following cell repeats the experiment with
# the seeds 0 to 4 in about a minute; it was run once, and its output is recorded.
# *Preferred* is the friend with the larger accuracy, and *other* the remaining one.

# %% tags=["recorded"]
print("   seed  accuracy       weights of one head")
print("H        prefer. other  prefer. other")
for heads in [1, 2, 4]:
    for seed in range(5):
        torch.manual_seed(seed)
        layer = train(MultiHeadAttention(D_MODEL, heads))
        pairs = [accuracies(layer)]
        if heads == 1:
            pairs += weights_on_friends(layer).tolist()
        best = pairs[0].index(max(pairs[0]))
        row = [
            f"{pair[best]:7.3f} {pair[1 - best]:6.3f}" for pair in pairs
        ]
        if heads == 1:
            row.append(["first", "second"][best])
        print(f"{heads} {seed:5} ", *row)

# %% [markdown]
# The result is the same for every seed; only the preferred friend differs. The answer
# for this friend is right in 98.5 to 99.8 % of the cases, for the other in 28 to 31 %.
# The weights are about 0.52 and 0.44. Two and four heads reach 100 % with each seed.
#
# ### Why the output projection cannot repair it
#
# Could a clever $W^O$ read both colours from unequal weights? Call the weights $w \ge
# \frac{1}{2}$ for the first friend and $1 - w$ for the second (we leave out the few
# percent on the other items). For the *second* answer, let $D(c)$ be the logit of blue
# minus that of red if both friends have the colour $c$. Logits are linear in the
# weighted sum. Four cases must come out right:
#
# | friends | answer | condition |
# | --- | --- | --- |
# | red, red | red | $D(\text{red}) < 0$ |
# | blue, blue | blue | $D(\text{blue}) > 0$ |
# | red, blue | blue | $w\,D(\text{red}) + (1 - w)\,D(\text{blue}) > 0$ |
# | blue, red | red | $w\,D(\text{blue}) + (1 - w)\,D(\text{red}) < 0$ |
#
# By the first two, $D(\text{red})$ is negative and $D(\text{blue})$ positive. Since $w
# \ge 1 - w$, the third condition, divided by $1 - w$, then says that $D(\text{blue})$
# is larger than $-D(\text{red})$, and the fourth, divided by $w$, that it is smaller.
# They contradict each other. (If the second friend has the larger weight, the same
# holds for the first answer.) So *linear* logits of one weighted sum with fixed weights
# can never give both answers in all cases.
#
# Is the information lost, then? With the weights 0.52 and 0.44, (red, blue) becomes
# (0.52, 0.44) and (blue, red) becomes (0.44, 0.52). These are different vectors. A
# nonlinear function can map each to its own pair of answers. Such a function stands
# after attention in every layer of a Transformer, the feed-forward network of
# [chapter 9](09_layer.ipynb): two linear layers with a nonlinearity between them. Predict
# what one head reaches with it.

# %%
from transformer_blocks import FeedForward


class HeadAndNetwork(nn.Module):
    """One head, followed by a feed-forward network."""

    def __init__(self):
        super().__init__()
        self.head = MultiHeadAttention(D_MODEL, 1)
        self.network = FeedForward(D_MODEL, d_ff=D_MODEL)

    def forward(self, query, key, value):
        return self.network(self.head(query, key, value))


for seed in range(3):
    torch.manual_seed(seed)
    first, second = accuracies(train(HeadAndNetwork()))
    print(f"seed {seed}: first {first:.3f}, second {second:.3f}")

# %% [markdown]
# The network separates what the head has put into one sum. That is what it is for:
# attention moves information, and the network computes with it. Several heads are still
# useful, since here the network must tell 16 close vectors from each other. With two
# heads, each colour is in features of its own, and a linear layer reads it.
#
# ## Broken on purpose
#
# Splitting takes two steps: cut the features into $H$ parts, then exchange the
# dimensions L and H. It is tempting to write a single `view` or `reshape` to the
# final shape (B, H, L, d_k). The shape is right. What does head 0 contain, for
# the numbers 1 to 8 above?

# %% tags=["broken"]
from transformer_blocks.inspection import check_soundness


class WrongHeads(MultiHeadAttention):
    """Splits the heads by a reshape, without the transpose."""

    def split_heads(self, x):
        return x.reshape(len(x), self.num_heads, -1, self.d_k)


numbers = torch.arange(1, 9).reshape(1, 2, 4)
print("head 0, right:", split(numbers, 2)[0, 0].tolist())
print("head 0, wrong:", numbers.reshape(1, 2, 2, 2)[0, 0].tolist())

torch.manual_seed(0)
wrong = train(WrongHeads(D_MODEL, 2))
print("accuracies:", [f"{each:.2f}" for each in accuracies(wrong)])
x, answers, _ = make_batch(2000)
frequent = x[..., 18:22].sum(dim=1).argmax(dim=-1)  # (B,)
share = (answers == frequent[:, None, None]).float().mean()
print(f"the most frequent colour: {share:.2f}")

# %% [markdown]
# The wrong head 0 holds both parts of position 0 and nothing of the next position. A
# query then attends to parts of vectors, in an order that has nothing to do with
# the sentence. Nevertheless no error is raised, the loss falls, and the accuracy is almost twice that of a random guess. It is about that of always
# answering the most frequent colour of the six items, which is what a layer can
# learn if it attends to all of them equally.
#
# ![Two tables show which position and which features each head holds, for four positions in two heads. Split correctly, each head holds a part of all four positions. Split by a reshape alone, head 0 holds both parts of positions 0 and 1, and head 1 both parts of positions 2 and 3.](figures/wrong_split.svg)


# %% [markdown]
# The tools find it. In a layer with `causal=True`, no output may depend on a later
# position, and with a padding mask no output may depend on padding. A variant
# of the mistake also *merges* by a reshape. We check both.


# %%
from transformer_blocks import padding_mask


class WrongTwice(WrongHeads):
    """Also merges the heads by a reshape."""

    def merge_heads(self, heads):
        return heads.reshape(len(heads), -1, D_MODEL)


def check(layer):
    inputs = torch.randn(1, 6, D_MODEL)
    vectors = torch.randn(10, D_MODEL)  # for ten token ids

    def attend(x):
        return layer(x, x, x, causal=True)

    def encode(tokens):
        x, mask = vectors[tokens], padding_mask(tokens)
        return layer(x, x, x, mask=mask)

    batch = torch.tensor([[5, 6, 7, 8], [3, 4, 0, 0]])
    print(layer.__class__.__name__)
    for soundness in [
        check_soundness(attend, inputs, only="causality"),
        check_soundness(encode, batch, only="padding", padding_id=0),
    ]:
        (report,) = soundness.reports
        print(f"  {report.title}: {len(report.problems)} violations")


torch.manual_seed(0)
for made in [layers[2], wrong, WrongTwice(D_MODEL, 2)]:
    check(made)
print(weights_on_friends(wrong))

# %% [markdown]
# Both checks find both mistakes. The second mistake is less visible: each part returns
# to its place, so nothing leaks from the future. But head 0 now holds the positions 0
# to 2 and head 1 the positions 3 to 5, and no head crosses the middle. `check_soundness`
# reports that position 3 depends on no earlier position. The last two lines are the
# weights of the trained wrong layer on both friends: 1/6 each, as if it attended to all
# six items equally.
#
# ## Exercises
#
# ### Exercise 1: split by hand
#
# *Easy, about 5 minutes.*
#
# Two positions have six features each: (1, 2, 3, 4, 5, 6) and (7, 8, 9, 10, 11,
# 12). Split them into three heads with pencil and paper. Return a list of three
# heads; each is a list of two vectors with $d_k$ features.
#
# <details><summary>Hint</summary>
#
# $d_k$ is 2. Head 0 has the first two features of both positions.
#
# </details>


# %% tags=["stub"]
def three_heads():
    empty = [[0, 0], [0, 0]]
    return [empty, empty, empty]


# %% tags=["check"]
numbers = torch.arange(1, 13).reshape(1, 2, 6)
for number, head in enumerate(split(numbers, 3)[0]):
    mine = three_heads()[number]
    assert mine == head.tolist(), f"head {number} is wrong: {mine}"


# %% tags=["solution"]
def three_heads():
    # d_k = 2: head i holds the features 2i and 2i + 1 of each position
    return [[[1, 2], [7, 8]], [[3, 4], [9, 10]], [[5, 6], [11, 12]]]


# %% [markdown]
# ### Exercise 2: derive the single head's score
#
# *Medium, about 15 minutes.*
#
# The colours of the two friends are independent, and each of $C$ colours is equally
# probable. What share of all answers is right on the average, for each of
# two strategies?
#
# - *Prefer*: give the colour of the first friend as the answer to both questions.
# - *Guess*: know which two colours occur, but not which friend has which. If they
#   differ, guess the order; if they are equal, answer with this colour twice.
#
# Begin with the probability that both friends have the same colour. Return two
# numbers, for any number of colours, and compare them with the measured accuracy of
# one head.
#
# <details><summary>Hint</summary>
#
# The colours are equal with the probability $1 / C$. Add up the two cases.
#
# </details>


# %% tags=["stub"]
def single_head_score(colours):
    prefer = 1 / colours  # replace
    guess = 1 / colours  # replace
    return prefer, guess


# %% tags=["check"]
from itertools import product

for colours in range(2, 7):
    pairs = list(product(range(colours), repeat=2))
    prefer = sum((1 + (a == b)) / 2 for a, b in pairs) / len(pairs)
    guess = sum(1.0 if a == b else 0.5 for a, b in pairs) / len(pairs)
    mine = single_head_score(colours)
    assert abs(mine[0] - prefer) < 1e-6, "prefer is wrong"
    assert abs(mine[1] - guess) < 1e-6, "guess is wrong"


# %% tags=["solution"]
def single_head_score(colours):
    same = 1 / colours
    # The first answer is always right, the second if they are the same.
    prefer = (1 + same) / 2
    # All right if they are the same; else both right or both wrong.
    guess = same + (1 - same) / 2
    return prefer, guess
    # Equal: 0.625 for four colours. The trained head prefers, and
    # scores about 0.64: a few of its second answers are right too.


# %% [markdown]
# ### Exercise 3: switch off a head
#
# *Medium, about 15 minutes.*
#
# What does each of the two heads contribute? Write a function that receives a
# layer and the number of a head, and returns a *copy* of the layer in which this
# head contributes nothing. Set the right columns of the weight of
# `output_projection` to zero: it has the shape (d, d), and head $i$ is multiplied
# by its columns from $i \, d_k$ to $(i + 1) \, d_k$. The layer knows `d_k`.
#
# The check compares it with [`ablate`](../reference/tools/inspection.md#ablate) and prints
# the accuracies of the first and second friend without head 0, and without head 1.
# Predict them from the weights that you have seen.
#
# <details><summary>Hint</summary>
#
# `slice(a, b)` selects columns, as in `weight[:, slice(a, b)]`.
#
# </details>


# %% tags=["stub"]
from copy import deepcopy


def without_head(layer, head):
    copy = deepcopy(layer)
    with torch.no_grad():
        copy.output_projection.weight[:, :] *= 1.0  # replace
    return copy


# %% tags=["check"]
from transformer_blocks.inspection import ablate

x, _, _ = make_batch(2)
for head in [0, 1]:
    copy = without_head(layers[2], head)
    with ablate(layers[2], heads={"": [head]}):
        expected = layers[2](x, x, x)
    same = torch.allclose(copy(x, x, x), expected, atol=1e-5)
    assert same, f"head {head} still contributes"
    pair = [f"{each:.2f}" for each in accuracies(copy)]
    print(f"without head {head}:", *pair)


# %% tags=["solution"]
from copy import deepcopy


def without_head(layer, head):
    copy = deepcopy(layer)
    columns = slice(head * layer.d_k, (head + 1) * layer.d_k)
    with torch.no_grad():
        copy.output_projection.weight[:, columns] = 0.0
    return copy


# %% [markdown]
# ## What you can do now
#
# Heads attend in parallel, each in its own part of the features, and the output
# projection reads them together. You can split and merge heads, say what a
# single head cannot do, and switch one off to measure what it was for.
#
# ## Where to go
#
# - Where the vectors come from that the heads read: [chapter 7](07_embeddings.ipynb).
# - Attention has no idea of the order of the tokens:
#   [chapter 8](08_positions.ipynb).
# - Which heads a trained translator needs: [chapter 18](18_look_inside.ipynb).
# - Heads that share keys and values, to save memory: [chapter 21](21_since_2017.ipynb).
# - The layer with all its options: [`multi_head`](../reference/blocks/multi_head.md).
# - Find out why a model is wrong: `python examples/course.py debug 17`
#   ([all cases](../howto/debug_a_transformer.md)).
