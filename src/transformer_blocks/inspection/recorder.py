"""Recording: collect the attention weights of all layers, by module name."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._checks import check_callable, check_module
from transformer_blocks.inspection.eager import run_eagerly
from transformer_blocks.multi_head import MultiHeadAttention, SingleHeadAttention


@contextmanager
def record_attention(
    model: nn.Module,
    *,
    only: Callable[[str], bool] = lambda name: True,
    device: torch.device | str | None = None,
) -> Iterator[dict[str, list[Tensor]]]:
    """Record the attention weights of every forward pass inside the ``with`` block.

    Recording never changes an output. If the attention function returns its weights, these are
    recorded. Otherwise the weights are computed separately, by the function's own method
    ``attention_weights`` or else by equation 1 of the paper. They are the weights before dropout,
    so each row sums to one (to zero if it is fully masked), and have no gradient.

    Inside the block, a model compiled by ``torch.compile`` is executed eagerly.

    Each call of a layer stores B x H x L x S numbers until the returned lists are released. To save
    memory, select layers with ``only``, or move the weights to the CPU with ``device``.

    Args:
        model: Any module that contains attention layers of this package.
        only: Function of a module's name that returns whether to record the layer; all layers by
            default.
        device: Device that stores the weights, for example ``"cpu"``; by default the device on
            which they are computed.

    Raises:
        TypeError: If ``model`` is not a module, or ``only`` is not callable.

    Yields:
        A dictionary from module names to lists that hold the attention weights of each call, in
        order, each of shape (B, H, L, S).

    Example:
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32)
        >>> x = torch.randn(1, 5, 16)
        >>> with record_attention(encoder) as maps:
        ...     _ = encoder(x)
        >>> {name: weights[0].shape for name, weights in maps.items()}
        {'layers.0.self_attention': torch.Size([1, 4, 5, 5]),
         'layers.1.self_attention': torch.Size([1, 4, 5, 5])}
    """
    check_module(model=model)
    check_callable(only=only)
    maps: dict[str, list[Tensor]] = {}
    with ExitStack() as hooks:
        hooks.enter_context(run_eagerly())
        for name, module in model.named_modules():
            if isinstance(module, SingleHeadAttention | MultiHeadAttention) and only(name):
                record = maps.setdefault(name, [])
                handle = module.register_forward_pre_hook(
                    _recorder(module, record, device), with_kwargs=True
                )
                hooks.callback(handle.remove)
                if isinstance(module, MultiHeadAttention):
                    handle = module.register_weights_hook(
                        _returned_weights_recorder(record, device)
                    )
                    hooks.callback(handle.remove)
        yield maps


def _recorder(
    layer: SingleHeadAttention | MultiHeadAttention,
    record: list[Tensor],
    device: torch.device | str | None,
) -> Any:
    """Build a forward pre-hook that appends the attention weights of the call."""

    @torch.no_grad()
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if kwargs is None:  # removed by another thread during this call: torch passes none then
            return
        inputs = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
        inputs.pop("value", None)  # attention weights do not depend on values
        weights = layer.attention_weights(**inputs)
        record.append(weights if device is None else weights.to(device))

    return hook


def _returned_weights_recorder(
    record: list[Tensor], device: torch.device | str | None
) -> Callable[[Tensor], None]:
    """Build a hook that replaces the weights of this call by those of the attention function."""

    def hook(weights: Tensor) -> None:
        if record:  # empty if a part of the layer is called alone, which is not recorded
            record[-1] = weights.detach().to(weights.device if device is None else device)

    return hook
