"""DistilBERT and RoBERTa compute what transformers and sentence-transformers compute."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tests.examples.published import TOLERANCE, change_tensors, one_error_line, save
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor

from pretrained import bert
from pretrained.bert_sentences import FAMILIES, SentenceEncoder
from pretrained.sentence_tokenizer import SentenceTokenizer

VOCABULARY, POSITIONS = 50, 20
PADDING = {"distilbert": 0, "roberta": 1}
every_family = pytest.mark.parametrize("family", PADDING)


def draw_model(family: str, seed: int, vocabulary: int = VOCABULARY) -> Any:
    """Make a small model of transformers with settings that depend on the seed."""
    rng = random.Random(seed)
    heads, num_layers = rng.choice([1, 2, 4]), rng.choice([1, 2, 3])
    d_model, d_ff = 8 * heads, rng.choice([16, 20])
    activation = rng.choice(["gelu", "relu"])
    if family == "distilbert":
        return transformers.DistilBertModel(
            transformers.DistilBertConfig(
                vocab_size=vocabulary,
                dim=d_model,
                n_layers=num_layers,
                n_heads=heads,
                hidden_dim=d_ff,
                activation=activation,
                max_position_embeddings=POSITIONS,
                sinusoidal_pos_embds=rng.random() < 0.5,
            )
        )
    return transformers.RobertaModel(
        transformers.RobertaConfig(
            vocab_size=vocabulary,
            hidden_size=d_model,
            num_hidden_layers=num_layers,
            num_attention_heads=heads,
            intermediate_size=d_ff,
            hidden_act=activation,
            max_position_embeddings=POSITIONS + 2,
            type_vocab_size=rng.choice([1, 2]),
            layer_norm_eps=rng.choice([1e-2, 1e-5]),
        )
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("seed", range(10))
@every_family
def test_hidden_states_of_padded_texts_equal_those_of_transformers(
    family: str, seed: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    torch.manual_seed(seed)
    theirs = save(draw_model(family, seed), tmp_path, dtype=dtype)
    ours = FAMILIES[family][0].load(tmp_path, dtype=dtype)
    padding = PADDING[family]
    tokens = torch.randint(padding + 1, VOCABULARY, (4, POSITIONS))
    for row, where in enumerate((slice(0), slice(7, None), slice(-1), slice(5, 9))):
        tokens[row, where] = padding  # none, at the end, at the beginning, between
    real = tokens != padding
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=real.long()).last_hidden_state
        found = ours(tokens)
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=TOLERANCE[dtype])
    with pytest.raises(ValueError, match="max_length"):
        ours(torch.full((1, POSITIONS + 1), padding + 1))


@every_family
def test_weights_that_were_saved_with_a_head_are_understood(family: str, tmp_path: Path) -> None:
    save(draw_model(family, 0), tmp_path)
    load = FAMILIES[family][0].load
    expected = load(tmp_path).state_dict()
    heads = {
        "distilbert": ("vocab_transform.weight", "pre_classifier.bias"),
        "roberta": ("lm_head.dense.weight", "classifier.out_proj.bias"),
    }

    def add_head(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors[f"{family}.{name}"] = tensors.pop(name)
        tensors.update({name: torch.ones(3) for name in (*heads[family], "qa_outputs.bias")})

    change_tensors(tmp_path, add_head)
    found = load(tmp_path).state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


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
    torch.manual_seed(0)
    folder.mkdir()
    save(draw_model(family, 0, save_tokenizer(family, folder)), folder)
    return folder


@every_family
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
    ours = SentenceTokenizer.load(folder)
    for text in TEXTS:
        expected = theirs(text, truncation=True, max_length=12, split_special_tokens=True)
        assert ours.encode(text, max_length=12) == expected["input_ids"]
    assert ours.encode("a \ud800mat", max_length=9) == ours.encode("a mat", max_length=9)


def change(name: str, edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        content = json.loads((folder / name).read_bytes())
        edit(content)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")

    return write


def setting(**values: object) -> Callable[[Path], object]:
    return change("config.json", lambda config: config.update(values))


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "an unknown family": (
        "roberta",
        setting(model_type="mpnet"),
        "model_type must be one of bert, distilbert, roberta for this program, got 'mpnet'",
    ),
    "another family": (
        "distilbert",
        setting(model_type="roberta"),
        "model must be 'BPE' for this program, got 'WordPiece'",
    ),
    "a layer more": ("distilbert", setting(n_layers=9), "lacks tensor 'transformer.layer."),
    "two numbers of heads": (
        "distilbert",
        setting(num_attention_heads=3),
        "num_attention_heads must be",
    ),
    "quantised weights": (
        "roberta",
        setting(quantization_config={"bits": 8}),
        "quantization_config must be None for this program, got {'bits': 8}",
    ),
    "fewer positions": (
        "roberta",
        setting(max_position_embeddings=9),
        "tensor 'embeddings.position_embeddings.weight' must have shape (9, ",
    ),
    "no positions": (
        "roberta",
        setting(max_position_embeddings=2),
        "max_position_embeddings must exceed pad_token_id by more than 1, got 2 and 1",
    ),
    "another padding": (
        "roberta",
        setting(pad_token_id=2),
        "the padding token is 1 in the vocabulary but 2 in config.json",
    ),
    "a decoder": (
        "roberta",
        setting(is_decoder=True),
        "is_decoder must be False for this program, got True",
    ),
    "no padding token": (
        "roberta",
        lambda folder: (folder / "tokenizer.json").write_text(
            (folder / "tokenizer.json").read_text("utf-8").replace('"<pad>"', '"<lost>"'), "utf-8"
        ),
        "the vocabulary must hold '<pad>'",
    ),
    "nothing around a text": (
        "roberta",
        change("tokenizer.json", lambda content: content.update(post_processor=None)),
        "post_processor must add one token before a text and one after it",
    ),
    "a space before a text": (
        "roberta",
        change("tokenizer_config.json", lambda config: config.update(add_prefix_space=True)),
        "add_prefix_space must be False for this tokenizer, got True",
    ),
    "an unknown token after a text": (
        "roberta",
        change("tokenizer.json", lambda content: content["post_processor"].update(sep=["x", 9999])),
        "post_processor must add one token before a text and one after it",
    ),
    "too many layers to list": (
        "distilbert",
        setting(n_layers=2**28),
        "n_layers must be a whole number from 1 to 1024, got 268435456",
    ),
    "random merges": (
        "roberta",
        change("tokenizer.json", lambda content: content["model"].update(dropout=0.1)),
        "dropout must be None for this program, got 0.1",
    ),
    "no tokenizer": (
        "roberta",
        lambda folder: (folder / "tokenizer.json").unlink(),
        "tokenizer.json: No such file",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_not_implemented_or_contradicts_itself_is_refused_by_its_key(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family, damage, message = BAD[bad]
    folder, lines = make_folder(family, tmp_path / "encoder"), tmp_path / "lines.txt"
    lines.write_text("the cat\na dog\n", encoding="utf-8")
    assert bert.main([str(folder), "a mat", "--file", str(lines)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    damage(folder)
    assert bert.main([str(folder), "a mat", "--file", str(lines)]) == 2
    assert message in one_error_line(capsys)
    shutil.rmtree(folder)
