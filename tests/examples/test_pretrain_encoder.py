"""The pretraining of an encoder, in one file that users copy."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pretrain_encoder
from pretrain_encoder import (
    FIRST_WORD,
    HABITATS,
    LENGTH,
    MASK,
    PAD,
    TEMPLATES,
    VOCABULARY,
    Classifier,
    MaskedLanguageModel,
    corrupt,
    encode,
    main,
    masked_loss,
    predict_in_contexts,
    sample_texts,
)


def words(row: Tensor) -> list[str]:
    return [VOCABULARY[token] for token in row.tolist() if token != PAD]


def template_of(found: list[str], habitat: int) -> list[list[str]]:
    """Find the template of a text: its only one, since all words are known."""
    fitting = [
        slots
        for label, slots in TEMPLATES
        if label == habitat
        and len(slots) == len(found)
        and all(word in slot for word, slot in zip(found, slots, strict=True))
    ]
    return fitting[0]


def test_determiner_noun_and_pronoun_agree_in_number() -> None:
    texts, _, _ = sample_texts(200, random.Random(0))
    singular = {animal for animals, *_ in HABITATS.values() for animal in animals.split()}
    for text in texts:
        found = words(text)
        is_plural = bool({"two", "three", "many"} & {*found})
        assert bool(singular & {*found}) != is_plural
        assert ("they" if not is_plural else "it") not in found


def test_the_rates_are_those_of_the_paper() -> None:
    torch.manual_seed(0)
    tokens, _, _ = sample_texts(10_000, random.Random(0))
    corrupted, chosen = corrupt(tokens)
    was = tokens[chosen]
    now = corrupted[chosen]
    share = chosen.sum() / (tokens != PAD).sum()
    assert share.item() == pytest.approx(0.15, abs=0.005)
    assert (now == MASK).float().mean().item() == pytest.approx(0.8, abs=0.015)
    # a random word is the original one in one of so many cases
    same = 0.1 + 0.1 / (len(VOCABULARY) - FIRST_WORD)
    assert (now == was).float().mean().item() == pytest.approx(same, abs=0.01)
    replaced = now[(now != MASK) & (now != was)]
    assert set(replaced.tolist()) == set(range(FIRST_WORD, len(VOCABULARY)))


def test_only_chosen_tokens_change_and_padding_is_never_chosen() -> None:
    torch.manual_seed(0)
    tokens, _, _ = sample_texts(500, random.Random(0))
    corrupted, chosen = corrupt(tokens.clone())
    assert torch.equal(corrupted[~chosen], tokens[~chosen])
    assert not (chosen & (tokens == PAD)).any()
    assert (corrupted == PAD).equal(tokens == PAD)


def test_the_loss_ignores_positions_that_are_not_chosen() -> None:
    torch.manual_seed(0)
    tokens, _, _ = sample_texts(8, random.Random(0))
    _, chosen = corrupt(tokens)
    logits = torch.randn(*tokens.shape, len(VOCABULARY), requires_grad=True)
    masked_loss(logits, tokens, chosen).backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad.ne(0).any(-1), chosen)


def test_the_training_uses_the_loss_at_the_chosen_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = list[tuple[Tensor, Tensor]]()

    def loss(logits: Tensor, tokens: Tensor, chosen: Tensor) -> Tensor:
        calls.append((tokens, chosen))
        return masked_loss(logits, tokens, chosen)

    monkeypatch.setattr(pretrain_encoder, "masked_loss", loss)
    tokens, _, _ = sample_texts(20, random.Random(0))
    held_out, chosen = corrupt(tokens)
    assert (held_out[chosen] != MASK).any()
    losses = pretrain_encoder.pretrain(
        MaskedLanguageModel(d_model=8), (held_out, tokens), steps=2, seed=0
    )
    assert [*losses] == [2]
    (first, of_first), (second, of_second), last = calls
    assert not torch.equal(first, second)  # new texts in each update
    for texts, places in ((first, of_first), (second, of_second)):
        assert 0.05 < places[texts != PAD].float().mean() < 0.25
    assert all(map(torch.equal, last, (tokens, held_out == MASK)))  # the bound is that of [MASK]


def test_padding_changes_neither_predictions_nor_classes() -> None:
    torch.manual_seed(0)
    model = MaskedLanguageModel(d_model=8).eval()
    padded = encode([["one", "crab", "swam", "near", "the", "reef", "."]])
    alone = padded[:, :7]
    assert padded.shape[1] == LENGTH > 7
    torch.testing.assert_close(model(padded)[:, :7], model(alone))
    classifier = Classifier(model).eval()
    torch.testing.assert_close(classifier(padded), classifier(alone))


def test_a_prediction_depends_on_both_sides() -> None:
    torch.manual_seed(0)
    model = MaskedLanguageModel(d_model=8).eval()
    text = ["two", "old", "[MASK]", "swam", "near", "the", "reef", "."]
    first = model(encode([text]))[0, 2]
    for place, word in ((0, "one"), (6, "barn")):
        changed = [*text]
        changed[place] = word
        assert not torch.allclose(model(encode([changed]))[0, 2], first)


def test_a_classifier_begins_with_the_pretrained_weights_and_leaves_them_as_they_are() -> None:
    torch.manual_seed(0)
    model = MaskedLanguageModel(d_model=8)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    classifier = Classifier(model)
    for name, weight in classifier.model.state_dict().items():
        assert torch.equal(weight, before[name])
    texts, habitats, _ = sample_texts(8, random.Random(0))
    pretrain_encoder.fine_tune(classifier, texts, habitats, rate=0.01)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    encoder = classifier.model.embedding.weight
    assert not torch.equal(encoder, before["embedding.weight"])  # fine-tuned, too


def test_a_context_is_hidden_by_mask_tokens_and_its_table_names_the_kinds_of_nouns() -> None:
    seen: list[Tensor] = []

    class Scripted(MaskedLanguageModel):
        def forward(self, tokens: Tensor) -> Tensor:
            seen.append(tokens)
            logits = torch.full((*tokens.shape, len(VOCABULARY)), -1e4)
            for row, word in enumerate(("cows", "whale", "whales")):
                logits[row, :, VOCABULARY.index(word)] = 0.0
            return logits

    tables = predict_in_contexts(Scripted(d_model=8))
    assert tables == [
        [[0.0, 0.0], [0.0, 1.0]],
        [[1.0, 0.0], [0.0, 0.0]],
        [[0.0, 0.0], [1.0, 0.0]],
    ]
    mask = "[MASK]"
    assert [words(row) for row in seen[0]] == [
        ["two", "old", mask, mask, mask, mask, mask, mask],
        [mask, mask, mask, "swam", "near", "the", "reef", "."],
        ["two", "old", mask, "swam", "near", "the", "reef", "."],
    ]


def test_texts_for_training_labels_and_test_come_from_different_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states, labelled, counts = list[str](), list[Tensor](), list[int]()

    def draw(count: int, rng: random.Random) -> Any:
        states.append(repr(rng.getstate()))
        found = sample_texts(min(count, 60), rng)
        labelled.append(found[0])
        return found

    def fine_tune(_: Classifier, tokens: Tensor, *__: Tensor, **___: float) -> None:
        counts.append(len(tokens))
        assert all((row == labelled[-2]).all(1).any() for row in tokens)  # then comes the test

    monkeypatch.setattr(pretrain_encoder, "LABELS", (1,))
    monkeypatch.setattr(pretrain_encoder, "sample_texts", draw)
    monkeypatch.setattr(pretrain_encoder, "fine_tune", fine_tune)
    pretrain_encoder.run([0, 1], steps=2)
    # Held-out texts, and for each seed those of two updates, labelled ones and those of the test.
    assert len(states) == 9
    assert len({*states}) == 8
    assert states[4] == states[8]  # one test for all seeds
    assert {*counts} == {len(HABITATS)}


def test_the_bound_is_the_loss_of_a_model_that_knows_the_template() -> None:
    tokens, habitats, possible = sample_texts(400, random.Random(0))
    logits = torch.full((*tokens.shape, len(VOCABULARY)), float("-inf"))
    for row, text, habitat in zip(logits, tokens, habitats, strict=True):
        for position, slot in zip(row, template_of(words(text), int(habitat)), strict=False):
            position[[VOCABULARY.index(word) for word in slot]] = 0.0
    places = tokens != PAD
    loss = masked_loss(logits, tokens, places)
    torch.testing.assert_close(loss, possible[places].log().mean())
    assert (possible[~places] == 1).all()


def test_a_short_run_writes_the_picture_and_its_numbers_which_a_seed_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pretrain_encoder, "LABELS", (1,))
    monkeypatch.setattr(pretrain_encoder, "sample_texts", lambda _, rng: sample_texts(100, rng))
    folder = tmp_path / "new" / "folder"
    main(["--steps", "2", "--seeds", "0", "0", "--output", str(folder)])
    assert {file.suffix for file in folder.iterdir()} == {".json", ".png"}
    content = json.loads((folder / "pretrain_encoder.json").read_text("utf-8"))
    first, again = content["runs"]
    assert first == again
    assert content["command"] == "python examples/pretrain_encoder.py"
    assert all(len(values) == 1 for values in first["accuracies"].values())
    assert capsys.readouterr().out.endswith("pretrain_encoder.png\n")


@pytest.mark.slow
def test_pretraining_approaches_the_bound_and_replaces_labels(tmp_path: Path) -> None:
    main(["--seeds", "5", "--output", str(tmp_path)])
    content = json.loads((tmp_path / "pretrain_encoder.json").read_text("utf-8"))
    (run,) = content["runs"]
    last = [*run["losses"].values()][-1]
    assert content["bound"] < last < content["bound"] + 0.2
    pretrained, fresh, counts = run["accuracies"].values()
    assert pretrained[2] > 0.9 > 0.8 > max(fresh[2], counts[2])  # four labels of each habitat
    left, right, both = run["contexts"]
    assert left[1][0] + left[1][1] > 0.9  # plural
    assert right[0][0] + right[1][0] > 0.9  # of the sea
    assert both[1][0] > 0.9
