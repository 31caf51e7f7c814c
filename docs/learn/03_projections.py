# %% [markdown]
# # 3 Queries, keys, values
#
# **Why does an attention layer not compare the vectors of the tokens as they
# are?**
#
# In [chapter 2](02_self_attention.ipynb), one vector per token was query, key and
# value at once. This has two consequences. The score of a token with itself is the
# squared length of its vector, which is often its largest score: tokens attend
# mostly to themselves. And all scores are symmetric: A matches B as well as B
# matches A.
#
# Relations in a sentence are different. A verb needs its object; the object does
# not need the verb in the same way. So each vector has three different roles:
#
# - as a **query**: which tokens does this token need?
# - as a **key**: for which queries is this token relevant?
# - as a **value**: which information does it give to those queries?
#
# An attention layer computes a vector for each role from the token's vector
# $x$ with a *projection*, a product with a matrix. The matrices $W^Q$, $W^K$
# and $W^V$ are the parameters of the layer. They are learned.
#
# If somebody says that a language model has learned grammar, then this is one
# of the places where it is kept: in numbers like those that you will choose by
# hand in a moment.
#
# ## By hand
#
# Three tokens of our sentence, with the features animal, food and verb:
#
# | token | **x** = (animal, food, verb) |
# | --- | --- |
# | 猫 cat | (1, 0, 0) |
# | 魚 fish | (1, 1, 0) |
# | 食べ eat | (0, 0, 1) |
#
# Without projections, 食べ has the scores 0, 0 and 1: it attends mostly to itself,
# with a weight of 2.718 / (1 + 1 + 2.718) = 0.576. It should attend to what is
# eaten. We choose three matrices for this purpose. A row of a matrix says what
# becomes of one feature.
#
# | feature | row of $W^Q$ | row of $W^K$ | row of $W^V$ |
# | --- | --- | --- | --- |
# | animal | (0, 0, 0) | (1, 0, 0) | (1, 0, 0) |
# | food | (0, 0, 0) | (0, 1, 0) | (0, 1, 0) |
# | verb | (0, 2, 0) | (0, 0, 1) | (0, 0, 0) |
#
# The last row of $W^Q$ means: a verb needs food, with the factor 2. $W^K$ changes
# nothing. $W^V$ passes *animal* and *food*, but not *verb*.
#
# The query of 食べ is its vector times $W^Q$. Its only feature is *verb*, so the
# product is the row of *verb*:
#
# $$q = (0, 0, 1) \, W^Q = (0, 2, 0)$$
#
# | token | key | score | weight | value |
# | --- | --- | --- | --- | --- |
# | 猫 | (1, 0, 0) | 0 | 1 / 9.389 = 0.107 | (1, 0, 0) |
# | 魚 | (1, 1, 0) | 2 | 7.389 / 9.389 = 0.787 | (1, 1, 0) |
# | 食べ | (0, 0, 1) | 0 | 1 / 9.389 = 0.107 | (0, 0, 0) |
#
# The output of 食べ is 0.107 · (1, 0, 0) + 0.787 · (1, 1, 0) = (0.89, 0.79, 0):
# what is eaten is an animal, and it is food.
#
# And how does 魚 attend? Its vector is (1, 1, 0), and
# these features have rows of zeros in $W^Q$. Its query is therefore (0, 0, 0), all
# its scores are 0, and each token gets the weight 1/3. 食べ attends to 魚, but 魚
# does not attend to 食べ in particular. The scores are no longer symmetric.
#
# ![The vector (0, 0, 1) of 食べ is multiplied by three matrices and becomes a query (0, 2, 0), a key (0, 0, 1) and a value (0, 0, 0). Below, this query is compared with the keys of 猫, 魚 and 食べ: the scores 0, 2 and 0 become the weights 0.107, 0.787 and 0.107, and the weighted sum of the values is the output (0.89, 0.79, 0).](figures/three_roles.svg)
#
# ## The formula and the code
#
# With all vectors in the rows of a matrix $X$ of shape (L, d), the projections
# are $X W^Q$, $X W^K$ and $X W^V$. A fourth matrix, $W^O$, projects the outputs, so
# that the layer can write them into the features in which the next layer expects
# them.
#
# The formula below has a second matrix $M$ of shape (S, d), the *memory*, from which
# keys and values are computed. If $M = X$, the sequence attends to itself, and the
# layer is **self-attention**; if $M$ is another sequence, it is **cross-attention**. A
# translator uses both: the English words that it has produced so far attend to each
# other, and to the Japanese sentence ([chapter 12](12_encoder_decoder.ipynb)).

# %% [markdown] tags=["formula"]
# $$Q = X W^Q, \quad K = M W^K, \quad V = M W^V$$
#
# $$A = \mathrm{softmax}(Q K^T)$$
#
# $$O = A \, V \, W^O$$

# %% tags=["implementation"]
import torch


def attention_layer(x, memory, w_q, w_k, w_v, w_o):
    """Attention with projections.

    x (B, L, d), memory (B, S, d), four matrices (d, d).
    """
    query = x @ w_q  # (B, L, d)
    key = memory @ w_k  # (B, S, d)
    value = memory @ w_v  # (B, S, d)
    scores = query @ key.transpose(-2, -1)  # (B, L, S)
    weights = scores.softmax(dim=-1)
    return weights @ value @ w_o, weights  # (B, L, d)


# %%
x = torch.tensor([[[1.0, 0, 0], [1, 1, 0], [0, 0, 1]]])
w_q = torch.tensor([[0.0, 0, 0], [0, 0, 0], [0, 2, 0]])
w_k, w_o = torch.eye(3), torch.eye(3)
w_v = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 0]])

output, weights = attention_layer(x, x, w_q, w_k, w_v, w_o)
for token, row in zip(["猫", "魚", "食べ"], weights[0]):
    print([round(weight, 3) for weight in row.tolist()], token)
print([round(number, 2) for number in output[0, 2].tolist()])

# %% [markdown]
# The last line is the output of 食べ, as computed by hand.
#
# ## The same, by the library
#
# The library's layer is [`SingleHeadAttention`](../reference/blocks/multi_head.md#singleheadattention). It is
# called with a query sequence, a key sequence and a value sequence:
#
# | use | call | other names |
# | --- | --- | --- |
# | self-attention | `layer(x, x, x)` | intra-attention |
# | cross-attention | `layer(x, memory, memory)` | encoder-decoder attention, Source-Target-Attention |
#
# Readers of Japanese articles know this layer as *SimpleAttention*, with the
# arguments `input` and `memory`.
#
# The proof copies the weights of a library layer. One detail matters:
# `torch.nn.Linear` computes $x W^T$, so it stores the transpose of the matrix in
# the formula. `scale=1.0` leaves the scores as they are; the usual scale is the
# subject of [chapter 4](04_scale.ipynb).

# %% tags=["proof"]
from transformer_blocks import SingleHeadAttention

torch.manual_seed(0)
layer = SingleHeadAttention(8, scale=1.0, bias=False)
matrices = [
    layer.query_projection.weight.T,
    layer.key_projection.weight.T,
    layer.value_projection.weight.T,
    layer.output_projection.weight.T,
]
x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
for other in (x, memory):  # self-attention, cross-attention
    output, weights = attention_layer(x, other, *matrices)
    theirs = layer(x, other, other)
    assert torch.allclose(theirs, output, atol=1e-6)
    print(
        "weights", tuple(weights.shape), "output", tuple(output.shape)
    )

# %% [markdown]
# In cross-attention, the number of outputs is that of the queries, L = 3, and the
# table of weights has S = 5 columns.
#
# ## The friends task
#
# Can such matrices be learned? The following task needs all three roles. A
# sequence consists of six items in random order. Each item has a name (A to F),
# the name of a friend, and a colour. Each item must return *its friend's colour*.
# The query should therefore be the friend's name, the key the item's own name, and
# the value its colour. One vector of 16 features holds all three: six for the name,
# six for the friend, four for the colour.

# %%
import torch.nn.functional as F


def make_batch(count):
    names = torch.stack([torch.randperm(6) for _ in range(count)])
    friends = (names + torch.randint(1, 6, (count, 6))) % 6  # not own
    colours = torch.randint(4, (count, 6))
    parts = [
        F.one_hot(names, 6),  # features 0 to 5: zeros and a 1
        F.one_hot(friends, 6),  # features 6 to 11
        F.one_hot(colours, 4),  # features 12 to 15
    ]
    x = torch.cat(parts, dim=-1).float()
    return x, colours_of_friends(x, x)


def colours_of_friends(queries, x):
    """The colour of the item that each query names as friend."""
    is_friend = queries[..., 6:12] @ x[..., :6].transpose(-2, -1)
    return (is_friend @ x[..., 12:]).argmax(dim=-1)


def accuracy(output, target):
    guess = output[..., 12:].argmax(dim=-1)
    return (guess == target).float().mean().item()


def train(layer, steps=200):
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    for _ in range(steps):
        x, target = make_batch(64)
        logits = layer(x, x, x)[..., 12:]
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer


# %% [markdown]
# The output of a layer has the same 16 features as its input. Its last four are
# the *logits* of the four colours: the colour with the largest number is the
# answer. A random guess is right in 1 of 4 cases. In `train`, `zero_grad` discards the
# gradients of the last update, `backward` computes new ones, and `step` changes the
# parameters.
#
# We compare attention without projections, with random projections, and with
# trained projections (seed 0, 200 updates, below a second). Make a guess for
# each.

# %%
torch.manual_seed(0)
x, target = make_batch(1000)
unprojected = (x @ x.transpose(-2, -1)).softmax(dim=-1) @ x
layer = SingleHeadAttention(16, scale=1.0, bias=False)
print(f"no projections     {accuracy(unprojected, target):.2f}")
print(f"random projections {accuracy(layer(x, x, x), target):.2f}")
train(layer)
print(f"trained            {accuracy(layer(x, x, x), target):.2f}")

# %% [markdown]
# Without projections, an item attends mostly to itself and returns its own colour,
# which says nothing about its friend's. Random projections are no better. Trained, the layer finds
# the friend every time. Nothing in its loss mentions names: the layer has learned
# to compare the friend of one item with the name of another, because this reduces
# the loss.
#
# The same layer works in cross-attention. Let the query sequence consist of three
# vectors that contain only a friend's name, B, E and A. The layer must return the
# colours of these items in each sequence.

# %%
wanted = torch.tensor([1, 4, 0])  # B, E, A
queries = torch.zeros(len(x), 3, 16)
queries[:, torch.arange(3), 6 + wanted] = 1.0

expected = colours_of_friends(queries, x)
output = layer(queries, x, x)
print("output", tuple(output.shape))
print(f"accuracy {accuracy(output, expected):.2f}")

# %% [markdown]
# ## Is one projection enough for queries and keys?
#
# $W^Q$ and $W^K$ have the same shape. Predict: what does a layer learn that uses
# one matrix for both?


# %%
def mean_weights(layer, x):
    """Average the weight of a key by its relation to the query."""
    weights = layer.attention_weights(x, x)[:, 0]  # (B, L, S)
    names, friends = x[..., :6], x[..., 6:12]
    friend = friends @ names.transpose(-2, -1)  # 1: the query's friend
    admirer = friend.transpose(-2, -1)
    relations = {
        "friend": friend * (1 - admirer),
        "admirer": admirer * (1 - friend),
        "itself": torch.eye(6).expand_as(friend),
    }
    return [
        ((weights * relation).sum() / relation.sum()).item()
        for relation in relations.values()
    ]


torch.manual_seed(0)
shared = SingleHeadAttention(16, scale=1.0, bias=False)
shared.key_projection = shared.query_projection  # W^Q = W^K
train(shared)
print("                    mean weight of the")
print("          accuracy  friend admirer  itself")
for name, each in [("separate", layer), ("shared", shared)]:
    score = accuracy(each(x, x, x), target)
    cells = [f"{weight:8.2f}" for weight in mean_weights(each, x)]
    print(f"{name:9s} {score:8.2f}" + "".join(cells))

# %% [markdown]
# The *admirer* of an item is an item that names it as its friend. The table leaves
# out pairs that name each other.
#
# With one matrix, the scores are symmetric again: the score of A with B is the dot
# product of $x_A W$ and $x_B W$, and so is the score of B with A. If an item has a
# high score with its friend, the friend has the same score with its admirer.
# Moreover, the score of an item with itself is the squared length of $x_A W$,
# which is large whenever other scores are. The best that training finds are
# weights that are almost equal, and an accuracy of about 0.48. (The most
# frequent colour of a sequence, as the answer for every item, is right in 0.47 of the
# cases.) With two matrices, the score of A with B and that of B with A are independent.
#
# ![Three tables of attention weights for six items; an orange frame marks each item's friend. Before training, the weights are spread irregularly. With one matrix for queries and keys, all weights are similar, and the largest of a row is on the diagonal. With two matrices, each row has one dark cell, which is in the frame.](figures/friends.svg)
#
# ## Broken on purpose
#
# **Query and memory are exchanged.** In cross-attention, it is easy to write
# `layer(memory, x, x)` instead of `layer(x, memory, memory)`. If both sequences
# have the same length, no error is raised, and every shape is right. Here the
# queries contain the six names in order:

# %% tags=["broken"]
six = torch.arange(6)  # A, B, C, D, E, F
queries = torch.zeros(len(x), 6, 16)
queries[:, six, 6 + six] = 1.0
expected = colours_of_friends(queries, x)
right, wrong = layer(queries, x, x), layer(x, queries, queries)
print(
    "right:    ", tuple(right.shape), f"{accuracy(right, expected):.2f}"
)
print(
    "exchanged:", tuple(wrong.shape), f"{accuracy(wrong, expected):.2f}"
)

# %% [markdown]
# The values now come from the queries, which contain no colour. The layer can only
# guess.
#
# A test with *different* lengths shows the mistake, for example L = 3 and S = 6.
# [`trace_shapes`](../reference/tools/inspection.md#trace_shapes) lists the shapes in every
# module, with the names of the sizes. The output must have L rows.

# %% tags=["broken"]
from transformer_blocks.inspection import trace_shapes

sizes = {"B": 2, "L": 3, "S": 6, "d": 16}
query, memory = queries[:2, :3], x[:2]
for inputs in [(query, memory, memory), (memory, query, query)]:
    trace = trace_shapes(layer, *inputs, sizes=sizes)
    for call in trace.calls[1:]:
        print(f"{call.name:18}", trace.named(call.outputs[0]))
    print()

# %% [markdown]
# In the second list, the queries and the output have S rows: query and memory are
# exchanged.
#
# **A matrix is not transposed.** If you load weights into code of your own, a
# forgotten `.T` raises no error, because the matrices are square. Only a
# comparison of the outputs finds it. Here are the trained weights in our
# `attention_layer`:

# %% tags=["broken"]
parameters = layer.state_dict()
stored = [
    parameters[f"{name}_projection.weight"]
    for name in ("query", "key", "value", "output")
]
transposed = [matrix.T for matrix in stored]
theirs = layer(x, x, x)
for name, matrices in [
    ("transposed", transposed),
    ("as stored", stored),
]:
    output, _ = attention_layer(x, x, *matrices)
    same = torch.allclose(output, theirs, atol=1e-4)
    print(f"{name:10s} {accuracy(output, target):.2f}", same)

# %% [markdown]
# ## Exercises
#
# Replace the body of each function, and run the check below it.
#
# ### Exercise 1: projections without training
#
# *Medium, about 20 minutes.*
#
# Choose the four matrices of the friends task yourself. Return $W^Q$, $W^K$, $W^V$
# and $W^O$, each of shape (16, 16). Row $i$ of a matrix says what becomes of
# feature $i$, as in the example by hand. Names are the features 0 to 5, friends 6
# to 11, colours 12 to 15. `torch.eye(n)` is a matrix that changes nothing. How
# large must the factor of the query be, for a weight of the friend above 0.99?
#
# <details><summary>Hint</summary>
#
# The friend's name (rows 6 to 11 of $W^Q$) must arrive at the same features as
# the own name (rows 0 to 5 of $W^K$).
#
# </details>


# %% tags=["stub"]
def choose_projections():
    w_q, w_k, w_v = torch.zeros(3, 16, 16)
    w_o = torch.eye(16)
    return w_q, w_k, w_v, w_o


# %% tags=["check"]
output, weights = attention_layer(x, x, *choose_projections())
score = accuracy(output, target)
assert score == 1.0, f"the accuracy is {score:.2f}"
assert weights.amax(dim=-1).min() > 0.99, "the weights are not sharp"


# %% tags=["solution"]
def choose_projections():
    w_q, w_k, w_v = torch.zeros(3, 16, 16)
    w_q[6:12, 0:6] = 10 * torch.eye(6)  # need: the name of the friend
    w_k[0:6, 0:6] = torch.eye(6)  # found by: the own name
    w_v[12:16, 12:16] = torch.eye(4)  # give: the colour
    # The friend's score is 10, the others' 0: exp(10) = 22,026, and
    # the weight is 22,026 / 22,031.
    return w_q, w_k, w_v, torch.eye(16)


# %% [markdown]
# ### Exercise 2: four matrices are two
#
# *Easy, about 10 minutes.*
#
# In the formula, the scores of self-attention are $X W^Q (X W^K)^T$ and the output
# is $A X W^V W^O$. Write them as $X M X^T$ and $A X N$: return the matrices $M$ and
# $N$, of shape (d, d), for four given matrices of shape (d, d). Recall that
# $(AB)^T = B^T A^T$.
#
# <details><summary>Hint</summary>
#
# Multiply out the transposed product. What stands between $X$ and $X^T$?
#
# </details>


# %% tags=["stub"]
def fold(w_q, w_k, w_v, w_o):
    return w_q, w_v


# %% tags=["check"]
four = torch.randn(4, 5, 5, generator=torch.Generator().manual_seed(1))
given = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(2))
m, n = fold(*four)
weights = (given @ m @ given.transpose(-2, -1)).softmax(dim=-1)
expected, _ = attention_layer(given, given, *four)
difference = (weights @ given @ n - expected).abs().max()
assert difference < 1e-4, f"outputs differ by up to {difference:.3f}"


# %% tags=["solution"]
def fold(w_q, w_k, w_v, w_o):
    # X W^Q (X W^K)^T = X W^Q (W^K)^T X^T
    return w_q @ w_k.T, w_v @ w_o


# %% [markdown]
# A layer with one head could therefore work with two matrices. With several heads,
# each head projects to fewer features. Two narrow matrices then have fewer parameters
# than their product ([chapter 6](06_heads.ipynb)).
#
# ### Exercise 3: freeze $W^K$
#
# *Medium, about 15 minutes.*
#
# What is still learned if $W^K$ keeps its random initial values? Predict the
# accuracy in the friends task first: as good as before, as bad as with a shared
# matrix, or as bad as a guess? Then train a layer whose key projection is frozen,
# and return it. `module.requires_grad_(False)` excludes the parameters of a module
# from training. Can you explain the result with exercise 2?
#
# <details><summary>Hint</summary>
#
# The projection of the keys is `layer.key_projection`. Freeze it before the
# training.
#
# </details>


# %% tags=["stub"]
def train_with_frozen_keys():
    layer = SingleHeadAttention(16, scale=1.0, bias=False)
    return train(layer)


# %% tags=["check"]
torch.manual_seed(0)
start = SingleHeadAttention(16, scale=1.0, bias=False).state_dict()
torch.manual_seed(0)
frozen = train_with_frozen_keys()
end = frozen.state_dict()
for name in ("query", "key", "value", "output"):
    weight = f"{name}_projection.weight"
    is_frozen = torch.equal(start[weight], end[weight])
    assert is_frozen == (name == "key"), (
        f"{name}: frozen is {is_frozen}"
    )
print(f"accuracy {accuracy(frozen(x, x, x), target):.2f}")


# %% tags=["solution"]
def train_with_frozen_keys():
    layer = SingleHeadAttention(16, scale=1.0, bias=False)
    layer.key_projection.requires_grad_(False)
    return train(layer)


# The scores depend only on M = W^Q (W^K)^T. A random square matrix W^K
# has an inverse, so every M can be reached by W^Q alone: the layer
# learns as much as before.


# %% [markdown]
# And if $W^Q$ is frozen as well? Then $M$ stays random, and so do all scores. Only
# the values can be learned:

# %%
torch.manual_seed(0)
both = SingleHeadAttention(16, scale=1.0, bias=False)
both.key_projection.requires_grad_(False)
both.query_projection.requires_grad_(False)
print(f"both frozen: {accuracy(train(both)(x, x, x), target):.2f}")

# %% [markdown]
# The accuracy is close to that of the shared matrix. With almost equal weights, the
# layer can return the most frequent colour of the sequence, which is right more
# often than a guess. But it cannot find the friend.
#
# ## What you can do now
#
# Three learned matrices give each vector the roles of query, key and value. You
# can choose them by hand for a simple task, train them, and explain why a
# single matrix for queries and keys is not enough.
#
# ## Where to go
#
# - The library's layer divides the scores by a number before the softmax:
#   [chapter 4](04_scale.ipynb).
# - One head computes one weighted average. Several heads compute several:
#   [chapter 6](06_heads.ipynb).
# - Cross-attention in a translator: [chapter 12](12_encoder_decoder.ipynb).
# - The library's layers: [`multi_head`](../reference/blocks/multi_head.md).
