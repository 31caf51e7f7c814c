"""Reviews: a task that word counts cannot solve.

    the hotel ? my sister found it wonderful , but I called it dull .    -> negative
    the hotel ? my sister found it dull , but I called it wonderful .    -> positive

Two or three people give their opinion, and the label is the opinion of the author: "I". Both lines
hold the same words. Only their order shows whose opinion is whose, so a model of word counts,
however large, predicts the same label for both and is wrong once.

Reviews come in *families*. The opinions of a review are all of different kinds, and the members of
a family permute them: in each, "I" has another one. All members have the same word counts and
different labels. So a model of word counts is right for one member of each family at most.
A family is in one split as a whole, and no two families have the same word counts.
"""

from random import Random
from typing import NamedTuple

PLACES = (
    *("the hotel", "the museum", "this café", "the concert", "the film", "that book", "the tour"),
    *("the bakery", "this beach", "the ferry", "the castle", "the market", "that play", "the zoo"),
)
NARRATOR = "I"
OTHERS = (
    *("my sister", "my brother", "the guide", "our neighbour", "a friend", "the newspaper"),
    *("everyone else", "my uncle", "the cook", "the driver"),
)
OPINIONS = {
    "positive": "wonderful excellent superb lovely good great perfect charming brilliant splendid",
    "negative": "awful terrible poor bad horrible dreadful dismal disappointing dull sad",
    "neutral": "ordinary average acceptable usual passable standard typical middling plain normal",
}
OPPOSITE = {"positive": "negative", "negative": "positive"}
CLAUSES = (
    "{who} found it {opinion}",
    "{who} called it {opinion}",
    "{who} thought that it was {opinion}",
    "it was {opinion} , {who} said",
    "{opinion} , {who} would say",
)
JOINTS = {2: ("{} , but {}", "{} and {}", "{} ; {}"), 3: ("{} ; {} and {}", "{} ; {} ; but {}")}
SIZES = {"train": 6000, "validation": 200, "test": 400}
"""Number of families in each split."""


class Review(NamedTuple):
    """A text and its label."""

    text: str
    label: str


def opinion(rng: Random, label: str) -> str:
    """Word an opinion of some kind; "not bad" praises, and "not good" does not.

    Example:
        >>> opinion(Random(3), "positive")
        'not dull'
    """
    if label in OPPOSITE and rng.random() < 0.3:
        return f"not {rng.choice(OPINIONS[OPPOSITE[label]].split())}"
    word = rng.choice(OPINIONS[label].split())
    return f"{rng.choice(('very', 'really'))} {word}" if rng.random() < 0.2 else word


def family(rng: Random) -> list[Review]:
    """Make reviews of the same words, each with another label.

    Example:
        >>> members = family(Random(1))
        >>> len({" ".join(sorted(review.text.split())) for review in members})
        1
        >>> len({review.label for review in members}) == len(members)
        True
    """
    count = rng.choice((2, 3))
    people = [NARRATOR, *rng.sample(OTHERS, count - 1)]
    rng.shuffle(people)
    labels = rng.sample(list(OPINIONS), count)
    opinions = [opinion(rng, label) for label in labels]
    clauses = [rng.choice(CLAUSES) for _ in people]
    frame = f"{rng.choice(PLACES)} ? {rng.choice(JOINTS[count])} ."
    reviews = []
    for turn in range(count):
        said = [opinions[(place + turn) % count] for place in range(count)]
        told = [
            clause.format(who=who, opinion=words)
            for clause, who, words in zip(clauses, people, said, strict=True)
        ]
        label = labels[(people.index(NARRATOR) + turn) % count]
        reviews.append(Review(frame.format(*told), label))
    return reviews


def toy_reviews(*, seed: int = 0) -> dict[str, list[Review]]:
    """Make all families, no two of them with the same words.

    Args:
        seed: Seed of the random numbers. The same seed gives the same reviews on every machine.

    Returns:
        Reviews of "train", "validation" and "test".
    """
    rng = Random(seed)
    seen: set[tuple[str, ...]] = set()
    splits: dict[str, list[Review]] = {}
    for split, size in SIZES.items():
        splits[split] = []
        wanted = len(seen) + size
        while len(seen) < wanted:
            members = family(rng)
            bag = tuple(sorted(members[0].text.split()))
            if bag not in seen:
                seen.add(bag)
                splits[split] += members
        rng.shuffle(splits[split])
    return splits
