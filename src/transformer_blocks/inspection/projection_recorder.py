"""Recording of projections: the queries, keys and values of all layers, by module name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from transformer_blocks._checks import check_callable, check_module, check_vectors
from transformer_blocks.inspection.eager import without_gradients
from transformer_blocks.inspection.observation import ChangeShape, Observation
from transformer_blocks.inspection.projections import Projections, project
from transformer_blocks.inspection.recorder import Layer, own_layers, recording
from transformer_blocks.multi_head import SingleHeadAttention


@contextmanager
def record_projections(
    model: nn.Module, *, only: Callable[[str], bool] = lambda name: True
) -> Iterator[dict[str, list[Projections]]]:
    """Record the queries, keys and values of every attention inside the ``with`` block.

    What is recorded enters the attention function: vectors after the projection, the split into
    heads, rotary positions, query-key normalisation and the cache. For scaled dot-product
    attention, ``softmax(query @ key.mT * scale)``, masked, is what
    :func:`~transformer_blocks.record_attention` records. Where the attention function is another,
    such as :class:`~transformer_blocks.ALiBi`, these are its inputs all the same.

    Models are those of :func:`~transformer_blocks.record_attention`, and no output changes. If an
    attention is computed with an explicit softmax, its queries and keys are not known, and it is
    not listed; there is no warning.

    Args:
        model: Any module that computes attention.
        only: Function of a module's name that returns whether to record the layer; all layers by
            default.

    Raises:
        TypeError: If ``model`` is not a module, or ``only`` is not callable.

    Yields:
        A dictionary from module names to lists of :class:`Projections`, one of each call, in order.
        They are copies without gradients.

    Example:
        >>> encoder = build_encoder(num_layers=1, d_model=16, num_heads=4, d_ff=32)
        >>> with record_projections(encoder) as projections, record_attention(encoder) as maps:
        ...     _ = encoder(torch.randn(1, 5, 16))
        >>> query, key, value, scale = projections["layers.0.self_attention"][0]
        >>> weights = (query @ key.mT * scale).softmax(dim=-1)
        >>> torch.allclose(weights, maps["layers.0.self_attention"][0], atol=1e-6)
        True
    """
    check_module(model=model)
    check_callable(only=only)
    recorded: dict[str, list[Projections]] = {}

    def record(name: str, projections: Projections) -> ChangeShape:
        calls = recorded.setdefault(name, [])
        calls.append(projections)
        index = len(calls) - 1

        def divide(batch_and_heads: tuple[int, int]) -> None:
            calls[index] = calls[index].map(lambda x: x.flatten(0, 1).unflatten(0, batch_and_heads))

        return divide

    def register(name: str, module: Layer) -> Iterator[RemovableHandle]:
        hook = _projections_recorder(module, recorded.setdefault(name, []))
        yield module.register_forward_pre_hook(hook, with_kwargs=True)

    own = own_layers(model)
    observation = Observation(model, ignored=own.values(), record_projections=record, only=only)
    with recording(model, observation, register):
        yield recorded


def _projections_recorder(layer: Layer, record: list[Projections]) -> Any:
    """Build a forward pre-hook that appends the queries, keys and values of the call."""

    @without_gradients()
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if kwargs is None:  # removed by another thread during this call: torch passes none then
            return
        inputs = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
        value = inputs.pop("value", None)
        scale = None
        if isinstance(layer, SingleHeadAttention):
            projections = layer.query_projection, layer.key_projection, layer.value_projection
            vectors = {"query": inputs["query"], "key": inputs["key"], "value": value}
            for (name, x), projection in zip(vectors.items(), projections, strict=True):
                check_vectors(name, x, projection.in_features, projection)
            query, key, value = (
                projection(x).unsqueeze(1)  # of one head
                for x, projection in zip(vectors.values(), projections, strict=True)
            )
            scale = layer.scale
        else:
            query, key = layer._queries_and_keys(**inputs)
            value = layer._values(value, inputs.get("cache"))
        groups = query.shape[1] // key.shape[1]
        record.append(project(query, key, value, scale, groups=groups))

    return hook
