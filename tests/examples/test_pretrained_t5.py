"""T5 computes what transformers computes from the same files."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from tests.examples.published import Change, edit_json, linear_output, one_error_line, save_model
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from common.searches import Beam, Greedy
from pretrained import t5
from pretrained.text_to_text import TextToText
from pretrained.tokenizer import PublishedTokenizer
from transformer_blocks import greedy_search
from transformer_blocks.inference import prepare

TEXT = [
    "the cat sat on the mat.",
    "translate the cat: die Katze sitzt.",
    "東京の犬は本を読みます。",
]
TEXTS = [*TEXT, "The  cat\tsat ", "", "é e\u0301 </s> <pad>", "the cat sat on a cat on a mat " * 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a whole folder, with a tokenizer of T5's kind."""
    folder = tmp_path_factory.mktemp("published, once")
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 5, trainer)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    size = tokenizer.get_vocab_size() + 9
    save_model("t5", folder, 0, vocab_size=size, feed_forward_proj="relu")
    return folder


def test_texts_are_encoded_and_decoded_as_by_transformers(folder: Path) -> None:
    make: Any = transformers.PreTrainedTokenizerFast
    theirs = make(tokenizer_file=str(folder / "tokenizer.json"))
    ours = PublishedTokenizer.load(folder)
    for text in TEXTS:
        ids, expected = ours.encode(text), theirs(text, split_special_tokens=True)["input_ids"]
        assert ids == expected, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_each_text_of_a_batch_has_the_output_that_it_has_alone(folder: Path) -> None:
    model = TextToText.load(folder)
    for search in (Greedy(), Beam(3, 0.6)):
        alone = [model.generate([each], length=12, search=search)[0] for each in TEXTS]
        for core in (model.model, prepare(model.model)):
            for batch_tokens in (1, 60, 4096):
                together = TextToText(core, model.tokenizer).generate(
                    TEXTS, length=12, search=search, batch_tokens=batch_tokens
                )
                assert together == alone
        assert alone[4] == ""
        assert len(set(alone)) > 3
    ids = model.tokenizer.encode(TEXTS[0])
    (found,) = model.model.generate([ids], greedy_search, end_id=1, max_length=12)
    assert (
        model.tokenizer.decode(found.tokens)
        == model.generate(TEXTS[:1], length=12, search=Greedy())[0]
    )


def test_ids_beyond_the_vocabulary_are_never_generated(folder: Path) -> None:
    model = TextToText.load(folder)
    expected = model.generate(TEXTS, length=9, search=Greedy())
    size = len(model.tokenizer.tokens)
    with torch.no_grad():
        output = linear_output(model.model)
        output.weight = torch.nn.Parameter(output.weight.clone())
        output.weight[size:] = 10 * output.weight[:9]
    assert model.generate(TEXTS, length=9, search=Greedy()) == expected


def test_the_program_prints_a_line_for_each_text(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, texts = TextToText.load(folder), ["the cat", "", "a mat."]
    expected = model.generate(
        ["translate " + texts[0], "", "translate " + texts[2]], length=9, search=Greedy()
    )
    options = ["--prefix", "translate ", "--length", "9"]
    assert t5.main([str(folder), *texts, *options]) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == expected
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    assert t5.main([str(folder), "--file", str(file), *options]) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == expected
    searches = []

    def generate(*_: object, length: int, search: object) -> list[str]:
        searches.append((length, search))
        return []

    monkeypatch.setattr(TextToText, "generate", generate)
    for more in ([], ["--beam", "3"]):
        assert t5.main([str(folder), "--file", str(file), *options, *more]) == 0
    assert searches == [(9, Greedy()), (9, Beam(3, 0.6))]


BAD: dict[str, tuple[Change, str]] = {
    "a small vocabulary": (
        edit_json(
            "tokenizer.json",
            lambda content: content["model"]["vocab"].extend([f"x{i}", -9.0] for i in range(20)),
        ),
        "the ids of the vocabulary must be below the vocab_size of config.json, got",
    ),
    "no probabilities": (
        edit_json("tokenizer.json", lambda content: content["model"].update(vocab=5)),
        "tokenizer.json cannot be read as a tokenizer (",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_not_implemented_or_contradicts_itself_is_refused_by_its_key(
    bad: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, message = BAD[bad]
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert t5.main([str(copy), "the cat", "--length", "2"]) == 0
    capsys.readouterr()
    damage(copy)
    assert t5.main([str(copy), "the cat", "--length", "2"]) == 2
    assert message in one_error_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either texts or --file"),
        (["a", "--file", "b"], "give either texts or --file"),
        (["a", "--beam", "1000"], "--beam must not exceed the"),
        (["a", "--length", "0"], "--length: must be a whole number above 0"),
    ],
)
def test_an_impossible_option_is_reported_in_one_line(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert t5.main([str(folder), *arguments]) == 2
    assert message in one_error_line(capsys)
