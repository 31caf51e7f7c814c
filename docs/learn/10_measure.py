# %% [markdown]
# # 10 Measure a translation
#
# **What does one BLEU mean, and when is a difference between two translators real?**
#
# The next chapters build better and better translators, and one must know how good their translations are. The abstract of *Attention Is All You Need* does not claim to understand
# language. It claims 28.4 BLEU, *over 2 BLEU* more than the best before. Whole fields
# have been steered by this number. You can compute it by hand, and once you have, you will
# read every table of results with other eyes.
#
# ## By hand: BLEU
#
# BLEU ([Papineni et al. 2002](https://aclanthology.org/P02-1040)) counts which sequences of one to
# four words, the *n-grams*, a translation has in common with a translation made by a
# person, the *reference*. Here they are:
#
# - Reference, 8 tokens: *the cat eats fish in the garden .*
# - Translation, 7 tokens: *the cat the cat eats fish .*
#
# An n-gram of the translation counts as a match at most as often as the reference has it. *cat*
# occurs twice, but the reference has one, so one of the two does not match. (Without this
# *clipping*, every word of *the the the* would match.)
#
# | n | n-grams of the translation | matches | precision |
# | --- | --- | --- | --- |
# | 1 | 7 | the (2), cat (1 of 2), eats, fish, . | 6/7 = 0.857 |
# | 2 | 6 | the cat (1 of 2), cat eats, eats fish | 3/6 = 0.5 |
# | 3 | 5 | the cat eats, cat eats fish | 2/5 = 0.4 |
# | 4 | 4 | the cat eats fish | 1/4 = 0.25 |
#
# The four are combined by their geometric mean, the fourth root of the product: 0.0429 to the power of
# 1/4 is 0.455. One thing is missing. Precision asks what share of the *translation* is
# right, so a translation that says only what is certain would score best. BLEU therefore has a
# **brevity penalty**: if the translation has fewer tokens than the reference, 7 and not
# 8, it is multiplied by $e^{1 - 8/7}$ = 0.867. The result is 0.455 · 0.867 = 0.394. It is usually
# multiplied by 100: BLEU 39.4.
#
# Is the translation good? It is understandable, it stutters, and it has forgotten the garden. The number says none of
# this. It is made for comparing many sentences of two systems, not for judging one.
#
# ## The formula and the code
#
# For a corpus, matches, n-grams and lengths are *added up over all sentences* first, and divided
# once. So ten numbers for each sentence are all that BLEU needs to know: four counts of
# matches $m_n$, four counts of n-grams $t_n$, and the two lengths, $h$ of the translation
# and $r$ of the reference.

# %%
import json
from collections import Counter
from math import exp, prod
from pathlib import Path

import torch

# %% [markdown] tags=["formula"]
# $$\mathrm{BLEU} = 100 \; b \left( \prod_{n=1}^{4} \frac{\sum m_n}{\sum t_n} \right)^{1/4}$$
#
# $$b = \min\left(1, \; e^{1 - \sum r / \sum h}\right)$$
#
# The sums are over the sentences of the corpus.


# %% tags=["implementation"]
def ngrams(tokens, n):
    shifted = [tokens[i:] for i in range(n)]
    return Counter(zip(*shifted))


def counts(hypothesis, reference):
    """Ten numbers: m1 to m4, t1 to t4, h and r."""
    h = [ngrams(hypothesis, n) for n in (1, 2, 3, 4)]
    r = [ngrams(reference, n) for n in (1, 2, 3, 4)]
    matches = [(a & b).total() for a, b in zip(h, r)]
    totals = [each.total() for each in h]
    return [*matches, *totals, h[0].total(), r[0].total()]


def bleu(rows):
    """BLEU of a corpus, from counts of sentences."""
    sums = [sum(column) for column in zip(*rows)]
    ratios = [m / t for m, t in zip(sums[:4], sums[4:8])]
    penalty = min(1.0, exp(1 - sums[9] / sums[8]))
    return 100 * penalty * prod(ratios) ** 0.25


# %% [markdown]
# `zip` of the tokens and of the tokens shifted by one, two and three yields the n-grams. A `Counter` counts
# them, and `a & b` keeps the smaller count of each: that is the clipping.

# %%
reference = ["the", "cat", "eats", "fish", "in", "the", "garden", "."]
hypothesis = ["the", "cat", "the", "cat", "eats", "fish", "."]
row = counts(hypothesis, reference)
print("matches", row[:4], "of", row[4:8])
print("lengths", row[8:])
print(f"BLEU {bleu([row]):.1f}")

# %% [markdown]
# ## By hand: chrF
#
# To BLEU, *banana* for *bananas* is as wrong as *engine*. **chrF**
# ([Popović 2015](https://aclanthology.org/W15-3049)) counts n-grams of *characters*
# instead, from 1 to 6, without spaces. It also computes the *recall*, the share of the reference's n-grams that
# were found, in place of a penalty. For the translation *cat*, the reference *cats*, and n up to 2 only:
#
# | n | translation | reference | matches | precision | recall |
# | --- | --- | --- | --- | --- | --- |
# | 1 | c a t | c a t s | 3 | 3/3 | 3/4 |
# | 2 | ca at | ca at ts | 2 | 2/2 | 2/3 |
#
# The mean precision is $P$ = 1, the mean recall $R$ = (0.75 + 0.667) / 2 = 0.708. They are
# combined by an F-score in which recall counts twice as much as precision, $\beta$ = 2:
# 5 · 1 · 0.708 / (4 · 1 + 0.708) = 0.752.

# %% [markdown] tags=["formula"]
# $$P = \frac16 \sum_{n=1}^{6} \frac{\sum m_n}{\sum t_n} \qquad R = \frac16 \sum_{n=1}^{6} \frac{\sum m_n}{\sum u_n}$$
#
# $$\mathrm{chrF} = 100 \; (1 + \beta^2) \frac{P R}{\beta^2 P + R}$$
#
# $t_n$ and $u_n$ count the n-grams of the translation and of the reference.


# %% tags=["implementation"]
def chrf(hypotheses, references, longest=6, beta=2):
    """chrF of a corpus of strings."""
    p = r = 0.0
    for n in range(1, longest + 1):
        m = t = u = 0
        for texts in zip(hypotheses, references):
            letters = [x.replace(" ", "") for x in texts]
            a, b = (ngrams(x, n) for x in letters)
            m += (a & b).total()
            t, u = t + a.total(), u + b.total()
        p, r = p + m / t / longest, r + m / u / longest
    mean = (1 + beta**2) * p * r / (beta**2 * p + r)
    return 100 * mean


# %% [markdown]
# ## Six translators
#
# Now real translations. The translator of [chapter 7](07_embeddings.ipynb) was trained with three
# seeds, and its variant with a table of its own at the exit with the same seeds. After 400 updates
# they are far from finished, so there is something to measure. Each has translated the same 200 test sentences:
#
# ```
# python docs/experiments/seeds.py
# ```

# %%
file = Path("../experiments/results/seeds.json")
results = json.loads(file.read_text(encoding="utf-8"))["results"]
references = results["references"]
systems = {
    f"{name}, seed {seed}": texts
    for name in ("one table", "two tables")
    for seed, texts in enumerate(results[name])
}
rows = {
    name: [
        counts(h.split(), r.split()) for h, r in zip(texts, references)
    ]
    for name, texts in systems.items()
}
print("                     BLEU   chrF  exact")
for name, texts in systems.items():
    exact = sum(h == r for h, r in zip(texts, references))
    print(
        f"{name:20s}{bleu(rows[name]):5.1f}"
        f"{chrf(texts, references):7.1f}{exact:5d}"
    )

# %% [markdown]
# Both scores order the six in nearly the same way. chrF is higher throughout, as parts of wrong words are right; it is a different
# scale, and a BLEU must never be compared with a chrF. Of the best system's 200 translations, 91 are exactly the reference.
# On this corpus that is the honest measure, since each sentence has one right translation. On real text it is not:
# of the many good translations of a sentence, the reference is one. This is why the score of
# a human translator would be far from 100, too.
#
# ## The same, by sacreBLEU
#
# BLEU should be the same number in every paper, and for years it was not. Programs cut the text into
# words differently, lower-cased or did not, and papers did not say which. Post (2018) found
# differences of up to 1.8 BLEU between usual settings and wrote a program that fixes them all,
# [sacreBLEU](https://aclanthology.org/W18-6319). It prints a *signature* beside each score. The
# examples of this project use it. Our two functions must agree with it.

# %% tags=["proof"]
import sacrebleu

for name, texts in systems.items():
    theirs = sacrebleu.corpus_bleu(
        texts, [references], tokenize="none", force=True
    )
    assert abs(bleu(rows[name]) - theirs.score) < 1e-6
    theirs = sacrebleu.corpus_chrf(texts, [references])
    assert abs(chrf(texts, references) - theirs.score) < 1e-6
print(len(systems), "systems: equal BLEU, equal chrF")

# %% [markdown]
# ## The bootstrap: other sentences
#
# The test set is a sample. With 200 other sentences, the score would be different. How different? We do
# not have 200 others, but we can imitate them: draw 200 sentences from ours
# *with replacement*, so that some occur twice and some not at all, and compute BLEU again. Do it
# 1,000 times, and the middle 95 % of the scores are a *confidence interval*. This is the
# **bootstrap** ([Koehn 2004](https://aclanthology.org/W04-3250) for translation).
#
# BLEU of each draw needs only sums of our ten numbers, so all draws fit into one tensor. As this is a second implementation of the same
# score, we compare it with the first.


# %%
def bleu_of(rows):
    """Counts (..., N, 10) to BLEU (...)."""
    sums = rows.sum(dim=-2).double()
    ratios = sums[..., :4] / sums[..., 4:8]
    penalty = (1 - sums[..., 9] / sums[..., 8]).exp().clamp(max=1.0)
    return 100 * penalty * ratios.prod(dim=-1) ** 0.25


tensors = {name: torch.tensor(each) for name, each in rows.items()}
together = torch.cat(list(tensors.values()))
assert abs(bleu_of(together) - bleu(together.tolist())) < 1e-9

torch.manual_seed(0)
draws = torch.randint(200, (1000, 200))  # the same for all systems
print("                     BLEU   95 % of the draws")
for name, each in tensors.items():
    scores = bleu_of(each[draws]).sort().values
    low, high = scores[25], scores[974]
    print(f"{name:20s}{bleu_of(each):5.1f}{low:9.1f} to {high:.1f}")

# %% [markdown]
# ![Six horizontal lines, one for each translator, with its BLEU as a point: 62.7, 60.2 and 64.5 for the three seeds with one table, 71.0, 71.9 and 75.1 with two tables. Each line shows the middle 95 % of the draws and is about 7 to 10 BLEU wide.](figures/intervals.svg)
#
# The intervals are wide, 7 to 10 BLEU, since 200 sentences are few. Four times as many would
# halve them. A test set of 2,000 to 3,000 sentences, as in the yearly competitions, leaves 2 to 3.
#
# ## Comparing two: the paired bootstrap
#
# Overlapping intervals do not mean that two systems are equal. A hard sentence is hard for
# both, so their scores go up and down together. The **paired** bootstrap takes the same
# draw for both and takes the difference. If we said beforehand which one should be better, it must be so in at least 95 % of
# the draws, for a difference that is called significant at the level of 5 %. If we see only afterwards which one is
# better, it could have been either, and luck has two ways to deceive us. Then it must be at least 97.5 % of the draws.
#
# Predict: the six pairs below, three for each recipe, differ only in their *seed*. It is the same model, trained in the same way.
# In how many of the draws will one of them be better than the other?


# %%
def wins(a, b):
    """The share of draws in which a is better than b."""
    better = bleu_of(tensors[a][draws]) > bleu_of(tensors[b][draws])
    return better.double().mean().item()


print("first better in     seeds 0, 1    0, 2    1, 2")
for name in ("one table", "two tables"):
    shares = [
        wins(f"{name}, seed {i}", f"{name}, seed {j}")
        for i, j in ((0, 1), (0, 2), (1, 2))
    ]
    print(f"{name:20s}", *(f"{share:8.1%}" for share in shares))
share = wins("two tables, seed 0", "one table, seed 2")
print(f"worst of two tables, against best of one: {share:.1%}")

# %% [markdown]
# Each recipe was trained three times, and nothing but the seed is different. Still, seed 2 is better
# than seed 1 in 97.1 % of the draws with one table, and better than seed 0 in 97.8 % with two tables. We had not said which seed
# should win, so the second pair is significant and the first is just not. (We have also tried six pairs.
# With many pairs, the level of each must be stricter, or one of them is found by luck.) The test has not failed. It answers the
# question that it was asked: would *these two models* be ranked in the same way by other sentences?
# Yes, they would. But we wanted to know whether a *method* is better, and a method is not one model. Train it again, and the
# order may change. The bootstrap draws sentences and not trainings.
#
# The two tables of chapter 7 pass the harder test. Their worst seed beats the best seed of the other
# recipe, and in 99.8 % of the draws. (This pair, too, was chosen afterwards. But of the nine that could be compared, it
# is the least favourable to the claim.) This is the simplest rule that can be recommended: *at least three
# seeds each, and the intervals of the seeds should not overlap.*
#
# ## What is one BLEU worth?
#
# The seeds with one table differ by 4.3 BLEU at most, those with two by 4.1. So at this
# early moment of the training, a difference of one BLEU is worth nothing at all. Later, it becomes worth more.
# The real translators of this project ([results](../results.md)) have 36.1, 35.7 and 36.4 BLEU after 20
# minutes, for the seeds 0, 1 and 2, and 39.6, 39.2 and 39.3 after 40. Their ranges are 0.7 and 0.4. There,
# one BLEU is more than a seed makes, and 0.3 is not. The paper's 28.4 is one number, of one training, on one
# test set; the gap of 2 BLEU is what makes its claim believable.
#
# And what is one BLEU worth to a reader? Sometimes nothing. It changes if all
# sentences begin with *the* instead of *a*, and it hardly changes if a *not* is left out. A difference in
# BLEU is a reason to read translations, never a replacement for it.
#
# ## Broken on purpose
#
# **The same translations, another score.** Somebody forgets to say how the text is split into tokens. We score one
# system twice: with the tokens as they are, and as a program would that splits only at spaces, after the full
# stop was joined to the last word as usual. Then a third mistake: the mean of the
# BLEU of single sentences. Predict which of the three numbers is highest.

# %% tags=["broken"]
import sys
from textwrap import fill

sys.path.insert(0, "../../examples")

from translation.scoring import score


def joined(text):
    """Write punctuation without a space before it."""
    for mark in ".,?":
        text = text.replace(f" {mark}", mark)
    return text


texts = systems["one table, seed 0"]
as_written = (
    [joined(text) for text in texts],
    [joined(text) for text in references],
)
mine = bleu([counts(h.split(), r.split()) for h, r in zip(*as_written)])
single = [
    bleu([row]) if 0 not in row[:4] else 0.0
    for row in rows["one table, seed 0"]
]
print(f"tokens separated      {bleu(rows['one table, seed 0']):.1f}")
print(f"punctuation joined    {mine:.1f}")
print(f"mean of the sentences {sum(single) / len(single):.1f}")
right = score(*as_written, tokenize="13a")
print(f"sacreBLEU, 13a        {right.bleu:.1f}")
print(fill(right.bleu_signature.replace("|", " "), 48))

# %% [markdown]
# The translations are the same, and the three scores differ by up to 7 BLEU, more than all seeds together. With
# the punctuation joined, *fish.* and *fish* are different words. The mean over sentences is lowest,
# because every sentence without a common 4-gram counts as zero, while the corpus has plenty of them
# to share. `13a`, the default of sacreBLEU, imitates the tokenizer of an older program, `mteval-v13a`. It separates the punctuation again and
# gives the first number back. No program complains in any of these cases. The signature in the last line is the only
# protection: it says how the number was made, and belongs beside every score that you publish.
#
# ## Exercises
#
# ### Exercise 1: clip
#
# *Easy, about 10 minutes.*
#
# Return the clipped precision of one translation for n-grams of one length, as a fraction between 0
# and 1. Both arguments are lists of tokens. If the translation has no such n-gram, return 0.
#
# <details><summary>Hint</summary>
#
# `ngrams` returns a `Counter`, and `&` of two counters keeps the smaller counts. Try it for
# `["the", "the"]` and `["the"]`.
#
# </details>


# %% tags=["stub"]
def clipped_precision(hypothesis, reference, n):
    known = ngrams(reference, n)
    found = ngrams(hypothesis, n)
    right = sum(count for gram, count in found.items() if gram in known)
    return right / max(1, sum(found.values()))


# %% tags=["check"]
short, long = (
    ["the", "the", "the"],
    ["the", "cat", "eats", "the", "fish"],
)
found = clipped_precision(short, long, 1)
assert abs(found - 2 / 3) < 1e-9, f"{found}: the is there twice"
assert clipped_precision(short, long, 2) == 0.0, "no 2-gram in common"
assert clipped_precision(["the"], long, 2) == 0.0, "no 2-gram at all"
assert clipped_precision(long, long, 4) == 1.0, "all of its own"
found = [clipped_precision(hypothesis, reference, n) for n in (1, 2)]
assert abs(found[0] - 6 / 7) < 1e-9, f"{found[0]:.3f} of the words"
assert found[1] == 0.5, f"{found[1]:.3f} of the 2-grams"


# %% tags=["solution"]
def clipped_precision(hypothesis, reference, n):
    found = ngrams(hypothesis, n)
    matches = (found & ngrams(reference, n)).total()
    return matches / max(1, found.total())


# %% [markdown]
# ### Exercise 2: game the score
#
# *Medium, about 15 minutes.*
#
# The brevity penalty is that of the whole corpus. Suppose that a system may leave out sentences, by
# returning an empty line for those of which it is least certain. `rows` are the counts of its sentences. Return the BLEU of
# the corpus if the sentences with the indices `left_out` are empty: all their counts become zero,
# except for the length of the reference, which stays.
#
# <details><summary>Hint</summary>
#
# The counts of a sentence are ten numbers, and the last of them is the length
# of the reference.
#
# </details>


# %% tags=["stub"]
def bleu_without(rows, left_out):
    return bleu(
        [row for i, row in enumerate(rows) if i not in left_out]
    )


# %% tags=["check"]
some = rows["two tables, seed 0"]
found = bleu_without(some, [])
assert abs(found - bleu(some)) < 1e-9, "without none: unchanged"
lines = [h.split() for h in systems["two tables, seed 0"]]
emptied = [[] if i in (3, 5) else line for i, line in enumerate(lines)]
expected = bleu(
    [counts(h, r.split()) for h, r in zip(emptied, references)]
)
found = bleu_without(some, [3, 5])
assert abs(found - expected) < 1e-9, f"{found}, not {expected}"
assert bleu_without(some, range(150)) < 5, "and the references?"
assert bleu(some) == bleu_without(some, set()), "rows are unchanged"


# %% tags=["solution"]
def bleu_without(rows, left_out):
    empty = [0] * 9
    return bleu(
        [
            [*empty, row[9]] if i in left_out else row
            for i, row in enumerate(rows)
        ]
    )


# %% [markdown]
# ### Exercise 3: a paired bootstrap
#
# *Medium, about 15 minutes.*
#
# `a` and `b` are the counts of two systems, tensors (N, 10). Return the mean difference of
# BLEU, $a - b$, over `draws` (D, N), and the share of draws in which it is positive. Both
# systems must be scored on the same draws.
#
# <details><summary>Hint</summary>
#
# `a[draws]` has the shape (D, N, 10), and `bleu_of` returns a tensor (D,).
#
# </details>


# %% tags=["stub"]
def compare(a, b, draws):
    first = bleu_of(a[draws])
    second = bleu_of(b[draws.flip(0)])
    return first.mean() - second.mean(), (
        first > second
    ).double().mean()


# %% tags=["check"]
names = "one table, seed 0", "one table, seed 2"
first, second = (tensors[name] for name in names)
mean, share = compare(first, second, draws)
assert abs(float(share) - wins(*names)) < 1e-9, "the same draws?"
slightly = first.clone()
worse = (torch.arange(200) % 20 == 0) & (first[:, 0] > 0)
slightly[worse, 0] -= 1  # one word less is right
mean, share = compare(first, slightly, draws)
assert 0 < float(mean) < 1, f"a mean difference of {mean}"
assert float(share) > 0.99, "paired?"
share = compare(first, first, draws)[1]
assert float(share) == 0.0, "no system is better than itself"


# %% tags=["solution"]
def compare(a, b, draws):
    difference = bleu_of(a[draws]) - bleu_of(b[draws])
    return difference.mean(), (difference > 0).double().mean()


# %% [markdown]
# ## What you can do now
#
# You can compute BLEU and chrF of a corpus by hand and by program, and say why they are computed for a
# corpus and not for a sentence. You can give an interval for a score and test a difference, and you
# know that such a test says nothing about another seed. When you read *+0.4 BLEU* in a table, you know which three
# questions to ask: which signature, how many seeds, and on whose sentences?
#
# ## Where to go
#
# - Scores of the same word forms cannot see meaning. Learned metrics such as
#   [COMET](https://aclanthology.org/2020.emnlp-main.213) agree better with people, and
#   [Kocmi et al. (2021)](https://aclanthology.org/2021.wmt-1.57) compare many metrics with them.
#   [Marie et al. (2021)](https://aclanthology.org/2021.acl-long.566) read 769 papers and found most
#   evaluations wanting.
# - The scores of this project's translators: [results](../results.md); `examples/translate.py compare`
#   tests its models by the paired bootstrap.
# - The first of the translators: [chapter 11](11_before_transformers.ipynb).
