"""The model in the page: what it computes is what torch computes with the same rounded weights."""

import itertools
import json
import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sentencepiece import SentencePieceProcessor
from tests.explorer.live import (
    END,
    SIZES,
    TEXTS,
    LivePage,
    train,
    translator_of_texts,
    with_other_weights,
)
from tests.explorer.page import data_of
from tests.pretrained.published import edit_json, save_folder
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn

from transformer_blocks import (
    GatedAttention,
    LanguageModel,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    RotaryPositionalEncoding,
    Seq2Seq,
    YarnScaling,
    beam_search,
    build_language_model,
    build_seq2seq,
    causal_mask,
    greedy_search,
)
from transformer_blocks.explorer import AttentionMaps, Explorer
from transformer_blocks.explorer import live as live_module
from transformer_blocks.explorer.arithmetic import as_text
from transformer_blocks.explorer.byte_pairs import LLAMA3, read_byte_pairs
from transformer_blocks.explorer.live import LiveModel, quantize, serialize_live
from transformer_blocks.explorer.tokens import token_labels
from transformer_blocks.fast.top_k import top_k
from transformer_blocks.inspection import ablate, head_patterns
from transformer_blocks.inspection.patterns import END_TOKENS, PATTERNS
from transformer_blocks.pretrained import build_llama, from_pretrained
from transformer_blocks.pretrained.families import build_model
from transformer_blocks.pretrained.tokenizer import Tokenizer as PublishedTokenizer

SOURCE, TARGET = [5, 9, 7, 3], [1, 8, 11, 4]


def translator(residual: Any = PreNorm) -> Seq2Seq:
    torch.manual_seed(0)
    model = build_seq2seq(20, 30, **SIZES, residual=residual)
    model.output = nn.Linear(16, 30)
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = 0.1
    return with_other_weights(model)


def rotary() -> RotaryPositionalEncoding:
    return RotaryPositionalEncoding(8, rotated=4, scaling=YarnScaling(4.0, 8))


GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}
LLAMA: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4}
LANGUAGE_MODELS: dict[str, Any] = {
    "paper": lambda size: build_language_model(size, **SIZES),
    "GPT-2": lambda size: build_model({**GPT2, "vocab_size": size}),
    "exact GELU": lambda size: build_model(
        {**GPT2, "vocab_size": size, "activation_function": "gelu"}
    ),
    "Llama": lambda size: build_llama(size, **LLAMA, num_key_value_heads=2),
    "Llama, scaled": lambda size: build_llama(
        size, **LLAMA, num_key_value_heads=1, d_k=8, rotary=rotary, bias=True, tied=False
    ),
}


def language_model(kind: str, size: int = 30) -> LanguageModel:
    torch.manual_seed(0)
    model: LanguageModel = with_other_weights(LANGUAGE_MODELS[kind](size))
    return model


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, atol=1e-4, rtol=1e-4)


# --- Blocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_steps_of_a_language_model_are_those_of_torch(kind: str) -> None:
    model = language_model(kind)
    found = LivePage(model).logits([*SOURCE, TARGET[0]], TARGET)
    assert close(found, model(torch.tensor([SOURCE + TARGET]))[0, -1])


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
def test_steps_of_a_translator_are_those_of_torch_also_without_some_parts(residual: Any) -> None:
    model = translator(residual)
    page = LivePage(model)
    parts: list[tuple[list[str], dict[str, Any]]] = [
        ([], {}),
        (["positions"], {"positions": True}),
        (
            ["decoder.layers.1.cross_attention.heads.1"],
            {"heads": {"decoder.layers.1.cross_attention": [1]}},
        ),
        (
            ["encoder.layers.0.self_attention.heads.0"],
            {"heads": {"encoder.layers.0.self_attention": [0]}},
        ),
        (
            ["decoder.layers.0.feed_forward_residual"],
            {"residuals": ["decoder.layers.0.feed_forward_residual"]},
        ),
    ]
    plain = page.logits(SOURCE, TARGET)
    for off, ablated in parts:
        with ablate(model, **ablated):
            expected = model(torch.tensor([SOURCE]), torch.tensor([TARGET]))[0, -1]
        found = page.logits(SOURCE, TARGET, off)
        assert close(found, expected)
        assert close(found, plain) is (off == [])


@pytest.mark.parametrize("kind", ["GPT-2", "Llama, scaled"])
def test_learned_and_rotary_positions_can_be_switched_off(kind: str) -> None:
    model = language_model(kind)
    found = LivePage(model).logits([*SOURCE, TARGET[0]], TARGET, ["positions"])
    model.positions = None
    for part in model.modules():
        if isinstance(part, MultiHeadAttention):
            part.transforms = nn.ModuleList()
    assert close(found, model(torch.tensor([SOURCE + TARGET]))[0, -1])


def test_a_masked_source_token_has_no_effect() -> None:
    page = LivePage(translator())
    changed = [SOURCE[0], 12, *SOURCE[2:]]
    mask = ", [0, 1, 0, 0]"
    assert close(page.logits(SOURCE, TARGET, mask=mask), page.logits(changed, TARGET, mask=mask))
    assert not close(page.logits(SOURCE, TARGET), page.logits(changed, TARGET))


@pytest.mark.parametrize("source", [[0, 5, 9, 0, 3], [0, 0]])
def test_padding_within_a_source_is_masked_as_by_torch_also_where_nothing_else_is_left(
    source: list[int],
) -> None:
    model = translator()
    assert model.padding_id == 0
    found = LivePage(model).logits(source, TARGET)
    assert close(found, model(torch.tensor([source]), torch.tensor([TARGET]))[0, -1])


def changed(path: str, change: Any) -> Any:
    """Return a function that changes a part of a translator."""
    return lambda model: change(model.get_submodule(path))


def without_weight(norm: Any) -> None:
    norm.weight = norm.bias = None


def with_other_heads(attention: Any) -> None:
    attention.num_heads = attention.num_key_value_heads = attention.d_k = 4


LAYER = "decoder.layers.0"
REFUSED: dict[str, tuple[Any, str]] = {
    "activation": (
        changed(f"{LAYER}.feed_forward", lambda part: setattr(part, "activation", torch.tanh)),
        r"blocks that the page knows, got decoder\.layers\.0\.feed_forward",
    ),
    "gates": (
        changed(LAYER, lambda part: setattr(part, "self_attention", GatedAttention(16, 2))),
        r"blocks that the page knows, got decoder\.layers\.0\.self_attention",
    ),
    "hook": (
        changed("dropout", lambda part: part.register_forward_pre_hook(lambda *_: None)),
        "dropout must have neither hooks nor replaced methods",
    ),
    "table": (
        changed("positions", lambda part: part.table.mul_(2.0)),
        "positions must have the paper's encodings",
    ),
    "norm": (
        changed(f"{LAYER}.feed_forward_residual.norm", without_weight),
        r"norm\.weight must have a number for each feature",
    ),
    "large": (
        changed("output", lambda part: part.bias.data.fill_(3.4e38)),  # infinite in bfloat16
        r"output.bias must be finite",
    ),
    "heads": (
        changed(f"{LAYER}.self_attention", with_other_heads),
        r"layers must have the same heads, got .*'self_attention', 2, 2, 8.*4, 4, 4",
    ),
    "size of a head": (
        changed(f"{LAYER}.self_attention", lambda part: setattr(part, "d_k", 4)),
        "must project to 8 features",
    ),
    "output": (
        lambda model: setattr(model, "output", nn.Linear(16, 31)),
        "output must stay below the 30 tokens of its embedding, got id 30",
    ),
}


def live_of(model: Any, tokenizers: Any = (), **options: Any) -> LiveModel:
    return LiveModel(model, tokenizers, **({"end_id": END, "max_length": 8} | options))


@pytest.mark.parametrize("part", REFUSED)
def test_a_model_that_the_page_would_compute_otherwise_is_refused(part: str) -> None:
    model, (change, message) = translator(), REFUSED[part]
    live_of(model)
    change(model)
    with pytest.raises(ValueError, match=message):
        live_of(model)


@pytest.mark.parametrize("name", ["forward", "hidden", "encode", "embed", "embed_source", "begin"])
def test_a_model_with_another_method_is_refused(name: str) -> None:
    model = translator()
    kind = type("Other", (Seq2Seq,), {name: lambda self, *inputs: None, "loss": lambda self: 0.0})
    model.__class__ = kind
    with pytest.raises(ValueError, match=f"what a Seq2Seq does, got another {name} of Other"):
        live_of(model)


def test_what_a_language_model_has_and_the_page_does_not_compute_is_refused() -> None:
    gpt2 = language_model("GPT-2")
    live_of(gpt2, max_length=40)
    with pytest.raises(ValueError, match="end_id must stay below the 30 tokens of its embedding"):
        live_of(gpt2, end_id=30)
    with pytest.raises(ValueError, match="must not exceed the 40 positions of the model, got 41"):
        live_of(gpt2, max_length=41)
    gpt2.embedding = nn.Embedding(30, 16, max_norm=1.0)
    with pytest.raises(ValueError, match="embedding must not change its weights, got max_norm=1"):
        live_of(gpt2)


def test_a_model_that_is_too_large_for_a_page_is_refused(monkeypatch: Any) -> None:
    model = language_model("GPT-2")
    count = sum(each.numel() for each in model.parameters())
    monkeypatch.setattr(live_module, "MOST_WEIGHTS", count)
    live_of(model)
    monkeypatch.setattr(live_module, "MOST_WEIGHTS", count - 1)
    with pytest.raises(ValueError, match=f"at most {count - 1:,} weights in a page, got {count:,}"):
        live_of(model)


def test_tokenizers_of_another_kind_or_vocabulary_are_refused() -> None:
    model, content = translator_of_texts()
    live_of(model, [content, content])
    for tokenizers, message in (
        ([content], "tokenizers must be 2, one for each embedding, got 1"),
        ([content, b"a file"], "must be files of SentencePiece models"),
        ([content, train("bpe", user_defined_symbols=["<sep>"])], "got another kind"),
        ([content, train("bpe", byte_fallback=True, vocab_size=400)], "got another kind"),
        ([content, train("char")], "got another kind"),
        ([content, train("bpe", treat_whitespace_as_suffix=True)], "got another kind"),
    ):
        with pytest.raises(ValueError, match=message):
            live_of(model, tokenizers)
    with pytest.raises(ValueError, match="got 95 and 95 tokens for 20 and 30"):
        live_of(translator(), [content, content])
    with pytest.raises(ValueError, match="got 95 and 95 tokens for 95 and 96"):
        live_of(build_seq2seq(95, 96, **SIZES), [content, content])


# --- Searches -------------------------------------------------------------------------------------


def test_searches_find_the_tokens_that_torch_finds() -> None:
    model = translator()
    page = LivePage(model)
    drawn = random.Random(0)
    sources = [[drawn.randrange(4, 20) for _ in range(drawn.randrange(1, 9))] for _ in range(12)]
    options: list[dict[str, Any]] = [{"beam_size": size} for size in (1, 4)]
    options += [{"beam_size": 3, "length_penalty": 2.0}]
    lengths = set()
    for number, source in enumerate(sources):
        endless = model.generate([source], greedy_search, end_id=None, max_length=9)[0].tokens
        end = endless[number % 9]
        limits = f"{{endId: {end}, maxLength: 9}}"
        scripts = [f"generate(steps, 1, mostProbable, {limits})"]
        found = [[model.generate([source], greedy_search, end_id=end, max_length=9)[0]]]
        for given in options:
            size, penalty = given["beam_size"], given.get("length_penalty", "undefined")
            given = {**given, "n_best": size, "end_id": end, "max_length": 9}
            found += model.generate([source], beam_search, **given)
            scripts += [
                f"beamSearch(steps, 1, {{size: {size}, lengthPenalty: {penalty}, ...{limits}}})"
            ]
        for script, expected in zip(scripts, found, strict=True):
            shown = page(f"(steps => finish({script}))(finish(seq2seq(model, {source}, newRun())))")
            assert [each["tokens"] for each in shown] == [each.tokens for each in expected]
            assert [each["isFinished"] for each in shown] == [each.finished for each in expected]
            assert shown[0]["score"] == pytest.approx(expected[0].score, abs=1e-4)
            lengths |= {len(each.tokens) for each in expected}
    assert len(lengths) > 3, lengths


class Tabled:
    """A model whose logits depend on the step alone."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.rows = iter(logits)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        return next(self.rows).expand(len(tokens), -1)

    def reorder(self, rows: torch.Tensor) -> None:
        """Keep everything: there is no state of a row."""


def test_without_a_length_penalty_hypotheses_are_ranked_with_that_of_the_library() -> None:
    page, options = LivePage(translator()), "{size: 5, endId: 0, maxLength: 7}"
    for seed in range(30):
        torch.manual_seed(seed)
        logits = torch.randn(7, 5)
        [expected] = beam_search(
            Tabled(logits), torch.tensor([1]), beam_size=5, end_id=0, max_length=7, n_best=5
        )
        found = page(
            "((rows, at) => finish(beamSearch({reorder() {}, *step(tokens) { at++; return "
            "Float32Array.from(tokens.flatMap(() => rows[at])); }}"
            f", 1, {options})))({logits.tolist()}, -1)"
        )
        assert [each["tokens"] for each in found] == [each.tokens for each in expected]


def test_samples_have_the_frequencies_of_the_temperature() -> None:
    page = LivePage(translator())
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0])
    counts = torch.zeros(4)
    script = f"sampleAt(2, randomFrom(5)), logits = Float32Array.from({logits.tolist()})"
    for token in page(
        f"(() => {{ const draw = {script};"
        " return Array.from({length: 4000}, () => draw(logits)); })()"
    ):
        counts[token] += 1
    assert torch.allclose(counts / 4000, (logits / 2).softmax(-1), atol=0.03)


def test_of_equal_numbers_the_first_ones_are_the_largest() -> None:
    page, drawn = LivePage(translator()), random.Random(0)
    rows = [[drawn.randrange(4) for _ in range(12)] for _ in range(20)]
    for count in (1, 3, 12):
        expected = top_k(torch.tensor(rows).float(), count)[1].tolist()
        assert page(f"{rows}.map(row => topK(Float32Array.from(row), {count}))") == expected


# --- Tokenizers -----------------------------------------------------------------------------------

HOSTILE = [
    *("", " ", "   a   b ", "\n\t", "▁", "▁▁a▁ ▁", "\x00\x01", "\ud800x", "x\udc00", "\ufeffa"),
    *("a\u200bb", "\u202eabc", "\xa0a\x85\x1cb\u2028", "😀👨‍👩‍👧‍👦🇯🇵1️⃣", "</s><unk> <s>", "a ´ b ¨"),
    *("ﷺ", "𠮷\U0010ffff", "!" * 3000, "猫" * 2000, "あ い !", "“q” ‘s’", "<script>"),
]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("bpe", {"normalization_rule_name": "identity", "add_dummy_prefix": False}),
        ("bpe", {"normalization_rule_name": "nmt_nfkc"}),
        ("unigram", {"normalization_rule_name": "nmt_nfkc_cf"}),
        ("unigram", {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}),
    ],
)
def test_token_ids_and_texts_are_those_of_sentencepiece(kind: str, options: Any) -> None:
    drawn = random.Random(0)
    letters = "".join(TEXTS) + "▁ \u0301ｶﾞが"
    texts = ["".join(drawn.choices(letters, k=drawn.randrange(30))) for _ in range(200)]
    texts += TEXTS + HOSTILE
    model = train(kind, **options)
    processor = SentencePieceProcessor(model_proto=model)
    clean = [
        text.translate({0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd"))
        for text in texts
    ]
    page = LivePage(translator())
    encoded = as_text(model)
    page(f"(globalThis.tokenizer = readTokenizer(bytesOf('{encoded}')), 0)")
    found = page(f"{json.dumps(texts)}.map(text => encodeText(tokenizer, text))")
    expected = processor.encode(clean)
    assert found == expected
    decoded = page(f"{json.dumps(found)}.map(ids => decodeText(tokenizer, ids))")
    assert decoded == processor.decode(expected)


def rescored(model: bytes, scores: dict[str, float]) -> bytes:
    """Give pieces of a tokenizer other scores, which follow their names in the file."""
    processor = SentencePieceProcessor(model_proto=model)
    for name, score in scores.items():
        old = processor.get_score(processor.piece_to_id(name))
        before, after = (name.encode() + b"\x15" + struct.pack("<f", x) for x in (old, score))
        assert before in model
        model = model.replace(before, after)
    return model


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_of_equal_scores_are_chosen_as_by_sentencepiece(kind: str) -> None:
    model = train("bpe", normalization_rule_name="identity")
    if kind == "unigram":  # with the same pieces, which overlap: field 3 of the trainer, before 4
        model = model.replace(b"\x18\x02\x20", b"\x18\x01\x20")
    processor = SentencePieceProcessor(model_proto=model)
    pieces = range(4, processor.vocab_size())
    model = rescored(model, {processor.id_to_piece(each): -1 - each % 3 for each in pieces})
    processor = SentencePieceProcessor(model_proto=model)
    drawn = random.Random(0)
    texts = ["".join(drawn.choices("the catsdogrun", k=drawn.randrange(30))) for _ in range(200)]
    page, encoded = LivePage(translator()), as_text(model)
    page(f"(globalThis.tokenizer = readTokenizer(bytesOf('{encoded}')), 0)")
    found = page(f"{json.dumps(texts)}.map(text => encodeText(tokenizer, text))")
    assert found == processor.encode(texts)


def byte_pairs(kind: str) -> Tokenizer:
    """Train a byte-level tokenizer as GPT-2's or Llama 3's."""
    is_llama = kind == "Llama 3"
    tokenizer = Tokenizer(models.BPE(ignore_merges=is_llama))
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not is_llama)
    words = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, split]) if is_llama else split
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|begin|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [*TEXTS, *HOSTILE[:5], "I'll, you'VE don't 'S 12345 12 \n\n  x\r\n"]
    tokenizer.train_from_iterator(texts * 3, trainer)
    if is_llama:
        template = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
        )
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), template])
    file = json.loads(tokenizer.to_str())
    for word in ("Ġwhole", "'Å¿x", "!ï»¿"):  # no merges lead to them
        file["model"]["vocab"][word] = len(file["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.encode_special_tokens = True
    return tokenizer


@pytest.mark.parametrize("kind", ["GPT-2", "Llama 3"])
def test_token_ids_and_texts_of_byte_pairs_are_those_of_tokenizers(kind: str) -> None:
    drawn, tokenizer, page = random.Random(0), byte_pairs(kind), LivePage(translator())
    letters = (
        "".join(TEXTS) + "▁ \u0301ｶﾞ\n\r\t\x85\ufeff\xa0'sSſtTlL12½٣ \u2028\u180e\u200b\x1c🇯🇵👨‍👩‍👧"
    )
    texts = ["".join(drawn.choices(letters, k=drawn.randrange(30))) for _ in range(300)]
    texts += [*TEXTS, *HOSTILE, "<|begin|> <|end|>x", "a whole", "!\ufeff"]
    texts += ["'ſx 'S", "\ufeff\ufeffa"]
    content = json.dumps(read_byte_pairs(tokenizer.to_str().encode(), 425)).encode()
    page(f"(globalThis.tokenizer = readTokenizer(bytesOf('{as_text(content)}')), 0)")
    encode = "text => [...tokenizer.before, ...encodeText(tokenizer, text)]"
    found = page(f"{json.dumps(texts)}.map({encode})")
    expected = [tokenizer.encode(text.encode(errors="ignore").decode()).ids for text in texts]
    assert found == expected
    ids = [[drawn.randrange(420) for _ in range(drawn.randrange(12))] for _ in range(300)]
    decoded = page(f"{json.dumps(ids + found)}.map(ids => decodeText(tokenizer, ids))")
    assert decoded == [tokenizer.decode(each) for each in ids + found]
    assert page("tokenizer.pieces.length") == 425


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_published_model_is_live_with_the_tokenizer_of_its_folder(
    family: str, tmp_path: Path
) -> None:
    folder = save_folder(family, tmp_path / "model")
    edit_json("tokenizer.json", lambda file: file["added_tokens"].pop())(folder)  # "<think>"
    model, tokenizer = from_pretrained(folder)
    assert isinstance(model, LanguageModel)
    assert isinstance(tokenizer, PublishedTokenizer)
    page = LivePage(model, [tokenizer.path.read_bytes()], max_length=8)
    text, ids = "the cat 京", tokenizer.encode("the cat 京")
    page(f"(idsOf({json.dumps(text)}).then(ids => {{ globalThis.ids = ids; }}), 0)")
    assert page("ids") == ids
    assert close(page.logits(ids, ids[-1:]), model(torch.tensor([ids]))[0, -1])
    tokens = [*range(len(tokenizer.ids))]
    page("(tokenizers.then(([tokenizer]) => { globalThis.tokenizer = tokenizer; }), 0)")
    assert page(f"decodeText(tokenizer, {tokens})") == tokenizer.decode(tokens)


def with_part(name: str, **values: Any) -> Any:
    return lambda file: file[name].update(values)


OTHER_BYTE_PAIRS: dict[str, Any] = {
    "kind": with_part("model", type="WordPiece"),
    "dropout": with_part("model", dropout=0.1),
    "bytes": lambda file: file["model"]["vocab"].pop("a"),
    "space": with_part("pre_tokenizer", add_prefix_space=True),
    "words": lambda file: file["pre_tokenizer"].update(
        pretokenizers=[
            {"pattern": {"Regex": " "}},
            {**file["pre_tokenizer"], "use_regex": False},
        ]
    ),
    "splits": lambda file: file["pre_tokenizer"].update(
        pretokenizers=[{"type": "Digits"}, {**file["pre_tokenizer"]}]
    ),
    "decoder": with_part("decoder", type="Metaspace"),
    "text tokens": lambda file: file["added_tokens"][0].update(special=False),
    "tokens after a text": lambda file: file.update(
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<|end|>"}}],
            "special_tokens": {"<|end|>": {"ids": [1]}},
        }
    ),
}


@pytest.mark.parametrize("part", OTHER_BYTE_PAIRS)
def test_byte_pairs_that_the_page_would_compute_otherwise_are_refused(part: str) -> None:
    model, file = language_model("GPT-2", 420), json.loads(byte_pairs("GPT-2").to_str())
    live_of(model, [json.dumps(file).encode()])
    OTHER_BYTE_PAIRS[part](file)
    with pytest.raises(ValueError, match=r"tokenizers must be .*byte.* pairs.* got another"):
        live_of(model, [json.dumps(file).encode()])


@pytest.mark.parametrize("score", [9.5, 10.5])  # less, or more, than an unknown piece costs
def test_an_unknown_letter_costs_ten_more_than_the_least_probable_piece(score: float) -> None:
    model = train("unigram", normalization_rule_name="identity", add_dummy_prefix=False)
    model = rescored(model, {"ca": -20.0, "a": score}).replace(b"\x01c\x15", b"\x01#\x15")
    expected = SentencePieceProcessor(model_proto=model).encode("ca")
    page = LivePage(translator())
    page(f"(globalThis.tokenizer = readTokenizer(bytesOf('{as_text(model)}')), 0)")
    assert page("encodeText(tokenizer, 'ca')") == expected
    assert len(expected) == (1 if score < 10 else 2)


def test_pieces_of_unknown_types_are_refused() -> None:
    page = LivePage(translator())
    encoded = as_text(train("bpe", user_defined_symbols=["<sep>"]))
    script = f"(() => {{ try {{ readTokenizer(bytesOf('{encoded}')); }} catch (error) {{"
    assert "<sep>" in page(f"{script} return error.message; }} }})()")


def test_heads_have_the_names_that_python_gives_them() -> None:
    torch.manual_seed(0)
    page = LivePage(build_language_model(9, num_layers=1, d_model=8, num_heads=2, d_ff=8))
    tokens = ["a", "b", "a", "b", "a", "b", "a", "。", "!?", "</s>"]
    names = set()
    for length in (2, 5, 10):
        keys, eye = tokens[-length:], torch.eye(length)
        follows = [
            [0 < j < i and keys[j - 1] == keys[i] for j in range(length)] for i in range(length)
        ]
        induction = torch.tensor(follows).float()
        end = torch.zeros(length, length)
        end[:, -3:] = 1
        shapes = [eye, eye.roll(-1, 1), eye.roll(1, 1), induction, end, torch.ones_like(eye)]
        first = torch.zeros_like(eye)
        first[:, 0] = 1
        weights = torch.stack(
            [each + 0.1 * torch.rand(length, length) for each in (*shapes, first)]
        )
        for is_self, mask in itertools.product((True, False), (None, causal_mask(length), eye > 0)):
            numbers = weights if mask is None else weights.masked_fill(mask, 0.0)
            numbers = numbers / numbers.sum(-1, keepdim=True).clamp_min(1e-9)
            expected = head_patterns(numbers, keys=keys, mask=mask, self_attention=is_self)
            flat = "null" if mask is None else json.dumps(mask.flatten().int().tolist())
            found = page(
                f"(all => all.map((_, head) => findPatterns({{heads: {len(numbers)}, isSelf: "
                f"{json.dumps(is_self)}, rows: {length}, columns: {length}, mask: {flat}, "
                f"keys: {json.dumps(keys)}, map: (layer, head) => Float32Array.from(all[head])}})"
                "(0, head)?.name ?? null))"
                f"({json.dumps(numbers.flatten(1).tolist())})"
            )
            assert found == [each.name for each in expected]
            names.update(found)
    assert names == {None, *(each.name for each in PATTERNS)}
    assert set(page("END_TOKENS")) == END_TOKENS


# --- The box --------------------------------------------------------------------------------------


class Box(LivePage):
    """The box for a sentence, in which a part is switched off by a click."""

    def __init__(self, model: Any = None, tokenizer: bytes = b"") -> None:
        texts, content = translator_of_texts()
        self.model: Any = model or with_other_weights(texts)
        super().__init__(self.model, [tokenizer] if model else [content, content])
        self.run("$('live-text').value = 'the cat', runText(), 0")

    def run(self, expression: str) -> None:
        """Evaluate an expression, and wait until the model has found a text."""
        self(expression)
        for _ in range(500):
            self("pass(20), 0")

    def click(self, part: str) -> None:
        buttons = "$('live').querySelectorAll('button')"
        self.run(f"{buttons}.find(each => each.dataset.part === '{part}').click(), 0")


def test_a_head_that_is_switched_off_has_no_lines_and_no_part_in_the_mean() -> None:
    box = Box()
    box("select({view: 'story', attention: 2, layer: 1}), 0")
    box.click("decoder.layers.1.cross_attention.heads.1")
    assert box.text("name") == "Cross-attention, layer 1, mean"
    assert box("[...weightsOf(2, 1, 2)]") == box("[...weightsOf(2, 1, 0)]")
    assert max(box("[...weightsOf(2, 1, 1)]")) == 0 < max(box("[...weightsOf(2, 0, 1)]"))
    box("select({head: 1, isLocked: true}), 0")
    assert box.text("name") == "Cross-attention, layer 1, head 1, switched off"
    assert box.text("story-sentence").startswith("Head 1 is switched off")
    assert "switched off" in box.text("why")
    box("select({head: 0}), 0")
    assert "softmax" in box.text("why")
    box.click("decoder.layers.1.cross_attention.heads.0")
    box("select({head: 2, isLocked: false}), 0")
    assert box.text("story-sentence").startswith("These heads are switched off")
    for head in (0, 1):
        box.click(f"decoder.layers.1.cross_attention.heads.{head}")
    assert box.text("name") == "Cross-attention, layer 1, mean"


def test_a_rounded_weight_is_the_nearest_step() -> None:
    weight = torch.randn(5, 64)
    integers, steps = quantize(weight)
    inside = integers.abs() < 127  # the largest of a row may lie beyond, as steps are rounded too
    difference = (integers * steps[:, None] - weight).abs() / steps[:, None]
    assert difference[inside].max() <= 0.5 + 1e-4


def test_a_tied_weight_is_stored_once() -> None:
    model = build_language_model(30, **SIZES)
    assert len(serialize_live(live_of(model))["shapes"]) == len(list(model.parameters()))


def test_a_run_marks_the_words_the_chosen_tokens_and_the_masked_keys() -> None:
    box = Box()
    _, content = translator_of_texts()
    processor = SentencePieceProcessor(model_proto=content)
    pieces = processor.id_to_piece(box("live.ids"))
    begins = "".join("01"[label.begins_word] for label in token_labels(pieces))
    assert box("attentions[0].keyWords") == begins
    tokens, marks = box("[data.decoding.tokens, data.decoding.candidates]")
    chosen = [[text for text, _, is_chosen in step if is_chosen] for step in marks]
    assert any(chosen)
    assert all(found in ([], [token]) for found, token in zip(chosen, tokens, strict=True))
    mask = torch.tensor(box("[...attentions[1].mask]")).view(len(tokens), -1)
    assert torch.equal(mask.bool(), causal_mask(len(tokens)))


def test_each_token_of_the_text_has_its_probability_with_and_without_a_part() -> None:
    box, head = Box(), "decoder.layers.0.cross_attention"
    residual = "encoder.layers.0.feed_forward_residual"
    assert box("$('live-change').hidden") is True
    box.run("(search(new Set(), 1).then(found => { globalThis.found = found; }), 0)")
    tokens = box("[...found.tokens, ...(found.isFinished ? [endId] : [])]")
    for part in (f"{head}.heads.1", "positions", residual):
        box.click(part)
    found = box("live.results.probabilities")
    source = torch.tensor([box("live.ids")])

    def expected() -> Any:
        logits = box.model(source, torch.tensor([[1, *tokens[:-1]]]))[0]
        return logits.softmax(-1)[range(len(tokens)), tokens].tolist()

    assert found[0] == pytest.approx(expected(), rel=1e-3)
    with ablate(box.model, heads={head: [1]}, positions=True, residuals=[residual]):
        assert found[1] == pytest.approx(expected(), rel=1e-3)
    shown = box("$('live-change').querySelectorAll('li').map(each => each.textContent)")
    assert len(shown) == len(tokens)
    fell = box("$('live-change').querySelectorAll('li').map(each => each.className === 'fell')")
    assert fell == [after < before / 2 for before, after in zip(*found, strict=True)]
    assert True in fell


def test_a_click_while_a_text_is_new_is_of_the_part_that_was_clicked() -> None:
    box = Box()
    box("$('live-text').value = 'a cat', $('live-text').fire('input'), 0")
    box.click("positions")
    assert box("[live.text, ...live.off]") == ["a cat", "positions"]
    assert "Without positional encoding" in box.text("live-without")
    box("$('live-text').value = 'a dog', $('live-text').fire('input'), 0")
    box.click("positions")
    assert box("[live.text, ...live.off]") == ["a dog"]


def test_a_page_with_a_model_computes_the_maps_of_its_other_texts() -> None:
    model, content = translator_of_texts()
    page = Explorer([AttentionMaps("Self", torch.eye(2)[None, None], ["a", "b"])], text="a cat")
    live = LiveModel(model, [content, content], end_id=END, max_length=9)
    for each, has_maps in ((None, True), (live, False)):
        html = replace(page, live=each, others=[replace(page, text="a dog")]).html
        [other] = data_of(html)["others"]
        assert (other["maps"] is not None) is has_maps


@pytest.mark.parametrize("kind", ["GPT-2", "Llama"])
def test_a_text_of_byte_pairs_is_continued_as_by_torch(kind: str) -> None:
    tokenizer = byte_pairs({"GPT-2": "GPT-2", "Llama": "Llama 3"}[kind])
    box = Box(language_model(kind, 420), tokenizer.to_str().encode())
    text, pairs = "猫 the dog's", (0, 1, 2)
    box.run(f"$('live-method').value = 'greedy', $('live-text').value = {json.dumps(text)}, 0")
    box.run("runText(), 0")
    ids = tokenizer.encode(text).ids
    length = min(40, 40 - len(ids))  # of the model's positions
    (best,) = box.model.generate([ids], greedy_search, end_id=None, max_length=length)
    assert box("document.title") == tokenizer.decode([*ids, *best.tokens])
    expected = box.model(torch.tensor([[*ids, *best.tokens]]))[0, :-1].softmax(-1)
    shown = [step[0][1] for step in box("data.decoding.candidates")]
    assert shown == pytest.approx(expected.max(-1).values.tolist(), rel=1e-3)
    for head, (row, column) in enumerate(zip(pairs, (0, 0, 1), strict=True)):  # of fewer keys
        place = f"{{attention: 0, layer: 1, head: {head % 2}, row: {row}, column: {column}}}"
        weight, stored = box(
            f"(({{weight, stored}}) => [weight, stored])(computeArithmetic({place}))"
        )
        assert weight == pytest.approx(stored, abs=1e-6)
    box.run("$('live-text').value = 'cat'.repeat(41), runText(), 0")
    assert box.text("live-status").endswith("and I read at most 39.")
    box.run("$('live-text').value = '', runText(), 0")
    assert box.text("live-status").startswith("There is no text")
