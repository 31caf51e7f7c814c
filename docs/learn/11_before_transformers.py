# %% [markdown]
# # 11 Before Transformers
#
# **Which problem was attention invented for, and what did the Transformer remove?**
#
# Attention is older than the Transformer. It was introduced in 2014 for
# translators that read a sentence one word at a time. Most articles on this subject,
# and many courses, begin with such a translator. This chapter builds its parts,
# measures their two weaknesses, and shows which of them attention solves.
#
# ## A network that reads one word at a time
#
# A *recurrent neural network* (RNN) has a vector, its *state*. At each token it
# computes a new state from the old one and the token's embedding:
#
# $$h_t = \tanh(W h_{t-1} + U x_t)$$
#
# The final state is a summary of the sentence. A *sequence-to-sequence* or *seq2seq*
# model reads the source with one network, the *encoder*, and gives this one vector to
# an RNN, the *decoder*, which writes the translation token by token. The encoder of
# [Kalchbrenner and Blunsom (2013)](https://aclanthology.org/D13-1176/) was
# convolutional. [Cho et al. (2014)](https://arxiv.org/abs/1406.1078) used RNNs for
# both, to score phrases for another translator, and
# [Sutskever et al. (2014)](https://arxiv.org/abs/1409.3215) translated whole sentences
# with LSTMs. The LSTM ([Hochreiter and Schmidhuber
# 1997](https://doi.org/10.1162/neco.1997.9.8.1735)) and the GRU (Cho et al.) are RNNs
# with gates, which learn to keep or to overwrite parts of the state.
#
# ## By hand: how far does a word reach?
#
# Take a state of one number with $W = 0.5$, $U = 1$ and the inputs 1, 0, 0, 0.
#
# | t | input | state |
# | --- | --- | --- |
# | 1 | 1 | tanh(1) = 0.76 |
# | 2 | 0 | tanh(0.5 · 0.76) = 0.36 |
# | 3 | 0 | tanh(0.5 · 0.36) = 0.18 |
# | 4 | 0 | tanh(0.5 · 0.18) = 0.09 |
#
# Each step halves what is left of the first input. After ten steps less than
# 0.1 % of it is left. The gradient that flows back in training shrinks by the
# same factors, so the network hardly learns what a distant word contributes. It
# *vanishes*. With a factor larger than 1 it would explode instead.
#
# With attention, the state of the first token is read directly. However long
# the sentence is, there is one step between any two positions.
#
# ![Above, a recurrent network: the first token reaches the last through a chain of states, one step for each token. Below, attention: an arrow leads from each token directly to the last position.](figures/paths.svg)
#
# Measure it. How much does the last output change with an input that lies
# further and further back? We take the norm of the gradient, for fresh weights.

# %%
import torch
from torch import nn

from transformer_blocks import SingleHeadAttention


def reach(function, distances=(0, 1, 5, 10, 20)):
    """Norm of the gradient of the last output by earlier inputs."""
    x = torch.randn(8, 21, 32, requires_grad=True)
    output = function(x)[:, -1]
    (gradient,) = torch.autograd.grad(output.pow(2).sum() / 2, x)
    norms = gradient.norm(dim=-1).mean(dim=0)  # (21,)
    return [f"{norms[20 - distance]:.0e}" for distance in distances]


torch.manual_seed(0)
rnn = nn.RNN(32, 32, batch_first=True)
gru = nn.GRU(32, 32, batch_first=True)
attention = SingleHeadAttention(32)
print("distance      0     1     5    10    20")
for name, function in (
    ("RNN", lambda x: rnn(x)[0]),
    ("GRU", lambda x: gru(x)[0]),
    ("attention", lambda x: attention(x, x, x)),
):
    print(f"{name:9s}", *reach(function))

# %% [markdown]
# The RNN's gradient falls by orders of magnitude. The GRU's gates slow that
# down, but do not stop it. Attention has no such decay: at distance 0 the input
# is also the query, and the other four numbers differ at random.
#
# ## The bottleneck
#
# The second weakness: one vector must hold the whole sentence, thirty words as
# well as three. Attention was introduced to remove this bottleneck
# ([Bahdanau et al. 2014](https://arxiv.org/abs/1409.0473)). The encoder keeps its
# state at *every* token. At each decoding step, the decoder's state is the
# query; the encoder's states are keys and values.
#
# There are two classic forms. Bahdanau's query is the decoder's *previous* state, and
# a small network computes the scores; it follows below. In the simpler form of
# [Luong et al. (2015)](https://arxiv.org/abs/1508.04025), the query is the *current*
# state, and the scores are dot products. We begin with this one.
#
# The task below shows the bottleneck in its purest form: repeat the sequence that was
# read. The sequences are random, so nothing can be guessed.

# %%
import torch.nn.functional as F

SYMBOLS = 12


class Copier(nn.Module):
    """A GRU encoder and decoder, with or without Luong's attention."""

    def __init__(self, with_attention, d=32):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS + 1, d)  # and <bos>
        self.encoder = nn.GRU(d, d, batch_first=True)
        self.decoder = nn.GRU(d, d, batch_first=True)
        self.with_attention = with_attention
        self.output = nn.Linear(2 * d if with_attention else d, SYMBOLS)

    def forward(self, source, target):
        """Return the logits of the next symbols: (B, L, SYMBOLS)."""
        states, last = self.encoder(self.embedding(source))
        y, _ = self.decoder(self.embedding(target), last)  # (B, L, d)
        if self.with_attention:
            weights = (y @ states.transpose(1, 2)).softmax(dim=-1)
            y = torch.cat([y, weights @ states], dim=-1)
        return self.output(y)


def make_copies(count, length):
    """Random sequences, and the decoder's inputs, shifted by one."""
    source = torch.randint(SYMBOLS, (count, length))
    first = torch.full((count, 1), SYMBOLS)
    return source, torch.cat([first, source[:, :-1]], dim=1)


def copying_accuracy(with_attention, length, seed=0):
    """Train for 300 updates; return the share of correct symbols."""
    torch.manual_seed(seed)
    model = Copier(with_attention)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(300):
        source, target = make_copies(64, length)
        loss = F.cross_entropy(
            model(source, target).flatten(0, 1), source.flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, target = make_copies(500, length)
    with torch.no_grad():
        found = model(source, target).argmax(dim=-1)
    return (found == source).float().mean().item()


print(f"fixed vector: {copying_accuracy(False, 12):.2f}")
print(f"attention:    {copying_accuracy(True, 12):.2f}")

# %% [markdown]
# For sequences of twelve symbols, a fixed vector of 32 numbers is too small, or 300
# updates are too few to learn its use. With attention, the same network is right for
# almost every symbol. The next cell repeats this for several lengths, with the seeds 0
# and 1. It was run once, in about two minutes, and its output is recorded.

# %% tags=["recorded"]
print("length   fixed vector   attention")
for length in (4, 8, 16, 24):
    fixed = [copying_accuracy(False, length, s) for s in (0, 1)]
    attended = [copying_accuracy(True, length, s) for s in (0, 1)]
    print(
        f"{length:6d}",
        "  ".join(f"{a:5.2f}" for a in fixed),
        "  ".join(f"{a:5.2f}" for a in attended),
    )

# %% [markdown]
# ![Share of correctly copied symbols against the length of the sequence: the fixed vector falls from 0.97 at length 4 to 0.08, a random guess, at length 24, while attention stays above 0.97.](figures/copying.svg)
#
# At length 24 the fixed vector is no better than a guess among twelve symbols,
# which is right in 1 / 12 = 8 % of the cases. With
# attention it falls to 98 % only.
#
# ## Additive attention
#
# Bahdanau's scores are no dot products. A small network with one hidden layer
# computes them: it adds a projection of the query and one of the key, applies
# tanh, and takes the dot product with a learned vector $v$. (In the formula below,
# $v$ without an index is this vector, and $v_j$ is a value, as before.) The function
# below it receives queries and keys that are projected already.
#
# By hand, with two features, $W = U = 1$ (the identity) and $v = (1, 1)$: the
# query (1, 0) and the keys (1, 0) and (-1, 0) have the scores
# tanh(2) + tanh(0) = 0.96 and tanh(0) + tanh(0) = 0. The weights are 0.72 and
# 0.28.

# %% [markdown] tags=["formula"]
# $$s_{ij} = v^\top \tanh(W q_i + U k_j)$$
#
# $$w_{ij} = \mathrm{softmax}_j(s_{ij})$$
#
# $$o_i = \sum_j w_{ij} \, v_j$$


# %% tags=["implementation"]
def additive_attention(query, key, value, v):
    """Attend; queries and keys are projected."""
    sums = query[:, :, None] + key[:, None]  # B, L, S, d
    scores = sums.tanh() @ v  # (B, L, S)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


# %%
query = torch.tensor([[[1.0, 0.0]]])
key = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
_, weights = additive_attention(query, key, key, torch.ones(2))
print(weights)

# %% tags=["proof"]
from transformer_blocks import AdditiveAttention

torch.manual_seed(0)
theirs = AdditiveAttention(d_k=8)
q, k, v = torch.randn(3, 2, 5, 8).unbind()  # (B, L, d) each
expected, _ = theirs(q[:, None], k[:, None], v[:, None])
output, _ = additive_attention(q, k, v, theirs.vector[0])
assert torch.allclose(output, expected[:, 0], atol=1e-6)
print(output.shape)

# %% [markdown]
# tanh bounds each term, but not the sum of $d$ of them. With a random $v$, the
# scores of additive attention spread with the size, too:

# %%
for d in (8, 128, 2048):
    v = torch.randn(d)
    sums = torch.randn(1000, d) + torch.randn(1000, d)
    print(
        f"d = {d:4d}: standard deviation {(sums.tanh() @ v).std():.1f}"
    )

# %% [markdown]
# The library therefore begins with a smaller $v$, of the standard deviation
# $\sqrt{2 / (d + 1)}$. It is this initial value that keeps the scores small, and not
# the tanh. Why then did the dot product prevail? All dot products of all queries
# and keys are *one* matrix product, while additive attention needs a vector for
# every pair. The paper says it in section 3.2.1: similar in theory, much faster
# in practice.
#
# ## What the Transformer removed
#
# With attention, the path from any source word to any target word is short. The
# recurrence remains: state $h_t$ cannot be computed before $h_{t-1}$, so a GPU
# with thousands of cores works through a sentence one token at a time. The
# Transformer removes it. *Self*-attention connects the words of one sentence,
# and all positions are computed at once. Table 1 of the paper compares, for
# sequences of length $n$ and vectors of $d$ numbers:
#
# | layer | operations | sequential steps | longest path |
# | --- | --- | --- | --- |
# | self-attention | n² · d | 1 | 1 |
# | recurrent | n · d² | n | n |
# | convolution, width k | k · n · d² | 1 | log_k(n) |
#
# (The path of a convolution is $\log_k n$ with dilation, and $n / k$ without.)
# Self-attention gains in the last two columns, and the first shows what that costs: its
# operations are *quadratic* in the length. That column leaves out the projections of
# queries, keys, values and outputs, another $4 n d^2$ multiplications, although these
# are nearly all the work of the layer for sentences of 30 tokens and vectors of 512
# numbers. Exercise 2 counts them, beside those of an LSTM.
#
# ## Does it translate better?
#
# This project's translator can be trained with all of these. Each was trained for 20
# and for 40 minutes of two CPU cores, on 50,000 sentence pairs, with three seeds:
#
# ```
# python examples/translate.py train --corpus small_parallel_enja \
#     --minutes 20 --model rnn-fixed --run runs/rnn-fixed
# ```
#
# and the same with `rnn-additive`, `rnn` and `transformer`. They are compared by BLEU
# ([Papineni et al. 2002](https://aclanthology.org/P02-1040/)), a score from 0 to 100. It
# counts which share of the translation's single words, pairs, triples and quadruples of
# words occurs in the reference, takes the geometric mean of the four shares, and lowers
# it for translations that are too short. The sentences are those of the test set,
# translated by beam search with five beams ([chapter 16](16_choose_words.ipynb)).
#
# ![BLEU of four translators, means of three seeds with lines from the lowest to the highest, after 20 and 40 minutes of training: fixed vector 28.4 and 29.5, additive attention 35.8 and 35.6, dot-product attention 35.2 and 35.5, Transformer 36.1 and 39.4.](figures/translators.svg)
#
# Attention gains 6 to 7 BLEU, and as much or more on the longest quarter of the
# sentences. After 20 minutes, the Transformer is not better than the LSTMs with
# attention: with ten words in a sentence, ten sequential steps are no bottleneck
# on a CPU, and an LSTM processes 1.4 times as many tokens in the same time. After
# 40 minutes it is 3.8 BLEU ahead, while the LSTMs hardly gain by more training.
# [The results](../results.md) have the commands, and the spread between the seeds.
#
# ## Broken on purpose
#
# Many programs take the encoder's *last* state as the summary of the sentence:
# `states[:, -1]`. In a batch, shorter sentences end with padding. Then the last
# state is that of the padding. Predict what a check finds.

# %% tags=["broken"]
import textwrap

from transformer_blocks.inspection import check_soundness

torch.manual_seed(0)
embedding = nn.Embedding(20, 16)
encoder = nn.GRU(16, 16, batch_first=True)


def summary(tokens):
    """The encoder's last state: (B, S) to (B, 16)."""
    states, _ = encoder(embedding(tokens))
    return states[:, -1]


sentences = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]])


def check(function):
    soundness = check_soundness(
        function, sentences, only="padding", padding_id=0
    )
    return soundness["padding"]


for problem in check(summary).problems:
    print(textwrap.fill(problem, 46, subsequent_indent="  "))

# %% [markdown]
# The GRU continues to read the padding, and each padding token changes its state.
# The summary of a sentence depends on the length of *another* sentence in the
# batch. A program that translates single sentences at the end pads nothing there,
# and so the mistake does not show. Repair it in exercise 3.
#
# ## Exercises
#
# ### Exercise 1: rebuild the articles' SimpleAttention
#
# *Medium, about 15 minutes.*
#
# A well-known Japanese article builds a `SimpleAttention` of four dense layers, for
# query, key, value and output, which is this library's
# [`SingleHeadAttention`](../reference/blocks/multi_head.md#singleheadattention). Complete its `forward`: `input` of
# shape (B, L, d) gives the queries, and `memory` of shape (B, S, d) the keys and
# values. The scores are scaled by $1 / \sqrt{d}$, and the result has the shape (B, L,
# d).
#
# <details><summary>Hint</summary>
#
# `k.transpose(1, 2)` makes the keys fit: (B, L, d) times (B, d, S) is (B, L,
# S).
#
# </details>


# %% tags=["stub"]
class SimpleAttention(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.query_projection = nn.Linear(depth, depth)
        self.key_projection = nn.Linear(depth, depth)
        self.value_projection = nn.Linear(depth, depth)
        self.output_projection = nn.Linear(depth, depth)

    def forward(self, input, memory):
        return self.output_projection(input)  # replace


# %% tags=["check"]
torch.manual_seed(0)
library, mine = SingleHeadAttention(16), SimpleAttention(16)
mine.load_state_dict(library.state_dict())
x, memory = torch.randn(2, 3, 16), torch.randn(2, 7, 16)
expected = library(x, memory, memory)
difference = (mine(x, memory) - expected).abs().max()
assert difference < 1e-6, f"differs by {difference:.2g}: the scale?"


# %% tags=["solution"]
class SimpleAttention(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.query_projection = nn.Linear(depth, depth)
        self.key_projection = nn.Linear(depth, depth)
        self.value_projection = nn.Linear(depth, depth)
        self.output_projection = nn.Linear(depth, depth)

    def forward(self, input, memory):
        q = self.query_projection(input)  # (B, L, d)
        k = self.key_projection(memory)  # (B, S, d)
        v = self.value_projection(memory)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        return self.output_projection(scores.softmax(dim=-1) @ v)


# %% [markdown]
# ### Exercise 2: where is attention cheaper?
#
# *Medium, about 15 minutes.*
#
# Count whole layers, with their projections. Return two numbers of multiplications, for
# `n` tokens with vectors of `d` numbers: those of a self-attention layer (four
# projections from $d$ to $d$ numbers, the scores, the weighted sums), and those of an
# LSTM layer. At each token, an LSTM multiplies the token's vector and its state, each by
# a matrix from $d$ to $4 d$ numbers. Up to which length is attention not more expensive?
#
# <details><summary>Hint</summary>
#
# Both are multiples of $n d$. Divide by it before you compare.
#
# </details>


# %% tags=["stub"]
def multiplications(n, d):
    return n**2 * d, n * d**2  # table 1


# %% tags=["check"]
from torch.utils.flop_counter import FlopCounterMode

for n, d in ((5, 8), (40, 16)):
    layer, x = SingleHeadAttention(d, bias=False), torch.randn(1, n, d)
    with FlopCounterMode(display=False) as counter:
        layer(x, x, x)
    lstm = nn.LSTM(d, d, bias=False)  # uses each weight once a token
    size = sum(each.numel() for each in lstm.parameters())
    attention, recurrent = multiplications(n, d)
    # torch counts a multiplication and an addition as two
    assert attention == counter.get_total_flops() / 2, "attention"
    assert recurrent == n * size, "LSTM"
print([multiplications(n, 512) for n in (30, 1024)])


# %% tags=["solution"]
def multiplications(n, d):
    projections, scores, sums = 4 * n * d**2, n**2 * d, n**2 * d
    # 4 n d² + 2 n² d = 8 n d² at n = 2 d.
    return projections + scores + sums, 8 * n * d**2


# %% [markdown]
# ### Exercise 3: the state of the last word
#
# *Easy, about 10 minutes.*
#
# Repair `summary`: return the state at the last token of each sentence that is
# not padding (id 0), of shape (B, 16). Padding is always at the end.
#
# <details><summary>Hint</summary>
#
# The number of real tokens of a sentence, minus 1, is the place of its last
# one.
#
# </details>


# %% tags=["stub"]
def repaired_summary(tokens):
    states, _ = encoder(embedding(tokens))  # (B, S, 16)
    return states[:, -1]


# %% tags=["check"]
assert check(repaired_summary), "padding matters"
alone = summary(sentences[1:, :2])
padded = repaired_summary(torch.tensor([[9, 4, 0]]))
assert torch.allclose(padded, alone, atol=1e-6), "the last *word*"


# %% tags=["solution"]
def repaired_summary(tokens):
    states, _ = encoder(embedding(tokens))  # (B, S, 16)
    lengths = (tokens != 0).sum(dim=1)  # (B,)
    return states[torch.arange(len(tokens)), lengths - 1]


# %% [markdown]
# ## What you can do now
#
# A recurrent translator had to put a whole sentence into one state, and
# attention was invented to remove this bottleneck. You can count what
# recurrence and attention cost, and say which of the two computes all positions
# at once.
#
# ## Where to go
#
# - The Transformer's encoder and decoder, which replace both RNNs:
#   [chapter 12](12_encoder_decoder.ipynb).
# - The recurrent translators as a program: `examples/translation/rnn_attention.py`.
# - Additive attention as a part of any model:
#   [`additive`](../reference/variants/additive.md).
