"""The words of the toy corpus: how they inflect, and the dictionary.

Japanese puts the verb or adjective last, so a Japanese sentence inflects at its end only:
politeness, negation and tense follow by rule, with two or three exceptions. English inflects at
the beginning of its predicate: one auxiliary carries tense, question and negation. Both sets of
rules stand here, and then the tables of nouns, people, places, verbs, adjectives and times, each
entry in both languages, with what may sensibly be said of it.

Next: ``toy.py`` makes sentences of them.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeVar

Pair = tuple[str, str]  # Japanese, English
Entry = TypeVar("Entry")


def rows(text: str) -> list[list[str]]:
    """Read a table: one row a line, or set off by "|". "_" is an empty field, "+" a space."""
    lines = text.strip().replace("|", "\n").split("\n")
    return [[field.strip("_").replace("+", " ") for field in line.split()] for line in lines]


def table(entry: Callable[..., Entry], text: str) -> list[Entry]:
    """Read a table of words, whose columns are the fields of ``entry``."""
    return [entry(*fields) for fields in rows(text)]


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
        return PRONOUNS.get(self.english, (self.english, self.english + "'s"))[case]


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

# 五段 (five-row) verbs move their last kana along its row: 書く, 書か-ない, 書き-ます, 書い-て.
GODAN = {
    "う": "わ い って", "つ": "た ち って", "る": "ら り って",
    "む": "ま み んで", "ぶ": "ば び んで", "ぬ": "な に んで",
    "く": "か き いて", "ぐ": "が ぎ いで", "す": "さ し して",
}  # fmt: skip
ENDINGS = {  # affirmative, negative; past affirmative, past negative
    "ます": ("ます", "ません", "ました", "ませんでした"),
    "です": ("です", "ではありません", "でした", "ではありませんでした"),
    "いです": ("いです", "くありません", "かったです", "くありませんでした"),
    "いいです": ("いいです", "よくありません", "よかったです", "よくありませんでした"),
}


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
        nai, masu, te = GODAN[last].split()
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

# One auxiliary carries tense, question and negation, and "do" steps in where there is none.
# The columns agree with I; he, she, it; you, we, they.
AUXILIARY = {
    "be present": ("am", "is", "are"), "be past": ("was", "was", "were"),
    "do present": ("do", "does", "do"), "do past": ("did",) * 3, "do future": ("will",) * 3,
    "can present": ("can",) * 3, "can past": ("could",) * 3, "must present": ("must",) * 3,
}  # fmt: skip
IRREGULAR_S = {"child": "children", "tomato": "tomatoes", "go": "goes", "do": "does", "have": "has"}
PRONOUNS = {
    "I": ("me", "my"), "we": ("us", "our"), "you": ("you", "your"),
    "he": ("him", "his"), "she": ("her", "her"), "they": ("them", "their"),
}  # fmt: skip
NUMBERS = dict(rows("一 one | 二 two | 三 three | 四 four | 五 five | 六 six | 何 how+many"))


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


def finish(japanese: str, english: str) -> Pair:
    """Close a sentence in both languages; Japanese marks a question with か."""
    mark = "?" if japanese.endswith("か") else "."
    return japanese + "。", english[0].upper() + english[1:].replace(" ,", ",") + mark


def sentence(
    japanese: str, who: Person, english: str, tense: str,
    *, negative: bool = False, asks: bool = False, asked: str = "",
) -> Pair:  # fmt: skip
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
    word = AUXILIARY[f"{auxiliary} {tense}"][AUXILIARY["be present"].index(who.be)]
    if asks and who not in (WHO, WHAT):
        return finish(japanese, join(asked, word, who.english, rest))
    if negative:
        word = "cannot" if word == "can" else word + " not"
    elif auxiliary == "do" and tense != "future":
        base, _, rest = rest.partition(" ")
        word = {"do": base, "does": with_s(base), "did": PAST[base]}[word]
    return finish(japanese, join(who.english, word, rest))


# ------------------------------------------------------------------ the dictionary

# Each kind with its nouns: Japanese, English, counter, vessel.
KINDS = """
    animal: 猫 cat 匹 | 犬 dog 匹 | うさぎ rabbit 匹 | 鳥 bird 羽;
    fruit: りんご apple 個 | みかん orange 個 | バナナ banana 本;
    grocery: 卵 egg 個 | トマト tomato 個; bakery: パン bread - | ケーキ cake -;
    meat: 肉 meat - | 魚 fish - | すし sushi -;
    meal: 朝ご飯 breakfast - | 昼ご飯 lunch - | 晩ご飯 dinner -;
    drink: お茶 tea 杯 cup | コーヒー coffee 杯 cup | 水 water 杯 glass | 牛乳 milk 杯 glass;
    reading: 本 book 冊 | 雑誌 magazine 冊; news: 新聞 newspaper; letter: 手紙 letter 通;
    movie: 映画 movie 本; broadcast: テレビ television -;
    sound: 音楽 music - | ラジオ the+radio -; song: 歌 song 曲;
    tool: ペン pen 本 | 鉛筆 pencil 本 | 辞書 dictionary 冊;
    machine: カメラ camera 台 | パソコン computer 台;
    small: 鍵 key 本 | 切符 ticket 枚;
    carried: 傘 umbrella 本 | かばん bag 個 | 財布 wallet 個;
    clothes: シャツ shirt 枚 | 帽子 hat 個; dish: 皿 plate 枚;
    image: 写真 photo 枚 | 絵 picture 枚;
    vehicle: 車 car 台 | 自転車 bicycle 台;
    transport: バス bus | 電車 train | タクシー taxi;
    opening: 窓 window | ドア door; box: 箱 box 個; flower: 花 flower 本;
    room: 部屋 room | 台所 kitchen | 教室 classroom;
    instrument: ピアノ the+piano - | ギター the+guitar -;
    sport: テニス tennis - | サッカー soccer - | 野球 baseball -;
    language: 英語 English - | 日本語 Japanese - | フランス語 French -;
    study: 数学 math - | 歴史 history -;
    job: 先生 teacher 人 | 学生 student 人 | 医者 doctor 人 | 歌手 singer 人 | 俳優 actor 人;
    child: 子供 child 人;
    town: 図書館 library | 公園 park | 駅 station | 店 store | レストラン restaurant | ホテル hotel;
    city: 東京 Tokyo - | 京都 Kyoto - | 大阪 Osaka -
"""
NOUNS = [
    Noun(kind.strip(), *entry)
    for kind, entries in (group.split(":") for group in KINDS.split(";"))
    for entry in rows(entries)
]
GOODS = "fruit+grocery+bakery+meat+drink+reading+tool+machine+small+carried+clothes+vehicle"
LIKED = "animal+fruit+bakery+meat+drink+reading+movie+sound+sport+language+study+city"
OUTINGS = "図書館+公園+駅+店+病院+美術館+学校+会社+海+東京+京都+大阪"
ONLY_BARE = "meal broadcast sound transport instrument sport language study news city"
OF_THE_HOUSE = "opening room transport news"  # there is only one, so always "the"
HABITUAL = "fruit grocery reading letter movie song image"  # plural where a habit is told

# Japanese, English, what agrees with it, circle.
PEOPLE = table(Person, """
    私   I           am speaker | 私たち we         are speaker | あなた   you        are listener
    彼   he          is other   | 彼女   she         is other   | 彼ら     they         are other
    先生 the+teacher is other   | 医者   the+doctor  is other   | 学生たち the+students are other
    子供 the+child   is child   | 太郎   Taro        is name    | 子供たち the+children are child
    トム Tom         is name    | 花子   Hanako      is name    | メアリー Mary         is name
    母   my+mother   is family  | 祖母 my+grandmother is family | 兄 my+older+brother   is family
    父   my+father   is family  | 友達   my+friend   is family  | 妹 my+younger+sister  is family
    太郎と花子 Taro+and+Hanako are pair | トムとメアリー Tom+and+Mary are pair
""")  # fmt: skip
WHO, WHAT = Person("誰", "who"), Person("何", "what")

# Places, and what else may stand where a place does.
PLACES = dict(rows("""
    図書館     in+the+library    | 公園       in+the+park     | 駅         at+the+station
    レストラン at+the+restaurant | 病院       at+the+hospital | 空港       at+the+airport
    美術館     at+the+museum     | ホテル     at+the+hotel    | 店         at+the+store
    会社       at+the+office     | 学校       at+school       | 家         at+home
    海         in+the+sea        | 川         in+the+river    | プール     in+the+pool
    庭         in+the+garden     | 台所       in+the+kitchen  | 部屋       in+the+room
    東京       in+Tokyo          | 京都       in+Kyoto        | 大阪       in+Osaka
    日本       in+Japan          | 教室       in+the+classroom | ここ      here
    机の上     on+the+desk       | 机の下     under+the+desk  | 椅子の上   on+the+chair
    箱の中     in+the+box        | かばんの中 in+the+bag      | 冷蔵庫の中 in+the+refrigerator
    ドアの前   in+front+of+the+door | 窓のそば by+the+window  | 六時       at+six
    七時       at+seven          | 八時       at+eight        | 九時       at+nine
    十時       at+ten            | 十一時     at+eleven
    駅から学校 from+the+station+to+school
    家から駅 from+home+to+the+station | 公園から病院 from+the+park+to+the+hospital
    九時から五時 from+nine+to+five    | 八時から四時 from+eight+to+four
"""))  # fmt: skip

# Japanese, group; base, past, -ing; particle and preposition of the object; what the object may be
# (kinds, single nouns, places); where it is done; uses: h habit, n a continuing action, c a skill,
# p at one's own will, d only to be told not to do, l a pleasure, w in company, k also by children,
# a by animals, t done to someone, g object never definite, o never counted, s a lasting state,
# f a feeling.
VERBS = table(Verb, f"""
    食べる 一段 eat ate eating を _ meal+fruit+grocery+bakery+meat 家+公園+レストラン        hnpwkl
    食べる 一段 eat ate eating       を   _    meat                        台所+庭          hna
    飲む 五段 drink drank drinking   を   _    drink                       家+駅+学校       hnpwkl
    飲む 五段 drink drank drinking   を   _    水+牛乳                     台所+庭          hna
    読む 五段 read read reading      を   _    reading+news+letter         家+図書館+公園+部屋 hnpkl
    書く 五段 write wrote writing    を   _    letter                      家+図書館+ホテル hnpgl
    見る 一段 see saw seeing         を   _    animal+image+flower         公園+庭+京都     k
    見る 一段 watch watched watching を   _    movie+broadcast             家+ホテル+部屋   hnpwkl
    聞く 五段 listen listened listening を to  sound+song                  家+部屋+公園     hnpkl
    買う 五段 buy bought buying      を   _    {GOODS}                     店+駅+東京+京都  np
    作る 五段 make made making       を   _    meal+ケーキ+box             家+台所          hnpcl
    洗う 五段 wash washed washing    を   _    clothes+dish+fruit+車       家+庭            hnp
    開ける 一段 open opened opening  を   _    opening+box+かばん          _                hpko
    閉める 一段 close closed closing を   _    opening+box+かばん          _                hpko
    使う 五段 use used using         を   _    tool+machine+傘+自転車      家+学校+会社     hnpo
    借りる 一段 borrow borrowed borrowing を _ reading+tool+machine+傘     学校+図書館      p
    探す 五段 look looked looking    を   for  animal+small+carried+tool   家+公園+駅       npko
    見つける 一段 find found finding を   _    animal+small+carried+tool   部屋+公園+駅     k
    忘れる 一段 forget forgot forgetting を _  small+carried+tool+カメラ   _                kdo
    撮る 五段 take took taking       を   _    写真                        公園+京都+美術館 hnpgl
    描く 五段 draw drew drawing      を   _    絵                          公園+学校+家     hnpcgkl
    歌う 五段 sing sang singing      を   _    song                        学校+家+公園     hnpcgwkl
    弾く 五段 play played playing    を   _    instrument                  家+学校+ホテル   hnpckl
    する サ変 play played playing    を   _    sport                       公園+学校        hnpcwkl
    話す 五段 speak spoke speaking   を   _    language                    学校+家+会社     hnpc
    勉強する サ変 study studied studying を _  language+study              図書館+学校+家   hnpwkl
    教える 一段 teach taught teaching を  _    language+study              学校+家          hnpct
    見せる 一段 show showed showing  を   _    image+letter+切符           _                pt
    送る 五段 send sent sending      を   _    image+letter                _                pt
    貸す 五段 lend lent lending      を   _    reading+tool+carried+vehicle _               pto
    掃除する サ変 clean cleaned cleaning を _  room                        _                hnpk
    待つ 五段 wait waited waiting    を   for  person+transport            駅+空港          np
    会う 五段 meet met meeting       に   _    person                      駅+公園+東京     p
    乗る 五段 ride rode riding       に   _    自転車+transport            _                hpcklo
    行く 五段 go went going          へ   to   {OUTINGS}                   _                hpw
    来る カ変 come came coming       へ   to   図書館+公園+駅+学校+会社+東京+京都+日本 _    hpw
    帰る 五段 return returned returning へ to  家+東京+京都+大阪+日本      _                p
    着く 五段 arrive arrived arriving に  @    駅+空港+ホテル+学校+東京+京都+大阪+日本 _    _
    住む 五段 live lived living      に   @    東京+京都+大阪+日本         _                s
    持つ 五段 have had having        を   _    vehicle+tool+machine+carried+clothes+box+image _ s
    好き な like liked liking        が   _    {LIKED}                     _                fo
    起きる 一段 get got getting      に   up+@ 六時+七時+八時              _                hpk
    寝る 一段 go went going          に   to+bed+@ 九時+十時+十一時        _                hpk
    歩く 五段 walk walked walking    まで @    駅から学校+家から駅+公園から病院 _           hpw
    働く 五段 work worked working    まで @    九時から五時+八時から四時   _                hp
    働く 五段 work worked working    _    _    _                           病院+会社+店+ホテル hnp
    泳ぐ 五段 swim swam swimming     _    _    _                           海+川+プール     hnpcwkl
    走る 五段 run ran running        _    _    _                           公園+学校        hnpwkl
    走る 五段 run ran running        _    _    _                           公園+庭          hna
    踊る 五段 dance danced dancing   _    _    _                           公園+学校+庭     hnpcwkl
    遊ぶ 五段 play played playing    _    _    _                           公園+庭+海       hnpwkl
    眠る 五段 sleep slept sleeping   _    _    _                           部屋+公園+家     nk
    眠る 五段 sleep slept sleeping   _    _    _                           庭+台所+部屋     hna
    笑う 五段 laugh laughed laughing _    _    _                           教室+公園        nkd
    泣く 五段 cry cried crying       _    _    _                           部屋+庭          nkd
""")  # fmt: skip
PAST = {verb.base: verb.past for verb in VERBS} | {"want": "wanted", "do": "did"}

# Japanese, English, comparative ("more": more ..., "-": not compared), the kinds described.
ADJECTIVES = table(Adjective, """
    大きい   big         bigger   animal+fruit+carried+vehicle+dish+box+town+room+city
    小さい   small       smaller  animal+fruit+carried+vehicle+dish+box+town+room
    新しい   new         newer    reading+movie+song+tool+machine+carried+clothes+vehicle+town
    古い     old         older    reading+movie+song+machine+carried+clothes+vehicle+town
    高い     expensive   more     machine+carried+clothes+vehicle+dish+meat
    安い     cheap       cheaper  machine+carried+clothes+vehicle+dish+fruit+meat
    白い     white       -        animal+flower+clothes+vehicle+dish+box
    黒い     black       -        猫+犬+carried+clothes+vehicle
    赤い     red         -        りんご+flower+carried+clothes+vehicle+鉛筆
    青い     blue        -        鳥+傘+clothes+vehicle+dish+ペン
    おいしい delicious   more     fruit+grocery+bakery+meat+drink
    甘い     sweet       sweeter  fruit+bakery
    重い     heavy       heavier  box+carried+machine+辞書
    軽い     light       lighter  box+carried+machine+自転車
    長い     long        longer   letter+movie+song
    短い     short       shorter  letter+movie+song+鉛筆
    速い     fast        faster   vehicle
    明るい   bright      brighter room
    面白い   interesting more     reading+letter+movie+study+image
    難しい   difficult   more     本+song+language+study
    簡単な   easy        easier   本+song+language+study
    便利な   handy       handier  tool+machine+かばん+自転車
    きれいな beautiful   more     flower+image+鳥+town+room
    静かな   quiet       quieter  town+room+city
    有名な   famous      more     movie+song+絵+レストラン+ホテル+job+people
    かわいい cute        cuter    animal
    元気な   energetic   more     犬+猫+people
    若い     young       younger  job+people
    親切な   kind        kinder   job+people
    忙しい   busy        busier   people
    強い     strong      stronger people
    いい     good        better   reading+movie+song+tool+machine+job
""")  # fmt: skip

# Japanese, English, tense, and the part of the day or the stretch of time.
TIMES = rows("""
    昨日 yesterday past _   | 今朝 this+morning past morning     | 昨夜 last+night past night
    明日 tomorrow future _  | 今夜 tonight future night          | 来週 next+week future week
    毎日 every+day present _ | 毎朝 every+morning present morning | 毎晩 every+night present night
    先週 last+week past week | 去年 last+year past year
""")  # fmt: skip
PARTS_OF_DAY = {  # words that belong to one part of the day
    "morning": "朝ご飯 起き 学校 美術館", "noon": "昼ご飯 時まで", "night": "晩ご飯 寝",
}  # fmt: skip
