"""DistilBERT and RoBERTa compute what transformers and sentence-transformers compute."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tests.examples.published import save_model
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from pretrained.bert_sentences import SentenceEncoder
from pretrained.tokenizer import PublishedTokenizer

POSITIONS = 20


WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "."]
TEXTS = [
    *("the cat sat on a mat.", "Dog", "", "the dog", "café 東京 DOG.", " dogs  ", "</s> <s><pad>"),
    *("the cat " * 9, "a mat", "the cat sat on the dog . the dog sat on a mat ."),
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def save_tokenizer(family: str, folder: Path) -> int:
    """Save a tokenizer as transformers does, and return the size of its vocabulary."""
    if family == "distilbert":
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##at", "c"]
        vocabulary = {token: number for number, token in enumerate(tokens)}
        transformers.DistilBertTokenizer(vocabulary).save_pretrained(folder)
        return len(tokens)
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    make: Any = transformers.RobertaTokenizer
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    make(vocab=model["vocab"], merges=merges, model_max_length=POSITIONS).save_pretrained(folder)
    return tokenizer.get_vocab_size()


def make_folder(family: str, folder: Path) -> Path:
    folder.mkdir()
    save_model(family, folder, 0, vocab_size=save_tokenizer(family, folder))
    return folder


@pytest.mark.parametrize("family", ["distilbert", "roberta"])
def test_sentence_vectors_equal_those_of_sentence_transformers(family: str, tmp_path: Path) -> None:
    folder = make_folder(family, tmp_path / "encoder")
    first = modules.Transformer(str(folder))
    size = first.get_embedding_dimension()
    for mode in ("mean", "cls"):
        published = tmp_path / mode
        pooling = modules.Pooling(size, pooling_mode=mode)
        SentenceTransformer(modules=[first, pooling], device="cpu").save(str(published))
        theirs = SentenceTransformer(str(published), device="cpu", local_files_only=True)
        texts = TEXTS if family == "distilbert" else TEXTS[:6] + TEXTS[7:]
        expected = theirs.encode(texts, convert_to_tensor=True)
        found = SentenceEncoder.load(published).embed(texts)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_special_tokens_within_a_text_are_text(tmp_path: Path) -> None:
    folder = make_folder("roberta", tmp_path / "encoder")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = PublishedTokenizer.load(folder, max_length=12)
    for text in TEXTS:
        expected = theirs(text, truncation=True, max_length=12, split_special_tokens=True)
        assert ours.encode(text) == expected["input_ids"]
