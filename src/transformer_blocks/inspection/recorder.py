"""The recorder: every attention weight of a model, by the name of its module."""

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
    """Collect the attention weights of every call inside the ``with`` block.

    Recording never changes an output. Where the attention function returns its weights, they are
    recorded. Otherwise they are computed *besides* it: by its own method ``attention_weights``, or
    by equation 1. They are those before dropout, so each row sums to one (to zero where a query may
    see nothing), and carry no gradient.

    Inside the block, a model that ``torch.compile`` made runs uncompiled.

    A call costs B x H x L x S numbers a layer, which stay until the caller lets go of them: choose
    layers, or keep what a GPU computes on the CPU, where they would be too many.

    Args:
        model: Any module that contains attention layers of this package.
        only: Which layers to record, by the name of the module.
        device: Where to keep the weights, "cpu" for example; where they are computed if not given.

    Raises:
        TypeError: If ``model`` is not a module, or ``only`` cannot be called.

    Yields:
        By module name, the weights of each call in order, shape (B, H, L, S).

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
                    handle = module.register_weights_hook(_replacer(record, device))
                    hooks.callback(handle.remove)
        yield maps


def _recorder(
    layer: SingleHeadAttention | MultiHeadAttention,
    record: list[Tensor],
    device: torch.device | str | None,
) -> Any:
    """Make a hook that appends the weights of the call that is about to happen."""

    @torch.no_grad()
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if kwargs is None:  # removed by another thread during this call: torch passes none then
            return
        inputs = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
        inputs.pop("value", None)  # a filled cache is looked up without
        weights = layer.attention_weights(**inputs)
        record.append(weights if device is None else weights.to(device))

    return hook


def _replacer(record: list[Tensor], device: torch.device | str | None) -> Callable[[Tensor], None]:
    """Make a hook that replaces the weights of this call by those that the kernel has returned."""

    def hook(weights: Tensor) -> None:
        if record:  # not within a call of the layer's parts alone, which is not recorded
            record[-1] = weights.detach().to(weights.device if device is None else device)

    return hook
