# %% [markdown]
# # 7 Embeddings and the output layer
#
# **What does a model know about a word before it reads any other word, and where
# is that knowledge kept?**
#
# What are the vectors that attention moves around? A translator keeps a good part of its weights, a
# quarter in the one that you will train here, in tables: those at the entrance turn each token into a
# vector, and the one at the exit turns a vector into a prediction. No one tells them that *cat* and
# *dog* are animals, or that *ate* is the past of *eat*. At the end of this chapter you will have found
# both in the table of a translator that was trained for a minute or two, and you will know how they came there.
#
# ## By hand: a table at the entrance
#
# Take a vocabulary of three tokens and vectors of two numbers. The *embedding* $E$ is
# a table with one row for each token:
#
# | id | token | row of E |
# | --- | --- | --- |
# | 0 | cat | (1, 2) |
# | 1 | dog | (2, 1) |
# | 2 | eats | (−1, 1) |
#
# The vector of *dog* is row 1. That is all: an embedding is a lookup by index. Textbooks
# often write it as a multiplication. A *one-hot* vector has a 1 at the place of the
# token and 0 elsewhere, and multiplied by the table it selects the row: (0, 1, 0) $E$ =
# 0 · (1, 2) + 1 · (2, 1) + 0 · (−1, 1) = (2, 1). The result is the same, but the
# multiplication touches every row, so programs use the index.
#
# ## By hand: a table at the exit
#
# At the exit, the model has a vector $h$ for each position and needs a number for each
# token of the vocabulary, its *logit*. It has one row for each token here as well, and
# the logit is the dot product of $h$ with that row. The dot product is the measure of
# [chapter 1](01_one_query.ipynb): the exit asks which row points where $h$ points. For $h$ =
# (2, 1) and the same three rows:
#
# | token | logit | e to the logit | probability |
# | --- | --- | --- | --- |
# | cat | 2 · 1 + 1 · 2 = 4 | 54.60 | 0.268 |
# | dog | 2 · 2 + 1 · 1 = 5 | 148.41 | 0.730 |
# | eats | 2 · (−1) + 1 · 1 = −1 | 0.37 | 0.002 |
#
# Suppose that *cat* is correct. How does training change the rows? The derivative of the
# loss by a logit is the probability, minus 1 for the correct token. The derivative by a row
# is therefore this number times $h$:
#
# | token | probability − correct | gradient of the row |
# | --- | --- | --- |
# | cat | 0.268 − 1 = −0.732 | (−1.463, −0.732) |
# | dog | 0.730 | (1.459, 0.730) |
# | eats | 0.002 | (0.004, 0.002) |
#
# Gradient descent goes against the gradient. It moves the row of *cat* towards $h$, and the
# two others away from it. Now think of two words that are correct after the same
# beginnings, as *cat* and *dog* are after *the man feeds the*. Their rows are pulled towards
# the same vectors $h$, thousands of times, and so they become similar. The linguist Firth said
# it in 1957: *you shall know a word by the company it keeps*.
# [Mikolov et al. (2013)](https://arxiv.org/abs/1301.3781) trained such tables alone, without
# any layer between them, and found that even their differences have a meaning.
#
# ## The formula and the code
#
# The paper uses one table for both ends (section 3.4), and multiplies its rows by
# $\sqrt{d}$ at the entrance. Sharing is called *tying* the weights
# ([Press and Wolf 2016](https://arxiv.org/abs/1608.05859);
# [Inan et al. 2016](https://arxiv.org/abs/1611.01462)). Both choices are examined below.

# %% [markdown] tags=["formula"]
# $$x_t = \sqrt{d} \; E_{w_t}$$
#
# $$z_v = h \cdot E_v$$
#
# $$p = \mathrm{softmax}(z)$$
#
# $$\frac{\partial \ell}{\partial E_v} = (p_v - [v = y]) \; h$$
#
# The bracket is 1 if $v$ is the correct token $y$, else 0. The derivative is that of the exit alone.

# %% tags=["implementation"]
import torch


def enter(table, tokens):
    """Token ids (L,) to vectors (L, d)."""
    return table.shape[1] ** 0.5 * table[tokens]


def leave(table, h):
    """Vectors (L, d) to logits (L, V)."""
    return h @ table.T


def exit_gradient(table, h, y):
    """Gradient (V, d) of the loss of one h (d,)."""
    p = leave(table, h).softmax(dim=-1)
    p[y] -= 1
    return p[:, None] * h


# %%
E = torch.tensor([[1.0, 2.0], [2.0, 1.0], [-1.0, 1.0]])
h = torch.tensor([2.0, 1.0])
print("one-hot:", (torch.tensor([0.0, 1.0, 0.0]) @ E).tolist())
print("index:  ", E[1].tolist())
print("\ntoken   logit  probability   gradient of the row")
logits = leave(E, h)
for word, z, p, row in zip(
    ["cat", "dog", "eats"],
    logits,
    logits.softmax(dim=0),
    exit_gradient(E, h, y=0),
):
    gradient = f"({row[0]:.3f}, {row[1]:.3f})"
    print(f"{word:6s} {z:6.1f} {p:12.3f}   {gradient}")

# %% [markdown]
# The numbers are those that we computed by hand. The proof compares the entrance with
# [`TokenEmbedding`](../reference/blocks/embedding.md#tokenembedding), the exit with a whole language model of the
# library, and the gradient with that of autograd.

# %% tags=["proof"]
import torch.nn.functional as F

from transformer_blocks import TokenEmbedding, build_language_model

torch.manual_seed(0)
sizes = {"num_layers": 2, "d_model": 32, "num_heads": 2, "d_ff": 64}
sizes["dropout"] = 0.0
model = build_language_model(100, **sizes).eval()
assert model.output.weight is model.embedding.weight  # one table
table = model.embedding.weight.detach()

tokens = torch.tensor([[5, 3, 5, 99]])
embedding = TokenEmbedding(100, 32)
with torch.no_grad():
    embedding.weight.copy_(table)
    assert torch.allclose(
        enter(table, tokens[0]), embedding(tokens)[0], atol=1e-6
    )
    hidden = model.hidden(tokens)[0]  # (4, 32)
    found = leave(table, hidden)
    assert torch.allclose(found, model(tokens)[0], atol=1e-5)

row = table.clone().requires_grad_()
loss = F.cross_entropy(leave(row, hidden[:1]), torch.tensor([3]))
loss.backward()
by_hand = exit_gradient(table, hidden[0], y=3)
assert torch.allclose(by_hand, row.grad, atol=1e-6)
print("logits", tuple(found.shape), "gradient", tuple(by_hand.shape))

# %% [markdown]
# ## Who is taught by a batch?
#
# A row at the entrance learns only when its token is in the batch. A row at the exit
# learns at every position, since each token that is *not* correct is pushed away. Predict: a
# batch has four different tokens, and the vocabulary has 100. How many rows have a
# gradient if there are two tables, and how many if there is one?


# %%
def rows_with_gradient(weight):
    return int((weight.grad.abs().sum(dim=1) > 0).sum())


torch.manual_seed(0)
batch = torch.tensor([[5, 3, 7, 9, 5, 3, 7, 9]])
untied = build_language_model(100, **sizes)
untied.output = torch.nn.Linear(32, 100, bias=False)
untied.loss(batch).backward()
print("entrance:", rows_with_gradient(untied.embedding.weight))
print("exit:    ", rows_with_gradient(untied.output.weight))

tied = build_language_model(100, **sizes)
tied.loss(batch).backward()
print("one table:", rows_with_gradient(tied.embedding.weight))

# %% [markdown]
# This is the quiet advantage of tying. A rare word is seldom in a batch, so its row at an
# entrance of its own remains nearly random for a long time. With one table it is moved
# by every batch. The cost is that one vector must serve two purposes, and the layers
# between the ends have to bridge the difference.
#
# ## What a translator has learned
#
# Now a real table. We train a small translator on the toy corpus of
# [chapter 13](13_text_to_batches.ipynb): 26,000 pairs, Japanese characters at the entrance,
# English words at the exit, two layers, vectors of 64 numbers. Words are whole here
# and not subwords, so that each row belongs to a word that you can read.

# %%
import re
import sys

sys.path.insert(0, "../../examples")

from transformer_blocks import PreNorm, build_seq2seq
from translation.toy import toy_corpus

PAD, BOS, EOS = 0, 1, 2
corpus = toy_corpus()


def split(sentence):
    return re.findall(r"[\w']+|[^\w\s]", sentence.lower())


special = ["<pad>", "<bos>", "<eos>"]
pairs = corpus["train"]
characters = special + sorted({c for ja, _ in pairs for c in ja})
words = special + sorted({w for _, en in pairs for w in split(en)})
ids_of_characters = {c: i for i, c in enumerate(characters)}
ids_of_words = {w: i for i, w in enumerate(words)}
print(len(characters), "characters,", len(words), "words")


def pad(rows):
    """Lists of ids to a tensor (B, longest), padded at the end."""
    longest = max(map(len, rows))
    return torch.tensor([r + [PAD] * (longest - len(r)) for r in rows])


def to_ids(pairs):
    """Return sources (B, S) and targets (B, L)."""
    sources = [[ids_of_characters[c] for c in ja] for ja, _ in pairs]
    targets = [
        [BOS, *(ids_of_words[word] for word in split(en)), EOS]
        for _, en in pairs
    ]
    return pad(sources), pad(targets)


def train_translator(seed=0, updates=1200, tied=True):
    """Train on batches of similar length; return the model."""
    torch.manual_seed(seed)
    sizes = {
        "num_layers": 2,
        "d_model": 64,
        "num_heads": 4,
        "d_ff": 128,
    }
    model = build_seq2seq(
        len(characters), len(words), **sizes, residual=PreNorm
    )
    model.target_embedding.weight.data *= 2  # as TokenEmbedding has
    if not tied:
        model.output = torch.nn.Linear(64, len(words), bias=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / 100, (100 / (s + 1)) ** 0.5)
    )
    ordered = sorted(pairs, key=lambda pair: len(pair[0]))
    starts = range(0, len(ordered), 64)
    batches = [to_ids(ordered[i : i + 64]) for i in starts]
    for update in range(updates):
        if update % len(batches) == 0:
            order = torch.randperm(len(batches)).tolist()
        source, target = batches[order[update % len(batches)]]
        loss = model.loss(source, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
    return model.eval()


def nearest(table, direction, count):
    """The ids of the rows with the largest cosine, largest first."""
    cosines = F.normalize(table, dim=1) @ F.normalize(direction, dim=0)
    return cosines.topk(count).indices.tolist()


# %% [markdown]
# Similarity is measured by the *cosine*, the dot product of two vectors that were divided by
# their lengths. It is 1 for the same direction and 0 for perpendicular ones. Before you
# read on, note the three words that you expect beside *cat*, *bananas*, *eats*
# and *two*.
#
# (The training takes about two minutes; its output is recorded, as is that of the next two cells.)

# %% tags=["recorded"]
translator = train_translator()
E = translator.target_embedding.weight.detach()
examples = "cat doctor red bananas eats ate at two he"
for word in examples.split():
    found = nearest(E, E[ids_of_words[word]], 4)[1:]
    print(f"{word:7s}", ", ".join(words[i] for i in found))

# %% [markdown]
# No one has told the model any of this. *Cat* stands beside *dog*, *bird* and *rabbit*, a colour
# beside other adjectives, a number beside numbers, *at* beside other prepositions. *Eats* stands beside
# other verbs with the same ending, because those are what can be correct in its place. Some
# neighbours are related by meaning rather than by form: *ate* has *eat* and *eating* among its three.
#
# ![Two drawings of words as points. Left: a projection of 32 rows, in which people, animals, numbers, colours and two forms of verbs each lie together. Right: six irregular verbs, each with an arrow from the present to the past, from eat to ate, from go to went; all go to the right, along the direction of the regular verbs.](figures/word_map.svg)
#
# A plane can show only a small part of 64 dimensions, so distances in such a picture may mislead.
# The neighbours above were found in all 64.
#
# ## Directions
#
# The model reads ids. It cannot see that *cats* is written like *cat* with an *s*, nor that *went*
# has no letter of *go*. Still, the rows of *open* and *opened* differ, and perhaps this
# difference is similar for all verbs. Then it is a *direction* with a meaning, and we can compute
# it from some words and try it on others. The rule is simple: take the mean difference of the known
# pairs, add it to the row of a word that was not among them, and look for the nearest
# row, without the word itself. (Without this exception, the nearest row is often the
# word from which one started. Published analogies make it, too, and not all of them say so.)


# %%
def pairs_of(text):
    """The ids of pairs such as those of "cat:cats dog:dogs"."""
    pairs = [pair.split(":") for pair in text.split()]
    return [tuple(ids_of_words[word] for word in p) for p in pairs]


nouns = """actor apple bag banana bicycle bird book camera car cat
    computer cup doctor dog egg flower hat key magazine movie orange
    pen pencil photo picture plate rabbit shirt singer song student
    teacher ticket umbrella wallet"""
plurals = pairs_of(" ".join(f"{w}:{w}s" for w in nouns.split()))
regular = [
    (ids_of_words[word], ids_of_words[f"{word}ed"])
    for word in words[3:]
    if f"{word}ed" in ids_of_words
]
irregular = pairs_of(
    "eat:ate buy:bought drink:drank write:wrote sing:sang speak:spoke "
    "swim:swam see:saw make:made take:took run:ran go:went meet:met "
    "lend:lent teach:taught draw:drew"
)


def count_found(table, pairs, known=None):
    """How many second words are found; known: all other pairs."""
    found = 0
    for number, (start, goal) in enumerate(pairs):
        others = known or pairs[:number] + pairs[number + 1 :]
        first, second = torch.tensor(others).T
        shift = (table[second] - table[first]).mean(dim=0)
        best = nearest(table, table[start] + shift, 2)
        found += next(i for i in best if i != start) == goal
    return found


for name, forms in (
    ("plurals", plurals),
    ("regular past", regular),
    ("irregular past", irregular),
):
    first, second = (words[i] for i in forms[0])
    print(f"{name:15s}{len(forms):3d} pairs, {first} - {second}")

# %% [markdown]
# Predict for the last line of the table: from the direction of the *regular* verbs alone, how many of
# the 16 irregular past forms are found? The table has three columns: the trained rows, the same without adding the
# direction (so that the nearest neighbour answers), and random rows.

# %% tags=["recorded"]
torch.manual_seed(0)
untrained = TokenEmbedding(len(words), 64).weight.detach()
nothing = [(0, 0)]  # a direction of zero
print("                pairs trained no shift random")
for name, forms, known in (
    ("plurals", plurals, None),
    ("regular past", regular, None),
    ("irregular past", irregular, regular),
):
    right = (
        count_found(E, forms, known),
        count_found(E, forms, nothing),
        count_found(untrained, forms, known),
    )
    cells = "".join(f"{n:8d}" for n in right)
    print(f"{name:15s}{len(forms):6d}{cells}")

# %% [markdown]
# All 16 of 16 irregular forms are found from the direction of the regular verbs, even *went* from *go*, with which
# it has no letter in common. Of the plurals, 34 of 35 are found. Without
# the direction, the nearest row is right in about a third of the cases, since forms of one word are neighbours
# anyway; random rows find next to nothing. A probable reason, which we did not measure: after *yesterday*
# every verb takes its past form, and one direction for all verbs is enough to predict it.
# Do not conclude that every meaning is a direction. This grammar has few words and many sentences
# for each. With a table that was trained on real text, [Mikolov et al. (2013)](https://aclanthology.org/N13-1090/) found
# the right form for almost 40 % of such questions.
#
# ## One table or two
#
# Is tying a loss, since one table must do the work of two? Train the same translator with a
# separate table at the exit, and compare on the 500 validation pairs. Predict which one has
# the lower loss.

# %% tags=["recorded"]
separate = train_translator(tied=False)
source, target = to_ids(corpus["validation"])
print("tables   weights  validation loss")
for name, model in (("one", translator), ("two", separate)):
    with torch.no_grad():
        loss = model.loss(source, target).item()
    count = sum(weight.numel() for weight in model.parameters())
    print(f"{name:6s} {count:9,d} {loss:12.4f}")

# %% [markdown]
# Here *two* tables win: the validation loss falls from 0.063 to 0.030, with 14 % more weights. The cost of
# tying, one vector for two purposes, is visible, and its advantage is not, since this corpus has no
# rare words: even the rarest of its 473 occur a dozen times in an epoch. With 37,000 subwords, as in the paper, a table of its own would cost
# 19 million weights, and many rows would seldom be trained. Press and Wolf report that
# tying makes translators smaller at no loss in BLEU, and language models better. It is a good default for large
# vocabularies and small corpora, not a law. (This is one seed. [Chapter 10](10_measure.ipynb)
# asks what a difference between two trainings is worth.)
#
# ## Why sqrt(d_model)
#
# [Chapter 8](08_positions.ipynb) shows what the factor does at the entrance: it makes the word as long
# as the positional encoding that is added. Now we can say why the rows are short in the first
# place. The exit uses the same rows. Vectors that leave a layer normalisation have features
# of variance 1. If the rows had that as well, a logit would be a sum of $d$ products, and its
# standard deviation would be $\sqrt{d}$, by the rule of [chapter 4](04_scale.ipynb). A fresh model
# would be very certain, and wrong.
#
# PyTorch's `nn.Embedding` has the standard deviation 1, and
# [`TokenEmbedding`](../reference/blocks/embedding.md#tokenembedding) has $1 / \sqrt{d}$. A model that knows nothing about 1,000
# tokens should have the loss $\ln 1000 = 6.91$. Predict the losses for $d = 256$.

# %%
torch.manual_seed(0)
print("           rows with std 1     std 1 / sqrt(d)")
print("   d      logits    loss      logits    loss")
for d in (16, 64, 256, 1024):
    hidden = torch.randn(500, d)  # as after a normalisation
    target = torch.randint(1000, (500,))
    cells = f"{d:4d}"
    for std in (1, d**-0.5):
        logits = leave(std * torch.randn(1000, d), hidden)
        loss = F.cross_entropy(logits, target).item()
        cells += f"{logits.std():12.2f}{loss:8.2f}"
    print(cells)

# %% [markdown]
# With rows of variance 1, the loss grows with $d$ and is far above a guess. The updates of
# the first minutes then only serve to become less certain. With $1 / \sqrt{d}$ the logits have
# the standard deviation 1 for every $d$, and the loss is only about 0.5 above that of a guess.
# At the entrance the factor $\sqrt{d}$ undoes it. So the two choices of section 3.4, one table and
# the factor, belong together: the factor lets one table be short at the exit and long at the
# entrance.
#
# ## Broken on purpose
#
# **Tied, or only equal?** Somebody wants one table and copies the rows of the entrance into the
# exit. The outputs are equal to those of a tied model, bit by bit, and any test of the outputs passes. Predict
# what is different after a single update.

# %% tags=["broken"]
torch.manual_seed(0)
right = build_language_model(100, **sizes)
copied = build_language_model(100, **sizes)
copied.output = torch.nn.Linear(32, 100, bias=False)
copied.load_state_dict(right.state_dict())  # "ties" the weights
for moment in ("at first", "after one update"):
    with torch.no_grad():
        difference = (right(batch) - copied(batch)).abs().max().item()
    print(f"{moment:17s} logits differ by up to {difference:.3f}")
    for each in (right, copied):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        optimizer.zero_grad()
        each.loss(batch).backward()
        optimizer.step()
for each in (right, copied):
    is_tied = each.output.weight is each.embedding.weight
    count = sum(weight.numel() for weight in each.parameters())
    print(f"{count} weights, tied: {is_tied}")

# %% [markdown]
# Two tables with equal numbers are two tables. They get different gradients and drift apart. The check is
# not to compare numbers but to ask whether they are the *same object*, `is`, or to count the
# weights. The same happens to programs that tie correctly but then replace one of the two
# tables, for example to enlarge the vocabulary.
# [`first_difference`](../reference/tools/inspection.md#first_difference) and
# [`check_soundness`](../reference/tools/inspection.md#check_soundness) see a difference only once it is in the outputs, so that this
# one has to be tested *after* an update.
#
# ## Exercises
#
# ### Exercise 1: neighbours
#
# *Easy, about 10 minutes.*
#
# Return the ids of the `count` rows with the largest cosine to row `token`,
# largest first, without the token itself.
#
# <details><summary>Hint</summary>
#
# A long row has large dot products with everything. Divide each row by its `norm` first.
#
# </details>


# %% tags=["stub"]
def neighbours(table, token, count):
    products = table @ table[token]
    return products.topk(count).indices.tolist()


# %% tags=["check"]
rows = torch.tensor([[1.0, 0.0], [0.9, 0.1], [5.0, 5.0], [0.0, 1.0]])
assert neighbours(rows, 0, 2) == [1, 2], "is length divided out?"
assert neighbours(rows, 3, 1) == [2], "the nearest other row"
torch.manual_seed(1)
rows = torch.randn(50, 8)
cosines = F.cosine_similarity(rows[7][None], rows)
expected = cosines.argsort(descending=True)[1:6].tolist()
found = neighbours(rows, 7, 5)
assert found == expected, f"{found}, not {expected}"


# %% tags=["solution"]
def neighbours(table, token, count):
    unit = table / table.norm(dim=1, keepdim=True)
    cosines = unit @ unit[token]
    cosines[token] = -2.0  # below every cosine
    return cosines.topk(count).indices.tolist()


# %% [markdown]
# ### Exercise 2: what do the tables cost?
#
# *Easy, about 10 minutes.*
#
# A translator has a table for the source, one for the target, and one at the exit, without
# biases. Return the number of weights of all three, for `tying` equal to `"none"`,
# `"output"` (the exit shares the target's table) or `"all"` (one vocabulary and one table
# for all three, as in the paper; both vocabularies are then equal).
#
# <details><summary>Hint</summary>
#
# Count the rows of all tables first, and multiply by `d` once.
#
# </details>


# %% tags=["stub"]
def count_tables(source_size, target_size, d, tying):
    return (source_size + target_size + target_size) * d


# %% tags=["check"]
plain = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 8}
for tying in ("none", "output"):
    built = build_seq2seq(20, 30, **plain)
    if tying == "none":
        built.output = torch.nn.Linear(16, 30, bias=False)
    inner = [*built.encoder.parameters(), *built.decoder.parameters()]
    count = sum(each.numel() for each in built.parameters())
    count -= sum(each.numel() for each in inner)
    assert count_tables(20, 30, 16, tying) == count, tying
found = count_tables(37_000, 37_000, 512, "all")
assert found == 18_944_000, f"{found:,} when all three are one"


# %% tags=["solution"]
def count_tables(source_size, target_size, d, tying):
    rows = {
        "none": source_size + 2 * target_size,
        "output": source_size + target_size,
        "all": target_size,
    }
    return rows[tying] * d


# %% [markdown]
# ### Exercise 3: complete the row
#
# *Medium, about 15 minutes.*
#
# `known` is a list of pairs of ids, such as (*cat*, *cats*). Return the id of the word
# that is to `start` as the second words are to the first: add the mean difference to the
# row of `start`, and take the row with the largest cosine, which must not be `start`.
#
# <details><summary>Hint</summary>
#
# Ask `nearest` for two ids: if the first is `start`, the second is the answer.
#
# </details>


# %% tags=["stub"]
def complete(table, known, start):
    first, second = known[0]
    guess = table[start] + table[second] - table[first]
    return nearest(table, guess, 1)[0]


# %% tags=["check"]
rows = torch.tensor(
    [[4.0, 0.0], [4.0, 2.0], [3.0, 3.0], [3.0, 6.0], [0.0, 4.0]]
)
rows = torch.cat([rows, torch.tensor([[-4.0, 0.1], [-4.0, 3.0]])])
found = complete(rows, [(0, 1), (2, 3)], 5)
assert found == 6, f"row {found}: the nearest by its angle"
small = torch.eye(4) + 0.01
assert complete(small, [(0, 0)], 2) != 2, "not the word itself"
torch.manual_seed(2)
base, shift = torch.randn(6, 16), torch.randn(16)
noise = torch.randn(5, 16)
noise -= noise.mean(dim=0)  # the five pairs differ; their mean is right
new = base[5] + torch.stack([shift, shift + noise[0], -shift])
rows = torch.cat([base, base[:5] + shift + noise, new])
known = [(i, i + 6) for i in range(5)]
found = complete(rows, known, 5)
assert found != 12, "use all pairs, not only the first"
assert found != 13, "the second word minus the first"
assert found == 11, f"row {found}"


# %% tags=["solution"]
def complete(table, known, start):
    first, second = torch.tensor(known).T
    mean = (table[second] - table[first]).mean(dim=0)
    best = nearest(table, table[start] + mean, 2)
    return best[1] if best[0] == start else best[0]


# %% [markdown]
# ## What you can do now
#
# You can say where a model keeps what it knows about a word alone, compute how one example
# changes a row, and find words of a kind and directions of meaning in a trained table. You know
# why the paper ties both ends, why it multiplies by $\sqrt{d}$, and how to test that two tables are
# one.
#
# ## Where to go
#
# - A word is more than its row as soon as it reads its neighbours:
#   [chapter 2](02_self_attention.ipynb), and for the order of words [chapter 8](08_positions.ipynb).
# - Where the tokens come from: [chapter 13](13_text_to_batches.ipynb).
# - The module, with its initialisation: [`embedding`](../reference/blocks/embedding.md).
