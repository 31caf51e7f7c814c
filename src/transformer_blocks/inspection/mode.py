"""The mode: recognise attention among the functions of torch that a model calls."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import debug_unwrap
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from transformer_blocks.inspection.observation import ChangeShape, Observation
from transformer_blocks.inspection.projections import (
    Projections,
    of_scaled_dot_product,
    of_torch_layer,
    separate_heads,
)
from transformer_blocks.inspection.weights import (
    MULTI_HEAD_ARGUMENTS,
    packed_groups,
    scaled_dot_product_weights,
    torch_weights,
)


class AttentionMode(TorchFunctionMode):
    """The mode that observes attention for all observations of a thread.

    Attributes:
        observations: The observations that have begun and not ended.
        is_in_fast_path: Whether a module of torch that has a fast path is being executed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.observations: list[Observation] = []
        self.is_in_fast_path = False
        self.weights: Any = WeakTensorKeyDictionary()  # results of softmax: _Weights
        self.products: Any = WeakTensorKeyDictionary()  # results of products: list[_Product]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for observation in self.observations:
            if not observation.has_run:
                observation.note_call()
        handler = _HANDLERS.get(func)
        if handler is None:
            return func(*args, **(kwargs or {}))
        kwargs = dict(kwargs or {})
        if not args and "input" in kwargs:
            args = (kwargs.pop("input"),)
        return handler(self, func, args, kwargs)

    def attempt(
        self, observations: list[Observation], compute: Callable[..., Any], *args: Any, **kw: Any
    ) -> Any:
        """Compute what only the observations need; where it fails, note why, and go on."""
        try:
            return compute(*args, **kw)
        except Exception as error:  # whatever it is: the model itself must not be disturbed
            for observation in observations:
                found = observation.find()
                if found is not None:
                    observation.has_run = True
                    observation.failed[found[0]] = str(error)
            return None

    def fused(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Observe ``F.scaled_dot_product_attention``."""
        output = func(*args, **kwargs)
        for observation, name, module in self._found():
            groups = packed_groups(module, *args, **kwargs)
            if output.dim() > 4:
                observation.partly_seen.add(name)
                continue
            recorded: Tensor | Projections | None = None
            if _is_recorded(observation, name):
                compute: Callable[..., Any] = scaled_dot_product_weights
                if observation.record is None:
                    compute = of_scaled_dot_product
                recorded = self.attempt([observation], compute, *args, **kwargs)
            if groups == 1:
                output = self._observe(observation, name, recorded, output)
                continue
            if isinstance(recorded, Projections):
                recorded = separate_heads(recorded, groups)
            elif recorded is not None:  # (B, H / groups, groups, S) -> (B, H, 1, S)
                recorded = recorded.flatten(1, 2)[:, :, None]
            separate = output.flatten(1, 2)[:, :, None]
            separate = self._observe(observation, name, recorded, separate)
            if name in observation.heads:
                output = separate.view(output.shape)
        return output

    def torch_layer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Observe ``F.multi_head_attention_forward``, with which torch's module computes."""
        names = MULTI_HEAD_ARGUMENTS[: len(args)]
        kwargs = dict(zip(names, args, strict=True)) | kwargs
        for observation, name, _ in self._found():
            if _is_recorded(observation, name):
                compute = of_torch_layer if observation.record is None else torch_weights
                self._record(observation, name, self.attempt([observation], compute, func, kwargs))
            if name in observation.heads:
                # The output projection multiplies the heads side by side: without some columns of
                # its weight, the output is that of the other heads.
                weight, num_heads = kwargs["out_proj_weight"], kwargs["num_heads"]
                columns = weight.T[None].unflatten(1, (num_heads, -1))  # (1, H, d_k, d_model)
                columns = _without_heads(columns, name, observation.heads[name])
                kwargs = kwargs | {"out_proj_weight": columns.flatten(0, 2).T}
        return func(**kwargs)

    def softmax(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Remember the result of a softmax over the last dimension."""
        output = func(*args, **kwargs)
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if output.dim() > 1 and dim in (-1, output.dim() - 1):
            self.weights[output] = _Weights(output.detach(), has_blocks=output.dim() > 4)
        return output

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Apply a change of shape or dtype, or a mask, to the remembered weights too."""
        output = func(*args, **kwargs)
        if not isinstance(output, Tensor) or output is args[0]:
            return output
        if args[0] in self.products:
            return self._divide(func, args, kwargs, output)
        remembered = self._remembered(args[:1])
        if remembered is None:
            return output
        weights = output.detach()
        if remembered.is_dropped:
            with torch.no_grad():
                weights = func(remembered.weights, *args[1:], **kwargs)
        self.weights[output] = replace(remembered, weights=weights)
        return output

    def dropout(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Remember the weights from before a dropout."""
        remembered = self._remembered(args[:1])
        if remembered is not None:  # in case the dropout changes its input
            weights = remembered.weights.clone()
            remembered = replace(remembered, weights=weights, is_dropped=True)
        output = func(*args, **kwargs)
        if remembered is not None:
            self.weights[output] = remembered
        return output

    def product(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Observe a matrix product whose left factor is the result of a softmax."""
        self._note_call()
        output = func(*args, **kwargs)
        remembered = self._remembered(args[:1])
        if remembered is None or any(
            isinstance(factor, nn.Parameter) for factor in (*args[1:], *kwargs.values())
        ):
            return output  # what is multiplied by parameters is, for example, a mean of embeddings
        return self._observe_product(remembered, output)

    def einsum(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Observe a product in Einstein's notation that sums over the keys of a softmax."""
        self._note_call()
        output = func(*args, **kwargs)
        equation = args[0]
        operands = args[1] if isinstance(args[1], list | tuple) else args[1:]
        if not isinstance(equation, str) or "->" not in equation or len(operands) != 2:
            return output
        terms, result = equation.replace(" ", "").split("->")
        for term, operand in zip(terms.split(","), operands, strict=True):
            remembered = self._remembered([operand])
            if remembered is not None and term[-1] not in result:
                heads = term[1 if len(term) == 4 else 0]  # with three letters, the batch is first
                place = None if "." in term + result else result.find(heads)
                output = self._observe_product(remembered, output, place)
        return output

    def other_work(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note which modules compute a linear layer or a convolution."""
        self._note_call()
        return func(*args, **kwargs)

    def plain(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function while nothing is observed: torch suspends a mode inside the mode."""
        function, arguments, options = args
        return function(*arguments, **options)

    def _observe_product(
        self, remembered: "_Weights", output: Tensor, place: int | None = None
    ) -> Tensor:
        for observation, name, _ in self._found():
            if remembered.has_blocks:
                observation.partly_seen.add(name)
                continue
            weights = None
            if _is_recorded(observation, name) and (observation, name) not in remembered.recorded:
                remembered.recorded.append((observation, name))
                weights = remembered.weights
            output = self._observe(observation, name, weights, output, place)
        return output

    def _record(
        self, observation: Observation, name: str, recorded: Tensor | Projections | None
    ) -> ChangeShape | None:
        if recorded is None:
            return None
        sample = recorded.query if isinstance(recorded, Projections) else recorded
        if debug_unwrap(sample).dim() != sample.dim():  # no numbers outside of torch.vmap
            observation.failed[name] = "it was executed by torch.vmap"
            return None
        if isinstance(recorded, Projections):
            record = observation.record_projections
            return None if record is None else record(name, recorded.map(_as_four_dimensional))
        if observation.record is None:  # the projections of an explicit softmax are not known
            return None
        weights = _as_four_dimensional(recorded)
        if weights.shape[1] == 1:
            observation.note_head(name)
        return observation.record(name, weights)

    def _observe(
        self,
        observation: Observation,
        name: str,
        recorded: Tensor | Projections | None,
        output: Tensor,
        place: int | None = None,
    ) -> Tensor:
        """Record weights or projections (if not None), and replace heads of an attention's output.

        The output is a product of weights and values. ``place`` is the dimension of the heads in
        it, or that of the batch if it has three dimensions; -1 if it is not known. By default, it
        is where torch's functions have it.
        """
        change_shape = self._record(observation, name, recorded)
        if place is None:
            place = 1 if output.dim() == 4 else 0
        if output.dim() != 4 or place < 0:
            observation.undivided.add(name)
        if output.dim() == 3 and place == 0:
            product = _Product(observation, name, output.shape[0], output.shape[2], change_shape)
            self.products[output] = [*self.products.get(output, []), product]
        if name in observation.heads and output.dim() == 4 and place >= 0:
            divided = _without_heads(output.movedim(place, 1), name, observation.heads[name])
            output = divided.movedim(1, place)
        return output

    def _divide(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> Tensor:
        """Tell the heads apart that stand in one dimension with the batch, when they are divided.

        ``torch.bmm`` needs three dimensions: (B * H, L, S) times (B * H, S, d_k). How many heads
        there are is seen when the product is reshaped: to (B, H, L, d_k), or, if the length was
        made the first dimension, to (L, B, H * d_k).
        """
        source, undivided = args[0], []
        for product in self.products[source]:
            place = product.place
            if func not in _DIVISIONS or output.shape == source.shape:
                if _exchanges_first_two(func, args, kwargs):
                    product = replace(product, place=1 - place)
                undivided.append(product)
            elif output.dim() > place + 1 and product.size % max(output.shape[place], 1) == 0:
                batch = output.shape[place]
                heads = product.size // max(batch, 1)
                features = heads * product.features if place == 1 else heads
                if output.shape[place + 1] not in (heads, features):
                    continue
                if product.change_shape is not None:
                    product.change_shape((batch, heads))
                name, observation = product.name, product.observation
                observation.undivided.discard(name)
                if name in observation.heads:
                    divided = source.unflatten(place, (batch, heads)).movedim(place + 1, 1)
                    divided = _without_heads(divided, name, observation.heads[name])
                    source = divided.movedim(1, place + 1).flatten(place, place + 1)
                    output = func(source, *args[1:], **kwargs)
        if undivided and output.dim() == 3:
            self.products[output] = undivided
        return output

    def _found(self) -> Iterator[tuple[Observation, str, nn.Module]]:
        """Yield the observations of the module that is being executed, with its name."""
        for observation in self.observations:
            found = observation.find()
            if found is not None:
                observation.seen.add(found[0])
                observation.has_run = True
                yield observation, *found

    def _note_call(self) -> None:
        for observation in self.observations:
            observation.note_call()

    def _remembered(self, operands: Any) -> "_Weights | None":
        if not operands or not isinstance(operands[0], Tensor):
            return None
        remembered: _Weights | None = self.weights.get(operands[0])
        return remembered


@dataclass(frozen=True)
class _Weights:
    """What is remembered of the result of a softmax.

    Attributes:
        weights: The weights, before dropout.
        is_dropped: Whether the result has been changed by a dropout, and differs from the weights.
        has_blocks: Whether the softmax had more than four dimensions: (B, H, L, S) and others.
        recorded: The observations that recorded the weights, with the name of the module.
    """

    weights: Tensor
    has_blocks: bool
    is_dropped: bool = False
    recorded: list[tuple[Observation, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Product:
    """What is remembered of a product of weights and values that has three dimensions.

    Attributes:
        observation: The observation of the module in which it was computed.
        name: Name of the module.
        size: Size of the dimension that holds the batch, and perhaps the heads.
        features: Size of the last dimension.
        change_shape: Function that divides the first dimension of what was recorded.
        place: Index of the dimension that holds the batch.
    """

    observation: Observation
    name: str
    size: int
    features: int
    change_shape: ChangeShape | None
    place: int = 0


def _exchanges_first_two(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a function transposes the first two of three dimensions."""
    if func in (Tensor.transpose, torch.transpose):
        return sorted(dim % 3 for dim in (*args[1:], *kwargs.values())) == [0, 1]
    dims = kwargs.get("dims", args[1] if len(args) == 2 else args[1:])
    return func in (Tensor.permute, torch.permute) and [dim % 3 for dim in dims] == [1, 0, 2]


def _is_recorded(observation: Observation, name: str) -> bool:
    records = observation.record is not None or observation.record_projections is not None
    return records and observation.only(name)


def _as_four_dimensional(weights: Tensor) -> Tensor:
    """Insert a dimension of heads, or of the batch, where there is none: (B, H, L, S)."""
    if weights.dim() == 2:
        return weights[None, None]
    return weights[:, None] if weights.dim() == 3 else weights


def _without_heads(output: Tensor, name: str, heads: Collection[int]) -> Tensor:
    """Replace the outputs of some heads, of shape (B, H, L, d_k), by zeros."""
    num_heads = output.shape[1]
    for head in heads:
        if not 0 <= head < num_heads:
            raise ValueError(f"heads of {name!r} must be in 0..{num_heads - 1}, got {head}")
    is_masked = torch.zeros(num_heads, dtype=torch.bool)
    is_masked[list(heads)] = True
    return output.masked_fill(is_masked.to(output.device)[:, None, None], 0.0)


def plain(function: Callable[..., Any], arguments: tuple[Any, ...], options: Any) -> Any:
    """Call a function; the mode recognises this one, and calls it with the mode suspended."""
    return function(*arguments, **options)


_SOFTMAX = F.softmax, torch.softmax, Tensor.softmax
_DROPOUT = F.dropout, torch.dropout
_PRODUCT = torch.matmul, Tensor.matmul, torch.bmm, Tensor.bmm, torch.mm, Tensor.mm
_FOLLOWED = (
    *(Tensor.to, Tensor.type, Tensor.type_as, Tensor.float, Tensor.double, Tensor.half),
    *(Tensor.bfloat16, Tensor.contiguous, Tensor.clone, Tensor.detach, Tensor.view, Tensor.reshape),
    *(Tensor.unsqueeze, Tensor.squeeze, Tensor.transpose, Tensor.permute, Tensor.expand),
    *(Tensor.flatten, Tensor.unflatten, Tensor.__getitem__, Tensor.masked_fill, Tensor.nan_to_num),
    *(
        Tensor.mul,
        torch.mul,
        Tensor.div,
        Tensor.__truediv__,
        torch.div,
        torch.reshape,
        torch.unsqueeze,
        torch.squeeze,
    ),
    *(
        torch.transpose,
        torch.permute,
        torch.flatten,
        torch.unflatten,
        torch.masked_fill,
        torch.nan_to_num,
    ),
)
_DIVISIONS = Tensor.view, Tensor.reshape, torch.reshape, Tensor.unflatten, torch.unflatten
_WORK = F.linear, torch.addmm, torch.conv1d, torch.conv2d
_HANDLERS: dict[Any, Callable[[AttentionMode, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    F.scaled_dot_product_attention: AttentionMode.fused,
    F.multi_head_attention_forward: AttentionMode.torch_layer,
    torch.einsum: AttentionMode.einsum,
    plain: AttentionMode.plain,
    **dict.fromkeys(_SOFTMAX, AttentionMode.softmax),
    **dict.fromkeys(_DROPOUT, AttentionMode.dropout),
    **dict.fromkeys(_PRODUCT, AttentionMode.product),
    **dict.fromkeys(_FOLLOWED, AttentionMode.follow),
    **dict.fromkeys(_WORK, AttentionMode.other_work),
}
