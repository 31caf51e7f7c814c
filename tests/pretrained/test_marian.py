"""Marian computes what transformers computes from the same files."""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.pretrained.published import JAPANESE, save_model, update
from torch import Tensor

from pretrained.marian_translator import PublishedTranslator, generate, read_search
from transformer_blocks.inference import prepare
from transformer_blocks.pretrained.marian import Marian
from transformer_blocks.pretrained.sentence_pieces import SentencePieces

Publish = Callable[[str], Path]
SIZE = 37
TRICKY = (
    *("私は本を読みます。", "", " ", "  彼は  手紙を ", "未知の漢字", "ﾊﾝｶｸ ガラス ｶﾞﾗｽ"),
    *("Tokyo東京", "😀👍🏽", "a\tb\nc", "a\u3000b", "e\u0301é", "a\x00b\x07c", "</s>"),
    *("<pad> <unk>", "▁私▁は", "¡Hola! «señor»", ">>jpn<< 私は", ">>jpn<<", ">>xyz<< 本"),
    *(">> 本を", "本 >>jpn<<", "\u200b本"),
)


def save_marian(folder: Path, *, seed: int) -> Any:
    """Save a model whose translations sometimes end before their maximum length."""
    ids: dict[str, Any] = dict.fromkeys(("pad_token_id", "decoder_start_token_id"), SIZE - 1)
    sizes: dict[str, Any] = {"d_model": 32, "encoder_layers": 3, "encoder_ffn_dim": 48}
    sizes |= {"decoder_layers": 2, "activation_function": "swish"}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 2}
    return save_model("marian", folder, seed, vocab_size=SIZE, **sizes, **ids)


def published_tokenizer(folder: Path) -> Any:
    files = [folder / name for name in ("source.spm", "target.spm", "vocab.json")]
    with warnings.catch_warnings(action="ignore"):  # about the optional package sacremoses
        make: Any = transformers.MarianTokenizer
        tokenizer = make(*map(str, files))
    tokenizer.punc_normalizer = str  # not even where the package is installed
    return tokenizer


def ragged(count: int) -> Tensor:
    """Make sentences of unequal length, each followed by the end token."""
    tokens = torch.randint(1, SIZE - 1, (count, 11))
    for row, length in enumerate([11, 4, 2, 8] * (count // 4)):
        tokens[row, length - 1] = 0
        tokens[row, length:] = SIZE - 1
    return tokens


RULES = None, True, False, "never"
SEARCHES = (
    *((4, 1.0, rule) for rule in RULES),
    *((1, 1.0, None), (2, 2.0, True), (4, 0.0, "never"), (6, 1.5, "never")),
)
"""Beam sizes, length penalties and stopping rules; without a rule, the default is obeyed."""


def publish_search(theirs: Any, folder: Path, beams: int, penalty: float, rule: object) -> None:
    """Save the settings of beam search beside the weights, as in published folders."""
    settings: dict[str, Any] = {} if rule is None else {"early_stopping": rule}
    theirs.generation_config = transformers.GenerationConfig(
        num_beams=beams,
        length_penalty=penalty,
        max_length=15,
        forced_eos_token_id=0,
        bad_words_ids=[[SIZE - 1]],
        renormalize_logits=True,
        pad_token_id=SIZE - 1,
        decoder_start_token_id=SIZE - 1,
        eos_token_id=0,
        **settings,
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
    rows = theirs.generate(source, attention_mask=(source != SIZE - 1).long()).tolist()
    return [[SIZE - 1, *row[1 : row.index(0, 1)], 0] for row in rows]


def test_beam_search_generates_the_tokens_of_transformers(tmp_path: Path) -> None:
    found: dict[tuple[object, ...], list[list[int]]] = {search: [] for search in SEARCHES}
    for seed in range(2):
        theirs, source = save_marian(tmp_path, seed=seed), ragged(24)
        for search in SEARCHES:
            publish_search(theirs, tmp_path, *search)
            translations = translate(tmp_path, source, prepared=seed == 1)
            assert translations == generate_theirs(theirs, source), search
            found[search] += translations
    default, true, false, never = (found[4, 1.0, rule] for rule in RULES)
    assert default == false != true
    assert never != false
    lengths = {len(each) for each in default}
    assert max(lengths) == 15  # some reach the maximum length ...
    assert len(lengths) > 2  # ... and others end before it


def test_settings_of_older_folders_are_read_from_config_json(
    published: Publish, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"num_beams": 6, "length_penalty": 0.5, "early_stopping": True}
    found = []
    for name in ("generation_config.json", "config.json"):
        copy = shutil.copytree(published("marian"), tmp_path / name)
        update("generation_config.json", max_length=30, **settings)(copy)
        if name == "config.json":
            (copy / "generation_config.json").unlink()
            update("config.json", max_new_tokens=29, **settings)(copy)
        translator = PublishedTranslator.load(copy)
        found.append((translator.beams, translator.length_penalty, translator.lookahead))
        assert translator.max_length == 29
    assert found == [(6, 0.5, None)] * 2


def test_texts_are_encoded_and_decoded_as_by_transformers(published: Publish) -> None:
    folder = published("marian")
    theirs, ours = published_tokenizer(folder), SentencePieces.load(folder)
    for text in (*TRICKY, *JAPANESE[:5]):
        ids = ours.encode(text)
        if not {"</s>", "<pad>", "<unk>"} & set(text.split()):
            expected = theirs(text, split_special_tokens=True)["input_ids"]
            assert ids == expected, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
    ids = [5, 10, 1, 0, 11, 12, len(ours.vocabulary) - 1, 8, 7]
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_a_text_cannot_contain_a_special_token(published: Publish) -> None:
    tokenizer = SentencePieces.load(published("marian"))
    special = {tokenizer.vocabulary[token] for token in ("</s>", "<pad>")}
    for text in ("</s>", "本</s>を", "<pad>", ">>jpn<</s>"):
        assert not special & set(tokenizer.encode(text)[:-1])
    with pytest.raises(IndexError, match="an id must be in the vocabulary, got 999"):
        tokenizer.decode([5, 999])


def test_a_long_sentence_is_truncated_before_its_end_token(
    published: Publish, tmp_path: Path
) -> None:
    copy = shutil.copytree(published("marian"), tmp_path / "copy")
    update("config.json", max_position_embeddings=6)(copy)
    translator = PublishedTranslator.load(copy)
    cut = [[*translator.tokenizer.encode(line)[:5], 0] for line in JAPANESE]
    found = generate(translator.model, cut, beams=4, length_penalty=1.0, max_length=6)
    expected = [translator.tokenizer.decode(each.tokens) for each in found]
    assert translator.translate(JAPANESE) == expected
