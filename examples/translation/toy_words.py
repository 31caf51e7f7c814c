"""The words of the toy corpus: how they inflect. The dictionary is in ``toy_words.ini``.

Japanese puts the verb or adjective last, so a Japanese sentence inflects at its end only:
politeness, negation and tense follow by rule, with two or three exceptions. English inflects at
the beginning of its predicate: one auxiliary carries tense, question and negation. Both sets of
rules stand here; their endings and forms are tables of the dictionary, as are the nouns, people,
places, verbs, adjectives and times, each in both languages, with what may sensibly be said of it.

Next: ``toy.py`` makes sentences of them.
"""

from configparser import ConfigParser, ExtendedInterpolation
from functools import cache
from pathlib import Path
from typing import NamedTuple

Phrase = tuple[str, str]  # Japanese, English


def fields_of(text: str) -> list[list[str]]:
    """Read the fields of each row of a table, whose form the dictionary describes."""
    lines = text.strip().replace("|", "\n").split("\n")
    return [[field.strip("_").replace("+", " ") for field in line.split()] for line in lines]


WORDS = ConfigParser(delimiters=("=",), interpolation=ExtendedInterpolation())
WORDS.read(Path(__file__).with_suffix(".ini"), encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """Read a table of the dictionary."""
    return fields_of(WORDS["tables"][name])


def forms(name: str) -> dict[str, list[str]]:
    """Read a table of inflected forms, by the word or the ending that is inflected."""
    return {word: inflected for word, *inflected in rows(name)}


# ------------------------------------------------------------------ the kinds of words


class Noun(NamedTuple):
    """A thing. Liquids have a vessel; the counter is "-" for what cannot be counted."""

    kind: str
    japanese: str
    english: str
    counter: str = ""
    vessel: str = ""

    @property
    def is_mass(self) -> bool:
        """Whether English uses it without article and plural: bread, tea, music."""
        return self.counter == "-" or bool(self.vessel)

    def counted(self, number: str, words: str) -> str:
        """Count in English: a cat, two cats, three cups of tea; of 何, how many cats."""
        unit, of = (self.vessel, f" of {words}") if self.vessel else (words, "")
        return (with_article(unit) if number == "一" else f"{NUMBERS[number]} {with_s(unit)}") + of


class Person(NamedTuple):
    """Someone, with the form of "be" that agrees; the circle decides who is told of or asked."""

    japanese: str
    english: str
    be: str = "is"
    circle: str = "other"

    def form(self, case: int) -> str:
        """Return the object form (0: him, Tom) or the possessive (1: his, Tom's)."""
        return PRONOUNS.get(self.english, [self.english, self.english + "'s"])[case]


class Verb(NamedTuple):
    """A verb in both languages, and what may be said with it (see ``VERBS``)."""

    japanese: str
    group: str
    base: str
    past: str
    ing: str
    particle: str = ""
    preposition: str = ""
    objects: str = ""
    places: str = ""
    uses: str = ""


class Adjective(NamedTuple):
    """A quality and the kinds of nouns that have it; its last kana tells its inflection."""

    japanese: str
    english: str
    comparative: str
    kinds: str

    @property
    def predicate(self) -> str:
        """The end of a sentence, as ``inflect`` reads it: 白-いです, 静か-です."""
        if self.japanese == "いい":
            return "-いいです"
        return self.japanese[:-1] + {"い": "-いです", "な": "-です"}[self.japanese[-1]]


# ------------------------------------------------------------------ inflection: Japanese

GODAN, ENDINGS = forms("godan"), forms("endings")


@cache
def stems(verb: Verb) -> tuple[str, str, str]:
    """Return what endings are built on: the stems before ない and ます, and the て-form.

    一段 (one-row) verbs drop their る, 五段 verbs follow ``GODAN``; 行く and する are exceptions.
    (So is 来る, to the ear: the こ of 来ない and the き of 来ます do not show in writing.)

    Example:
        >>> stems(Verb("泳ぐ", "五段", "swim", "swam", "swimming"))
        ('泳が', '泳ぎ', '泳いで')
    """
    root, last = verb.japanese[:-1], verb.japanese[-1]
    if verb.group == "五段":
        nai, masu, te = GODAN[last]
        return root + nai, root + masu, root + ("って" if verb.japanese == "行く" else te)
    if verb.group == "サ変":
        root = verb.japanese[:-2] + "し"
    return root, root, root + "て"


def conjugate(pattern: str, verb: Verb) -> str:
    """Write the forms of a verb where a pattern of either language names them.

    Example:
        >>> swim = Verb("泳ぐ", "五段", "swim", "swam", "swimming")
        >>> conjugate("{te}ください", swim), conjugate("please {base}", swim)
        ('泳いでください', 'please swim')
    """
    nai, masu, te = stems(verb)
    ta = te[:-1] + {"て": "た", "で": "だ"}[te[-1]]  # the plain past is the て-form with た
    return pattern.format(nai=nai, masu=masu, te=te, ta=ta, plain=verb.japanese, **verb._asdict())


def inflect(predicate: str, tense: str, negative: bool = False) -> str:
    """Inflect the ending that follows the hyphen; the Japanese future is its present.

    Example:
        >>> inflect("泳ぎ-ます", "past"), inflect("白-いです", "past", negative=True)
        ('泳ぎました', '白くありませんでした')
    """
    stem, _, ending = predicate.partition("-")
    return stem + (ENDINGS[ending][2 * (tense == "past") + negative] if ending else "")


# ------------------------------------------------------------------ inflection: English

AUXILIARIES, PRONOUNS = forms("auxiliaries"), forms("pronouns")
IRREGULAR_S, NUMBERS = dict(rows("irregular s")), dict(rows("numbers"))


def with_s(word: str) -> str:
    """Add the s that plural nouns and third-person verbs share: cats, watches, studies."""
    last = word.split(" ")[-1]
    if last in IRREGULAR_S:
        return word.removesuffix(last) + IRREGULAR_S[last]
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def with_article(words: str) -> str:
    """Put "a" or "an" before a noun, as its first letter sounds."""
    return ("an " if words[0] in "aeiou" else "a ") + words


def join(*words: str) -> str:
    """Join the words that are there."""
    return " ".join(word for word in words if word)


# ------------------------------------------------------------------ sentences


def finish(japanese: str, english: str) -> Phrase:
    """Close a sentence in both languages; Japanese marks a question with か."""
    mark = "?" if japanese.endswith("か") else "."
    return japanese + "。", english[0].upper() + english[1:].replace(" ,", ",") + mark


def sentence(
    japanese: str, who: Person, english: str, tense: str,
    *, negative: bool = False, asks: bool = False, asked: str = "",
) -> Phrase:  # fmt: skip
    """Inflect a sentence in both languages.

    In Japanese the ending inflects (see ``inflect``), and か asks. In English the auxiliary does:
    it is moved, negated or, if it is "do", left out.

    Args:
        japanese: The whole sentence, with a hyphen before the ending.
        who: The subject.
        english: What follows the subject, beginning with an auxiliary in its base form.
        tense: "past", "present" or "future".
        negative: Whether to deny it.
        asks: Whether to ask.
        asked: The question word that English puts first; Japanese has it in its place.

    Example:
        >>> he = Person("彼", "he")
        >>> sentence("彼はここで泳ぎ-ます", he, "do swim here", "past")
        ('彼はここで泳ぎました。', 'He swam here.')
        >>> sentence("彼はここで泳ぎ-ます", he, "do swim here", "past", negative=True)
        ('彼はここで泳ぎませんでした。', 'He did not swim here.')
        >>> sentence("彼はどこで泳ぎ-ます", he, "do swim", "present", asks=True, asked="where")
        ('彼はどこで泳ぎますか。', 'Where does he swim?')
    """
    japanese = inflect(japanese, tense, negative) + "か" * asks
    auxiliary, _, rest = english.partition(" ")
    word = AUXILIARIES[f"{auxiliary} {tense}"][AUXILIARIES["be present"].index(who.be)]
    if asks and who not in (WHO, WHAT):
        return finish(japanese, join(asked, word, who.english, rest))
    if negative:
        word = "cannot" if word == "can" else word + " not"
    elif auxiliary == "do" and tense != "future":
        base, _, rest = rest.partition(" ")
        word = {"do": base, "does": with_s(base), "did": PAST[base]}[word]
    return finish(japanese, join(who.english, word, rest))


# ------------------------------------------------------------------ the dictionary

NOUNS = [Noun(kind, *row) for kind, text in WORDS["nouns"].items() for row in fields_of(text)]
PEOPLE = [Person(*row) for row in rows("people")]
WHO, WHAT = Person("誰", "who"), Person("何", "what")
PLACES = dict(rows("places"))
VERBS = [Verb(*row) for row in rows("verbs")]
PAST = {verb.base: verb.past for verb in VERBS} | {"want": "wanted", "do": "did"}
ADJECTIVES = [Adjective(*row) for row in rows("adjectives")]
