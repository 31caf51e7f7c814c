"""Training of translators: the batches, the loss and the validation for the training loop.

The loss is the cross-entropy of the next token with label smoothing (section 5.4): the target
distribution gives a little probability to every token, so that the model does not become
overconfident. It is computed with teacher forcing: the decoder reads the reference, shifted by one
position. The loss is summed over the real tokens and divided by their number; padding is left out.

After each epoch, the averaged weights are validated: by their loss on the validation sentences and
by BLEU of the first 500 of them, translated by greedy decoding. Those with the highest BLEU are
kept. In a terminal, the translation of one validation sentence is shown, too.
"""

import math
import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import common.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch
from torch import Tensor

from common.distributed import choose_device
from common.files import FolderLock
from common.plots import save
from common.run import Run
from common.searches import Beam, Greedy
from common.terminal import OUTPUT, SampleLines, say
from common.training import Training, join_training, train
from transformer_blocks import linear_cross_entropy
from translation.arguments import BEAM_SIZE, LENGTH_PENALTY, Train
from translation.batches import Batch, batches_of, collate, make_batches
from translation.corpus import Corpus, corpus_of
from translation.decoding import TrainedTranslator, load_translator, translate
from translation.examples import Example, Examples, encode_pairs
from translation.exploring import explore, page_of, snapshots_of
from translation.pictures import draw_attention, loss_figure
from translation.presets import TranslatorConfig, fit_to_corpus, new_config
from translation.scoring import score
from translation.translator import Translator

TOKENIZER_PAIRS = 500_000
"""Number of training pairs of which tokenizers are trained, if there are more."""
PROGRAM = Path(__file__).resolve().parents[1] / "translate.py"
SAMPLE = 500  # validation sentences that are translated after each epoch


class TranslationLoss:
    """The label-smoothed cross-entropy, a part of a :class:`common.training.Task`.

    Only real tokens go through the output layer, which is a large part of the work.

    Args:
        label_smoothing: Share of the target probability that is spread over all tokens.
        compiled: Whether ``torch.compile`` compiles the model for training, once for all lengths.
    """

    def __init__(self, label_smoothing: float, *, compiled: bool = False) -> None:
        self.label_smoothing = label_smoothing
        self.compute_hidden = (
            torch.compile(compute_hidden, dynamic=True) if compiled else compute_hidden
        )

    def count(self, batch: Sequence[Example]) -> int:
        """Count the target tokens, ends included."""
        return len(batch) + int(Examples.of(batch).lengths[:, 1].sum())

    collate = staticmethod(collate)

    def loss(self, model: Translator, *tensors: Tensor) -> Tensor:
        """Sum the loss of all real target tokens.

        Args:
            model: The model. In training mode its compiled form is used, if there is one.
            tensors: The tensors of a :class:`~translation.batches.Batch`.
        """
        batch = Batch(*tensors)
        compute = self.compute_hidden if model.training else compute_hidden
        hidden = compute(model, batch.source, batch.target).flatten(0, 1)  # (B * L, d_model)
        if len(batch.real) < len(hidden):
            hidden = hidden.index_select(0, batch.real)
        right = batch.next_token.flatten()[batch.real]
        weight = model.output.weight
        return linear_cross_entropy(
            hidden, weight, right, label_smoothing=self.label_smoothing, reduction="sum"
        )


def compute_hidden(model: Translator, source: Tensor, target: Tensor) -> Tensor:
    """Compute the vectors that the output layer turns into logits, of shape (B, L, d_model)."""
    return model.hidden(source, target)


class TranslationTask(TranslationLoss):
    """The task of learning to translate a corpus; a :class:`common.training.Task`.

    Args:
        run: The run, whose tokenizers encode the corpus.
        config: The run's configuration.
        corpus: The sentence pairs.
        compiled: Whether ``torch.compile`` compiles the model for training.
    """

    unit = "tokens"

    def __init__(
        self,
        run: Run[TranslatorConfig],
        config: TranslatorConfig,
        corpus: Corpus,
        *,
        compiled: bool = False,
    ) -> None:
        super().__init__(config.label_smoothing, compiled=compiled)
        self.run, self.config, self.corpus = run, config, corpus
        source, target = run.load_tokenizers(config)
        self.tokenizers = source, target
        self.train_set, self.validation_set = (
            encode_pairs(pairs, source, target, max_length=config.max_length)
            for pairs in (corpus.train, corpus.validation)
        )

    def build(self) -> Translator:
        """Build the model with fresh weights."""
        return self.config.build(*[each.vocab_size for each in self.tokenizers])

    def batches(self, epoch: int) -> list[Examples]:
        """Return the batches of an epoch: sentences of similar length together, in random order."""
        most, seed = self.config.batch_tokens, self.config.seed
        return make_batches(self.train_set, batch_tokens=most, seed=seed, epoch=epoch)

    def validate(self, model: Translator) -> dict[str, float]:
        """Compute the validation loss, and BLEU."""
        loss = self.validation_loss(model)
        bleu = self.validation_bleu(model) if math.isfinite(loss) else 0.0
        return {"validation_loss": loss, "validation_bleu": bleu}

    def is_better(self, new: dict[str, float], best: dict[str, float]) -> bool:
        """Return whether BLEU is higher, or equal with a lower loss.

        BLEU still rises when the label-smoothed loss does no longer fall.
        """
        ranks = [(each["validation_bleu"], -each["validation_loss"]) for each in (new, best)]
        return ranks[0] > ranks[1]

    @torch.no_grad()
    def validation_loss(self, model: Translator) -> float:
        """Compute the mean loss per token of the validation sentences."""
        device = next(model.parameters()).device
        total, tokens = 0.0, 0
        for batch in batches_of(self.validation_set, batch_tokens=4096):
            total += float(self.loss(model, *batch.to(device)))
            tokens += len(batch.real)
        return total / max(tokens, 1)

    def validation_bleu(self, model: Translator) -> float:
        """Compute BLEU of greedy translations of the first validation sentences."""
        sample = self.corpus.validation[:SAMPLE]
        sources, references = ([pair[i] for pair in sample] for i in (0, 2))
        outputs = self.translate(model, sources)
        return score(outputs, references, tokenize=self.corpus.bleu_tokenizer).bleu

    def translate(self, model: Translator, sentences: Sequence[str]) -> list[str]:
        """Translate sentences by greedy decoding."""
        trained = TrainedTranslator(self.config, model, *self.tokenizers)
        return translate(trained, sentences, search=Greedy())

    def sample(self, model: Translator) -> SampleLines:
        """Translate a validation sentence, always the same one: one of middle length."""
        most, (tokenizer, _) = self.config.max_length, self.tokenizers
        pairs = self.corpus.validation[:SAMPLE]
        fitting = [pair for pair in pairs if len(tokenizer.encode(pair.source)) < most]
        if not fitting:
            return []
        pair = sorted(fitting, key=lambda pair: len(pair.source))[len(fitting) // 2]
        (output,) = self.translate(model, [pair.source])
        return [("source", pair.source), (OUTPUT, output), ("reference", pair.reference)]


class TranslationTraining(Training[Translator, Sequence[Example]]):
    """The training of a translator.

    Args:
        task: The task.
        options: The options of :class:`common.training.Training`, such as ``device``.
    """

    task: TranslationTask

    def __init__(self, task: TranslationTask, **options: Any) -> None:
        super().__init__(
            *(task.run, task.config, task.build, task),
            on_report=lambda: save(loss_figure(self.metrics), task.run.folder / "loss.png"),
            sample=task.sample,
            **options,
        )


def train_command(options: Train) -> None:
    """Train a model, by itself or as one of several processes, and show the results."""
    device = choose_device(options.device)
    chosen = options.chosen(TranslatorConfig)
    new = new_config(chosen)
    run = Run(options.run or Path("runs") / new.corpus, TranslatorConfig)
    with join_training(run.folder, device) as (processes, lock):
        config = processes.broadcast(lambda: run.choose_config(new, chosen, resume=options.resume))
        corpus = processes.broadcast(lambda: corpus_of(config))  # which may be downloaded
        if not config.tokenizers:
            config = processes.broadcast(lambda: begin(run, config, chosen, corpus, lock))
        task = TranslationTask(run, config, corpus, compiled=options.compile)
        training = TranslationTraining(
            task,
            device=device,
            processes=processes,
            save_steps=options.save_steps,
            keep=options.keep,
            snapshots=options.snapshots,
        )
        if processes.is_first:
            parameters = sum(p.numel() for p in training.model.parameters())
            source, target = task.tokenizers
            several = f", in {processes.world_size} processes" if processes.world_size > 1 else ""
            summary = (
                f"{corpus.sizes}, preset {config.preset}, {parameters:,} parameters, "
                f"vocabularies of {source.vocab_size} and {target.vocab_size}, on {device}{several}"
            )
            say(summary)
        train([training], run, config, lock)
        if processes.is_first:
            show_results(run, corpus, device)


def begin(
    run: Run[TranslatorConfig],
    config: TranslatorConfig,
    chosen: Collection[str],
    corpus: Corpus,
    lock: FolderLock,
) -> TranslatorConfig:
    """Begin a new run.

    Args:
        run: The run.
        config: Its configuration, as far as the command line decides.
        chosen: The fields that the command line sets.
        corpus: Its corpus.
        lock: The lock of the run's folder.

    Returns:
        The configuration that fits the corpus, with the hashes of the tokenizers and of the corpus.
    """
    pairs = corpus.sample(TOKENIZER_PAIRS)
    sides = ([pair.source for pair in pairs], [pair.target for pair in pairs])
    config = fit_to_corpus(config, chosen, sides, len(corpus.train))
    texts: dict[str, list[str]] = {}
    for name, side in zip(config.tokenizer_names, sides, strict=True):
        texts.setdefault(name, []).extend(side)
    return run.begin(replace(config, data_hash=corpus.fingerprint), texts, lock)


def show_results(run: Run[TranslatorConfig], corpus: Corpus, device: torch.device) -> None:
    """Translate five test sentences, and show the attention weights of the first and the last.

    The last lines are the address of the page, or of the picture of the losses for a model without
    attention, and the command that translates.
    """
    trained = load_translator(run, device)
    pairs = corpus.shown_pairs
    search = Beam(BEAM_SIZE, LENGTH_PENALTY)
    outputs = translate(trained, [pair.source for pair in pairs], search=search)
    say("\nTest sentences, none of which is in the training data:")
    for pair, output in zip(pairs, outputs, strict=True):
        print(f"  source     {pair.source}\n  output     {output}\n  reference  {pair.reference}\n")
    written, sentences = [run.folder / "loss.png"], corpus.example_sentences
    if trained.model.cross_attentions:
        written.append(run.folder / "attention.png")
        draw_attention(trained, pairs[0].source, written[-1], search=search)
        written.append(page_of(run))
        snapshots = snapshots_of(run, trained)
        explore(trained, sentences, written[-1], search=search, snapshots=snapshots)
    say(f"Written: {', '.join(map(str, written))}")
    say("The last of these in a browser, and a command that translates:")
    if written[-1].exists():
        print(written[-1].resolve().as_uri())
    print(translating_command(run.folder, sentences[0]))


def translating_command(run: Path, sentence: str) -> str:
    """Return the command that translates a sentence in any folder, quoted for a POSIX shell."""
    options = ["translate", "--run", str(run.resolve())]
    if sentence.startswith("-"):
        options.append("--")  # the end of the options
    return shlex.join([sys.executable, str(PROGRAM), *options, sentence])
