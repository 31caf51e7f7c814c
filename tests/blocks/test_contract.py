"""The contract of every block: an ``nn.Module`` that works with torch's tools."""

import copy
import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from tests.pairs import every_pair
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

from transformer_blocks import (
    AdditiveAttention,
    ALiBi,
    DecoderLayer,
    Dropout,
    EncoderDecoder,
    EncoderLayer,
    FeedForward,
    GatedAttention,
    GatedFeedForward,
    LatentAttention,
    LearnedPositionalEncoding,
    LoraLinear,
    MixtureOfExperts,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    QueryKeyNorm,
    QueryKeyTransform,
    RelativeBias,
    Residual,
    RotaryPositionalEncoding,
    SandwichNorm,
    SigmoidRouting,
    SingleHeadAttention,
    SinkAttention,
    SinusoidalPositionalEncoding,
    SlidingWindowAttention,
    TokenEmbedding,
    build_decoder,
    build_encoder,
    scaled_dot_product_attention,
)

WIDTH, HEADS, D_K = 8, 2, 4
STACK: dict[str, Any] = {"num_layers": 2, "d_model": WIDTH, "num_heads": HEADS, "d_ff": 12}
LAYER = STACK | {"num_layers": 1}  # in half of the time, where a stack is traced


class Called(nn.Module):
    """A block that is called in its own way."""

    def __init__(self, block: nn.Module, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.block, self.call = block, call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.block, x)


def around_tanh(residual: Residual, x: Tensor) -> Tensor:
    return residual(x, torch.tanh)


def attend(attention: nn.Module, x: Tensor) -> Tensor:
    """Compute causal self-attention."""
    return attention(x, x, x, causal=True)


def to_heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def attend_by_function(attention_function: nn.Module, x: Tensor) -> Tensor:
    output: Tensor = attend(attention_function, to_heads(x))[0]
    return output


def transform(transform: QueryKeyTransform, x: Tensor) -> Tensor:
    queries = transform.transform_queries(to_heads(x), start=1)
    return queries + transform.transform_keys(to_heads(x), start=0)


def weights_of_two_experts(routing: nn.Module, logits: Tensor) -> Tensor:
    weights: Tensor = routing(logits, 2)[0]
    return weights


def vectors(batch: int, length: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(batch, length, WIDTH).to(dtype)


def one_sequence(batch: int, length: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return (vectors(batch, length, dtype),)


def two_sequences(batch: int, length: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return vectors(batch, length, dtype), vectors(batch, length, dtype)


def token_ids(batch: int, length: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return (torch.randint(10, (batch, length)),)


class Case(NamedTuple):
    """A block and its inputs."""

    build: Callable[[], nn.Module]
    inputs: Callable[[int, int, torch.dtype], tuple[Tensor, ...]] = one_sequence


def attention(**options: Any) -> MultiHeadAttention:
    return MultiHeadAttention(WIDTH, HEADS, **options)


def self_attention(**options: Any) -> Called:
    return Called(attention(**options), attend)


def mixture_of_experts(**options: Any) -> MixtureOfExperts:
    return MixtureOfExperts(
        WIDTH, num_experts=3, top_k=2, expert=lambda: GatedFeedForward(WIDTH, 6), **options
    )


CASES = {
    "TokenEmbedding": Case(lambda: TokenEmbedding(10, WIDTH), token_ids),
    "SinusoidalPositionalEncoding": Case(lambda: SinusoidalPositionalEncoding(WIDTH)),
    "LearnedPositionalEncoding": Case(lambda: LearnedPositionalEncoding(WIDTH, max_length=40)),
    "SingleHeadAttention": Case(lambda: Called(SingleHeadAttention(WIDTH), attend)),
    "MultiHeadAttention": Case(self_attention),
    "explicit": Case(lambda: self_attention(attention_function=scaled_dot_product_attention)),
    "with transforms": Case(
        lambda: self_attention(transforms=[QueryKeyNorm(D_K), RotaryPositionalEncoding(D_K)])
    ),
    "grouped queries": Case(
        lambda: Called(MultiHeadAttention(WIDTH, HEADS, num_key_value_heads=1), attend)
    ),
    "AdditiveAttention": Case(lambda: Called(AdditiveAttention(D_K, HEADS), attend_by_function)),
    "RotaryPositionalEncoding": Case(lambda: Called(RotaryPositionalEncoding(D_K), transform)),
    "ALiBi": Case(lambda: Called(ALiBi(HEADS), attend_by_function)),
    "RelativeBias": Case(
        lambda: Called(RelativeBias(HEADS, num_buckets=8, max_distance=6), attend_by_function)
    ),
    "SlidingWindowAttention": Case(
        lambda: self_attention(attention_function=SlidingWindowAttention(2))
    ),
    "SinkAttention": Case(lambda: self_attention(attention_function=SinkAttention(HEADS))),
    "GatedAttention": Case(lambda: Called(GatedAttention(WIDTH, HEADS), attend)),
    "LatentAttention": Case(
        lambda: Called(
            LatentAttention(
                WIDTH, HEADS, latent_size=4, value_size=3, rotary=RotaryPositionalEncoding(2)
            ),
            attend,
        )
    ),
    "QueryKeyNorm": Case(lambda: Called(QueryKeyNorm(D_K), transform)),
    "Dropout": Case(lambda: Dropout(0.5)),
    "FeedForward": Case(lambda: FeedForward(WIDTH, 12)),
    "GatedFeedForward": Case(lambda: GatedFeedForward(WIDTH, 12)),
    "MixtureOfExperts": Case(lambda: mixture_of_experts(shared=FeedForward(WIDTH, 12))),
    "SigmoidRouting": Case(
        lambda: Called(SigmoidRouting(WIDTH, num_groups=4, top_groups=2), weights_of_two_experts)
    ),
    "LoraLinear": Case(lambda: LoraLinear(nn.Linear(WIDTH, 12), rank=2, alpha=3)),
    "PostNorm": Case(lambda: Called(PostNorm(WIDTH), around_tanh)),
    "PreNorm": Case(lambda: Called(PreNorm(WIDTH), around_tanh)),
    "SandwichNorm": Case(lambda: Called(SandwichNorm(WIDTH), around_tanh)),
    "EncoderLayer": Case(
        lambda: EncoderLayer(
            attention(), FeedForward(WIDTH, 12), residual=lambda: PreNorm(WIDTH, norm=RMS())
        )
    ),
    "Encoder": Case(lambda: build_encoder(**STACK)),
    "DecoderLayer": Case(
        lambda: DecoderLayer(
            attention(), attention(), FeedForward(WIDTH, 12), residual=lambda: PostNorm(WIDTH)
        ),
        two_sequences,
    ),
    "Decoder": Case(lambda: build_decoder(**STACK, residual=PreNorm), two_sequences),
    "EncoderDecoder": Case(
        lambda: EncoderDecoder(build_encoder(**LAYER), build_decoder(**LAYER)), two_sequences
    ),
}
WITH_ATTENTION = (
    "MultiHeadAttention",
    "with transforms",
    "grouped queries",
    "EncoderLayer",
    "DecoderLayer",
)
every_block = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
TRACED = ("EncoderDecoder", "grouped queries")
"""What torch traces in the fast tests; it takes a second for each block."""


def traced(name: str, *others: object) -> Any:
    """Make a case of a test that traces a block, a slow one if it is not of TRACED."""
    marks = () if name in TRACED else (pytest.mark.slow,)
    return pytest.param(name, *others, marks=marks, id="-".join(map(str, (name, *others))))


def RMS() -> nn.RMSNorm:  # noqa: N802
    return nn.RMSNorm(WIDTH)


def make(case: Case, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Build a block in evaluation mode, with no parameter of zeros or ones."""
    block = case.build().to(dtype).eval()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.4)
    return block


@every_block
def test_gradients_equal_finite_differences(case: Case) -> None:
    block = make(case)
    inputs = case.inputs(2, 3, torch.float64)
    names = [name for name, _ in block.named_parameters()]
    vectors = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    ids = [x for x in inputs if not x.is_floating_point()]

    def run(*given: Tensor) -> Tensor:
        state = dict(zip(names, given[len(vectors) :], strict=True))
        return functional_call(block, state, (*given[: len(vectors)], *ids))

    assert torch.autograd.gradcheck(run, (*vectors, *block.parameters()), fast_mode=True)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's fused kernel
@every_block
def test_gradients_of_single_samples_are_computed_by_vmap(case: Case) -> None:
    block = make(case)
    weights = {name: weight.detach() for name, weight in block.named_parameters()}
    if not weights:
        pytest.skip("no parameters")
    inputs = case.inputs(3, 4, torch.float64)

    def loss(weights: dict[str, Tensor], *sample: Tensor) -> Tensor:
        y: Tensor = functional_call(block, weights, tuple(x[None] for x in sample))
        return y.square().sum()

    at_once = vmap(grad(loss), in_dims=(None, *(0 for _ in inputs)))(weights, *inputs)
    for row in range(3):
        single = grad(loss)(weights, *(x[row] for x in inputs))
        for name, gradient in single.items():
            torch.testing.assert_close(at_once[name][row], gradient)


@pytest.mark.parametrize(
    ("name", "with_gradients"),
    [*(traced(name, False) for name in CASES), *(traced(name, True) for name in WITH_ATTENTION)],
)
def test_one_graph_serves_every_length(name: str, with_gradients: bool) -> None:
    case, graphs = CASES[name], []
    block = make(case, torch.float32).train(with_gradients)

    def record(graph: torch.fx.GraphModule, example: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled: Any = torch.compile(block, fullgraph=True, dynamic=True, backend=record)
    for batch, length in ((2, 5), (3, 2), (4, 8), (2, 9), (5, 40), (3, 3)):
        inputs = case.inputs(batch, length, torch.float32)
        with torch.set_grad_enabled(with_gradients):
            found = compiled(*inputs)
        if not with_gradients:  # no dropout
            torch.testing.assert_close(found, block(*inputs))
    assert len(graphs) == 1


@pytest.mark.parametrize("name", [traced(name) for name in CASES])
def test_it_can_be_exported_for_every_batch_and_length(name: str) -> None:
    case = CASES[name]
    block, inputs = make(case, torch.float32), case.inputs(2, 5, torch.float32)
    sizes = {0: torch.export.Dim("B"), 1: torch.export.Dim("L", max=20)}
    shapes = tuple(sizes for _ in inputs)
    program = torch.export.export(block, inputs, dynamic_shapes=shapes, strict=False).module()
    for batch, length in ((2, 5), (3, 7), (1, 2)):
        inputs = case.inputs(batch, length, torch.float32)
        torch.testing.assert_close(program(*inputs), block(*inputs))


@every_block
def test_copies_and_pickles_compute_the_same_with_parameters_of_their_own(case: Case) -> None:
    block, inputs = make(case), case.inputs(2, 5, torch.float64)
    file = io.BytesIO()
    torch.save(block, file)
    file.seek(0)
    for again in (
        copy.deepcopy(block),
        pickle.loads(pickle.dumps(block)),
        torch.load(file, weights_only=False),
    ):
        assert torch.equal(again(*inputs), block(*inputs))
        for mine, its in zip(block.parameters(), again.parameters(), strict=True):
            assert mine is not its


@every_pair({"case": CASES.values(), "built_there": [True, False], "assign": [True, False]})
def test_weights_can_be_loaded_after_the_meta_device(
    case: Case, built_there: bool, assign: bool
) -> None:
    block, inputs = make(case), case.inputs(2, 5, torch.float64)
    with torch.device("meta" if built_there else "cpu"):
        again = case.build().double()
    again = again.to("meta").eval()
    assert all(weight.is_meta for weight in again.parameters())
    assert again(*(x.to("meta") for x in inputs)).is_meta
    if not assign:
        again = again.to_empty(device="cpu")
    again.load_state_dict(block.state_dict(), assign=assign)
    assert torch.equal(again(*inputs), block(*inputs))


@every_block
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_dtype_is_returned_and_close_to_float32(case: Case, dtype: torch.dtype) -> None:
    block = make(case, torch.float32)
    inputs = case.inputs(2, 5, torch.float32)
    expected = block(*inputs)
    other = copy.deepcopy(block).to(dtype)
    found = other(*(x.to(dtype) if x.is_floating_point() else x for x in inputs))
    assert found.dtype == dtype
    limit = 1e-4 if dtype == torch.float64 else 0.1
    torch.testing.assert_close(found.float(), expected, rtol=limit, atol=limit)


@every_block
def test_activation_checkpointing_changes_no_gradient(case: Case) -> None:
    block = make(case).train()
    inputs = case.inputs(2, 5, torch.float64)
    gradients = []
    again: Any = partial(checkpoint, block, use_reentrant=False)
    for run in (block, again):
        torch.manual_seed(0)  # for dropout
        given = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        wanted = [x for x in (*given, *block.parameters()) if x.requires_grad]
        gradients.append(torch.autograd.grad(run(*given).square().sum(), wanted))
    assert all(map(torch.equal, *gradients))


@every_block
def test_an_empty_batch_gives_an_empty_batch(case: Case) -> None:
    block = make(case)
    expected = block(*case.inputs(1, 5, torch.float64)).shape[1:]
    given = [x.requires_grad_(x.is_floating_point()) for x in case.inputs(0, 5, torch.float64)]
    found = block(*given)
    assert found.shape == (0, *expected)
    if found.requires_grad:
        found.sum().backward()
