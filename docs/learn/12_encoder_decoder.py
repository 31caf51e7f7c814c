# %% [markdown]
# # 12 Encoder and decoder
#
# **How does a model that reads one sequence write another, when it writes one
# token after another but is trained on all of them at once?**
#
# You have all parts: attention, masks, heads, positions, and the layer that
# holds them together. This chapter assembles the paper's model from them. One
# connection is new, *cross-attention*. You build the decoder's layer in 14 lines,
# train it to reverse sequences, and see in its attention weights how it does that.
#
# ## Why two stacks
#
# A translator has two sequences, and they differ in one respect. The source is
# *known* as a whole before the work begins. Each of its positions may attend to
# all others, the later ones included: 魚 may attend to 食べ, which follows it. The
# target is *not* known. It comes into being token by token, and a position can
# only use what has been written before it.
#
# So the paper has two stacks of layers (section 3.1):
#
# - The **encoder** maps the source to one vector for each of its tokens, the
#   **memory**. It runs once.
# - The **decoder** maps the target tokens so far to vectors from which the next
#   token is predicted. Each of its layers attends to the memory.
#
# ## Cross-attention by hand
#
# Attention does not require that queries and keys come from the same sequence.
# In **cross-attention** the queries come from the decoder, and the keys and
# values from the memory. (Many articles call it *Source-Target-Attention*, and
# the paper *encoder-decoder attention*.) With $L$ target and $S$ source
# positions, the table of scores has $L$ rows and $S$ columns.
#
# Let the target so far be *the cat*, and take three words of the source. The
# scores are invented, and already divided by $\sqrt{d_k}$:
#
# | scores | 猫 | 魚 | 食べ |
# | --- | --- | --- | --- |
# | the | 2 | 0 | 0 |
# | cat | 0 | 1 | 3 |
#
# The exponentials are 7.389, 1, 1 in the first row, with the sum 9.389, and 1,
# 2.718, 20.086 in the second, with the sum 23.804. Each row is divided by its sum:
#
# | weights | 猫 | 魚 | 食べ |
# | --- | --- | --- | --- |
# | the | 0.787 | 0.107 | 0.107 |
# | cat | 0.042 | 0.114 | 0.844 |
#
# The position of *the* receives mostly the value of 猫, from which it can predict
# *cat*. The position of *cat* receives that of 食べ, and can predict *eats*. The
# rows follow the order of English, and the columns that of Japanese. No step of
# the computation requires that the two orders agree.

# %%
import torch
from torch import nn

from transformer_blocks import FeedForward, MultiHeadAttention

scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 3.0]])
weights = scores.softmax(dim=-1)
values = torch.eye(3)  # the values of 猫, 魚, 食べ, as one-hot vectors
print(weights @ values)  # (L, S) @ (S, d) -> (L, d)

# %% [markdown]
# The output has the shape (L, d): one row for each query. (Here $d$ is 3, as is $S$.)
# The length $S$ of the source does not appear in it, which is why the two sequences may
# have different lengths.
#
# ## Three attentions
#
# The model has three kinds of attention. They are the same module with different
# inputs (section 3.2.3 of the paper):
#
# | attention | queries | keys, values | mask |
# | --- | --- | --- | --- |
# | encoder's self-attention | source | source | padding of the source |
# | decoder's self-attention | target | target | causal |
# | cross-attention | target | memory | padding of the source |
#
# ![Three tables of masked positions for a source of five tokens and two of padding, and a target of four tokens. The encoder's self-attention, seven by seven, masks the two columns of padding. The decoder's self-attention, four by four, masks the triangle above the diagonal. The cross-attention, four by seven, masks the two columns of padding, and no other.](figures/three_attentions.svg)
#
# The causal mask is needed in *one* of the three places. The source has no future
# that must be hidden, neither from itself nor from the target. Padding of the
# target is at the end, so the causal mask hides it from the real tokens, and the
# loss leaves out the rows of the padding.
#
# ## The decoder layer
#
# A decoder layer has three sublayers instead of two. Each has a residual
# connection and, as in the paper, a layer normalisation after the sum (post-norm,
# [chapter 9](09_layer.ipynb)). $M$ is the memory. The arguments of $\mathrm{Att}$
# are the inputs of the queries, keys and values.

# %% [markdown] tags=["formula"]
# $$a = \mathrm{LN}_1\big(y + \mathrm{Att}_{\text{causal}}(y, y, y)\big)$$
#
# $$c = \mathrm{LN}_2\big(a + \mathrm{Att}(a, M, M)\big)$$
#
# $$z = \mathrm{LN}_3\big(c + \mathrm{FFN}(c)\big)$$


# %% tags=["implementation"]
class MyDecoderLayer(nn.Module):
    """Self-attention, cross-attention, feed-forward."""

    def __init__(self, d, h, d_ff):
        super().__init__()
        self.self_attention = MultiHeadAttention(d, h)
        self.cross_attention = MultiHeadAttention(d, h)
        self.feed_forward = FeedForward(d, d_ff)
        norms = [nn.LayerNorm(d) for _ in range(3)]
        self.norms = nn.ModuleList(norms)

    def forward(self, y, memory, *, causal=True):
        x = self.self_attention(y, y, y, causal=causal)
        a = self.norms[0](y + x)
        x = self.cross_attention(a, memory, memory)
        c = self.norms[1](a + x)
        return self.norms[2](c + self.feed_forward(c))


# %% [markdown]
# Dropout is left out, and so is the mask of the source, because the sequences of
# this chapter have no padding.
#
# ## Training all positions at once
#
# The task of this chapter is to write the source in reverse order, so that the source
# *abc* has the target *cba*. The decoder begins with the token `<bos>`, and there are
# two ways to run it.
#
# **Autoregressive decoding.** The model's own output is appended to its input.
#
# | pass | decoder's input | predicted |
# | --- | --- | --- |
# | 1 | `<bos>` | c |
# | 2 | `<bos>` c | b |
# | 3 | `<bos>` c b | a |
#
# Three symbols need three passes, one after the other. The second cannot begin
# before the first has ended.
#
# **Teacher forcing.** In training the right answer is known. We give it to the
# decoder as its input, shifted by one, whatever the model would have predicted.
#
# | position | input | attends to | target |
# | --- | --- | --- | --- |
# | 1 | `<bos>` | `<bos>` | c |
# | 2 | c | `<bos>` c | b |
# | 3 | b | `<bos>` c b | a |
#
# Compare the two tables. Because of the causal mask, each position has exactly
# the information of the pass with its number. So *one* pass over the whole target
# computes what decoding computes in three, and each position gives a term of the
# loss. This is the reason for the causal mask. It makes the training on all
# positions at once equal to the writing of one token after another.
#
# ![Above, teacher forcing: the inputs beginning of sequence, c and b are all given, and one pass predicts c, b and a. Below, decoding in three passes: each predicted symbol is copied to the next position of the input.](figures/teacher_forcing.svg)
#
# ## The reverse task
#
# Sources are six random symbols out of ten. Nothing in the target can be guessed,
# except from the source. Each target has six symbols, so no token is needed that ends
# it. The model has one layer in each stack and one head.

# %%
import torch.nn.functional as F

from transformer_blocks import (
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
)

SYMBOLS, LENGTH = "abcdefghij", 6
BOS = len(SYMBOLS)


def make_batch(count):
    """Random sources and their reversals, both (count, LENGTH)."""
    source = torch.randint(len(SYMBOLS), (count, LENGTH))
    return source, source.flip(1)


def shift(target):
    """The decoder's input: BOS, then all but the last token."""
    return torch.cat([torch.full_like(target[:, :1], BOS), target], 1)[
        :, :-1
    ]


class Reverser(nn.Module):
    """Embeddings, encoder, our decoder layer, output layer."""

    def __init__(self, d=32, causal=True):
        super().__init__()
        self.embedding = TokenEmbedding(len(SYMBOLS) + 1, d)
        self.positions = SinusoidalPositionalEncoding(d)
        self.encoder = build_encoder(
            num_layers=1, d_model=d, num_heads=1, d_ff=64, dropout=0.0
        )
        self.decoder = MyDecoderLayer(d, 1, 64)
        self.output = nn.Linear(d, len(SYMBOLS))
        self.causal = causal

    def embed(self, tokens):
        return self.positions(self.embedding(tokens))

    def forward(self, source, target_in):
        """Logits of the next symbols, (B, L, 10)."""
        memory = self.encoder(self.embed(source))
        y = self.embed(target_in)
        return self.output(self.decoder(y, memory, causal=self.causal))


@torch.no_grad()
def decode(model, source):
    """Append the most probable symbol, LENGTH times."""
    tokens = torch.full((len(source), 1), BOS)
    for _ in range(LENGTH):
        logits = model(source, tokens)[:, -1]
        tokens = torch.cat([tokens, logits.argmax(-1)[:, None]], dim=1)
    return tokens[:, 1:]


source, target = make_batch(1)
for name, row in (
    ("source", source),
    ("target", target),
    ("input ", shift(target)),
):
    print(name, *[(*SYMBOLS, "<bos>")[i] for i in row[0]])

# %% [markdown]
# We measure two shares: that of the *symbols* which are right after the correct prefix,
# as in training, and that of the *sequences* which are right as a whole when the model
# decodes them. If 90 % of the symbols are right, and mistakes are independent, which
# share of the sequences will be? All six symbols must be right, so it is 0.9⁶ = 0.53.
# Here is the training.


# %%
@torch.no_grad()
def measure(model, pairs=make_batch):
    """Share of symbols, teacher-forced, and of whole sequences."""
    source, target = pairs(500)
    forced = model(source, shift(target)).argmax(-1) == target
    whole = (decode(model, source) == target).all(dim=1)
    return forced.float().mean().item(), whole.float().mean().item()


def train(model, report=(25, 50, 100, 200, 400), pairs=make_batch):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    print("update   loss  symbols  sequences")
    for update in range(1, report[-1] + 1):
        source, target = pairs(64)
        logits = model(source, shift(target))  # all positions at once
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update in report:
            symbols, whole = measure(model, pairs)
            print(
                f"{update:6d}  {loss:.3f}    {symbols:.3f}"
                f"      {whole:.3f}"
            )
    return model


torch.manual_seed(0)
model = train(Reverser())

# %% [markdown]
# At the beginning the loss is near $\ln 10 = 2.30$, that of a guess among ten symbols.
# After 50 updates about 83 % of the symbols are right, but only about 28 % of the
# sequences. Our estimate is close, 0.83⁶ = 0.33. A model can thus look good in
# training and write badly, because one wrong token spoils a sequence. After 400
# updates, more than 99 % of the sequences are right.
#
# ## What the cross-attention has learned
#
# To write its first symbol, the decoder needs the last of the source; to write its
# last, the first. Predict the table of cross-attention weights before you see it.
#
# ![Cross-attention weights of the trained model for the source a to f, one row for each symbol to be written, before training and after it. Before, the weights show no order. After, the large weights form the diagonal from the upper right to the lower left: the first row reads the last symbol of the source, and the last row reads the first.](figures/anti_diagonal.svg)
#
# The large weights form an *anti-diagonal*. Each row reads one symbol, and the
# content of the symbols plays almost no role: the query is made of the target's
# position, the key of the source's. Over 500 sequences:

# %%
from transformer_blocks import record_attention

source, target = make_batch(500)
with record_attention(model) as recorded, torch.no_grad():
    model(source, shift(target))
weights = recorded["decoder.cross_attention"][0][:, 0]  # (B, L, S)
print(tuple(weights.shape))
print(f"mean weight there: {weights.flip(2).mean(0).diag().mean():.2f}")
largest = weights.argmax(-1) == torch.arange(LENGTH).flip(0)
print(f"largest weight there: {largest.float().mean():.3f}")

# %% [markdown]
# Almost every row has its largest weight on the mirrored position, on the average
# about 0.9. The rest of the weight is spread over the neighbours.
#
# No rule told the model which position to read. It could learn this only because
# the positions are part of the embeddings ([chapter 8](08_positions.ipynb)). Without
# positions, a permuted source has the same memory vectors in another order, and
# cross-attention computes the same output from them.
#
# ## The same, by the library
#
# The library's [`DecoderLayer`](../reference/blocks/decoder.md#decoderlayer) and PyTorch's own
# `nn.TransformerDecoderLayer` compute the same. We copy the trained weights into
# the first, and [`to_torch`](../reference/tools/interop.md#to_torch) converts it to the
# second.

# %% tags=["proof"]
from transformer_blocks import DecoderLayer, PostNorm
from transformer_blocks.interop import to_torch

mine = model.decoder
library = DecoderLayer(
    MultiHeadAttention(32, 1),
    MultiHeadAttention(32, 1),
    FeedForward(32, 64),
    residual=lambda: PostNorm(32, dropout=0.0),
)
parts = ["self_attention", "cross_attention", "feed_forward"]
for part, norm in zip(parts, mine.norms):
    weights_of_part = getattr(mine, part).state_dict()
    getattr(library, part).load_state_dict(weights_of_part)
    residual = getattr(library, f"{part}_residual")
    residual.norm.load_state_dict(norm.state_dict())
in_torch = to_torch(library)

y, memory = torch.randn(2, 5, 32), torch.randn(2, 7, 32)
expected = mine(y, memory)
assert torch.allclose(library(y, memory), expected, atol=1e-5)
later = torch.ones(5, 5, dtype=torch.bool).triu(1)
theirs = in_torch(y, memory, tgt_mask=later, tgt_is_causal=True)
assert torch.allclose(theirs, expected, atol=1e-5)
print(tuple(expected.shape), "with a memory of", memory.shape[1])

# %% [markdown]
# ## Teacher forcing equals decoding
#
# The two tables above claim that one pass with teacher forcing computes the same
# as decoding. So it must be an equality of numbers. We decode step by step and
# keep the logits of each step. Then we give the finished sequence to the model
# in one pass.

# %% tags=["proof"]
source, _ = make_batch(100)
tokens = torch.full((100, 1), BOS)
steps = []
with torch.no_grad():
    for _ in range(LENGTH):
        steps.append(model(source, tokens)[:, -1])  # (B, 10)
        tokens = torch.cat([tokens, steps[-1].argmax(-1)[:, None]], 1)
    at_once = model(source, tokens[:, :-1])  # (B, L, 10)
assert torch.allclose(at_once, torch.stack(steps, 1), atol=1e-4)
print(f"{(at_once - torch.stack(steps, 1)).abs().max():.0e}")

# %% [markdown]
# The largest difference is one of rounding. The pass at once is possible only
# because the tokens are known: it is a way to *train* and to score a sequence,
# and not to write one.
#
# One difference remains, and it is not in the computation. In training the prefix
# is always correct, and in decoding it holds the model's own mistakes, which it
# never saw in training. This is called *exposure bias*. How much does it matter
# here? We replace the first symbol of the prefix by a wrong one.

# %%
source, target = make_batch(500)
target_in = shift(target)
target_in[:, 1] = (target_in[:, 1] + 1) % len(SYMBOLS)
with torch.no_grad():
    found = model(source, target_in).argmax(-1)
right = (found == target).float().mean(dim=0)
print("position", *range(1, 7), sep="     ")
print("right    ", *[f"{share:.2f} " for share in right])

# %% [markdown]
# Nothing happens. This model finds its source position by counting, not by reading
# the prefix, and so one wrong symbol does not mislead it. A translator is more
# sensitive: after a wrong word, the sentence continues differently. You will meet
# such a *garden path* in [chapter 16](16_choose_words.ipynb).
#
# ## Without cross-attention
#
# All that the decoder knows of the source comes through the cross-attention.
# [`ablate`](../reference/tools/inspection.md#ablate) replaces its output by zeros in
# the trained model. A second model is trained without it from the beginning.

# %%
from transformer_blocks.inspection import ablate

CROSS = "decoder.cross_attention"
with ablate(model, modules=[CROSS]):
    symbols, whole = measure(model)
print(f"ablated after training: {symbols:.3f} {whole:.3f}\n")

torch.manual_seed(0)
blind = Reverser()
with ablate(blind, modules=[CROSS]):
    train(blind, report=(50, 100))

# %% [markdown]
# Both models know as much as a guess: 10 % of the symbols, and one sequence in a
# million. The loss of the second stays at $\ln 10 = 2.303$. Compare this with
# chapter 0, where the model without cross-attention wrote fluent sentences. There
# the target had a grammar, which can be learned from the target alone. Random
# symbols have none.
#
# ## One stack is often enough
#
# Not every task has a source and a target.
#
# | model | stacks | masks | use | example |
# | --- | --- | --- | --- | --- |
# | encoder-only | encoder | padding | classify, search | BERT |
# | decoder-only | decoder without cross-attention | causal | continue a text | GPT |
# | encoder-decoder | both | both | translate, summarise | the paper, T5 |
#
# An **encoder-only** model needs no causal mask, since it predicts no next token:
# the texts are complete. `examples/classify.py` classifies reviews in this way,
# from the mean of the encoder's output.
#
# A **decoder-only** model has no memory. Its layer is an *encoder* layer with a
# causal mask: `build_encoder` and `causal=True`. It translates, too, if source
# and target are one sequence, *source, separator, target*. Its self-attention
# then does the work of the cross-attention. Today's language models are built
# like this ([chapter 21](21_since_2017.ipynb)).
#
# ## Broken on purpose
#
# The causal mask is forgotten in the decoder. All shapes fit. Each position can
# now attend to the next token of its input, which is the answer. Predict the two
# shares: symbols with teacher forcing, and decoded sequences.

# %% tags=["broken"]
import textwrap

from transformer_blocks.inspection import check_soundness

torch.manual_seed(0)
leaky = train(Reverser(causal=False), report=(50, 100, 200))
source = torch.tensor([[0, 1, 2, 3, 4, 5]])  # a b c d e f
for name, each in (("correct", model), ("leaky", leaky)):
    soundness = check_soundness(
        lambda tokens, each=each: each(source, tokens),
        shift(source.flip(1)),
        only="causality",
    )
    report = soundness["causality"]
    print(f"{name}: {len(report.problems)} problems")
print(textwrap.fill(report.problems[0], 46))

# %% [markdown]
# [`check_soundness`](../reference/tools/inspection.md#check_soundness) changes one input at a time. It
# finds that each of the six positions changes with all later ones, which makes
# 5 + 4 + 3 + 2 + 1 = 15 problems.
#
# The training shows no mistake at all: its loss is as low as that of the correct
# model, and every symbol is right. Only decoding suffers, since the answer is then
# not in the input yet. After 100 updates the correct model decoded almost all
# sequences, this one only about 84 %. That it decodes any is an accident of the task. Its
# last position has no next token to copy, so it has to learn the cross-attention,
# and the other positions profit.
#
# Take the accident away. If the targets have *nothing to do* with the sources, then
# nothing can be learned, and no honest model has a loss below 2.303.


# %% tags=["broken"]
def unrelated(count):
    """Two independent random sequences."""
    return make_batch(count)[0], make_batch(count)[0]


for causal in (True, False):
    torch.manual_seed(0)
    print("with a causal mask" if causal else "without")
    train(Reverser(causal=causal), report=(100, 200), pairs=unrelated)

# %% [markdown]
# The model without a causal mask learns the unlearnable: about 85 % of the symbols
# are right. It copies five of the six positions, and guesses the last. Its loss
# approaches $\ln 10 / 6 = 0.38$. Decoding yields not one correct sequence. A loss that
# is too good is a typical symptom of a leak. Training on shuffled pairs
# shows it in any framework, and `check_soundness` shows it without any training.
#
# ## Exercises
#
# Replace the body of each function, and run the check below it.
#
# ### Exercise 1: cut the cross-attention
#
# *Easy, about 10 minutes.*
#
# The library's decoder takes a `memory_mask` of the shape (B, 1, 1, S), in which
# True hides. If *all* keys of a query are masked, the output of attention is zero
# before its output projection. Return a mask which cuts the whole memory off, for
# a memory of shape (B, S, d).
#
# <details><summary>Hint</summary>
#
# `torch.zeros` hides nothing. Which value hides everything?
#
# </details>


# %% tags=["stub"]
def cutting_mask(memory):
    b, s, _ = memory.shape
    return torch.zeros(b, 1, 1, s, dtype=torch.bool)


# %% tags=["check"]
one, other = torch.randn(2, 3, 7, 32)  # two memories
mask = cutting_mask(one)
assert mask.shape == (3, 1, 1, 7), f"shape {tuple(mask.shape)}"
assert mask.dtype == torch.bool, f"dtype {mask.dtype}"
y = torch.randn(3, 5, 32)
cut = library(y, one, memory_mask=mask)
same = torch.equal(cut, library(y, other, memory_mask=mask))
assert same, "the output still depends on the memory"
with ablate(library, heads={"cross_attention": [0]}):
    without = library(y, one)
assert torch.allclose(cut, without, atol=1e-6), "more was cut off"


# %% tags=["solution"]
def cutting_mask(memory):
    b, s, _ = memory.shape
    return torch.ones(b, 1, 1, s, dtype=torch.bool)


# %% [markdown]
# ### Exercise 2: encode once
#
# *Medium, about 15 minutes.*
#
# `decode` above calls the whole model at each step, and computes the same memory
# six times. Call the encoder once and the decoder six times. The parts of the
# model are `model.embed`, `model.encoder`, `model.decoder(y, memory)` and
# `model.output`. `source` has the shape (B, 6); return the symbols, (B, 6).
#
# <details><summary>Hint</summary>
#
# In the loop, only the decoder and the output layer are needed. Take the logits
# of the last position.
#
# </details>


# %% tags=["stub"]
@torch.no_grad()
def decode_faster(model, source):
    return decode(model, source)


# %% tags=["check"]
calls = []
hook = model.encoder.register_forward_hook(
    lambda *arguments: calls.append("encoder")
)
source, target = make_batch(50)
found = decode_faster(model, source)
hook.remove()
assert calls == ["encoder"], f"the encoder ran {len(calls)} times"
assert torch.equal(found, decode(model, source)), "other tokens"


# %% tags=["solution"]
@torch.no_grad()
def decode_faster(model, source):
    memory = model.encoder(model.embed(source))
    tokens = torch.full((len(source), 1), BOS)
    for _ in range(LENGTH):
        hidden = model.decoder(model.embed(tokens), memory)
        best = model.output(hidden[:, -1]).argmax(-1)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
    return tokens[:, 1:]


# %% [markdown]
# ### Exercise 3: score a given target
#
# *Medium, about 15 minutes.*
#
# Teacher forcing also answers how probable a *given* target is. Return, for each
# sequence, the sum of the log-probabilities of its symbols. `source` and `target`
# have the shape (B, 6), and the result (B,). One call of the model is enough.
#
# <details><summary>Hint</summary>
#
# A `log_softmax` makes log-probabilities of the logits, and `gather` takes
# those of the target.
#
# </details>


# %% tags=["stub"]
@torch.no_grad()
def log_probability(model, source, target):
    logits = model(source, shift(target))  # (B, L, 10)
    return logits.sum(dim=(1, 2))  # replace


# %% tags=["check"]
source, target = make_batch(20)
right = log_probability(model, source, target)
wrong = log_probability(model, source, source.roll(1, dims=1))
assert right.shape == (20,), f"one number a row: {right.shape}"
assert bool((right <= 0).all()), "the logarithm of at most 1"
assert bool((right > wrong).all()), "a wrong target is likelier"
one_by_one = torch.zeros(20)
with torch.no_grad():
    for t in range(LENGTH):
        step = model(source, shift(target)[:, : t + 1])[:, -1]
        one_by_one += step.log_softmax(-1)[range(20), target[:, t]]
assert torch.allclose(right, one_by_one, atol=1e-4), "shifted once?"


# %% tags=["solution"]
@torch.no_grad()
def log_probability(model, source, target):
    logits = model(source, shift(target))  # (B, L, 10)
    each = logits.log_softmax(-1).gather(2, target[..., None])
    return each.squeeze(2).sum(dim=1)


# %% [markdown]
# ## What you can do now
#
# The encoder turns the source into a memory, and the decoder reads it by
# cross-attention while it generates the target. You can train both by teacher
# forcing, decode without encoding twice, and score a given target.
#
# ## Where to go
#
# - Real sentences instead of symbols: [chapter 13](13_text_to_batches.ipynb) makes
#   padded batches of them, and [chapter 14](14_train.ipynb) trains on these.
# - Decoding without computing the prefix again at each step, and other ways to
#   choose the next token: [chapter 16](16_choose_words.ipynb).
# - The paper's stacks: [`EncoderDecoder`](../reference/blocks/encoder_decoder.md#encoderdecoder),
#   [`build_decoder`](../reference/blocks/builders.md#build_decoder).
