# %% [markdown]
# # 14 Train
#
# **What number does training make smaller, and when is a smaller number worse?**
#
# You have a model and batches. Training repeats three steps: compute the *loss*,
# compute its gradient, change the weights a little. Few lines of code do it, and
# they hide the decisions of this chapter. What is the loss of a batch with padding?
# Why does the paper not want the loss to become zero? And why did the translator of
# a well-known course, whose loss came close to zero, translate so badly?
#
# ## The loss by hand
#
# In [chapter 0](00_map.ipynb) a model gave the tokens of *the cat eats fish .* these
# probabilities. The loss of a token is the negative logarithm of its probability,
# the *cross-entropy*.
#
# | token | probability | loss, -ln p |
# | --- | --- | --- |
# | the | 0.9 | 0.105 |
# | cat | 0.8 | 0.223 |
# | eats | 0.5 | 0.693 |
# | fish | 0.9 | 0.105 |
# | . | 1.0 | 0.000 |
# | (end) | 1.0 | 0.000 |
#
# The sum is 1.127, the negative logarithm of the product 0.324. The mean over the
# six tokens is 0.188. Its exponential is the **perplexity**, $e^{0.188} = 1.21$:
# the model is as uncertain as if it had to guess among 1.21 equally probable tokens
# at each position. A model that knows nothing has the perplexity $V$, the size of the
# vocabulary, and the loss $\ln V$.
#
# ## Label smoothing
#
# The loss of a token is zero only if its probability is 1. The softmax never reaches
# 1, so the logit of the correct token is increased without end. *Label smoothing*
# ([Szegedy et al. 2015](https://arxiv.org/abs/1512.00567); section 5.4 of the paper)
# sets another goal. It takes a share $\varepsilon$ of the
# target's probability, and spreads it evenly over all $V$ tokens.
#
# By hand, for the token *eats*, with $\varepsilon = 0.1$ and a vocabulary of five
# tokens. Each token gets 0.1 / 5 = 0.02, and the target 0.9 more:
#
# | token | predicted p | goal t | -t · ln p |
# | --- | --- | --- | --- |
# | the | 0.1 | 0.02 | 0.02 · 2.303 = 0.046 |
# | cat | 0.1 | 0.02 | 0.02 · 2.303 = 0.046 |
# | eats | 0.5 | 0.92 | 0.92 · 0.693 = 0.638 |
# | fish | 0.2 | 0.02 | 0.02 · 1.609 = 0.032 |
# | . | 0.1 | 0.02 | 0.02 · 2.303 = 0.046 |
#
# The loss is the sum, 0.808, where it would be 0.693 without smoothing. Predict where
# its minimum is, before the figure shows it.
#
# ![Loss against the probability of the correct token, if the other four share the rest equally. Without smoothing the loss falls to zero at the probability 1. With smoothing of 0.1 it has its minimum of 0.39 at the probability 0.92, and rises steeply towards 1.](figures/smoothing.svg)
#
# The minimum is where the prediction equals the goal, at 0.92. The loss there is not
# zero but 0.39, the entropy of the goal. A smoothed loss must therefore not be compared
# with one that is not smoothed, and its exponential must not be called perplexity. The
# paper reports that smoothing makes the perplexity worse and BLEU better.

# %% [markdown] tags=["formula"]
# $$t_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V}$$
#
# $$\ell(z, y) = -\sum_{v=1}^{V} t_v \log \mathrm{softmax}(z)_v$$
#
# The bracket is 1 if $v$ is the target token $y$, else 0.

# %% tags=["implementation"]
import torch


def smoothed_loss(logits, target, epsilon=0.0):
    """(N, V) and (N,) to one loss per token, (N,)."""
    count, size = logits.shape
    log_p = logits.log_softmax(dim=-1)
    t = torch.full((count, size), epsilon / size)
    t[torch.arange(count), target] += 1 - epsilon
    return -(t * log_p).sum(dim=-1)


# %%
predicted = torch.tensor([[0.1, 0.1, 0.5, 0.2, 0.1]])
eats = torch.tensor([2])
for epsilon in (0.0, 0.1):
    loss = smoothed_loss(predicted.log(), eats, epsilon)
    print(f"smoothing {epsilon}: {loss.item():.3f}")

# %% [markdown]
# The numbers are those that we computed by hand. (The logits are the logarithms of
# the probabilities here, since the softmax then returns these probabilities.)
#
# ## The same, by the library
#
# The library has two functions. `cross_entropy` takes logits.
# [`linear_cross_entropy`](../reference/fast/cross_entropy.md#linear_cross_entropy) takes the vectors before the output
# layer, and never stores the logits of all tokens at once. Logits are the largest
# tensor of a training step: with 4,000 tokens in a batch and a vocabulary of 37,000,
# they take 592 MB.

# %% tags=["proof"]
import torch.nn.functional as F

from transformer_blocks import linear_cross_entropy
from transformer_blocks.loss import cross_entropy

torch.manual_seed(0)
hidden, weight = torch.randn(7, 16), torch.randn(50, 16)
target = torch.randint(50, (7,))
logits = hidden @ weight.T
options = {"label_smoothing": 0.1}
expected = smoothed_loss(logits, target, 0.1).mean()
for found in (
    cross_entropy(logits, target, **options),
    linear_cross_entropy(hidden, weight, target, **options),
    F.cross_entropy(logits, target, **options),
):
    assert torch.allclose(found, expected, atol=1e-4)
print(f"{expected.item():.3f}")

# %% [markdown]
# ## The loss of a batch
#
# Padding is no token that the model should predict. Its positions are left out, and
# the mean is taken over the *real* tokens. It seems to make no difference to average
# in two steps, first in each batch and then over the batches. By hand:
#
# | batch | real tokens | mean loss | sum |
# | --- | --- | --- | --- |
# | 1 | 8 | 1.0 | 8 |
# | 2 | 2 | 3.0 | 6 |
# | both | 10 | 1.4 | 14 |
#
# The mean of the two means is 2.0. But the loss per token is 14 / 10 = 1.4. In the
# mean of means, a token of the small batch counts four times as much as one of the
# large batch. The same happens with several GPUs or accumulated gradients: add the
# sums, and divide once by the number of all real tokens.

# %%
PAD = 0
sentences = torch.tensor([[5, 6, 7, 8], [9, 4, PAD, PAD]])
torch.manual_seed(0)
logits = torch.randn(2, 4, 10)
real = sentences != PAD  # (B, L)
loss = cross_entropy(logits[real], sentences[real])
print(tuple(logits[real].shape), f"{loss.item():.3f}")
ignoring = F.cross_entropy(
    logits.flatten(0, 1), sentences.flatten(), ignore_index=PAD
)
print(f"with ignore_index: {ignoring.item():.3f}")

# %% [markdown]
# Indexing with a boolean tensor keeps its true positions. Here 6 of 8 remain.
#
# ## The optimiser
#
# The paper uses Adam ([Kingma and Ba 2014](https://arxiv.org/abs/1412.6980)) with a
# warm-up ([chapter 9](09_layer.ipynb)). Equation 3 gives the
# learning rate of the update $s$, for $w$ updates of warm-up:
#
# $$\mathrm{rate}(s) = d_{\text{model}}^{-0.5} \cdot \min(s^{-0.5},\; s \cdot w^{-1.5})$$
#
# With the paper's sizes it is highest at update 4,000.

# %%
from transformer_blocks import noam_rate

for update in (1, 1000, 4000, 16000, 100000):
    print(f"{update:6d}  {noam_rate(update, d_model=512):.6f}")

# %% [markdown]
# ## Training and validation
#
# The loss on the sentences of the training set measures how well the model knows *these*. A
# translator is made for others. Therefore the corpus is divided into three parts. The
# **training set** is what the weights are fitted to. The **validation set** is measured
# during the training and decides when to stop, and which settings are best. The **test
# set** is measured once, at the end.
#
# Here is chapter 0's translator again, from `first_translator.py` beside the chapters, with its 12
# held-out sentences as validation set. It is trained on all 36 other sentences, and then on only 6 of them. Predict the
# four losses at the end: training and validation, of 36 sentences and of 6.

# %%
from first_translator import (
    Translator,
    held_out,
    target_words,
    to_ids,
    training,
)

validation, examples = to_ids(held_out), to_ids(training)
print(len(held_out), "sentences to measure,", len(training), "to learn")


def loss_of(model, source, target):
    """Mean loss per token; input and target are shifted by one."""
    logits = model(source, target[:, :-1]).flatten(0, 1)
    return cross_entropy(logits, target[:, 1:].flatten())


@torch.no_grad()
def measure(model, source, target):
    return loss_of(model.eval(), source, target).item()


def train(count, updates=300, every=50):
    """Train on some sentences; return the model and its losses."""
    torch.manual_seed(0)
    model, curve = Translator(), []
    chosen = [ids[:count] for ids in examples]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for update in range(1, updates + 1):
        loss = loss_of(model.train(), *chosen)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % every == 0:
            losses = (
                measure(model, *chosen),
                measure(model, *validation),
            )
            curve.append((update, *losses))
    return model, curve


model, many = train(36)
_, few = train(6)
print("update    36 sentences    6 sentences")
print("          train  valid    train  valid")
for (update, *first), (_, *second) in zip(many, few):
    columns = [f"{loss:.3f}" for loss in first + second]
    print(f"{update:6d}    {'  '.join(columns)}")

# %% [markdown]
# With 36 sentences, the validation loss follows the training loss below 0.01.
# Those sentences show each word in many combinations, and the model has learned
# the rule. With 6 sentences, the training loss falls just as far. The validation loss
# is lowest at the first measurement, about 1.09, and then *rises* by about 40 %.
#
# ## Overfitting
#
# This is **overfitting**: the training loss falls, and the validation loss rises. The
# model learns its sentences by heart instead of what they have in common. Where it is
# wrong, it becomes ever more certain, and the loss of a certain mistake is large: with
# a probability of 1 % for the correct token it is 4.6, with 0.01 % it is 9.2.
#
# A Japanese course on attention trains a recurrent translator with attention, as in
# [chapter 11](11_before_transformers.ipynb), on 8,000 sentence pairs for 200 epochs (passes
# over the training set), and prints its losses every 20 epochs: the training loss is a
# mean over the updates of an epoch, the test loss is computed at its end. Its encoder is
# a plain RNN, its decoder an LSTM. The first, third, fifth and tenth of its ten reports
# are:
#
# | report | 1 | 3 | 5 | 10 |
# | --- | --- | --- | --- | --- |
# | training loss | 4.39 | 1.15 | 0.18 | 0.017 |
# | test loss | 5.06 | 6.91 | 9.01 | 11.15 |
#
# At the end, the translator recites sentences of its training set word for word, and
# its answer to 猫はかわいいね。 (*The cat is cute, isn't it*) has something to do with
# magic. The course calls the result so-so, and does not name the reason.
#
# Is that an accident of this program? We try 2,000 sentence pairs of another corpus, a
# similar model (its encoder is an LSTM, too), no dropout and a constant learning rate
# (seed 0; this and the cures below took 34 minutes of one CPU core):
#
# ```
# python docs/experiments/overfitting.py --corpus small_parallel_enja
# ```
#
# ![Training and validation loss of an LSTM translator against the number of updates. The training loss falls from 4.5 to 0.01. The validation loss falls to its lowest value, 4.28, after 600 updates, and then rises to 5.80.](figures/overfitting.svg)
#
# After 47 epochs the training loss is 0.012. The model reproduces all of 500 sentences
# of its training set exactly. The validation loss was lowest after 12 epochs, 4.28, and
# has risen to 5.80. Of its translations of the test set, 7 % are sentences of the
# training set, word for word. Its answer to 猫はかわいいね。 is
# `she didn 't have a little .` What the course saw happens to another program, too, with
# other data and another encoder.
#
# ## Cures
#
# Each of these makes it harder to learn sentences by heart:
#
# - A **smaller model** has less room for them: states of 64 numbers instead of 256.
# - **Dropout** sets random elements to zero, here 40 %, so that no single one can be
#   relied upon ([chapter 9](09_layer.ipynb)).
# - **Label smoothing**, here 0.1, gives a certain mistake a bounded goal.
# - **Weight decay**, here 0.3, shrinks all weights a little at each update.
# - **More data**: all 50,000 pairs of the corpus instead of 2,000.
# - **Early stopping** keeps the weights of the lowest validation loss.
#
# Each was tried alone, then several together, with the same number of updates. All
# losses are without smoothing, to be comparable. Early stopping needs no training of
# its own: the table has the validation loss of the last weights and the lowest one,
# and BLEU of both on the test set (L: last, V: lowest validation loss). Which cure
# do you expect to help most?

# %%
import json
from pathlib import Path

file = Path("../experiments/results/overfitting.json")
results = json.loads(file.read_text(encoding="utf-8"))["results"]
print("                    train   validation    BLEU")
print("                     last  last lowest  L / V")
for name, runs in results.items():
    if not isinstance(runs, list) or "four" in name:
        continue
    last, best = runs[0]["last"], runs[0]["best"]
    losses = (
        last["train_loss"],
        last["validation_loss"],
        best["validation_loss"],
    )
    print(
        f"{name.replace('and', '+'):19s}",
        *[f"{loss:5.2f}" for loss in losses],
        *[f"{each['test_bleu']:4.1f}" for each in (last, best)],
    )

# %% [markdown]
# ![Validation loss against the number of updates for the run that overfits and for each cure. With 2,000 pairs, every curve falls to a minimum between 4.1 and 4.5 and then rises; the curve without a cure rises furthest, to 5.80. With more data, the curve falls to 2.60 and does not rise. With all cures together it falls to 3.83 only.](figures/cures.svg)
#
# A smaller model, dropout, smoothing and weight decay lower the validation loss at the end,
# from 5.80 to between 4.79 and 5.11, but hardly its lowest value: 4.14 to 4.46, against
# 4.28. They delay overfitting, and add nothing that the 2,000 sentences do not contain.
# More data helps by far the most: 2.60, near the training loss of 2.33. All cures together
# are worse than more data alone, 3.83: each limits the model, which helps one that
# overfits and harms one that does not.
#
# Early stopping is a surprise: it lowers the loss, and BLEU, too, from 2.6 to 0.5. The loss
# depends on how certain the model is, BLEU only on which words it chooses, and after 12
# epochs it hardly knows any. Both translators are useless beside those of
# [chapter 11](11_before_transformers.ipynb), with 28.4 to 39.4: no cure replaces data.
#
# ## Two mistakes in measuring
#
# **Padding in the loss.** After `<eos>` comes padding, which is easy to learn. Let the
# loss of the real tokens be 2, and let half of the positions be padding, with a loss of
# zero. The mean over all positions is 1. The model has not become better. It looks better
# in random batches than in batches sorted by length, which have less padding.
#
# **Dropout in validation.** `model.eval()` turns dropout off, and `model.train()` turns
# it on again. Forget the first, and the validation loss is that of a damaged model,
# and another one at each measurement. Here is the model of the 36 sentences:

# %%
print(f"evaluation mode: {measure(model, *validation):.5f}")
with torch.no_grad():
    for _ in range(3):
        noisy = loss_of(model.train(), *validation)
        print(f"training mode:   {noisy.item():.5f}")

# %% [markdown]
# ## Broken on purpose
#
# The decoder's input is `target[:, :-1]`, and its targets are `target[:, 1:]`. In the
# program below, the targets are not shifted. Each position predicts the token that it
# receives. Predict the loss after 50 updates, and what the model writes.

# %% tags=["broken"]
from transformer_blocks.inspection import check_soundness


def unshifted_loss(model, source, target):
    logits = model(source, target[:, :-1]).flatten(0, 1)
    return cross_entropy(logits, target[:, :-1].flatten())


@torch.no_grad()
def translate(model, source):
    """Greedy decoding of one sentence, six tokens."""
    tokens = torch.tensor([[target_words.index("<bos>")]])
    for _ in range(6):
        best = model.eval()(source, tokens)[:, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, best], dim=1)
    return [target_words[token] for token in tokens[0, 1:]]


for name, loss_function in (
    ("shifted", loss_of),
    ("unshifted", unshifted_loss),
):
    torch.manual_seed(0)
    tried = Translator()
    optimizer = torch.optim.Adam(tried.parameters(), lr=3e-3)
    for _ in range(50):
        loss = loss_function(tried.train(), *examples)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        value = loss_function(tried.eval(), *validation).item()
    print(f"{name}: validation loss {value:.3f}")
    print(" ", " ".join(translate(tried, validation[0][:1])))
soundness = check_soundness(
    lambda y: tried(examples[0][:1], y),
    examples[1][:1, :-1],
    only="causality",
)
print(soundness["causality"])

# %% [markdown]
# The validation loss is even a little lower than that of the correct program, as the
# model has learned to copy its input: decoding starts with `<bos>`, copies it, and so
# on. `check_soundness` finds nothing, and it is right, because no output depends on a
# later *input*. The mistake is in the targets.
#
# What exposes it? Decode a few sentences after the first updates, always. And assert the
# relation where the batches are made:
# `assert torch.equal(inputs[:, 1:], targets[:, :-1])`.
#
# ## Exercises
#
# Replace the body of each function, and run the check below it.
#
# ### Exercise 1: how low can a smoothed loss be?
#
# *Easy, about 10 minutes.*
#
# Return the smallest possible loss with label smoothing `epsilon` and a vocabulary of
# `size` tokens. It is reached where the prediction equals the goal $t$.
#
# <details><summary>Hint</summary>
#
# At the minimum, the loss is the entropy of the goal: one target probability,
# and $V - 1$ equal ones.
#
# </details>


# %% tags=["stub"]
from math import log


def lowest_loss(epsilon, size):
    return 0.0


# %% tags=["check"]
found = lowest_loss(0.1, 5)
assert abs(found - 0.390) < 0.001, f"{found}: the goal's entropy"
for epsilon, size in ((0.1, 37000), (0.3, 20)):
    goal = torch.full((1, size), epsilon / size, dtype=torch.float64)
    goal[0, 3] += 1 - epsilon
    found = smoothed_loss(goal.log(), torch.tensor([3]), epsilon)
    mine = lowest_loss(epsilon, size)
    assert abs(mine - found.item()) < 1e-4, f"{mine} for V = {size}"


# %% tags=["solution"]
from math import log


def lowest_loss(epsilon, size):
    other = epsilon / size
    right = 1 - epsilon + other
    return -right * log(right) - (size - 1) * other * log(other)


# %% [markdown]
# ### Exercise 2: the loss of several batches
#
# *Medium, about 15 minutes.*
#
# `batches` is a list of pairs: logits (B, L, V) and target ids (B, L), padded with
# `PAD`. The lengths differ between batches. Return the mean loss per real token over
# all batches, as a float. Use `smoothed_loss` or `cross_entropy`.
#
# <details><summary>Hint</summary>
#
# Add up sums of losses and numbers of real tokens. Divide once, at the end.
#
# </details>


# %% tags=["stub"]
def loss_per_token(batches):
    means = [
        cross_entropy(logits.flatten(0, 1), target.flatten())
        for logits, target in batches
    ]
    return sum(means).item() / len(means)


# %% tags=["check"]
torch.manual_seed(1)
batches = []
for lengths in ([7, 5, 1], [3, 2], [9]):
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in zip(ids, lengths):
        row[:length] = torch.randint(1, 10, (length,))
    batches.append((torch.randn(*ids.shape, 10), ids))
every_loss = [
    smoothed_loss(logits[row, place][None], ids[row, place][None])
    for logits, ids in batches
    for row, place in (ids != PAD).nonzero().tolist()
]
expected = torch.cat(every_loss).mean().item()
found = loss_per_token(batches)
assert abs(found - expected) < 1e-5, "each token counts the same"


# %% tags=["solution"]
def loss_per_token(batches):
    total, count = 0.0, 0
    for logits, target in batches:
        real = target != PAD
        losses = smoothed_loss(logits[real], target[real])
        total += losses.sum().item()
        count += len(losses)
    return total / count


# %% [markdown]
# ### Exercise 3: early stopping
#
# *Easy, about 10 minutes.*
#
# Given the validation losses after each epoch, stop as soon as `patience` epochs in a
# row have brought no new lowest loss. Return two indices, counted from 0: the epoch
# after which training stops (the last one, if it never stops early), and the epoch
# whose weights are kept.
#
# <details><summary>Hint</summary>
#
# Remember the epoch of the lowest loss. How many epochs ago was it?
#
# </details>


# %% tags=["stub"]
def early_stopping(losses, patience):
    return len(losses) - 1, len(losses) - 1


# %% tags=["check"]
curve = [4.8, 4.4, 4.3, 4.4, 4.2, 4.4, 4.7, 5.0, 5.3]
for patience, right in ((1, (3, 2)), (2, (6, 4)), (3, (7, 4))):
    found = early_stopping(curve, patience)
    assert found == right, f"{found} with patience {patience}"
found = early_stopping([3.0, 2.0, 1.0], 1)
assert found == (2, 2), f"{found} of a loss that always falls"


# %% tags=["solution"]
def early_stopping(losses, patience):
    best = 0
    for epoch, loss in enumerate(losses):
        if loss < losses[best]:
            best = epoch
        if epoch - best == patience:
            return epoch, best
    return len(losses) - 1, best


# %% [markdown]
# ## What you can do now
#
# The loss is a mean over real tokens, smoothing gives it a goal that can be
# reached, and a validation set shows when learning becomes memorising. You can
# compute each by hand, combine the losses of several batches, and stop at the
# right epoch.
#
# ## Where to go
#
# - What `optimizer.step()` computes, and what can go wrong: [chapter 15](15_optimiser.ipynb).
# - The model is trained. It gives probabilities, and one token has to be chosen:
#   [chapter 16](16_choose_words.ipynb).
# - A whole training program in one file, with a test set: `examples/train_minimal.py`.
# - [`loss`](../reference/blocks/loss.md) and [`schedule`](../reference/blocks/schedule.md).
# - Find out why a model is wrong: `python examples/course.py debug 23`
#   ([all cases](../howto/debug_a_transformer.md)).
