# %% [markdown]
# # 18 Look inside
#
# **Which parts of a trained model produce its output, and do its attention weights say so?**
#
# Attention weights are numbers between 0 and 1 that sum to one. They have tokens
# on both sides, and they can be drawn as a table. No other part of a neural
# network looks so much like an explanation. This chapter shows what can be read
# from them, what cannot, and how to find out what a part really does: remove it,
# and measure.
#
# ## The translator of chapter 0
#
# We train the same small model as in [chapter 0](00_map.ipynb): one layer, vectors
# of 32 numbers, two heads. It takes two seconds. With the same seed it is the
# same model, number by number. Its code is in `first_translator.py`,
# beside the chapters.

# %%
import torch
import torch.nn.functional as F
from first_translator import (
    Translator,
    held_out,
    ours,
    source_words,
    target_words,
    to_ids,
    training,
)
from torch import nn

torch.manual_seed(0)
model = Translator()
source, target = to_ids(training)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(200):
    logits = model(source, target[:, :-1])
    loss = F.cross_entropy(
        logits.flatten(0, 1), target[:, 1:].flatten()
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model = model.eval()


@torch.no_grad()
def count_correct(model):
    """Translate the held-out sentences greedily; count the right."""
    source, target = to_ids(held_out)
    found = target[:, :1]  # <bos>
    for _ in range(6):
        best = model(source, found)[:, -1].argmax(dim=-1)
        found = torch.cat([found, best[:, None]], dim=1)
    return int((found == target).all(dim=1).sum())


print(count_correct(model), "of 12 held-out sentences are correct")

# %% [markdown]
# ## Record the weights
#
# [`record_attention`](../reference/tools/inspection.md#record_attention) returns a dictionary from the names
# of the attention modules to lists, with one tensor (B, H, L, S) for each call:
# sentences, heads, queries, keys. It changes no output.

# %%
from transformer_blocks import record_attention

source, target = to_ids(held_out[:1])  # our sentence
with record_attention(model) as recorded, torch.no_grad():
    model(source, target[:, :-1])
for name, calls in recorded.items():
    print(name.removeprefix("blocks."), list(calls[0].shape))

CROSS = "blocks.decoder.layers.0.cross_attention"
weights = recorded[CROSS][0][0]  # (H, L, S)
print("\nthe query that predicts 'fish':")
for head in (0, 1):
    row = weights[head, 3].tolist()
    print(f"head {head}:", *(f"{weight:.2f}" for weight in row))

# %% [markdown]
# ![Cross-attention weights of the two heads for our sentence, as two tables. Head 0: the row of cat has 0.98 at 猫 and the row of fish 0.97 at 魚. Head 1: the row of eats has 0.99 at 食べ, the row of cat has 0.87 at は, and the row of fish has 0.70 at the full stop.](figures/both_heads.svg)
#
# Each row is the token that the model is about to predict. Much of it can be read: head
# 0 finds the subject and the object, head 1 the verb. But when it predicts *fish*, head
# 1 puts about 0.7 of its weight on the full stop. Is the full stop a reason for *fish*?
# And *cat* reads は with about 0.87: is it the particle, or the noun before it? The
# table has no answer, but we will come back to it.
#
# The same call records models that are not made of these blocks: those of
# `torch.nn`, which return no weights, of Hugging Face, and of x-transformers. They
# are not changed. Torch reports each of its functions that they call, and those
# that compute attention are recognised:

# %%
layer = nn.TransformerEncoderLayer(16, 4, batch_first=True)
theirs = nn.TransformerEncoder(layer, num_layers=2).eval()
with record_attention(theirs) as recorded_theirs, torch.no_grad():
    theirs(torch.randn(1, 5, 16))
for name, calls in recorded_theirs.items():
    print(name, list(calls[0].shape))

# %% [markdown]
# [`explore`](../reference/tools/explorer.md#explore) runs such a model and shows all its
# weights on one page.
#
# ## A weight is not a contribution
#
# The weight says which share of a value goes into the sum. It does not say how
# large the value is. Take two keys, with values that are already projected by
# $W^O$:
#
# | key | weight | value | product | length |
# | --- | --- | --- | --- | --- |
# | 1 | 0.9 | (0.1, 0) | (0.09, 0) | 0.09 |
# | 2 | 0.1 | (0, 3) | (0, 0.3) | 0.30 |
#
# The product is the *contribution* of the key. The output is the sum of both, (0.09,
# 0.3). The key with a tenth of the weight determines most of
# it. ([Kobayashi et al. 2020](https://arxiv.org/abs/2004.10102) measure this in
# trained models.)
#
# Multi-head attention can be written as a sum of such contributions. Let
# $W_h^O$ be the rows of $W^O$ that belong to head $h$. Then the output at query
# $i$ is the sum over all heads and all keys, and a bias $b$:

# %% [markdown] tags=["formula"]
# $$w_{hij} = \mathrm{softmax}_j \frac{q_{hi} \cdot k_{hj}}{\sqrt{d_k}}$$
#
# $$c_{hij} = w_{hij} \; v_{hj} W_h^O$$
#
# $$o_i = b + \sum_{h=1}^{H} \sum_{j=1}^{S} c_{hij}$$


# %% tags=["implementation"]
def contributions(layer, x, memory):
    """Weights (H, L, S), parts (H, L, S, d)."""

    count = layer.num_heads

    def heads(vectors):  # (L, d) to (H, L, d_k)
        split = vectors.unflatten(-1, (count, -1))
        return split.transpose(0, 1)

    q = heads(layer.query_projection(x))
    k = heads(layer.key_projection(memory))
    v = heads(layer.value_projection(memory))
    scores = q @ k.transpose(1, 2) / layer.d_k**0.5
    weights = scores.softmax(dim=-1)
    w_o = layer.output_projection.weight.T
    values = v @ w_o.unflatten(0, (count, -1))
    parts = weights[..., None] * values[:, None]
    return weights, parts


# %% [markdown]
# `torch.nn.Linear` stores its matrix as (outputs, inputs) and multiplies by the
# transpose. Therefore the paper's $W^O$ is `weight.T`, and its rows are the
# columns of `weight`. Remember this.
#
# The proof takes the encoder's self-attention. Its weights must be those that
# were recorded, and the contributions must add up to the layer's output.

# %% tags=["proof"]
SELF = "blocks.encoder.layers.0.self_attention"
layer = model.get_submodule(SELF)
with torch.no_grad():
    x = model.embed_source(source)  # (1, 7, 32)
    by_hand, parts = contributions(layer, x[0], x[0])
    expected = layer(x, x, x)[0]
    total = parts.sum(dim=(0, 2)) + layer.output_projection.bias
assert torch.allclose(by_hand, recorded[SELF][0][0], atol=1e-6)
assert torch.allclose(total, expected, atol=1e-5)
print("weights", list(by_hand.shape), "parts", list(parts.shape))

# %% [markdown]
# Is the difference real, or is it only possible? The encoder's head 0, for the
# query 猫:

# %%
print("key   weight   length of the contribution")
for key in (3, 5, 6):
    weight, length = by_hand[0, 0, key], parts[0, 0, key].norm()
    print(f"{ours[key]:2s}   {weight:6.2f}   {length:6.2f}")

# %% [markdown]
# ます has a larger weight than the full stop, but a smaller contribution. Within
# one head and one query, the order by weight and the order by contribution are
# different.
#
# ## Intervene
#
# A weight, and a contribution too, describe what went *into* a layer's output.
# Whether the prediction *depends* on it is another question. It is answered by an
# experiment: change one thing, leave all else as it is, and measure the output.
#
# Encode a second sentence, 猫は肉を食べます。 (*The cat eats meat.*), and replace the memory of
# ours at a single position by that of the other sentence: does the model now predict
# *meat*? (This is called *activation patching*: [Vig et al.
# 2020](https://arxiv.org/abs/2004.12265), [Meng et al.
# 2022](https://arxiv.org/abs/2202.05262).) From the table of weights, predict the
# result for each of the seven positions.

# %%
other = ["猫", "は", "肉", "を", "食べ", "ます", "。"]
other_ids = torch.tensor([[source_words.index(w) for w in other]])
fish, meat = target_words.index("fish"), target_words.index("meat")

print("replaced   head 0   head 1   p(fish)   p(meat)")
with torch.no_grad():
    memory, theirs = (
        model.blocks.encoder(model.embed_source(ids))
        for ids in (source, other_ids)
    )
    for place, word in enumerate(ours):
        patched = memory.clone()
        patched[:, place] = theirs[:, place]
        p = model.decode(patched, target[:, :-1])[0, 3].softmax(dim=0)
        first, second = weights[:, 3, place].tolist()
        blanks = " " * (9 - 2 * len(word))
        print(
            f"{word}{blanks} {first:7.2f} {second:8.2f}"
            f" {p[fish]:9.3f} {p[meat]:9.3f}"
        )

# %% [markdown]
# ![Three bars for each source position when the model predicts fish: the weight of head 0, which is 0.97 at 魚; the weight of head 1, which is 0.70 at the full stop; and the probability of meat after the memory at this position was replaced, which is 0.996 at 魚 and 0 everywhere else.](figures/patching.svg)
#
# Only the position of the noun counts. Although head 1 gives about 0.7 of its weight to
# the full stop, the prediction does not depend on what the memory there says
# about fish or meat. A head that has nothing to do for a query must still put its
# weights somewhere, because they sum to one. In large models, too, they often go
# to full stops and special tokens
# ([Clark et al. 2019](https://arxiv.org/abs/1906.04341)).
#
# The converse happens, too. In a deep encoder, the memory at は may contain what
# self-attention has copied there from 猫. A large weight on は then means *the
# cat*. Attention weights are about **positions**, not about words.
#
# ## Ablate
#
# To *ablate* a part is to remove it and to measure what remains.
# [`ablate`](../reference/tools/inspection.md#ablate) replaces the outputs of heads or whole
# modules by zeros inside a `with` block. Our model translates 12 of 12 sentences; how
# many will be left without each head? Predict first, and note six numbers. The
# encoder's head 0, for one, has a weight of 0.96 and of 0.99 in two of its rows (the
# explorer at the end of this chapter shows them).

# %%
from transformer_blocks.inspection import ablate

print("ablated                head 0   head 1   both")
for name in recorded:
    counts = []
    for heads in ([0], [1], [0, 1]):
        with ablate(model, heads={name: heads}):
            counts.append(count_correct(model))
    parts_of_name = name.split(".")
    title = f"{parts_of_name[1]} {parts_of_name[-1]}"
    print(f"{title:23s}{counts[0]:5d} {counts[1]:8d} {counts[2]:6d}")

# %% [markdown]
# The encoder's self-attention can be removed altogether. Its weights are sharp,
# a story could be told about each of them, and the translations do not need it:
# each word of this grammar can be translated without its neighbours. A head
# with a weight of 0.99 on a token is *not* evidence that the model uses it.
#
# The heads of the cross-attention are needed, head 1 more than head 0. Note that
# the numbers do not add up: without head 0 four sentences are lost, without head 1
# nine, without both eleven.
#
# ## A larger translator
#
# The same question for the translators of `examples/translate.py`. Three runs on a
# toy corpus (seeds 0, 1 and 2), and three on real sentences:
#
# ```
# for seed in 0 1 2; do
#     python examples/translate.py train --seed $seed --run runs/seed$seed
# done
# python examples/ablate.py runs/seed0 runs/seed1 runs/seed2
# ```
#
# Nothing removed, the BLEU is 99.9 on the toy corpus and 44.0 on the real one. (These
# are 200 validation sentences, translated greedily. The 39.4 of [chapter
# 11](11_before_transformers.ipynb) are of the same real translators, on the test sentences
# and with five beams.) Predict what remains on the real corpus without one head of the cross-attention,
# without the positional encoding, and without one residual connection. Then read
# the figure.
#
# ![BLEU that remains after an ablation, for the toy corpus and the real corpus, from 99.9 and 44.0 with nothing removed. One head: one or two less. All of the encoder's self-attention: 97.1 and 32.8. All of the decoder's: 15.4 and 9.4. All cross-attention: 0.2 and 0.4. One residual connection: 30.9 and 9.2.](figures/ablations.svg)
#
# Parts of a kind were removed one at a time, and the bar is the mean. A head costs
# one or two BLEU on the real corpus, a residual connection 35. The encoder's
# self-attention is worth 3 BLEU on the toy corpus, whose grammar hardly needs it,
# as in our tiny model, and 11 on real sentences, where words need their context.
# Without the positional encoding much is still translated correctly: 96.3 and 33.2
# BLEU remain. We did not measure why. A decoder can infer positions from its causal mask
# ([chapter 8](08_positions.ipynb)), but the encoder has none.
#
# No model was trained again. So the figure shows what a trained model relies on,
# and not what a model without the part could learn. The page of
# [results](../results.md) has all numbers.
#
# ## Several layers: rollout
#
# In a stack, the queries and keys of layer 2 are outputs of layer 1, in which
# positions have already exchanged information. To relate the top to the *words*,
# one can multiply the layers. *Attention rollout*
# ([Abnar and Zuidema 2020](https://arxiv.org/abs/2005.00928)) takes the mean over
# the heads, and averages it with the identity, which represents the residual
# connection:
#
# $$R_1 = \tfrac12 (I + A_1)$$
#
# $$R_n = \tfrac12 (I + A_n) \, R_{n-1}$$
#
# By hand, for two tokens and two layers with the same weights:
#
# | step | matrix |
# | --- | --- |
# | mean weights $A$ | (0, 1), (1, 0): each token reads the other |
# | with the residual, $\tfrac12 (I + A)$ | (0.5, 0.5), (0.5, 0.5) |
# | two layers, the product | (0.5, 0.5), (0.5, 0.5) |
#
# Without the identity, the product would be $A A = I$: each token would seem to read
# only itself. Rollout assumes that all values and all residual connections are equally
# large, and we saw that they are not: it is a summary, not a proof. You write it in
# exercise 2.
#
# ## A circuit that appears: induction
#
# So far we have asked what a trained model does, but not when it begins to do it. One
# famous circuit can be watched as it arises, in half a minute. If a text contains *Mrs
# Dursley* and, some pages later, *Mrs*, a reader expects *Dursley*. A language model
# can do this with two heads in two layers ([Elhage et al.
# 2021](https://transformer-circuits.pub/2021/framework/index.html); [Olsson et al.
# 2022](https://arxiv.org/abs/2209.11895)):
#
# - In the first layer, a **previous-token head** attends from each token to the one before it.
#   Afterwards the position of *Dursley* contains the information *I come after Mrs*.
# - In the second layer, the query of the new *Mrs* looks for a key that says *I come after Mrs*.
#   It finds *Dursley*, and copies it. This is the **induction head**.
#
# By hand, for a sequence that repeats a block of three symbols:
#
# | position | 0 | 1 | 2 | 3 | 4 |
# | --- | --- | --- | --- | --- | --- |
# | token | A | B | C | A | B |
# | after layer 0 it knows | A | B, after A | C, after B | A, after C | B, after A |
# | the query of layer 1 looks for | after A | after B | after C | after A | after B |
# | found at | - | - | - | 1 | 2 |
# | prediction | - | - | - | B | C |
#
# Neither head is any use alone. To see them arise, we train a language model of two
# layers, with two heads each, on sequences that mean nothing: a block of 8 to 16 random
# symbols, repeated up to a length of 32. In the first block nothing can be predicted;
# from then on everything can, but only from what the sequence itself has shown. (The
# model rotates its queries and keys instead of adding positions; see [chapter
# 21](21_since_2017.ipynb).) Predict the curve of the loss: will it fall evenly?

# %%
from transformer_blocks import (
    LanguageModel,
    MultiHeadAttention,
    RotaryPositionalEncoding,
    TokenEmbedding,
    build_encoder,
)
from transformer_blocks.inspection import head_patterns, logit_lens

LENGTH, SYMBOLS = 32, 32


def repeat_blocks(count, shortest=8, longest=16):
    """Sequences (count, 32) that repeat a random block."""
    order = torch.rand(count, SYMBOLS).argsort(dim=1)  # shuffled
    size = torch.randint(shortest, longest + 1, (count, 1))
    place = torch.arange(LENGTH) % size  # 0 1 2 ... 0 1 2 ...
    return order.gather(1, place)  # the symbol at each place


def new_attention():
    rotate = RotaryPositionalEncoding(32)
    return MultiHeadAttention(64, num_heads=2, transforms=[rotate])


def new_model():
    layers = build_encoder(
        num_layers=2, d_model=64, d_ff=64, attention=new_attention
    )
    return LanguageModel(TokenEmbedding(SYMBOLS, 64), layers)


@torch.no_grad()
def repeated_loss(model, tokens):
    """Mean loss of the second 16 tokens, which repeat the first."""
    logits = model(tokens)[:, 15:-1].flatten(0, 1)
    return F.cross_entropy(logits, tokens[:, 16:].flatten()).item()


@torch.no_grad()
def pattern_scores(model, tokens, pattern):
    """Mean score of each head: (layers, heads)."""
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    with record_attention(model) as recorded:
        model(tokens)
    scores = torch.zeros(len(tokens), len(recorded), 2)
    for layer, (weights,) in enumerate(recorded.values()):
        for row, sequence in enumerate(tokens.tolist()):
            names = [str(token) for token in sequence]
            heads = head_patterns(weights[row], keys=names, mask=future)
            scores[row, layer] = torch.tensor(
                [head.scores[pattern] for head in heads]
            )
    return scores.mean(dim=0)


def train_repeated(seed, updates=500, every=50):
    """Train; return the model, test sequences and a protocol."""
    torch.manual_seed(seed)
    test, small = repeat_blocks(16, shortest=16), new_model()
    optimizer = torch.optim.Adam(small.parameters(), lr=3e-3)
    protocol = []
    for update in range(updates + 1):
        if update > 0:
            loss = small.train().loss(repeat_blocks(64))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if update % every == 0:
            small.eval()  # measured without dropout
            previous = pattern_scores(small, test, "previous token")
            induction = pattern_scores(small, test, "induction")
            loss = repeated_loss(small, test)
            row = loss, previous[0].max(), induction[1].max()
            protocol.append((update, *map(float, row)))
    return small.eval(), test, protocol


# %% [markdown]
# [`head_patterns`](../reference/tools/inspection.md#head_patterns) measures how well the weights of a head fit simple
# rules. The score of *previous token* is the mean weight on the token before, that of *induction* the mean
# weight on the token that followed the same token earlier. The table shows the best head of layer
# 0 for the first and of layer 1 for the second, and the loss of the repeated tokens alone. A guess
# among 32 symbols has the loss $\ln 32 = 3.47$.

# %% tags=["recorded"]
small, test, protocol = train_repeated(0)
print("update    loss   previous token   induction")
for update, loss, previous, induction in protocol:
    print(f"{update:6d}{loss:8.3f}{previous:17.2f}{induction:12.2f}")

# %% [markdown]
# For 250 updates little happens: the loss has fallen from 3.47, that of a guess, to 3.18. Within the next 50, it falls to
# less than half. Both scores rise at the same time. A probable reason is that each head lowers the loss only if the
# other one exists; the ablations below will show whether each needs the other. Is the fall an accident of this seed? And do the heads of a translator appear in the same way?
#
# ![Four diagrams against the number of updates, with three seeds each, measured without dropout. Left, the translator of chapter 0: the loss falls from the first update on, and the weight on the aligned source word rises with it, from 0.2 to between 0.66 and 0.85. Right, the repeated blocks: the loss falls slowly for 275 updates, then drops, as both weights rise together.](figures/circuits.svg)
#
# The circuit arises in all three trainings, as suddenly, between update 275 and 325. The translator is
# different. Its cross-attention is useful by itself as soon as it finds the right word, so it grows from the
# first update, and the loss falls with it. Olsson et al. describe a sudden change in the language models of two and
# more layers that they trained, at the time when induction heads appeared.
#
# Now the two questions of this chapter. Which heads are named by their pattern? And what does
# the model lose without each?

# %% tags=["recorded"]
previous = pattern_scores(small, test, "previous token")
induction = pattern_scores(small, test, "induction")
print("whole model: loss", f"{repeated_loss(small, test):.3f}")
print("head         previous  induction loss without")
for layer in (0, 1):
    name = f"decoder.layers.{layer}.self_attention"
    for heads in ([0], [1], [0, 1]):
        title = " and ".join(map(str, heads))
        with ablate(small, heads={name: heads}):
            without = repeated_loss(small, test)
        scores = [
            each[layer, heads].max() for each in (previous, induction)
        ]
        cells = f"{scores[0]:8.2f} {scores[1]:10.2f} {without:12.3f}"
        print(f"layer {layer}, {title:7s}{cells}")
for layer in (0, 1):
    name = f"decoder.layers.{layer}.feed_forward"
    with ablate(small, modules=[name]):
        without = repeated_loss(small, test)
    print(f"feed-forward {layer}{without:33.3f}")

# %% [markdown]
# In layer 1, one head carries the circuit: head 0 is an induction head with a score of 0.97, and without it the loss rises from
# 0.262 to 3.093. In layer 0, two heads share the work: they attend to the previous token with 0.55 and 0.45 of their
# weight. Without one of them, the loss is 1.706 or 1.083. Without both it is 6.780, *above* that of a guess, 3.47: a model that
# has lost its circuit is certain of wrong answers. So each layer needs the other. The second head of layer 1 has the same pattern,
# but weaker, with 0.51, and the model needs it less: without it, the loss is 0.593. The feed-forward networks are the control.
# Removing any part does some harm; without them the loss is 0.613 or 0.472, far from that of a guess. The pattern has told us where
# to look, and the ablation which of the heads the model needs.
#
# ### What passes through a head?
#
# An ablation shows that a head is needed. It does not show what passes through it. For that, the head's output is
# replaced by the one that it has for *another* input, and everything after it is computed as before: this is *activation patching*.
# [`record_values`](../reference/tools/inspection.md#record_values) records the outputs of these heads for other sequences, and
# [`patched`](../reference/tools/inspection.md#patched) puts them in their place, first those of layer 0, then that of
# the induction head. Predict with which of them the model continues the sequence that it has not read.

# %% tags=["recorded"]
from transformer_blocks.inspection import patched, record_values

FIRST, SECOND = (
    f"decoder.layers.{layer}.self_attention" for layer in (0, 1)
)
torch.manual_seed(1)
other = repeat_blocks(16, shortest=16)
with record_values(small, heads={FIRST: [0, 1], SECOND: [0]}) as values:
    repeated_loss(small, other)


def share_right(target):
    """Share of the repeated symbols that are those of a target."""
    best = small(test)[:, 15:-1].argmax(dim=-1)
    return (best == target[:, 16:]).float().mean().item()


patches = {
    "nothing": {},
    "both heads of layer 0": {FIRST: values[FIRST][0]},
    "head 0 of layer 1": {SECOND: values[SECOND][0]},
}
print("patched                   own   the other's")
for title, patch in patches.items():
    with patched(small, patch):
        own, theirs = share_right(test), share_right(other)
    print(f"{title:22s}{own:7.2f}{theirs:14.2f}")

# %% [markdown]
# Without a patch, 0.95 of the repeated symbols are predicted correctly. If the induction head has the output of the
# other sequence, the model predicts 0.94 of the *other* sequence's symbols, although everything else in it still reads its own: the
# answer passes through this one head. If the heads of layer 0 have theirs, the model predicts neither the one sequence (0.08) nor
# the other (0.03). The keys of layer 1 then say which symbols stand before one another in the other sequence, and the
# induction head does not find its place. So layer 0 tells where to look, and head 0 of layer 1 carries the answer.
#
# ## In which layer is the answer known?
#
# The output layer reads the residual stream after the last layer. It can be asked to
# read it earlier, too: the *logit lens*
# ([nostalgebraist 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru)).
# [`logit_lens`](../reference/tools/inspection.md#logit_lens) records what it would predict after each layer.
# If the table above is right, layer 0 has only collected who stands where, and the
# answer cannot be there before layer 1. Predict the probability of the right symbol after
# layer 0, for the first block and for the second.

# %% tags=["recorded"]
with (
    logit_lens(small.decoder.layers, small.output) as lens,
    torch.no_grad(),
):
    small(test)
print("after     first block   second block")
for layer, (p,) in enumerate(lens):
    right = p[:, :-1].gather(2, test[:, 1:, None])[..., 0]
    first, second = right[:, :15].mean(), right[:, 15:].mean()
    print(f"layer {layer} {first:13.3f} {second:14.3f}")

# %% [markdown]
# (`gather` takes from each row of probabilities the one of the symbol that really comes next.)
#
# After layer 0 the right symbol has a probability of about 0.03, that of a guess among 32. After layer 1
# it has 0.94 in the second block, and in the first block it is a guess, as it must be. The answer arises in
# layer 1, where the induction heads are. In deep language models the lens shows predictions
# that become better from layer to layer; here there is only one step.
#
# ## The explorer
#
# An [`Explorer`](../reference/tools/explorer.md#explorer) saves such maps as a single
# page, which needs no server: lines between the tokens, all layers and heads, their
# means, the rollout of several layers, and the arithmetic behind each weight. This is
# our model with our sentence. Open the laboratory below it, choose *Map* and *Encoder
# self-attention*, and find the weights of 0.96 and 0.99 that the model does not need.
#
# <!-- widget: explorer -->
#
# ![The encoder's self-attention weights for our sentence, as a table for each head: in head 0 the row of ます has 0.96 at を, and the row of the full stop has 0.99 at ます.](figures/encoder_heads.svg)
#
# ## Broken on purpose
#
# An ablation is easily written by hand: put zeros into the weights of $W^O$ that
# belong to the head. Each head has 16 of the 32 dimensions, so it is tempting to
# write `weight[16 * head : 16 * head + 16]`. It runs. Compare the conclusions.

# %% tags=["broken"]
from copy import deepcopy


def without_head(model, name, head):
    """A copy of the model in which a head is zero. Is it?"""
    changed = deepcopy(model)
    weight = changed.get_submodule(name).output_projection.weight
    with torch.no_grad():
        weight[16 * head : 16 * head + 16] = 0.0
    return changed


source_all, target_all = to_ids(held_out)
for head in (0, 1):
    mine = without_head(model, CROSS, head)
    with torch.no_grad(), ablate(model, heads={CROSS: [head]}):
        expected = model(source_all, target_all[:, :-1])
        difference = mine(source_all, target_all[:, :-1]) - expected
        right = count_correct(model)
    print(f"head {head}: by hand {count_correct(mine)}, ablate {right}")
    print(f"  logits differ by up to {difference.abs().max():.1f}")

# %% [markdown]
# By hand, both heads of the cross-attention seem to be superfluous, with 12 of 12 left;
# in truth, 8 and 3 sentences remain. The code has set *rows* of `weight` to zero, half
# of the outputs of *all* heads, because `Linear` stores the transpose of $W^O$. The
# heads are in the columns: `weight[:, 16 * head : 16 * head + 16]`. Nothing raises an
# error, and the wrong conclusion would look like a discovery. An independent second way
# to compute the same, here `ablate`, finds it.
#
# ## Exercises
#
# ### Exercise 1: ablate
#
# *Easy, about 10 minutes.*
#
# Return a set of all pairs `(name, head)` whose ablation, one head at a time,
# leaves `count_correct(model)` at 12. The names are the keys of `recorded`, and
# the heads are 0 and 1.
#
# <details><summary>Hint</summary>
#
# `with ablate(model, heads={name: [head]}):` removes one head while the model
# is measured.
#
# </details>


# %% tags=["stub"]
def superfluous_heads(model):
    return {(name, head) for name in recorded for head in (0, 1)}


# %% tags=["check"]
found = superfluous_heads(model)
for name in recorded:
    for head in (0, 1):
        with ablate(model, heads={name: [head]}):
            unharmed = count_correct(model) == 12
        assert ((name, head) in found) == unharmed, (name, head)
assert count_correct(model) == 12, "the model must be as it was"


# %% tags=["solution"]
def superfluous_heads(model):
    found = set()
    for name in recorded:
        for head in (0, 1):
            with ablate(model, heads={name: [head]}):
                if count_correct(model) == 12:
                    found.add((name, head))
    return found


# %% [markdown]
# ### Exercise 2: rollout
#
# *Medium, about 15 minutes.*
#
# `layers` is a list of attention weights, first layer first, each of shape
# (H, L, L). Return the rollout of the whole stack, of shape (L, L). Take the mean
# over the heads of each layer.
#
# <details><summary>Hint</summary>
#
# The identity stands for the residual connection. It is missing in the stub in
# two places: the sum, and the factor ½.
#
# </details>


# %% tags=["stub"]
def rollout(layers):
    result = torch.eye(layers[0].shape[-1])
    for weights in layers:
        result = weights.mean(dim=0) @ result
    return result


# %% tags=["check"]
swap = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
half = torch.full((2, 2), 0.5)
first = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])  # all read token 0
second = torch.eye(2).expand(3, 2, 2)  # three heads, own token
in_order = torch.tensor([[0.75, 0.25], [0.75, 0.25]])
for layers, rows, expected in [
    ([swap], [0, 1], half),
    ([swap] * 2, [0, 1], half),
    ([first, second], [1], half[:1]),
    ([swap, first], [0], half[:1]),
    ([first, swap], [0, 1], in_order),
]:
    found = rollout(layers)[rows]
    assert torch.allclose(found, expected, atol=1e-6), found


# %% tags=["solution"]
def rollout(layers):
    identity = torch.eye(layers[0].shape[-1])
    result = identity
    for weights in layers:
        result = 0.5 * (identity + weights.mean(dim=0)) @ result
    return result


# %% [markdown]
# ### Exercise 3: the largest contribution
#
# *Easy, about 5 minutes.*
#
# Return, for each head and query, the index of the key with the longest
# contribution. `weights` has the shape (H, L, S), `parts` (H, L, S, d), and the
# result (H, L). The length of a vector is its `norm`.
#
# <details><summary>Hint</summary>
#
# `parts.norm(dim=-1)` has the shape (H, L, S).
#
# </details>


# %% tags=["stub"]
def largest_contribution(weights, parts):
    return weights.argmax(dim=-1)


# %% tags=["check"]
w = torch.tensor([[[0.9, 0.1]]])
c = torch.tensor([[[[0.09, 0.0], [0.0, -0.3]]]])  # the table above
found = largest_contribution(w, c).tolist()
assert found == [[1]], f"{found}: weight times length of the vector"
found = largest_contribution(by_hand, parts)
assert found.shape == (2, 7), f"shape {tuple(found.shape)}"
assert found[0, 5] == 3, "を for the query ます"


# %% tags=["solution"]
def largest_contribution(weights, parts):
    return parts.norm(dim=-1).argmax(dim=-1)  # (H, L, S) -> (H, L)


# %% [markdown]
# ## What you can do now
#
# You can record attention weights, name heads by their pattern, and measure
# what they are for by contributions, patching and ablation. You have watched a
# circuit arise, and you know that a weight is not yet an explanation.
#
# ## Where to go
#
# - The explorer for a translator of your own:
#   `python examples/translate.py explore`, or
#   an [`Explorer`](../reference/tools/explorer.md#explorer) in a notebook.
# - All checks and tools of this chapter: [`inspection`](../reference/tools/inspection.md).
# - The debate: [*Attention is not Explanation*](https://arxiv.org/abs/1902.10186)
#   (Jain and Wallace 2019) and
#   [*Attention is not not Explanation*](https://arxiv.org/abs/1908.04626)
#   (Wiegreffe and Pinter 2019).
# - Attention over 100,000 tokens: [chapter 20](20_without_the_matrix.ipynb).
# - What has changed in the blocks themselves: [chapter 21](21_since_2017.ipynb).
