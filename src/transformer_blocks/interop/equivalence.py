"""Equivalence: compare the outputs and the gradients of two models."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

PARAMETERS = "gradient of all parameters"


class _Comparison(NamedTuple):
    """The largest difference between two tensors, and the largest absolute value in them."""

    name: str
    difference: float
    magnitude: float


def assert_equivalent(
    a: Callable[..., Any],
    b: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    tolerance: float | None = None,
) -> None:
    """Assert that two models have the same outputs and gradients; print the largest differences.

    Both models are called with copies of ``inputs``, in evaluation mode (set it yourself for a
    module inside a ``lambda``), once with gradients and once without, as a model may compute
    differently without gradients. The same upstream gradient is backpropagated through both.
    Gradients with respect to the inputs are compared elementwise. Those with respect to all
    parameters of two modules are compared as sorted lists of numbers: the modules may name and lay
    out their weights differently, but if they compute the same, the sorted lists are equal. The
    parameters of a function are unknown, so that their gradients are not compared.

    Args:
        a: A module or a function that returns a tensor, or a tuple or list whose first item is one.
        b: The model to compare with. If its arguments are others, pass a ``lambda``.
        inputs: Positional arguments of both models. The gradients of floating-point tensors among
            them are compared.
        tolerance: Largest accepted difference, relative to the largest absolute value in the
            compared tensors. The default depends on the dtype, eps ** 0.75: 6e-6 in float32,
            2e-12 in float64.

    Raises:
        AssertionError: If the models differ by more, in shape, or in their number of parameters.
        TypeError: If a model does not return a tensor, or ``inputs`` is a tensor and not a list.
        ValueError: If the outputs are empty, so that nothing could differ.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.interop import assert_equivalent, from_torch
        >>> x = torch.randn(2, 5, 16, dtype=torch.float64)
        >>> theirs = nn.TransformerEncoderLayer(16, 4, batch_first=True).double()
        >>> assert_equivalent(theirs, from_torch(theirs), [x])  # doctest: +ELLIPSIS
        largest difference ...
    """
    if isinstance(inputs, Tensor):
        raise TypeError("inputs must be a list of arguments, got a tensor; pass [x]")
    outputs, gradients, inference_outputs = zip(
        *(_run(model, inputs) for model in (a, b)), strict=True
    )
    for pair in (outputs, inference_outputs):
        if pair[0].shape != pair[1].shape:
            shapes = [tuple(output.shape) for output in pair]
            raise AssertionError(f"the outputs differ in shape: {shapes[0]} and {shapes[1]}")
    if not outputs[0].numel():
        raise ValueError(f"the outputs must hold numbers, got shape {tuple(outputs[0].shape)}")
    pairs = {"output": outputs, "output without gradients": inference_outputs}
    names = [name for name in gradients[0] if name in gradients[1]]
    if PARAMETERS in names:
        counts = [len(each[PARAMETERS]) for each in gradients]
        if counts[0] != counts[1]:
            raise AssertionError(
                f"the numbers of trainable parameters differ: {counts[0]} and {counts[1]}"
            )
    pairs |= {name: (gradients[0][name], gradients[1][name]) for name in names}
    comparisons = [_compare(name, *pair) for name, pair in pairs.items()]
    if tolerance is None:
        dtype = outputs[0].dtype
        tolerance = torch.finfo(dtype).eps ** 0.75 if dtype.is_floating_point else 0.0
    width = max(len(each.name) for each in comparisons)
    table = "\n".join(
        f"  {each.name:{width}}  {each.difference:.1e}  of {each.magnitude:.1e}"
        for each in comparisons
    )
    print(f"largest difference (tolerance {tolerance:.0e} of the largest number)\n{table}")
    for each in comparisons:
        if not each.difference <= tolerance * each.magnitude:
            raise AssertionError(
                f"the {each.name} differs by {each.difference:.1e}; "
                f"its largest number is {each.magnitude:.1e}"
            )


def _run(
    model: Callable[..., Any], inputs: Sequence[Any]
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Compute the output, the gradients by name, and the output without gradients."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    if isinstance(model, nn.Module):
        model.eval()
    try:
        copies = [_copy(value) for value in inputs]
        leaves = {
            f"gradient of input {number}": value
            for number, value in enumerate(copies)
            if isinstance(value, Tensor) and value.requires_grad
        }
        weights: list[Tensor] = []
        if isinstance(model, nn.Module):
            weights = [weight for weight in model.parameters() if weight.requires_grad]
        with torch.enable_grad():
            output = _first(model(*copies))
            sources = [*leaves.values(), *weights]
            grads: Sequence[Tensor] = [torch.zeros_like(source) for source in sources]
            if output.requires_grad and sources:
                upstream = torch.arange(1, output.numel() + 1, device=output.device).sin()
                grads = torch.autograd.grad(
                    output,
                    sources,
                    upstream.view_as(output).to(output.dtype),
                    allow_unused=True,
                    materialize_grads=True,
                )
        with torch.no_grad():
            inference_output = _first(model(*[_copy(value) for value in inputs]))
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
    gradients = dict(zip(leaves, grads, strict=False))
    if isinstance(model, nn.Module):  # also if none is trainable
        numbers = [grad.flatten() for grad in grads[len(leaves) :]]
        gradients[PARAMETERS] = torch.cat(numbers or [output.new_empty(0)]).sort().values
    return output.detach(), gradients, inference_output.detach()


def _copy(value: Any) -> Any:
    """Copy a tensor; a floating-point copy requires a gradient."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.is_floating_point())


def _first(output: Any) -> Tensor:
    output = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(output, Tensor):
        raise TypeError(f"a model must return a tensor, got {type(output).__name__}")
    return output


def _compare(name: str, a: Tensor, b: Tensor) -> _Comparison:
    if not a.numel():
        return _Comparison(name, 0.0, 0.0)
    difference = (a - b).abs().masked_fill(a == b, 0.0)  # infinity minus infinity is NaN
    magnitude = torch.maximum(a.abs(), b.abs())
    finite = magnitude[magnitude.isfinite()]
    return _Comparison(
        name, float(difference.max()), float(finite.max()) if finite.numel() else 0.0
    )
