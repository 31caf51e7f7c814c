"""Step 8: from text to tokens, by byte-pair encoding.

    python examples/ladder/step8_byte_pair_encoding.py

The previous steps started from vectors, one for each token of a vocabulary. What is a token? A
vocabulary of words cannot represent a word that is not in the training text. A vocabulary of
characters can, but its sequences are long, and the cost of attention grows with the square of their
length. *Byte-pair encoding* (Gage 1994; for translation Sennrich et al. 2016,
https://arxiv.org/abs/1508.07909) finds subwords between the two:

1. Split the text into words, and the words into characters. The characters are the first tokens.
2. Count the pairs of adjacent tokens. Merge the most frequent pair into a new token, everywhere.
3. Repeat the second point until the vocabulary has the desired size.

A frequent word becomes one token, a rare one several. A new text is encoded by the same merges in
the same order. A space belongs to the word that follows it, so decoding only joins the tokens.

Among pairs of equal frequency, the one whose first token has the smaller id is merged, then the one
whose second has. Any rule would do; this is the rule of the library ``tokenizers``, so both learn
the same merges. GPT-2 differs in two points: it starts from the 256 bytes instead of characters, so
that no character is missing, and it splits words at digits and punctuation, too
(``examples/pretrained/byte_pairs.py``).
"""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

from drawing import FOLDER, new_figure, save, tidy

TEXT = """the newest road is the widest road and the lowest road is the oldest road
the new road is wider than the old road and lower than the oldest
a low road is a wet road and the wettest road is the lowest"""
NEW_TEXT = "the newer tower is wider and older than the lowest road"

Pair = tuple[str, str]


def split_words(text: str) -> list[str]:
    """Split a text into words; the space before a word belongs to the word."""
    return re.findall(r" ?[^ \n]+|[ \n]", text)


def count_pairs(words: dict[str, list[str]], frequencies: Counter[str]) -> Counter[Pair]:
    """Count how often two tokens stand side by side within a word of the text."""
    pairs: Counter[Pair] = Counter()
    for word, tokens in words.items():
        for pair in pairwise(tokens):
            pairs[pair] += frequencies[word]
    return pairs


def merge(tokens: list[str], pair: Pair) -> list[str]:
    """Replace each occurrence of a pair, from left to right, by one token."""
    merged: list[str] = []
    position = 0
    while position < len(tokens):
        is_pair = tuple(tokens[position : position + 2]) == pair
        merged.append("".join(pair) if is_pair else tokens[position])
        position += 2 if is_pair else 1
    return merged


def train(text: str, vocabulary_size: int) -> tuple[dict[str, int], list[Pair]]:
    """Learn the id of each token, and the merges in their order."""
    frequencies = Counter(split_words(text))
    words = {word: list(word) for word in frequencies}
    vocabulary = {character: number for number, character in enumerate(sorted(set(text)))}
    merges: list[Pair] = []
    while len(vocabulary) < vocabulary_size and (pairs := count_pairs(words, frequencies)):
        highest = max(pairs.values())
        candidates = [pair for pair, count in pairs.items() if count == highest]
        best = min(candidates, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        words = {word: merge(tokens, best) for word, tokens in words.items()}
        vocabulary.setdefault("".join(best), len(vocabulary))
        merges.append(best)
    return vocabulary, merges


def tokenize(text: str, merges: list[Pair]) -> list[str]:
    """Split a text into tokens by applying the merges in the order in which they were learnt."""
    found = []
    for word in split_words(text):
        tokens = list(word)
        for pair in merges:
            tokens = merge(tokens, pair)
        found += tokens
    return found


def encode(text: str, vocabulary: dict[str, int], merges: list[Pair]) -> list[int]:
    """Turn a text into token ids; an unknown character raises a ``KeyError``."""
    return [vocabulary[token] for token in tokenize(text, merges)]


def decode(ids: list[int], vocabulary: dict[str, int]) -> str:
    """Turn token ids into text."""
    tokens = {number: token for token, number in vocabulary.items()}
    return "".join(tokens[number] for number in ids)


def main(folder: Path = FOLDER) -> None:
    """Print the merges and the tokens of a new text, then draw the number of tokens per word."""
    alphabet = len(set(TEXT))
    vocabulary, merges = train(TEXT, alphabet + 40)
    print(f"The text has {len(TEXT)} characters, {alphabet} of them different. The first merges:\n")
    words = {word: list(word) for word in split_words(TEXT)}
    frequencies = Counter(split_words(TEXT))
    for number, pair in enumerate(merges[:10], start=1):
        count = count_pairs(words, frequencies)[pair]
        words = {word: merge(tokens, pair) for word, tokens in words.items()}
        print(f"{number:4d}  {show(pair[0]):>4} + {show(pair[1]):4} {count:3d} times")

    ids = encode(NEW_TEXT, vocabulary, merges)
    seen = set(re.findall(r"\w+", TEXT))
    new = [word for word in dict.fromkeys(NEW_TEXT.split()) if word not in seen]
    print(f"\nA new text, in which these words are new: {', '.join(new)}")
    for size in (0, 10, 40):
        tokens = tokenize(NEW_TEXT, merges[:size])
        print(f"\n{size:4d} merges, {len(tokens):2d} tokens:  {'|'.join(map(show, tokens))}")
    print(f"\nids:      {' '.join(map(str, ids))}")
    print(f"decoded:  {decode(ids, vocabulary)}")

    sizes = range(len(merges) + 1)
    figure, (axes,) = new_figure(1, width=5.5)
    for text, name in ((TEXT, "training text"), (NEW_TEXT, "new text")):
        lengths = [len(tokenize(text, merges[:size])) / len(text.split()) for size in sizes]
        axes.plot([alphabet + size for size in sizes], lengths, label=name)
    axes.axhline(1.0, color="grey", ls=":", label="one token for each word")
    axes.set_ylim(bottom=0.0)
    tidy(axes, x="size of the vocabulary", y="tokens for each word")
    axes.legend(frameon=False)
    save(figure, "step8", folder)


def show(token: str) -> str:
    """Make a token's spaces visible."""
    return token.replace(" ", "▁").replace("\n", "⏎")


if __name__ == "__main__":
    main()
