"""Equivalence: how far apart two models are, in what they say and in how they learn."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

PARAMETERS = "gradients of all parameters"


class _Line(NamedTuple):
    """One comparison."""

    name: str
    difference: float
    largest: float


def assert_equivalent(
    a: Callable[..., Any],
    b: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    tolerance: float | None = None,
) -> None:
    """See that two models give the same outputs and the same gradients; print how far they differ.

    Both are called with copies of ``inputs``, modules in eval mode (inside a ``lambda``, put them
    there yourself), with gradients recorded and without, since models may take another way then. A
    random-looking upstream gradient is sent back. Gradients of the inputs are compared place by
    place. Those of all parameters of two modules are compared as sorted lists of numbers: they may
    name and pack their weights as they like, but if they compute the same, the same numbers must
    come up, and as many. Of a function, nobody knows the parameters.

    Args:
        a: A module or any function; a tuple is represented by its first item.
        b: The other one. Where the two are called differently, pass a ``lambda``.
        inputs: Positional arguments of both. Gradients go to the tensors of floats among them.
        tolerance: Largest difference that counts as rounding, in parts of the largest number; by
            dtype if not given, three quarters of its digits: 6e-6 in float32, 2e-12 in float64.

    Raises:
        AssertionError: If they differ by more, in shape, or in their number of parameters.
        TypeError: If one gives something else than a tensor, or ``inputs`` is one.
        ValueError: If the outputs are empty: nothing could differ.

    Example:
        >>> x = torch.randn(2, 5, 16, dtype=torch.float64)
        >>> theirs = nn.TransformerEncoderLayer(16, 4, batch_first=True).double()
        >>> assert_equivalent(theirs, from_torch(theirs), [x])  # doctest: +ELLIPSIS
        largest difference ...
    """
    if isinstance(inputs, Tensor):
        raise TypeError("inputs must be a list of arguments, got a tensor; pass [x]")
    outputs, gradients, quiet = zip(*(_try(each, inputs) for each in (a, b)), strict=True)
    for pair in (outputs, quiet):
        if pair[0].shape != pair[1].shape:
            shapes = [tuple(output.shape) for output in pair]
            raise AssertionError(f"the outputs differ in shape: {shapes[0]} and {shapes[1]}")
    if not outputs[0].numel():
        raise ValueError(f"the outputs must hold numbers, got shape {tuple(outputs[0].shape)}")
    pairs = {"output": outputs, "output without gradients": quiet}
    names = [name for name in gradients[0] if name in gradients[1]]
    if PARAMETERS in names:
        counts = [len(each[PARAMETERS]) for each in gradients]
        if counts[0] != counts[1]:
            raise AssertionError(
                f"the numbers of parameters that learn differ: {counts[0]} and {counts[1]}"
            )
    pairs |= {name: (gradients[0][name], gradients[1][name]) for name in names}
    lines = [_compare(name, *pair) for name, pair in pairs.items()]
    if tolerance is None:
        dtype = outputs[0].dtype
        tolerance = torch.finfo(dtype).eps ** 0.75 if dtype.is_floating_point else 0.0
    width = max(len(line.name) for line in lines)
    table = "\n".join(
        f"  {line.name:{width}}  {line.difference:.1e}  of {line.largest:.1e}" for line in lines
    )
    print(f"largest difference (tolerance {tolerance:.0e} of the largest number)\n{table}")
    far = [line for line in lines if not line.difference <= tolerance * line.largest]
    if far:
        raise AssertionError(
            f"the {far[0].name} differs by {far[0].difference:.1e}, of {far[0].largest:.1e}"
        )


def _try(
    model: Callable[..., Any], inputs: Sequence[Any]
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Compute the output, gradients by name, and the output without gradients."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    if isinstance(model, nn.Module):
        model.eval()
    try:
        given = [_copy(value) for value in inputs]
        wanted = {
            f"gradient of input {number}": value
            for number, value in enumerate(given)
            if isinstance(value, Tensor) and value.requires_grad
        }
        weights: list[Tensor] = []
        if isinstance(model, nn.Module):
            weights = [weight for weight in model.parameters() if weight.requires_grad]
        with torch.enable_grad():
            output = _first(model(*given))
            sources = [*wanted.values(), *weights]
            found: Sequence[Tensor] = [torch.zeros_like(source) for source in sources]
            if output.requires_grad and sources:
                upstream = torch.arange(1, output.numel() + 1, device=output.device).sin()
                found = torch.autograd.grad(
                    output,
                    sources,
                    upstream.view_as(output).to(output.dtype),
                    allow_unused=True,
                    materialize_grads=True,
                )
        with torch.no_grad():
            quiet = _first(model(*[_copy(value) for value in inputs]))
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
    gradients = dict(zip(wanted, found, strict=False))
    if isinstance(model, nn.Module):  # also where none learns
        numbers = [each.flatten() for each in found[len(wanted) :]]
        gradients[PARAMETERS] = torch.cat(numbers or [output.new_empty(0)]).sort().values
    return output.detach(), gradients, quiet.detach()


def _copy(value: Any) -> Any:
    """Copy a tensor; one of floats is to have a gradient."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.is_floating_point())


def _first(output: Any) -> Tensor:
    output = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(output, Tensor):
        raise TypeError(f"a model must give a tensor, got {type(output).__name__}")
    return output


def _compare(name: str, a: Tensor, b: Tensor) -> _Line:
    if not a.numel():
        return _Line(name, 0.0, 0.0)
    difference = (a - b).abs().masked_fill(a == b, 0.0)  # infinity less infinity is NaN
    largest = torch.maximum(a.abs(), b.abs())
    finite = largest[largest.isfinite()]
    return _Line(name, float(difference.max()), float(finite.max()) if finite.numel() else 0.0)
