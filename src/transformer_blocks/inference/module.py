"""The base class of prepared modules, which rejects operations that need the original weights."""

import logging
from collections.abc import Callable
from typing import Any, NoReturn, Self, cast

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import check

log = logging.getLogger(__name__)


class InferenceModule(nn.Module):
    """A module for inference only, whose weights were prepared when it was constructed.

    A prepared module may store the same weight in several layouts. Training, moving, converting or
    loading weights would change one of them and not the others; copying and pickling would lose the
    layouts. Each of these operations raises a ``RuntimeError`` before it changes anything. A module
    that contains a prepared one rejects them too. Its ``state_dict()`` can be read, as an export
    does; save that of the trained model instead, as a prepared one loads none.

    Attributes:
        is_prepared_for_inference: Always True. Code that does not import this package recognises
            prepared modules by this attribute.
    """

    is_prepared_for_inference = True

    def train(self, mode: bool = True) -> Self:
        """Keep the module in evaluation mode.

        Args:
            mode: Must be False, which changes nothing.

        Returns:
            The module itself.

        Raises:
            RuntimeError: If ``mode`` is True.
        """
        if mode:
            raise unsupported_operation("trained")
        return super().train(False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Reject a change of device or dtype; a conversion that changes nothing is allowed."""
        for tensor in (*self.parameters(), *self.buffers()):
            probe = tensor.new_empty(0)
            if fn(probe) is not probe:
                raise unsupported_operation("moved or converted")
        return cast(Self, super()._apply(fn, recurse))  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, *_: object) -> NoReturn:
        raise unsupported_operation("given other weights")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Reject copying and pickling."""
        raise unsupported_operation("copied or pickled")


class InferenceLinear(InferenceModule):
    """A linear layer for inference: the sizes and the bias of a trained one."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        check(nn.Linear, linear=linear)
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        bias = None if linear.bias is None else linear.bias.detach().clone()
        self.register_buffer("bias", bias)


def as_inference_module(model: Any) -> Any:
    """Add :class:`InferenceModule` to the base classes of a module, in place.

    A whole model must reject an operation before any of its parts is changed. If only the prepared
    parts rejected it, the parts before them would have been changed already.

    Args:
        model: A module with prepared parts.

    Returns:
        The same module. Its class is a subclass of its former class, with the same name.
    """
    if not isinstance(model, InferenceModule):
        original: Any = type(model)
        namespace = {"__module__": original.__module__, "__doc__": original.__doc__}
        metaclass: Any = type(original)
        model.__class__ = metaclass(original.__name__, (InferenceModule, original), namespace)
    return model


def unsupported_operation(participle: str) -> RuntimeError:
    """Create the error for an operation that prepared models do not support.

    Args:
        participle: What cannot be done with the model, such as "trained".

    Returns:
        The error to raise.
    """
    return RuntimeError(
        f"a prepared model cannot be {participle}; do that with the model it was prepared from, "
        "then prepare that model again"
    )


def check_no_gradient(x: Tensor) -> None:
    """Raise if the gradient of an input is recorded."""
    if x.requires_grad and torch.is_grad_enabled():
        raise unsupported_operation("differentiated")


def is_exact(operator: Callable[[], Tensor], expected: Tensor, *, otherwise: str) -> bool:
    """Try an operator that is private to torch; log one warning if it does not work.

    Another version of torch may lack the operator, or call it with other arguments.

    Args:
        operator: Calls the operator.
        expected: What it must return.
        otherwise: What the warning says.
    """
    try:
        found = operator()
        if torch.equal(found, expected):
            return True
        reason = f"a product is {found.flatten()[0]} instead of {expected.flatten()[0]}"
    except (AttributeError, RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
    log.warning("%s with torch %s: %s", otherwise, torch.__version__, reason)
    return False
