"""The table of properties: how each is checked, and what to do if it is violated."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from torch import nn

from transformer_blocks._contracts import Factory, Function, Size, checked
from transformer_blocks.generation import StepModel
from transformer_blocks.inspection.changes import evaluation
from transformer_blocks.inspection.comparison import NotTriedError, Tolerance, find_tensors
from transformer_blocks.inspection.soundness import (
    batches,
    cached_steps,
    copies,
    dependence,
    padding,
    training,
)
from transformer_blocks.inspection.soundness.reading import read_inputs
from transformer_blocks.inspection.soundness.report import Report, Soundness
from transformer_blocks.inspection.soundness.tested import Passes, TestedModel, first_line
from transformer_blocks.models import LanguageModel, Seq2Seq

HINT = "outputs depend on later positions; pass causal=True if they must not"
OTHER_HINT = "no output may depend on a later position; pass causal=False if it may"
UNEQUAL = "the outputs of equal calls must be equal and finite first"


class Property(NamedTuple):
    """A row of the table.

    Attributes:
        check: Function that returns a sentence for each violation.
        advice: What to do if the property is violated.
        of_model: Whether it is a property of a model; if not, it must be asked for by its name.
    """

    check: Callable[[TestedModel], list[str]]
    advice: str
    of_model: bool = True


PROPERTIES = {
    "determinism": Property(
        batches.check_determinism,
        "call eval(), keep nothing of a call in the model, and give each row a key that is not "
        "masked",
    ),
    "causality": Property(
        dependence.check_causality,
        "pass a causal mask to each attention, True where a key comes later; then look for "
        "operations along the sequence: norms, convolutions, shifts, means over blocks",
    ),
    "order": Property(
        dependence.check_order, "add positions, one for each token, or rotate queries and keys"
    ),
    "mask polarity": Property(
        padding.check_polarity, "invert the mask where the model receives or uses it"
    ),
    "padding": Property(
        padding.check_padding_content,
        "mask padded keys in each attention, and leave padding out of means and norms",
    ),
    "padding amount": Property(
        padding.check_padding_amount,
        "compute nothing from the padded length; use the mask's lengths",
    ),
    "padding side": Property(
        padding.check_padding_side,
        "count positions from the first real token, as the mask's sum along it",
    ),
    "batch": Property(
        batches.check_batch,
        "set batch_first=True; look for reductions, norms or indices along the batch",
    ),
    "cache": Property(
        cached_steps.check_cache,
        "check causality first; then compare positions, masks and cached keys of the step that is "
        "named with the full pass",
    ),
    "dtype": Property(
        copies.check_dtype,
        "convert constants to the inputs' dtype, and sum in float32 where it overflows",
    ),
    "device": Property(
        copies.check_device, "register the tensor as a buffer, or make it on x.device"
    ),
    "initialisation": Property(
        copies.check_initialisation, "make each layer anew instead of copying one"
    ),
    "loading": Property(
        copies.check_loading,
        "save all that outputs depend on in the state dict, and tie weights again after loading",
    ),
    "labels": Property(
        training.check_labels,
        "shift the labels by one, logits[:, :-1] and tokens[:, 1:], exactly once",
        False,
    ),
    "loss": Property(
        training.check_loss,
        "divide the sum over real tokens of all parts by the number of these",
        False,
    ),
}
"""The properties, in the order of the table."""


@checked
def check_soundness(
    model: Function[Callable[..., Any]],
    inputs: Any,
    *,
    only: str | Collection[str] | None = None,
    probes: Size | None = None,
    causal: bool | None = None,
    recursive: bool = False,
    padding_id: int | None = None,
    new_step_model: Factory[Callable[[], StepModel]] | None = None,
    tolerance: Tolerance | None = None,
) -> Soundness:
    """Check that a model is sound; report what holds, what does not, and what was not tried.

    The inputs say what the model receives in practice. Their best form is a batch of two or more
    sequences of different lengths, with the masks that tell the model of the padding. The checks
    make other batches from them: single rows, rows in another order, more padding, padding on the
    other side, changed tokens. The properties are:

    - determinism: Equal calls give equal and finite outputs, and do not modify the inputs.
    - causality: No output depends on a later position, and outputs depend on earlier ones.
    - order: Outputs depend on the order of the ids, and not only on which ones there are.
    - mask polarity: The mask hides padding, and not the real tokens.
    - padding: What stands at padded positions does not change the outputs of real tokens.
    - padding amount: More padding on the same side changes nothing.
    - padding side: Padding on the other side changes nothing, if the model can be told of it.
    - batch: Each row has the outputs that it has alone and without padding.
    - cache: Cached decoding steps give the outputs of one full pass.
    - dtype: float64 gives the same outputs, half precision close and finite ones.
    - device: Every tensor moves with the model to another device, the meta device.
    - initialisation: No two matrices hold the same random values, as those of copied layers do.
    - loading: Loading the state dict restores the outputs and keeps tied weights tied.
    - labels: A training step does not show the model the tokens that it must predict.
    - loss: Padding does not count in a loss, however its batch is divided.

    The last two are of a training program, and are checked only if they are asked for, one at a
    time: ``model`` is then the training step up to the loss, from ids (B, L) to logits (B, N, V)
    and labels (B, N), for ``only="labels"``; or the loss, for ``only="loss"``, whose inputs are
    ``(logits, target)`` of shapes (B, L, V) and (B, L), with ``padding_id``. It receives a list of
    such pairs, the micro-batches or ranks of one batch, and returns the loss of all, or calls
    ``backward`` itself and returns None.

    In a long sequence, sixteen positions are changed, and those beside the borders of blocks of 64,
    128 ... positions; then all tokens from a position on. On a CPU, causality is also checked for
    up to 130 tokens more than the inputs have, as far as the model accepts them: a leak may need a
    whole block.

    A property without a violation is not proven: the checks see one batch. A property that cannot
    be tried, such as that of a mask which the inputs do not have, is neither a violation nor a
    success, and its report says why. The model is set to evaluation mode during the checks; its
    mode, its parameters, the state of the random number generators and the default dtype are as
    before afterwards.

    With ``probes``, the check is cheap enough for every evaluation of a training. Determinism is
    checked first, by two passes. The properties share the others, and the report of each says what
    it may miss. Causality is checked by changing all tokens from several positions on, one in each
    row, and that outputs depend on earlier tokens is not checked. The cache is checked by one pass
    of most tokens, and by steps.

    Args:
        model: A module, of these blocks or not, or any function. A function has no parameters, so
            that the four checks from dtype to loading are not tried, and its modules must be in
            evaluation mode. The output is a tensor whose first dimension is the batch; of a tuple,
            a mapping or a Hugging Face output, the logits, the last hidden state or the first
            tensor is compared.
        inputs: A tensor (``model(x)``), a tuple (``model(*args)``) or a mapping
            (``model(**kwargs)``). Sequences are ids of shape (B, L) or vectors of shape
            (B, L, size). Padding masks have shape (B, L), (B, 1, L) or (B, 1, 1, L), those of
            queries and keys (L, S), (B, L, S), (B * H, L, S) or (B, H, L, S), where B may be 1;
            which of their values marks a real token is found by the longest row, which has no
            padding, or by the content, which is the same wherever there is padding.
        only: Titles of the properties to check, or one title; all of a model by default.
        probes: Largest number of forward passes, cached steps included; by default, there are a few
            dozen. Calls that the model refuses, as of more tokens than it accepts, do not count.
        causal: Whether no output may depend on a later position. If None, it is found out, from
            the masks and settings in the inputs, and from the positions on which outputs depend;
            or it is true, if ``only`` names causality, or if ``probes`` or ``new_step_model`` is
            given.
        recursive: Whether the model uses one layer several times on purpose.
        padding_id: Id of the padding token, if the model finds padding by its id; that of a
            ``LanguageModel`` or ``Seq2Seq`` of this package is known.
        new_step_model: Function or class without arguments that returns the model as a
            :class:`~transformer_blocks.generation.StepModel` with an empty cache, ready to decode
            the rows of the inputs. The caches of ``LanguageModel``, ``Seq2Seq`` and
            Hugging Face's models are found without it; of any other model, such as a recurrent
            network whose state it is, pass it.
        tolerance: Largest change that is ignored, in standard deviations of the outputs. The
            default is 1e-4 in float32, and 1e-5 where both batches have the same shape, so that
            rounding is the same.

    Returns:
        The reports, which are true if there is no violation. They print as a table, and a notebook
        shows them as one where they are the last line of a cell.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If the inputs hold no batch of two dimensions or more, or is empty, if what a
            padding mask means cannot be told, if the model returns no tensor with one entry for
            each row, or if either is on the meta device, whose tensors have no values.
        Exception: What the model raises if it is called with the inputs.

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
        padding: not tried: the inputs have neither a padding mask nor lengths; ...
        >>> print(check_soundness(layer, example, only="causality")["causality"])
        ... # doctest: +ELLIPSIS
        causality: 6 violations found
          position 0 of row 0 changes with position 1, which comes later, by ... deviations
        ...
        >>> check_soundness(layer, example, only="causality", probes=8).violated
        ('causality',)
    """
    titles = find_titles(only)
    if padding_id is None and isinstance(model, LanguageModel | Seq2Seq):
        padding_id = model.padding_id
    parts = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    for name, held in (("model", parts), ("inputs", inputs)):
        if any(each.is_meta for each in find_tensors(held)):
            raise ValueError(f"{name} must have values to compare, got tensors on the meta device")
    must_be_causal = bool(only and "causality" in titles) or new_step_model is not None
    tested = TestedModel(
        model,
        read_inputs(model, inputs, padding_id),
        tolerance,
        Passes(probes, probes),
        causal=causal if causal is not None or not must_be_causal else True,
        recursive=recursive,
        new_step_model=new_step_model,
    )
    with evaluation(model):
        if not PROPERTIES[titles[0]].of_model:
            return Soundness(titles[0], tuple(run_check(each, tested) for each in titles))
        try:  # inputs that the model refuses raise its error
            _ = tested.output
        except NotTriedError as reason:
            raise ValueError(f"{reason}; nothing can be compared") from None
        if labels := find_labels(tested):
            tested.inputs = read_inputs(model, inputs, padding_id, labels)
        find_positions(tested)
        reports = run_checks(titles, tested)
    note = ""
    if causal is None and only is None:
        is_leaky = "causality" in {each.title for each in reports if each.problems}
        note = HINT if tested.kind == "encoder" else OTHER_HINT if is_leaky else ""
    return Soundness(tested.kind, reports, note)


def find_titles(only: str | Collection[str] | None) -> list[str]:
    """Return the titles of the properties to check, in the order of the table."""
    if only is None:
        return [title for title, each in PROPERTIES.items() if each.of_model]
    named = {only} if isinstance(only, str) else {*only}
    titles = [title for title in PROPERTIES if title in named]
    if not titles or len(titles) < len(named) or len({PROPERTIES[t].of_model for t in titles}) > 1:
        raise ValueError(
            f"only must name some of {', '.join(find_titles(None))}; "
            f"or be 'labels' or 'loss', got only={only!r}"
        )
    return titles


def run_checks(titles: list[str], tested: TestedModel) -> tuple[Report, ...]:
    """Check determinism, find the kind of the model where it matters, and check the others."""
    determinism = run_check("determinism", tested)
    others = [title for title in titles if title != "determinism"]
    if not determinism or determinism.not_tried:
        reports = [Report(title, not_tried=determinism.not_tried or UNEQUAL) for title in others]
        if "mask polarity" in others and (polarity := run_check("mask polarity", tested)).problems:
            reports[others.index("mask polarity")] = polarity
        return determinism, *reports
    if {"causality", "cache"} & {*others}:
        tested.kind, tested.reason = find_kind(tested)
    reports = [determinism] if "determinism" in titles else []
    for number, title in enumerate(others):
        tested.passes.share(len(others) - number)
        reports.append(run_check(title, tested))
    return tuple(reports)


def run_check(title: str, tested: TestedModel) -> Report:
    """Run a check; if it cannot be run, report the reason."""
    row = PROPERTIES[title]
    try:
        problems = tuple(row.check(tested))
    except NotTriedError as reason:
        return Report(title, not_tried=str(reason))
    except Exception as error:
        if not row.of_model:
            raise
        return Report(
            title, not_tried=f"the model raised {type(error).__name__}: {first_line(error)}"
        )
    advice = row.advice if problems else ""
    return Report(title, problems, "", advice, tested.notes.get(title, ""))


def find_labels(tested: TestedModel) -> set[str]:
    """Find sequences as long as another one that no output depends on: labels, for a loss."""
    inputs = tested.inputs
    lengths, labels = [group.length for group in inputs.groups], set[str]()
    for number, group in enumerate(inputs.groups):
        if lengths.count(group.length) > 1:
            before = tested.outputs(inputs)
            try:
                after = tested.outputs(inputs.changed(number, group.real, seed=0))
                is_read = any(tested.find_changes(before, after))
            except Exception:  # of one id only, or whatever a model raises
                is_read = True
            names = {inputs.arguments[place].name for place in inputs.contents(number)}
            labels |= set() if is_read else names
    return labels if len(labels) < len(inputs.groups) else set()


def find_positions(tested: TestedModel) -> None:
    """Find the sequence to whose positions the outputs belong, and those of a fixed length.

    Shortened, it shortens the outputs. If passes are limited, its length decides.
    """
    inputs, output = tested.inputs, tested.output
    unknown, found = {*range(len(inputs.groups))}, None
    for number, group in enumerate(inputs.groups if tested.passes.limit is None else ()):
        row = group.longest
        tokens = int(group.real[row].sum())
        if tokens < 2:
            unknown.discard(number)
            continue
        try:
            batches = [inputs.alone(row, row, without=without) for without in (None, number)]
            shapes = [tested(each).shape for each in batches]
        except Exception:
            tested.fixed |= {number}
            continue
        unknown.discard(number)
        if [shape[1:2] for shape in shapes] == [(tokens,), (tokens - 1,)]:
            found = number
    if found is None and output.dim() > 2:
        fitting = [number for number in unknown if inputs.groups[number].length == output.shape[1]]
        found = max(fitting, default=None)
        tested.resampled = bool(inputs.groups) and found is None
    tested.group = found


def find_kind(tested: TestedModel) -> tuple[str, str]:
    """Find out what kind of model it is, and why causality cannot be checked, if it cannot."""
    group, groups = tested.group, tested.inputs.groups
    if tested.resampled:
        return "sequence to sequence of another length", padding.RESAMPLED
    if group is None:
        reason = "there is one output for each row, not one for each position"
        return "sequence to vector" if groups else "rows of a fixed size", reason
    has_source = len(groups) > 1
    if tested.passes.limit is None:
        try:
            found = tested.dependence = dependence.find_dependence(tested, group)
        except NotTriedError as reason:
            return "unknown", str(reason)
        if not bool(found.later.any() | found.earlier.any()) and not tested.causal:
            kind = "encoder-decoder" if has_source else "position-wise"
            return kind, "no output depends on another position"
        if tested.causal is None:
            tested.causal = dependence.is_causal(tested, group, found)
    is_encoder = tested.causal is False
    kind = "encoder-decoder" if has_source else "encoder" if is_encoder else "causal"
    return kind, "the model is an encoder" if is_encoder else ""


def assert_sound(model: Callable[..., Any], inputs: Any, **options: Any) -> Soundness:
    """Assert that a model is sound; raise an error with the table of reports if it is not.

    It takes the arguments of :func:`check_soundness`. In tests that use pytest, the fixture
    ``assert_sound`` does the same.

    Returns:
        The reports, without a violation.

    Raises:
        AssertionError: If a property does not hold.
        TypeError: If an argument is of the wrong type.
        ValueError: If the inputs hold no batch.

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
    soundness = check_soundness(model, inputs, **options)
    if not soundness:
        raise AssertionError(f"violated: {', '.join(soundness.violated)}\n{soundness!r}")
    return soundness
