"""Presets: sizes and training plans that belong together."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from common.configuration import build_model
from transformer_blocks import AdditiveAttention, MultiHeadAttention, PostNorm, PreNorm
from translation.rnn_attention import RecurrentTranslator
from translation.transformer import Transformer
from translation.translator import Translator


@dataclass(frozen=True)
class Settings:
    """Everything that shapes a training, as it stands in a run's ``config.json``.

    Attributes:
        model: One of :data:`MODELS`.
        num_layers: Layers of the encoder, and of the decoder.
        d_model: Width of the model; of a recurrent one, that of its embeddings.
        num_heads: Heads of each attention; a recurrent model has one.
        d_ff: Inner width of the feed-forward networks; the states of a recurrent model have half.
        dropout: Of sublayer outputs and embeddings.
        max_length: Most tokens of a sentence.
        pre_norm: Normalise before each sublayer; the paper's after it otherwise. For a Transformer.
        tie_embeddings: One table for reading and scoring target tokens.
        vocabulary: Most sentencepiece tokens of each language.
        batch_tokens: Most tokens on either side of a batch.
        accumulate: Batches that each process reads for one update.
        peak_rate: Highest learning rate, from where it falls linearly to zero at the planned end;
            None for the paper's schedule, which never ends.
        warmup_steps: Updates until the learning rate is highest.
        label_smoothing: Share of the probability that the target spreads over all words.
        average: Part of the averaged weights that each update keeps; 0 averages nothing.
        epochs: Passes over the data, where no minutes are planned.
        patience: Epochs without a better validation loss before training stops.
    """

    model: str
    num_layers: int
    d_model: int
    num_heads: int
    d_ff: int
    dropout: float
    max_length: int
    pre_norm: bool
    tie_embeddings: bool
    vocabulary: int
    batch_tokens: int
    accumulate: int
    peak_rate: float | None
    warmup_steps: int
    label_smoothing: float
    average: float
    epochs: int
    patience: int

    def build(self, source_vocabulary: int, target_vocabulary: int) -> Translator:
        """Build the model that these settings describe, with fresh weights.

        Raises:
            UserError: If they describe none, or one that does not fit into the memory.
        """
        return build_model(lambda: MODELS[self.model](self, source_vocabulary, target_vocabulary))


def build_transformer(settings: Settings, *vocabularies: int) -> Transformer:
    """Build the Transformer."""
    return Transformer(
        *vocabularies,
        num_layers=settings.num_layers,
        d_model=settings.d_model,
        num_heads=settings.num_heads,
        d_ff=settings.d_ff,
        dropout=settings.dropout,
        max_length=settings.max_length,
        residual=PreNorm if settings.pre_norm else PostNorm,
        tie_embeddings=settings.tie_embeddings,
    )


def build_recurrent(
    attend: Callable[[int], MultiHeadAttention | None],
) -> Callable[..., RecurrentTranslator]:
    """Make a builder of recurrent translators whose states of some width look by ``attend``."""

    def build(settings: Settings, *vocabularies: int) -> RecurrentTranslator:
        d_state = settings.d_ff // 2
        return RecurrentTranslator(
            *vocabularies,
            num_layers=settings.num_layers,
            d_model=settings.d_model,
            d_state=d_state,
            dropout=settings.dropout,
            max_length=settings.max_length,
            attention=attend(d_state),
            tie_embeddings=settings.tie_embeddings,
        )

    return build


MODELS: dict[str, Callable[..., Translator]] = {
    "transformer": build_transformer,
    "rnn": build_recurrent(lambda width: MultiHeadAttention(width, 1)),
    "rnn-additive": build_recurrent(
        lambda width: MultiHeadAttention(width, 1, attention_function=AdditiveAttention(width))
    ),
    "rnn-fixed": build_recurrent(lambda width: None),
}
"""What can be trained; the attention of a recurrent model is a dot product, additive or none."""


SMALL = Settings(
    model="transformer",
    num_layers=3,
    d_model=256,
    num_heads=4,
    d_ff=1024,
    dropout=0.15,
    max_length=256,
    pre_norm=True,
    tie_embeddings=True,
    vocabulary=4000,
    batch_tokens=600,
    accumulate=1,
    peak_rate=1.2e-3,
    warmup_steps=600,
    label_smoothing=0.1,
    average=0.999,
    epochs=12,
    patience=4,
)
"""For a real corpus on two cores: about 40 minutes for 50,000 sentences."""

TINY = replace(
    SMALL,
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
"""For the toy corpus on two cores: minutes."""

BASE = Settings(
    model="transformer",
    num_layers=6,
    d_model=512,
    num_heads=8,
    d_ff=2048,
    dropout=0.1,
    max_length=512,
    pre_norm=False,
    tie_embeddings=True,
    vocabulary=16000,
    batch_tokens=12500,
    accumulate=1,
    peak_rate=None,
    warmup_steps=4000,
    label_smoothing=0.1,
    average=0.999,
    epochs=100,
    patience=10,
)
"""The paper's base model and training (table 3, section 5), for a GPU."""

PRESETS = {"tiny": TINY, "small": SMALL, "base": BASE}


def settings_for(preset: str, model: str) -> Settings:
    """Find the settings of a preset for a model.

    A recurrent one has a single layer and head, more dropout as it sees the data more often in the
    same time, and a rate of its own. That of ``small`` was chosen for ``rnn`` on the validation
    sentences of the real corpus: after three minutes, a loss of 3.26 at the Transformer's 1.2e-3,
    and 2.91 at 2.5e-3 as well as 5e-3.
    """
    settings = replace(PRESETS[preset], model=model)
    if model == "transformer":
        return settings
    return replace(settings, num_layers=1, num_heads=1, dropout=0.2, peak_rate=2.5e-3)
