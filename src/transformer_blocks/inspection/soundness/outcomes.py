"""Checks of a training program: of its labels and of its loss.

A model may be sound and its training not: if it is shown the tokens that it must predict, if
padding counts in the loss, or if the loss depends on how a batch is divided into micro-batches or
ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import torch
from torch import Tensor

from transformer_blocks._contracts import (
    Function,
    Ids,
    Vectors,
    checked,
    raise_type_error,
)
from transformer_blocks.inspection.comparison import (
    Tolerance,
    describe,
    find_instability,
    measure_changes,
    measure_relative_differences,
    measure_scales,
    perturb,
    to_float64,
)
from transformer_blocks.inspection.soundness.checks import Report

Parts = Sequence[tuple[Tensor, Tensor]]


@checked
@torch.no_grad()
def check_labels(
    step: Function[Callable[[Tensor], tuple[Tensor, Tensor]]],
    tokens: Annotated[Tensor, Ids("B L")],
    *,
    padding_id: int | None = None,
    tolerance: Tolerance | None = None,
) -> Report:
    """Check that a training step does not show the model the tokens that it must predict.

    With teacher forcing, the labels are the inputs shifted by one position. A causal model whose
    labels were not shifted predicts the token that it has just read: its loss falls to zero, and
    it has learned to copy. If the labels are shifted twice, by the program and by the model, it
    learns to leave out every other token. No check of the model alone can find either.

    Each token is changed in turn. The outputs whose label changes with it must not change. Then all
    tokens of one row are changed: an output must depend on the row that its label is from.

    Args:
        step: The training step up to the loss: a function from the token ids of a batch, of shape
            (B, L), to the logits, of shape (B, N, V), and the labels, of shape (B, N), that enter
            the loss. It divides the tokens into inputs and labels as the training program does.
            Random numbers, such as those of dropout, are the same in each call.
        tokens: Token ids, of shape (B, L), with at least two different ones: those of the target,
            if there is a source too.
        padding_id: Id of the padding token, which is not changed; None if there is no padding.
        tolerance: Largest change that is ignored; see :func:`check_causal`.

    Returns:
        A report of the outputs that depend on their own label. It has one violation if no output
        depends on the token before its label.

    Raises:
        TypeError: If an argument is of the wrong type, or ``step`` returns no logits and labels.
        ValueError: If shapes do not fit, or ``tokens`` holds only one id.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.inspection import check_labels
        >>> lstm, embedding = nn.LSTM(8, 8, batch_first=True), nn.Embedding(10, 8)
        >>> def shifted(tokens):
        ...     x, _ = lstm(embedding(tokens[:, :-1]))
        ...     return x @ embedding.weight.T, tokens[:, 1:]
        >>> tokens = torch.tensor([[1, 5, 3, 2]])
        >>> print(check_labels(shifted, tokens))
        labels: no violation found
        >>> def not_shifted(tokens):
        ...     x, _ = lstm(embedding(tokens))
        ...     return x @ embedding.weight.T, tokens
        >>> print(check_labels(not_shifted, tokens))  # doctest: +ELLIPSIS
        labels: 4 violations found
          output 0 of row 0 depends on its label, the token at position 0: it changes by ...
        ...
    """

    def run(tokens: Tensor) -> tuple[Tensor, Tensor]:
        with torch.random.fork_rng(devices=[tokens.device] if tokens.is_cuda else []):
            torch.manual_seed(0)
            result = step(tokens.clone())
        pair = tuple(result) if isinstance(result, tuple | list) else ()
        if len(pair) != 2 or not all(isinstance(each, Tensor) for each in pair):
            raise_type_error("step", "a function that returns logits and labels", result)
        logits, labels = pair
        if logits.dim() != 3 or labels.shape != logits.shape[:2]:
            raise ValueError(
                "step must return logits and labels of shapes (B, N, V) and (B, N), "
                f"got {tuple(logits.shape)} and {tuple(labels.shape)}"
            )
        return logits.clone(), labels.clone()

    real = torch.ones_like(tokens, dtype=torch.bool) if padding_id is None else tokens != padding_id
    logits, labels = run(tokens)
    if problem := find_instability(logits, run(tokens)[0], tolerance):
        return Report("labels", (problem,))
    problems, scales = [], measure_scales(logits)
    before = torch.zeros_like(labels, dtype=torch.bool)  # outputs that depend on the last position
    is_label = follows = False
    for position in range(tokens.shape[1]):
        changed = tokens.clone()
        other = perturb(tokens[:, position], tokens[real], seed=position)
        changed[:, position] = torch.where(real[:, position], other, tokens[:, position])
        outputs, targets = run(changed)
        sizes = measure_changes(logits, outputs, tolerance, scales=scales).amax(dim=2)
        own = (targets != labels).cpu()  # the outputs that must predict this token
        problems += [
            f"output {output} of row {row} depends on its label, the token at position {position}: "
            f"it changes {describe(float(sizes[row, output]))}"
            for row, output in (own & (sizes > 0)).nonzero().tolist()
        ]
        is_label |= bool(own.any())
        follows |= bool((own & before.cpu()).any())
        before = sizes > 0
    for row in range(len(tokens)) if is_label and follows else ():
        changed = torch.where(real[row], perturb(tokens[row], tokens[real], seed=0), tokens[row])
        outputs, targets = run(
            tokens.index_copy(0, torch.tensor([row]).to(real.device), changed[None])
        )
        sizes = measure_changes(logits, outputs, tolerance, scales=scales)
        other = (targets != labels).any(1).cpu() & ~sizes.flatten(1).any(1)
        problems += [
            f"the labels of row {number} are tokens of row {row}, on which no output of it depends"
            for number in other.nonzero().flatten().tolist()
        ]
    if not is_label:
        problems.append("no label changes with a token")
    elif not follows:
        problems.append(
            "no output depends on the token before its label; the labels may be shifted twice"
        )
    return Report("labels", tuple(problems))


@checked
def check_loss(
    function: Function[Callable[[Parts], Tensor | None]],
    logits: Annotated[Tensor, Vectors("B L V")],
    target: Annotated[Tensor, Ids("B L")],
    *,
    padding_id: int,
    tolerance: Tolerance | None = None,
) -> Report:
    """Check that padding does not count in a loss, however its batch is divided.

    A large batch is divided into *micro-batches*, whose gradients are accumulated, or among the
    *ranks* of distributed training. Every token has the same weight only if the sum of all losses
    is divided by the number of target tokens of the whole batch. The mean of the means of unequal
    parts is another number, and no error shows it.

    Args:
        function: Computes the loss of a whole batch as the training program does. It receives the
            parts of the batch, (logits, target) of each micro-batch or rank, of shapes (B_i, L, V)
            and (B_i, L), and returns the loss, a scalar. Or it calls ``backward`` itself and
            returns None; then gradients alone are compared.
        logits: Logits of the whole batch, of shape (B, L, V).
        target: Target ids, int64, of shape (B, L), with padding; rows differ in length.
        padding_id: Id of the padding token.
        tolerance: Largest difference that is ignored, relative to the loss and to the largest
            gradient. The default depends on the dtype, eps ** 0.75.

    Returns:
        A report of the violations.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If shapes do not fit, or ``target`` holds no padding or only padding.

    Example:
        >>> import torch
        >>> import torch.nn.functional as F
        >>> from transformer_blocks.inspection import check_loss
        >>> logits, target = torch.randn(3, 4, 10), torch.randint(1, 10, (3, 4))
        >>> target[1, 1:] = target[2, 2:] = 0  # padding
        >>> def mean_of_means(parts):
        ...     losses = [F.cross_entropy(z.mT, y, ignore_index=0) for z, y in parts]
        ...     return sum(losses) / len(losses)
        >>> bool(check_loss(mean_of_means, logits, target, padding_id=0))
        False
        >>> def mean(parts):
        ...     count = sum((y != 0).sum() for _, y in parts)
        ...     return (
        ...         sum(F.cross_entropy(z.mT, y, ignore_index=0, reduction="sum") for z, y in parts)
        ...         / count
        ...     )
        >>> print(check_loss(mean, logits, target, padding_id=0))
        loss: no violation found
    """
    real = target != padding_id
    if bool(real.all()) or not bool(real.any()):
        raise ValueError(
            f"target must hold padding and real tokens, got {int((~real).sum())} of "
            f"{real.numel()} ids equal to padding_id={padding_id}"
        )
    if tolerance is None:
        tolerance = torch.finfo(logits.dtype).eps ** 0.75
    rows, length = target.shape
    whole = _differentiate(function, logits, target)
    if not _are_finite(whole):
        return Report("loss", ("the loss or its gradient is not finite",))

    def compare(what: str, *batch: Tensor) -> list[str]:
        """Describe how the loss of another batch, or of other parts, differs."""
        other, problems = _differentiate(function, *batch), []
        if not _are_finite(other):
            return [f"the loss is not finite {what}"]
        if "gradient" in other:
            other["gradient"] = other["gradient"][:rows, :length]
        for name in whole.keys() & other.keys():
            pair = [
                each[name][real] if name == "gradient" else each[name] for each in (whole, other)
            ]
            difference = float(measure_relative_differences(*pair).max())
            if difference > tolerance:
                problems.append(
                    f"the {name} changes by up to {difference:.2g} of its largest number, {what}"
                )
        return problems

    problems = []
    if "gradient" in whole and bool(whole["gradient"][~real].any()):
        problems.append("the gradient of logits at padded targets is not zero")
    noise = perturb(logits, logits, seed=1)
    other = torch.where(real[..., None], logits, noise)
    problems += compare("if the logits at padded targets change", other, target)
    problems += compare(
        "with three more positions of padding",
        torch.cat([logits, noise[:, :1].repeat(1, 3, 1)], dim=1),
        torch.cat([target, target.new_full((rows, 3), padding_id)], dim=1),
    )
    if rows > 1:
        problems += compare("if each row is a part of its own", logits, *target.split(1))
    if rows > 1 and "loss" in whole:  # a mean, or a sum, over tokens
        used = real.any(dim=1).nonzero().flatten().tolist()
        losses = [_differentiate(function, logits[[row]], target[[row]])["loss"] for row in used]
        counts, alone, loss = real.sum(1)[used].cpu(), torch.stack(losses), whole["loss"]
        mean = counts.to(alone) @ alone / counts.sum()
        limit = 4 * tolerance * float(torch.cat([alone, loss[None]]).abs().max())
        if min(float((loss - mean).abs()), float((loss - alone.sum()).abs())) > limit:
            problems.append(
                f"the loss of the batch is {float(loss):.4g}, and the mean of the losses of its "
                f"rows, weighted by their tokens, {float(mean):.4g}"
            )
    padding = torch.full_like(target[:1], padding_id)
    problems += compare(
        "if another part is all padding", torch.cat([logits, noise[:1]]), target, padding
    )
    return Report("loss", tuple(problems))


def _differentiate(
    function: Callable[[Parts], Tensor | None], logits: Tensor, *targets: Tensor
) -> dict[str, Tensor]:
    """Compute the loss of a batch that is divided into parts, and its gradient, as far as known."""
    leaf = logits.detach().clone().requires_grad_()
    pieces = leaf.split([len(target) for target in targets])
    with torch.enable_grad():
        loss = function(
            [(each, target.clone()) for each, target in zip(pieces, targets, strict=True)]
        )
        if loss is not None and not isinstance(loss, Tensor):
            loss = torch.tensor(float(loss))
        if loss is not None and loss.requires_grad and leaf.grad is None:
            loss.sum().backward()
    found = {"loss": None if loss is None else to_float64(loss.detach().sum())}
    return {k: v for k, v in (found | {"gradient": leaf.grad}).items() if v is not None}


def _are_finite(found: Mapping[str, Tensor]) -> bool:
    return all(bool(each.isfinite().all()) for each in found.values())
