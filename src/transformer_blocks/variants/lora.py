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

Adapt a model with :func:`add_lora`, train it, and merge the products with :func:`merge_lora`. A and
B are saved and loaded as all weights of torch, by ``state_dict`` and ``load_state_dict``.

Next: :mod:`transformer_blocks.generation`, from logits to sequences of tokens.
"""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._alteration import check_unaltered
from transformer_blocks._contracts import PositiveNumber, Size, checked, raise_type_error


class LoraLinear(nn.Module):
    """A frozen linear layer with a trainable update of low rank, a product of two matrices.

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

    def forward(self, x: Tensor) -> Tensor:
        """Compute W x + b + (alpha / r) B A x.

        Args:
            x: Input vectors, of shape (..., in_features).

        Returns:
            Output vectors, of shape (..., out_features).

        Raises:
            RuntimeError: If the last dimension of ``x`` is not in_features, or its dtype is not
                that of the weights.
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
    modules: Sequence[str] = ("query_projection", "value_projection"),
) -> None:
    """Replace linear layers of a trained model by :class:`LoraLinear`, and freeze all else.

    The model computes the same as before, and only the matrices A and B are trainable. To train
    another part too, such as a new output layer, call its ``requires_grad_()`` afterwards. The
    names of the replaced weights change: load the trained weights before. On an error, the model is
    as it was.

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
    parts = dict(model.named_modules(remove_duplicate=False))
    if any(isinstance(part, LoraLinear) for part in parts.values()):
        raise ValueError("model must have no LoRA layers yet, got some; merge_lora merges them")
    if any(getattr(part, "is_prepared_for_inference", False) for part in parts.values()):
        raise ValueError("model must not be prepared for inference; adapt the trained model")
    if not modules:
        raise ValueError("modules must name a linear layer, got no name")
    owners = Counter(weight for part in model.modules() for weight in part._parameters.values())
    chosen: dict[nn.Linear, None] = {}
    for module in modules:
        found = [name for name in parts if f".{name}".endswith(f".{module}")]
        if not module or not found:
            raise ValueError(f"modules must name parts of the model, got {module!r}")
        for name in found:
            layer = parts[name]
            if type(layer) is not nn.Linear:
                got = f"{name!r}, a {type(layer).__name__}"
                raise TypeError(f"modules must name instances of nn.Linear, got {got}")
            if any(owners[weight] > 1 for weight in layer.parameters()):
                raise ValueError(
                    f"modules must name layers with weights of their own, got {name!r}, which "
                    "shares one with another module"
                )
            _check_layer(layer, rank)
            chosen[layer] = None
    model.requires_grad_(False)
    _replace_layers(model, {layer: LoraLinear(layer, rank=rank, alpha=alpha) for layer in chosen})


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
    merged = {part: part.merged() for part in model.modules() if isinstance(part, LoraLinear)}
    if not merged:
        raise ValueError(f"model must have LoRA layers, got none in {type(model).__name__}")
    _replace_layers(model, merged)
    return merged[model] if isinstance(model, LoraLinear) else model


def _check_layer(linear: nn.Linear, rank: int) -> None:
    """Raise unless a layer has a place for matrices of this rank, and is unaltered."""
    size = min(linear.in_features, linear.out_features)
    if rank > size:
        raise ValueError(f"rank must be at most {size}, the size of the layer, got rank={rank}")
    check_unaltered(linear, "linear")


def _replace_layers(model: nn.Module, replacements: Mapping[Any, nn.Module]) -> None:
    """Replace parts of a model, in all places where they occur."""
    for parent in list(model.modules()):
        for name, part in parent._modules.items():
            if part in replacements:
                parent._modules[name] = replacements[part]
