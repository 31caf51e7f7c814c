"""What the training of each program computes and reports, by hand again."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import cast

import pytest
import torch
from tests.examples import by_hand
from tests.examples.common.recording import RecordedRun, check_adam, check_clipped, run_recorded
from tests.examples.tiny_run import SETTINGS, begin
from tests.examples.translation.proof_run import Proof, make_lines, reference
from torch import Tensor, nn

import classify
import generate_text
from classification import commands as classify_commands
from classification.data import Data, load_data
from classification.learning import Classification, ClassifierConfig
from classification.reviews import Review
from common.checkpoint import checkpoint_paths, step_of
from common.run import Run
from common.tokenizer import BOS, EOS, Tokenizer
from common.training import Task
from text import commands as text_commands
from text.learning import NextToken, TextConfig
from text.models import TextModel
from text.ngrams import NgramModel
from text.source import load_text


class Classified(RecordedRun):
    """A finished training of the classifier."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tokenizer = Tokenizer((self.folder / "tokenizer.model").read_bytes())
        self.data: Data = load_data(Path(self.config.train_file), Path(self.config.test_file))

    def build(self) -> nn.Module:
        model: nn.Module = self.config.build(self.tokenizer.vocab_size)
        return model

    def batches(self, epoch: int) -> list[list[Review]]:
        batches = Classification(
            Run(self.folder, ClassifierConfig), self.config, self.data
        ).batches(epoch)
        return [[self.data.train[i] for i in batch] for batch in batches]

    def validation(self) -> list[Review]:
        return self.data.validation

    def logits(self, model: nn.Module, text: str) -> Tensor:
        ids = [BOS, *self.tokenizer.encode(text)][: self.config.max_length]
        return model(torch.tensor([ids]))

    def losses(self, model: nn.Module, example: Review) -> Tensor:
        right = self.config.labels.index(example.label)
        return by_hand.token_losses(self.logits(model, example.text), [right])

    def figures(self, model: nn.Module) -> dict[str, float]:
        right = [self.guess(model, each.text)[0] == each.label for each in self.validation()]
        return {**super().figures(model), "validation_accuracy": sum(right) / len(right)}

    def guess(self, model: nn.Module, text: str) -> tuple[str, float]:
        """Return the most probable label of a text, and its probability."""
        logits = self.logits(model, text)[0]
        best = int(logits.argmax())
        return self.config.labels[best], float(logits[best].exp() / logits.exp().sum())


def reviews() -> list[Review]:
    """Texts of unequal lengths with three labels, one of them the commonest, in no order."""
    kinds = {"pet": ["cat", "dog"], "farm": ["cow"], "wild": ["fox", "elk", "ape"]}
    labels = {animal: kind for kind, animals in kinds.items() for animal in animals}
    found = [
        Review(" ".join([a, *["and"] * ((i + j) % 4), b]), labels[a if i < 5 else b])
        for i, a in enumerate(labels)
        for j, b in enumerate(labels)
    ]
    return [found[5 * number % len(found)] for number in range(len(found))]


@pytest.fixture(scope="module")
def classified(tmp_path_factory: pytest.TempPathFactory) -> Classified:
    """Train the classifier once; tests leave the run as it is."""
    root = tmp_path_factory.mktemp("classified")
    for name, split in (("train", reviews()[:23]), ("test", reviews()[23:])):
        (root / name).write_text("".join(f"{x.label}\t{x.text}\n" for x in split))
    options = "--num-layers 1 --d-model 16 --num-heads 2 --d-ff 32 --dropout 0 --seed 5"
    options += " --steps 53 --batch-size 7 --vocabulary 60 --peak-rate 0.02 --max-length 5"
    files = ["--train-file", root / "train", "--test-file", root / "test"]
    command = ["train", "--run", root / "run", *files, *options.split()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classify_commands, "REPORT_STEPS", 15)
        printed, updates = run_recorded(classify.main, *command)
    config = Run(root / "run", ClassifierConfig).read_config()
    return Classified(root / "run", config, updates, printed)


class Written(RecordedRun):
    """A finished training of the language model, with the lines of its text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tokenizer = Tokenizer((self.folder / "tokenizer.model").read_bytes())
        lines = Path(self.config.text).read_text().split("\n")
        size = len(lines) // 20
        cut = {"train": slice(-2 * size), "validation": slice(-2 * size, -size)}
        self.lines = {name: lines[part] for name, part in cut.items()} | {"test": lines[-size:]}

    def build(self) -> TextModel:
        return self.config.build(self.tokenizer.vocab_size)

    def stream(self, part: str) -> list[int]:
        """Turn a part of the text into ids: an end before the first line and after each."""
        return [EOS, *(i for line in self.lines[part] for i in (*self.tokenizer.encode(line), EOS))]

    def batches(self, epoch: int) -> list[list[list[int]]]:
        run = Run(self.folder, TextConfig)
        task = NextToken(run, self.config, load_text(Path(self.config.text)))
        pieces = [task.collate(batch)[0].tolist() for batch in task.batches(epoch)]
        assert {len(piece) for batch in pieces for piece in batch} == {self.config.context + 1}
        return pieces

    def validation(self) -> list[list[int]]:
        return [self.stream("validation")]

    def losses(self, model: TextModel, example: list[int]) -> Tensor:
        """Compute the loss of each token but the first, in windows that overlap by half."""
        losses: list[Tensor] = []
        while len(losses) < len(example) - 1:
            start = max(0, len(losses) - model.context // 2)
            window = example[start : start + model.context + 1]
            scores = model(torch.tensor([window[:-1]]))[0]
            losses += by_hand.token_losses(scores, window[1:])[len(losses) - start :]
        return torch.stack(losses)

    def figures(self, model: TextModel) -> dict[str, float]:
        (loss,) = super().figures(model).values()
        return {"validation_loss": loss, "validation_perplexity": math.exp(loss)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Train a language model; tests leave the run as it is."""
    root = tmp_path_factory.mktemp("written")
    nouns, verbs = "cat dog cow".split(), "sees hears".split()  # noqa: SIM905
    sentences = [(a, v, b) for a in nouns for v in verbs for b in [*nouns, *"abcdefg"]]
    lines = [
        " ".join(["the", *["old"] * (number % 3), noun, verb, "the", other, "."])
        for number, (noun, verb, other) in enumerate(sentences)
    ]
    (root / "text").write_text("\n".join(lines))
    options = "--num-layers 1 --d-model 16 --num-heads 2 --d-ff 24 --dropout 0 --seed 2"
    options += " --steps 26 --batch-size 3 --context 12 --vocabulary 50 --peak-rate 0.05"
    command = ["train", "--run", root / "run", "--text", root / "text", *options.split()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_commands, "REPORT_STEPS", 10)
        printed, updates = run_recorded(generate_text.main, *command)
    config = Run(root / "run", TextConfig).read_config()
    return Written(root / "run", config, updates, printed)


# ------------------------------------------------------------------ every task


@pytest.fixture(params=["paired", "single", "encoder", "text"])
def run(request: pytest.FixtureRequest) -> RecordedRun:
    """A training of each task; of the two of the translator, one reads two batches an update."""
    if request.param == "text":
        found: RecordedRun = request.getfixturevalue("written")
    elif request.param == "encoder":
        found = request.getfixturevalue("classified")
    else:
        found = getattr(request.getfixturevalue("proof"), request.param)
    return found


def test_a_training_makes_the_updates_of_its_plan_from_the_fresh_weights_of_its_seed(
    run: RecordedRun,
) -> None:
    assert all(map(torch.equal, run.updates[0].before, run.model().parameters()))
    check_adam(run.updates)
    expected = [
        run.config.peak_rate * min(step / run.config.warmup_steps, 1.0 - done)
        for step, (done, _) in enumerate(run.groups(), start=1)
    ]
    assert [update.rate for update in run.updates] == pytest.approx(expected, rel=1e-9)


def test_each_epoch_has_an_order_of_its_own(run: RecordedRun) -> None:
    assert run.batches(0) == run.batches(0) != run.batches(1)


def test_a_training_is_validated_after_so_many_updates_or_each_epoch(run: RecordedRun) -> None:
    steps, every = len(run.updates), run.config.report_steps
    if every:
        expected = [*range(every, steps, every), steps]
        assert len(expected) > 2
    else:
        epochs = range(run.config.epochs)
        sizes = [math.ceil(len(run.batches(epoch)) / run.config.accumulate) for epoch in epochs]
        expected = [*accumulate(sizes)]
        assert [row["epoch"] for row in run.rows] == [epoch + 1 for epoch in epochs]
    assert [row["step"] for row in run.rows] == expected


def test_gradients_and_training_loss_are_those_of_the_mean_over_all_targets(
    run: RecordedRun,
) -> None:
    model, losses, norms = run.model(), [], []
    for update, (_, examples) in zip(run.updates, run.groups(), strict=True):
        model = by_hand.with_weights(model, update.before)
        model.zero_grad()
        of_update = torch.cat([run.losses(model, each) for each in examples])
        of_update.mean().backward()
        gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        norms.append(check_clipped(update, gradient))
        losses.append(of_update.detach())
    first = 0
    for row in run.rows:
        expected = torch.cat(losses[first : row["step"]]).mean()
        assert row["train_loss"] == pytest.approx(float(expected), rel=1e-5)
        first = row["step"]
    if len(run.rows) > 4:
        assert min(norms) < 0.9  # so that both sides of the bound are seen
        assert max(norms) > 1.1


@torch.no_grad()
def test_a_validation_is_that_of_the_averaged_weights(run: RecordedRun) -> None:
    for row in run.rows:
        expected = run.figures(run.model(run.averages[row["step"] - 1]))
        for name, figure in expected.items():
            assert row[name] == pytest.approx(figure, rel=1e-5)
        raw = run.figures(run.model(run.updates[row["step"] - 1].after))
        assert abs(raw["validation_loss"] - expected["validation_loss"]) > 1e-4


def test_the_last_weights_and_the_best_averages_are_saved(run: RecordedRun) -> None:
    last, best = run.rows[-1]["step"], min(run.rows, key=run.rank)["step"]
    steps = [0, *(row["step"] for row in run.rows)][-2:]
    saved = [path.name for path in checkpoint_paths(run.folder / "checkpoints")]
    assert [int(name[5:13]) for name in saved] == steps
    assert [step_of(path) for path in (run.folder / "best").iterdir()] == [best]
    for found, expected in (
        (run.saved(f"checkpoints/{saved[-1]}"), run.updates[last - 1].after),
        (run.saved(f"checkpoints/{saved[-1]}", "average"), run.averages[last - 1]),
        (run.best(), run.averages[best - 1]),
    ):
        by_hand.check_weights(found, expected)


def test_dropout_acts_on_updates_and_not_on_validations(tmp_path: Path) -> None:
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=1))
    training.model.eval()  # whatever mode the model was built in
    modes = set()

    def note(part: nn.Module, *_: object) -> None:
        modes.add((torch.is_grad_enabled(), part.training))

    for model in (training.model, training.learner.average):
        model.get_submodule("encoder").register_forward_pre_hook(note)
    training.fit()
    assert modes == {(True, True), (False, False)}


def test_a_validation_is_better_only_if_its_loss_is_lower() -> None:
    low, high = ({"validation_loss": loss} for loss in (1.0, 2.0))
    is_better = partial(cast(Callable[..., bool], Task.is_better), None)
    assert is_better(low, high)
    assert not any(is_better(high, each) for each in (low, high))


# ------------------------------------------------------------------ the translator


def test_the_corpus_of_the_proof_has_unequal_lengths_and_no_order(proof: Proof) -> None:
    for split in ("dev", "test"):
        lengths = [len(example.target) for example in proof.paired.encode(split)]
        assert len(lengths) > 3
        assert len(set(lengths)) > 2
        assert lengths not in (sorted(lengths), sorted(lengths, reverse=True))
    # An epoch ends with a batch on its own.
    assert any(len(proof.paired.batches(epoch)) % 2 for epoch in range(8))


def test_the_validation_bleu_is_that_of_greedy_translations_in_the_corpuss_order(
    proof: Proof,
) -> None:
    run = proof.paired
    references = [reference(en) for _, en in make_lines()["dev"]]
    for row in run.rows[3:]:
        model = run.model(run.averages[row["step"] - 1])
        outputs = [
            run.target.decode(by_hand.greedy(model, source)) for source, _ in run.encode("dev")
        ]
        expected = by_hand.bleu(outputs, references)
        assert row["validation_bleu"] == pytest.approx(expected, rel=1e-9)
        for wrong in (
            by_hand.bleu(references, outputs),
            by_hand.bleu(outputs, references[1:] + references[:1]),
            by_hand.bleu(outputs, references[::-1]),
        ):
            assert abs(wrong - expected) > 0.1


# ------------------------------------------------------------------ the classifier


def test_every_text_is_read_once_an_epoch(classified: Classified) -> None:
    run = classified
    assert {len(batch) for batch in run.batches(0)[:-1]} == {run.config.batch_size}
    for epoch in (0, 1):
        read = [text for batch in run.batches(epoch) for text in batch]
        assert sorted(read) == sorted(run.data.train)


@torch.no_grad()
def test_the_classifier_reports_what_it_guesses_of_each_test_text(
    classified: Classified,
) -> None:
    run, data = classified, classified.data
    printed, _ = run_recorded(classify.main, "evaluate", "--run", run.folder)
    model = run.model(run.best())
    right = sum(run.guess(model, each.text)[0] == each.label for each in data.test)
    assert re.search(rf"^encoder +{right / len(data.test):.1%}$", printed, re.M)
    (_, commonest), (_, second), _ = Counter(each.label for each in data.test).most_common()
    assert commonest > second
    bags: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in data.test:
        bags[" ".join(sorted(each.text.split()))][each.label] += 1
    known = sum(max(counts.values()) for counts in bags.values())
    for title, right in (
        ("always the most common label", commonest),
        ("best of word counts", known),
    ):
        assert re.search(rf"^{title} +{right / len(data.test):.1%}$", printed, re.M)


@torch.no_grad()
def test_each_text_is_classified_by_itself(classified: Classified) -> None:
    run = classified
    texts = [each.text for each in run.data.test]
    printed, _ = run_recorded(classify.main, "classify", "--run", run.folder, *texts)
    model, labels = run.model(run.best()), set()
    for text, line in zip(texts, printed.splitlines(), strict=True):
        label, probability = line.split("\t")
        expected, of_label = run.guess(model, text)
        assert label == expected
        assert float(probability) == pytest.approx(of_label, abs=1e-4)
        labels.add(label)
    assert len(labels) > 1


# ------------------------------------------------------------------ the language model


@torch.no_grad()
def test_the_language_model_reports_perplexity_and_bits_of_the_test_text(
    written: Written,
) -> None:
    printed, _ = run_recorded(generate_text.main, "evaluate", "--run", written.folder)
    tokens, lines = written.stream("test"), written.lines["test"]
    characters = sum(len(line) + 1 for line in lines)
    counts = f"lines {len(lines)}, tokens {len(tokens) - 1}, characters {characters}"
    assert printed.startswith(f"test text: {counts}\n")

    def ngram_loss(order: int, text: list[int]) -> float:
        size = written.tokenizer.vocab_size
        model = NgramModel(written.stream("train"), order=order, vocabulary=size)
        return -sum(math.log(model.probability(text[:i], text[i])) for i in range(1, len(text)))

    own = written.losses(written.model(written.best()), tokens).sum()
    losses = {f"Transformer, {written.config.style}": float(own)}
    losses |= {f"{order}-grams": ngram_loss(order, tokens) for order in (5, 4, 3, 2, 1)}
    rows = printed.rstrip("\n").split("\n")[2:]
    for (name, loss), row in zip(losses.items(), rows, strict=True):
        perplexity, bits = math.exp(loss / (len(tokens) - 1)), loss / math.log(2) / characters
        title, *figures = re.split(r"  +", row)
        assert title == name
        assert [float(each) for each in figures] == pytest.approx([perplexity, bits], abs=6e-4)


@torch.no_grad()
def test_greedy_decoding_continues_with_the_most_probable_token(written: Written) -> None:
    model, prompt = written.model(written.best()), "the old"
    ids = [EOS, *written.tokenizer.encode(prompt)]
    for _ in range(6):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    command = ["generate", "--run", written.folder, "--greedy", "--length", 6, prompt]
    found, _ = run_recorded(generate_text.main, *command)
    lines: list[list[int]] = [[]]
    for token in ids[1:]:
        if token == EOS:
            lines.append([])
        else:
            lines[-1].append(token)
    assert found == "\n".join(map(written.tokenizer.decode, lines)) + "\n"
