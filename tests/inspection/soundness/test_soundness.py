"""Sound models are found sound, broken ones are not, and no model is changed by the checks."""

import copy
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.inspection.soundness.sound_models import (
    FULL,
    HF,
    LLAMA,
    MODELS,
    PADDED,
    SIZES,
    SOURCE,
    TOKENS,
    VOCABULARY,
    D,
    H,
    OurEncoder,
    Sound,
    ask,
    decoder_only,
    translator,
)
from torch import Tensor, nn

from coursework.museum.exhibit import exhibits
from transformer_blocks import (
    LanguageModel,
    Seq2Seq,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    beam_search,
    build_encoder,
    causal_mask,
    packed_mask,
)
from transformer_blocks.inspection import (
    Report,
    Soundness,
    assert_sound,
    check_search,
    check_soundness,
)

TITLES = (
    *("determinism", "causality", "order", "mask polarity"),
    *("padding", "padding amount", "padding side"),
    *("batch", "cache", "dtype", "device", "initialisation", "loading"),
)
# x-transformers 2.31 adds float32 numbers to half-precision ones, unless autocast converts them.
KNOWN = {name: ("dtype",) for name in MODELS if name.startswith("x_transformers")}
# RWKV of transformers 5.23 adds (B, D) to (B, 1, D) in steps: it mixes rows, unless B is 1.
KNOWN["hf_RwkvForCausalLM"] = ("cache",)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.nn.modules.transformer")


def examine(sound: Sound, **options: Any) -> Soundness:
    return check_soundness(sound.model, sound.example, **(dict(sound.options) | options))


FAST = ("hf_bart", "hf_t5", "hf_BertModel", "hf_GPT2LMHeadModel")
"""What the fast tests check of the models of Hugging Face: one of each kind."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.slow if name.startswith("hf_") and name not in FAST else ()
        )
        for name in MODELS
    ],
)
@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_a_sound_model_has_no_violation(name: str) -> None:
    sound = MODELS[name]()
    soundness = examine(sound)
    assert soundness.violated == KNOWN.get(name, ()), soundness
    assert soundness.kind == sound.kind, soundness
    assert tuple(report.title for report in soundness.reports) == TITLES
    for report in soundness.reports:
        assert report.problems == () or not report.not_tried
        assert "the model raised" not in report.not_tried or report.title == "device", report
    holds = set(TITLES) - set(soundness.violated) - set(soundness.not_tried)
    assert holds >= {"determinism", "batch"}, soundness
    if sound.kind == "causal":
        assert "causality" in holds, soundness
    takes_mask = isinstance(sound.example, dict) and any("mask" in key for key in sound.example)
    if takes_mask and name != "hf_RwkvForCausalLM":
        assert holds >= {"mask polarity", "padding", "padding amount"}, soundness
    if name.endswith("with_lengths"):
        assert holds >= {"padding", "padding amount"}, soundness
    if name.startswith("hf_") and "input_ids" in sound.example:
        assert holds >= {"loading", "initialisation", "dtype"}, soundness
        if name != "hf_MixtralForCausalLM":  # whose kernel runs in bfloat16 only on meta
            assert "device" in holds, soundness
        if sound.kind in ("causal", "encoder-decoder") and name not in KNOWN:
            assert "cache" in holds, soundness


# Broken models that are not in the museum: the property that is violated, and a part of the
# sentence that says so.

BROKEN: dict[str, tuple[str, str, Callable[[], Sound]]] = {}


def broken(title: str, message: str) -> Callable[[Callable[[], Sound]], Callable[[], Sound]]:
    def add(function: Callable[[], Sound]) -> Callable[[], Sound]:
        BROKEN[function.__name__] = (title, message, function)
        return function

    return add


class Masked(nn.Module):
    """A causal or bidirectional stack over ids, with a padding mask that a method makes."""

    def __init__(self, *, causal: bool = False) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(VOCABULARY, D)
        self.positions = SinusoidalPositionalEncoding(D)
        self.stack = build_encoder(**SIZES)
        self.causal = causal

    def hides(self, real: Tensor) -> Tensor | None:
        return ~real[:, None, None]

    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        x = self.positions(self.embedding(tokens))
        return self.stack(x, mask=self.hides(real), causal=self.causal)


MASKED = {"tokens": TOKENS, "real": ~PADDED}


@broken("determinism", "a call modifies its input x")
def the_input_is_modified() -> Sound:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x += 1.0
            return x.cumsum(1)

    return Sound(Model(), torch.randn(2, 5, D), "unknown")


@pytest.mark.parametrize("value", [0.0, torch.nan])
def test_an_output_that_is_not_finite_is_reported_once(value: float) -> None:
    x = torch.ones(2, 5, D)
    x[1, 2] = value
    problems = ask("determinism", lambda x: x / x, x).problems
    assert problems == ("the output at token 2 of row 1 is not finite",)


ORDER = "outputs depend on the tokens of {}, and not on their order"


@broken("order", ORDER.format("tokens"))
def an_encoder_has_no_positions() -> Sound:
    class Model(Masked):
        def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
            return self.stack(self.embedding(tokens), mask=self.hides(real))

    return Sound(Model(), MASKED, "encoder")


@broken("order", ORDER.format("source"))
def the_source_has_no_positions() -> Sound:
    class Model(Seq2Seq):
        def embed_source(self, source: Tensor) -> Tensor:
            return self.source_embedding(source)

    example = {"source": SOURCE, "target": TOKENS}
    return Sound(translator(Model), example, "encoder-decoder", {"padding_id": 0})


@broken("order", ORDER.format("tokens").replace("the", "the last", 1))
def the_positions_of_an_encoder_have_a_largest_number() -> Sound:
    class Positions(nn.Embedding):
        def forward(self, x: Tensor, offset: int | Tensor = 0) -> Tensor:
            numbers = torch.arange(x.shape[1], device=x.device) + offset
            return x + super().forward(numbers.clamp(max=2))

    model: Any = OurEncoder()
    model.positions = Positions(3, D)
    return Sound(model, TOKENS, "encoder", {"padding_id": 0})


@broken("order", ORDER.format("tokens").replace("tokens", "tokens 4 positions apart", 1))
def the_positions_of_an_encoder_repeat() -> Sound:
    class Positions(SinusoidalPositionalEncoding):
        def forward(self, x: Tensor, offset: int | Tensor = 0) -> Tensor:
            return x + self.table[torch.arange(x.shape[1], device=x.device) % 4]

    model: Any = OurEncoder()
    model.positions = Positions(D)
    return Sound(model, FULL, "encoder", {"causal": False})


class Packed(nn.Module):
    """A language model of packed documents, whose mask it makes of their ids, or receives."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = (
            TokenEmbedding(VOCABULARY, D),
            SinusoidalPositionalEncoding(D),
        )
        self.stack = build_encoder(**SIZES)

    def forward(self, tokens: Tensor, documents: Tensor) -> Tensor:
        mask = documents if documents.dim() == 4 else packed_mask(documents)
        x = self.positions(self.embedding(tokens))
        return self.stack(x, mask=mask, causal=True)


DOCUMENTS = torch.tensor([[1, 1, 2, 2, 2, 3], [1, 1, 1, 1, 4, 4], [5, 6, 6, 6, 6, 6]])


def test_packed_documents_are_no_violation() -> None:
    hidden = packed_mask(DOCUMENTS) | causal_mask(6)
    for documents in (DOCUMENTS, hidden):
        soundness = check_soundness(Packed(), {"tokens": FULL, "documents": documents})
        assert soundness, soundness
        assert soundness.kind == "causal"
        assert "causality" not in soundness.not_tried, soundness


@pytest.mark.parametrize("kind", ["tokens have positions", "no token attends", "vectors"])
def test_an_order_holds_or_is_not_tried_where_there_can_be_none(kind: str) -> None:
    embedding = nn.Sequential(nn.Embedding(VOCABULARY, D), nn.Tanh())
    models = {"tokens have positions": OurEncoder(), "no token attends": embedding}
    model: nn.Module = models.get(kind, build_encoder(**SIZES))
    report = check_soundness(model, torch.randn(2, 5, D) if kind == "vectors" else FULL)["order"]
    assert not report.problems
    assert ("no output depends on the ids of other" in report.not_tried) == (
        model is not models["tokens have positions"]
    )


@broken("mask polarity", "the mask of tokens is inverted")
def the_padding_mask_of_a_causal_model_is_inverted() -> Sound:
    class Model(Masked):
        def hides(self, real: Tensor) -> Tensor:
            return real[:, None, None]

    return Sound(Model(causal=True), MASKED, "position-wise")


@broken("padding", "with the content of its padding (tokens), by")
def the_mask_is_ignored() -> Sound:
    class Model(Masked):
        def hides(self, real: Tensor) -> None:
            return None

    return Sound(Model(), MASKED, "encoder")


class IgnoresPositions(Masked):
    """Counts positions from the first column, whatever it is told."""

    def forward(
        self, input_ids: Tensor, mask: Tensor, position_ids: Tensor | None = None
    ) -> Tensor:
        return super().forward(input_ids, mask)


@broken("padding side", "with padding at the left (input_ids), by")
def position_ids_are_ignored() -> Sound:
    return Sound(IgnoresPositions(), {"input_ids": TOKENS, "mask": ~PADDED}, "encoder")


def test_position_ids_of_the_source_do_not_tell_the_positions_of_the_target() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.positions = (
                TokenEmbedding(VOCABULARY, D),
                SinusoidalPositionalEncoding(D),
            )

        def forward(
            self,
            input_ids: Tensor,
            attention_mask: Tensor,
            decoder_input_ids: Tensor,
            decoder_attention_mask: Tensor,
            position_ids: Tensor | None = None,
        ) -> Tensor:
            source = (self.embed(input_ids) * attention_mask[..., None]).sum(1, keepdim=True)
            target = self.positions(self.embed(decoder_input_ids))
            return source + (target * decoder_attention_mask[..., None]).cumsum(1)

    names = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
    example = dict(zip(names, (SOURCE, SOURCE != 0, TOKENS, TOKENS != 0), strict=True))
    soundness = check_soundness(Model(), example)
    assert "by which it could be told" in soundness["padding side"].not_tried


@broken("batch", "row 0 alone raises IndexError")
def the_batch_dimension_is_squeezed() -> Sound:
    return Sound(lambda x: x.squeeze().cumsum(1)[:, :, 0], torch.randn(2, 5, D), "causal")


@broken("cache", "step 1 of row 0 differs")
def the_cache_of_a_hugging_face_model_is_dropped() -> Sound:
    import transformers

    class Model(transformers.LlamaForCausalLM):
        def forward(self, *args: Any, past_key_values: Any = None, **kwargs: Any) -> Any:
            return transformers.LlamaForCausalLM.forward(self, *args, **kwargs)

        forward.__signature__ = __import__("inspect").signature(  # type: ignore[attr-defined]
            transformers.LlamaForCausalLM.forward
        )

    model = Model(transformers.LlamaConfig(**(HF | LLAMA)))
    return Sound(model, {"input_ids": TOKENS, "attention_mask": (~PADDED).long()}, "causal")


@broken("device", "the tensors of embedding are not on the same device")
def positions_are_counted_on_the_cpu() -> Sound:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.positions, self.gru = nn.Embedding(9, D), nn.GRU(D, D, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            output, _ = self.gru(x + self.positions(torch.arange(x.shape[1])))
            return output

    return Sound(Model(), torch.randn(2, 5, D), "causal")


@broken("causality", "of row 0 changes if its last token is left out, by")
def outputs_depend_on_the_number_of_tokens() -> Sound:
    class Model(LanguageModel):
        def forward(self, tokens: Tensor, **options: Any) -> Tensor:
            return super().forward(tokens, **options) / tokens.shape[1]

    model = decoder_only(SinusoidalPositionalEncoding(D), kind=Model)
    return Sound(model, FULL, "causal")


# Caches


class State:
    """A cache of a class that only its model knows."""

    def __init__(self, parts: list[Tensor]) -> None:
        self.parts = {"state": parts}
        self.steps = torch.tensor([0])  # one for all rows


@pytest.mark.parametrize("forgets", [False, True])
def test_a_cache_of_any_class_that_a_model_receives_and_returns_is_driven(forgets: bool) -> None:
    class Model(Tied):
        def forward(
            self, tokens: Tensor, state: State | None = None, use_cache: bool = True
        ) -> Any:
            parts = [] if state is None or forgets else state.parts["state"]
            given = tuple(part[None] for part in parts) or None
            output, last = self.lstm(self.embedding(tokens), given)
            state = State([part[0] for part in last])
            return SimpleNamespace(logits=self.output(output), state=state)

    report = ask("cache", Model(), FULL)
    assert not report.not_tried
    assert bool(report) != forgets, report


def test_a_cached_step_receives_the_newest_positions_and_the_last_row_of_a_mask() -> None:
    mask = torch.zeros(3, 1, 6, 6).masked_fill(causal_mask(6), torch.finfo(torch.float32).min)
    positions = torch.arange(6).expand(3, -1)
    example = {"input_ids": TOKENS, "attention_mask": mask, "position_ids": positions}
    model = MODELS["hf_GPT2LMHeadModel"]().model
    report = ask("cache", model, example, padding_id=0)
    assert report, report
    assert not report.not_tried


# Masks of queries and keys, one for each row


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("additive", [False, True])
def test_masks_of_queries_and_keys_are_padded(is_causal: bool, additive: bool) -> None:
    visible = (~PADDED)[:, None, None] & torch.ones(6, 6).bool().tril(0 if is_causal else 6)
    mask = torch.zeros(visible.shape).masked_fill(~visible, -torch.inf) if additive else visible

    class Model(Masked):
        ignores = False

        def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
            return super().forward(tokens, mask)

        def hides(self, real: Tensor) -> Tensor:
            hidden = real == -torch.inf if additive else ~real
            future = torch.ones_like(hidden, dtype=torch.bool).triu(1)
            return (future if is_causal else torch.zeros_like(hidden)) if self.ignores else hidden

    example = {"tokens": TOKENS, "mask": mask}
    soundness = check_soundness(Model(), example)
    assert soundness, soundness
    assert soundness.kind == ("causal" if is_causal else "encoder")
    assert not {"padding", "padding amount", "batch"} & set(soundness.not_tried)
    model = Model()
    model.ignores = True
    found = set(check_soundness(model, example).violated)
    assert ("padding" in found) == (not is_causal), found  # padding at the right comes later


@pytest.mark.parametrize("shape", [(3 * H, 6, 6), (3, 6, 6), (1, 6, 6), (1, 1, 6, 6), (5, 2, 2)])
def test_masks_of_three_dimensions_are_judged_or_not_tried(shape: tuple[int, ...]) -> None:
    """Those of nn.MultiheadAttention have one entry for each row and head."""
    real = torch.ones(3, 6).bool() if shape[0] == 1 else ~PADDED
    hidden = (~real[:, None] | causal_mask(6)).repeat_interleave(H, 0)

    class Model(nn.Module):
        ignores = False

        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(D, H, batch_first=True)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            if mask.shape[-1] == x.shape[1]:
                rows = mask.reshape(-1, *mask.shape[-2:])
                mask = rows.repeat_interleave(len(x) * H // len(rows), 0)
            else:
                mask = torch.ones(x.shape[1], x.shape[1]).bool().triu(1)
            return self.attention(x, x, x, attn_mask=mask & (not self.ignores))[0]

    mask = hidden[:: 3 * H // shape[0]].reshape(shape) if shape[0] != 5 else torch.ones(shape) > 0
    example = {"x": torch.randn(3, 6, D), "mask": mask}
    soundness = check_soundness(Model(), example)
    assert soundness, soundness
    if shape[0] == 5:
        assert soundness["batch"].not_tried.endswith("got mask of shape (5, 2, 2)")
        return
    assert soundness.kind == "causal"
    assert not {"batch", "causality"} & set(soundness.not_tried), soundness
    assert ("padding amount" in soundness.not_tried) == (shape[0] == 1)
    model = Model()
    model.ignores = True
    assert "causality" in check_soundness(model, example, causal=True).violated


# Copies


def test_one_layer_that_is_used_several_times_is_found() -> None:
    layer = nn.Linear(D, D)
    broken = nn.Sequential(layer, nn.Tanh(), layer)
    problems = ask("initialisation", broken, torch.randn(2, 5, D)).problems
    assert problems == (
        "layers 0 and 2 of the model are one module; pass recursive=True if that is meant",
    )
    assert ask("initialisation", broken, torch.randn(2, 5, D), recursive=True)
    tanh = nn.Tanh()
    sound = nn.Sequential(nn.Linear(D, D), tanh, nn.Linear(D, D), tanh)
    assert ask("initialisation", sound, torch.randn(2, 5, D))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, D)
        self.lstm = nn.LSTM(D, D, batch_first=True)
        self.output = nn.Linear(D, VOCABULARY, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.lstm(self.embedding(tokens))[0])


@broken("loading", "of row 0 changes after loading")
def a_parameter_is_missing_in_the_state_dict() -> Sound:
    class Model(Tied):
        def load_state_dict(self, state_dict: Any, **options: Any) -> Any:  # type: ignore[override]
            part = {name: each for name, each in state_dict.items() if "lstm" not in name}
            return super().load_state_dict(part, strict=False)

    return Sound(Model(), TOKENS, "causal")


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_a_broken_model_is_found(name: str) -> None:
    title, message, make = BROKEN[name]
    sound = make()
    soundness = examine(sound)
    assert title in soundness.violated, soundness
    assert any(message in problem for problem in soundness[title].problems), soundness
    assert soundness.kind == sound.kind, soundness
    assert tuple(report.title for report in soundness.reports) == TITLES


def test_a_broken_model_raises_an_error_that_names_the_property() -> None:
    sound = the_mask_is_ignored()
    with pytest.raises(AssertionError, match=r"(?s)^violated: .*padding.*\nkind: "):
        assert_sound(sound.model, sound.example, **sound.options)


def test_every_property_has_a_broken_model_here_or_in_the_museum() -> None:
    in_museum = {exhibit.found_by for exhibit in exhibits().values()}
    assert {title for title, _, _ in BROKEN.values()} | in_museum >= set(TITLES)


def test_a_model_is_as_before_also_after_an_exception() -> None:
    class Model(OurEncoder):
        calls, limit = 0, 0
        seen: Tensor

        def forward(self, tokens: Tensor) -> Tensor:
            self.calls += 1
            self.seen = self.seen + 1  # another tensor
            if self.calls > self.limit:
                raise KeyboardInterrupt
            with torch.no_grad():
                self.embedding.weight.mul_(1.001)
            torch.set_default_dtype(torch.float64)
            return super().forward(tokens)

    for limit in (1, 5, 10**4):
        model = Model().train()
        model.register_buffer("seen", torch.zeros(1))
        model.limit = limit
        model.encoder.layers[0].eval()
        model.embedding.requires_grad_(False)
        trained = [each.requires_grad for each in model.parameters()]
        modes = [module.training for module in model.modules()]
        before = copy.deepcopy(model.state_dict())
        tokens, random = TOKENS.clone(), torch.random.get_rng_state()
        try:
            check_soundness(model, tokens, padding_id=0)
        except KeyboardInterrupt:
            assert limit < 10**4
        assert modes == [module.training for module in model.modules()]
        torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
        assert all(each.grad is None for each in model.parameters())
        assert trained == [each.requires_grad for each in model.parameters()]
        assert torch.equal(tokens, TOKENS)
        assert torch.equal(torch.random.get_rng_state(), random)
        assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


def test_an_example_that_the_model_refuses_raises_its_own_error() -> None:
    with pytest.raises(IndexError, match="index out of range"):
        check_soundness(Tied(), torch.full((2, 4), VOCABULARY))


def test_what_has_no_values_is_refused() -> None:
    x, layer = torch.randn(2, 5, D), nn.TransformerEncoderLayer(D, H, 32, batch_first=True)
    for model, example, name in (
        (layer.to("meta"), x, "model"),
        (lambda x: x, {"x": x.to("meta")}, "inputs"),
    ):
        with pytest.raises(ValueError, match=rf"^{name} must have values to compare, got tensors"):
            check_soundness(model, example)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: None, "the model returned no floating-point tensor"),
        (lambda x: x.mT, "the outputs must have one entry for each of 2 rows"),
        (lambda x: x[:, :0], "the outputs must hold numbers"),
    ],
)
def test_outputs_that_cannot_be_compared_are_refused(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_soundness(model, torch.randn(2, 5))


def test_a_module_that_holds_a_function_over_its_parameters_is_not_copied() -> None:
    class Model(Tied):
        def __init__(self) -> None:
            super().__init__()
            embedding = self.embedding.weight  # of the original in every copy
            self.project: Callable[[Tensor], Tensor] = lambda x: x @ embedding.T

        def forward(self, tokens: Tensor) -> Tensor:
            return self.project(self.lstm(self.embedding(tokens))[0])

    soundness = check_soundness(Model(), FULL)
    assert {"dtype", "device", "loading"} <= set(soundness.not_tried)
    assert soundness["dtype"].not_tried.startswith("a copy of the model still computes")


def test_the_table_says_what_was_not_tried_and_why() -> None:
    torch.manual_seed(0)
    soundness = check_soundness(
        nn.LSTM(D, D, batch_first=True, bidirectional=True),
        TOKENS[:, :, None].float().repeat(1, 1, D),
    )
    lines = repr(soundness).splitlines()
    summary = "kind: encoder (outputs depend on later positions; pass causal=True if they must not)"
    assert " ".join(lines[:2]) == summary
    assert re.match(r"check +result +details$", lines[2])
    target = nn.Transformer(D, H, 1, 1, 32, batch_first=True)
    leaky_target = check_soundness(target, (torch.randn(2, 4, D), torch.randn(2, 5, D)))
    assert "pass causal=False if it may" in " ".join(repr(leaky_target).splitlines()[:2])
    assert re.match(r"determinism +holds$", lines[3])
    assert re.match(r"causality +not tried +the model is an encoder$", lines[4])
    assert soundness.not_tried[:3] == ("causality", "order", "mask polarity")
    page = soundness._repr_html_()  # in a notebook
    assert page.startswith(f"<pre>{summary}</pre><table>")
    cells = re.findall("<td[^>]*>(.*?)</td>", page)
    assert cells[:6] == ["check", "result", "details", "determinism", "holds", ""]
    assert len(cells) == 3 * page.count("<tr>") == 3 * (1 + len(soundness.reports))
    leaky = Soundness("causal", (Report("order", ("<b>", "a & b")),))._repr_html_()
    assert re.findall("<td[^>]*>(.*?)</td>", leaky)[3:] == [
        *("order", "VIOLATED", "&lt;b&gt;", "", "", "a &amp; b")
    ]
    assert soundness
    with pytest.raises(KeyError, match="speed"):
        soundness["speed"]


# Losses

LOGITS = torch.randn(4, 5, VOCABULARY, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([[3, 4, 5, 6, 7], [4, 0, 0, 0, 0], [5, 6, 7, 0, 0], [8, 9, 0, 0, 0]])


def losses(parts: Any, **options: Any) -> list[Tensor]:
    return [F.cross_entropy(z.mT, y, **options) for z, y in parts]


def counts(parts: Any) -> list[Tensor]:
    return [(y != 0).sum() for _, y in parts]


def sound_mean(parts: Any) -> Tensor:
    return torch.stack(losses(parts, ignore_index=0, reduction="sum")).sum() / sum(counts(parts))


def sound_sum(parts: Any) -> Tensor:
    return torch.stack(losses(parts, ignore_index=0, reduction="sum")).sum()


def sound_backward(parts: Any) -> None:
    total = int(sum(counts(parts)))
    for part in parts:
        (losses([part], ignore_index=0, reduction="sum")[0] / total).backward()


@pytest.mark.parametrize("function", [sound_mean, sound_sum, sound_backward])
def test_a_sound_loss_has_no_violation(function: Any) -> None:
    report = ask("loss", function, (LOGITS, TARGET), padding_id=0)
    assert report, report


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda parts: sum(losses(parts)) / len(parts), "the gradient of logits at padded"),
        (
            lambda parts: torch.cat(
                [
                    losses([(z[i : i + 1], y[i : i + 1])], ignore_index=0)[0][None]
                    for z, y in parts
                    for i in range(len(y))
                    if y[i].any()
                ]
            ).mean(),
            "weighted by their tokens",
        ),
        (
            lambda parts: (
                sum(
                    n * loss
                    for n, loss in zip(counts(parts), losses(parts, ignore_index=0), strict=True)
                )
                / sum(counts(parts))
            ),
            "if another part is all padding",
        ),
        (  # of which an empty part is 0
            lambda parts: (
                sum(
                    loss / max(int(n), 1)
                    for n, loss in zip(
                        counts(parts), losses(parts, ignore_index=0, reduction="sum"), strict=True
                    )
                )
                / len(parts)
            ),
            "if each row is a part of its own",
        ),
        (  # 0, whose gradient is not a number
            lambda parts: sound_mean(parts) + (0 * parts[0][0][0, 0, 0]).sqrt(),
            "the loss or its gradient is not finite",
        ),
    ],
    ids=["padding", "rows", "empty part", "parts", "one gradient"],
)
def test_a_wrong_loss_is_found(function: Any, message: str) -> None:
    report = ask("loss", function, (LOGITS, TARGET), padding_id=0)
    assert any(message in problem for problem in report.problems), report


# Decoding


STEP_MODEL = decoder_only(SinusoidalPositionalEncoding(D)).eval()


def of_all_but_the_last(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return STEP_MODEL(tokens[:, :-1]), tokens[:, 1:]


def with_dropout(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return F.dropout(STEP_MODEL(tokens[:, :-1]), 0.5), tokens[:, 1:]


def of_masked_tokens(tokens: Tensor) -> tuple[Tensor, Tensor]:
    chosen = torch.tensor([False, True, True, False, True, False])
    x = STEP_MODEL.embed(tokens.masked_fill(chosen, 11))
    return STEP_MODEL.output(STEP_MODEL.decoder(x)), tokens.masked_fill(~chosen, -100)


def not_shifted(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return STEP_MODEL(tokens), tokens


def shifted_backwards(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return STEP_MODEL(tokens[:, 1:]), tokens[:, :-1]


def shifted_twice(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return STEP_MODEL(tokens[:, :-2]), tokens[:, 2:]


def without_a_causal_mask(tokens: Tensor) -> tuple[Tensor, Tensor]:
    x = STEP_MODEL.embed(tokens[:, :-1])
    return STEP_MODEL.output(STEP_MODEL.decoder(x)), tokens[:, 1:]


def exchanged(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return STEP_MODEL(tokens[:, :-1]), tokens.roll(1, 0)[:, 1:]


def of_other_labels(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return STEP_MODEL(tokens[:, :-1]), torch.ones_like(tokens[:, 1:])


@pytest.mark.parametrize("step", [of_all_but_the_last, with_dropout, of_masked_tokens])
def test_a_step_that_hides_what_it_predicts_has_no_violation(step: Any) -> None:
    report = ask("labels", step, TOKENS, padding_id=0)
    assert report, report


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (not_shifted, r"output 0 of row 0 depends on its label, the token at position 0: it chan"),
        (shifted_backwards, r"output 1 of row 0 depends on its label, the token at position 1: it"),
        (without_a_causal_mask, r"output 0 of row 0 depends on its label, the token at position 1"),
        (shifted_twice, r"no output depends on the token before its label; the labels may be shi"),
        (exchanged, r"the labels of row 1 are tokens of row 0, on which no output of it depends"),
        (of_other_labels, r"no label changes with a token"),
    ],
)
def test_a_step_that_shows_its_labels_or_has_others_is_found(step: Any, message: str) -> None:
    report = ask("labels", step, TOKENS, padding_id=0)
    assert report.problems[0].startswith(message), report
    changed = {int(each.split("row ")[1][0]) for each in report.problems if "row" in each}
    assert changed in ({0, 1, 2}, set())
    for row in (1, 2) if changed else ():  # no padding is a label
        length = int((~PADDED[row]).sum())
        assert sum(f"row {row} " in each for each in report.problems) <= length


def test_a_step_of_another_form_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^model must be a training step that returns logits and labels"
    ):
        ask("labels", lambda tokens: STEP_MODEL(tokens).mean(), TOKENS)
    with pytest.raises(ValueError, match=r"^model must return logits and labels of shapes"):
        ask("labels", lambda tokens: (STEP_MODEL(tokens), tokens[:, 1:]), TOKENS)
    noise = torch.Generator().manual_seed(1)

    def unstable(tokens: Tensor) -> tuple[Tensor, Tensor]:
        return torch.randn(*tokens.shape, 4, generator=noise), tokens

    assert "two equal calls differ" in ask("labels", unstable, TOKENS).problems[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found[1:], "2 results for 3 start tokens"),
        (lambda found: [[*each, *[0] * (7 - len(each))] for each in found], "in max_length=6 tok"),
        (lambda found: [[*each, 0, 3] for each in found], "must be [1], then the end token 0, in"),
    ],
)
def test_a_search_with_results_of_another_form_is_found(change: Any, message: str) -> None:
    def search(*model_and_start: Any, **options: Any) -> list[list[int]]:
        found = beam_search(*model_and_start, **options)
        return change([[*best.tokens] for best, *_ in found])

    report = check_search(search)
    assert any(message in problem for problem in report.problems), report


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_padding_and_the_cache_of_a_model_of_this_package_are_known(is_broken: bool) -> None:
    class Translator(Seq2Seq):
        def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
            memory, mask = super().encode(source)
            return memory, mask & (not is_broken)

    class Language(LanguageModel):
        def embed(self, tokens: Tensor, offset: int | Tensor = 0) -> Tensor:
            return super().embed(tokens, 0 if is_broken else offset)

    soundness = check_soundness(translator(Translator), (SOURCE, TOKENS))
    assert soundness.not_tried == ("mask polarity", "padding side")
    assert ("padding" in soundness.violated) == is_broken, soundness
    model = decoder_only(SinusoidalPositionalEncoding(D), kind=Language)
    report = ask("cache", model, FULL)
    assert not report.not_tried
    assert bool(report) != is_broken, report
