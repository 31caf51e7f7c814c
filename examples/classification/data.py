"""Data: labelled texts in three splits, the toy reviews or two files of your own.

A file holds a label and a text per line, separated by a tab: ``label<TAB>text``. Part of the
training file is held out for validation. No text is in two splits.
"""

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from classification.reviews import Review, toy_reviews
from common.errors import UserError
from common.files import fingerprint
from common.terminal import counted
from common.text_files import clean_text, read_lines

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Data:
    """Labelled texts in three splits."""

    train: list[Review]
    validation: list[Review]
    test: list[Review]

    @property
    def labels(self) -> list[str]:
        """All labels, in alphabetical order."""
        return sorted({review.label for review in self.train})

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all texts and labels."""
        return fingerprint(self.train, self.validation, self.test)


def load_data(train_file: Path | None, test_file: Path | None) -> Data:
    """Load both files, or generate the toy reviews.

    Raises:
        UserError: If a file is unreadable, or holds too few labels.
    """
    if train_file is None or test_file is None:
        return Data(**toy_reviews())
    test = read_reviews(test_file)
    tested = {review.text for review in test}
    known = [review for review in read_reviews(train_file) if review.text not in tested]
    texts = sorted({review.text for review in known}, key=text_hash)
    held_out = set(texts[: min(1000, max(1, len(texts) // 10))])
    data = Data(
        train=[review for review in known if review.text not in held_out],
        validation=[review for review in known if review.text in held_out],
        test=test,
    )
    if len(data.labels) < 2:
        raise UserError(
            f"{train_file} must hold texts of at least two labels that are neither in {test_file} "
            f"nor held out for validation, got {len(data.labels)}"
        )
    for name, split in (("validation", data.validation), ("test", data.test)):
        for review in split:
            if review.label not in data.labels:
                raise UserError(
                    f"the label {review.label!r} of the {name} texts is on no training text"
                )
    return data


def text_hash(text: str) -> bytes:
    """Hash a text; sorted by their hashes, texts are split independently of their order."""
    return hashlib.sha256(text.encode()).digest()


def read_reviews(path: Path) -> list[Review]:
    """Read a file of labelled texts.

    Raises:
        UserError: If it cannot be read, a line has no tab, or nothing is left.
    """
    reviews, blank = [], 0
    for number, line in enumerate(read_lines(path), start=1):
        label, tab, text = line.partition("\t")
        label, text = clean_text(label, "en"), clean_text(text, "en")
        if not tab and label:
            raise UserError(f"{path}:{number} has no tab; a line must be label, tab, text")
        if label and text:
            reviews.append(Review(text, label))
        else:
            blank += 1
    if not reviews:
        raise UserError(f"{path} holds no text")
    if blank:
        log.warning(f"{path}: left out {counted(blank, 'line')} without a label or a text")
    return reviews


def best_of_counts(reviews: Sequence[Review]) -> float:
    """Compute the highest accuracy of any model of word counts.

    It predicts one label for all texts of the same word counts, at best their most common label.

    Example:
        >>> reviews = [Review("good not bad", "positive"), Review("bad not good", "negative")]
        >>> best_of_counts(reviews)
        0.5
    """
    labels: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for review in reviews:
        labels[tuple(sorted(review.text.split()))][review.label] += 1
    return sum(max(counts.values()) for counts in labels.values()) / len(reviews)
