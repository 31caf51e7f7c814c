# %% [markdown]
# # 16 Choose words
#
# **A model gives a probability to every token. Which one should be written?**
#
# A trained model answers one question: given the source and the tokens so far,
# how probable is each token as the next? A translation needs a decision at every
# step, and each decision changes the next question. This chapter decides
# by greedy search, by beam search and by sampling. Then it makes them fast, with a
# cache and with a small model that guesses.
#
# ## By hand: the garden path
#
# The following model has a vocabulary of six tokens, and its next token depends
# on the last one only. The table shows the probabilities of the next token.
#
# | last token | a | the | cat | dog | bird | end |
# | --- | --- | --- | --- | --- | --- | --- |
# | (start) | 0.6 | 0.4 | 0 | 0 | 0 | 0 |
# | a | 0 | 0 | 0.4 | 0.3 | 0.3 | 0 |
# | the | 0 | 0 | 0.9 | 0.1 | 0 | 0 |
# | cat, dog, bird | 0 | 0 | 0 | 0 | 0 | 1 |
#
# **Greedy decoding** takes the most probable token at each step: first *a* (0.6),
# then *cat* (0.4). The probability of the sequence is 0.6 · 0.4 = 0.24. But
# *the cat* has 0.4 · 0.9 = 0.36. The best first step does not lead to the best
# sequence, as a pleasant garden path may lead away from the house.
#
# To be certain of the best sequence, one would have to compute the probabilities of
# all: with 37,000 tokens and ten steps, there are $37000^{10}$. **Beam search** is a
# compromise: it keeps the $K$ best prefixes, called *hypotheses*, and extends all of them. With $K = 2$:
#
# | step | candidates | kept |
# | --- | --- | --- |
# | 1 | a 0.6, the 0.4 | both |
# | 2 | a cat 0.24, a dog 0.18, a bird 0.18, the cat 0.36, the dog 0.04 | the cat 0.36, a cat 0.24 |
# | 3 | the cat (end) 0.36, a cat (end) 0.24 | finished |
#
# ![A tree of the hypotheses: the start leads to a with 0.6 and the with 0.4; a leads to cat 0.24, dog 0.18 and bird 0.18, the leads to cat 0.36 and dog 0.04. Beam search keeps the cat and a cat; greedy decoding follows a and cat only.](figures/beam_tree.svg)
#
# <!-- widget: beam -->
#
# ![A tree of the hypotheses of beam search with two beams, as in the figure above.](figures/beam_tree.svg)
#
# ## The formula and the code
#
# Products of many probabilities become too small for floating-point numbers.
# Therefore one adds logarithms. The score of a hypothesis is

# %% [markdown] tags=["formula"]
# $$s(y_1 \dots y_t) = \sum_{i=1}^{t} \ln p(y_i \mid y_1 \dots y_{i-1})$$
#
# $$C_t = \{\, (h, v) : h \in B_{t-1},\; v \in \text{vocabulary} \,\}$$
#
# $$B_t = \text{the } K \text{ best } (h, v) \in C_t \text{ with } v \neq \text{end}$$
#
# A candidate of $C_t$ that ends with the end token is finished if it is among the $K$ best of all. It
# leaves the beam, and the next best candidate takes its place.

# %% tags=["implementation"]
def search(log_p, start, beam_size, max_length):
    """Return finished (score, tokens), best first."""
    beams, finished = [(0.0, [start])], []
    for _ in range(max_length):
        found = [
            (score + each, [*tokens, token])
            for score, tokens in beams
            for token, each in enumerate(log_p(tokens))
        ]
        found.sort(reverse=True)
        kept = found[:beam_size]
        finished += [h for h in kept if h[1][-1] == END]
        beams = [h for h in found if h[1][-1] != END]
        del beams[beam_size:]
    return sorted(finished, reverse=True)


# %%
import torch

END, A, THE, CAT, DOG, BIRD = range(6)  # END also starts a sequence
words = ["(end)", "a", "the", "cat", "dog", "bird"]
table = torch.zeros(6, 6)
table[END, A], table[END, THE] = 0.6, 0.4
table[A, CAT], table[A, DOG], table[A, BIRD] = 0.4, 0.3, 0.3
table[THE, CAT], table[THE, DOG] = 0.9, 0.1
table[[CAT, DOG, BIRD], END] = 1.0


def log_p(tokens):
    """Log-probabilities of the next token."""
    return table[tokens[-1]].log().tolist()


for beam_size in (1, 2):
    (score, tokens), *_ = search(log_p, END, beam_size, max_length=4)
    text = " ".join(words[token] for token in tokens[1:-1])
    probability = torch.tensor(score).exp()
    print(f"beam size {beam_size}: {text}, {probability:.2f}")

# %% [markdown]
# With one beam, beam search is greedy decoding.
#
# ## The same, by the library
#
# [`beam_search`](../reference/tools/generation.md#beam_search) works for any model with two methods.
# `step` receives the last token of each hypothesis and returns the logits of the
# next one. `reorder` tells the model which hypotheses have survived, so that it
# can reorder what it remembers of them. Our table remembers nothing.
#
# The proof compares both on 20 random tables. The library searches until no
# better hypothesis can appear (`lookahead`), without a length penalty.

# %% tags=["proof"]
from transformer_blocks import beam_search


class TableModel:
    """A model whose next token depends on the last one only."""

    def __init__(self, table):
        self.table = table

    def step(self, tokens):
        return self.table[tokens].log()

    def reorder(self, rows):
        pass


torch.manual_seed(0)
for _ in range(20):
    table = torch.rand(6, 6).pow(4)
    table[:, END] += 0.3  # some hypotheses end
    table /= table.sum(dim=1, keepdim=True)
    (ours, tokens), *_ = search(log_p, END, 3, max_length=6)
    ((theirs, *_),) = beam_search(
        TableModel(table),
        torch.tensor([END]),
        beam_size=3,
        end_id=END,
        max_length=6,
        length_penalty=0.0,
        lookahead=6,
    )
    assert tokens[1:-1] == theirs.tokens
    assert abs(ours - theirs.score) < 1e-4
print("20 searches are equal")

# %% [markdown]
# ## Longer is less probable
#
# Each token multiplies the probability by a number below 1. Beam search
# therefore prefers short translations.
# The paper (section 6.1) divides the score by a *length penalty*, which grows
# with the length $n$ of the hypothesis:
#
# $$\mathrm{lp}(n) = \left( \frac{5 + n}{6} \right)^{\alpha}, \qquad \alpha = 0.6$$
#
# (the formula is from [Wu et al. 2016](https://arxiv.org/abs/1609.08144)). By
# hand, for a short hypothesis A and a longer one B:
#
# | | length | score | α = 0 | α = 0.6 | α = 1 |
# | --- | --- | --- | --- | --- | --- |
# | A | 3 | -1.2 | -1.2 | -1.2 / 1.19 = -1.01 | -1.2 / 1.33 = -0.90 |
# | B | 6 | -1.5 | -1.5 | -1.5 / 1.44 = -1.04 | -1.5 / 1.83 = -0.82 |
#
# The larger score wins: A without a penalty and with 0.6, B with 1. The scores
# are negative, so dividing by a larger number makes them *larger*. A wrong sign
# here rewards short translations instead, without any error.
#
# ## When there is no single answer: sampling
#
# A translation has few good answers. A story has many, and the most probable one
# is dull. **Sampling** draws the next token at random with the model's
# probabilities. Three options bound the risk:
#
# - *temperature* $T$: the logits are divided by $T$ before the softmax. Below 1
#   the probable tokens become more probable; near 0 sampling becomes greedy.
# - *top-k* ([Fan et al. 2018](https://arxiv.org/abs/1805.04833)): draw from the $k$ most
#   probable tokens only.
# - *top-p* (nucleus, [Holtzman et al. 2019](https://arxiv.org/abs/1904.09751)): draw from the smallest set of most probable tokens whose
#   probabilities sum to at least $p$. The set is small where the model is
#   certain, and large where it is not.
#
# <!-- widget: nucleus -->
#
# ![The probabilities of the twelve most probable words after "to" in the toy corpus: the 0.36, school 0.08 and others below 0.05. Top-p of 0.5 keeps the first four and leaves out the rest, which are hatched.](figures/nucleus.svg)
#
# (The widget knows the twelve most probable words after *to*, and treats them as
# if there were no others.)
#
# As a model, we count which word follows which in 4,000 English sentences of the
# toy corpus. (Such a *bigram* model is what a table of probabilities is good
# for. [Chapter 21](21_since_2017.ipynb) has a better one.)

# %%
import sys
from collections import Counter
from itertools import pairwise

sys.path.insert(0, "../../examples")
from transformer_blocks import greedy_search, sample
from translation.toy import toy_corpus

pairs = Counter()
for _, english in toy_corpus()["train"][:4000]:
    tokens = english.replace(".", " .").replace("?", " ?").split()
    pairs.update(pairwise(["(end)", *tokens, "(end)"]))
words = [
    "(end)",
    *sorted({word for pair in pairs for word in pair})[1:],
]
index = {word: number for number, word in enumerate(words)}
table = torch.zeros(len(words), len(words))
for (first, second), count in pairs.items():
    table[index[first], index[second]] = count
table /= table.sum(dim=1, keepdim=True)
bigrams = TableModel(table)


def text_of(generation):
    return " ".join(words[token] for token in generation.tokens)


start = torch.zeros(1000, dtype=torch.int64)
options = {"end_id": 0, "max_length": 12}
(greedy,) = greedy_search(bigrams, start[:1], **options)
print("greedy:", text_of(greedy))
for temperature in (0.3, 1.0, 2.0):
    samples = sample(
        bigrams,
        start,
        temperature=temperature,
        generator=torch.Generator().manual_seed(1),
        **options,
    )
    sentences = [text_of(each) for each in samples]
    print(f"temperature {temperature}:", len(set(sentences)), "of 1000")
    for sentence in sentences[:3]:
        print("  " + sentence[:46])

# %% [markdown]
# The number after the temperature is that of the *different* sentences in 1,000
# samples. The greedy sentence is the same every time. At the temperature 0.3, more than
# half of the samples repeat another one, and many resemble the greedy sentence. At 1 and
# 2, almost every sample is a sentence of its own. Few of them make sense, at any
# temperature: a bigram model forgets everything but the last word.
#
# ## Fast: keys and values are computed once
#
# Generating $n$ tokens in the naive way runs the decoder on 1, 2, ... $n$ tokens,
# $n (n + 1) / 2$ in all. But causal self-attention guarantees that earlier
# positions do not change when a token is appended ([chapter 5](05_masks.ipynb)).
# Their keys and values can be kept. This *KV cache* reduces the work to $n$
# tokens, each of which attends to the stored keys.
#
# For 20 tokens: 20 · 21 / 2 = 210 tokens without the cache, 20 with it.
#
# ![Left, without a cache: at each step all tokens so far are computed again, a triangle of cells. Right, with a cache: only the newest token of each step is computed, and the keys and values of the others are read from the cache.](figures/cache.svg)

# %%
from transformer_blocks import (
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
)
from transformer_blocks.generation import IncrementalDecoder

torch.manual_seed(0)
embedding = TokenEmbedding(50, 32)
positions = SinusoidalPositionalEncoding(32)
decoder_only = build_encoder(
    num_layers=2, d_model=32, num_heads=4, d_ff=64
).eval()


def full_pass(tokens):
    """Logits at all positions: (B, L) to (B, L, vocabulary)."""
    x = decoder_only(positions(embedding(tokens)), causal=True)
    return x @ embedding.weight.T


def with_cache(batch_size=2):
    """The same model, one token at a time."""
    return IncrementalDecoder(
        decoder_only,
        decoder_only.new_cache(),
        embed=lambda tokens, offset: positions(
            embedding(tokens), offset=offset
        ),
        output=lambda x: x @ embedding.weight.T,
    )


tokens = torch.randint(50, (2, 20))
with torch.no_grad():
    expected = full_pass(tokens)
    model = with_cache()
    steps = torch.stack([model.step(column) for column in tokens.T], 1)
print(f"largest difference: {(steps - expected).abs().max():.0e}")

# %% [markdown]
# Both ways give the same logits, up to rounding.
#
# ## Fast: a small model proposes, the large one decides
#
# A step of a large model takes about as long for five tokens as for one, for few sequences at once, because it must read all its weights either way.
# But the five tokens must be known. In *speculative decoding* ([Leviathan et al.
# 2022](https://arxiv.org/abs/2211.17192)) a small, quick model guesses them, one after another. Then the large
# model computes the probabilities at all five positions in one pass, and keeps the guesses up to the first that it rejects.
#
# When may it keep a guess, if its samples must be *exactly* as probable as without the small model? Let $p$ be the probabilities of the
# large model and $q$ those of the small one. A guess $x$ is kept with the probability $p(x) / q(x)$, and always if that is
# above 1. In place of a rejected guess, a token is drawn from what $p$ has more than $q$. By hand, for three tokens:
#
# ![Three columns of blocks, one block for each tenth of the probability. Of the small model, A has 7, B has 2 and C has 1. Two blocks of A are more than the large model has. They move, one to B and one to C: then the columns have 5, 3 and 2, as the large model.](figures/speculative.svg)
#
# | | A | B | C | sum |
# | --- | --- | --- | --- | --- |
# | q, the small model | 0.7 | 0.2 | 0.1 | 1 |
# | p, the large model | 0.5 | 0.3 | 0.2 | 1 |
# | kept if guessed | 0.5 / 0.7 | always | always | |
# | guessed and kept: min(p, q) | 0.5 | 0.2 | 0.1 | 0.8 |
# | p has more: max(p − q, 0) | 0 | 0.1 | 0.1 | 0.2 |
# | both together | 0.5 | 0.3 | 0.2 | 1 |
#
# A guess is rejected in 0.2 of the cases. Then B and C are drawn with one half each, which adds 0.1 to both. The last row is $p$: that is the
# whole proof, since $\min(p, q) + \max(p - q, 0) = p$ for every token. A guess is kept in 0.8 of the cases: the more $p$ and $q$ overlap, the more often.

# %% [markdown] tags=["formula"]
# $$\text{keep } x \sim q \text{ with probability } \min\!\left(1, \frac{p(x)}{q(x)}\right)$$
#
# $$\text{otherwise draw from } \frac{\max(p - q, 0)}{\sum_x \max(p(x) - q(x), 0)}$$


# %% tags=["implementation"]
def speculate(p, q, start, guesses):
    """Continue by what one pass of p decides."""
    guessed = [start]
    for _ in range(guesses):
        guessed.append(draw(q[guessed[-1]]))
    tokens = [start]
    for token in guessed[1:]:
        large, small = p[tokens[-1]], q[tokens[-1]]
        if torch.rand(()) * small[token] > large[token]:
            more = (large - small).clamp(min=0)
            return [*tokens[1:], draw(more / more.sum())]
        tokens.append(token)
    return [*tokens[1:], draw(p[tokens[-1]])]


def draw(probabilities):
    return torch.multinomial(probabilities, 1).item()


# %% [markdown]
# (If all guesses are kept, the pass has also computed the probabilities after the last one, which gives a token for nothing.) The
# proof counts. A random table of four tokens is the large model. The small one is the same table, made flatter. We draw the second and third token
# after the start 10,000 times, from the large model alone and with guesses, and compare how often each pair appears.

# %% tags=["proof"]
torch.manual_seed(0)
large = torch.rand(4, 4).pow(2)
large /= large.sum(dim=1, keepdim=True)
small = 0.5 * large + 0.5 / 4  # half of it is a guess at random
runs = 10_000


def second_and_third(guesses):
    """How often each pair follows the start, and tokens per pass."""
    counts, passes, made = torch.zeros(4, 4), 0, 0
    for _ in range(runs):
        tokens = [0]
        while len(tokens) < 3:
            found = speculate(large, small, tokens[-1], guesses)
            tokens += found
            passes, made = passes + 1, made + len(found)
        counts[tokens[1], tokens[2]] += 1
    return counts / runs, made / passes


exact = large[0][:, None] * large  # the probability of each pair
for guesses in (0, 1, 4):
    found, made = second_and_third(guesses)
    assert torch.allclose(found, exact, atol=0.015)
    error = (found - exact).abs().max()
    print(f"{guesses} guesses: {made:.2f} tokens a pass,", end="")
    print(f" error {error:.3f}")

# %% [markdown]
# The samples are the same, up to the noise of counting: no frequency of a pair is more than 0.01 from its probability. With four guesses, a pass of
# the large model gives more than three tokens instead of one, although half of the small model is a guess at random. (The
# steps of the small model are not counted.)
#
# ## Broken on purpose
#
# A cached step receives a single token. If the positional encoding is not told
# how many tokens precede it, every token gets position 0. No shape is wrong, and no
# error is raised. Predict at which step [`check_soundness`](../reference/tools/inspection.md#check_soundness) finds the first
# difference from the full pass.

# %% tags=["broken"]
from textwrap import fill

from transformer_blocks.inspection import check_soundness


def without_offset():
    return IncrementalDecoder(
        decoder_only,
        decoder_only.new_cache(),
        embed=lambda tokens, offset: positions(embedding(tokens)),
        output=lambda x: x @ embedding.weight.T,
    )


def check(steps):
    soundness = check_soundness(
        full_pass, tokens, only="cache", new_step_model=steps
    )
    return soundness["cache"]


print(check(with_cache))
report = check(without_offset)
print(len(report.problems), "violations, the first:")
print(fill(report.problems[0], 48))

# %% [markdown]
# Step 0 is right, since its position is 0. Everything after it is wrong. The
# check also reorders the rows of the cache halfway, as beam search does. A cache
# that is not reordered continues one hypothesis with the cache of another. (19 wrong steps
# of 2 rows are 38; where the check duplicates a row, it finds one more.)
#
# ## Exercises
#
# ### Exercise 1: a longer garden path
#
# *Medium, about 20 minutes.*
#
# Return probabilities of a table model for which greedy decoding finds a worse
# sequence than beam search with two beams. The table has the shape (4, 4), and
# each row sums to 1. Token 0 starts and ends a sequence. In this chapter's table,
# greedy decoding finds a sequence that is two thirds as probable as the best. In
# yours, it must be less than *half* as probable.
#
# <details><summary>Hint</summary>
#
# Token 1 should look better at first, but be followed by many equally probable
# tokens.
#
# </details>


# %% tags=["stub"]
def garden_path():
    return torch.full((4, 4), 0.25)


# %% tags=["check"]
made = garden_path()
assert made.shape == (4, 4), f"shape {tuple(made.shape)}"
sums = made.sum(dim=1)
assert torch.allclose(sums, torch.ones(4), atol=1e-6), "rows sum to 1"
start = torch.tensor([0])
options = {"end_id": 0, "max_length": 5}
greedy = greedy_search(TableModel(made), start, **options)[0]
((best,),) = beam_search(
    TableModel(made), start, beam_size=2, length_penalty=0.0, **options
)
assert greedy.finished and best.finished, "a row must reach the end"
assert best.score - greedy.score > 0.6932, "not twice as probable"


# %% tags=["solution"]
def garden_path():
    return torch.tensor(
        [
            [0.0, 0.55, 0.45, 0.0],  # token 1 looks better at first,
            [0.34, 0.33, 0.0, 0.33],  # but then nothing is certain;
            [1.0, 0.0, 0.0, 0.0],  # after token 2 the end is certain
            [1.0, 0.0, 0.0, 0.0],
        ]
    )


# %% [markdown]
# ### Exercise 2: top-p
#
# *Medium, about 15 minutes.*
#
# Return the probabilities of shape (V,) from which top-p sampling draws: those of
# the smallest set of most probable tokens that sum to at least $p$, divided by
# their sum, and 0 elsewhere. `torch.sort(descending=True)` and `cumsum` help.
# Take care that the token that crosses $p$ belongs to the set.
#
# <details><summary>Hint</summary>
#
# The sum *before* a token, `cumsum` minus its own probability, says whether it
# still belongs to the set.
#
# </details>


# %% tags=["stub"]
def nucleus(probabilities, p):
    return probabilities * (probabilities > p)


# %% tags=["check"]
given = torch.tensor([0.0625, 0.5, 0.375, 0.0625])
for p, expected in (
    (0.4, [0.0, 1.0, 0.0, 0.0]),
    (0.5, [0.0, 1.0, 0.0, 0.0]),  # exactly p
    (0.7, [0.0, 4 / 7, 3 / 7, 0.0]),
    (1.0, [0.0625, 0.5, 0.375, 0.0625]),
):
    found = nucleus(given, p)
    right = torch.tensor(expected)
    assert torch.allclose(found, right, atol=1e-6), f"p = {p}: {found}"


# %% tags=["solution"]
def nucleus(probabilities, p):
    ordered, places = probabilities.sort(descending=True)
    before = (
        ordered.cumsum(dim=0) - ordered
    )  # the sum before each token
    kept = torch.zeros_like(probabilities)
    kept[places] = ordered * (before < p)
    return kept / kept.sum()


# %% [markdown]
# ### Exercise 3: the rule of acceptance
#
# *Medium, about 15 minutes.*
#
# For the probabilities `p` of the large model and `q` of the small one, both of shape (V,), return two vectors of that shape: the
# probability with which a guess of each token is kept, and the probabilities from which a token is drawn in place of a
# rejected one. Some probabilities are 0. If nothing is ever rejected, the second vector is `p`.
#
# <details><summary>Hint</summary>
#
# A token with $q(x) = 0$ is never guessed: any probability will do for it, but not NaN.
#
# </details>


# %% tags=["stub"]
def rule(p, q):
    more = (p - q).clamp(min=0)
    return (p > q).float(), more / more.sum()


# %% tags=["check"]
torch.manual_seed(0)
for zeros in ([], [0, 1], [5]):
    p, q = torch.rand(2, 6)
    p[zeros], q[zeros[:1]] = 0, 0
    p, q = p / p.sum(), q / q.sum()
    for small in (q, p.flip(0), p):
        keep, instead = rule(p, small)
        assert not (keep.isnan() | instead.isnan()).any(), "NaN"
        inside = keep.min() >= 0 and keep.max() <= 1
        assert inside, f"{keep} has no probabilities"
        assert abs(instead.sum() - 1) < 1e-5, (
            f"a sum of {instead.sum()}"
        )
        kept = small * keep
        found = kept + (1 - kept.sum()) * instead
        error = (found - p).abs().max()
        assert error < 1e-5, f"{error:.2g} from the large model"
        most = torch.minimum(p, small).sum()
        assert kept.sum() > most - 1e-5, f"{most:.2f} could be kept"


# %% tags=["solution"]
def rule(p, q):
    keep = (p / q.clamp(min=1e-30)).clamp(max=1)
    more = (p - q).clamp(min=0)
    return keep, more / more.sum() if more.any() else p


# %% [markdown]
# ## What you can do now
#
# The model gives probabilities, and a search or a draw chooses the tokens. You
# can compare greedy decoding, beam search and sampling, cut off improbable
# tokens, rank hypotheses of different lengths, and let a small model guess without
# changing what the large one writes.
#
# ## Where to go
#
# - A model of your own that writes: [chapter 17](17_your_own_gpt.ipynb).
# - What a trained model attends to while it chooses:
#   [chapter 18](18_look_inside.ipynb).
# - All options of the searches: [`generation`](../reference/tools/generation.md). The cache:
#   [`cache`](../reference/blocks/cache.md).
# - BLEU by number of beams on real sentences: [results](../results.md).
# - Find out why a model is wrong: `python examples/course.py debug 28`
#   ([all cases](../howto/debug_a_transformer.md)).
