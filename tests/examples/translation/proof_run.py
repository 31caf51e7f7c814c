"""Two small trainings of the translation program, whose every update is recorded.

The corpus is a little small_parallel_enja in a folder. Its sentences have many lengths, its test
sentences stand in no order, and some of their references occur in training. One training reads two
batches for an update, the other one; seeds and sizes differ too.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.examples.by_hand import sentence_losses
from tests.examples.common.recording import RecordedRun, run_recorded
from torch import Tensor

import translate
from common.tokenizer import Tokenizer
from translation import corpus, presets
from translation import training as training_module
from translation.batches import Example, batches_of, make_batches
from translation.presets import TINY, TranslatorConfig
from translation.translator import Translator

NOUNS = {"犬": "dog", "猫": "cat", "鳥": "bird", "馬": "horse", "魚": "fish"}
VERBS = {"走": "runs", "泳": "swims", "歌": "sings", "飛": "flies"}
COLOURS = {"赤": "red", "青": "blue", "黒": "black"}
PLACES = {"庭で": "in the garden", "海で": "by the sea"}

Line = tuple[str, str]


def sentence(noun: str, verb: str, colour: str = "", place: str = "", end: str = "る。") -> Line:
    """Make a pair; another ``end`` of the source leaves the translation as it is."""
    words = ["the", COLOURS.get(colour, ""), NOUNS[noun], VERBS[verb], PLACES.get(place, ""), "."]
    ja = f"{place}{colour}い{noun}が{verb}{end}" if colour else f"{place}{noun}が{verb}{end}"
    return ja, " ".join(filter(None, words))


def make_lines() -> dict[str, list[Line]]:
    """Make the three splits; seven references of the test split occur in training, five do not."""
    everything = [
        sentence(*choice) for choice in product(NOUNS, VERBS, ["", *COLOURS], ["", *PLACES])
    ]
    test = [
        sentence("犬", "走", "赤", "庭で"),
        sentence("猫", "歌"),
        sentence("魚", "飛", "黒"),
        sentence("馬", "泳", "", "海で"),
        sentence("鳥", "飛", "青", "海で"),
    ]
    validation = [
        sentence("馬", "走", "黒"),
        sentence("鳥", "歌", "赤", "海で"),
        sentence("犬", "泳"),
        sentence("猫", "飛", "", "庭で"),
    ]
    held_out = {*test, *validation}
    train = [pair for pair in everything if pair not in held_out][::3]
    seen = [pair for number, pair in enumerate(train) if number % 12 == 4]
    again = [(ja.replace("る。", "ります。"), en) for ja, en in seen]
    mixed = [pair for pairs in zip(again, test, strict=False) for pair in pairs]
    return {"train": train, "dev": validation, "test": [*mixed, *again[len(test) :]]}


def reference(translation: str) -> str:
    """Spell a translation as the file does that scores compare with; a model learns lower case."""
    return translation.capitalize()


def write_corpus(folder: Path) -> dict[str, str]:
    """Write the six files; return the SHA-256 of each."""
    folder.mkdir()
    hashes = {}
    for split, pairs in make_lines().items():
        for side, language in enumerate(("ja", "en")):
            is_reference = language == "en" and split != "train"
            lines = [reference(pair[side]) if is_reference else pair[side] for pair in pairs]
            content = "".join(f"{line}\n" for line in lines).encode()
            (folder / f"{split}.{language}").write_bytes(content)
            hashes[f"{split}.{language}"] = hashlib.sha256(content).hexdigest()
    return hashes


@dataclass
class ProofRun(RecordedRun):
    """A finished training of a translator."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.source = Tokenizer((self.folder / "source.model").read_bytes())
        self.target = Tokenizer((self.folder / "target.model").read_bytes())

    def build(self) -> Translator:
        return self.config.build(self.source.vocab_size, self.target.vocab_size)

    def encode(self, split: str) -> list[Example]:
        """Turn the pairs of a split into ids."""
        return [
            Example(self.source.encode(ja), self.target.encode(en))
            for ja, en in make_lines()[split]
        ]

    def batches(self, epoch: int) -> list[list[Example]]:
        sizes = {"batch_tokens": self.config.batch_tokens, "seed": self.config.seed}
        return [[*batch] for batch in make_batches(self.encode("train"), epoch=epoch, **sizes)]

    def validation(self) -> list[Example]:
        return self.encode("dev")

    def losses(self, model: Translator, example: Example) -> Tensor:
        return sentence_losses(model, *example, self.config.label_smoothing)

    def rank(self, row: dict[str, Any]) -> Any:
        return -row["validation_bleu"], row["validation_loss"]


SETTINGS = replace(
    TINY,
    num_layers=1,
    d_model=32,
    num_heads=2,
    d_ff=64,
    dropout=0.0,
    vocabulary=70,
    batch_tokens=48,
    accumulate=2,
    peak_rate=2e-2,
    warmup_steps=12,
    average=0.8,
    epochs=8,
    max_length=32,
)


@dataclass
class Proof:
    """Both trainings on one corpus.

    Attributes:
        hashes: The SHA-256 of its files.
        paired: Reads two batches for an update.
        single: Reads one.
    """

    hashes: dict[str, str]
    paired: ProofRun
    single: ProofRun


def train(folder: Path, data: Path, settings: TranslatorConfig, seed: int) -> ProofRun:
    """Run the training program and record what it does."""
    command = ["train", "--corpus", "small_parallel_enja", "--data-dir", data]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "tiny", settings)
        small = partial(batches_of, batch_tokens=24)  # the validation has several batches
        patch.setattr(training_module, "batches_of", lambda examples, **_: small(examples))
        options = ["--run", folder, "--seed", seed]
        printed, updates = run_recorded(translate.main, *command, *options)
    return ProofRun(folder, replace(settings, seed=seed), updates, printed)


def make_proof(folder: Path) -> Proof:
    """Write the corpus and train on it twice."""
    data = folder / "data"
    hashes = write_corpus(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "SHA256", hashes)
        paired = train(folder / "paired", data, SETTINGS, seed=0)
        other = replace(SETTINGS, accumulate=1, epochs=1, tie_embeddings=False, batch_tokens=60)
        single = train(folder / "single", data, other, seed=3)
    return Proof(hashes, paired, single)
