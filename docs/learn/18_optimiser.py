# %% [markdown]
# # 18 Optimiser and stability
#
# **What happens between a gradient and a better model, what does it cost, and can one know beforehand what a
# larger model will reach?**
#
# Read this chapter after [chapter 12](12_train.py). There, one line called `optimizer.step()`
# and nothing went wrong. In a long training, much does: a single odd batch ruins a week of work, the numbers overflow,
# the memory is full. Most advice about it is folklore. But an update is only arithmetic
# on each weight, and its cost can be counted on paper to the last multiplication. People who
# train large models do exactly this before they begin, because they can afford to begin only once.
#
# ## By hand: two updates of Adam
#
# Gradient descent subtracts the gradient $g$, multiplied by a learning rate. Its weakness is the unit of
# the gradient: if the loss is multiplied by 1,000, so are all steps. Adam
# ([Kingma and Ba 2014](https://arxiv.org/abs/1412.6980)) keeps two running means for each weight: $m$ of the
# gradient and $v$ of its square. It goes in the direction of $m$, divided by the root of $v$, the usual size of
# this weight's gradients. The unit cancels.
#
# One weight, at first $w$ = 1, with the rate 0.1, $\beta_1$ = 0.9 and the paper's $\beta_2$ = 0.98. Its gradients are 2 and then
# −1.
#
# | | update 1 | update 2 |
# | --- | --- | --- |
# | g | 2 | −1 |
# | m | 0.9 · 0 + 0.1 · 2 = 0.2 | 0.9 · 0.2 − 0.1 · 1 = 0.08 |
# | v | 0.98 · 0 + 0.02 · 4 = 0.08 | 0.98 · 0.08 + 0.02 · 1 = 0.0984 |
# | m corrected | 0.2 / 0.1 = 2 | 0.08 / 0.19 = 0.421 |
# | v corrected | 0.08 / 0.02 = 4 | 0.0984 / 0.0396 = 2.485 |
# | step | 0.1 · 2 / √4 = 0.1 | 0.1 · 0.421 / √2.485 = 0.0267 |
# | w | 1 − 0.1 = 0.9 | 0.9 − 0.0267 = 0.8733 |
#
# Both means begin at 0, which makes them too small at first. The *correction* divides by the sum of the weights
# that a mean has handed out so far, $1 - \beta^t$: 0.1 after one update, 0.19 after two. See the first step: it is the
# learning rate itself. Whatever the gradient is, 2 or 0.0002, each weight moves by the full rate in its
# direction. The second step is small, because the two gradients disagree. That is the idea of Adam in a
# sentence: *the step is large where the gradients agree with each other.*

# %%
import torch

# %% [markdown] tags=["formula"]
# $$m_t = \beta_1 m_{t-1} + (1 - \beta_1) \, g_t$$
#
# $$v_t = \beta_2 v_{t-1} + (1 - \beta_2) \, g_t^2$$
#
# $$w_t = w_{t-1} - \eta \; \frac{m_t / (1 - \beta_1^t)}{\sqrt{v_t / (1 - \beta_2^t)} + \varepsilon}$$


# %% tags=["implementation"]
class Adam:
    def __init__(self, weights, rate, betas=(0.9, 0.98)):
        self.weights, self.rate = weights, rate
        self.betas, self.t = betas, 0
        self.m = [torch.zeros_like(w) for w in weights]
        self.v = [torch.zeros_like(w) for w in weights]

    @torch.no_grad()
    def step(self, epsilon=1e-9):
        self.t += 1
        a, b = self.betas
        for w, m, v in zip(self.weights, self.m, self.v):
            m.mul_(a).add_((1 - a) * w.grad)
            v.mul_(b).add_((1 - b) * w.grad**2)
            root = (v / (1 - b**self.t)).sqrt() + epsilon
            w -= self.rate * m / (1 - a**self.t) / root


# %% [markdown]
# (`mul_` and `add_` with an underscore change a tensor in place.)

# %%
w = torch.tensor([1.0], requires_grad=True)
by_hand = Adam([w], rate=0.1)
for gradient in (2.0, -1.0):
    w.grad = torch.tensor([gradient])
    by_hand.step()
    m, v = by_hand.m[0].item(), by_hand.v[0].item()
    print(f"m {m:.4f}  v {v:.4f}  w {w.item():.4f}")

# %% [markdown]
# The proof trains a small language model of the library twice, by our class and by
# PyTorch's, and compares all weights after 20 updates. The texts are random ids: an optimiser does not
# know what it optimises. It computes in float64 for a reason that is worth a thought. A softmax ignores what is added to all
# scores, so the bias of the keys has a gradient of exactly zero, plus a rounding error. Adam divides
# even that by its own size, and lets the bias run at full speed after noise. In float32, two correct programs
# therefore drift apart here. In float64 the noise is far below $\varepsilon$, which is what $\varepsilon$ is for.

# %% tags=["proof"]
from copy import deepcopy

from transformer_blocks import build_language_model

torch.manual_seed(0)
sizes = {"num_layers": 2, "d_model": 32, "num_heads": 4, "d_ff": 128}
sizes["dropout"] = 0.0  # no random numbers: both do the same
mine = build_language_model(50, **sizes).double()
theirs = deepcopy(mine)
ours = Adam(list(mine.parameters()), rate=1e-3)
standard = torch.optim.Adam(
    theirs.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9
)
for _ in range(20):
    batch = torch.randint(50, (8, 17))
    for model, optimizer in ((mine, ours), (theirs, standard)):
        model.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
for a, b in zip(mine.parameters(), theirs.parameters()):
    assert torch.allclose(a, b, atol=1e-9)
print(
    "20 updates,", sum(w.numel() for w in mine.parameters()), "weights"
)

# %% [markdown]
# ## Clipping
#
# Now and then a batch has a gradient that is a hundred times as large as usual. *Clipping*
# ([Pascanu et al. 2012](https://arxiv.org/abs/1211.5063)) bounds the norm of the gradient of all weights together: if it is
# above a limit, the whole gradient is multiplied by limit / norm. By hand, for the gradient (3, 4) and the limit 1: its
# norm is 5, and it becomes (0.6, 0.8). The direction stays.
#
# But does Adam not divide by the size anyway? Its step is indeed bounded. The damage comes later. The square of the outlier
# enters the mean $v$ and stays there: for hundreds of updates, all normal gradients are
# divided by a root that is much too large. Predict: after one gradient of 100 among gradients of 1, how large are the
# steps 10, 100 and 200 updates later, in shares of the usual step?


# %%
def steps_after(spike, updates=301):
    """Sizes of Adam's steps after a gradient among many of 1."""
    w = torch.zeros(1, requires_grad=True)
    optimizer, sizes = Adam([w], rate=1.0), []
    for update in range(-300, updates):
        w.grad = torch.tensor([spike if update == 0 else 1.0])
        before = w.item()
        optimizer.step()
        sizes.append(before - w.item())
    return sizes[300:]


outlier, clipped = steps_after(100.0), steps_after(1.0)
print("updates later   step after 100   clipped to 1")
for later in (0, 1, 10, 50, 100, 200, 300):
    print(f"{later:13d}{outlier[later]:17.2f}{clipped[later]:15.2f}")

# %% [markdown]
# ![The size of Adam's steps against the number of updates after an outlier. With the outlier of 100 it falls to about a tenth of the usual step within 50 updates and needs more than 300 to recover; with the outlier clipped to 1 it stays at the usual step.](figures/spike.svg)
#
# At first the outlier also pushes $m$ in its direction, so the steps are not small at once. But $m$ forgets within some ten updates
# and $v$ within some hundred. Fifty updates later the model learns at 12 % of its usual speed, and after 200
# at less than half. One bad batch has cost about two hundred good ones. With
# PyTorch's default $\beta_2$ = 0.999 the memory is twenty times as long. Clipped, the outlier is one
# gradient like any other.
#
# ## Warm-up
#
# After the first update, $v$ has seen one gradient. Dividing a number by its own size leaves its
# sign, so *every* weight moves by the full rate, whether its gradient is meaningful or the noise of
# one batch. A moment later $v$ is a mean of several gradients, and noise begins to cancel. How fast? We measure the
# size of the steps, in shares of the rate, in the model of the proof. Each batch is random here, so
# nearly all of its gradient is noise.


# %%
def typical_steps(updates):
    """The root mean square of all steps, in shares of the rate."""
    torch.manual_seed(0)
    model = build_language_model(50, **sizes)
    optimizer = Adam(list(model.parameters()), rate=1e-4)
    found = []
    for _ in range(updates):
        before = [w.detach().clone() for w in model.parameters()]
        model.zero_grad()
        model.loss(torch.randint(50, (8, 17))).backward()
        optimizer.step()
        steps = torch.cat(
            [
                (w - b).flatten() / 1e-4
                for w, b in zip(model.parameters(), before)
            ]
        )
        found.append(steps.square().mean().sqrt().item())
    return found


found = typical_steps(100)
for update in (1, 2, 5, 10, 30, 100):
    print(f"update {update:4d}: {found[update - 1]:.2f}")

# %% [markdown]
# The first step has the full size for every weight, by the whole rate. After ten updates, the noise has
# halved the steps, and it continues to. So Adam takes its largest steps when it
# knows least. **Warm-up** makes the rate small for exactly this time. [Liu et al.
# (2019)](https://arxiv.org/abs/1908.03265) derive a correction that does the same without one. There is a
# second reason, the large gradients of a fresh post-norm stack; [chapter 8](08_layer.py) shows it, and the
# schedule of the paper.
#
# ## Half of the bits
#
# A float32 has 24 bits for its digits. A **bfloat16** has 8, and the same range: it is a float32 whose last 16 bits were
# cut off. It needs half of the memory, and special units multiply it many times faster. A **float16** has 11 bits for
# its digits, but a small range. By hand: between 1 and 2, a bfloat16 can only count in steps of
# 1/128 = 0.0078. What is 1 + 0.001?

# %%
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    weight = torch.ones((), dtype=dtype)
    for _ in range(1000):
        weight += torch.tensor(0.001, dtype=dtype)
    tiny = torch.tensor(1e-8).to(dtype).item()
    name = str(dtype).removeprefix("torch.")
    print(f"{name:9s} sum {weight.item():.3f}", end="")
    print(f"   1e-8 becomes {tiny:.0e}")

# %% [markdown]
# In bfloat16, a thousand updates by a thousandth change nothing: each is rounded away. In float16 the
# sum is nearly right, but a gradient of 1e-8 is zero. Hence the recipe of *mixed precision*
# ([Micikevicius et al. 2017](https://arxiv.org/abs/1710.03740)): the **weights and Adam's means stay in float32**, where small
# updates add up, and only the multiplications are done in 16 bits. With float16, the loss is multiplied
# by a large number before the backward pass, and the gradients are divided by it afterwards, so that small ones survive;
# bfloat16 needs no such *loss scaling*. In PyTorch, `autocast` does the conversion:

# %%
torch.manual_seed(0)
batch = torch.randint(50, (8, 17))
model = build_language_model(50, **sizes)
with torch.autocast("cpu", dtype=torch.bfloat16):
    logits = model(batch)
    loss = model.loss(batch)
loss.backward()
weight = model.output.weight
print("logits", logits.dtype, "- weights", weight.dtype)
print("gradient", weight.grad.dtype)
exact = model.loss(batch).item()
print(f"loss {loss.item():.3f}, in float32 {exact:.3f}")

# %% [markdown]
# ## What a step costs
#
# Multiplying a vector of $d$ numbers by a $d \times k$ matrix takes $d \, k$ multiplications and as many additions, $2 d k$ *FLOPs*
# (floating-point operations). So each weight of a matrix costs two FLOPs for each token. The backward pass
# needs two such products, one for the gradient of the input and one for that of the weights: four more. Together, six FLOPs
# for each weight and token, the rule of [Kaplan et al. (2020)](https://arxiv.org/abs/2001.08361).
#
# By hand, for a layer with $d$ = 32 and $f$ = 128 and sequences of 16 tokens, forward, for one token:
#
# | part | FLOPs | |
# | --- | --- | --- |
# | four projections | 4 · 2 · 32 · 32 | 8,192 |
# | scores and weighted sum | 2 · 2 · 16 · 32 | 2,048 |
# | feed-forward network | 2 · 2 · 32 · 128 | 16,384 |
#
# And the memory? Each weight needs four numbers of four bytes: itself, its gradient, $m$ and $v$. Then come the *activations*, all
# results that the backward pass needs again. For each token, a layer keeps about 8 vectors of $d$
# numbers (the input, query, key, value, the output of attention, and what goes into and comes out of the
# normalisations) and one of $f$. The exit keeps the logarithms of the probabilities. Additions, normalisations and the
# softmax are left out of the FLOPs, and small tensors out of the memory. The attention weights are left out, too: a *fused*
# attention does not keep them, but computes them again in the backward pass. One that keeps them needs about $H L$ numbers
# more for each token and layer.


# %% [markdown] tags=["formula"]
# $$C = 3 \, B L \left( n \, (8 d^2 + 4 d f + 4 L d) + 2 d V \right)$$
#
# $$M \approx 16 N + 4 \, B L \left( n \, (8 d + f) + V \right)$$
#
# $C$ in FLOPs and $M$ in bytes of a training step, for $N$ weights, $n$ layers and $B$ sequences of $L$ tokens.


# %% tags=["implementation"]
def flops(batch, length, n, d, f, vocabulary):
    """FLOPs of a training step."""
    layer = 8 * d * d + 4 * d * f + 4 * length * d
    token = n * layer + 2 * d * vocabulary
    return 3 * batch * length * token


def activation_bytes(batch, length, n, d, f, vocabulary):
    """Approximate memory of the activations."""
    token = n * (8 * d + f) + vocabulary
    return 4 * batch * length * token


# %% [markdown]
# PyTorch can count, too. `FlopCounterMode` sees each multiplication of matrices. (It does not look
# into the fused attention of a CPU, so we ask for the plain one, `MATH`.) `saved_tensors_hooks` is told of each tensor that is kept
# for the backward pass; we add up those that are no weights.

# %% tags=["proof"]
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def measured(batch, length, n, d, f, vocabulary):
    """FLOPs and bytes that PyTorch counts; and of Adam's state."""
    model = build_language_model(
        vocabulary,
        num_layers=n,
        d_model=d,
        num_heads=4,
        d_ff=f,
        dropout=0.0,
    )
    tokens = torch.randint(vocabulary, (batch, length + 1))
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        model.loss(tokens).backward()
    weights = list(model.parameters())
    known = {w.untyped_storage().data_ptr() for w in weights}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model.loss(tokens)
    optimizer = torch.optim.Adam(weights)
    loss.backward()
    optimizer.step()
    states = [s for w in weights for s in optimizer.state[w].values()]
    adam = sum(s.nbytes for s in states if s.dim())
    fixed = sum(w.nbytes + w.grad.nbytes for w in weights) + adam
    count = sum(w.numel() for w in weights)
    assert fixed == 16 * count
    return counter.get_total_flops(), sum(kept.values())


print("               MFLOPs         activations, kB")
print("  d   n   by hand counted      by hand counted")
for shape in ((4, 16, 2, 32, 128, 50), (8, 32, 4, 128, 512, 1000)):
    counted, kept = measured(*shape)
    assert counted == flops(*shape)
    about = activation_bytes(*shape)
    assert abs(about / kept - 1) < 0.1
    print(
        f"{shape[3]:3d}{shape[2]:4d}{flops(*shape) / 1e6:10.1f}"
        f"{counted / 1e6:8.1f}{about / 1e3:13.0f}{kept / 1e3:8.0f}"
    )

# %% [markdown]
# The FLOPs agree to the last one, and four numbers for each weight are exactly what PyTorch holds (the
# proof asserts it). The activations are counted within some percent, as small tensors were left out. Read
# the formula for what matters: the weights cost nothing more when the batch grows, the activations grow
# with $B L$. That is why a model that fits into the memory may still not be trained there, and why one
# divides a batch into parts. FLOPs are no seconds, though. Small operations that are limited
# by the memory, and waiting, make a GPU reach a third or half of what it promises.
#
# ## A scaling law
#
# Before a large model is trained, its loss is *predicted*. [Kaplan et al. (2020)](https://arxiv.org/abs/2001.08361)
# found that the loss of language models falls with the number of weights $N$ as a power law. Their law has no floor: it falls
# to zero. [Hoffmann et al. (2022)](https://arxiv.org/abs/2203.15556) added a floor $E$ that no model can go below, since
# language is not completely predictable:
#
# $$L(N) = E + A \, N^{-\alpha}$$
#
# Three unknown numbers need three trained sizes. If each size has 4 times as many weights as the one before, no program
# is needed to fit them. The floor cancels in the differences, and each difference is the same
# fraction $4^{-\alpha}$ of the one before it. By hand, for the losses 3.0, 2.2 and 1.8: the differences are 0.8 and 0.4,
# the fraction is one half, so the next difference should be 0.2, and the fourth loss 1.6. With more
# and more of such steps, the loss approaches the floor of 1.4.
#
# We try it. Language models with vectors of 16, 32 and 64 numbers, two layers each, learn the English side of the
# toy corpus for 500 updates (the mean of three seeds). Then, before it is trained, we
# predict the model with 128. The means hide how much one seed differs from the next, so we also predict from
# one seed of each size, in all 27 combinations.

# %%
import math
import re
import sys
from itertools import product

sys.path.insert(0, "../../examples")

from transformer_blocks import PreNorm
from translation.toy import toy_corpus


def sentences_as_ids(pairs, ids):
    """The English sentences as a tensor (B, L), padded with 0."""
    rows = [
        [1, *(ids[word] for word in split(english)), 2]
        for _, english in pairs
    ]
    longest = max(map(len, rows))
    return torch.tensor([r + [0] * (longest - len(r)) for r in rows])


def split(sentence):
    return re.findall(r"[\w']+|[^\w\s]", sentence.lower())


def train_size(d, seed, updates=500):
    """Train a language model; return its size and loss."""
    corpus = toy_corpus()
    words = sorted(
        {word for _, text in corpus["train"] for word in split(text)}
    )
    ids = {word: number for number, word in enumerate(words, 3)}
    ordered = sorted(corpus["train"], key=lambda p: len(split(p[1])))
    batches = [
        sentences_as_ids(ordered[i : i + 64], ids)
        for i in range(0, len(ordered), 64)
    ]
    torch.manual_seed(seed)
    model = build_language_model(
        len(ids) + 3,
        num_layers=2,
        d_model=d,
        num_heads=4,
        d_ff=4 * d,
        residual=PreNorm,
        padding_id=0,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min((s + 1) / 50, (updates - s) / (updates - 50)),
    )
    for _ in range(updates):
        loss = model.loss(batches[torch.randint(len(batches), ())])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
    validation = sentences_as_ids(corpus["validation"], ids)
    with torch.no_grad():
        loss = model.eval().loss(validation).item()
    weights = sum(w.numel() for w in model.decoder.parameters())
    return weights, loss


def predict_next(first, second, third):
    """The fourth loss, if the differences shrink by one factor."""
    factor = (second - third) / (first - second)
    return third - factor * (second - third)


def floor_of(first, second, third):
    """The loss of an infinitely large model."""
    factor = (second - third) / (first - second)
    return third - (second - third) * factor / (1 - factor)


losses = 3.0, 2.2, 1.8
print(f"fourth {predict_next(*losses):.2f}", end="  ")
print(f"floor {floor_of(*losses):.2f}")

# %% [markdown]
# The rate rises for 50 updates and then falls in a straight line to zero. This is important:
# a model that was measured in the middle of its schedule says little about its end.


# %% tags=["recorded"]
def train_seeds(d):
    found = [train_size(d, seed) for seed in (0, 1, 2)]
    losses = [loss for _, loss in found]
    print(f"{d:3d}{found[0][0]:10,d}", end="")
    print(f"{sum(losses) / 3:9.3f}{max(losses) - min(losses):10.3f}")
    return losses


print("  d   weights     loss  of seeds")
trained = [train_seeds(d) for d in (16, 32, 64)]
means = [sum(losses) / 3 for losses in trained]
guess = predict_next(*means)
print(f"prediction for 128: {guess:.3f}", end="")
print(f"  (floor {floor_of(*means):.3f})")
guesses = [predict_next(*losses) for losses in product(*trained)]
print(f"one seed for each size: {min(guesses):.3f}", end="")
print(f" to {max(guesses):.3f}")

# %% tags=["recorded"]
actual = sum(train_seeds(128)) / 3
print(f"predicted {guess:.3f}, error {guess - actual:+.3f}")

# %% [markdown]
# ![Validation loss against the number of weights of the layers, both for four models. A curve goes through the first three, at 3.15, 2.38 and 1.92, towards a floor. The fourth, trained afterwards with three seeds, lies above the curve.](figures/scaling.svg)
#
# The prediction was 1.643, and the trained model reaches 1.731. The error is 0.088, or 5 %. Is that good? The last step
# improved the loss by 0.19 and we had promised 0.27, so the law was right about the direction and too
# optimistic about the size. Is it bad luck? The three seeds of the large model differ by 0.019 only, but those of the small
# ones by up to 0.073, and the prediction magnifies their differences: from one seed of each size, it would have been between
# 1.552 and 1.715. The trained model lies above all 27 of these predictions, so luck alone is an unlikely reason, though
# three seeds cannot exclude it. There is another one. A power law holds when nothing but the size is the limit. Here all four models had the same 500 updates and
# the same rate, and a larger model could have used more updates and a rate of its own. Hoffmann et al. found
# just this mistake in the first laws for language models: with a schedule that fits each size,
# the best models became four times smaller and were trained on four times as much text. So write a prediction
# down *before* the training, as we did. It costs nothing, and it is the only way to find out that one
# has misunderstood something.
#
# ## Broken on purpose
#
# **Accumulated gradients.** A batch that is too large for the memory is divided into parts, whose gradients are
# added up before the optimiser steps. It is easily forgotten that `backward` *adds* to `grad`: without
# `zero_grad`, each update contains all earlier gradients. With Adam, nothing looks wrong: the steps have their
# usual size, since the unit cancels. Predict what the loss does.


# %% tags=["broken"]
def train(is_forgotten, updates=150):
    torch.manual_seed(0)
    model = build_language_model(50, **sizes)
    optimizer = Adam(list(model.parameters()), rate=3e-3)
    losses, starts = [], torch.arange(64)[:, None]
    for update in range(updates):
        steps = torch.randint(1, 4, (64, 1))  # counting by 1, 2 or 3
        batch = (starts + steps * torch.arange(10)) % 50
        if update == 0 or not is_forgotten:
            model.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


right, forgotten = train(False), train(True)
print("update   right   forgotten")
for update in (1, 25, 50, 100, 150):
    first, second = right[update - 1], forgotten[update - 1]
    print(f"{update:6d}{first:8.2f}{second:12.2f}")

# %% [markdown]
# For some 50 updates the forgotten one learns, too, only more slowly, and one could blame the rate. Then it becomes worse than
# it was. Its gradient is the sum of all gradients since the beginning, so that it continues in
# the direction of the past for as long as it has come. There is no error and no overflow. A check for it takes one line: after a
# step, compute the gradient of the *same* batch twice. If the second is twice the first, something
# is being added up. {func}`~transformer_blocks.inspection.check_soundness` and
# [chapter 12](12_train.py) have more checks of this kind.
#
# ## Exercises
#
# ### Exercise 1: clip
#
# *Easy, about 10 minutes.*
#
# Change the gradients of some weights in place, so that the norm of all of them together is at most `limit`.
# Return the norm before. If it is below the limit, nothing changes.
#
# <details><summary>Hint</summary>
#
# The square of the common norm is the sum of the squares of the single norms.
#
# </details>


# %% tags=["stub"]
def clip(weights, limit):
    for weight in weights:
        weight.grad.clamp_(-limit, limit)
    return 0.0


# %% tags=["check"]
def with_gradients(*gradients):
    weights = [
        torch.zeros(len(g), requires_grad=True) for g in gradients
    ]
    for weight, gradient in zip(weights, gradients):
        weight.grad = torch.tensor(gradient)
    return weights


weights = with_gradients([3.0, 0.0], [4.0])
norm = float(clip(weights, 1.0))
assert abs(norm - 5) < 1e-5, f"{norm}: one norm of all gradients"
found = [weights[0].grad[0].item(), weights[1].grad.item()]
assert abs(found[0] - 0.6) < 1e-5, f"3 / 5, not {found[0]:.3f}"
assert abs(found[1] - 0.8) < 1e-5, f"4 / 5, not {found[1]:.3f}"
weights = with_gradients([0.3], [0.4])
norm = float(clip(weights, 1.0))
assert abs(norm - 0.5) < 1e-5, f"{norm}: the norm before clipping"
assert abs(weights[0].grad.item() - 0.3) < 1e-6, "below the limit"


# %% tags=["solution"]
def clip(weights, limit):
    squares = sum(weight.grad.square().sum() for weight in weights)
    norm = squares.sqrt()
    if norm > limit:
        for weight in weights:
            weight.grad.mul_(limit / norm)
    return norm


# %% [markdown]
# ### Exercise 2: plan a training
#
# *Easy, about 10 minutes.*
#
# Return the number of days that a training takes: a model of `weights` weights learns `tokens` tokens on
# `devices` GPUs, each of which can do `peak` FLOPs per second, of which a share `utilisation` is used.
# Use the rule of six. (The check tries it on the paper's base model: 100,000 updates with 25,000 source and 25,000
# target tokens each, on eight GPUs. They took 12 hours.)
#
# <details><summary>Hint</summary>
#
# Six FLOPs for each weight and token, divided by what all GPUs really do in a
# second. A day has 86,400 seconds.
#
# </details>


# %% tags=["stub"]
def days(weights, tokens, devices, peak, utilisation):
    return 2 * weights * tokens / (devices * peak) / 86_400


# %% tags=["check"]
# Source tokens meet the encoder, target tokens decoder and output:
# one token of each together meets every weight once.
paper = days(63e6, 100_000 * 25_000, 8, 9.5e12, 0.3)
assert abs(paper - 0.48) < 0.01, "forward and backward? utilisation?"
found = days(1e9, 2e10, 8, 1e15, 0.4)
assert abs(found - 0.434) < 0.001, f"{found}: 6 operations a weight"
faster = days(1e9, 2e10, 16, 1e15, 0.4)
assert faster < found, "twice as many devices take half the time"


# %% tags=["solution"]
def days(weights, tokens, devices, peak, utilisation):
    seconds = 6 * weights * tokens / (devices * peak * utilisation)
    return seconds / 86_400


# %% [markdown]
# ### Exercise 3: the exponent
#
# *Medium, about 15 minutes.*
#
# Return $\alpha$ and $A$ of the law $L(N) = E + A N^{-\alpha}$ for three sizes, each `ratio` times the one before. `size` is
# the first, and `losses` are the three losses.
#
# <details><summary>Hint</summary>
#
# The fraction between the differences is `ratio ** -alpha`. With $\alpha$ and the floor, $A$ follows from the first loss.
#
# </details>


# %% tags=["stub"]
def fit_law(size, ratio, losses):
    first, second, third = losses
    alpha = (second - third) / (first - second)
    return alpha, first - floor_of(*losses)


# %% tags=["check"]
for truth in ((0.5, 30.0, 1.0), (0.34, 400.0, 1.7)):
    alpha, scale, floor = truth
    losses = [floor + scale * n**-alpha for n in (1e3, 4e3, 1.6e4)]
    found = fit_law(1e3, 4, losses)
    assert abs(found[0] - alpha) < 1e-6, found
    assert abs(found[1] / scale - 1) < 1e-4, found


# %% tags=["solution"]
def fit_law(size, ratio, losses):
    first, second, third = losses
    factor = (second - third) / (first - second)
    alpha = -math.log(factor) / math.log(ratio)
    return alpha, (first - floor_of(*losses)) * size**alpha


# %% [markdown]
# ## What you can do now
#
# You can compute an update of Adam with a pencil, say what clipping and warm-up protect from, and where 16 bits are enough. You
# can count the FLOPs and the memory of a training before it starts, and predict a loss from smaller models, with due
# mistrust.
#
# ## Where to go
#
# - The learning-rate schedule of the paper, and depth: [chapter 8](08_layer.py).
# - Weight decay that is not disturbed by the division, AdamW:
#   [Loshchilov and Hutter 2017](https://arxiv.org/abs/1711.05101).
# - What a training of this project costs and reaches: [results](../results.md), [benchmarks](../benchmarks.md).
