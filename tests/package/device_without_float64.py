"""A stand-in for a GPU such as Apple's, which has no float64; run as a program by a test.

Its tensors report a device of their own and are computed on the CPU. The program computes the same
on that device and on the CPU, and prints what differs or raises an error, one line for each case.
PyTorch registers such a device once in a process and for good, hence the program.
"""

import contextlib
import io
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from tests.examples.tiny_run import SETTINGS, begin
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import transformer_blocks as blocks
from common import plots
from transformer_blocks import inference, inspection, interop

NAME = "singles"
DEVICE_STRING = f"{NAME}:0"


def exchange(change: Callable[[Any], Any], nested: Any) -> Any:
    """Return nested arguments whose leaves are changed, in a third of the time of `tree_map`."""
    if isinstance(nested, list | tuple):
        return type(nested)([exchange(change, each) for each in nested])
    if isinstance(nested, dict):
        return {name: exchange(change, each) for name, each in nested.items()}
    return change(nested)


def compute(_: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Call a function on the inner tensors, and wrap its results if they are on the device."""
    leaves: list[Any] = []
    exchange(leaves.append, (args, kwargs or {}))
    tensors = [each for each in leaves if isinstance(each, Tensor)]
    given = [each for each in tensors if isinstance(each, OnDevice)]
    devices = [each for each in leaves if isinstance(each, torch.device)]
    is_there = devices[0].type == NAME if devices else bool(given)
    others = [each for each in tensors if each.dim() and not isinstance(each, OnDevice)]
    if given and others and not any(part in function.__name__ for part in ("copy", "index", "to.")):
        raise RuntimeError(f"{function.__name__}: all tensors must be on the same device")

    def unwrap(leaf: Any) -> Any:
        if isinstance(leaf, OnDevice):
            return leaf.on_cpu
        return torch.device("cpu") if is_there and isinstance(leaf, torch.device) else leaf

    inner_args, inner_kwargs = exchange(unwrap, (args, kwargs or {}))
    result = function(*inner_args, **inner_kwargs)
    if not is_there or "_local_scalar_dense" in function.__name__:
        return result
    known = {id(each.on_cpu): each for each in given}  # what a function in place returns

    def wrap(inner: Any) -> Any:
        if not isinstance(inner, Tensor):
            return inner
        return known[id(inner)] if id(inner) in known else OnDevice(inner)

    return exchange(wrap, result)


class OnDevice(Tensor):
    """A tensor that reports the device; its numbers are in ``on_cpu``, on the CPU."""

    on_cpu: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OnDevice":
        if inner.dtype in (torch.float64, torch.complex128):
            raise TypeError("this device has no float64")
        make: Any = Tensor._make_wrapper_subclass
        options = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        with torch.inference_mode(False):
            made = make(
                cls, inner.shape, dtype=inner.dtype, device=torch.device(NAME, 0), **options
            )
        made.on_cpu = inner
        return made

    def __init__(self, inner: Tensor) -> None: ...

    __torch_dispatch__ = classmethod(compute)  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __getitem__(self, index: Any) -> Tensor:
        # PyTorch would make a tensor of a list without calling __torch_dispatch__.
        index = torch.tensor(index, dtype=torch.int64) if isinstance(index, list) else index
        return super().__getitem__(index)

    def new_tensor(self, data: Any, **_: Any) -> Tensor:  # type: ignore[override]
        return torch.tensor(data, dtype=self.dtype).to(DEVICE_STRING)

    def tolist(self) -> Any:
        return self.on_cpu.tolist()

    def data_ptr(self) -> int:
        return self.on_cpu.data_ptr()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:  # PyTorch would read where data_ptr() points
            copied: Tensor = self.detach().clone()
            is_parameter = isinstance(self, nn.Parameter)
            memo[id(self)] = nn.Parameter(copied, self.requires_grad) if is_parameter else copied
        return memo[id(self)]


class Factories(TorchDispatchMode):
    """Calls :func:`compute` for functions that make a tensor on the device, too."""

    __torch_dispatch__ = compute


SIZES: dict[str, Any] = {"num_layers": 1, "d_model": 16, "num_heads": 4, "d_ff": 24, "dropout": 0.0}
TOKENS = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]])
CASES: dict[str, Callable[[str], Any]] = {}


def case(function: Callable[[str], Any]) -> Callable[[str], Any]:
    """Add a case: a function that computes something on the device that it receives."""
    CASES[function.__name__] = function
    return function


def translator(device: str) -> Any:
    torch.manual_seed(0)
    embedding = blocks.TokenEmbedding(12, 16)
    stacks = blocks.build_encoder(**SIZES), blocks.build_decoder(**SIZES)
    positions = blocks.SinusoidalPositionalEncoding(16)
    output = nn.Linear(16, 12)
    model = blocks.Seq2Seq(embedding, embedding, *stacks, positions=positions, output=output)
    return model.eval().to(device)


@case
def forward_and_backward(device: str) -> Any:
    model, tokens = translator(device).train(), TOKENS.to(device)
    hidden = model.hidden(tokens, tokens).flatten(0, 1)
    loss = blocks.linear_cross_entropy(
        hidden, model.output.weight, tokens.flatten(), label_smoothing=0.1
    )
    loss.backward()
    return [loss, *(each.grad for each in model.parameters() if each.grad is not None)]


@case
def variants(device: str) -> Any:
    torch.manual_seed(0)
    functions = (
        *(blocks.AdditiveAttention(4, 4), blocks.ALiBi(4), blocks.RelativeBias(4)),
        *(blocks.SlidingWindowAttention(2), blocks.SinkAttention(4, window=3)),
    )
    modules: list[Any] = [
        blocks.MultiHeadAttention(16, 4, attention_function=each) for each in functions
    ]
    transforms = [blocks.QueryKeyNorm(4), blocks.RotaryPositionalEncoding(4)]
    modules += [
        blocks.MultiHeadAttention(16, 4, num_key_value_heads=2, transforms=transforms),
        blocks.GatedAttention(16, 4),
        blocks.LatentAttention(
            *(16, 4),
            latent_size=6,
            value_size=4,
            rotary=blocks.RotaryPositionalEncoding(
                6, rotated=4, scaling=blocks.YarnScaling(4.0, length=8)
            ),
        ),
        blocks.MixtureOfExperts(
            16,
            num_experts=4,
            top_k=2,
            expert=lambda: blocks.GatedFeedForward(16, 8),
            routing=blocks.SigmoidRouting(4),
        ),
        blocks.GatedFeedForward(16, 24),
        blocks.LearnedPositionalEncoding(16, max_length=9),
        blocks.LoraLinear(blocks.FeedForward(16, 24).up_projection, rank=2),
    ]
    x = torch.randn(2, 5, 16)
    x = x.to(device)
    return [
        module.to(device)(*([x] * (3 if isinstance(module, blocks.MultiHeadAttention) else 1)))
        for module in modules
    ]


@case
def fully_masked_rows(device: str) -> Any:
    """The kernel of another device may give NaN for them, as this one does."""
    torch_kernel = F.scaled_dot_product_attention

    def kernel(*args: Any, **options: Any) -> Tensor:
        output = torch_kernel(*args, **options)
        is_masked = ~options["attn_mask"].any(-1, keepdim=True) & (device != "cpu")
        factor = torch.ones(is_masked.shape).to(device).masked_fill(is_masked, torch.nan)
        return output * factor  # and the gradients

    x = torch.arange(24.0).view(1, 2, 3, 4).sin().to(device).requires_grad_()
    mask = torch.tensor([[False, True, False], [True, True, True], [True, True, False]]).to(device)
    with mock.patch.object(F, "scaled_dot_product_attention", kernel):
        output = blocks.fused_attention(x, x, x, mask=mask, causal=True)
    return output, *torch.autograd.grad(output.sum(), x)


@case
@torch.no_grad()
def searches(device: str) -> Any:
    model, source = translator(device), TOKENS.to(device)
    start = torch.tensor([1, 1]).to(device)
    options: Any = {"end_id": 2, "max_length": 6}
    greedy = blocks.greedy_search(model.begin(source), start, **options)
    beams = blocks.beam_search(model.begin(source), start, beam_size=3, n_best=2, **options)
    sampled = blocks.sample(model.begin(source), start, temperature=0.9, top_k=5, top_p=0.9,
                            generator=torch.Generator().manual_seed(0), **options)  # fmt: skip
    torch.manual_seed(0)
    unseeded = blocks.sample(model.begin(source), start, **options)
    found = [*greedy, *(each for row in beams for each in row), *sampled]
    return [[each.tokens for each in found], torch.tensor([each.score for each in found]),
            len(unseeded)]  # fmt: skip


@case
@torch.no_grad()
def inspections(device: str) -> Any:
    model, tokens = translator(device), TOKENS.to(device)
    with inspection.record_attention(model) as weights:
        model(tokens, tokens)
    maps = [each for found in weights.values() for each in found]
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0)).to(device)
    causal = inspection.check_soundness(
        lambda x: model.encoder(x, causal=True), x, only="causality"
    )
    padding = inspection.check_soundness(
        lambda tokens: model.encoder(model.embed(tokens, 0), mask=blocks.padding_mask(tokens)),
        tokens,
        only=("padding", "padding amount"),
        padding_id=0,
    )
    patterns = [head.name for head in inspection.head_patterns(maps[0][0])]
    explanation = inspection.explain_mask(blocks.padding_mask(tokens))
    trace = inspection.trace_shapes(model, tokens, tokens)
    with inspection.ablate(model, positions=True):
        ablated = model(tokens, tokens)
    return [maps, bool(causal), bool(padding), patterns, str(explanation), str(trace), ablated]


@case
@torch.no_grad()
def loaded_weights(device: str) -> Any:
    model, others, tokens = translator(device), translator("cpu"), TOKENS.to(device)
    interop.load_weights(model, {name: -each for name, each in others.state_dict().items()})
    found = [model(tokens, tokens)]
    blocks.add_lora(others, rank=2)
    blocks.add_lora(model, rank=2)
    matrices = {name: each.cos() for name, each in others.state_dict().items() if "lora_" in name}
    model.load_state_dict(matrices, strict=False)
    found.append(model(tokens, tokens))
    blocks.merge_lora(model)
    return [*found, model(tokens, tokens)]


@case
@torch.no_grad()
def a_prepared_model(device: str) -> Any:
    model, tokens = inference.prepare(translator(device)), TOKENS.to(device)
    return model(tokens, tokens)


@case
def a_training_that_is_resumed(device: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        for epochs in (1, 2):
            settings = replace(SETTINGS, epochs=epochs, dropout=0.0, batch_tokens=64)
            training = begin(Path(folder), settings, device=torch.device(device))
            training.resume()
            training.fit()
    kept = ("epoch", "step", "train_loss", "validation_loss", "validation_bleu")
    return [[torch.tensor(each[name]) for name in kept] for each in training.metrics]


def compare(found: Any, expected: Any) -> None:
    """Raise an error unless both hold the same numbers."""
    for mine, other in zip(tree_flatten(found)[0], tree_flatten(expected)[0], strict=True):
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine.detach().cpu(), other.detach(), rtol=0, atol=1e-4)
        elif mine != other:
            raise AssertionError(f"{mine!r} is not {other!r}")


def main() -> None:
    """Compute every case on both devices, and print a line for each."""
    _setup_privateuseone_for_python_backend(NAME)
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16]
    # A device of tensors of another class: `to` must exchange a shared parameter only once.
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.set_num_threads(1)
    plots.as_png = lambda figure: b""  # to draw a picture takes longer than an epoch
    with contextlib.redirect_stdout(io.StringIO()):
        expected = {name: function("cpu") for name, function in CASES.items()}
    factories: Any = Factories
    with factories():
        for name, function in CASES.items():
            try:
                with contextlib.redirect_stdout(io.StringIO()):  # equivalence prints a table
                    found = function(DEVICE_STRING)
                compare(found, expected[name])
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
            else:
                print(f"{name}: ok")


if __name__ == "__main__":
    main()
