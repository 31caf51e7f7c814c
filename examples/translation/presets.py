"""Presets: configurations of translators, whose sizes and plans belong together.

- ``tiny`` is for the toy corpus on two cores: minutes.
- ``small`` is for a real corpus on two cores: about 40 minutes for 50,000 sentences.
- ``base`` is the paper's base model and training (table 3, section 5), for a GPU. One vocabulary of
  37,000 tokens serves both languages, and one matrix is source embedding, target embedding and
  output layer. Two processes, or ``--accumulate 2``, make the paper's updates of 25,000 source and
  25,000 target tokens.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from common.errors import UserError
from common.options import check_together, flag
from common.run import TrainingConfig
from transformer_blocks import AdditiveAttention, MultiHeadAttention, PostNorm, PreNorm
from translation.pairs import Files, Languages
from translation.rnn_attention import RecurrentTranslator
from translation.transformer import Transformer
from translation.translator import Translator

FEW_WORDS, MANY_PAIRS, READ_PAIRS = 2_000, 1_000_000, 800_000
"""Sizes by which :func:`fit_to_corpus` chooses what the command line leaves open."""

FILES = {
    "train": ("source_file", "target_file"),
    "validation": ("valid_source", "valid_target"),
    "test": ("test_source", "test_target"),
}
"""The fields of a configuration that hold the two files of each split."""


@dataclass(frozen=True, kw_only=True)
class TranslatorConfig(TrainingConfig):
    """The configuration of a run: its data, its model and its plan.

    The defaults are those of the preset ``small``. For a recurrent model, ``d_model`` is the size
    of the embeddings and ``d_ff`` twice the size of the states.

    Attributes:
        model: The kind of model, "transformer" or one of :data:`ATTENTIONS`.
        max_length: Maximum number of tokens of a sentence.
        pre_norm: Whether a Transformer normalises before each sublayer; the paper's does after it.
        tie_embeddings: Whether target embeddings and output layer share their weights.
        shared_vocabulary: Whether source and target have one tokenizer, trained on the sentences of
            both, and one embedding matrix, as in the paper (sections 3.4 and 5.1).
        batch_tokens: Maximum number of tokens on either side of a batch.
        label_smoothing: Share of the target probability that is spread over all tokens.
        preset: Name of the preset that the other settings come from.
        corpus: "toy", "small_parallel_enja" or "files".
        source_language: Language code of the source sentences.
        target_language: Language code of the target sentences.
        data_dir: Folder of the corpus, if it is not the default one.
        source_file: With "files", the training sentences.
        target_file: With "files", their translations, line by line.
        valid_source: With "files", the validation sentences; held out from training if None.
        valid_target: Translations of the validation sentences.
        test_source: With "files", the test sentences; held out from training if None.
        test_target: Translations of the test sentences.
    """

    num_layers: int = 3
    d_model: int = 256
    num_heads: int = 4
    d_ff: int = 1024
    dropout: float = 0.15
    vocabulary: int = 4000
    epochs: int | None = 16
    peak_rate: float | None = 1.2e-3
    warmup_steps: int = 600
    average: float = 0.999
    model: str = "transformer"
    max_length: int = 256
    pre_norm: bool = True
    tie_embeddings: bool = True
    batch_tokens: int = 600
    label_smoothing: float = 0.1
    shared_vocabulary: bool = False
    preset: str = "small"
    corpus: str = "toy"
    source_language: str = "ja"
    target_language: str = "en"
    data_dir: str | None = None
    source_file: str | None = None
    target_file: str | None = None
    valid_source: str | None = None
    valid_target: str | None = None
    test_source: str | None = None
    test_target: str | None = None

    CHANGEABLE: ClassVar[tuple[str, ...]] = ("epochs", "minutes", "data_dir")
    TOKENIZERS: ClassVar[tuple[str, ...]] = ("source", "target")

    @property
    def languages(self) -> Languages:
        """The corpus and the languages of both sides."""
        return Languages(self.corpus, self.source_language, self.target_language)

    @property
    def files(self) -> dict[str, Files]:
        """The files of each split that has its own."""
        paths = {split: [getattr(self, name) for name in names] for split, names in FILES.items()}
        return {split: (Path(a), Path(b)) for split, (a, b) in paths.items() if a is not None}

    @property
    def tokenizer_names(self) -> tuple[str, ...]:
        """The name of the file of each tokenizer; with a shared vocabulary, both are one file."""
        return ("shared", "shared") if self.shared_vocabulary else self.TOKENIZERS

    def build(self, *vocabularies: int) -> Translator:
        """Build the Transformer, or the recurrent model, with fresh weights.

        Args:
            vocabularies: Number of source token ids, and of target token ids.
        """
        sizes = self.sizes | {"max_length": self.max_length, "tie_embeddings": self.tie_embeddings}
        sizes["share_embeddings"] = self.shared_vocabulary
        if self.model == "transformer":
            residual = PreNorm if self.pre_norm else PostNorm
            return Transformer(*vocabularies, residual=residual, **sizes)
        del sizes["num_heads"]  # an LSTM has none, and its attention has one
        d_state = sizes.pop("d_ff") // 2
        attention = ATTENTIONS[self.model](d_state)
        return RecurrentTranslator(*vocabularies, d_state=d_state, attention=attention, **sizes)


ATTENTIONS: dict[str, Callable[[int], MultiHeadAttention | None]] = {
    "rnn": lambda size: MultiHeadAttention(size, 1),
    "rnn-additive": lambda size: MultiHeadAttention(
        size, 1, attention_function=AdditiveAttention(size)
    ),
    "rnn-fixed": lambda size: None,
}
"""The attention of each recurrent model, given the size of its states."""


SMALL = TranslatorConfig()
TINY = replace(
    SMALL,
    preset="tiny",
    num_layers=2,
    d_model=128,
    d_ff=256,
    dropout=0.1,
    max_length=128,
    vocabulary=800,
    batch_tokens=800,
    peak_rate=3e-3,
    warmup_steps=200,
    epochs=4,
)
BASE = replace(
    SMALL,
    preset="base",
    num_layers=6,
    d_model=512,
    num_heads=8,
    d_ff=2048,
    dropout=0.1,
    max_length=512,
    pre_norm=False,
    shared_vocabulary=True,
    vocabulary=37000,
    batch_tokens=12500,
    peak_rate=None,
    warmup_steps=4000,
    epochs=100,
)
PRESETS = {"tiny": TINY, "small": SMALL, "base": BASE}


def new_config(chosen: Mapping[str, Any]) -> TranslatorConfig:
    """Make the configuration of a new run from the fields that the command line sets."""
    corpus = chosen.get("corpus", "files" if "source_file" in chosen else "toy")
    for first, second in FILES.values():
        check_together(chosen, first, second)
        if first in chosen and corpus != "files":
            raise UserError(f"{flag(first)} requires --corpus files")
    if corpus == "files" and "source_file" not in chosen:
        raise UserError("--corpus files requires --source-file and --target-file")
    if "minutes" in chosen and "epochs" in chosen:
        raise UserError("--minutes cannot be combined with --epochs")
    preset = preset_config(chosen.get("preset", "tiny"), chosen.get("model", "transformer"))
    languages = languages_of(chosen) if corpus == "files" else {}
    return replace(preset, **{**languages, **chosen, "corpus": corpus})


def languages_of(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Return the languages that the names of the files end with: "de" of ``train.de``.

    A name without such an end has the code "und" (undetermined, ISO 639-2).
    """
    ends = {side: Path(chosen[f"{side}_file"]).suffix[1:] for side in ("source", "target")}
    return {
        f"{side}_language": end if re.fullmatch("[a-z]{2}", end) else "und"
        for side, end in ends.items()
    }


def preset_config(preset: str, model: str) -> TranslatorConfig:
    """Return the configuration of a preset for a model.

    A recurrent model has a single layer and head, more dropout because it makes more epochs in
    the same time, and a learning rate of its own. That of ``small`` was chosen for ``rnn`` on
    the validation sentences of the real corpus: after three minutes, the loss was 3.26 at the
    Transformer's 1.2e-3, and 2.91 at 2.5e-3 as well as 5e-3.
    """
    config = replace(PRESETS[preset], model=model)
    if model == "transformer":
        return config
    return replace(config, num_layers=1, num_heads=1, dropout=0.2, peak_rate=2.5e-3)


def fit_to_corpus(
    config: TranslatorConfig, chosen: Collection[str], sides: Sequence[Sequence[str]], pairs: int
) -> TranslatorConfig:
    """Choose by the corpus what the command line leaves open, of all that presets differ in.

    The preset is "tiny" for a language of fewer than ``FEW_WORDS`` different words, else "small",
    and "base" from ``MANY_PAIRS`` pairs on. The epochs of ``small`` are as many as read
    ``READ_PAIRS`` pairs, from 4 to 40. The vocabulary is at least twice as large as the number of
    different characters, so that there is room for subwords.

    Args:
        config: The configuration of the new run.
        chosen: The names of the fields that the command line sets.
        sides: The source sentences and the target sentences, or a sample of both.
        pairs: Number of all training pairs.
    """
    preset = config.preset
    if "preset" not in chosen:
        words = (set().union(*(sentence.split() for sentence in side)) for side in sides)
        size = "small" if pairs < MANY_PAIRS else "base"
        preset = "tiny" if min(map(len, words)) < FEW_WORDS else size
    begun, fitted = (preset_config(name, config.model) for name in (config.preset, preset))
    if preset == "small":
        fitted = replace(fitted, epochs=min(40, max(4, round(READ_PAIRS / max(pairs, 1)))))
    before, after = asdict(begun), asdict(fitted)
    changed = {name: value for name, value in after.items() if value != before[name]}
    config = replace(config, **{name: changed[name] for name in changed.keys() - {*chosen}})
    texts = [[*sides[0], *sides[1]]] if config.shared_vocabulary else sides
    characters = max(len(set().union(*side)) for side in texts)
    vocabulary = max(config.vocabulary, 2 * characters)
    return config if "vocabulary" in chosen else replace(config, vocabulary=vocabulary)
