"""T5 computes what transformers computes from the same files."""

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
from safetensors.torch import load_file, save_file
from tests.examples.published import TOLERANCE, change_tensors, computing_in, one_error_line, save
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from torch.nn.utils.rnn import pad_sequence

from common.searches import Beam, Greedy
from pretrained import t5
from pretrained.t5_model import T5, T5Steps
from pretrained.text_to_text import TextToText
from pretrained.unigram import Unigram
from transformer_blocks import RelativeBias, beam_search, greedy_search, record_attention
from transformer_blocks.inference import prepare

VOCABULARY = 60


def draw_config(seed: int, **fixed: Any) -> Any:
    """Draw the settings of a small model."""
    rng = random.Random(seed)
    heads, buckets = rng.choice([1, 2, 4]), rng.choice([4, 8, 32])
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "d_model": rng.choice([8, 12]),
        "d_kv": rng.choice([4, 5, 16]),
        "d_ff": rng.choice([16, 20]),
        "num_layers": rng.choice([1, 2, 3]),
        "num_decoder_layers": rng.choice([1, 2]),
        "num_heads": heads,
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": rng.choice([buckets, 10 * buckets]),
        "layer_norm_epsilon": rng.choice([1e-2, 1e-6]),
        "feed_forward_proj": rng.choice(["relu", "gated-gelu", "gated-silu"]),
        "tie_word_embeddings": rng.random() < 0.5,
        "decoder_start_token_id": 0,
    }
    return transformers.T5Config(**(settings | fixed))


def save_t5(folder: Path, seed: int, *, dtype: torch.dtype = torch.float32, **fixed: Any) -> Any:
    torch.manual_seed(seed)
    with computing_in(dtype):
        return save(
            transformers.T5ForConditionalGeneration(draw_config(seed, **fixed)), folder, dtype=dtype
        )


def draw_source() -> torch.Tensor:
    source = torch.randint(3, VOCABULARY, (4, 20))
    for row, length in enumerate((20, 7, 1, 13)):
        source[row, length:] = 0
    return source


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_logits_equal_those_of_transformers(seed: int, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs, ours = save_t5(tmp_path, seed, dtype=dtype), T5.load(tmp_path, dtype=dtype)
    source, target = draw_source(), torch.randint(3, VOCABULARY, (4, 15))
    target[:, 0] = 0
    with torch.no_grad():
        with computing_in(dtype):
            expected = theirs(
                input_ids=source,
                attention_mask=(source != 0).long(),
                decoder_input_ids=target,
            ).logits
        found = ours(source, target)
        steps = T5Steps(ours, source)
        stepped = [steps.step(column) for column in target.unbind(1)]
    assert expected.std() > 0.1
    options: dict[str, Any] = {"rtol": 0, "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(found, expected, **options)
    torch.testing.assert_close(torch.stack(stepped, dim=1), found, **options)


@pytest.mark.parametrize("prepared", [False, True])
def test_greedy_decoding_and_beam_search_find_the_tokens_of_transformers(
    prepared: bool, tmp_path: Path
) -> None:
    ended = 0
    for seed in range(4):
        theirs = save_t5(tmp_path, seed)
        ours = T5.load(tmp_path)
        ours = prepare(ours) if prepared else ours
        source = draw_source()
        for beams in (1, 3):
            expected = theirs.generate(
                source,
                attention_mask=(source != 0).long(),
                do_sample=False,
                num_beams=beams,
                early_stopping=beams > 1,
                length_penalty=0.0 if beams > 1 else None,
                max_new_tokens=16,
            )[:, 1:]
            with torch.no_grad():
                steps = T5Steps(ours, source)
            start = torch.zeros(4, dtype=torch.int64)
            options: dict[str, Any] = {"end_id": 1, "max_length": 16}
            if beams == 1:
                found = greedy_search(steps, start, **options)
            else:
                options |= {"beam_size": beams, "n_best": beams, "length_penalty": 0.0}
                several = beam_search(steps, start, **options)
                found = [max(each, key=lambda one: one.score) for each in several]
            for generation, row in zip(found, expected.tolist(), strict=True):
                generated = generation.tokens + [1] * generation.finished
                assert generated == row[: len(generated)]
                assert set(row[len(generated) :]) <= {0}
                ended += generation.finished
    assert ended


@pytest.mark.parametrize("tied", [True, False])
def test_an_output_layer_of_its_own_is_used_if_the_file_has_one(tied: bool, tmp_path: Path) -> None:
    save_t5(tmp_path, 0, tie_word_embeddings=tied)
    own = 0.3 * torch.randn_like(load_file(tmp_path / "model.safetensors")["shared.weight"])
    change_tensors(tmp_path, lambda tensors: tensors.update({"lm_head.weight": own}))
    ours = T5.load(tmp_path)
    assert torch.equal(ours.output.weight, own)
    assert ours.scale == (ours.embedding.weight.shape[1] ** -0.5 if tied else 1.0)
    change_tensors(tmp_path, lambda tensors: tensors.pop("lm_head.weight"))
    ours = T5.load(tmp_path)
    assert ours.output.weight is ours.embedding.weight


def test_an_older_file_without_the_newer_settings_is_understood(tmp_path: Path) -> None:
    theirs = save_t5(tmp_path, 1, tie_word_embeddings=False, num_decoder_layers=None)
    edit_json("config.json", lambda config: config.pop("scale_decoder_outputs", None))(tmp_path)
    edit_json("config.json", lambda config: config.update(tie_word_embeddings=False))(tmp_path)
    edit_json("config.json", lambda config: config.pop("num_decoder_layers"))(tmp_path)

    def age(tensors: dict[str, torch.Tensor]) -> None:
        tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"].clone()
        name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        tensors[name] = torch.ones(3, 3)  # in the first files, and never used

    change_tensors(tmp_path, age)
    source, target = draw_source(), torch.randint(3, VOCABULARY, (4, 5))
    with torch.no_grad():
        expected = theirs(
            input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target
        ).logits
        torch.testing.assert_close(T5.load(tmp_path)(source, target), expected, rtol=0, atol=1e-4)


def test_all_layers_of_a_stack_share_one_table_and_its_weights_can_be_recorded(
    tmp_path: Path,
) -> None:
    theirs = save_t5(tmp_path, 2, num_layers=3, num_decoder_layers=2)
    ours = T5.load(tmp_path)
    tables = {id(part) for part in ours.modules() if isinstance(part, RelativeBias)}
    assert len(tables) == 2
    source, target = draw_source()[:1], torch.randint(3, VOCABULARY, (1, 5))
    config = theirs.config
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(
        tmp_path, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        with record_attention(ours) as found:
            ours(source, target)
        expected = theirs(input_ids=source, decoder_input_ids=target, output_attentions=True)
    assert len(found) == config.num_layers + 2 * config.num_decoder_layers
    for layer, weights in enumerate(expected.encoder_attentions):
        (found_weights,) = found[f"encoder.layers.{layer}.self_attention"]
        torch.testing.assert_close(found_weights, weights, rtol=0, atol=1e-5)
    for layer, weights in enumerate(expected.cross_attentions):
        (found_weights,) = found[f"decoder.layers.{layer}.cross_attention"]
        torch.testing.assert_close(found_weights, weights, rtol=0, atol=1e-5)


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
    save_t5(folder, 0, vocab_size=tokenizer.get_vocab_size() + 9, feed_forward_proj="relu")
    return folder


def test_texts_are_encoded_and_decoded_as_by_transformers(folder: Path) -> None:
    make: Any = transformers.PreTrainedTokenizerFast
    theirs = make(tokenizer_file=str(folder / "tokenizer.json"))
    ours = Unigram.load(folder)
    for text in TEXTS:
        ids, expected = ours.encode(text), theirs(text, split_special_tokens=True)["input_ids"]
        # Here, a special token within a text is unknown.
        expected[:-1] = [2 if each in (0, 1) else each for each in expected[:-1]]
        assert ids == expected, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    with pytest.raises(UnicodeEncodeError):
        ours.encode("\ud800")


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
    ids = pad_sequence([torch.tensor(model.tokenizer.encode(TEXTS[0]))], batch_first=True)
    unused = range(len(model.tokenizer.tokens), len(model.model.embedding.weight))
    with torch.no_grad():
        steps = T5Steps(model.model, ids, suppressed=unused)
    (found,) = greedy_search(steps, torch.tensor([0]), end_id=1, max_length=12)
    assert (
        model.tokenizer.decode(found.tokens)
        == model.generate(TEXTS[:1], length=12, search=Greedy())[0]
    )


def test_ids_beyond_the_vocabulary_are_never_generated(folder: Path) -> None:
    model = TextToText.load(folder)
    expected = model.generate(TEXTS, length=9, search=Greedy())
    size = len(model.tokenizer.tokens)
    with torch.no_grad():
        model.model.output.weight = torch.nn.Parameter(model.model.output.weight.clone())
        model.model.output.weight[size:] = 10 * model.model.output.weight[:9]
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


def edit_json(name: str, edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        content = json.loads((folder / name).read_bytes())
        edit(content)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")

    return write


def setting(**values: object) -> Callable[[Path], object]:
    return edit_json("config.json", lambda config: config.update(values))


def lose_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
    save_file(tensors, folder / "model.safetensors")


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "another family": (setting(model_type="mt5"), "model_type must be one of t5 for this program"),
    "no table of biases": (lose_tensor, "SelfAttention.relative_attention_bias.weight'"),
    "other buckets": (setting(relative_attention_num_buckets=16), "by config.json, got ("),
    "sizes whose product is too large": (
        setting(d_model=2**28, num_heads=2**28, d_kv=2**28),
        "d_kv must be a whole number from 1 to 1, got 268435456",
    ),
    "odd buckets": (
        setting(relative_attention_num_buckets=7),
        "relative_attention_num_buckets must be even, at least 4 and less than twice",
    ),
    "a small distance": (
        setting(relative_attention_num_buckets=32, relative_attention_max_distance=16),
        "relative_attention_max_distance, got 32 and 16",
    ),
    "an unknown activation": (
        setting(feed_forward_proj="gated-mish"),
        "feed_forward_proj must be one of relu, gelu",
    ),
    "no activation": (setting(feed_forward_proj=3), "for this program, got 3"),
    "another network": (
        setting(feed_forward_proj="gated-relu", is_gated_act=True),
        "DenseReluDense.wi",
    ),
    "another activation than it names": (
        setting(dense_act_fn="silu"),
        "dense_act_fn must be 'relu' for this program, got 'silu'",
    ),
    "a gate that it does not name": (
        setting(is_gated_act=True),
        "is_gated_act must be False for this program, got True",
    ),
    "two numbers of layers": (setting(num_hidden_layers=9), "num_hidden_layers must be"),
    "two numbers of heads": (setting(num_attention_heads=9), "num_attention_heads must be"),
    "keys after the query": (setting(is_causal=False), "is_causal must be True"),
    "an encoder alone": (
        setting(is_encoder_decoder=False),
        "is_encoder_decoder must be True for this program, got False",
    ),
    "scaled as a word": (
        setting(scale_decoder_outputs="yes"),
        "scale_decoder_outputs must be true or false, got 'yes'",
    ),
    "another end token": (
        setting(eos_token_id=2),
        "the end token is 1 in the vocabulary but 2 in config.json",
    ),
    "another padding": (
        setting(pad_token_id=3),
        "the padding token is 0 in the vocabulary but 3 in config.json",
    ),
    "a start token beyond the vocabulary": (
        setting(decoder_start_token_id=2**20),
        "decoder_start_token_id must be a whole number from 0 to",
    ),
    "another unknown token": (
        edit_json("tokenizer.json", lambda content: content["model"].update(unk_id=0)),
        "tokenizer.json: unk_id must be 2 for this program, got 0",
    ),
    "no padding token": (
        edit_json(
            "tokenizer.json",
            lambda content: content.update(
                model=content["model"] | {"vocab": [["<x>", 0.0], *content["model"]["vocab"][1:]]},
                added_tokens=content["added_tokens"][1:],
            ),
        ),
        "tokenizer.json: the vocabulary must hold '<pad>'",
    ),
    "a panic of the library": (
        edit_json(
            "tokenizer.json",
            lambda content: content.update(pre_tokenizer={"type": "FixedLength", "length": 0}),
        ),
        "tokenizer.json cannot be read as a tokenizer (",
    ),
    "a small vocabulary": (
        lambda folder: edit_json(
            "tokenizer.json",
            lambda content: content["model"]["vocab"].extend([f"x{i}", -9.0] for i in range(20)),
        )(folder),
        "the ids of the vocabulary must be below the vocab_size of config.json, got",
    ),
    "another tokenizer": (
        edit_json("tokenizer.json", lambda content: content["model"].update(type="BPE")),
        "model must be 'Unigram' for this program, got 'BPE'",
    ),
    "no end token": (
        edit_json("tokenizer.json", lambda content: content.update(post_processor=None)),
        "post_processor must add one token after a text, and no other",
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
