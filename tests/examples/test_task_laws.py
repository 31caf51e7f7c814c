"""What the trainings of the classifier and the language model compute and report, by hand again."""

import io
import json
import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.examples import by_hand
from tests.examples.recording import Update, check_adam, check_clipped, recorded_updates
from torch import Tensor, nn

import classify
import generate_text
from classification import commands as classify_commands
from classification.data import load_data
from classification.learning import Classification
from classification.learning import Config as ClassifierConfig
from classification.reviews import Review
from common.learner import LowestLoss
from common.run import Config, Run
from common.tokenizer import BOS, EOS, Tokenizer
from common.training import Training
from text import commands as text_commands
from text.learning import Config as TextConfig
from text.learning import NextToken
from text.models import TextModel
from text.ngrams import NgramModel


def run_program(main: Any, *arguments: str) -> str:
    """Run a program in this process; return what it prints."""
    printed, handlers = io.StringIO(), list(logging.getLogger().handlers)
    with redirect_stdout(printed):
        assert main([*arguments]) == 0
    logging.getLogger().handlers[:] = handlers
    return printed.getvalue()


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """Read the rows of ``metrics.jsonl``."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def check_rates(updates: list[Update], plan: Config) -> None:
    """Check the rate of every update: up with each, then down with each, never to zero."""
    assert plan.peak_rate is not None
    assert plan.steps is not None
    expected = [
        plan.peak_rate * min(step / plan.warmup_steps, (plan.steps - step + 1) / plan.steps)
        for step in range(1, plan.steps + 1)
    ]
    assert [update.rate for update in updates] == pytest.approx(expected, rel=1e-9)
    assert updates[-1].rate > 0.0


def check_saved(folder: Path, model: nn.Module, updates: list[Update], keep: float) -> None:
    """Check the weights of the last checkpoints, and that the best are averages."""
    averages = by_hand.moving_average([each.after for each in updates], keep)
    rows = metrics_of(folder)
    checkpoints = sorted((folder / "checkpoints").iterdir())
    steps = [row["step"] for row in rows[-2:]]
    assert [path.name for path in checkpoints] == [f"step-{step:08d}" for step in steps]
    for path, step in zip(checkpoints, steps, strict=True):
        by_hand.check_weights(by_hand.saved_weights(path, "model", model), updates[step - 1].after)
        by_hand.check_weights(by_hand.saved_weights(path, "average", model), averages[step - 1])
    best = min(rows, key=lambda row: float(row["validation_loss"]))
    path = by_hand.only_entry(folder / "best")
    assert path.name == f"step-{best['step']:08d}"
    by_hand.check_weights(by_hand.saved_weights(path, "model", model), averages[best["step"] - 1])


# ------------------------------------------------------------------ any task


class Line(nn.Module):
    """A line with dropout, to see when that acts."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Linear(3, 1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.slope(self.dropout(x))
        return found


class Fitting(LowestLoss):
    """Fits a line to points; the batches hold one to five of them."""

    unit = "points"

    def __init__(self) -> None:
        self.points = torch.randn(5, 3, generator=torch.Generator().manual_seed(7))
        self.read: list[tuple[int, float, int]] = []
        self.modes: set[tuple[str, bool]] = set()

    def batches(self, epoch: int) -> list[int]:
        return [1 + (7 * epoch + i) % 5 for i in range(1, 8)]  # an epoch ends between two reports

    def count(self, batch: int) -> int:
        return batch

    def collate(self, batch: int) -> tuple[Tensor]:
        return (self.points[:batch],)

    def loss(self, model: Line, *tensors: Tensor) -> Tensor:
        (points,) = tensors
        loss = (model(points) - 4.0).square().sum()
        self.read.append((len(self.read) + 1, float(loss.detach()), len(points)))
        self.modes.add(("training", model.training))
        return loss

    @torch.no_grad()
    def validate(self, model: Line) -> dict[str, float]:
        self.modes.add(("validation", model.training))
        return {"validation_loss": float((model(self.points) - 4.0).square().mean())}


def plan_of(steps: int, report_steps: int) -> Config:
    return Config(
        num_layers=1,
        d_model=3,
        num_heads=1,
        d_ff=1,
        dropout=0.5,
        steps=steps,
        report_steps=report_steps,
        peak_rate=0.1,
        warmup_steps=4,
        average=0.6,
        vocabulary=1,
    )


def training_of(
    folder: Path, config: Config, build: Callable[[], Line], task: Fitting
) -> Training[Line, int]:
    """Make a training of a line."""
    return Training(Run(folder, Config), config, build, task, device=torch.device("cpu"))


def test_the_loop_makes_the_updates_of_its_plan_and_averages_them(tmp_path: Path) -> None:
    plan, task = plan_of(17, 5), Fitting()
    with recorded_updates() as recorded:
        training = training_of(tmp_path / "run", plan, Line, task)
        training.fit()
    (updates,) = recorded
    check_rates(updates, plan)
    check_adam(updates)
    assert [step for step, *_ in task.read] == list(range(1, 18))
    assert task.modes == {("training", True), ("validation", False)}
    rows = metrics_of(tmp_path / "run")
    assert [row["step"] for row in rows] == [5, 10, 15, 17]
    averages = by_hand.moving_average([each.after for each in updates], plan.average)
    first = 0
    for row in rows:
        part = task.read[first : row["step"]]
        expected = sum(loss for _, loss, _ in part) / sum(count for *_, count in part)
        assert row["train_loss"] == pytest.approx(expected, rel=1e-9)
        weight, bias = averages[row["step"] - 1]
        own = (task.points.double() @ weight.T + bias - 4.0).square().mean()
        assert row["validation_loss"] == pytest.approx(float(own), rel=1e-5)
        first = row["step"]
    check_saved(tmp_path / "run", training.model, updates, plan.average)


def test_the_loops_gradient_is_that_of_the_mean_and_its_norm_at_most_one(tmp_path: Path) -> None:
    with recorded_updates() as recorded:
        task = Fitting()
        training_of(tmp_path / "run", plan_of(3, 5), lambda: Line().eval(), task).fit()
    (updates,) = recorded
    assert all(update.norm == pytest.approx(1.0, abs=1e-4) for update in updates)
    assert ("training", False) not in task.modes  # whatever mode the model was built in

    class Near(Fitting):
        def loss(self, model: Line, *tensors: Tensor) -> Tensor:
            return super().loss(model, *tensors) * 1e-3

    for make in (Fitting, Near):
        with recorded_updates() as recorded:
            task = make()
            training = training_of(tmp_path / make.__name__, plan_of(6, 5), Line, task)
            training.model.dropout.p = 0.0
            training.fit()
        (updates,) = recorded
        for update, (_, _, count) in zip(updates, task.read, strict=True):
            weight, bias = (each.double() for each in update.before)
            x = task.points[:count].double()
            slope = 2.0 * (x @ weight.T + bias - 4.0) / count
            if make is Near:
                slope = slope * 1e-3
            norm = check_clipped(update, [slope.T @ x, slope.sum(0)])
            assert (norm > 1.0) == (make is Fitting)


def test_a_validation_is_better_only_if_its_loss_is_lower() -> None:
    low, high = ({"validation_loss": loss} for loss in (1.0, 2.0))
    assert LowestLoss().is_better(low, high)
    assert not any(LowestLoss().is_better(high, each) for each in (low, high))


# ------------------------------------------------------------------ the classifier


def reviews() -> list[Review]:
    """Texts of unequal lengths with three labels, one of them the commonest, in no order."""
    labels = {
        "cat": "pet",
        "dog": "pet",
        "cow": "farm",
        "fox": "wild",
        "elk": "wild",
        "ape": "wild",
    }
    found = [
        Review(" ".join([a, *["and"] * ((i + j) % 4), b]), labels[a if i < 5 else b])
        for i, a in enumerate(labels)
        for j, b in enumerate(labels)
    ]
    return [found[5 * number % len(found)] for number in range(len(found))]


@dataclass
class Classified:
    """A finished run of the classifier, with the updates of both models."""

    folder: Path
    config: ClassifierConfig
    task: Classification
    tokenizer: Tokenizer
    updates: dict[str, list[Update]]
    test: list[Review]

    def model(self, name: str) -> nn.Module:
        """Build one of the two with the fresh weights of the run's seed."""
        torch.manual_seed(self.config.seed)
        build = self.config.build_bag if name == "bag" else self.config.build_encoder
        return build(self.tokenizer.vocab_size)

    def of(self, name: str) -> Path:
        """Return the folder of a model's training."""
        return self.folder / "bag" if name == "bag" else self.folder

    def best(self, name: str) -> nn.Module:
        """Load the best weights of a model from their file."""
        model = self.model(name)
        path = by_hand.only_entry(self.of(name) / "best")
        return by_hand.with_weights(model, by_hand.saved_weights(path, "model", model))

    def ids(self, text: str) -> list[int]:
        """Turn a text into what the models read."""
        return [BOS, *self.tokenizer.encode(text)][: self.config.max_length]


@pytest.fixture(scope="module")
def classified(tmp_path_factory: pytest.TempPathFactory) -> Classified:
    """Train the classifier once; tests leave the run as it is."""
    root = tmp_path_factory.mktemp("classified")
    texts = reviews()
    for name, split in (("train", texts[:24]), ("test", texts[24:])):
        (root / name).write_text("".join(f"{x.label}\t{x.text}\n" for x in split))
    folder = root / "run"
    files = ["--train-file", str(root / "train"), "--test-file", str(root / "test")]
    sizes = ["--num-layers", "1", "--d-model", "16", "--num-heads", "2", "--d-ff", "32"]
    plan = ["--steps", "53", "--batch-size", "7", "--vocabulary", "60", "--peak-rate", "0.02"]
    options = ["--dropout", "0", "--seed", "5", "--max-length", "9"]
    with pytest.MonkeyPatch.context() as patch, recorded_updates() as recorded:
        for name in ("plot_accuracy", "plot_encoder_attention"):
            patch.setattr(classify_commands, name, lambda *_, **__: None)
        patch.setattr(classify_commands, "REPORT_STEPS", 15)
        train = ["train", "--run", str(folder), *files, *sizes, *plan, *options]
        run_program(classify.main, *train)
    config = Run(folder, ClassifierConfig).read_config()
    tokenizer = Tokenizer((folder / "tokenizer.model").read_bytes())
    data = load_data(root / "train", root / "test")
    task = Classification(data, tokenizer, config)
    bag, encoder = recorded
    return Classified(folder, config, task, tokenizer, {"bag": bag, "encoder": encoder}, texts[24:])


MODELS = ["encoder", "bag"]


@pytest.mark.parametrize("name", MODELS)
def test_the_classifier_learns_from_the_mean_loss_of_each_batch(
    classified: Classified, name: str
) -> None:
    updates, config, task = classified.updates[name], classified.config, classified.task
    model = classified.model(name)
    for found, expected in zip(updates[0].before, model.parameters(), strict=True):
        assert torch.equal(found, expected)
    rows = metrics_of(classified.of(name))
    assert [row["step"] for row in rows] == [15, 30, 45, 53]
    kept = load_data(*(classified.folder.parent / split for split in ("train", "test"))).train
    totals: defaultdict[int, list[float]] = defaultdict(list)
    for step, update in enumerate(updates, start=1):
        model = by_hand.with_weights(model, update.before)
        model.zero_grad()
        epoch, number = divmod(step - 1, len(task.batches(0)))
        chosen = [kept[i] for i in task.batches(epoch)[number]]
        losses = [
            by_hand.token_losses(
                model(torch.tensor([classified.ids(each.text)])),
                [config.labels.index(each.label)],
            )
            for each in chosen
        ]
        torch.cat(losses).mean().backward()
        gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        check_clipped(update, gradient)
        report = next(row["step"] for row in rows if step <= row["step"])
        totals[report] += [float(loss.detach()) for loss in losses]
    for row in rows:
        wanted = totals[row["step"]]
        assert row["train_loss"] == pytest.approx(sum(wanted) / len(wanted), rel=1e-5)


@torch.no_grad()
def probabilities(model: nn.Module, ids: list[int]) -> list[float]:
    """Compute the softmax of one text's logits, in float64."""
    logits = model(torch.tensor([ids]))[0]
    found: list[float] = (logits.exp() / logits.exp().sum()).tolist()
    return found


@pytest.mark.parametrize("name", MODELS)
def test_the_classifiers_validation_is_that_of_the_averaged_weights(
    classified: Classified, name: str
) -> None:
    updates, labels = classified.updates[name], classified.config.labels
    averages = by_hand.moving_average([x.after for x in updates], classified.config.average)
    files = (classified.folder.parent / split for split in ("train", "test"))
    validation = load_data(*files).validation
    for row in metrics_of(classified.of(name)):
        figures = []
        for weights in (averages[row["step"] - 1], updates[row["step"] - 1].after):
            model = by_hand.with_weights(classified.model(name), weights)
            answers = [probabilities(model, classified.ids(each.text)) for each in validation]
            right = [labels.index(each.label) for each in validation]
            pairs = list(zip(answers, right, strict=True))
            loss = -sum(math.log(each[label]) for each, label in pairs) / len(pairs)
            correct = sum(each[label] == max(each) for each, label in pairs) / len(pairs)
            figures.append((loss, correct))
        (loss, correct), (raw, _) = figures
        assert row["validation_loss"] == pytest.approx(loss, rel=1e-5)
        assert row["validation_accuracy"] == correct
        assert abs(raw - loss) > 1e-4
    check_saved(classified.of(name), classified.model(name), updates, classified.config.average)


def test_the_classifier_reports_what_it_guesses_of_each_test_text(
    classified: Classified, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = run_program(classify.main, "evaluate", "--run", str(classified.folder))
    labels, test = classified.config.labels, classified.test
    assert labels == sorted(labels)
    tables = {}
    for name in MODELS:
        model, counts = classified.best(name), Counter[tuple[str, str]]()
        for each in test:
            answer = probabilities(model, classified.ids(each.text))
            counts[each.label, labels[answer.index(max(answer))]] += 1
        tables[name] = [[counts[row, column] for column in labels] for row in labels]
        right = sum(counts[label, label] for label in labels)
        title = "bag of words" if name == "bag" else name
        assert re.search(rf"^{title} +{right / len(test):.1%}$", printed, re.M)
        found = printed.partition(f"\n{title}: a row for each label")[2].split("\n")
        assert found[1].split() == labels
        for row, line in enumerate(found[2:5]):
            assert line.split() == [labels[row], *map(str, tables[name][row])]
    assert tables["encoder"] != [[*row] for row in zip(*tables["encoder"], strict=True)]
    assert tables["encoder"] != tables["bag"]
    commonest = Counter(each.label for each in test).most_common(1)[0][1]
    assert f"always the most common label  {commonest / len(test):.1%}".split() == next(
        line.split() for line in printed.split("\n") if line.startswith("always")
    )
    bags: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in test:
        bags[" ".join(sorted(each.text.split()))][each.label] += 1
    known = sum(max(counts.values()) for counts in bags.values()) / len(test)
    assert re.search(rf"^best of word counts +{known:.1%}$", printed, re.M)


def test_each_text_is_classified_by_itself(classified: Classified) -> None:
    texts = [each.text for each in classified.test]
    printed = run_program(classify.main, "classify", "--run", str(classified.folder), *texts)
    lines = printed.removesuffix("\n").split("\n")
    model, labels = classified.best("encoder"), classified.config.labels
    assert len({line.split("\t")[0] for line in lines}) > 1
    for text, line in zip(texts, lines, strict=True):
        answer = probabilities(model, classified.ids(text))
        label, probability = line.split("\t")
        assert label == labels[answer.index(max(answer))]
        assert float(probability) == pytest.approx(max(answer), abs=1e-4)


# ------------------------------------------------------------------ the language model


@dataclass
class Written:
    """A finished run of the language model, with its updates."""

    folder: Path
    config: TextConfig
    tokenizer: Tokenizer
    updates: list[Update]
    parts: dict[str, list[str]]
    printed: str

    def model(self) -> TextModel:
        """Build the model with the fresh weights of the run's seed."""
        torch.manual_seed(self.config.seed)
        return self.config.build(self.tokenizer.vocab_size)

    def stream(self, part: str) -> list[int]:
        """Turn a part of the text into ids: an end before the first line and after each."""
        return [EOS, *(i for line in self.parts[part] for i in (*self.tokenizer.encode(line), EOS))]

    def best(self) -> TextModel:
        """Load the best weights from their file."""
        model = self.model()
        path = by_hand.only_entry(self.folder / "best")
        return by_hand.with_weights(model, by_hand.saved_weights(path, "model", model))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Train a language model; tests leave the run as it is."""
    root = tmp_path_factory.mktemp("written")
    nouns, verbs = "cat dog cow".split(), "sees hears".split()  # noqa: SIM905
    lines = [
        " ".join(["the", *["old"] * (number % 3), noun, verb, "the", other, "."])
        for number, (noun, verb, other) in enumerate(
            (a, v, b) for a in nouns for v in verbs for b in [*nouns, *"abcdefg"]
        )
    ]
    (root / "text").write_text("\n".join(lines))
    folder = root / "run"
    sizes = ["--num-layers", "1", "--d-model", "16", "--num-heads", "2", "--d-ff", "24"]
    plan = ["--steps", "26", "--batch-size", "3", "--context", "12", "--vocabulary", "50"]
    options = ["--dropout", "0", "--seed", "2", "--peak-rate", "0.05"]
    with pytest.MonkeyPatch.context() as patch, recorded_updates() as recorded:
        patch.setattr(text_commands, "plot_text_loss", lambda *_, **__: None)
        patch.setattr(text_commands, "REPORT_STEPS", 10)
        train = ["train", "--run", str(folder), "--text", str(root / "text")]
        printed = run_program(generate_text.main, *train, *sizes, *plan, *options)
    (updates,) = recorded
    config = Run(folder, TextConfig).read_config()
    tokenizer = Tokenizer((folder / "tokenizer.model").read_bytes())
    size = len(lines) // 20
    parts = {
        "train": lines[: -2 * size],
        "validation": lines[-2 * size : -size],
        "test": lines[-size:],
    }
    return Written(folder, config, tokenizer, updates, parts, printed)


def losses_of(model: TextModel, tokens: list[int]) -> list[Tensor]:
    """Compute the loss of each token but the first, in windows that overlap by half a context."""
    losses: list[Tensor] = []
    context = model.context
    while len(losses) < len(tokens) - 1:
        start = max(0, len(losses) - context // 2)
        window = tokens[start : start + context + 1]
        scores = model(torch.tensor([window[:-1]]))[0]
        of_window = by_hand.token_losses(scores, window[1:])
        losses += list(of_window[len(losses) - start :])
    return losses


def test_the_language_model_learns_from_the_mean_loss_of_its_pieces(written: Written) -> None:
    config, updates = written.config, written.updates
    model, learnt = written.model(), torch.tensor(written.stream("train"))
    for found, expected in zip(updates[0].before, model.parameters(), strict=True):
        assert torch.equal(found, expected)
    task = NextToken(learnt, learnt, config)
    rows, totals = metrics_of(written.folder), defaultdict[int, list[float]](list)
    assert [row["step"] for row in rows] == [10, 20, 26]
    for step, update in enumerate(updates, start=1):
        model = by_hand.with_weights(model, update.before)
        model.zero_grad()
        epoch, number = divmod(step - 1, len(task.batches(0)))
        pieces: list[list[int]] = task.collate(task.batches(epoch)[number])[0].tolist()
        assert [len(piece) for piece in pieces] == [13, 13, 13]
        losses = [
            by_hand.token_losses(model(torch.tensor([piece[:-1]]))[0], piece[1:])
            for piece in pieces
        ]
        torch.cat(losses).mean().backward()
        gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        check_clipped(update, gradient)
        report = next(row["step"] for row in rows if step <= row["step"])
        totals[report] += torch.cat(losses).tolist()
    for row in rows:
        wanted = totals[row["step"]]
        assert row["train_loss"] == pytest.approx(sum(wanted) / len(wanted), rel=1e-5)


@torch.no_grad()
def test_the_language_models_validation_is_that_of_the_averaged_weights(written: Written) -> None:
    config, updates = written.config, written.updates
    averages = by_hand.moving_average([each.after for each in updates], config.average)
    tokens = written.stream("validation")
    for row in metrics_of(written.folder):
        means = []
        for weights in (averages[row["step"] - 1], updates[row["step"] - 1].after):
            model = by_hand.with_weights(written.model(), weights)
            means.append(float(sum(losses_of(model, tokens))) / (len(tokens) - 1))
        mean, raw = means
        assert row["validation_loss"] == pytest.approx(mean, rel=1e-5)
        assert row["validation_perplexity"] == pytest.approx(math.exp(mean), rel=1e-5)
        assert abs(raw - mean) > 1e-4
    check_saved(written.folder, written.model(), updates, config.average)


@torch.no_grad()
def test_the_language_model_reports_perplexity_and_bits_of_the_test_text(
    written: Written,
) -> None:
    printed = run_program(generate_text.main, "evaluate", "--run", str(written.folder))
    tokens, lines = written.stream("test"), written.parts["test"]
    characters = sum(len(line) + 1 for line in lines)
    counts = f"lines {len(lines)}, tokens {len(tokens) - 1}, characters {characters}"
    assert printed.startswith(f"test text: {counts}\n")
    losses = {f"Transformer, {written.config.style}": float(sum(losses_of(written.best(), tokens)))}
    for order in (5, 4, 3, 2, 1):
        ngrams = NgramModel(
            written.stream("train"), order=order, vocabulary=written.tokenizer.vocab_size
        )
        losses[f"{order}-grams"] = -sum(
            math.log(ngrams.probability(tokens[:i], tokens[i])) for i in range(1, len(tokens))
        )
    rows = printed.rstrip("\n").split("\n")[2:]
    for (name, loss), row in zip(losses.items(), rows, strict=True):
        perplexity, bits = math.exp(loss / (len(tokens) - 1)), loss / math.log(2) / characters
        title, *figures = re.split(r"  +", row)
        assert title == name
        assert [float(each) for each in figures] == pytest.approx([perplexity, bits], abs=6e-4)
    tried = written.stream("validation")
    five = NgramModel(written.stream("train"), order=5, vocabulary=written.tokenizer.vocab_size)
    told = math.exp(
        -sum(math.log(five.probability(tried[:i], tried[i])) for i in range(1, len(tried)))
        / (len(tried) - 1)
    )
    assert f"validation perplexity of 5-grams: {told:.3f}" in written.printed


@torch.no_grad()
def test_greedy_decoding_continues_with_the_most_probable_token(written: Written) -> None:
    model, prompt = written.best(), "the old"
    ids = [EOS, *written.tokenizer.encode(prompt)]
    for _ in range(6):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    command = ["generate", "--run", str(written.folder), "--greedy", "--length", "6", prompt]
    found = run_program(generate_text.main, *command).removesuffix("\n")
    lines: list[list[int]] = [[]]
    for token in ids[1:]:
        if token == EOS:
            lines.append([])
        else:
            lines[-1].append(token)
    assert found == "\n".join(map(written.tokenizer.decode, lines))
