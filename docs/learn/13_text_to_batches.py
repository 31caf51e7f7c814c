# %% [markdown]
# # 13 Text to batches
#
# **How does a sentence become a rectangle of numbers, and what is lost on the way?**
#
# So far, the tokens and their ids were given. A real corpus
# consists of lines of text. Japanese has no spaces, words have endings, and
# sentences differ in length. Between the file and the model lie three steps:
#
# 1. **Tokenisation** splits a text into tokens of a fixed vocabulary, and gives
#    each its id.
# 2. **Padding** fills up the sequences of a batch to one length.
# 3. **Shifting** makes the decoder's input and its targets from the translation.
#
# Each step can destroy something without an error.
#
# ## What is a token?
#
# If every *word* is a token, the sequences are short. But a vocabulary of words
# has no token for 飲みました when only 飲みます was in the training text. If every
# *character* is a token, nothing is unknown, but the sequences are long, and the
# cost of attention grows with the square of their length.
#
# *Byte-pair encoding* (Gage 1994; for translation
# [Sennrich et al. 2016](https://arxiv.org/abs/1508.07909); section 5.1 of the
# paper) finds *subwords* between the two. It starts with characters, and then
# repeats: count all pairs of adjacent tokens, and merge the most frequent pair
# into a new token. Frequent words become one token, rare ones several.
#
# ## By hand
#
# The text has three different words, with their numbers of occurrences. (A Japanese
# text has no word boundaries; here they are given, and below the tokenizer works
# without them.)
#
# | word | count | its pairs |
# | --- | --- | --- |
# | 食べます | 2 | 食べ, べま, ます |
# | 飲みます | 1 | 飲み, みま, ます |
# | 食べた | 1 | 食べ, べた |
#
# A pair occurs as often as the words that contain it:
#
# | pair | 食べ | ます | べま | 飲み | みま | べた |
# | --- | --- | --- | --- | --- | --- | --- |
# | count | 2 + 1 = 3 | 2 + 1 = 3 | 2 | 1 | 1 | 1 |
#
# Two pairs occur three times. Any rule for ties will do. Ours takes the pair
# whose first token has the smaller id, and ids are given in the order of Unicode
# at the beginning: す た べ ま み 食 飲. The pair (ま, す) comes first, because ま
# has the id 3 and 食 has the id 5.
#
# | merge | new token | the words after it |
# | --- | --- | --- |
# | 1 | ます | 食 べ ます, 飲 み ます, 食 べ た |
# | 2 | 食べ | 食べ ます, 飲 み ます, 食べ た |
# | 3 | 食べます | 食べます, 飲 み ます, 食べ た |
#
# Without knowing any grammar, it has found a verb's stem and the polite ending.
# The most frequent word has become a single token.
#
# ![The three words as rows of characters. The first merge joins ま and す, the second joins 食 and べ, the third joins 食べ and ます into the single token 食べます.](figures/merges.svg)
#
# ## The formula and the code
#
# With $n_w$, the number of times that the word $w$ occurs, and $w_i$, its tokens
# at present, the pair to merge is

# %% [markdown] tags=["formula"]
# $$c(a, b) = \sum_{w} n_w \sum_{i} [\,w_i = a,\; w_{i+1} = b\,]$$
#
# $$(a, b) = \arg\max_{(a, b)} \; c(a, b)$$
#
# The bracket is 1 if the condition holds, else 0.

# %% tags=["implementation"]
from collections import Counter
from itertools import pairwise


def best_pair(words, vocabulary):
    """The most frequent pair; words: tokens -> count."""
    counts = Counter()
    for tokens, count in words.items():
        for pair in pairwise(tokens):
            counts[pair] += count

    def rank(pair):
        a, b = pair
        return -counts[pair], vocabulary[a], vocabulary[b]

    return min(counts, key=rank, default=None)


# %% [markdown]
# A merge goes through the tokens from left to right. If the last token and the
# next one are the pair, they become one.


# %% tags=["implementation"]
def merge(tokens, pair):
    """Make each occurrence of the pair one token."""
    merged = []
    for token in tokens:
        if merged and (merged[-1], token) == pair:
            merged[-1] += token
        else:
            merged.append(token)
    return merged


# %%
def learn_merges(text, count):
    """Learn merges from a text whose words are given by spaces."""
    vocabulary = {c: i for i, c in enumerate(sorted(set(text) - {" "}))}
    words = {
        tuple(word): n for word, n in Counter(text.split()).items()
    }
    merges = []
    while len(merges) < count and (
        pair := best_pair(words, vocabulary)
    ):
        words = {tuple(merge(w, pair)): n for w, n in words.items()}
        vocabulary.setdefault("".join(pair), len(vocabulary))
        merges.append(pair)
    return merges, vocabulary


text = "食べます 食べます 飲みます 食べた"
merges, vocabulary = learn_merges(text, 3)
print(merges)

# %% [markdown]
# These are the merges that we found by hand.
#
# ## The same, by a library
#
# Tokenizers are not part of `transformer_blocks`. The well-known library
# `tokenizers` learns the same merges in the same order, ties included.

# %% tags=["proof"]
import json

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

sentences = """
the newest road is the widest road and the lowest is the oldest
the new road is wider than the old road and lower than the oldest
a low road is a wet road and the wettest road is the lowest
"""
theirs = Tokenizer(models.BPE())
theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
alphabet = len(set("".join(sentences.split())))
trainer = trainers.BpeTrainer(
    vocab_size=alphabet + 30, show_progress=False, special_tokens=[]
)
theirs.train_from_iterator([sentences], trainer)
their_merges = json.loads(theirs.to_str())["model"]["merges"]

ours, _ = learn_merges(sentences.replace("\n", " "), 30)
assert ours == [tuple(pair) for pair in their_merges]
print(len(ours), "merges are equal")
print(*ours[:4])

# %% [markdown]
# ## Subwords of a real tokenizer
#
# The translator of this project uses `sentencepiece`, one vocabulary for each
# language. It takes whole sentences, so Japanese needs no word boundaries. A
# space is a character like others, shown as ▁, which restores the text exactly.
# Here it learns from 4,000 sentences of the toy corpus.

# %%
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, "../../examples")
from common.tokenizer import BOS, EOS, PAD, Tokenizer
from translation.toy import toy_corpus

pairs = toy_corpus()["train"][:4000]
folder = Path(tempfile.mkdtemp())
tokenizers = {}
for size in (330, 500, 1000, 2000):
    tokenizers[size] = Tokenizer.train(
        [source for source, _ in pairs],
        vocab_size=size,
        path=folder / f"{size}.model",
    )
sentence = "猫は魚を食べます。"
for size, tokenizer in tokenizers.items():
    tokens = [tokenizer.decode([i]) for i in tokenizer.encode(sentence)]
    print(f"{size:5d}  {' '.join(tokens)}")

# %% [markdown]
# With 330 tokens, little more than the characters fits into the vocabulary. With
# more, frequent strings of characters become tokens. They do not respect the
# boundaries of words: 猫は holds a noun and a particle, 魚を食べ an object and the
# stem of its verb. The sequences get shorter as the vocabulary grows.
#
# ![Tokens per sentence against the size of the vocabulary for Japanese and English sentences of the toy corpus: the number of tokens falls steeply at first and then hardly at all.](figures/vocabulary.svg)
#
# A larger vocabulary also costs: each token has a row in the embedding and in
# the output layer, and a rare token is seldom trained. The paper uses 37,000
# tokens for both languages together.
#
# Is anything lost? Decoding restores the sentence. A character that never
# occurred in training becomes the *unknown* token, which is decoded as ⁇.

# %%
tokenizer = tokenizers[1000]
for text in (sentence, "猫は鯖を食べます。"):
    print(text, "->", tokenizer.decode(tokenizer.encode(text)))

# %% [markdown]
# The mackerel 鯖 is gone. (Some tokenizers fall back to the bytes of an unknown
# character instead. GPT-2's starts from bytes, and knows no unknown token.)
#
# ## A batch
#
# Take two sentence pairs, with words as tokens. The special tokens are
# `<pad>` = 0 for padding, `<bos>` = 2 for the beginning and `<eos>` = 3 for the end.
#
# | tensor | the first pair | the second pair |
# | --- | --- | --- |
# | source, (B, S) | 猫 は 魚 を 食べ ます 。 | 鳥 は 見 ます 。 `<pad>` `<pad>` |
# | decoder input, (B, L) | `<bos>` the cat eats fish . | `<bos>` the bird sees . `<pad>` |
# | targets, (B, L) | the cat eats fish . `<eos>` | the bird sees . `<eos>` `<pad>` |
#
# The decoder's input and its targets are the same sentence, shifted by one
# position: at each position, the model receives the tokens so far and must
# predict the next one. All positions are trained at once, which is called
# *teacher forcing* ([chapter 12](12_encoder_decoder.ipynb)). Padding in the targets
# is left out of the loss.
#
# ![Two rows of tokens, the decoder's input above and the targets below, the targets shifted by one to the left: beginning of sentence predicts the, the predicts cat, and fish and the full stop follow until the end of sentence.](figures/shift.svg)

# %%
import torch

from transformer_blocks import format_mask, padding_mask


def pad(sequences, length=None):
    """Pad lists of ids with PAD to one length: (B, L)."""
    length = length or max(map(len, sequences))
    return torch.tensor(
        [ids + [PAD] * (length - len(ids)) for ids in sequences]
    )


sources = [[10, 4, 11, 5, 12, 6, 7], [13, 4, 14, 6, 7]]
targets = [[20, 21, 22, 23, 24], [20, 25, 26, 24]]
source = pad(sources)
target_in = pad([[BOS, *ids] for ids in targets])
target_out = pad([[*ids, EOS] for ids in targets])
print(target_in)
print(target_out)
print(format_mask(padding_mask(source)))

# %% [markdown]
# ## How much of a batch is padding?
#
# A batch is as long as its longest sentence. With lengths $n_1, \dots, n_B$, the
# share of its positions that is padding, and whose computation is wasted, is
#
# $$1 - \frac{n_1 + \dots + n_B}{B \cdot \max_i n_i}$$
#
# For the lengths 7 and 5 it is 1 - 12 / 14 = 14 %. Predict whether it is more or
# less in batches of 64 random sentences. Then the sentences are sorted by length
# before they are divided into batches.


# %%
def padding_share(batches):
    """Share of padding in batches, given as lists of lengths."""
    positions = sum(len(batch) * max(batch) for batch in batches)
    return 1 - sum(map(sum, batches)) / positions


lengths = [len(tokenizer.encode(source)) for source, _ in pairs]
for name, order in (("random", lengths), ("sorted", sorted(lengths))):
    batches = [order[i : i + 64] for i in range(0, len(order), 64)]
    print(f"{name}: {padding_share(batches):.1%} padding")

# %% [markdown]
# Sorting removes almost all padding. The project's translator sorts by the
# lengths of both sides, fills each batch up to a number of *tokens* rather than
# sentences, and shuffles the batches. The paper's batches have about 25,000
# source tokens and as many target tokens (section 5.1).
#
# ## Broken on purpose
#
# The tokenizer pads with its own id, and the mask looks for another. Both are
# integers, so no error is raised. `sentencepiece` has no padding token unless it
# is told to, and many programs then pad with the end token. The model below
# masks the id 0, and the batch is padded with 3. Predict which sentence suffers.

# %% tags=["broken"]
import textwrap

from transformer_blocks import TokenEmbedding, build_encoder
from transformer_blocks.inspection import check_soundness

torch.manual_seed(0)
embedding = TokenEmbedding(30, 16)
encoder = build_encoder(num_layers=1, d_model=16, num_heads=2, d_ff=32)
encoder = encoder.eval()


def encode(tokens):
    return encoder(embedding(tokens), mask=padding_mask(tokens))


def check(padding_id):
    sequences = [torch.tensor(ids) for ids in sources]
    batch = torch.nn.utils.rnn.pad_sequence(sequences, True, padding_id)
    soundness = check_soundness(
        encode, batch, only="padding", padding_id=padding_id
    )
    return soundness["padding"]


print(bool(check(PAD)))
for problem in check(EOS).problems:
    print(textwrap.fill(problem, 46, subsequent_indent="  "))

# %% [markdown]
# The shorter sentence attends to the padding, and its vectors depend on the
# sentences that happen to be in its batch. With still more padding, even the
# longer sentence does. [`check_soundness`](../reference/tools/inspection.md#check_soundness)
# compares each sentence alone with the same sentence in a batch. Call it once
# for every new model and tokenizer.
#
# ## Exercises
#
# ### Exercise 1: merge by hand
#
# *Medium, about 15 minutes.*
#
# Which three merges does byte-pair encoding learn from the text
# "low low lower slow"? Count with pencil and paper. Ties go to the pair whose
# first token has the smaller id, then to the one whose second has. The ids of
# the characters are e 0, l 1, o 2, r 3, s 4, w 5, and a new token gets the next
# free id.
#
# <details><summary>Hint</summary>
#
# Count the pairs inside words only, and count a word as often as it occurs.
#
# </details>


# %% tags=["stub"]
def merges_by_hand():
    return [("s", "l"), ("l", "o"), ("w", "e")]


# %% tags=["check"]
right = learn_merges("low low lower slow", 3)[0]
for i, (mine, pair) in enumerate(zip(merges_by_hand(), right)):
    assert mine == pair, f"merge {i + 1}: {mine} is not the commonest"
assert len(merges_by_hand()) == 3, "three merges"


# %% tags=["solution"]
def merges_by_hand():
    # lo and ow occur 4 times each, and l has a smaller id than o.
    # Then (lo, w) occurs 4 times. What is left is low e r and s low:
    # (low, e), (e, r) and (s, low) occur once each, and e has the
    # smallest id, 0.
    return [("l", "o"), ("lo", "w"), ("e", "r")]


# %% [markdown]
# ### Exercise 2: encode a new word
#
# *Medium, about 15 minutes.*
#
# A new word is split into characters, and then the merges are applied in the order in
# which they were learned. `merges` is a list of pairs. Return the list of tokens, with
# the help of `merge` from above.
#
# <details><summary>Hint</summary>
#
# Begin with `list(word)`, and give the result of each merge to the next.
#
# </details>


# %% tags=["stub"]
def encode_word(word, merges):
    return list(word)


# %% tags=["check"]
found = encode_word("食べました", merges)
assert found == ["食べ", "ま", "し", "た"], found
found = encode_word("食べます", merges)
assert found == ["食べます"], f"{found}: in the order of learning"
assert encode_word("", merges) == [], "an empty word has no tokens"


# %% tags=["solution"]
def encode_word(word, merges):
    tokens = list(word)
    for pair in merges:
        tokens = merge(tokens, pair)
    return tokens


# %% [markdown]
# ### Exercise 3: batches of similar length
#
# *Medium, about 20 minutes.*
#
# Divide sentences into batches. `lengths` holds the length of each sentence,
# `batch_tokens` the largest number of positions of a batch, padding included
# (number of sentences times the longest of them). Return a list of batches; each
# is a list of *indices* into `lengths`. Every sentence occurs once, and sentences
# of similar length go together.
#
# <details><summary>Hint</summary>
#
# Go through the indices in the order of the lengths. When would one more
# sentence make the batch too large?
#
# </details>


# %% tags=["stub"]
def make_batches(lengths, batch_tokens):
    return [list(range(len(lengths)))]


# %% tags=["check"]
made = make_batches(lengths, 512)
used = sorted(i for batch in made for i in batch)
assert used == list(range(len(lengths))), "each sentence once"
taken = [[lengths[i] for i in batch] for batch in made]
largest = max(len(batch) * max(batch) for batch in taken)
assert largest <= 512, f"a batch of {largest} tokens with padding"
share = padding_share(taken)
assert share < 0.03, f"{share:.0%} padding: sort by length first"
assert len(made) < sum(lengths) / 512 * 1.1, "the batches are too small"


# %% tags=["solution"]
def make_batches(lengths, batch_tokens):
    made = [[]]
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if lengths[index] * (len(made[-1]) + 1) > batch_tokens:
            made.append([])
        made[-1].append(index)
    return made


# %% [markdown]
# ## What you can do now
#
# Merges turn text into subwords, ids and padded batches. You can learn merges,
# encode a word that was never seen, and form batches that waste little on
# padding.
#
# ## Where to go
#
# - Batches go into the training loop: [chapter 14](14_train.ipynb).
# - Why a mask is needed for padding, and which way it goes:
#   [chapter 5](05_masks.ipynb).
# - Published tokenizers, GPT-2's from bytes among them: `transformer_blocks/pretrained/tokenizer.py`.
# - Find out why a model is wrong: `python examples/course.py debug 11`
#   ([all cases](../howto/debug_a_transformer.md)).
