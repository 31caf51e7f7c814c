"""Weights: load a whole state dict, or nothing of it."""

from collections.abc import Mapping

from torch import Tensor, nn

from transformer_blocks._contracts import checked


@checked
def load_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a module, and leave the module untouched if any of them does not fit.

    ``module.load_state_dict(weights)`` copies the tensors that fit before it reports those that do
    not, and accepts NaN and other dtypes without a warning.

    Args:
        module: The module that receives the weights.
        weights: One tensor for each name in ``module.state_dict()``.

    Raises:
        TypeError: If ``module`` is not a module.
        ValueError: If a tensor is missing, unknown, of another shape or dtype, holds NaN or
            infinity, or is on the meta device; or if two parameters are tied in the module, and
            their given tensors differ.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.interop import load_weights
        >>> layer = nn.Linear(2, 2)
        >>> before = layer.weight.detach().clone()
        >>> state = {"weight": torch.zeros(2, 2), "bias": torch.zeros(3)}
        >>> load_weights(layer, state)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: tensor 'bias' must be torch.float32 of shape (2,), got torch.float32 of ... (3,)
        >>> torch.equal(layer.weight, before)
        True
    """
    wanted = module.state_dict()
    if missing := [name for name in wanted if name not in weights]:
        raise ValueError(f"the weights lack tensor {missing[0]!r} ({len(missing)} missing in all)")
    if extra := [name for name in weights if name not in wanted]:
        raise ValueError(f"the module has no tensor {extra[0]!r} ({len(extra)} extra in all)")
    for name, target in wanted.items():
        tensor = weights[name]
        if tensor.shape != target.shape or tensor.dtype != target.dtype:
            raise ValueError(
                f"tensor {name!r} must be {target.dtype} of shape {tuple(target.shape)}, got "
                f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            )
        if tensor.is_meta or target.is_meta:
            raise ValueError(f"tensor {name!r} must hold numbers, and is on the meta device")
        # A constant of the module may be infinite, as an additive mask is.
        if not tensor.isfinite().logical_or(tensor == target.to(tensor.device)).all():
            raise ValueError(f"tensor {name!r} holds NaN or infinity")
    first_names: dict[object, str] = {}
    for name, target in wanted.items():
        storage = (target.data_ptr(), target.shape, target.stride()) if target.numel() else name
        first = first_names.setdefault(storage, name)
        if not weights[name].to(weights[first].device).equal(weights[first]):
            raise ValueError(f"{first!r} and {name!r} are tied in the module but differ in weights")
    # Copy first: the weights that were passed may be views of the module's own.
    module.load_state_dict({name: tensor.detach().clone() for name, tensor in weights.items()})
