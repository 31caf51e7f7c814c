"""The two models: their logits, their loss, and what they generate."""

import copy
import math
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode

from transformer_blocks import (
    EncoderDecoder,
    LanguageModel,
    LearnedPositionalEncoding,
    ModelWithLoss,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Residual,
    RotaryPositionalEncoding,
    Seq2Seq,
    TokenEmbedding,
    beam_search,
    build_encoder,
    build_language_model,
    build_seq2seq,
    greedy_search,
    padding_mask,
    sample,
)
from transformer_blocks.generation import Generation

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}
PROMPTS = [[5, 6, 7, 3], [8], [9, 4]]
SEARCHES: dict[str, Callable[..., Any]] = {
    "greedy": greedy_search,
    "beams": partial(beam_search, beam_size=3, n_best=3),
    "sampling": sample,
}


def rotary_model() -> LanguageModel:
    """Build a model whose positions are in the attention, and whose output layer has a bias."""
    stack = build_encoder(
        **SIZES,
        residual=PreNorm,
        attention=lambda: MultiHeadAttention(16, 4, transforms=[RotaryPositionalEncoding(4)]),
    )
    return LanguageModel(TokenEmbedding(20, 16), stack, output=nn.Linear(16, 20)).eval()


def learned_model() -> LanguageModel:
    """Build a model with learned positions."""
    positions = LearnedPositionalEncoding(16, max_length=12)
    return LanguageModel(TokenEmbedding(20, 16), build_encoder(**SIZES), positions=positions).eval()


def sinusoidal_model() -> LanguageModel:
    """Build a model from its sizes."""
    return build_language_model(20, **SIZES).eval()


def translator() -> Seq2Seq:
    """Build a sequence-to-sequence model from its sizes."""
    return build_seq2seq(20, 30, **SIZES).eval()


def assert_compiled_loss(
    model: Any, inputs: Sequence[Tensor], loss: Tensor, **options: Any
) -> None:
    """Check that a compiled call is one graph, and has the loss and the gradients of the method."""
    torch.compiler.reset()
    counter = CompileCounter()
    compiled: Any = torch.compile(ModelWithLoss(model), fullgraph=True, backend=counter)
    found = compiled(*inputs, **options)
    assert counter.frame_count == 1
    torch.testing.assert_close(found, loss)
    parameters = [*model.parameters()]
    expected = torch.autograd.grad(loss, parameters)
    torch.testing.assert_close(torch.autograd.grad(found, parameters), expected)


every_model = pytest.mark.parametrize(
    "new_model", [sinusoidal_model, learned_model, rotary_model, translator]
)


def inputs_of(model: LanguageModel | Seq2Seq, *tokens: Any) -> list[Tensor]:
    """Return the same tokens as each input of a model, which a translator has two of."""
    return [torch.tensor(tokens)] * (1 if isinstance(model, LanguageModel) else 2)


@every_model
@torch.no_grad()
def test_greedy_tokens_are_those_of_full_passes(
    new_model: Callable[[], LanguageModel | Seq2Seq],
) -> None:
    model = new_model()
    found = model.generate(PROMPTS, greedy_search, max_length=6, end_id=None)
    for prompt, each in zip(PROMPTS, found, strict=True):
        source = [] if isinstance(model, LanguageModel) else [torch.tensor([prompt])]
        tokens = list(prompt) if isinstance(model, LanguageModel) else [model.begin_id]
        for _ in range(6):
            tokens.append(int(model(*source, torch.tensor([tokens]))[0, -1].argmax()))
        assert each.tokens == tokens[-6:]


@pytest.mark.parametrize("search", SEARCHES)
@every_model
def test_a_prompt_has_the_same_result_in_any_batch(
    new_model: Callable[[], LanguageModel | Seq2Seq], search: str
) -> None:
    model = new_model()

    def generate(numbers: list[int]) -> list[list[Generation]]:
        options: dict[str, Any] = {"max_length": 5, "end_id": [2, 10]}
        if search == "sampling":
            seeds = [torch.Generator().manual_seed(number) for number in numbers]
            options["generator"] = seeds
        prompts = [PROMPTS[number] for number in numbers]
        found = model.generate(prompts, SEARCHES[search], **options)
        return found if search == "beams" else [[each] for each in found]

    together = generate([0, 1, 2])
    for number, expected in enumerate(together):
        (alone,) = generate([number])
        assert [each.tokens for each in alone] == [each.tokens for each in expected]
        for one, other in zip(alone, expected, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)


@torch.no_grad()
def test_the_model_of_figure_1_is_composed_of_its_parts() -> None:
    model = translator()
    source, target = torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([[1, 9, 9], [1, 4, 0]])
    positions: Any = model.positions
    hidden = EncoderDecoder(model.encoder, model.decoder)(
        positions(model.source_embedding(source)),
        positions(model.target_embedding(target)),
        source_mask=padding_mask(source),
    )
    embedding: Any = model.target_embedding
    torch.testing.assert_close(model(source, target), hidden @ embedding.weight.T)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_is_the_mean_over_all_tokens_but_the_first(label_smoothing: float) -> None:
    embedding, stack = TokenEmbedding(20, 16), build_encoder(**SIZES, dropout=0.0)
    model = LanguageModel(embedding, stack, padding_id=0)
    texts = [[3, 1, 4, 1, 5], [9, 2, 6]]
    tokens = torch.tensor([[*text, *[0] * (5 - len(text))] for text in texts])
    losses: list[Tensor] = []
    for text in texts:
        log_probabilities = model(torch.tensor([text]))[0].log_softmax(-1)
        for each, label in zip(log_probabilities, text[1:], strict=False):
            smooth = -each.mean() * label_smoothing
            losses.append(smooth - (1.0 - label_smoothing) * each[label])
    loss = model.loss(tokens, label_smoothing=label_smoothing)
    torch.testing.assert_close(loss, torch.stack(losses).mean())
    without_padding = LanguageModel(embedding, stack)  # id 0 is a token like any other
    assert not torch.allclose(without_padding.loss(tokens, label_smoothing=label_smoothing), loss)


PACKED = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
DOCUMENTS = torch.tensor([[1, 1, 2, 2, 2], [5, 5, 5, 5, 0]])
TEXTS = [[3, 1], [4, 1, 5], [9, 2, 6, 5], [3]]


@pytest.mark.parametrize("padding_id", [None, 0])
@pytest.mark.parametrize("new_model", [sinusoidal_model, learned_model, rotary_model])
def test_packed_documents_have_the_logits_and_the_loss_that_they_have_alone(
    new_model: Callable[[], LanguageModel], padding_id: int | None
) -> None:
    model = new_model()
    model.padding_id = padding_id
    together = model(PACKED, documents=DOCUMENTS)[[0, 0, 0, 0, 0, 1, 1, 1, 1, 1], [*range(5)] * 2]
    alone = [model(torch.tensor([text]))[0] for text in TEXTS]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-5)
    sums = [model.loss(torch.tensor([text]), reduction="sum") for text in TEXTS[:3]]
    loss = model.loss(PACKED, documents=DOCUMENTS)
    torch.testing.assert_close(loss, torch.stack(sums).sum() / 6)
    if padding_id is None:  # or the compiler traces everything twice
        assert_compiled_loss(model, (PACKED,), loss, documents=DOCUMENTS)


@pytest.mark.parametrize("documents", [None, DOCUMENTS])
def test_a_mask_hides_keys_besides_the_causal_mask(documents: Tensor | None) -> None:
    model = sinusoidal_model()
    mask = torch.zeros(5, 5, dtype=torch.bool)
    mask[1:, 0] = True
    changed = PACKED.clone()
    changed[:, 0] = 7
    if documents is not None:  # both masks hold: other documents stay hidden
        changed[0, 1] = 8
    found, expected, unmasked = (
        model(tokens, mask=each, documents=documents)[:, 2:]
        for tokens, each in ((changed, mask), (PACKED, mask), (PACKED, None))
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert not torch.allclose(unmasked, expected, atol=1e-5)
    loss = model.loss(PACKED, mask=mask[:-1, :-1], documents=documents)
    assert loss != model.loss(PACKED, documents=documents)
    assert_compiled_loss(model, (PACKED,), loss, mask=mask[:-1, :-1], documents=documents)


@pytest.mark.parametrize("padding_id", [None, 0])
def test_labels_of_ones_own_are_those_of_all_tokens_that_are_read(padding_id: int | None) -> None:
    model = sinusoidal_model()
    model.padding_id = padding_id
    labels = PACKED.roll(-1, 1)
    labels[:, -1] = -100
    torch.testing.assert_close(model.loss(PACKED, labels=labels), model.loss(PACKED))
    labels[:, :3] = -100  # a prompt, which is not learned
    expected = F.cross_entropy(model(PACKED)[:, 3], labels[:, 3])
    torch.testing.assert_close(model.loss(PACKED, labels=labels), expected)
    with pytest.raises(ValueError, match="agree in"):
        model.loss(PACKED, labels=labels[:, 1:])


def predicted(model: Any) -> tuple[str, Any]:
    """Return the embedding of the tokens that a model predicts, and its name."""
    name = "embedding" if isinstance(model, LanguageModel) else "target_embedding"
    return name, model.get_submodule(name)


LOADINGS: dict[str, Callable[[Any, dict[str, Tensor]], Any]] = {
    "copied": lambda model, state: model.load_state_dict(state),
    "assigned": lambda model, state: model.load_state_dict(state, assign=True),
    "emptied": lambda model, state: model.to("meta").to_empty(device="cpu").load_state_dict(state),
    "meta": lambda model, state: model.to("meta").load_state_dict(state, assign=True),
    "inside another module": lambda model, state: (
        nn.Sequential(model.to("meta")).to_empty(device="cpu"),
        nn.Sequential(model).load_state_dict(
            {f"0.{name}": tensor for name, tensor in state.items()}, assign=True
        ),
    ),
}


@pytest.mark.parametrize("load", LOADINGS.values(), ids=LOADINGS)
@pytest.mark.parametrize("left_out", [None, "embedding", "output"])
@pytest.mark.parametrize("new_model", [sinusoidal_model, translator])
def test_a_shared_weight_remains_one_however_it_is_loaded(
    new_model: Callable[[], Any], left_out: str | None, load: Callable[..., object]
) -> None:
    model, trained = new_model(), new_model()
    name = predicted(model)[0]
    tied = f"{name}.weight", "output.weight"
    state = trained.state_dict()  # safetensors writes one of the names of a shared weight
    if left_out is not None:
        del state[tied[left_out == "output"]]
        if load is LOADINGS["inside another module"]:  # whose file has both names
            with pytest.raises(RuntimeError, match="Missing key"):
                load(model, state)
            return
    names = [name for name, _ in model.named_parameters()]
    load(model, state)
    assert model.output.weight is predicted(model)[1].weight
    assert [name for name, _ in model.named_parameters()] == names
    assert model.state_dict().keys() == trained.state_dict().keys()
    inputs = inputs_of(model, [1, 4, 5])
    torch.testing.assert_close(model(*inputs), trained(*inputs))
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert again.output.weight is predicted(again)[1].weight


@pytest.mark.parametrize("new_model", [sinusoidal_model, translator])
def test_a_shared_weight_remains_one_if_parts_are_loaded_one_by_one(
    new_model: Callable[[], Any],
) -> None:
    model, other = new_model(), new_model()
    embedding, state = predicted(model)[1], other.output.state_dict()
    for assign in (False, True):
        nn.init.zeros_(embedding.weight)
        model.output.load_state_dict(state, assign=assign)
        assert model.output.weight is embedding.weight
        assert torch.equal(embedding.weight, state["weight"])


@pytest.mark.parametrize("new_model", [sinusoidal_model, translator])
def test_a_file_with_neither_name_of_the_shared_weight_or_with_two_weights_is_refused(
    new_model: Callable[[], Any], tmp_path: Path
) -> None:
    model = new_model()
    name, state = predicted(model)[0], model.state_dict()
    safetensors = pytest.importorskip("safetensors.torch")  # whose own functions save and load
    safetensors.save_model(model, tmp_path / "model.safetensors")
    loaded = new_model()
    safetensors.load_model(loaded, tmp_path / "model.safetensors")
    assert torch.equal(loaded.output.weight, model.output.weight)
    two = state | {"output.weight": state["output.weight"] + 1.0}
    with pytest.raises(ValueError, match=rf"{name}.weight and output.weight must be equal"):
        loaded.load_state_dict(two)
    assert torch.equal(loaded.output.weight, model.output.weight)
    del state[f"{name}.weight"], state["output.weight"]
    missing = rf'Missing key.*"{name}.weight", "output.weight"'
    with pytest.raises(RuntimeError, match=missing):
        model.load_state_dict(state)


def test_the_vocabularies_of_source_and_target_are_not_exchanged() -> None:
    model: Any = translator()
    assert model.source_embedding.weight.shape == (20, 16)
    assert model(torch.tensor([[19]]), torch.tensor([[29]])).shape == (1, 1, 30)
    with pytest.raises(IndexError, match=r"^token ids must be in 0\.\.19"):
        model(torch.tensor([[20]]), torch.tensor([[29]]))
    with pytest.raises(ValueError, match="begin_id must be below the vocabulary size 4, got"):
        build_seq2seq(9, 4, **SIZES, begin_id=4)


def test_every_argument_of_a_builder_reaches_the_model() -> None:
    options: dict[str, Any] = SIZES | {"residual": PreNorm, "padding_id": 3}
    translator = build_seq2seq(20, 30, **options, begin_id=4)
    assert translator.begin_id == 4
    for model in (translator, build_language_model(20, **options)):
        assert model.padding_id == 3
        kinds = {type(part) for part in model.modules() if isinstance(part, Residual)}
        assert kinds == {PreNorm}


@every_model
def test_every_parameter_has_a_gradient(new_model: Callable[[], Any]) -> None:
    model = new_model()
    model.loss(*inputs_of(model, [1, 4, 5], [1, 6, 7])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if "key_projection.bias" not in name:  # which no softmax depends on
            assert parameter.grad.any(), name


@pytest.mark.parametrize("new_model", [build_language_model, partial(build_seq2seq, 20)])
def test_dropout_applies_to_embeddings_in_training(new_model: Callable[..., Any]) -> None:
    model = new_model(20, **SIZES, dropout=0.5)
    tokens = torch.tensor([[3, 4, 5]])
    assert not torch.equal(model.embed(tokens), model.embed(tokens))
    assert torch.equal(model.eval().embed(tokens), model.embed(tokens))


@pytest.mark.parametrize("padding_id", [0, 11])
def test_padding_of_sources_changes_nothing(padding_id: int) -> None:
    model = build_seq2seq(20, 30, **SIZES, padding_id=padding_id).eval()
    (alone,) = model.generate([[3, 4]], greedy_search, max_length=3, end_id=None)
    (of_empty,) = model.generate([[]], greedy_search, max_length=3, end_id=None)
    assert model.generate([], greedy_search, max_length=3, end_id=None) == []
    together = [[3, 4], [5, 6, 7], []]
    for sources in (together, torch.tensor([[3, 4, padding_id], [5, 6, 7], [padding_id] * 3])):
        padded, _, empty = model.generate(sources, greedy_search, max_length=3, end_id=None)
        assert (padded.tokens, empty.tokens) == (alone.tokens, of_empty.tokens)


@pytest.mark.parametrize("padding_id", [0, 11])
def test_padding_after_the_prompts_of_a_tensor_changes_nothing(padding_id: int) -> None:
    model = build_language_model(20, **SIZES, padding_id=padding_id).eval()
    options: dict[str, Any] = {"max_length": 3, "end_id": None}
    expected = model.generate([[3, 4], [5, padding_id, 7], [8]], greedy_search, **options)
    rows = [[3, 4, padding_id], [5, padding_id, 7], [8, padding_id, padding_id]]
    found = model.generate(torch.tensor(rows), greedy_search, **options)
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    in_lists = model.generate(rows, greedy_search, **options)  # whose lengths are as they are
    assert [each.tokens for each in in_lists] != [each.tokens for each in expected]
    for prompts in (torch.full((1, 2), padding_id), torch.empty(1, 0, dtype=torch.int64)):
        with pytest.raises(ValueError, match="prompts must have at least one token each"):
            model.generate(prompts, greedy_search, **options)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's fused kernel
@every_model
def test_the_loss_reads_no_values_where_there_are_none(new_model: Callable[[], Any]) -> None:
    model = new_model()
    inputs = inputs_of(model, [1, 4, 5], [1, 6, 0])
    each = torch.vmap(lambda *rows: model.loss(*(row[None] for row in rows)))(*inputs)
    expected = [model.loss(*(row[None] for row in rows)) for rows in zip(*inputs, strict=True)]
    torch.testing.assert_close(each, torch.stack(expected))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert model.loss(*map(mode.from_tensor, inputs)).shape == ()
    assert_compiled_loss(model, inputs, model.loss(*inputs))
    meta = copy.deepcopy(model).to("meta")
    assert meta.loss(*(each.to("meta") for each in inputs)).is_meta


@every_model
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_labels_of_padding_alone_have_a_loss_and_gradients_of_zero(
    new_model: Callable[[], Any], label_smoothing: float
) -> None:
    model = new_model()
    model.padding_id = 0
    loss = model.loss(*inputs_of(model, [1, 0, 0], [1, 0, 0]), label_smoothing=label_smoothing)
    loss.backward()
    assert loss == 0.0
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


@every_model
@pytest.mark.parametrize("unknown", [-100, -1, 30, 2**63 - 1, -(2**63) + 1])
def test_a_label_outside_the_vocabulary_is_refused_also_at_the_last_position(
    new_model: Callable[[], Any], unknown: int
) -> None:
    model = new_model()
    source = [torch.tensor([[5]])] * (len(inputs_of(model, [1])) - 1)
    for target in ([1, 2, unknown], [1, unknown, 2]):
        with pytest.raises(IndexError, match=r"[Tt]arget .* out of bounds|token ids must be in"):
            model.loss(*source, torch.tensor([target]))


def test_a_loss_in_half_precision_is_the_mean_of_more_than_it_can_sum() -> None:
    model = build_language_model(20, **SIZES).eval().half()
    nn.init.normal_(model.output.get_parameter("weight"), std=10.0)
    loss = model.loss(torch.randint(20, (40, 40)))
    assert 65504 / 40 / 39 < loss < torch.inf


@every_model
def test_a_loss_of_nothing_is_refused(new_model: Callable[[], Any]) -> None:
    model = new_model()
    with pytest.raises(ValueError, match="a loss needs at least two tokens"):
        model.loss(*inputs_of(model, [1]))


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
@pytest.mark.parametrize("sizes", [[500], [30, 500]], ids=["language model", "translator"])
def test_the_loss_of_a_new_model_is_near_that_of_a_guess(sizes: list[int], residual: Any) -> None:
    build: Any = build_language_model if len(sizes) == 1 else build_seq2seq
    model = build(*sizes, **SIZES | {"d_model": 256, "d_ff": 256}, residual=residual).eval()
    rows = [torch.randint(3, size, (2, 40)) for size in sizes]
    rows[-1][:, 0] = 1  # which begins a target
    with torch.no_grad():
        loss = model.loss(*rows)
    assert loss.item() == pytest.approx(math.log(500), abs=0.3)
