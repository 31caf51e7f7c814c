import torch

from translation.batches import pad
from translation.decoding import TransformerSteps, look, translate
from translation.tokenizer import BOS
from translation.training import Training


def test_a_step_scores_as_the_whole_model_does(trained: Training) -> None:
    model = trained.model.eval()
    source = torch.randint(4, 20, (3, 5))
    target = torch.cat((torch.full((3, 1), BOS), torch.randint(4, 20, (3, 4))), dim=1)
    with torch.no_grad():
        whole = model(source, target)
        steps = TransformerSteps(model, source)
        for position in range(5):
            scores = steps.step(target[:, position])
            torch.testing.assert_close(scores, whole[:, position], rtol=0, atol=1e-5)


def test_selected_rows_go_on_as_if_alone(trained: Training) -> None:
    model = trained.model.eval()
    source = pad([[5, 6, 7], [8, 9], [10, 11, 12]])
    first, second = torch.tensor([BOS, BOS, BOS]), torch.tensor([7, 8])
    with torch.no_grad():
        steps = TransformerSteps(model, source)
        steps.step(first)
        steps.select(torch.tensor([2, 1]))
        kept = steps.step(second)
        alone = TransformerSteps(model, source[[2, 1]])
        alone.step(first[:2])
        torch.testing.assert_close(kept, alone.step(second))


def test_translations_come_in_the_callers_order_and_do_not_depend_on_the_batch(
    trained: Training,
) -> None:
    sentences = [pair.source for pair in trained.corpus.train]
    sentences[3] = sentences[3] * 2
    one_by_one = [translate(trained.model, *trained.tokenizers, [s])[0] for s in sentences]
    for size in (2, 7, 64):
        assert translate(trained.model, *trained.tokenizers, sentences, batch_size=size) == (
            one_by_one
        )
    assert len(set(one_by_one)) > 1


def test_a_blank_line_stays_blank(trained: Training) -> None:
    out = translate(trained.model, *trained.tokenizers, ["", "犬が走る。", ""])
    assert out[0] == out[2] == "" != out[1]


def test_a_sentence_that_never_ends_stops(trained: Training) -> None:
    long = "犬" * 500
    assert len(trained.tokenizers[0].encode(long)) > trained.settings.max_length
    (translation,) = translate(trained.model, *trained.tokenizers, [long])
    assert len(trained.tokenizers[1].encode(translation)) <= trained.settings.max_length


def test_translating_leaves_the_mode_of_the_model_alone(trained: Training) -> None:
    for mode in (True, False):
        trained.model.train(mode)
        translate(trained.model, *trained.tokenizers, ["犬が走る。"])
        assert trained.model.training is mode


def test_progress_adds_up_to_the_sentences_translated(trained: Training) -> None:
    done: list[int] = []
    translate(trained.model, *trained.tokenizers, ["犬。"] * 5, batch_size=2, progress=done.append)
    assert sum(done) == 5


def test_a_look_names_what_was_read_and_written(trained: Training) -> None:
    seen = look(trained.model.eval(), *trained.tokenizers, "犬が走る。")
    heads, length, key_length = seen.weights.shape
    assert (heads, length, key_length) == (2, len(seen.target), len(seen.source))
    assert "".join(seen.source).replace("▁", "").startswith("犬が走る。")
    torch.testing.assert_close(seen.weights.sum(-1), torch.ones(heads, length))
    assert seen.translation == translate(trained.model, *trained.tokenizers, ["犬が走る。"])[0]
