# %% [markdown]
# # 0 Map and demo
#
# **What is a Transformer made of, and what does a small one learn in three seconds?**
#
# This chapter is the destination, shown at the start. You train a translator
# that fits on one screen, take it apart, and see which chapter explains which
# part. You need not understand the code yet. Run it, change it, and come back
# after chapter 12, when you can write it yourself.
#
# One sentence accompanies us through the book:
#
# > 猫は魚を食べます。 — *The cat eats fish.*
#
# Japanese puts the verb last and marks the roles of the words by particles: は
# marks the topic, を the object. A translator cannot go from left to right word
# by word. To write *eats* as the third word, it must read the fifth.
#
# ## Ten minutes without code
#
# Before any code, the whole in one picture. Read it slowly, from the top. You need
# none of the technical terms yet, and each step has chapters of its own later.
#
# ![Three steps. First, each token of the Japanese sentence becomes a column of coloured numbers. Second, lines lead from the token for eats to all tokens, thick ones to cat and fish, thin ones to the rest. Third, below the words the cat, which are written already, bars for the next word: eats is by far the longest, sees and buys are short.](figures/prologue.svg)
#
# **Step 1: words become numbers.** A computer cannot calculate with 猫, so each token of
# the sentence gets a list of numbers, its *vector*. No one chooses them by hand; the
# network changes them while it learns, and words of a similar kind end with similar
# lists.
#
# **Step 2: words read each other.** The verb 食べ alone does not say who eats. In
# each layer of the network, every token compares its own numbers with those of all
# others, and takes over something from those that fit: much from 猫 and 魚, little
# from the rest. This reading is called *attention*, and all tokens do it at the same
# time. After it, each token computes alone: a small *feed-forward network* makes new
# numbers from what it has read. Reading and computing alternate several times.
#
# **Step 3: the next word is chosen.** A second part of the network reads the result,
# together with the English words that are already there, *the cat*, and gives a
# probability to every word that it knows. The most probable one, *eats*, is
# appended. Then step 3 begins again, with *the cat eats*, until the sentence ends.
#
# A Transformer does nothing else, neither the small one of this chapter nor the
# large ones in the news. And how does it find the right numbers? It begins with random
# ones and translates nonsense. For each sentence of a corpus, one computes how
# improbable the correct next word was, and changes every number a little in the
# direction that would have made it more probable. After some hundred repetitions the small
# network translates. It was never given a rule of grammar.
#
# Two questions to take along. Which Japanese word should be read most, to choose the
# word after *the cat eats*? And what would the network write if it could not
# read the Japanese sentence at all? Guess now. At the end of the chapter you will have
# seen the first and measured the second.
#
# ## What a translator computes
#
# A translator assigns a probability to every target sentence
# $y = (y_1, \dots, y_L)$, given the source sentence $x$. It computes it token by
# token: the probability of each token, given the source and the tokens before
# it. The product of all is the probability of the sentence.
#
# $$p(y \mid x) = \prod_{t=1}^{L} p(y_t \mid y_1, \dots, y_{t-1}, x)$$
#
# A **token** is a word or a part of one. Suppose that a model, having read
# 猫は魚を食べます。, gives these probabilities to the tokens of our translation:
#
# | t | tokens so far | next token | probability |
# | --- | --- | --- | --- |
# | 1 | - | the | 0.9 |
# | 2 | the | cat | 0.8 |
# | 3 | the cat | eats | 0.5 |
# | 4 | the cat eats | fish | 0.9 |
# | 5 | the cat eats fish | . | 1.0 |
# | 6 | the cat eats fish . | (end) | 1.0 |
#
# The end of the sentence is a token, too. The probability of the sentence is
# 0.9 · 0.8 · 0.5 · 0.9 · 1.0 · 1.0 = 0.324. Training raises this number for the
# sentences of a corpus. To translate, the model
# begins with nothing, appends its most probable token, and repeats. This is
# called *greedy decoding*:

# %% [markdown] tags=["formula"]
# $$y_t = \arg\max_{v} \; p(v \mid y_1, \dots, y_{t-1}, x)$$
#
# until $y_t$ is the end of the sentence.

# %% tags=["implementation"]
import torch


@torch.no_grad()
def translate(model, source, *, max_length=10):
    """Append the most probable token until the end."""
    target = [BOS]
    while len(target) < max_length and target[-1] != EOS:
        logits = model(source, torch.tensor([target]))
        target.append(int(logits[0, -1].argmax()))
    return target


# %% [markdown]
# The model returns a number for each token of its vocabulary, a *logit*. The
# token with the largest logit is the most probable one. `BOS` and `EOS` are
# special tokens that mark the beginning and the end of a sequence.
#
# ## The map
#
# ![The parts of a translator from the source at the bottom to the next target token at the top, each with its chapter: tokens 13, embeddings 7, positions 8, self-attention 1–4 and 6, causal 5, feed-forward networks, additions and norms 9, cross-attention 12, training 14 and 15, choosing a token 16, measuring 10, looking inside 18, before 11, since 2017 21.](figures/map.svg)
#
# Attention is the part that moves information between words. The encoder's
# *self-attention* lets the words of the source exchange information. The
# decoder's *causal self-attention* lets each target word use the ones before it.
# *Cross-attention* lets the target read the source. All three are the same
# operation, [the lookup of chapter 1](01_one_query.ipynb).
#
# ## A corpus of 48 sentences
#
# Four beings eat, buy or see four things. Twelve sentences, ours among them, are held
# out: the model never sees them in training.

# %%
from itertools import product

beings = {"猫": "cat", "犬": "dog", "鳥": "bird", "子供": "child"}
things = {"魚": "fish", "肉": "meat", "パン": "bread", "米": "rice"}
verbs = {"食べ": "eats", "買い": "buys", "見": "sees"}
pairs = [
    (
        [being, "は", thing, "を", verb, "ます", "。"],
        ["the", beings[being], verbs[verb], things[thing], "."],
    )
    for being, thing, verb in product(beings, things, verbs)
]
ours = ["猫", "は", "魚", "を", "食べ", "ます", "。"]

torch.manual_seed(0)
shuffled = [pairs[i] for i in torch.randperm(len(pairs)).tolist()]
shuffled.sort(key=lambda pair: pair[0] != ours)  # ours first
held_out, training = shuffled[:12], shuffled[12:]
print(len(training), "pairs for training, for example")
print("".join(training[0][0]), "-", " ".join(training[0][1]))

# %% [markdown]
# A network computes with numbers. Each token gets an id, its index in a list.

# %%
BOS, EOS = 0, 1
source_words = sorted({word for pair in pairs for word in pair[0]})
target_words = sorted({word for pair in pairs for word in pair[1]})
target_words = ["<bos>", "<eos>", *target_words]


def to_ids(pairs):
    """Return the token ids: sources (B, S) and targets (B, L)."""
    sources = [
        [source_words.index(w) for w in pair[0]] for pair in pairs
    ]
    targets = [
        [target_words.index(w) for w in pair[1]] for pair in pairs
    ]
    return torch.tensor(sources), torch.tensor(
        [[BOS, *ids, EOS] for ids in targets]
    )


source, target = to_ids(training)
print(source.shape, target.shape)
print(source[0].tolist(), target[0].tolist())

# %% [markdown]
# ## The model
#
# These are the boxes of the map, as modules of the library. The sizes are tiny:
# one layer, vectors of 32 numbers, two heads.

# %%
from torch import nn

from transformer_blocks import (
    EncoderDecoder,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
)

SIZES = {"num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 64}


class Translator(nn.Module):
    """Embeddings, encoder, decoder, output layer."""

    def __init__(self):
        super().__init__()
        self.source_embedding = TokenEmbedding(len(source_words), 32)
        self.target_embedding = TokenEmbedding(len(target_words), 32)
        self.positions = SinusoidalPositionalEncoding(32)
        self.blocks = EncoderDecoder(
            build_encoder(**SIZES), build_decoder(**SIZES)
        )
        self.output = nn.Linear(32, len(target_words))

    def embed_source(self, source):
        return self.positions(self.source_embedding(source))

    def decode(self, memory, target):
        """Return logits of the next tokens: (B, L, vocabulary)."""
        y = self.positions(self.target_embedding(target))
        return self.output(self.blocks.decoder(y, memory))

    def forward(self, source, target):
        memory = self.blocks.encoder(self.embed_source(source))
        return self.decode(memory, target)


torch.manual_seed(0)
model = Translator()
print(sum(weight.numel() for weight in model.parameters()), "weights")

# %% [markdown]
# ## Training
#
# The loss is the negative logarithm of the probability of each correct next token,
# averaged. Adam, an optimiser that [chapter 15](15_optimiser.ipynb) takes apart, changes
# all weights 200 times to make it smaller. In each update, `backward` computes the
# gradient of the loss with respect to each weight, `step` changes the weights against
# it, and `zero_grad` discards the gradients of the update before.

# %%
import torch.nn.functional as F

optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for update in range(1, 201):
    logits = model(source, target[:, :-1])  # predict each next token
    loss = F.cross_entropy(
        logits.flatten(0, 1), target[:, 1:].flatten()
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update in (1, 50, 100, 200):
        print(f"update {update:3d}: loss {loss.item():.3f}")
model = model.eval()

# %% [markdown]
# At first the loss is about $-\ln \frac{1}{15} = 2.71$, that of a guess among the 15
# target tokens. (It is a little higher, because fresh weights prefer some tokens
# without a reason.) At the end almost all probability is on the correct token.
#
# Now the twelve sentences that the model has never seen:

# %%
correct = 0
for words, translation in held_out:
    ids = torch.tensor([[source_words.index(word) for word in words]])
    found = [target_words[token] for token in translate(model, ids)]
    correct += found[1:-1] == translation
    if words == ours:
        print("".join(words), "-", " ".join(found[1:-1]))
print(f"{correct} of {len(held_out)} are translated correctly")

# %% [markdown]
# The model has learned words and word order, and combines them anew. The demo of
# this project does the same with a larger grammar, 26,000 sentences and subword
# tokens. `make demo` trains it in three minutes.
#
# ## The same, by the library
#
# [`Seq2Seq`](../reference/tools/models.md#seq2seq) is this model as a class of the library, made of
# the same parts. The loop in `translate` computes all earlier tokens again for each new
# one, while `generate` keeps their keys and values in a *cache* ([chapter
# 16](16_choose_words.ipynb)). The tokens are the same.

# %% tags=["proof"]
from transformer_blocks import Seq2Seq, greedy_search

library = Seq2Seq(
    model.source_embedding,
    model.target_embedding,
    model.blocks.encoder,
    model.blocks.decoder,
    positions=model.positions,
    output=model.output,
    padding_id=len(source_words),  # no word has it: no padding
    begin_id=BOS,
).eval()
sources, _ = to_ids(held_out)
found = library.generate(
    sources.tolist(), greedy_search, end_id=EOS, max_length=9
)
for ids, generation in zip(sources, found):
    ours_alone = translate(model, ids[None])
    assert ours_alone[1:-1] == list(generation.tokens)
print(len(found), "translations are equal")

# %% [markdown]
# ## Look inside
#
# Which source words does the model read when it writes each target word?
# [`record_attention`](../reference/tools/inspection.md#record_attention) collects the attention weights of
# all attention modules in a forward pass.
#
# ![The cross-attention weights for our sentence, mean of both heads, one row for each predicted target word. The largest weights: cat has 0.50 at 猫 and 0.44 at は, eats has 0.64 at 食べ and 0.30 at は, fish has 0.49 at 魚 and 0.35 at the full stop.](figures/first_attention.svg)
#
# The rows are the target words that the model is about to write, and the columns are
# the words of the source. In the rows of *cat*, *eats* and *fish*, the word to be
# translated has the largest weight. The data do not say that *eats* corresponds to 食べ.
# The model has found it, because that lowers the loss. But は and the full stop have
# large weights as well. What these mean is a question of [chapter
# 18](18_look_inside.ipynb). *The* and the full stop are the same in all sentences, so
# their rows need no particular word of the source.
#
# <!-- widget: translator -->
#
# On the page of this chapter, the translator runs in your browser.
#
# ## Broken on purpose
#
# If cross-attention carries the meaning of the source into the translation, then a
# model without it cannot know what to translate. What does such a model write for
# different sentences? Predict it. [`ablate`](../reference/tools/inspection.md#ablate) removes
# parts of a trained model inside a `with` block.

# %% tags=["broken"]
from transformer_blocks.inspection import ablate

with ablate(model, modules=["blocks.decoder.layers.0.cross_attention"]):
    for words, _ in held_out[:3]:
        ids = torch.tensor([[source_words.index(w) for w in words]])
        found = [target_words[token] for token in translate(model, ids)]
        print("".join(words), "-", " ".join(found[1:-1]))

# %% [markdown]
# Without cross-attention the model writes the same for every source. The output
# is still fluent: it is the language model inside the translator that speaks.
# A program with such a mistake raises no error. Its losses look plausible, and
# only its translations are wrong. Each chapter of this book breaks something in
# this way, and shows how to find it.
#
# ## Exercises
#
# Replace the body of each function, and run the check below it. A solution is
# folded under each exercise.
#
# ### Exercise 1: find the cross-attention
#
# *Easy, about 5 minutes.*
#
# `model.named_modules()` lists pairs of a name and a module. Return the names of
# all modules that are a `MultiHeadAttention` and belong to the decoder's
# cross-attention.
#
# <details><summary>Hint</summary>
#
# The name of a module contains the names of the modules around it. Print `name`
# in the loop first.
#
# </details>


# %% tags=["stub"]
from transformer_blocks import MultiHeadAttention


def find_cross_attention(model):
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    ]


# %% tags=["check"]
deeper = EncoderDecoder(
    build_encoder(**SIZES), build_decoder(**SIZES | {"num_layers": 3})
)
for each, count in ((model, 1), (deeper, 3)):
    names = find_cross_attention(each)
    assert len(names) == count, f"{len(names)}, not {count}: {names}"
    assert all("decoder" in name for name in names), names
    assert not any("self" in name for name in names), names


# %% tags=["solution"]
def find_cross_attention(model):
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
        and name.endswith("cross_attention")
    ]


# %% [markdown]
# ### Exercise 2: the probability of a sentence
#
# *Medium, about 15 minutes.*
#
# Compute the probability that the model gives to a whole translation, as in the
# table above. `source` has the shape (1, S). `target` is a list of token ids
# which begins with `BOS` and ends with `EOS`. The model's logits for `target[:-1]`
# predict `target[1:]`. A softmax over the vocabulary makes them probabilities:
# `softmax(dim=-1)` takes $e$ to the power of each logit, and divides by the sum of all.
#
# <details><summary>Hint</summary>
#
# `logits[0, i]` predicts the token `target[i + 1]`. Each token contributes one
# factor.
#
# </details>


# %% tags=["stub"]
@torch.no_grad()
def probability(model, source, target):
    logits = model(source, torch.tensor([target[:-1]]))
    return float(logits.max())


# %% tags=["check"]
ids, right = to_ids([(ours, ["the", "cat", "eats", "fish", "."])])
_, swapped = to_ids([(ours, ["the", "fish", "eats", "cat", "."])])
likely = probability(model, ids, right[0].tolist())
assert 0.9 < likely < 1, f"{likely}: the right sentence is likely"
unlikely = probability(model, ids, swapped[0].tolist())
assert 0 < unlikely < 1e-3, f"{unlikely}: the fish does not eat"
for tokens in (right[0], swapped[0]):
    with torch.no_grad():
        logits = model(ids, tokens[None, :-1])[0]
    loss = F.cross_entropy(logits, tokens[1:], reduction="sum")
    ratio = probability(model, ids, tokens.tolist()) / (-loss).exp()
    assert abs(ratio - 1) < 0.001, "all tokens, and no others?"


# %% tags=["solution"]
@torch.no_grad()
def probability(model, source, target):
    logits = model(source, torch.tensor([target[:-1]]))
    probabilities = logits[0].softmax(dim=-1)  # (L, vocabulary)
    product = 1.0
    for row, token in zip(probabilities, target[1:]):
        product *= float(row[token])
    return product


# %% [markdown]
# ### Exercise 3: count the weights
#
# *Easy, about 10 minutes.*
#
# An attention module has four projections. Each is a matrix of $d \times d$
# weights and $d$ biases. A feed-forward network expands $d$ numbers to $f$ and
# projects them back, with biases in both directions. A layer normalisation has
# $2 d$ weights. Return the number of weights of an encoder layer, which has one
# attention module, one feed-forward network and two normalisations.
#
# <details><summary>Hint</summary>
#
# Count a linear layer from $a$ to $b$ numbers as $a b + b$, and list all linear
# layers.
#
# </details>


# %% tags=["stub"]
def count_weights(d, f):
    return 4 * d * d + 2 * d * f


# %% tags=["check"]
for d, f in ((32, 64), (512, 2048)):
    encoder = build_encoder(
        num_layers=1, d_model=d, num_heads=2, d_ff=f
    )
    expected = sum(weight.numel() for weight in encoder.parameters())
    assert count_weights(d, f) == expected, "biases? normalisations?"


# %% tags=["solution"]
def count_weights(d, f):
    attention = 4 * (d * d + d)
    feed_forward = (d * f + f) + (f * d + d)
    return attention + feed_forward + 2 * (2 * d)


# %% [markdown]
# ## What you can do now
#
# You have trained a translator, seen which word it reads when it writes, and
# removed a part to find out what it is for. You can name the boxes of the map,
# and that is all that the next chapters assume.
#
# ## Where to go
#
# - Begin with the one operation that everything else is made of:
#   [chapter 1](01_one_query.ipynb).
# - The whole program again, with padding, a schedule and a test set:
#   `examples/train_minimal.py`.
# - The translator with subwords, checkpoints and beam search: `make demo`.
