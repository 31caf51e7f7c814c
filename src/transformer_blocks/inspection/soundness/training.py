"""Properties of a training program: of its labels and of its loss.

A model may be sound and its training not: if it is shown the tokens that it must predict, if
padding counts in the loss, or if the loss depends on how a batch is divided into micro-batches or
ranks.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from transformer_blocks._contracts import raise_type_error
from transformer_blocks.inspection.comparison import (
    describe,
    measure_changes,
    measure_relative_differences,
    measure_scales,
    perturb,
    to_float64,
)
from transformer_blocks.inspection.soundness.inputs import Inputs
from transformer_blocks.inspection.soundness.tested import SEED, TestedModel

Parts = Sequence[tuple[Tensor, Tensor]]


def check_labels(tested: TestedModel) -> list[str]:
    """Check that a training step does not show the model the tokens that it must predict.

    With teacher forcing, the labels are the inputs shifted by one position. A causal model whose
    labels were not shifted predicts the token that it has just read: its loss falls to zero, and
    it has learned to copy. If the labels are shifted twice, by the program and by the model, it
    learns to leave out every other token. No check of the model alone can find either.

    Each token is changed in turn. The outputs whose label changes with it must not change. Then all
    tokens of one row are changed: an output must depend on the row that its label is from.
    """
    inputs = tested.inputs
    (logits, labels), real = run_step(tested, inputs), inputs.groups[0].real
    scales = measure_scales(logits)
    if bool(measure_changes(logits, run_step(tested, inputs)[0], tested.tolerance).any()):
        return ["two equal calls differ, or give NaN: the step must be as in evaluation mode"]

    def find_changes(where: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Change some tokens; measure how much outputs change, and find the labels that do."""
        outputs, targets = run_step(tested, inputs.changed(0, where & real, seed))
        sizes = measure_changes(logits, outputs, tested.tolerance, scales=scales).amax(dim=2)
        return sizes, (targets != labels).cpu()

    problems, is_label, follows = list[str](), False, False
    before = torch.zeros(labels.shape, dtype=torch.bool)  # outputs that depend on the last position
    for position in range(real.shape[1]):
        sizes, own = find_changes(torch.arange(real.shape[1]) == position, seed=position)
        problems += [
            f"output {output} of row {row} depends on its label, the token at position {position}: "
            f"it changes {describe(float(sizes[row, output]))}"
            for row, output in (own & (sizes > 0)).nonzero().tolist()
        ]
        is_label |= bool(own.any())
        follows |= bool((own & before).any())
        before = sizes > 0
    if not is_label:
        return [*problems, "no label changes with a token"]
    if not follows:
        why = "no output depends on the token before its label; the labels may be shifted twice"
        return [*problems, why]
    for row in range(len(real)):
        sizes, own = find_changes(torch.arange(len(real))[:, None] == row, seed=0)
        problems += [
            f"the labels of row {number} are tokens of row {row}, on which no output of it depends"
            for number in (own.any(1) & ~sizes.any(1)).nonzero().flatten().tolist()
        ]
    return problems


def run_step(tested: TestedModel, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Run a training step; return the logits (B, N, V) and labels (B, N) that enter the loss."""
    torch.manual_seed(SEED)
    args, kwargs = inputs.build()
    result = tested.run(*args, **kwargs)
    pair = tuple(result) if isinstance(result, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(each, Tensor) for each in pair):
        raise_type_error("model", "a training step that returns logits and labels", result)
    logits, labels = pair
    if logits.dim() != 3 or labels.shape != logits.shape[:2]:
        raise ValueError(
            "model must return logits and labels of shapes (B, N, V) and (B, N), "
            f"got {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    return logits.clone(), labels.clone()


def check_loss(tested: TestedModel) -> list[str]:
    """Check that padding does not count in a loss, however its batch is divided.

    A large batch is divided into *micro-batches*, whose gradients are accumulated, or among the
    *ranks* of distributed training. Every token has the same weight only if the sum of all losses
    is divided by the number of target tokens of the whole batch. The mean of the means of unequal
    parts is another number, and no error shows it.
    """
    logits, target, real, padding_id = read_loss(tested)
    tolerance = tested.tolerance
    tolerance = torch.finfo(logits.dtype).eps ** 0.75 if tolerance is None else tolerance
    rows, length = target.shape
    whole = differentiate(tested, logits, target)
    if not are_finite(whole):
        return ["the loss or its gradient is not finite"]
    problems = []
    if "gradient" in whole and bool(whole["gradient"][~real].any()):
        problems.append("the gradient of logits at padded targets is not zero")
    noise = perturb(logits, logits, seed=1)
    padding = torch.full_like(target[:1], padding_id)
    longer = torch.cat([logits, noise[:, :1].repeat(1, 3, 1)], dim=1)
    variants = {
        "if the logits at padded targets change": (
            torch.where(real[..., None], logits, noise),
            [target],
        ),
        "with three more positions of padding": (
            longer,
            [torch.cat([target, padding[:, :1].repeat(rows, 3)], dim=1)],
        ),
        "if each row is a part of its own": (logits, target.split(1)),
        "if another part is all padding": (torch.cat([logits, noise[:1]]), [target, padding]),
    }
    for what, (others, targets) in variants.items():
        other = differentiate(tested, others, *targets)
        if not are_finite(other):
            problems.append(f"the loss is not finite {what}")
            continue
        if "gradient" in other:
            other["gradient"] = other["gradient"][:rows, :length]
        for name in whole.keys() & other.keys():
            pair = [x[name][real] if name == "gradient" else x[name] for x in (whole, other)]
            difference = float(measure_relative_differences(*pair).max())
            if difference > tolerance:
                problems.append(
                    f"the {name} changes by up to {difference:.2g} of its largest number, {what}"
                )
    return problems + check_mean(tested, whole, tolerance)


def check_mean(tested: TestedModel, whole: Mapping[str, Tensor], tolerance: float) -> list[str]:
    """Check that the loss of a batch is the mean, or the sum, of its tokens' losses."""
    logits, target, real, _ = read_loss(tested)
    if len(target) == 1 or "loss" not in whole:
        return []
    used = real.any(dim=1).nonzero().flatten().tolist()
    losses = [differentiate(tested, logits[[row]], target[[row]])["loss"] for row in used]
    counts, alone, loss = real.sum(1)[used].cpu(), torch.stack(losses), whole["loss"]
    mean = counts.to(alone) @ alone / counts.sum()
    limit = 4 * tolerance * float(torch.cat([alone, loss[None]]).abs().max())
    if min(float((loss - mean).abs()), float((loss - alone.sum()).abs())) <= limit:
        return []
    return [
        f"the loss of the batch is {float(loss):.4g}, and the mean of the losses of its rows, "
        f"weighted by their tokens, {float(mean):.4g}"
    ]


def read_loss(tested: TestedModel) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return the logits (B, L, V) and target (B, L), which targets are real, and the padding id."""
    values = [each.value for each in tested.inputs.arguments]
    shapes = [tuple(each.shape) for each in values if isinstance(each, Tensor)]
    if len(shapes) != 2 or len(shapes[0]) != 3 or shapes[0][:2] != shapes[1]:
        raise ValueError(f"inputs must be (logits, target) of (B, L, V) and (B, L), got {shapes}")
    target = tested.inputs.arguments[1]
    real = tested.inputs.groups[target.groups[0]].real.to(target.value.device)
    if bool(real.all()):
        raise ValueError("target must hold padding, of which padding_id= is the id, it has none")
    return values[0], values[1], real, target.filler


def differentiate(tested: TestedModel, logits: Tensor, *targets: Tensor) -> dict[str, Tensor]:
    """Compute the loss of a batch that is divided into parts, and its gradient, as far as known."""
    leaf = logits.detach().clone().requires_grad_()
    with torch.enable_grad():
        pieces = leaf.split([len(target) for target in targets])
        loss = tested.run(
            [(each, target.clone()) for each, target in zip(pieces, targets, strict=True)]
        )
        if loss is not None and not isinstance(loss, Tensor):
            loss = torch.tensor(float(loss))
        if loss is not None and loss.requires_grad and leaf.grad is None:
            loss.sum().backward()
    found = {"loss": None if loss is None else to_float64(loss.detach().sum())}
    return {k: v for k, v in (found | {"gradient": leaf.grad}).items() if v is not None}


def are_finite(found: Mapping[str, Tensor]) -> bool:
    """Return whether a loss and its gradient are finite."""
    return all(bool(each.isfinite().all()) for each in found.values())
