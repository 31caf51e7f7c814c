"""The table: run all checks on one model, and format what they found."""

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import Factory, Function, Mask, checked
from transformer_blocks._tables import html_table
from transformer_blocks.generation import StepModel
from transformer_blocks.inspection.changes import evaluation
from transformer_blocks.inspection.comparison import Tolerance, find_tensors
from transformer_blocks.inspection.soundness.batches import check_batch, check_determinism
from transformer_blocks.inspection.soundness.checks import Report, list_first
from transformer_blocks.inspection.soundness.copies import (
    check_device,
    check_dtype,
    check_initialisation,
    check_loading,
)
from transformer_blocks.inspection.soundness.decoding import check_steps
from transformer_blocks.inspection.soundness.dependence import (
    check_causality,
    check_order,
    find_dependence,
    is_causal,
)
from transformer_blocks.inspection.soundness.example import NotTriedError
from transformer_blocks.inspection.soundness.padding import (
    RESAMPLED,
    check_padding_amount,
    check_padding_content,
    check_padding_side,
)
from transformer_blocks.inspection.soundness.polarity import check_polarity
from transformer_blocks.inspection.soundness.reading import read_example
from transformer_blocks.inspection.soundness.subject import Subject, first_line
from transformer_blocks.models import LanguageModel, Seq2Seq

HINT = "outputs depend on later positions; pass causal=True if they must not"
OTHER_HINT = "no output may depend on a later position; pass causal=False if it may"
WIDTH = 100  # columns of a printed table


@dataclass(frozen=True)
class Soundness:
    """The reports of all checks of a model; true if no violation was found.

    Attributes:
        kind: The kind of model that was found: ``"encoder"``, ``"causal"``, ``"encoder-decoder"``,
            ``"position-wise"``, ``"sequence to vector"``, ``"sequence to sequence of another
            length"``, ``"rows of a fixed size"`` or ``"unknown"``.
        reports: A report for each property, in the order of the table.
        note: Why it was taken for this kind, where that is not certain.
    """

    kind: str
    reports: tuple[Report, ...]
    note: str = ""

    @property
    def violated(self) -> tuple[str, ...]:
        """Titles of the properties that do not hold."""
        return tuple(report.title for report in self.reports if report.problems)

    @property
    def not_tried(self) -> tuple[str, ...]:
        """Titles of the properties that could not be checked."""
        return tuple(report.title for report in self.reports if report.not_tried)

    def __bool__(self) -> bool:
        return not self.violated

    def __getitem__(self, title: str) -> Report:
        return {report.title: report for report in self.reports}[title]

    @property
    def _summary(self) -> str:
        return f"kind: {self.kind}" + (f" ({self.note})" if self.note else "")

    def _rows(self) -> list[tuple[str, str, str]]:
        rows = [("check", "result", "details")]
        for report in self.reports:
            if report.not_tried:
                rows.append((report.title, "not tried", report.not_tried))
            elif not report.problems:
                rows.append((report.title, "holds", ""))
            else:
                first, *others = list_first(report.problems)
                rows.append((report.title, "VIOLATED", first))
                rows += [("", "", problem) for problem in others]
        return rows

    def __repr__(self) -> str:
        """Format the reports as a table."""
        rows = self._rows()
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = [self._summary]
        for title, result, details in rows:
            start = f"{title:{widths[0]}}  {result:{widths[1]}}  "
            for line in wrap(details, WIDTH - len(start)) or [""]:
                lines.append(f"{start}{line}".rstrip())
                start = " " * len(start)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Format the reports as a table in a notebook."""
        return html_table(self._summary, self._rows())


@checked
def check_soundness(
    model: Function[Callable[..., Any]],
    example: Any,
    *,
    causal: bool | None = None,
    dependence_mask: Mask | None = None,
    recursive: bool = False,
    padding_id: int | None = None,
    new_step_model: Factory[Callable[[], StepModel]] | None = None,
    tolerance: Tolerance | None = None,
) -> Soundness:
    """Check that a model is sound; report what holds, what does not, and what was not tried.

    The example says what the model receives in practice. Its best form is a batch of two or more
    sequences of different lengths, with the masks that tell the model of the padding. From it, the
    checks make other batches: single rows, rows in another order, more padding, padding on the
    other side, changed tokens. The properties are:

    ================== ========================================================================
    determinism        Equal calls give equal and finite outputs, and do not modify the inputs.
    causality          No output depends on a later position, and outputs depend on earlier ones.
    order              Outputs depend on the order of the ids, and not only on which ones there are.
    mask polarity      The mask hides padding, and not the real tokens.
    padding            What stands at padded positions does not change the outputs of real tokens.
    padding amount     More padding on the same side changes nothing.
    padding side       Padding on the other side changes nothing, if the model can be told of it.
    batch              Each row has the outputs that it has alone and without padding.
    cache              Cached decoding steps give the outputs of one full pass.
    dtype              float64 gives the same outputs, half precision close and finite ones.
    device             Every tensor moves with the model to another device, the meta device.
    initialisation     No two matrices hold the same random values, as those of copied layers do.
    loading            Loading the state dict restores the outputs and keeps tied weights tied.
    ================== ========================================================================

    In a long sequence, sixteen positions are changed, and those beside the borders of blocks of 64,
    128 ... positions. On a CPU, causality is also checked for up to 130 tokens more than the
    example has, as far as the model accepts them: a leak may need a whole block.

    A property without a violation is not proven: the checks see one example. A property that cannot
    be tried, such as that of a mask which the example does not have, is neither a violation nor a
    success, and its report says why. The model is set to evaluation mode during the checks; its
    mode, its parameters, the state of the random number generators and the default dtype are as
    before afterwards.

    Args:
        model: A module, of these blocks or not, or any function. A function has no parameters, so
            that the last four checks are not tried, and its modules must be in evaluation mode.
            The output is a tensor whose first dimension is the batch; of a tuple, a mapping or a
            Hugging Face output, the logits, the last hidden state or the first tensor is compared.
        example: A tensor (``model(x)``), a tuple (``model(*args)``) or a mapping
            (``model(**kwargs)``). Sequences are ids of shape (B, L) or vectors of shape
            (B, L, size). Padding masks have shape (B, L), (B, 1, L) or (B, 1, 1, L), those of
            queries and keys (L, S), (B, L, S), (B * H, L, S) or (B, H, L, S), where B may be 1;
            which of their values marks a real token is found from the example.
        causal: Whether no output may depend on a later position. If None, it is found out: from
            the masks and settings in the example, and from the positions on which outputs depend.
        dependence_mask: Boolean mask of outputs and inputs, of shape (L, L) or (B|1, 1, L, L); True
            where an output must not depend on an input. It replaces ``causal`` where the rule is
            another one, for example block-causal, or causal in each of several packed documents:
            ``packed_mask(documents) | causal_mask(L)``.
        recursive: Whether the model uses one layer several times on purpose.
        padding_id: Id of the padding token, if the model finds padding by its id; that of a
            ``LanguageModel`` or ``Seq2Seq`` of this package is known.
        new_step_model: Function or class without arguments that returns the model as a
            :class:`~transformer_blocks.generation.StepModel` with an empty cache, ready to decode
            the rows of the example. The caches of ``LanguageModel``, ``Seq2Seq`` and
            Hugging Face's models are found without it.
        tolerance: Largest change that is ignored, in standard deviations of the outputs. The
            default is 1e-4 in float32, and 1e-5 where both batches have the same shape, so that
            rounding is the same.

    Returns:
        The reports, which are true if there is no violation. They print as a table, and a notebook
        shows them as one where they are the last line of a cell.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If the example holds no batch of two dimensions or more, or is empty, or if the
            model returns no tensor with one entry for each row, or if either is on the meta device,
            whose tensors have no values.
        Exception: What the model raises if it is called with the example.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.inspection import check_soundness
        >>> layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, batch_first=True)
        >>> padding = torch.tensor([[False, False, False], [False, False, True]])
        >>> example = {"src": torch.randn(2, 3, 16), "src_key_padding_mask": padding}
        >>> soundness = check_soundness(layer, example)
        >>> soundness.kind, soundness.violated, soundness.not_tried
        ('encoder', (), ('causality', 'order', 'cache'))
        >>> del example["src_key_padding_mask"]  # the model is told of no padding
        >>> print(check_soundness(layer, example)["padding"])  # doctest: +ELLIPSIS
        padding: not tried: the example has neither a padding mask nor lengths; ...
        >>> print(check_soundness(layer, example, causal=True)["causality"])  # doctest: +ELLIPSIS
        causality: 6 violations found
          position 0 of row 0 changes with position 1, which comes later, by ... deviations
        ...
    """
    if padding_id is None and isinstance(model, LanguageModel | Seq2Seq):
        padding_id = model.padding_id
    parts = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    given = {"example": example, "dependence_mask": dependence_mask}
    for name, held in {"model": parts, **given}.items():
        if any(each.is_meta for each in find_tensors(held)):
            raise ValueError(f"{name} must have values to compare, got tensors on the meta device")
    subject = Subject(
        model, read_example(model, example, padding_id), tolerance, recursive=recursive
    )
    with evaluation(model):
        try:  # an example that the model refuses raises its error
            subject(subject.example)
        except NotTriedError as reason:
            raise ValueError(f"{reason}; nothing can be compared") from None
        find_positions(subject)
        if dependence_mask is not None:
            subject.dependence_mask = fit_mask(dependence_mask, subject)
        return _examine(subject, causal, new_step_model)


def _examine(
    subject: Subject, causal: bool | None, new_step_model: Callable[[], StepModel] | None
) -> Soundness:
    checks: dict[str, Callable[[Subject], list[str]]] = {
        "order": check_order,
        "mask polarity": check_polarity,
        "padding": check_padding_content,
        "padding amount": check_padding_amount,
        "padding side": check_padding_side,
        "batch": check_batch,
        "cache": lambda subject: check_steps(
            subject, kind != "encoder" and not causality.not_tried, new_step_model
        ),
        "dtype": check_dtype,
        "device": check_device,
        "initialisation": check_initialisation,
        "loading": check_loading,
    }
    determinism = run_check("determinism", check_determinism, subject)
    if not determinism or determinism.not_tried:
        reason = "the outputs of equal calls must be equal and finite first"
        reports = {title: Report(title, (), reason) for title in ("causality", *checks)}
        polarity = run_check("mask polarity", check_polarity, subject)
        if polarity.problems:
            reports["mask polarity"] = polarity
        return Soundness("unknown", (determinism, *reports.values()))
    kind, causality = find_kind(subject, causal)
    others = [run_check(title, function, subject) for title, function in checks.items()]
    note = ""
    if causal is None and subject.dependence_mask is None:
        note = HINT if kind == "encoder" else OTHER_HINT if causality.problems else ""
    return Soundness(kind, (determinism, causality, *others), note)


def find_positions(subject: Subject) -> None:
    """Find the sequence to whose positions the outputs belong, and those of a fixed length."""
    example = subject.example
    fixed, found = set(), None
    for number, group in enumerate(example.groups):
        row = group.longest
        tokens = int(group.real[row].sum())
        if tokens < 2:
            continue
        try:
            examples = [example.alone(row, row, without=without) for without in (None, number)]
            shapes = [subject(each).shape for each in examples]
        except Exception:
            fixed.add(number)
            continue
        if [shape[1:2] for shape in shapes] == [(tokens,), (tokens - 1,)]:
            found = number
    subject.fixed = frozenset(fixed)
    output = subject(example)
    if found is None and output.dim() > 2:
        fitting = [n for n in fixed if example.groups[n].length == output.shape[1]]
        found = fitting[0] if fitting else None
        subject.resampled = bool(example.groups) and found is None
    subject.group = found


def fit_mask(mask: Tensor, subject: Subject) -> Tensor:
    """Return the mask of outputs and inputs with shape (B | 1, 1, L, L), with all its elements."""
    rows = subject.example.batch_size
    length = 0 if subject.group is None else subject.example.groups[subject.group].length
    shape = tuple(mask.shape) if mask.dim() == 4 else (1, 1, *mask.shape)
    if shape[0] not in (1, rows) or shape[1:] != (1, length, length):
        raise ValueError(
            f"dependence_mask must have shape (L, L) or (B|1, 1, L, L) with B={rows} and "
            f"L={length}, got {tuple(mask.shape)}"
        )
    return mask.logical_or(mask).reshape(shape)  # also of a mask that does not store its elements


def find_kind(subject: Subject, causal: bool | None) -> tuple[str, Report]:
    """Find out what kind of model it is, and check causality."""
    title = "causality"
    group = subject.group
    if subject.resampled:
        return "sequence to sequence of another length", Report(title, (), RESAMPLED)
    if group is None:
        reason = "there is one output for each row, not one for each position"
        kind = "sequence to vector" if subject.example.groups else "rows of a fixed size"
        return kind, Report(title, (), reason)
    try:
        dependence = find_dependence(subject, group)
    except NotTriedError as reason:
        return "unknown", Report(title, (), str(reason))
    has_source = len(subject.example.groups) > 1
    mask = subject.dependence_mask
    if mask is not None:
        causal = True
    if not bool(dependence.later.any() | dependence.earlier.any()) and not causal:
        kind = "encoder-decoder" if has_source else "position-wise"
        return kind, Report(title, (), "no output depends on another position")
    if causal is None:
        causal = is_causal(subject, group, dependence)
    hides_later = causal and (mask is None or bool((mask | torch.ones_like(mask).tril()).all()))
    kind = "encoder-decoder" if has_source else "causal" if hides_later else "encoder"
    if not causal:
        return kind, Report(title, (), "the model is an encoder")
    return kind, run_check(
        title, lambda subject: check_causality(subject, group, dependence), subject
    )


def run_check(title: str, function: Callable[[Subject], list[str]], subject: Subject) -> Report:
    """Run a check; if it cannot be run, report the reason."""
    try:
        return Report(title, tuple(function(subject)))
    except NotTriedError as reason:
        return Report(title, (), str(reason))
    except Exception as error:
        return Report(title, (), f"the model raised {type(error).__name__}: {first_line(error)}")


def assert_sound(
    model: Callable[..., Any],
    example: Any,
    *,
    causal: bool | None = None,
    dependence_mask: Tensor | None = None,
    recursive: bool = False,
    padding_id: int | None = None,
    new_step_model: Callable[[], StepModel] | None = None,
    tolerance: float | None = None,
) -> Soundness:
    """Assert that a model is sound; raise an error with the table of reports if it is not.

    In tests that use pytest, the fixture ``assert_sound`` does the same.

    Args:
        model: See :func:`check_soundness`, as for all arguments.
        example: A batch as the model receives it.
        causal: Whether no output may depend on a later position; found out if None.
        dependence_mask: Where an output must not depend on an input, instead of ``causal``.
        recursive: Whether the model uses one layer several times on purpose.
        padding_id: Id of the padding token, if the model finds padding by its id.
        new_step_model: Function that returns the model as a step model with an empty cache.
        tolerance: Largest change that is ignored, in standard deviations of the outputs.

    Returns:
        The reports, without a violation.

    Raises:
        AssertionError: If a property does not hold.
        TypeError: If an argument is of the wrong type.
        ValueError: If the example holds no batch.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.inspection import assert_sound
        >>> assert_sound(nn.GRU(8, 8, batch_first=True), torch.randn(2, 5, 8)).kind
        'causal'
        >>> assert_sound(nn.GRU(8, 8), torch.randn(2, 5, 8))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        AssertionError: violated: batch
        kind: ...
    """
    soundness = check_soundness(
        model,
        example,
        causal=causal,
        dependence_mask=dependence_mask,
        recursive=recursive,
        padding_id=padding_id,
        new_step_model=new_step_model,
        tolerance=tolerance,
    )
    if not soundness:
        raise AssertionError(f"violated: {', '.join(soundness.violated)}\n{soundness!r}")
    return soundness
