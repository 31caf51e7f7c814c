"""Equivalence: compare the outputs and the gradients of two models."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import Function, at_least, checked
from transformer_blocks.inspection.comparison import (
    find_largest,
    measure_differences,
    measure_relative_differences,
)
from transformer_blocks.inspection.difference import first_difference
from transformer_blocks.inspection.soundness.subject import evaluation

OUTPUTS = "output", "output without gradients"
PARAMETERS = "gradient of all parameters"


@checked
def assert_equivalent(
    a: Function[Callable[..., Any]],
    b: Function[Callable[..., Any]],
    inputs: Sequence[Any],
    *,
    tolerance: Annotated[float, at_least(0)] | None = None,
) -> None:
    """Assert that two models have equal outputs and gradients; print the largest differences.

    If the outputs of two modules differ, the error shows where: see :func:`first_difference`.

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
        >>> from transformer_blocks.inspection import assert_equivalent
        >>> from transformer_blocks.interop import from_torch
        >>> x = torch.randn(2, 5, 16, dtype=torch.float64)
        >>> theirs = nn.TransformerEncoderLayer(16, 4, batch_first=True).double()
        >>> assert_equivalent(theirs, from_torch(theirs), [x])  # doctest: +ELLIPSIS
        largest difference ...
    """
    table, problem = compare_models(a, b, inputs, tolerance)
    if table:
        print(table)
    if problem:
        raise AssertionError(problem)


def compare_models(
    a: Callable[..., Any], b: Callable[..., Any], inputs: Sequence[Any], tolerance: float | None
) -> tuple[str, str]:
    """Return a table of the differences, if shapes are equal, and the first one too large."""
    if isinstance(inputs, Tensor):
        raise TypeError("inputs must be a list of arguments, got a tensor; pass [x]")
    first, second = (_run(model, inputs) for model in (a, b))
    names = [name for name in first if name in second]
    output = first[OUTPUTS[0]]
    if tolerance is None:
        is_float = output.is_floating_point()
        tolerance = torch.finfo(output.dtype).eps ** 0.75 if is_float else 0.0
    lines = [f"largest difference (tolerance {tolerance:.0e} of the largest number)"]
    problem, width = "", max(map(len, names))
    for name in names:
        pair = first[name], second[name]
        shapes = [tuple(each.shape) for each in pair]
        if shapes[0] != shapes[1]:
            return "", f"the {name} differs in shape: {shapes[0]} and {shapes[1]}"
        difference = float(measure_differences(*pair).max()) if pair[0].numel() else 0.0
        largest, relative = find_largest(*pair), measure_relative_differences(*pair)
        lines.append(f"  {name:{width}}  {difference:.1e}  of {largest:.1e}")
        if difference and not problem and float(relative.max()) > tolerance:
            problem = f"the {name} differs by {difference:.1e}; its largest number is {largest:.1e}"
            problem += _locate(a, b, inputs) if name in OUTPUTS else ""
    if not output.numel():
        raise ValueError(f"the outputs must hold numbers, got shape {tuple(output.shape)}")
    return "\n".join(lines), problem


def _locate(a: Callable[..., Any], b: Callable[..., Any], inputs: Sequence[Any]) -> str:
    """Show where the outputs of two modules first differ."""
    if not isinstance(a, nn.Module) or not isinstance(b, nn.Module):
        return ""
    try:
        with evaluation(a), evaluation(b):
            found = first_difference(a, b, tuple(inputs))
    except Exception:  # the difference is known, and only its place is not
        return ""
    return f"\n{found}" if found else ""


def _run(model: Callable[..., Any], inputs: Sequence[Any]) -> dict[str, Tensor]:
    """Compute the output with and without gradients, and the gradients, by name."""
    module = model if isinstance(model, nn.Module) else nn.Module()
    with evaluation(model):
        copies = [_copy(value) for value in inputs]
        leaves = {
            f"gradient of input {number}": value
            for number, value in enumerate(copies)
            if isinstance(value, Tensor) and value.requires_grad
        }
        weights = (weight for weight in module.parameters() if weight.requires_grad)
        sources = [*leaves.values(), *weights]
        with torch.enable_grad():
            output = _first(model(*copies))
            gradients: Sequence[Tensor] = [torch.zeros_like(source) for source in sources]
            if output.requires_grad and sources:
                upstream = torch.arange(1, output.numel() + 1, device=output.device).sin()
                upstream = upstream.view_as(output).to(output.dtype)
                gradients = torch.autograd.grad(
                    output, sources, upstream, allow_unused=True, materialize_grads=True
                )
        with torch.no_grad():
            without_gradients = _first(model(*[_copy(value) for value in inputs]))
    results = [output.detach(), without_gradients.detach()]
    found = dict(zip((*OUTPUTS, *leaves), (*results, *gradients), strict=False))
    if module is model:  # also if no parameter is trainable
        numbers = [gradient.flatten() for gradient in gradients[len(leaves) :]]
        found[PARAMETERS] = torch.cat(numbers or [output.new_empty(0)]).sort().values
    return found


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
