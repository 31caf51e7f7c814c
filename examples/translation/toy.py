"""The toy corpus: sentences of a small Japanese grammar with their only correct translations.

A translator is easiest to judge on a language whose every sentence has exactly one right answer.
Here is the grammar of one: everyday, polite, correct Japanese, small enough to learn in minutes,
with the difficulties that make Japanese and English strangers to each other:

- **order**: Japanese says the time first and the verb last; English does the reverse;
- **absence**: Japanese has no articles and no plural. Here a bare 猫 is "the cat", この猫 is
  "this cat", 猫を二匹 is "two cats"; 本 is "books" in habits, "a book" in wishes;
- **agreement**: she swims, they were. Japanese verbs do not care who acts, but they inflect for
  politeness, negation, wish, duty, ability, permission;
- **counters**: books are counted in 冊, cats in 匹, birds in 羽, sheets in 枚, machines in 台;
- **choice by meaning**: いる for the living, ある for things; 見る is to *watch* a movie but to
  *see* a bird; 弾く, する and 遊ぶ are all to *play*.

The words are in ``toy_words.ini``, and how they inflect in ``toy_words.py``. Here ``MOODS`` and
``ORDERS`` are patterns of sentences ("{te}ください" beside "please {base}"), and below them stand
the functions that fill them with phrases, and the corpus. English is a function of the Japanese
and, within this grammar, Japanese of the English: a perfect translator scores 100 BLEU in either
direction.

The words of each pair in ``HELD_OUT`` (白い and 犬, 三匹 and 猫, 読む and 手紙) all occur in
training, but never the two in one sentence. A third of the test set joins such a pair: it
tests whether a model generalises to new combinations of known words.

Example:
    >>> corpus = toy_corpus()
    >>> {split: len(pairs) for split, pairs in corpus.items()}
    {'train': 26000, 'validation': 500, 'test': 1000}
    >>> for japanese, english in corpus["train"][7:11]:
    ...     print(japanese, english)
    病院に俳優が三人いました。 There were three actors at the hospital.
    彼らはいつ子供たちにこの絵を見せますか。 When will they show this picture to the children?
    このドアを開けてください。 Please open this door.
    昨日、医者は店で働きました。 The doctor worked at the store yesterday.

Next: ``corpus.py`` loads this corpus or a real one.
"""

from collections import Counter
from functools import cache
from random import Random
from typing import NamedTuple

from translation.toy_words import (
    ADJECTIVES,
    NOUNS,
    PEOPLE,
    PLACES,
    VERBS,
    WHAT,
    WHO,
    Adjective,
    Noun,
    Person,
    Phrase,
    Verb,
    conjugate,
    finish,
    inflect,
    join,
    rows,
    sentence,
    with_article,
    with_s,
)

# ------------------------------------------------------------------ patterns


class Mood(NamedTuple):
    """How an action is told: a pattern for its verb in both languages, and where it fits.

    Attributes:
        name: What it is called here; the names of orders are not used.
        japanese: The form of the verb (see ``conjugate``); what follows the hyphen inflects.
        english: The auxiliary, which inflects, and the form of the verb.
        uses: What the verb must allow, any of these letters (see ``VERBS``).
        bare: What an unmarked object means (see ``object_phrase``).
        tenses: The tenses, as often as they are chosen; "future:p" only for verbs of that use.
    """

    name: str
    japanese: str
    english: str
    uses: str
    bare: str
    tenses: str = ""


FACT, *MOODS = [Mood(*row) for row in rows("moods")]  # a fact is told more often
ORDERS = [Mood(*row) for row in rows("orders")]
QUESTIONS = {kind: (japanese, english) for kind, japanese, english in rows("questions")}
DO = Verb("する", "サ変", "do", "did", "doing", "を", objects="sport")  # of "what did he do?"
REASONS = {(reason, because): words for reason, because, words in rows("reasons")}
TIMES, PARTS_OF_DAY = rows("times"), rows("parts of day")
FOUND = dict(rows("found"))  # where things are
ONLY_BARE = "meal broadcast sound transport instrument sport language study news city"
OF_THE_HOUSE = "opening room transport news"  # there is only one, so always "the"
HABITUAL = "fruit grocery reading letter movie song image"  # plural where a habit is told

# ------------------------------------------------------------------ phrases


@cache
def nouns(kinds: str) -> list[Noun]:
    """Return the nouns of these kinds, or of these names."""
    return [noun for noun in NOUNS if {noun.kind, noun.japanese} & set(kinds.split())]


@cache
def qualities(noun: Noun) -> list[Adjective]:
    """Return the adjectives that make sense with a noun."""
    return [adjective for adjective in ADJECTIVES if noun in nouns(adjective.kinds)]


@cache
def people(circles: str, but: str = "") -> list[Person]:
    """Return the people of some circles, without oneself (``but``), nor "us" if it is me."""
    known = [who for who in PEOPLE if who.circle in circles.split() and who.japanese not in but]
    return [who for who in known if {who.japanese[0], but[:1]} != {"私"}]


def where(place: str, preposition: str = "@") -> str:
    """Say "to the park" or, for "@", the place's own "in the park"; one goes home."""
    if preposition == "to":
        return join("to", PLACES[place].partition(" ")[2]).replace("to home", "home")
    return preposition.replace("@", PLACES[place])


def described(rng: Random, noun: Noun, probability: float = 0.3) -> Phrase:
    """Put an adjective before a noun, now and then."""
    if noun.kind in ONLY_BARE or not qualities(noun) or rng.random() > probability:
        return noun.japanese, noun.english
    quality = rng.choice(qualities(noun))
    return quality.japanese + noun.japanese, f"{quality.english} {noun.english}"


def determined(rng: Random, words: Phrase, but: str = "") -> Phrase:
    """Point at something, or name an owner who is not ``but``: this cat, that cat, Mary's cat."""
    owner = rng.choice(people("speaker other name family", but))
    pointers = [("この", "this"), ("あの", "that"), (owner.japanese + "の", owner.form(1))]
    owned = not words[0].endswith(tuple(PLACES))  # the park is no one's
    japanese, english = rng.choice(pointers if owned else pointers[:2])
    return japanese + words[0], f"{english} {words[1]}"


class Complements(NamedTuple):
    """The complements of a verb: Japanese says them before it, English after it.

    ``asked`` is what English moves to the front.
    """

    japanese: str
    english: str
    asked: str = ""

    def beside(self, japanese: str, english: str) -> "Complements":
        """Add a phrase, which Japanese says before the rest and English after it."""
        return Complements(japanese + self.japanese, join(self.english, english), self.asked)


def object_phrase(
    rng: Random, verb: Verb, noun: Noun, bare: str, who: str, ask: str
) -> Complements:
    """Name what a verb acts on (bare, described, counted, pointed at), or ask for its number.

    Args:
        rng: The generator of random numbers.
        verb: The verb; one does not open six windows.
        noun: The noun of the phrase.
        bare: What an unmarked noun means: "the" ("some" of what is made, photos and songs); "a" in
            wishes and belongings; "often" in habits; "every" in what one likes.
        who: The Japanese subject, who cannot be the owner: after トム one does not say トムの.
        ask: "count" asks for the number.
    """
    countable = noun.counter not in ("", "-") and "o" not in verb.uses
    if ask == "count" and countable:
        asked = noun.counted("何", noun.english)
        return Complements(
            f"{noun.japanese}{verb.particle}何{noun.counter}", verb.preposition, asked
        )
    bare = "some" if bare == "the" and "g" in verb.uses else bare
    japanese, english = described(rng, noun)
    shapes = ["bare"]
    if noun.kind not in ONLY_BARE and bare == "the":
        shapes.append("determined")
    if countable and bare not in ("often", "every"):
        shapes.append("counted")
    shape, count = rng.choice(shapes), ""
    if shape == "counted":
        number = rng.choice("二三四五六" if bare == "a" else "一二三四五六")
        count, english = number + noun.counter, noun.counted(number, english)
    elif shape == "determined":
        japanese, english = determined(rng, (japanese, english), who)
    elif bare == "every" or (bare in ("some", "often") and noun.kind in HABITUAL):
        english = english if noun.is_mass else with_s(english)
    elif not noun.is_mass:
        one = bare == "a" and noun.kind not in OF_THE_HOUSE
        english = with_article(english) if one else f"the {english}"
    return Complements(japanese + verb.particle + count, join(verb.preposition, english))


def acted_on(rng: Random, verb: Verb, bare: str, who: str, ask: str) -> Complements:
    """Say what a verb acts on, or ask for it (``ask`` is "object") or for its number ("count")."""
    if not verb.objects:
        return Complements("", "")
    preposition, particle = verb.preposition, verb.particle
    places = [(name, where(name, preposition)) for name in verb.objects.split() if name in PLACES]
    things: list[Noun | Phrase] = [*places] or [*nouns(verb.objects)]
    kind = "place" if places else "thing"
    if "person" in verb.objects and (not things or rng.random() < 0.6):
        kind, others = "person", people("speaker other name family", who)
        things = [(other.japanese, join(preposition, other.form(0))) for other in others]
    target = rng.choice(things)
    if ask == "object" and particle != "まで":
        question, asked = QUESTIONS["time" if target[0].endswith("時") else kind]
        left = "" if particle == "へ" else preposition.removesuffix("@").strip()
        return Complements(question + particle, left, asked)
    if isinstance(target, Noun):
        return object_phrase(rng, verb, target, bare, who, ask)
    return Complements(target[0] + particle, target[1])


def complements(rng: Random, verb: Verb, who: str, bare: str, ask: str = "") -> Complements:
    """Say all that stands beside the verb: バスで京都へ, to Kyoto by bus.

    Args:
        rng: The generator of random numbers.
        verb: The verb of the sentence.
        who: The Japanese subject, so that no person writes to himself.
        bare: What an unmarked object means (see ``object_phrase``).
        ask: What is asked for: "object", "count", "place"; "" for nothing.
    """
    rest = acted_on(rng, verb, bare, who, ask)
    if "t" in verb.uses:
        friend = rng.choice(people("name child", who))
        rest = rest.beside(friend.japanese + "に", "to " + friend.form(0))
    if ask == "place":
        return Complements("どこで" + rest.japanese, rest.english, "where")
    if verb.places and rng.random() < 0.6:
        place = rng.choice(verb.places.split())
        rest = rest.beside(place + "で", where(place))
    if verb.particle == "へ" and "日本" not in rest.japanese and rng.random() < 0.25:
        vehicle = rng.choice(nouns("バス 電車 車"))
        rest = rest.beside(vehicle.japanese + "で", "by " + vehicle.english)
    return rest


# ------------------------------------------------------------------ actions


def subject(rng: Random, verb: Verb, *, asks: bool, wants: bool = False) -> Person:
    """Choose who acts. Of ourselves and our families we tell; about others we may ask."""
    if "a" in verb.uses:
        return Person(*determined(rng, described(rng, rng.choice(nouns("猫 犬")))))
    if wants:  # Japanese does not state the feelings of others
        return rng.choice(people("listener" if asks else "speaker"))
    circles = "other name pair" + (" listener" if asks else " speaker family")
    return rng.choice(people(circles + " child" * ("k" in verb.uses)))


def moment(rng: Random, tense: str, verb: Verb, text: str) -> Phrase:
    """Choose a time that fits: no breakfast at night, nothing small "last year"."""
    parts = {part for part, words in PARTS_OF_DAY if any(w in text for w in words.split())}
    parts = parts or {"morning", "night"}
    allowed = {"", *parts} if len(parts) < 2 or "noon" not in parts else {""}
    if verb.particle == "へ" or (verb.objects and "h" not in verb.uses):
        allowed |= {"week", "year"} if any(n.japanese in text for n in nouns("city")) else {"week"}
    times = [time for *time, when, part in TIMES if when == tense and part in allowed]
    japanese, english = rng.choice(times)
    return japanese + "、", english


def action(rng: Random) -> Phrase:
    """Somebody does, can, must, likes or wants to do something; or: who, what, where, when?"""
    verb = rng.choice(VERBS)
    moods = [mood for mood in MOODS if mood.uses in verb.uses]
    mood = rng.choice(moods if set("sf") & set(verb.uses) else [*moods, FACT, FACT, FACT, FACT])
    tenses = [tense.partition(":") for tense in mood.tenses.split()]
    tense = rng.choice([tense for tense, _, use in tenses if use in verb.uses])
    asks = mood.name != "duty" and rng.random() < 0.3
    negative = mood.name != "duty" and not asks and rng.random() < 0.25

    first = next(other for other in VERBS if other.japanese == verb.japanese)
    questions = {
        "object": verb is first and verb.group != "カ変",
        "count": mood.name != "pleasure",
        "place": verb.places != "",
        "when": mood.name == "fact" and tense != "present",
        "who": mood.name not in ("wish", "pleasure") and not set("af") & set(verb.uses),
    }
    ask = rng.choice(["", "", *(each for each, fits in questions.items() if asks and fits)])
    if ask == "object" and (verb.japanese == "する" or (verb.places and rng.random() < 0.3)):
        verb = DO._replace(places=verb.places, uses=verb.uses.replace("t", ""))  # 何をしましたか
    verb = verb._replace(uses=verb.uses + "o" * negative)  # a negated verb takes no number of books
    who = WHO if ask == "who" else subject(rng, verb, asks=asks, wants=mood.name == "wish")
    bare = "often" if mood.name == "fact" and tense == "present" else mood.bare
    rest = complements(rng, verb, who.japanese, bare, ask)
    if "w" in verb.uses and rng.random() < 0.2:
        friend = rng.choice(people("name family", who.japanese))
        rest = rest.beside(friend.japanese + "と", "with " + friend.form(0))
    if ask == "when":
        rest = Complements("いつ" + rest.japanese, rest.english, "when")

    time, said = ("", ""), conjugate(rest.japanese + "{masu}", verb)
    if mood.name == "fact" and ask != "when":
        due = tense == "future" or (tense == "present" and not (asks or negative))
        idle = tense == "present" and negative  # "not every day" would be another sentence
        if due or (not idle and rng.random() < 0.5):
            time = moment(rng, tense, verb, said)
    elif mood.name in ("duty", "wish", "ongoing") and tense == "present" and rng.random() < 0.3:
        time = ("今、", "now") if mood.name == "ongoing" else moment(rng, "future", verb, said)
    also = not asks and rng.random() < 0.07

    particle = "が" if who is WHO else "も" if also else "は"
    japanese = time[0] + who.japanese + particle + rest.japanese + mood.japanese
    echo = ("either" if negative else ", too") if also else ""
    english = join(mood.english, rest.english, time[1], echo)
    return sentence(
        conjugate(japanese, verb), who, conjugate(english, verb), tense,
        negative=negative, asks=asks, asked=rest.asked,
    )  # fmt: skip


def sequence(rng: Random) -> Phrase:
    """Join two actions, the first in its て-form: 図書館へ行って、本を二冊借りました."""
    go, back = (next(v for v in VERBS if v.japanese == name) for name in ("行く", "帰る"))
    goals = ["家", *go.objects.split()]
    verb = rng.choice([v for v in VERBS if "p" in v.uses and set(goals) & set(v.places.split())])
    asks, tense = rng.random() < 0.2, rng.choice(("past", "past", "future"))
    who = subject(rng, verb, asks=asks)
    act = complements(rng, verb._replace(places=""), who.japanese, "the")
    place = rng.choice([place for place in verb.places.split() if place in goals])
    acts_first = place == "家" and rng.random() < 0.5  # at home, and then goes out
    place = rng.choice(["駅", "店", "公園", "学校", "会社"]) if acts_first else place
    move = Complements(place + "へ", where(place, "to"))
    steps = [(back if place == "家" else go, move), (verb, act)]
    (first, before), (then, after) = reversed(steps) if acts_first else steps

    time = moment(rng, tense, verb, move.japanese + act.japanese)
    japanese = f"{time[0]}{who.japanese}は{before.japanese}" + conjugate("{te}、", first)
    japanese += conjugate(after.japanese + "{masu}-ます", then)
    form = then.past if tense == "past" and not asks else then.base
    english = join("do", first.base, before.english, "and", form, after.english, time[1])
    return sentence(japanese, who, english, tense, asks=asks)


def order(rng: Random) -> Phrase:
    """Ask, propose, allow or forbid; sometimes with the reason."""
    mood = rng.choice(ORDERS)
    verb = rng.choice([v for v in VERBS if set(mood.uses) & set(v.uses)])
    if "let's" in mood.english and verb.group == "カ変":  # the speaker of 来る is there already
        return order(rng)
    here = "ここ" if verb.places and mood.bare != "the" else ""
    uses = verb.uses + "o" * ("not" in mood.english)
    rest = complements(
        rng, verb._replace(uses=uses, places=join(verb.places, here)), "私", mood.bare
    )
    japanese = conjugate(rest.japanese + mood.japanese, verb)
    english = join(conjugate(mood.english, verb), rest.english)
    reasoned = mood.bare == "the" and rng.random() < 0.7
    for (reason, because), words in REASONS.items() if reasoned else ():
        fitting = [word for word in words.split() if word in japanese]
        if any(("ない" in word) == ("ない" in japanese) for word in fitting):
            return finish(f"{reason}から、{japanese}", f"{because}, so {english}")
    return finish(japanese, english)


# ------------------------------------------------------------------ being: です, いる, ある


def copular_sentence(
    rng: Random, who: Person, predicate: str, english: str, tenses: str = "present present past"
) -> Phrase:
    """Say that someone or something is so, is not so, was so; or ask whether."""
    tense = rng.choice(tenses.split())
    asks = rng.random() < {"speaker": 0, "family": 0, "listener": 1}.get(who.circle, 0.25)
    negative = not asks and rng.random() < 0.3
    if negative:
        predicate = predicate.replace("とても", "あまり")  # "very", and "not very"
    japanese = f"{who.japanese}は{predicate}"
    return sentence(japanese, who, f"be {english}", tense, negative=negative, asks=asks)


def topic(rng: Random, noun: Noun, bare: float = 0.3) -> Person:
    """Name a thing to speak about: the cat, that cat, Mary's cat; tea, this tea, Kyoto."""
    if noun.kind in ONLY_BARE or (not noun.is_mass and rng.random() < bare):
        return Person(noun.japanese, noun.english if noun.is_mass else f"the {noun.english}")
    return Person(*determined(rng, noun[1:3]))


def quality(rng: Random) -> Phrase:
    """Describe, or compare two of a kind: この本は面白いです, この犬はあの猫より大きいです."""
    adjective = rng.choice(ADJECTIVES)
    kinds = nouns(adjective.kinds)
    compares = adjective.comparative != "-" and rng.random() < 0.4
    if "people" in adjective.kinds and (not kinds or rng.random() < 0.6):
        known = "name family" if compares else "speaker listener other name family child"
        who = rng.choice(people(known))
        than = rng.choice([other for other in people("name family") if other != who])
    else:
        noun, bare = rng.choice(kinds), 0.0 if compares else 0.3
        who = topic(rng, noun, bare)
        than = topic(rng, rng.choice([other for other in kinds if other.kind == noun.kind]), bare)
    if compares and who != than:
        more = adjective.comparative.replace("more", f"more {adjective.english}")
        before, english = f"{than.japanese}より", f"{more} than {than.english}"
    else:
        very = rng.random() < 0.3
        before, english = "とても" * very, join("very" * very, adjective.english)
    return copular_sentence(rng, who, before + adjective.predicate, english)


def identity(rng: Random) -> Phrase:
    """Say what somebody is, what something is, or whose: 母は医者です, これは誰の傘ですか."""
    if rng.random() < 0.5:
        who = rng.choice(people("speaker listener name family pair"))
        japanese, english = described(rng, rng.choice(nouns("job")), 0.5)
        plural = who.be == "are" and who.circle != "listener"
        return copular_sentence(
            rng, who, japanese + "-です", (with_s if plural else with_article)(english)
        )
    this = rng.choice((Person("これ", "this"), Person("あれ", "that")))
    noun = rng.choice(nouns("tool machine carried clothes vehicle box image room dish reading"))
    japanese, english = described(rng, noun, 0.6)
    choice = rng.random()
    if choice < 0.2:
        japanese, whose = f"{this.japanese}は誰の{japanese}-です", f"whose {english}"
        return sentence(japanese, this, "be", "present", asks=True, asked=whose)
    if choice < 0.6:
        owner = rng.choice(people("speaker other name family"))
        japanese, english = f"{owner.japanese}の{japanese}", f"{owner.form(1)} {english}"
    else:
        english = with_article(english)
    return copular_sentence(rng, this, japanese + "-です", english, "present")


def existence(rng: Random) -> Phrase:
    """State what there is, or where it is: いる for the living, ある for things."""
    kinds, places = rng.choice(list(FOUND.items()))
    place = rng.choice(places.split())
    noun = rng.choice([noun for noun in nouns(kinds) if noun.japanese not in place])
    lives = noun.counter in ("匹", "羽", "人")
    verb = "い-ます" if lives else "あり-ます"
    tense = rng.choice(("present", "present", "past"))
    japanese, english = described(rng, noun, 0.2)
    number = rng.choice("一二三四五六")
    shape = rng.choice(("who is", "where", "at", "at", "no", "how many", "count", "count", "count"))
    be_there, one, many = f"be {where(place)}", Person("", "there"), Person("", "there", "are")

    if shape == "who is" and noun.kind != "animal":
        who = WHO if lives else WHAT
        return sentence(f"{place}に{who.japanese}が{verb}", who, be_there, tense, asks=True)
    if shape in ("where", "at"):
        who = rng.choice(people("other name family child")) if lives else topic(rng, noun)
        who = topic(rng, noun) if noun.kind == "animal" else who
        while who.japanese.startswith("この"):  # what is at hand needs no finding
            who = topic(rng, noun)
        if shape == "at":
            return copular_sentence(rng, who, f"{place}に{verb}", where(place))
        return sentence(f"{who.japanese}はどこに{verb}", who, "be", tense, asks=True, asked="where")
    if shape == "no":
        absent = f"{place}に{japanese}は{inflect(verb, tense, negative=True)}"
        there, none = (one, english) if noun.is_mass else (many, with_s(english))
        return sentence(absent, there, f"be no {none} {where(place)}", tense)
    if noun.counter == "-":
        return sentence(f"{place}に{japanese}が{verb}", one, f"be {english} {where(place)}", tense)
    if shape == "how many":
        how_many = noun.counted("何", english)
        japanese = f"{place}に{japanese}が何{noun.counter}{verb}"
        return sentence(japanese, many, be_there, tense, asks=True, asked=how_many)
    there, count = one if number == "一" else many, noun.counted(number, english)
    japanese = f"{place}に{japanese}が{number}{noun.counter}{verb}"
    return sentence(japanese, there, f"be {count} {where(place)}", tense)


def relative(rng: Random) -> Phrase:
    """Describe a thing by what was done with it: 母が作ったケーキはおいしかったです."""
    verb = rng.choice([v for v in VERBS if v.particle == "を" and not set("ats") & set(v.uses)])
    done = [n for n in nouns(verb.objects) if n.kind not in ONLY_BARE and qualities(n)]
    if not done:
        return relative(rng)
    noun = rng.choice(done)
    adjective = rng.choice(qualities(noun))
    who = rng.choice(people("speaker other name family"))
    japanese = conjugate(who.japanese + "が{ta}" + noun.japanese, verb)
    english = f"the {noun.english} that {who.english} {join(verb.past, verb.preposition)}"
    what = Person(japanese, english, "is", who.circle)
    return copular_sentence(rng, what, adjective.predicate, adjective.english, "past")


# ------------------------------------------------------------------ the corpus

GRAMMAR = (
    *(action,) * 16, *(sequence,) * 2, *(order,) * 5, *(quality,) * 3, identity, *(existence,) * 4,
    *(relative,) * 2,
)  # fmt: skip

HELD_OUT = [(one, other) for one, other in rows("held out")]  # never in one training sentence


def joined(japanese: str) -> Phrase | None:
    """Return the pair of ``HELD_OUT`` whose words meet in a sentence, if any."""
    return next((pair for pair in HELD_OUT if pair[0] in japanese and pair[1] in japanese), None)


def toy_corpus() -> dict[str, list[Phrase]]:
    """Generate 27,500 different sentences, the same ones on every machine, and split them.

    No sentence is in two splits, in either language. A third of the test set (333 pairs) joins two
    words of ``HELD_OUT``, each pair of words up to 15 times; training and validation have none.

    Returns:
        (Japanese, English) pairs: "train" 26,000, "validation" 500, "test" 1,000.
    """
    rng = Random(0)
    familiar: dict[str, str] = {}
    novel: dict[str, str] = {}
    meetings: Counter[Phrase] = Counter()
    while len(familiar) < 27_167 or len(novel) < 333:
        japanese, english = rng.choice(GRAMMAR)(rng)
        if not 3 <= len(english.split()) <= 14:
            continue
        pair = joined(japanese)
        if pair is None:
            familiar[japanese] = english
        elif japanese not in novel and len(novel) < 333 and meetings[pair] < 15:
            novel[japanese] = english
            meetings[pair] += 1
    pairs = list(familiar.items())[:27_167]
    test = pairs[500:1167] + list(novel.items())
    rng.shuffle(test)
    return {"train": pairs[1167:], "validation": pairs[:500], "test": test}
