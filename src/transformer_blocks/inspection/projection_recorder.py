"""Recording of projections: the queries, keys and values of all layers, by module name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from transformer_blocks._contracts import Function, check
from transformer_blocks.inspection.eager import without_gradients
from transformer_blocks.inspection.observation import ChangeShape, Observation
from transformer_blocks.inspection.projections import Projections, project
from transformer_blocks.inspection.recorder import own_layers, recording


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
    check(nn.Module, model=model)
    check(Function, only=only)
    recorded: dict[str, list[Projections]] = {}

    def record(name: str, projections: Projections) -> ChangeShape:
        calls = recorded.setdefault(name, [])
        calls.append(projections)
        index = len(calls) - 1

        def divide(batch_and_heads: tuple[int, int]) -> None:
            calls[index] = calls[index].map(lambda x: x.flatten(0, 1).unflatten(0, batch_and_heads))

        return divide

    @without_gradients()
    def report(
        name: str, _: Any, result: Any, query: Tensor, key: Tensor, value: Tensor, **options: Any
    ) -> None:
        groups = query.shape[1] // key.shape[1]
        record(name, project(query, key, value, options.get("scale"), groups=groups))

    own = own_layers(model)
    observation = Observation(model, ignored=own.values(), record_projections=record, only=only)
    with recording(model, observation, report):
        yield recorded
