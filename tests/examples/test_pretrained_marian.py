"""Marian computes what transformers computes from the same files."""

import io
import json
import operator
import shutil
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tests.examples.published import (
    Change,
    change_tensors,
    lose,
    one_error_line,
    save_model,
    truncate,
    update,
)
from torch import Tensor, nn

from pretrained import marian
from pretrained.marian_model import Marian
from pretrained.marian_translator import PublishedTranslator, generate, read_search
from pretrained.sentence_pieces import SentencePieces
from transformer_blocks.inference import prepare

JAPANESE = [
    f"{who}は{what}{verb}。"
    for who in ("私", "彼", "彼女", "太郎", "先生")
    for what in ("本を", "手紙を", "ｶﾞﾗｽを", "Tokyoで新聞を")
    for verb in ("読みます", "読みません", "書きました")
]
ENGLISH = [f"{who} {verb} the book, {who}!" for who in ("I", "he") for verb in ("read", "wrote")]
TRICKY = (
    *("私は本を読みます。", "", " ", "  彼は  手紙を ", "未知の漢字", "ﾊﾝｶｸ ガラス ｶﾞﾗｽ"),
    *("Tokyo東京", "😀👍🏽", "a\tb\nc", "a\u3000b", "e\u0301é", "a\x00b\x07c", "</s>"),
    *("<pad> <unk>", "▁私▁は", "¡Hola! «señor»", ">>jpn<< 私は", ">>jpn<<", ">>xyz<< 本"),
    *(">> 本を", "本 >>jpn<<", "\u200b本"),
)


def train_sentence_pieces(sentences: Iterable[str], size: int) -> bytes:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def save_marian(folder: Path, size: int, *, seed: int) -> Any:
    """Save a model whose translations sometimes end before their maximum length."""
    ids: dict[str, Any] = dict.fromkeys(("pad_token_id", "decoder_start_token_id"), size - 1)
    sizes: dict[str, Any] = {"d_model": 32, "encoder_layers": 3, "encoder_ffn_dim": 48}
    sizes |= {"decoder_layers": 2}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 2}
    sizes |= {"decoder_ffn_dim": 40, "activation_function": "swish"}
    return save_model("marian", folder, seed, vocab_size=size, **sizes, **ids)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published, once")
    torch.manual_seed(0)
    numbers = {"</s>": 0, "<unk>": 1, ">>jpn<<": 2}
    for name, text in (("source.spm", JAPANESE), ("target.spm", ENGLISH)):
        (folder / name).write_bytes(data := train_sentence_pieces(text, 60))
        processor = SentencePieceProcessor(model_proto=data)
        for number in range(3, processor.vocab_size() - 1):  # without the last token
            numbers.setdefault(processor.id_to_piece(number), len(numbers))
    numbers["<pad>"] = len(numbers)
    (folder / "vocab.json").write_text(json.dumps(numbers), encoding="utf-8")
    save_marian(folder, len(numbers), seed=0)
    return folder


def published_tokenizer(folder: Path) -> Any:
    files = [folder / name for name in ("source.spm", "target.spm", "vocab.json")]
    with warnings.catch_warnings(action="ignore"):  # about the optional package sacremoses
        make: Any = transformers.MarianTokenizer
        tokenizer = make(*map(str, files))
    tokenizer.punc_normalizer = str  # not even where the package is installed
    return tokenizer


def ragged(size: int, count: int = 4) -> Tensor:
    """Make sentences of unequal length, each followed by the end token."""
    tokens = torch.randint(1, size - 1, (count, 11))
    for row, length in enumerate([11, 4, 2, 8] * (count // 4)):
        tokens[row, length - 1] = 0
        tokens[row, length:] = size - 1
    return tokens


STOPPING: list[dict[str, Any]] = [
    {},  # the default rule
    *({"early_stopping": rule} for rule in (True, False, "never")),
]


def publish_search(theirs: Any, folder: Path, **search: Any) -> None:
    """Save the settings of beam search beside the weights, as in published folders."""
    settings: dict[str, Any] = {"num_beams": 4, "max_length": 15, "forced_eos_token_id": 0}
    settings |= {"bad_words_ids": [[theirs.config.pad_token_id]], "renormalize_logits": True}
    theirs.generation_config = transformers.GenerationConfig(
        **settings | search,
        pad_token_id=theirs.config.pad_token_id,
        decoder_start_token_id=theirs.config.pad_token_id,
        eos_token_id=0,
    )
    theirs.generation_config.save_pretrained(folder)


def translate(folder: Path, source: Tensor, *, prepared: bool = False) -> list[list[int]]:
    """Translate as the program does, with the settings of the folder."""
    model = Marian.load(folder)
    ours = prepare(model) if prepared else model
    padding, end = model.padding_id, model.end_id
    found = generate(ours, source.tolist(), **read_search(folder, model))
    assert all(hypothesis.finished for hypothesis in found)
    return [[padding, *hypothesis.tokens, end] for hypothesis in found]


def generate_theirs(theirs: Any, source: Tensor) -> list[list[int]]:
    """Translate as transformers does, with the settings of the folder."""
    padding = theirs.config.pad_token_id
    rows = theirs.generate(source, attention_mask=(source != padding).long()).tolist()
    return [[padding, *row[1 : row.index(0, 1)], 0] for row in rows]


@pytest.mark.parametrize("prepared", [False, True])
def test_beam_search_generates_the_tokens_of_transformers(tmp_path: Path, prepared: bool) -> None:
    size, lengths = 37, set()
    for seed in range(2):
        theirs, source = save_marian(tmp_path, size, seed=seed), ragged(size, 12)
        for beams, penalty, rule in (
            *((1, 1.0, None), (2, 1.0, True), (4, 0.0, False)),
            *((4, 1.0, False), (6, 1.5, "never")),
        ):
            publish_search(
                theirs, tmp_path, num_beams=beams, length_penalty=penalty, early_stopping=rule
            )
            found = translate(tmp_path, source, prepared=prepared)
            assert found == generate_theirs(theirs, source)
            lengths |= {len(each) for each in found}
    assert max(lengths) == 15  # some reach the maximum length ...
    assert len(lengths) > 2  # ... and others end before it


@pytest.mark.parametrize(
    "penalty", [1.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.0, 2.0))]
)
def test_the_published_stopping_rule_is_obeyed(tmp_path: Path, penalty: float) -> None:
    differing = torch.zeros(2, dtype=torch.int64)
    for seed in range(2):
        theirs, source = save_marian(tmp_path, 37, seed=seed), ragged(37, 48)
        found = []
        for rule in STOPPING:
            publish_search(theirs, tmp_path, length_penalty=penalty, **rule)
            found.append(translate(tmp_path, source))
            assert found[-1] == generate_theirs(theirs, source)
        default, true, false, never = found
        assert default == false
        for index, others in enumerate((true, never)):
            differing[index] += sum(map(operator.ne, false, others))
    assert differing.tolist() == [0, 0] if penalty == 0 else differing.min() > 0


def test_settings_of_older_folders_are_read_from_config_json(folder: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"num_beams": 6, "length_penalty": 0.5, "early_stopping": True}
    found = []
    for name in ("generation_config.json", "config.json"):
        copy = shutil.copytree(folder, tmp_path / name)
        update("generation_config.json", max_length=30, **settings)(copy)
        if name == "config.json":
            (copy / "generation_config.json").unlink()
            update("config.json", max_new_tokens=29, **settings)(copy)
        translator = PublishedTranslator.load(copy)
        found.append((translator.beams, translator.length_penalty, translator.lookahead))
        assert translator.max_length == 29
    assert found == [(6, 0.5, None)] * 2


def test_ids_beyond_the_vocabulary_are_never_generated(folder: Path, tmp_path: Path) -> None:
    larger = shutil.copytree(folder, tmp_path / "larger")
    translator = PublishedTranslator.load(folder)
    size = len(translator.tokenizer.vocabulary) + 9
    update("config.json", vocab_size=size, decoder_vocab_size=size)(larger)

    def enlarge(tensors: dict[str, Tensor]) -> None:
        words, bias = "model.shared.weight", "final_logits_bias"
        tensors[words] = nn.functional.pad(tensors[words], (0, 0, 0, 9), value=0.5)
        tensors[bias] = nn.functional.pad(tensors[bias], (0, 9), value=9.0)  # of high probability

    change_tensors(larger, enlarge)
    wide = PublishedTranslator.load(larger)
    assert wide.translate(JAPANESE[:6]) == translator.translate(JAPANESE[:6])


def test_texts_are_encoded_and_decoded_as_by_transformers(folder: Path) -> None:
    theirs, ours = published_tokenizer(folder), SentencePieces.load(folder)
    for text in (*TRICKY, *JAPANESE[:5]):
        ids = ours.encode(text)
        if not {"</s>", "<pad>", "<unk>"} & set(text.split()):
            expected = theirs(text, split_special_tokens=True)["input_ids"]
            assert ids == expected, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
    ids = [5, 60, 1, 0, 70, 12, len(ours.vocabulary) - 1, 63, 61]
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_a_text_cannot_contain_a_special_token(folder: Path) -> None:
    tokenizer = SentencePieces.load(folder)
    special = {tokenizer.vocabulary[token] for token in ("</s>", "<pad>")}
    for text in ("</s>", "本</s>を", "<pad>", ">>jpn<</s>"):
        assert not special & set(tokenizer.encode(text)[:-1])
    with pytest.raises(IndexError, match="an id must be in the vocabulary, got 999"):
        tokenizer.decode([5, 999])


def test_a_translation_does_not_depend_on_its_batch(folder: Path) -> None:
    translator = PublishedTranslator.load(folder)
    lines = [*JAPANESE[:6], "", "本", " ", "私は" * 30]
    together = translator.translate(lines, max_length=20)
    assert together == translator.translate(lines, max_length=20, batch_tokens=1)
    assert together == [translator.translate([line], max_length=20)[0] for line in lines]
    assert [line for line, text in zip(lines, together, strict=True) if not text] == ["", " "]


def test_a_long_sentence_is_truncated_before_its_end_token(folder: Path) -> None:
    translator = PublishedTranslator.load(folder)
    line = "私は" * 30
    cut = [*translator.tokenizer.encode(line)[:39], 0]
    (expected,) = generate(translator.model, [cut], beams=4, length_penalty=1.0, max_length=9)
    assert translator.translate([line], max_length=9) == [
        translator.tokenizer.decode(expected.tokens)
    ]


def test_the_program_translates_line_by_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["私は本を読みます。", "", "彼は手紙を書きました。"]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    assert marian.main([str(folder), *lines]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 3
    assert out.split("\n")[1] == ""
    assert marian.main([str(folder), "--file", str(file)]) == 0
    assert capsys.readouterr().out == out
    assert marian.main([str(folder), "--file", str(file), "--beam", "4"]) == 0
    assert capsys.readouterr().out == out


DAMAGES: list[tuple[Change, str]] = [
    (lose("vocab.json"), "vocab.json: No such file"),
    (lose("source.spm"), "source.spm: No such file"),
    (truncate("source.spm", 0), "source.spm must be a sentencepiece model"),
    (truncate("source.spm", 300), "source.spm must be a sentencepiece model"),
    (update("vocab.json", **{"</s>": "LOST"}), "must hold </s>"),
    (update("vocab.json", **{">>jpn<<": 1}), "must not repeat an id"),
    (
        update("generation_config.json", early_stopping=1),
        'early_stopping must be one of true, false, "never", got 1',
    ),
    *(
        (
            update("generation_config.json", **{name: value}),
            f"generation_config.json: {name} must be",
        )
        for name, value in {
            "do_sample": True,
            "no_repeat_ngram_size": 3,
            "repetition_penalty": 1.2,
            "length_penalty": -1.0,
            "max_length": 1,
            "bad_words_ids": [[5]],
        }.items()
    ),
    (update("generation_config.json", num_beams=0), "num_beams must be a whole number"),
]


@pytest.mark.parametrize(("change", "message"), DAMAGES)
def test_a_damaged_folder_is_reported_in_one_line(
    change: Change, message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    change(damaged)
    assert marian.main([str(damaged), "私は本を読みます。"]) == 2
    assert message in one_error_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either sentences or --file"),
        (["本", "--file", "lines.txt"], "give either sentences or --file"),
        (["本", "--beam", "0"], "--beam: must be a whole number above 0"),
        (["本", "--beam", "5000"], "--beam must not exceed the"),
        (["本", "--length-penalty", "nan"], "must be a number in [0, 10], got 'nan'"),
        (["--file", "none.txt"], "none.txt: No such file"),
    ],
)
def test_an_impossible_option_is_reported_in_one_line(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert marian.main([str(folder), *arguments]) == 2
    assert message in one_error_line(capsys)
