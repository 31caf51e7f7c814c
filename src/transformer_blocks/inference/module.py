"""The base class of prepared modules: what they refuse, because it would do nothing or half of it."""

from collections.abc import Callable
from typing import Any, NoReturn, Self, cast

import torch
from torch import Tensor, nn


class InferenceModule(nn.Module):
    """A module for inference, whose weights are laid out once, when it is made.

    A prepared weight is held in more than one layout, so training, moving, converting and loading
    would change one of them and not the others. Each raises a ``RuntimeError`` instead, before
    anything is changed; so do copying and saving. Whatever holds a prepared module refuses with it.
    """

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode.

        Args:
            mode: False; it changes nothing.

        Raises:
            RuntimeError: If ``mode`` is True.
        """
        if mode:
            raise refusal("trained")
        return super().train(False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Refuse another device or dtype; what changes nothing is applied as ever."""
        for tensor in (*self.parameters(), *self.buffers()):
            probe = tensor.new_empty(0)
            if fn(probe) is not probe:
                raise refusal("moved or converted")
        return cast(Self, super()._apply(fn, recurse))  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, *_: object) -> NoReturn:
        raise refusal("given other weights")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise refusal("copied or pickled")


def seal(model: Any) -> Any:
    """Make a module refuse as a whole what its prepared parts refuse.

    Its parts alone would refuse only after those before them had been changed. The module keeps
    what it is and gets another base class.

    Args:
        model: The result of packing.

    Returns:
        The same module.
    """
    if not isinstance(model, InferenceModule):
        kind: Any = type(model)
        namespace = {"__module__": kind.__module__, "__doc__": kind.__doc__}
        metaclass: Any = type(kind)
        model.__class__ = metaclass(kind.__name__, (InferenceModule, kind), namespace)
    return model


def refusal(done: str) -> RuntimeError:
    """Make the error for an operation that a prepared model does not have.

    Args:
        done: What it cannot be, a participle.
    """
    return RuntimeError(
        f"a prepared model cannot be {done}; do that with the model it was prepared from, "
        "then pack that model again"
    )


class _Undifferentiable(torch.autograd.Function):
    """A function whose result raises a readable error where gradients would be computed."""

    generate_vmap_rule = True

    @staticmethod
    def forward(_: Tensor, function: Callable[..., Tensor], *inputs: Tensor | None) -> Tensor:
        return function(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> NoReturn:
        raise refusal("differentiated")

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> NoReturn:
        raise refusal("differentiated")


def without_gradients(function: Callable[..., Tensor], *inputs: Tensor | None) -> Tensor:
    """Call a function; if gradients are recorded, make its result refuse to be differentiated.

    Args:
        function: What computes a new tensor.
        inputs: Its arguments.
    """
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        mark = torch.empty(0, requires_grad=True, device="cpu")  # so that autograd notes the call
        apply: Any = _Undifferentiable.apply
        return cast(Tensor, apply(mark, function, *inputs))
    return function(*inputs)
