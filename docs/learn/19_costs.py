# %% [markdown]
# # 19 What a training costs
#
# **How long will a training take, how much memory will it need, and can one know beforehand what a larger model will
# reach?**
#
# People who train large models answer all three before they begin, because they can afford to begin
# only once. The first two can be counted on paper, to the last multiplication. The third needs a few small trainings.
#
# ## By hand: what a step costs
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
# attention does not keep them, but computes them again in the backward pass. Without it, about $H L$ numbers more are kept for each token and layer.


# %%
import torch

from transformer_blocks import build_language_model

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
# divides a batch into parts. FLOPs are no seconds, though. Small operations that are limited by the memory, and waiting, often leave less than half of what the hardware promises (46 % in the training of PaLM, [Chowdhery et al. 2022](https://arxiv.org/abs/2204.02311)). And at its
# peak, a step needs some more memory than is kept: the gradient of the logits, for example.
#
# A translator is counted in the same way. A source token meets the encoder, a target token meets the decoder, whose layers
# have a second attention: its queries and its output are projected for each target token, its keys and values for each source token
# (exercise 1). So one source and one target token together meet each weight about once.
#
# ## A scaling law
#
# Before a large model is trained, its loss is *predicted*. [Kaplan et al. (2020)](https://arxiv.org/abs/2001.08361)
# found that the loss of language models falls with the number of weights $N$ as a power law. Their law has no floor: it falls
# to zero. [Hoffmann et al. (2022)](https://arxiv.org/abs/2203.15556) added a floor $E$ that no model can go below, since language is not completely predictable. ($N$ counts the weights of the layers, without the table of embeddings. A third term of their law falls with the amount of text, which is the same for
# all sizes here, and so belongs to $E$.)
#
# $$L(N) = E + A \, N^{-\alpha}$$
#
# Three unknown numbers need three trained sizes. If each size has about 4 times as many weights as the one before, no program is needed to fit them. The floor cancels in
# the differences of the losses; each is the previous one times $4^{-\alpha}$. By hand, for the losses 3.0, 2.2 and 1.8: the differences are 0.8 and 0.4,
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
# the same rate, and a larger model could have used more updates and a rate of its own. (Hoffmann et al. name such a limit, a schedule that did not end with the training, as a reason why earlier laws had recommended
# models that were too large.) So write a prediction down *before* the training, as we did. It costs nothing, and it shows when
# one has misunderstood something.
#
# ## Broken on purpose
#
# Above, the FLOPs were counted with `MATH`, the plain attention. Without it, `FlopCounterMode` raises no error and prints a number. Predict
# for which lengths this number is wrong, and by how much.


# %% tags=["broken"]
def counted(length):
    """FLOPs of a forward pass, as counted without MATH."""
    model = build_language_model(
        50, num_layers=2, d_model=32, num_heads=4, d_ff=128
    ).eval()
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(torch.randint(50, (1, length)))
    return counter.get_total_flops()


print("length   by hand   counted   missing")
for length in (16, 64, 256, 1024):
    right = flops(1, length, 2, 32, 128, 50) // 3  # forward only
    found = counted(length)
    print(f"{length:6d}{right / 1e6:10.2f}{found / 1e6:10.2f}", end="")
    print(f"{1 - found / right:10.0%}")

# %% [markdown]
# The counter knows the matrix products, and not the fused attention of a CPU: it counts $4 L d$ FLOPs a token and layer as zero.
# For short sequences nobody notices. For 1,024 tokens it is most of the work. A number that a tool prints is
# not yet a measurement: compare it once with a count by hand, at a size at which the parts differ.
#
# ## Exercises
#
# ### Exercise 1: a decoder's layer
#
# *Medium, about 20 minutes.*
#
# Return the FLOPs of a forward pass of a layer of the paper's decoder, for one sequence of `target` tokens that reads `source`
# tokens. Both attentions have heads of d / H numbers; nothing is saved by the causal mask.
#
# <details><summary>Hint</summary>
#
# Each attention has four projections. In cross-attention, two of them are of the source. Its scores are a table of
# `target` × `source`.
#
# </details>


# %% tags=["stub"]
def decoder_layer_flops(target, source, d, f):
    return target * (8 * d * d + 4 * d * f + 4 * target * d)


# %% tags=["check"]
from transformer_blocks import build_decoder

decoder = build_decoder(num_layers=1, d_model=16, num_heads=4, d_ff=24)
for target, source in ((5, 5), (3, 11), (9, 2)):
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        decoder.eval()(
            torch.randn(1, target, 16), torch.randn(1, source, 16)
        )
    exact = counter.get_total_flops()
    found = decoder_layer_flops(target, source, 16, 24)
    assert found == exact, f"{found} for {exact}: {target} of {source}"


# %% tags=["solution"]
def decoder_layer_flops(target, source, d, f):
    self_attention = target * (8 * d * d + 4 * target * d)
    cross = 4 * d * d * (target + source) + 4 * target * source * d
    return self_attention + cross + 4 * target * d * f


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
assert abs(faster / found - 0.5) < 1e-6, "half, with twice the devices"


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
for size, ratio, alpha, scale, floor in (
    (1e3, 4, 0.5, 30.0, 1.0),
    (2e4, 2, 0.34, 400.0, 1.7),
):
    sizes = [size * ratio**step for step in range(3)]
    losses = [floor + scale * n**-alpha for n in sizes]
    found = fit_law(size, ratio, losses)
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
# You can count the FLOPs and the memory of a training before it starts, and predict a loss from smaller models, with due
# mistrust.
#
# ## Where to go
#
# - The largest term for long texts is attention: [chapter 20](20_without_the_matrix.ipynb).
# - What a training of this project costs and reaches: [results](../results.md), [benchmarks](../benchmarks.md).
