# %% [markdown]
# # 15 Optimiser and stability
#
# **What happens between a gradient and a better model?**
#
# In [chapter 14](14_train.ipynb), one line called `optimizer.step()`
# and nothing went wrong. In a long training, much does: a single odd batch ruins a week of work, or the numbers
# overflow. Most advice about it is folklore. But an update is only arithmetic on each weight.
#
# ## By hand: two updates of Adam
#
# Gradient descent subtracts the gradient $g$, multiplied by a learning rate. Its weakness is the unit of
# the gradient: if the loss is multiplied by 1,000, so are all steps. Adam
# ([Kingma and Ba 2014](https://arxiv.org/abs/1412.6980)) keeps two running means for each weight: $m$ of the
# gradient and $v$ of its square. It goes against the direction of $m$, divided by the root of $v$, the usual size of
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
# Both means begin at 0, which makes them too small at first. The *correction* divides by the share of the mean
# that gradients fill so far, $1 - \beta^t$: 0.1 after one update, 0.19 after two. The rest is still the zero of the start. See the first step: it is the
# learning rate itself. Whatever the gradient is, 2 or 0.0002, each weight moves by the full rate against its
# direction. The second step is small, because the two gradients disagree. That is the idea of Adam in a
# sentence: *the step is large where the gradients agree with each other.*
#
# ![Two maps of a loss with two weights and the paths of 40 updates from the same place. Left, both weights count alike: gradient descent goes straight to the minimum, Adam in a curve around it. Right, the second weight counts 20 times as much: gradient descent jumps over the minimum at every update, while Adam's path is exactly that of the left map.](figures/adam.svg)
#
# In the figure, the gradient of one weight is made 20 times as large. With the same rate, gradient descent now jumps over the minimum at every update. A slightly larger rate would throw it out, a smaller one would make it crawl along weight 1. Adam's path does not change at all.
# That holds only since the valley lies along an axis, for Adam has one $v$ for each weight: with both maps turned by 45 degrees, its paths would differ.

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
# one batch. A moment later $m$ is a mean of several gradients, in which noise begins to cancel, while nothing cancels in $v$, a mean of squares. How fast? We measure the
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
# The first step has the full size for every weight, by the whole rate. After five updates the steps are half as large (0.52), after ten 0.39, and they go on shrinking. So Adam takes its largest steps when it
# knows least. **Warm-up** makes the rate small for this time, and usually for much longer. [Liu et al.
# (2019)](https://arxiv.org/abs/1908.03265) derive a correction that does the same without one. There is a
# second reason, the large gradients of a fresh post-norm stack; [chapter 9](09_layer.ipynb) shows it, and the
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
# ## Broken on purpose
#
# **Accumulated gradients.** A batch that is too large for the memory is divided into parts, whose gradients are
# added up before the optimiser steps. It is easily forgotten that `backward` *adds* to `grad`: without
# `zero_grad`, each update contains all earlier gradients. With Adam, nothing looks wrong: however large
# the sum becomes, no step is much larger than usual, since the unit cancels. Predict what the loss does.


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
# it was. Its gradient is the sum of all gradients since the beginning. The old gradients outweigh
# the new ones: to turn around, it needs about as many updates as it has made. There is no error and no overflow. A check for it takes a few lines: run the code that computes the gradients
# twice, on the same batch with the same weights and without dropout. If the gradients differ, something is being added up. [`check_soundness`](../reference/tools/inspection.md#check_soundness) and
# [chapter 14](14_train.ipynb) have more checks of this kind.
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
# ### Exercise 2: weight decay
#
# *Medium, about 20 minutes.*
#
# *AdamW* ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1711.05101)) also subtracts rate · `decay` · $w$ from each weight. If one adds `decay` · $w$ to the gradient instead, Adam divides it by the root of $v$, and weights
# with large gradients hardly shrink. Change `weight` in place, for the update number `t`.
#
# <details><summary>Hint</summary>
#
# The decay comes before the step, and neither $m$ nor $v$ knows about it.
#
# </details>


# %% tags=["stub"]
@torch.no_grad()
def adamw(weight, m, v, t, rate, decay, betas=(0.9, 0.98)):
    gradient = weight.grad + decay * weight
    m.mul_(betas[0]).add_((1 - betas[0]) * gradient)
    v.mul_(betas[1]).add_((1 - betas[1]) * gradient**2)
    root = (v / (1 - betas[1] ** t)).sqrt() + 1e-9
    weight -= rate * m / (1 - betas[0] ** t) / root


# %% tags=["check"]
torch.manual_seed(0)
start = torch.randn(5, dtype=torch.float64)
mine, theirs = start.clone().requires_grad_(), start.clone()
theirs.requires_grad_()
optimizer = torch.optim.AdamW(
    [theirs], lr=0.1, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.3
)
m, v = torch.zeros_like(start), torch.zeros_like(start)
for t in (1, 2, 3):
    theirs.grad = torch.randn(5, dtype=torch.float64)
    mine.grad = theirs.grad.clone()
    adamw(mine, m, v, t, 0.1, 0.3)
    optimizer.step()
    error = (mine - theirs).abs().max().item()
    assert error < 1e-6, f"update {t}: {error:.2g} from AdamW"


# %% tags=["solution"]
@torch.no_grad()
def adamw(weight, m, v, t, rate, decay, betas=(0.9, 0.98)):
    m.mul_(betas[0]).add_((1 - betas[0]) * weight.grad)
    v.mul_(betas[1]).add_((1 - betas[1]) * weight.grad**2)
    root = (v / (1 - betas[1] ** t)).sqrt() + 1e-9
    weight *= 1 - rate * decay
    weight -= rate * m / (1 - betas[0] ** t) / root


# %% [markdown]
# ### Exercise 3: the scale of the loss
#
# *Medium, about 15 minutes.*
#
# Return the largest power of two by which the loss can be multiplied without an overflow of any gradient in
# float16, whose largest number is 65,504. `gradients` is a list of tensors, in float32, of the loss as it is. The power can be negative.
#
# <details><summary>Hint</summary>
#
# All gradients are multiplied by the same number as the loss. The logarithm to the base 2, rounded down, gives a power of two.
#
# </details>


# %% tags=["stub"]
def loss_scale(gradients):
    return 2.0**16


# %% tags=["check"]
for largest in (3.0, -1e-4, 65504.0, -65525.0, 1e6):
    gradients = [torch.full((9,), largest / 3), torch.tensor([largest])]
    scale = loss_scale(gradients)
    half = [(gradient * scale).half() for gradient in gradients]
    fits = all(each.isfinite().all() for each in half)
    assert fits, f"{largest:g} times {scale:g} overflows"
    again = gradients[1].item() * scale * 2
    assert abs(again) > 65504, f"{largest:g}: twice {scale:g} fits, too"


# %% tags=["solution"]
def loss_scale(gradients):
    largest = max(each.abs().max().item() for each in gradients)
    return 2.0 ** int(torch.tensor(65504.0 / largest).log2().floor())


# %% [markdown]
# ## What you can do now
#
# You can compute an update of Adam with a pencil, say what clipping and warm-up protect from, and where 16 bits are enough.
#
# ## Where to go
#
# - How a trained model chooses its words: [chapter 16](16_choose_words.ipynb).
# - The learning-rate schedule of the paper, and depth: [chapter 9](09_layer.ipynb).
# - What a step costs, and what a larger model would reach: [chapter 19](19_costs.ipynb).
