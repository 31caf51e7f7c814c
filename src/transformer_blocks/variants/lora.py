r"""Low-rank adaptation (LoRA): fine-tune a trained model by training few weights.

Full fine-tuning trains all weights of a model further on new data, so that each task needs a copy
of all of them. "LoRA: Low-Rank Adaptation of Large Language Models" (Hu et al. 2021,
https://arxiv.org/abs/2106.09685, section 4.1) freezes the trained weight :math:`W` of a linear
layer, and learns an update of it as the product of two small matrices:

.. math:: y = W x + b + \frac{\alpha}{r} B A x, \qquad
          A \in \mathbb{R}^{r \times d_{in}},\quad B \in \mathbb{R}^{d_{out} \times r}

The rank :math:`r` is small, so a layer has :math:`r (d_{in} + d_{out})` weights to train in place
of :math:`d_{in} d_{out}`. At first A is random and B is zero, so training begins with the outputs
of the trained model. After training, the product can be added to :math:`W`, and the layer is again
a plain linear layer, with no additional cost. In most of its experiments the paper adapts the query
and value projections (section 5.1); section 7.1 compares other choices.

Adapt a model with :func:`add_lora`, train it, save A and B with :func:`lora_weights`, and merge
them with :func:`merge_lora`. :func:`load_lora` reads them into another copy of the trained model.

Next: :mod:`transformer_blocks.generation`, from logits to sequences of tokens.
"""

import copy
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import (
    Input,
    PositiveNumber,
    Rule,
    Size,
    check_tensor,
    check_unaltered,
    checked,
    raise_type_error,
)

MATRICES = "lora_a", "lora_b"


def _test_names(name: str, names: Any) -> None:
    is_collection = isinstance(names, Collection) and not isinstance(names, str)
    if not is_collection or not all(isinstance(each, str) for each in names):
        raise_type_error(name, "a collection of module names", names)


def _test_tensors(name: str, tensors: Any) -> None:
    if not isinstance(tensors, Mapping):
        raise_type_error(name, "a dictionary of tensors", tensors)
    for key, each in tensors.items():
        check_tensor(f"{name}[{key!r}]", each)


Names = Annotated[Collection[str], Rule("names of modules", _test_names)]
Tensors = Annotated[Mapping[str, Tensor], Rule("a dictionary of tensors", _test_tensors)]


class LoraLinear(nn.Module):
    """A frozen linear layer with a trainable update of low rank: the product of two small matrices.

    A is initialised with normally distributed numbers of variance 1 / in_features, so that the
    elements of A x are about as large as those of x; B is initialised with zeros. Both have the
    dtype and the device of the layer's weight.

    Args:
        linear: The trained layer. It becomes a part of the module, and is frozen.
        rank: Rank r of the product, at most the smaller size of the layer; often 4 or 8.
        alpha: The product is multiplied by alpha / r. If not given, alpha is the rank, and the
            factor is 1. With a constant alpha, hyperparameters need less tuning when the rank
            changes (section 4.1).

    Attributes:
        linear: The frozen layer.
        lora_a: The matrix A, of shape (rank, in_features).
        lora_b: The matrix B, of shape (out_features, rank).
        scale: The factor alpha / r.

    Raises:
        TypeError: If ``linear`` is not an ``nn.Linear`` (a subclass may compute something else),
            or another argument is of the wrong type.
        ValueError: If ``rank`` is not positive or too large, ``alpha`` is not positive and finite,
            or ``linear`` has hooks or replaced methods.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import LoraLinear
        >>> linear, x = nn.Linear(64, 64), torch.randn(5, 64)
        >>> layer = LoraLinear(linear, rank=2)
        >>> torch.equal(layer(x), linear(x))  # B is zero at first
        True
        >>> [name for name, weight in layer.named_parameters() if weight.requires_grad]
        ['lora_a', 'lora_b']
        >>> _ = nn.init.normal_(layer.lora_b)  # as if it were trained
        >>> torch.linalg.matrix_rank(layer.weight - linear.weight).item()
        2
    """

    @checked
    def __init__(
        self, linear: nn.Linear, *, rank: Size, alpha: PositiveNumber | None = None
    ) -> None:
        if type(linear) is not nn.Linear:
            raise_type_error("linear", "an instance of Linear", linear)
        _check_layer(linear, rank)
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.rank, self.scale = rank, 1.0 if alpha is None else alpha / rank
        self.lora_a = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.lora_b = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        nn.init.normal_(self.lora_a, std=linear.in_features**-0.5)
        self.train(linear.training)

    @property
    def weight(self) -> Tensor:
        """The merged weight W + (alpha / r) B A, of shape (out_features, in_features).

        It is computed at each access, with gradients to A and B; a change of it has no effect.
        """
        return self.linear.weight + self.scale * (self.lora_b @ self.lora_a)

    @property
    def bias(self) -> Tensor | None:
        """The bias of the layer, of shape (out_features,), or None."""
        return self.linear.bias

    @checked
    def forward(self, x: Annotated[Tensor, Input("... in_features", "linear")]) -> Tensor:
        """Compute W x + b + (alpha / r) B A x.

        Args:
            x: Input vectors, of shape (..., in_features).

        Returns:
            Output vectors, of shape (..., out_features).

        Raises:
            TypeError: If ``x`` is not a tensor, or differs from the weights in dtype.
            ValueError: If the last dimension of ``x`` is not in_features.
        """
        update = F.linear(F.linear(x, self.lora_a), self.lora_b)  # (..., out_features)
        return self.linear(x) + self.scale * update

    def merged(self) -> nn.Linear:
        """Compute the plain linear layer with the merged weight.

        Returns:
            A new, frozen layer with the dtype, the device and the training mode of the trained one.

        Raises:
            ValueError: If the module or its layer has hooks or replaced methods: the plain layer
                has no equal place for them.
        """
        for part in (self, self.linear):
            check_unaltered(part, type(part).__name__)
        merged = copy.deepcopy(self.linear)
        with torch.no_grad():
            merged.weight.copy_(self.weight)
        return merged

    def extra_repr(self) -> str:
        """Show the rank and the factor when the module is printed."""
        return f"rank={self.rank}, scale={self.scale:g}"


@checked
def add_lora(
    model: nn.Module,
    *,
    rank: Size,
    alpha: PositiveNumber | None = None,
    modules: Names = ("query_projection", "value_projection"),
) -> None:
    """Replace linear layers of a trained model by :class:`LoraLinear`, and freeze all else.

    The model computes the same as before, and only the matrices A and B are trainable. To train
    another part too, such as a new output layer, call its ``requires_grad_()`` afterwards; it is
    not among the :func:`lora_weights`. The names of the replaced weights change: load the trained
    weights before. On an error, the model is as it was.

    A layer that occurs in several places is replaced in all of them, with one A and one B. A layer
    whose weight another module shares is refused, for example an output layer with tied embeddings.

    Args:
        model: The trained model; it is changed.
        rank: Rank r of each product; see :class:`LoraLinear`.
        alpha: The products are multiplied by alpha / r; the rank if not given.
        modules: Names of linear layers, as in ``model.named_modules()``, or the ends of such names
            after a dot: ``"query_projection"`` chooses every one of the model,
            ``"layers.0.self_attention.query_projection"`` a single one. The default is the paper's
            choice.

    Raises:
        TypeError: If an argument is of the wrong type, or ``modules`` chooses a module of another
            class than ``nn.Linear``.
        ValueError: If one of ``modules`` is not in the model, a chosen layer has hooks, shares a
            weight or is smaller than ``rank``, or the model has LoRA layers already or is prepared
            for inference.

    Example:
        >>> from transformer_blocks import add_lora, build_encoder
        >>> model = build_encoder(num_layers=2, d_model=512, num_heads=8, d_ff=2048)
        >>> add_lora(model, rank=8)
        >>> trainable = sum(each.numel() for each in model.parameters() if each.requires_grad)
        >>> trainable == 2 * 2 * 8 * (512 + 512)  # layers, projections, r (d_in + d_out)
        True
        >>> trainable / sum(each.numel() for each in model.parameters()) < 0.01
        True
    """
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    chosen: dict[str, None] = {}
    for module in modules:
        found = [name for name in names if f".{name}".endswith(f".{module}")]
        if not found:
            raise ValueError(f"modules must name parts of the model, got {module!r}")
        chosen |= dict.fromkeys(found)
    layers = _find_layers("modules", model, chosen)
    _insert(model, dict.fromkeys(layers.values(), rank), alpha)


@checked
def merge_lora(model: nn.Module) -> nn.Module:
    """Replace each :class:`LoraLinear` of a model by the linear layer that computes the same.

    The model then has its former structure, and the names of its weights. All of its parameters
    stay frozen; ``model.requires_grad_()`` makes them trainable.

    Args:
        model: A model with LoRA layers; it is changed.

    Returns:
        The model itself; or, if it is a :class:`LoraLinear`, the plain layer.

    Raises:
        TypeError: If ``model`` is not a module.
        ValueError: If it has no LoRA layer, or one of them has hooks or replaced methods.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import add_lora, build_encoder, merge_lora
        >>> model = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> add_lora(model, rank=2)
        >>> for layer in model.layers:  # as if they were trained
        ...     _ = nn.init.normal_(layer.self_attention.query_projection.lora_b)
        >>> x = torch.randn(2, 5, 16)
        >>> expected = model(x)
        >>> torch.allclose(merge_lora(model)(x), expected, atol=1e-5)
        True
        >>> type(model.layers[0].self_attention.query_projection).__name__
        'Linear'
    """
    merged = {layer: layer.merged() for layer in _lora_layers(model).values()}
    _replace_layers(model, merged)
    return merged[model] if isinstance(model, LoraLinear) else model


@checked
def lora_weights(model: nn.Module) -> dict[str, Tensor]:
    """Copy the matrices A and B of a model, which are all that :func:`load_lora` needs.

    B is multiplied by alpha / r, so that neither alpha nor the rank is needed to load them. To
    resume a training, save ``model.state_dict()`` instead.

    Args:
        model: A model with LoRA layers.

    Returns:
        Two tensors for each layer, ``NAME.lora_a`` and ``NAME.lora_b``, for example for
        ``safetensors.torch.save_file``.

    Raises:
        TypeError: If ``model`` is not a module.
        ValueError: If it has no LoRA layer.

    Example:
        >>> from transformer_blocks import add_lora, build_encoder, lora_weights
        >>> model = build_encoder(num_layers=1, d_model=16, num_heads=4, d_ff=32)
        >>> add_lora(model, rank=2, modules=["query_projection"])
        >>> for name, tensor in lora_weights(model).items():
        ...     print(name, tuple(tensor.shape))
        layers.0.self_attention.query_projection.lora_a (2, 16)
        layers.0.self_attention.query_projection.lora_b (16, 2)
    """
    weights = {}
    for name, layer in _lora_layers(model).items():
        weights[f"{name}.lora_a"] = layer.lora_a.detach().clone()
        weights[f"{name}.lora_b"] = layer.scale * layer.lora_b.detach()
    return weights


@checked
def load_lora(model: nn.Module, weights: Tensors) -> None:
    """Add LoRA layers with trained matrices to a model that has none.

    The layers and their ranks are those of the weights; see :func:`add_lora`. If any of the weights
    does not fit, the model is left untouched.

    Args:
        model: The trained model for which the matrices were trained; it is changed.
        weights: What :func:`lora_weights` returned.

    Raises:
        TypeError: If ``model`` is not a module, ``weights`` is not a dictionary of tensors, or one
            of them belongs to a module of another class than ``nn.Linear``.
        ValueError: If a tensor is missing, unknown, of another shape, dtype or on the meta device,
            or holds NaN or infinity; or for a reason that :func:`add_lora` names.

    Example:
        >>> import copy
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import add_lora, build_encoder, load_lora, lora_weights
        >>> trained = build_encoder(num_layers=1, d_model=16, num_heads=4, d_ff=32).eval()
        >>> tuned, x = copy.deepcopy(trained), torch.randn(2, 5, 16)
        >>> add_lora(tuned, rank=2, alpha=8)
        >>> _ = nn.init.normal_(tuned.layers[0].self_attention.value_projection.lora_b)
        >>> load_lora(trained, lora_weights(tuned))
        >>> torch.allclose(trained(x), tuned(x), atol=1e-6)
        True
    """
    names = dict.fromkeys(str(key).rpartition(".")[0] for key in weights)
    if not names or weights.keys() != {f"{name}.{part}" for name in names for part in MATRICES}:
        got = ", ".join(map(repr, weights)) or "none"
        raise ValueError(f"weights must hold lora_a and lora_b of each layer, got {got}")
    layers = _find_layers("weights", model, names)
    if len(set(layers.values())) < len(layers):
        raise ValueError("weights must name each layer once, got several names of a shared one")
    ranks = {}
    for name, layer in layers.items():
        a, b = (weights[f"{name}.{part}"] for part in MATRICES)
        ranks[layer] = a.shape[0] if a.dim() else 0
        _check_weight(f"{name}.lora_a", a, layer, (ranks[layer], layer.in_features))
        _check_weight(f"{name}.lora_b", b, layer, (layer.out_features, ranks[layer]))
    added = _insert(model, ranks, None)
    with torch.no_grad():
        for name, layer in layers.items():
            for part in MATRICES:
                added[layer].get_parameter(part).copy_(weights[f"{name}.{part}"])


def _check_layer(linear: nn.Linear, rank: int) -> None:
    """Raise unless a layer has a place for matrices of this rank, and is unaltered."""
    size = min(linear.in_features, linear.out_features)
    if rank > size:
        raise ValueError(f"rank must be at most {size}, the size of the layer, got rank={rank}")
    check_unaltered(linear, "linear")


def _check_weight(name: str, tensor: Tensor, layer: nn.Linear, shape: tuple[int, int]) -> None:
    """Raise unless a loaded matrix has this shape, the dtype of its layer, and finite numbers."""
    dtype = layer.weight.dtype
    if tensor.dtype != dtype or tensor.shape != shape or tensor.layout != torch.strided:
        raise ValueError(
            f"weights must have {name!r} as {torch.strided}, {dtype} of shape {shape}, "
            f"got {tensor.layout}, {tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    if tensor.is_meta or not tensor.isfinite().all():
        raise ValueError(f"weights must hold finite numbers, got others in {name!r}")


def _find_layers(argument: str, model: nn.Module, names: Iterable[str]) -> dict[str, nn.Linear]:
    """Find the linear layers of these names; raise unless all of them can be replaced."""
    parts = dict(model.named_modules(remove_duplicate=False))
    if any(isinstance(part, LoraLinear) for part in parts.values()):
        raise ValueError("model must have no LoRA layers yet, got some; merge_lora merges them")
    if any(getattr(part, "is_prepared_for_inference", False) for part in parts.values()):
        raise ValueError("model must not be prepared for inference; adapt the trained model")
    owners = Counter(weight for part in model.modules() for weight in part._parameters.values())
    found = {}
    for name in names:
        layer = parts.get(name) if name else None
        if layer is None:
            raise ValueError(f"{argument} must name parts of the model, got {name!r}")
        if type(layer) is not nn.Linear:
            kind = type(layer).__name__
            raise TypeError(f"{argument} must name instances of nn.Linear, got {name!r}, a {kind}")
        if any(owners[weight] > 1 for weight in layer.parameters()):
            raise ValueError(
                f"{argument} must name layers with weights of their own, got {name!r}, which "
                "shares one with another module"
            )
        found[name] = layer
    if not found:
        raise ValueError(f"{argument} must name a linear layer, got no name")
    return found


def _insert(
    model: nn.Module, ranks: Mapping[nn.Linear, int], alpha: float | None
) -> dict[nn.Linear, LoraLinear]:
    """Freeze a model and replace some of its layers; return what replaces each."""
    for layer, rank in ranks.items():
        _check_layer(layer, rank)
    model.requires_grad_(False)
    added = {layer: LoraLinear(layer, rank=rank, alpha=alpha) for layer, rank in ranks.items()}
    _replace_layers(model, added)
    return added


def _replace_layers(model: nn.Module, replacements: Mapping[Any, nn.Module]) -> None:
    """Replace parts of a model, in all places where they occur."""
    for parent in list(model.modules()):
        for name, part in parent._modules.items():
            if part in replacements:
                parent._modules[name] = replacements[part]


def _lora_layers(model: nn.Module) -> dict[str, LoraLinear]:
    """List the LoRA layers of a model by name; there must be at least one."""
    found = {name: part for name, part in model.named_modules() if isinstance(part, LoraLinear)}
    if not found:
        raise ValueError(f"model must have LoRA layers, got none in {type(model).__name__}")
    return found
