"""Fingerprints of models: whatever changes a compiled program changes its fingerprint."""

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks import (
    MultiHeadAttention,
    PreNorm,
    RotaryPositionalEncoding,
    build_decoder,
    build_encoder,
)
from transformer_blocks.inference import fingerprint as module
from transformer_blocks.inference import prepare
from transformer_blocks.inference.fingerprint import fingerprint

SIZES: dict[str, Any] = {"num_layers": 1, "d_model": 16, "num_heads": 4, "d_ff": 24}
FACTOR = 2.0


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * FACTOR

    def embed(self, x: Tensor) -> Tensor:
        return x + 1


def halved(x: Tensor) -> Tensor:
    return x * FACTOR / 4


def model(**options: Any) -> Any:
    torch.manual_seed(0)
    return build_decoder(**SIZES | options).eval()


def change_weight(decoder: Any) -> None:
    with torch.no_grad():
        next(decoder.parameters()).view(-1)[5] += 1e-7


def change_epsilon(decoder: Any) -> None:
    decoder.layers[0].feed_forward_residual.norm.eps = 1e-6


def change_activation(decoder: Any) -> None:
    decoder.layers[0].feed_forward.activation = F.gelu


def add_attribute(decoder: Any) -> None:
    decoder.layers[0].scale = 2


def add_hook(decoder: Any) -> None:
    decoder.layers[0].register_forward_hook(lambda *_: None)


def replace_method(decoder: Any) -> None:
    decoder.layers[0].feed_forward.forward = lambda x: x


def change_stride(decoder: Any) -> None:
    weight = decoder.layers[0].feed_forward.up_projection.weight
    weight.data = weight.data.t().contiguous().t()


def convert(decoder: Any) -> None:
    decoder.double()


CHANGES = [
    value
    for name, value in sorted(globals().items())
    if name[:4] in ("chan", "add_", "conv", "repl")
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_has_another_fingerprint(change: Callable[[Any], None]) -> None:
    assert fingerprint(model()) == fingerprint(model())
    changed = model()
    change(changed)
    assert fingerprint(changed) != fingerprint(model())


def test_every_option_of_a_model_has_another_fingerprint() -> None:
    def attention(**options: Any) -> Callable[[], MultiHeadAttention]:
        return lambda: MultiHeadAttention(16, 4, **options)

    options: list[dict[str, Any]] = [
        {},
        {"num_layers": 2},
        {"num_heads": 2},
        {"residual": PreNorm},
        {"activation": F.silu},
        {"activation": lambda x: x * 2},
        {"activation": lambda x: x * 3},
        {"activation": functools.partial(F.gelu, approximate="tanh")},
        {"activation": functools.partial(F.gelu, approximate="none")},
        {"attention": attention(transforms=[RotaryPositionalEncoding(4)])},
        {"attention": attention(transforms=[RotaryPositionalEncoding(4, base=500.0)])},
    ]
    encoders = []
    for each in options:
        torch.manual_seed(0)
        encoders.append(build_encoder(**SIZES | each).eval())
    assert len({fingerprint(prepare(encoder)) for encoder in encoders}) == len(options)


def test_code_that_a_function_refers_to_is_part_of_its_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def closure(size: int) -> Callable[[Tensor], Tensor]:
        return lambda x: x[..., -min(size, x.shape[-1]) :]

    assert fingerprint(closure(512)) == fingerprint(closure(512))
    assert fingerprint(closure(512)) != fingerprint(closure(1024))  # equal for short inputs
    objects: list[Any] = [halved, Scaled(), Scaled().embed]
    before = [fingerprint(each) for each in objects]
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert all(fingerprint(x) != y for x, y in zip(objects, before, strict=True))
    monkeypatch.undo()
    assert [fingerprint(each) for each in objects] == before
    monkeypatch.setattr(Scaled, "embed", lambda self, x: x + 2)
    assert fingerprint(Scaled()) != before[1]
    before = [fingerprint(model())]
    monkeypatch.setattr(MultiHeadAttention, "attend", lambda *_, **__: None)
    assert fingerprint(model()) != before[0]


def test_versions_and_machine_are_part_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {fingerprint(1)}
    torch.set_num_threads((threads := torch.get_num_threads()) + 1)
    found.add(fingerprint(1))
    torch.set_num_threads(threads)
    for target, value in (
        ("torch.__version__", "2.99"),
        ("platform.machine", lambda: "another"),
        ("torch.backends.cpu.get_cpu_capability", lambda: "AVX"),
        ("transformer_blocks.inference.fingerprint._PACKAGE_HASH", "changed"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, value)
            found.add(fingerprint(1))
    mkldnn: Any = torch.backends.mkldnn
    matmul = mkldnn.matmul
    before = matmul.fp32_precision
    try:
        for matmul.fp32_precision in ("bf16", "tf32"):
            found.add(fingerprint(1))
    finally:
        matmul.fp32_precision = before
    with monkeypatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
        found.add(fingerprint(1))
    assert len(found) == 9


def test_values_that_look_alike_differ() -> None:
    values: list[Any] = [1, 1.0, True, "1", b"1", None, "", [], (), {}, [1], (1,), [1, 2], [[1], 2]]
    values += [{1: 2}, {2: 1}, [1, [2]], torch.ones(1), torch.ones(1, 1), torch.ones(1).double()]
    values += [torch.ones(1).requires_grad_(), nn.Parameter(torch.ones(1)), torch.relu, F.relu]
    assert len({fingerprint(value) for value in values}) == len(values)
    x = [1]
    assert fingerprint([x, x]) != fingerprint([x, [1]])  # shared, as tied weights are


@pytest.mark.parametrize(
    "value",
    [
        object(),
        iter(()),
        sys.stdout,
        module,
        torch.ones(2).to_sparse(),
        torch.ones(2, device="meta"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_hashed_completely_has_no_fingerprint(value: object) -> None:
    if value is module:  # a module of this package is represented by the hash of its source
        fingerprint(value)
        value = sys.modules[__name__]
    with pytest.raises(TypeError, match="cannot be hashed completely"):
        fingerprint([value])


@pytest.mark.slow
def test_another_process_computes_the_same_fingerprint() -> None:
    program = (
        "from tests.test_inference_fingerprint import *\n"
        "print(fingerprint(prepare(model(activation=lambda x: x in {'a', 'b', 'c'}), compiled=True)"
        ", Scaled().embed, halved, {'a', 'b', 'c'}))\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(found) == 1
