# %% [markdown]
# # 17 A GPT of your own
#
# **What does a model that you train in three minutes write?**
#
# Every part of a GPT has been explained: tokens, embeddings and positions, causal attention, a layer that trains, the
# loss, sampling with a cache. What is missing is the whole, on a text of one's own. Nothing new
# has to be built. But one has to know whether it is any good, and "the loss is 3.1" does not say that.
#
# ## By hand: bits per byte
#
# The loss of [chapter 14](14_train.ipynb) is a mean *per token*. It cannot be compared between two tokenizers: a
# tokenizer with long tokens has few and difficult ones, another has many and easy ones. The same text has the
# same number of *bytes* for both. So one adds up the losses of all tokens, and divides by the bytes.
#
# For the text *the cat*, with a logarithm to the base 2, so that the unit is a bit:
#
# | tokens | probabilities | bits | bits per token | bits per byte |
# | --- | --- | --- | --- | --- |
# | the, ␣cat | 1/8, 1/32 | 3 + 5 = 8 | 4 | 8 / 7 = 1.14 |
# | t, h, e, ␣, c, a, t | 1/4, 1/2, 1/2, 1/2, 1/4, 1/2, 1/2 | 2 + 1 + 1 + 1 + 2 + 1 + 1 = 9 | 1.29 | 9 / 7 = 1.29 |
#
# Per token, the second model seems three times as good. Per byte it is worse, and that is right: the first gives the whole
# text the probability $2^{-8}$, the second $2^{-9}$.
#
# A bit is also what a file is measured in: with a model of 2 bits per byte, a program can store a text in a quarter of its size, if the reader
# has the model, too.
#
# ![Bits per byte of a text that no model has seen, as bars: 8 if nothing is known, 3.95, 2.64 and 2.34 for n-grams of 2, 4 and 6 bytes, 3.07 for the GPT of bytes, 2.42 for the GPT of subwords, and 2.23 after three minutes.](figures/bits_per_byte.svg)

# %%
import math
from textwrap import fill

# %% [markdown] tags=["formula"]
# $$b = -\frac{1}{n} \sum_{t > 1} \log_2 p(x_t \mid x_{<t})$$
#
# $b$ in bits per byte, for a text of $n$ bytes.


# %% tags=["implementation"]
def bits_per_byte(logits, labels, size):
    """Of labels that are a text of so many bytes."""
    log_p = logits.log_softmax(dim=-1)
    of_labels = log_p.gather(-1, labels[..., None])
    return -of_labels.sum().item() / math.log(2) / size


# %% [markdown]
# The proof takes a small model whose tokens are bytes. Each token is then one byte, and the library's loss, the mean per
# token in units of the natural logarithm, must be $\ln 2$ times ours.

# %% tags=["proof"]
import torch

from transformer_blocks import build_language_model

torch.manual_seed(0)
small = build_language_model(
    256, num_layers=1, d_model=32, num_heads=2, d_ff=64
).eval()
ids = torch.tensor([list("猫は魚を食べます。the cat".encode())])
labels = ids[:, 1:]
with torch.no_grad():
    found = bits_per_byte(small(ids)[:, :-1], labels, labels.numel())
    expected = small.loss(ids).item() / math.log(2)
assert abs(found - expected) < 1e-4
print(f"{found:.2f} bits per byte, untrained")

# %% [markdown]
# A model that knows nothing has 8 bits per byte: it gives each of the 256 bytes the same probability. (Ours, untrained, has a little more.)
#
# ## The text
#
# The text should be one that you have, and know. Every installation of Python has one: the docstrings of the modules in its own library. (Another version
# of Python has other files, and slightly other numbers.) Every tenth file is not shown to any model, and is measured.

# %%
import ast
import sysconfig
from pathlib import Path


def docstrings(file):
    """All docstrings of a Python file, as one text."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = ast.walk(ast.parse(file.read_bytes()))
    texts = [
        ast.get_docstring(n) for n in nodes if isinstance(n, documented)
    ]
    return "\n\n".join(filter(None, texts)) + "\n\n"


files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
train = "".join(docstrings(f) for i, f in enumerate(files) if i % 10)
test = "".join(docstrings(f) for f in files[::10])
size = len(test.encode())
print(f"{len(train) / 1e6:.1f} MB to learn from,", end="")
print(f" {size / 1e6:.1f} MB to measure")

# %% [markdown]
# This is little. GPT-2 has read 40 GB, fifty thousand times as much. Our model will not know what it
# writes about. It can learn how docstrings are spelled, how their lists and examples look, and
# how their sentences go.
#
# ## What counting reaches
#
# What would a model without a network reach? A model of 6-grams estimates each byte from the five before it, mixed with shorter
# histories, by counting. That model is in `examples/text/ngrams.py`.

# %% tags=["recorded"]
import sys

sys.path.insert(0, "../../examples")
from text.ngrams import NgramModel

for order in (2, 4, 6):
    grams = NgramModel(
        list(train.encode()), order=order, vocabulary=256
    )
    bits = grams.loss(list(test.encode())) / math.log(2)
    print(f"{order}-grams  {bits / size:.2f} bits per byte")

# %% [markdown]
# ## Bytes or subwords
#
# A byte is the plainest token: 256 of them, no tokenizer, no unknown character. But a text has many, and a
# window of 128 tokens is then four lines. GPT-2's tokenizer merges bytes as [chapter 13](13_text_to_batches.ipynb)
# merged characters. The library `tokenizers` learns it in a few seconds.

# %% tags=["recorded"]
from tokenizers import ByteLevelBPETokenizer

bpe = ByteLevelBPETokenizer()
bpe.train_from_iterator(
    [train], vocab_size=1024, min_frequency=2, show_progress=False
)


class Bytes:
    """The same two methods for bytes."""

    def encode(self, text):
        return list(text.encode())

    def decode(self, ids):
        return bytes(ids).decode(errors="replace")


class Subwords(Bytes):
    def encode(self, text):
        return bpe.encode(text).ids

    def decode(self, ids):
        return bpe.decode(ids)


tokenizers = {"bytes": (Bytes(), 256), "subwords": (Subwords(), 1024)}
sentence = "Return a list of files in the folder."
ids = tokenizers["subwords"][0].encode(sentence)
print(*[bpe.decode([i]) for i in ids], sep="|")
for name, (tokenizer, _) in tokenizers.items():
    ids = tokenizer.encode(test)
    assert tokenizer.decode(ids) == test
    print(f"{name:8s} {size / len(ids):.2f} bytes per token")

# %% [markdown]
# ## The model
#
# A model that continues a text has no source, so a layer of the decoder loses its cross-attention. What remains is a layer of
# the encoder with a causal mask ([chapter 12](12_encoder_decoder.ipynb)). Ours has four of
# them, with pre-norm as in GPT-2 ([chapter 9](09_layer.ipynb)), and an output layer that shares the weight of the
# embedding ([chapter 7](07_embeddings.ipynb)).

# %%
from torch import nn

from transformer_blocks import PreNorm


def build_gpt(vocabulary, layers=4):
    return build_language_model(
        vocabulary,
        num_layers=layers,
        d_model=128,
        num_heads=4,
        d_ff=512,
        residual=PreNorm,
    )


torch.manual_seed(0)
for name, vocabulary in {"bytes": 256, "subwords": 1024}.items():
    gpt = build_gpt(vocabulary)
    count = sum(each.numel() for each in gpt.parameters())
    loss = gpt.loss(torch.randint(vocabulary, (4, 128))).item()
    print(f"{name:8s} {count:,} weights, loss {loss:.1f}", end="")
    print(f" (ln V {math.log(vocabulary):.1f})")

# %% [markdown]
# Before training, the loss is a little higher than that of a guess, $\ln V$. The vector of a position still resembles the
# embedding of its own token, and the output layer has the same weights: the model prefers the token that it
# has just read.
#
# ## Train, and measure
#
# A batch is 16 windows of 129 tokens from random places of the text. The optimiser is AdamW, with a short warm-up and then a cosine schedule down to zero. The measurement
# cuts the test text into windows of 129. Windows overlap by one token, so each token but the first is predicted exactly once, although those at the beginning of a window have little before them (exercise 3 gives them more). Predict:
# which of the two is better after 700 updates, and is it better than the n-grams?

# %%
LENGTH, UPDATES = 128, 700


def measure(gpt, tokenizer):
    """Bits per byte of the test text."""
    ids, bits = torch.tensor(tokenizer.encode(test)), 0.0
    windows = ids.unfold(0, LENGTH + 1, LENGTH)
    rest = ids[None, len(windows) * LENGTH :]
    with torch.no_grad():
        for batch in (*windows.split(16), rest):
            logits, labels = gpt(batch[:, :-1]), batch[:, 1:]
            bits += bits_per_byte(logits, labels, size)
    return bits


def train_gpt(tokenizer, vocabulary, updates=UPDATES):
    torch.manual_seed(0)
    ids = torch.tensor(tokenizer.encode(train))
    gpt = build_gpt(vocabulary)
    optimizer = torch.optim.AdamW(gpt.parameters(), betas=(0.9, 0.98))
    for update in range(updates + 1):
        if update % (updates // 4) == 0:
            bits = measure(gpt.eval(), tokenizer)
            print(f"update {update:4d}  {bits:.2f} bits per byte")
            gpt.train()
        rate = 0.5 + 0.5 * math.cos(math.pi * update / updates)
        rate *= 3e-3 * min(1, (update + 1) / 50)
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(ids) - LENGTH, (16,))
        windows = torch.stack([ids[s : s + LENGTH + 1] for s in starts])
        optimizer.zero_grad()
        gpt.loss(windows).backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
    return gpt.eval()


# %% tags=["recorded"]
for name, (tokenizer, vocabulary) in tokenizers.items():
    print(name)
    train_gpt(tokenizer, vocabulary)

# %% [markdown]
# Subwords win: 2.42 against 3.07. (Untrained, that model has 4.39 bits per byte instead of 8, since a guess among 1,024 tokens costs 10 bits, for 2.31 bytes: 4.33.) In 700 updates both models have read as many tokens, but a subword has 2.3 bytes, so that
# model has read 2.3 times as much text, and sees 2.3 times as much of it at once. Yet neither is better than the 6-grams, 2.34. A
# table of counts knows what followed five bytes as soon as it has seen it once; a network learns the same in small steps. Each of these
# trainings takes about a minute on two cores. Predict what three minutes bring: 1,700 updates.

# %% tags=["recorded"]
longer = train_gpt(*tokenizers["subwords"], updates=1700)

# %% [markdown]
# Now the network is ahead: 2.23 against 2.34. It has read 3.5 million tokens, the text about ten times over. From some point on,
# more updates would only teach it the text by heart ([chapter 14](14_train.ipynb)); then a longer text is worth more than a
# longer training.
#
# ## Let it write
#
# `generate` reads the prompt once and then writes token by token with a cache, as in [chapter 16](16_choose_words.ipynb).
# The *temperature* divides the logits before the softmax.

# %% tags=["recorded"]
from transformer_blocks import sample

tokenizer, _ = tokenizers["subwords"]
for temperature in (0.3, 0.8, 1.3):
    [written] = longer.generate(
        [tokenizer.encode("Return a list")],
        sample,
        max_length=60,
        end_id=None,
        temperature=temperature,
        generator=torch.Generator().manual_seed(0),
    )
    text = "Return a list" + tokenizer.decode(written.tokens)
    print(f"temperature {temperature}")
    print(fill(" ".join(text.split()), 46, initial_indent="  "))

# %% [markdown]
# With a temperature of 0.3 the model repeats its most probable phrases. With 0.8 the text has the form of a docstring, and no
# meaning. With 1.3 the sentences fall apart, since improbable tokens are drawn too often ([chapter 16](16_choose_words.ipynb) cuts them
# off). The model has learned how docstrings are written, not what they say.
#
# ## GPT-2's parts in the same class, and its weights
#
# Nothing in this model is a toy but its size. GPT-2 ([Radford et al.
# 2019](https://cdn.openai.com/better-language-models/language_models.pdf)) differs from it in three parts: the activation function is
# GELU and the positions are learned vectors, both as in the first GPT ([Radford et al.
# 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf)), and the embeddings are not multiplied by $\sqrt{d_{model}}$ ([chapter 7](07_embeddings.ipynb)).
# `transformer_blocks/pretrained/gpt2.py` composes it from our blocks, as the same
# [`LanguageModel`](../reference/tools/models.md#languagemodel). If every part is right, the weights of a GPT-2 give its outputs. Nothing is downloaded
# here: the class of the library `transformers` is filled with random weights, at a small size. We save it, and load it into our blocks by the same function that loads the
# published weights. (In a new model all biases are 0 and all gains of the normalisations 1, so that this does not compare them.)

# %% tags=["recorded"]
import tempfile
import warnings
from pathlib import Path

with warnings.catch_warnings(action="ignore"):
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils.logging import disable_progress_bar

from transformer_blocks.pretrained.families import load_model

disable_progress_bar()
torch.manual_seed(0)
config = GPT2Config(
    vocab_size=50,
    n_positions=40,
    n_embd=32,
    n_layer=3,
    n_head=4,
    bos_token_id=0,
    eos_token_id=0,
)
theirs = GPT2LMHeadModel(config).eval()
with tempfile.TemporaryDirectory() as folder:
    theirs.save_pretrained(folder)
    gpt2, _, _ = load_model(Path(folder), torch.float32)
tokens = torch.randint(50, (4, 40))
with torch.no_grad():
    expected, found = theirs(tokens).logits, gpt2(tokens)
print("logits", list(found.shape))
print(f"largest logit        {expected.abs().max():.2f}")
print(f"largest difference   {(found - expected).abs().max():.0e}")

# %% [markdown]
# The difference is rounding. With the published weights, `python examples/pretrained.py
# openai-community/gpt2 "The Transformer is"` continues your text.
#
# ## Your model in a page
#
# A model that one can only print is soon forgotten. [`explore`](../reference/tools/explorer.md#explore) shows the attention of all
# heads on a page, and a [`LiveModel`](../reference/tools/explorer.md#livemodel) puts the model itself into it, with its tokenizer. The page computes in
# JavaScript what the blocks compute here: one types a beginning, and sees the next tokens with their
# probabilities, and what each head attends to. It is one file, which one can send to a friend.
#
# ```python
# from dataclasses import replace
#
# from transformer_blocks.explorer import LiveModel, explore
#
# prompt = bpe.encode("Return a list")
# page = explore(longer, torch.tensor([prompt.ids]), tokens=prompt.tokens)
# files = [bpe.to_str().encode()]
# live = LiveModel(longer, files, end_id=0, max_length=LENGTH)
# page = replace(page, text="Return a list", live=live)
# path = Path(tempfile.gettempdir()) / "my_gpt.html"  # open it
# page.save(path)
# print(f"{path.stat().st_size / 1e6:.1f} MB")
# ```
#
# The page must know where a text ends. Ours has no token for it, so that `end_id=0` ends it with the first token of this tokenizer, "!".
#
# The page of this model has about 1.4 MB, as a weight is rounded to 8 bits and takes little more than a byte. A page holds at most 130 million of them, enough for the smallest GPT-2:
# `model, tokenizer = from_pretrained("openai-community/gpt2")`, `ids = tokenizer.encode(text)` in place of `prompt.ids`, `[tokenizer.decode([i]) for i in ids]` in place of `prompt.tokens`, `[tokenizer.path.read_bytes()]` in place of `files`, and `end_id=50256`, the token that ends GPT-2's texts. That page has about 152 MB.
# `python examples/generate_text.py explore` writes such a page of a model that this program has trained.
#
# ## Broken on purpose
#
# A language model is trained to predict the *next* token, so its labels are its inputs, shifted by one. In the following training step, the
# shift is missing. Its text is noise: random bytes, of which nobody can predict the next one with less than 8 bits. Predict its loss before the first update, and after 40.

# %% tags=["broken"]
from transformer_blocks.inspection import check_soundness

torch.manual_seed(0)
gpt = build_gpt(256, layers=2)
optimizer = torch.optim.AdamW(gpt.parameters(), lr=3e-3)


def unshifted(tokens):
    """Logits and labels of a training step."""
    return gpt(tokens), tokens


for update in range(41):
    noise = torch.randint(256, (8, 64))  # bytes without any pattern
    logits, labels = unshifted(noise)
    bits = bits_per_byte(logits, labels, labels.numel())
    if update % 10 == 0:
        print(f"update {update:2d}  {bits:.2f} bits per byte")
    optimizer.zero_grad()
    nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten()
    ).backward()
    optimizer.step()
gpt.eval()
found = check_soundness(unshifted, noise[:1, :8], only="labels")
print(fill(str(found["labels"]).splitlines()[1].strip(), 46))

# %% [markdown]
# The best score of this chapter, after seconds, on a text that cannot be predicted. The right label is the token that the model has just read, which even the untrained model prefers. A score that is too good is a reason to search for the mistake. The check
# changes one token: the output that is scored against this token must not change.
#
# ## Exercises
#
# ### Exercise 1: from loss to bits
#
# *Easy, about 5 minutes.*
#
# A paper reports the mean loss per token, with the natural logarithm, and how many bytes a token has on average. Return the bits per byte.
#
# <details><summary>Hint</summary>
#
# A bit is $\ln 2$ = 0.693 of the paper's unit, and the loss of a token belongs to several bytes.
#
# </details>


# %% tags=["stub"]
def to_bits(loss, bytes_per_token):
    return loss / bytes_per_token


# %% tags=["check"]
found = to_bits(math.log(256), 1)
assert abs(found - 8) < 1e-9, f"{found}: guessing a byte costs 8 bits"
found = to_bits(math.log(2) * 6, 4)
assert abs(found - 1.5) < 1e-9, f"{found}: 6 bits for 4 bytes"


# %% tags=["solution"]
def to_bits(loss, bytes_per_token):
    return loss / math.log(2) / bytes_per_token


# %% [markdown]
# ### Exercise 2: a temperature after the fact
#
# *Medium, about 15 minutes.*
#
# A program returns only the probabilities at temperature 1. Return those of another temperature, of shape (V,), without the logits. A
# probability of 0 stays 0.
#
# <details><summary>Hint</summary>
#
# The softmax of logits divided by $T$ is proportional to $p^{1/T}$.
#
# </details>


# %% tags=["stub"]
def at_temperature(probabilities, temperature):
    return (probabilities / temperature).softmax(dim=-1)


# %% tags=["check"]
torch.manual_seed(0)
logits = torch.randn(50) * 3
logits[:5] = -torch.inf
for t in (0.3, 1.0, 2.5):
    found = at_temperature(logits.softmax(dim=-1), t)
    right = (logits / t).softmax(dim=-1)
    assert not found.isnan().any(), f"no number at temperature {t}"
    assert (found[:5] == 0).all(), "a probability of 0 stays 0"
    error = (found - right).abs().max()
    assert error < 1e-5, f"an error of {error:.2g} at temperature {t}"


# %% tags=["solution"]
def at_temperature(probabilities, temperature):
    powers = probabilities ** (1 / temperature)
    return powers / powers.sum()


# %% [markdown]
# ### Exercise 3: enough context for each token
#
# *Hard, about 30 minutes.*
#
# Cut `count` ids into windows of at most `length` ids for a measurement. Return a list of triples `(start, stop, first)`: the model reads `ids[start:stop]`, and `ids[first:stop]` are counted as labels. Each id but id 0 is counted exactly once, and has
# at least `context` ids before it in its window, or all that exist. Use as few windows as possible.
#
# <details><summary>Hint</summary>
#
# After the first window, each window counts `length - context` labels, and begins `context` ids before the first of them.
#
# </details>


# %% tags=["stub"]
def windows_of(count, length, context):
    return [
        (start, min(start + length, count), start + 1)
        for start in range(0, count, length)
    ]


# %% tags=["check"]
for count, length, context in ((20, 8, 3), (7, 8, 5), (33, 8, 7)):
    counted = []
    for start, stop, first in windows_of(count, length, context):
        assert stop - start <= length, f"{stop - start} ids in a window"
        assert 0 <= start < first < stop <= count, (start, stop, first)
        enough = first - start >= min(first, context)
        assert enough, (
            f"label {first} has {first - start} ids before it"
        )
        counted += range(first, stop)
    missing = set(range(1, count)) - set(counted)
    assert not missing, f"not counted: {sorted(missing)}"
    assert len(counted) == count - 1, "a label is counted twice"
    fewest = 1 + max(0, -(-(count - length) // (length - context)))
    used = len(windows_of(count, length, context))
    assert used <= fewest, f"{used} windows where {fewest} are enough"


# %% tags=["solution"]
def windows_of(count, length, context):
    windows, first = [], 1
    while first < count:
        start = max(0, first - context) if windows else 0
        stop = min(start + length, count)
        windows.append((start, stop, first))
        first = stop
    return windows


# %% [markdown]
# ## What you can do now
#
# A GPT is parts that you know, and a text. You can build one from the library's blocks, measure it in a unit that does
# not depend on its tokens, compare it with what counting reaches, let it write, also in a page, and notice a score that is too good.
#
# ## Where to go
#
# - A text of your own, a run that can be resumed, and plots: `examples/generate_text.py train --text FILE`.
# - What a larger model and more text would bring, and what they cost: [chapter 19](19_costs.ipynb).
# - How the same attention is computed for long texts: [chapter 20](20_without_the_matrix.ipynb).
