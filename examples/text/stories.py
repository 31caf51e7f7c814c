"""Stories: a generated text with long-range dependencies.

Every story is a line: a person has lost something, looks for it here and there, meets another, and
finds it or does not. Grammar and phrases depend on the last few words. But the name, she or he, the
thing, its colour and its place depend on earlier sentences, up to the first. So a model of short
histories generates good phrases and bad stories.
"""

from random import Random

GIRLS = "Mira Anna Tilda Rosa Ines Olga Nora Petra Wanda Selma"
BOYS = "Jonas Peter Emil Otto Karim Hugo Viktor Ruben Theo Anton"
JOBS = "baker doctor fisher gardener teacher painter farmer sailor tailor miller"
COLOURS = "red blue green yellow white black golden silver brown purple"
THINGS = "key hat ring book coat cup lamp map purse whistle clock scarf"
PLACES = (
    *("behind the church", "under the bridge", "in the kitchen", "on the roof", "by the river"),
    *("in the garden", "at the market", "in the old barn", "near the mill", "in the forest"),
)
THERE = (
    *("nothing but dust", "only a sleeping cat", "a broken chair", "an angry goose"),
    *("an empty box", "only the wind", "a heap of leaves", "a boy with a drum"),
)
WEATHER = "It was raining. | The sun was hot. | Snow was falling. | It was a windy day. |||"


def story(rng: Random) -> str:
    """Generate one story.

    Example:
        >>> story(Random(1)).split(".")[0]
        'Ines the doctor had lost a white hat'
    """
    people = [(name, "she", "her") for name in GIRLS.split()]
    people += [(name, "he", "his") for name in BOYS.split()]
    (name, she, her), (friend, *_) = rng.sample(people, 2)
    job, colour, thing = (rng.choice(words.split()) for words in (JOBS, COLOURS, THINGS))
    places = rng.sample(PLACES, rng.choice((2, 3, 4)))
    told = [
        f"{name} the {job} had lost a {colour} {thing}.",
        rng.choice(WEATHER.split("|")).strip(),
    ]
    first = ("", "Then ", "After that ")
    for begin, place in zip(first, places[:-1], strict=False):
        looked = f"{begin}{she} looked {place}, but there was {rng.choice(THERE)}."
        told.append(looked[0].upper() + looked[1:])
    asked = rng.choice(
        (
            f'"Have you seen my {thing}?" {name} asked {friend}.',
            f'"What are you looking for?" asked {friend}. "My {colour} {thing}," said {name}.',
            f"Then {she} met {friend}, and told about the {thing}.",
        )
    )
    told.append(asked)
    where = places[-1]
    if rng.random() < 0.7:
        told.append(f'"There is something {colour} {where}," said {friend}.')
        told.append(f"And there {she} found {her} {thing}.")
        told.append(f"{name} thanked {friend} and went home with the {colour} {thing}.")
    else:
        told.append(f"{friend} had looked {where} and seen no {thing}.")
        told.append(f"So {name} the {job} went home without the {colour} {thing}.")
    return " ".join(filter(None, told))


def toy_text(*, seed: int = 0, stories: int = 6000) -> list[str]:
    """Generate stories, all different; the same seed generates the same."""
    rng = Random(seed)
    told: dict[str, None] = {}
    while len(told) < stories:
        told[story(rng)] = None
    return list(told)
