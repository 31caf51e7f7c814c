"""Unit 1: byte-pair encoding. Chapter 13 of the book.

"Neural Machine Translation of Rare Words with Subword Units", Sennrich et al. 2016.

A tokenizer begins with characters and learns merges: again and again, the most frequent pair of
adjacent tokens becomes one token. Later, the same merges in the same order split a new word.
"""


def merge(tokens: list[str], pair: tuple[str, str]) -> list[str]:
    """Make each occurrence of a pair of adjacent tokens one token, from left to right.

    Args:
        tokens: The tokens of a word.
        pair: The two tokens to merge. ``("a", "a")`` turns a a a into aa a.

    Returns:
        A new list; ``tokens`` remains as it is.
    """
    raise NotImplementedError


def learn_merges(text: str, count: int) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """Learn merges from a text.

    No pair crosses a space. The frequency of a pair is its number of occurrences in the whole text;
    overlapping ones count, so that aaaa holds the pair a a three times. Of equally frequent pairs,
    take the one whose first token has the smaller id, and if these are equal too, the one whose
    second token has the smaller id.

    Args:
        text: Words, separated by spaces.
        count: How many merges to learn; fewer if no pair is left.

    Returns:
        The merges in the order in which they were learned, and the vocabulary: the ids of the
        characters other than the space, which are numbered from 0 in sorted order, and of the
        merged tokens, each with the next free id.
    """
    raise NotImplementedError


def encode_word(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """Split a word into tokens.

    Begin with its characters, and apply the merges in the order in which they were learned.

    Args:
        word: A word, without spaces.
        merges: The merges of :func:`learn_merges`.

    Returns:
        The tokens. Their concatenation is the word.
    """
    raise NotImplementedError
