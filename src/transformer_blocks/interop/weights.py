"""Weights: all of them, or none."""

from collections.abc import Mapping

from torch import Tensor, nn


def load_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a module, and leave it untouched if anything about them is wrong.

    ``module.load_state_dict(weights)`` copies what fits before it complains about what does not,
    and takes NaN and other dtypes in silence.

    Args:
        module: Receives the weights.
        weights: One for each name in ``module.state_dict()``.

    Raises:
        ValueError: If one is missing, unknown, of another shape or dtype, NaN, infinite or on the
            meta device, or if two that are one in the module differ.

    Example:
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
        given = weights[name]
        if given.shape != target.shape or given.dtype != target.dtype:
            raise ValueError(
                f"tensor {name!r} must be {target.dtype} of shape {tuple(target.shape)}, got "
                f"{given.dtype} of shape {tuple(given.shape)}"
            )
        if given.is_meta or target.is_meta:
            raise ValueError(f"tensor {name!r} must hold numbers, and is on the meta device")
        # A constant of the module may be infinite, as a mask of scores is.
        if not given.isfinite().logical_or(given == target).all():
            raise ValueError(f"tensor {name!r} holds NaN or infinity")
    first: dict[object, str] = {}
    for name, target in wanted.items():
        place = (target.data_ptr(), target.shape, target.stride()) if target.numel() else name
        twin = first.setdefault(place, name)
        if not weights[name].equal(weights[twin]):
            raise ValueError(f"{twin!r} and {name!r} are one in the module but differ in weights")
    # Copies, for what is given may lie in the module itself.
    module.load_state_dict({name: tensor.detach().clone() for name, tensor in weights.items()})
