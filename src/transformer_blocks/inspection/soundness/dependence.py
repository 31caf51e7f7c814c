"""Dependence: which outputs of a model change with which of its inputs, and causality.

A check of a property returns the violations as sentences, or raises :class:`NotTriedError` with the
reason why the property cannot be checked. This holds for the other files of this package too.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_blocks.inspection.comparison import NotTriedError, describe, is_valid
from transformer_blocks.inspection.soundness.inputs import Inputs, is_toeplitz
from transformer_blocks.inspection.soundness.tested import TestedModel

PROBED = 16  # positions of a long sequence that are changed, one at a time
ROUNDING = 1e-4  # change by rounding, as a part of a change that another token causes
DISTANCES = 7  # between tokens that change places; relative positions may be exact up to 8 only
GOLDEN = 0.6180339887  # the golden ratio, whose multiples are far apart
TOKENS = 512  # of a batch that is made of few
BLOCK = 64  # positions that kernels and chunked models compute at once; also 128, 256, ...


@dataclass(frozen=True)
class Dependence:
    """How much each output changes with each input, in standard deviations; zero if not at all.

    Attributes:
        sizes: Of shape (B, L, L): row, output position, input position.
        probed: Which input positions were changed, of shape (L,).
        real: Which positions hold real tokens, of shape (B, L).
    """

    sizes: Tensor
    probed: Tensor
    real: Tensor

    @property
    def later(self) -> Tensor:
        """Where an output depends on a later input, of shape (B, L, L)."""
        return self.sizes.gt(0).triu(1)

    @property
    def earlier(self) -> Tensor:
        """Where an output depends on an earlier input, of shape (B, L, L)."""
        return self.sizes.gt(0).tril(-1)


def find_dependence(tested: TestedModel, group: int) -> Dependence:
    """Change each position of the sequence to which the outputs belong, one at a time."""
    inputs = tested.inputs
    real = inputs.groups[group].real
    rows, length = real.shape
    expected = tested.outputs(inputs)
    sizes = torch.zeros(rows, length, length)
    probed = choose_positions(length, PROBED)
    for position in probed:
        where = inputs.groups[group].at(position)
        if not bool(where.any()):
            continue
        outputs = tested.outputs(inputs.changed(group, where, seed=position))
        for row, (a, b) in enumerate(zip(expected, outputs, strict=True)):
            if bool(where[row].any()):
                sizes[row, real[row], position] = tested.measure(a, b, exact=True).float()
    tested.is_leaky = bool(sizes.gt(0).triu(1).any())
    is_probed = torch.zeros(length).bool().index_fill(0, torch.tensor(probed), True)
    return Dependence(sizes, is_probed, real)


def choose_positions(length: int, count: int) -> list[int]:
    """Choose positions of a sequence: all of a short one, borders and others of a long one.

    The first are the second position, the last, and those beside the borders of blocks. The others
    are multiples of the golden ratio, so that they are far apart and no period hides a leak.
    """
    borders = [BLOCK << doubled for doubled in range(length.bit_length())]
    beside = [border - side for border in borders for side in (0, 1)]
    steps = range(length if length <= count else count)
    golden = [int((step + 1) * GOLDEN % 1 * length) for step in steps]
    rest = range(length) if length <= count else ()
    chosen = [1, length - 1, *beside, *golden, *rest]
    return [each for each in dict.fromkeys(chosen) if 0 <= each < length]


def check_causality(tested: TestedModel) -> list[str]:
    """Check that no output depends on a later position, and that outputs depend on earlier ones."""
    group, dependence = tested.group, tested.dependence
    if tested.reason or group is None:
        raise NotTriedError(tested.reason)
    if tested.inputs.groups[group].length < 2:
        raise NotTriedError("a sequence of one position has no later one; pass a longer one")
    if dependence is None:  # as passes are limited
        problems = check_suffixes(tested, group)
        tested.is_leaky = bool(problems)
        return problems
    problems = [
        f"position {output} of row {row} changes with position {position}, which comes later, "
        f"{describe(float(dependence.sizes[row, output, position]))}"
        for row, output, position in dependence.later.nonzero().tolist()
    ]
    if not problems and group not in tested.fixed:
        problems = [*check_prefix(tested, group), *check_suffixes(tested, group)]
    tested.is_leaky = bool(problems)
    if not bool(dependence.earlier.any()):
        return [*problems, "no output depends on an earlier position"]
    return problems


def check_prefix(tested: TestedModel, group: int) -> list[str]:
    """Check that the outputs of a prefix are the same without the last token."""
    inputs = tested.inputs
    row = inputs.groups[group].longest
    whole = [output[:-1] for output in tested.outputs(inputs.alone(row))]
    prefix = tested.outputs(inputs.alone(row, without=group))
    return tested.compare(whole, prefix, "if its last token is left out", first_row=row)


def check_suffixes(tested: TestedModel, group: int) -> list[str]:
    """Change all tokens from a position on, another one in each row: no output before it changes.

    One row of several stays as it is, which shows whether rows depend on others. If passes are
    limited, a note tells which leaks may be missed.
    """
    inputs, sources, expected = repeat_rows(tested, group)
    real = inputs.groups[group].real
    rows, length = real.shape
    count = PROBED if tested.passes.limit is None else length
    starts = [each for each in choose_positions(length, count) if each]
    tried, problems = 0, list[str]()
    while not problems and tried < len(starts) and (not tried or tested.passes.left != 0):
        chosen = starts[tried : tried + max(rows - 1, 1)]
        first = torch.tensor([*chosen, *[length] * (rows - len(chosen))]).roll(tried)
        tried += len(chosen)
        where = real & (torch.arange(length) >= first[:, None])
        outputs = tested.outputs(inputs.changed(group, where, seed=1))
        for row, start in enumerate(first.tolist()):
            kept = (torch.arange(length) < start)[real[row]]
            pair = expected[row][kept], outputs[row][kept]
            if len(pair[0]):
                sizes = tested.measure(*pair, exact=True)
                position = int(real[row].nonzero()[kept][sizes.argmax()])
                name = f"position {position} of row {sources[row]}"
                if length != tested.inputs.groups[group].length:
                    name += f", repeated to {length} tokens,"
                what = f"tokens from {start} on" if start < length else "tokens of other rows"
                change = f"{name} changes with the {what}, {describe(float(sizes.max()))}"
                problems += [change] if bool(sizes.any()) else []
    if tried < len(starts):
        gap = int(torch.tensor([0, *sorted(starts[:tried]), length]).diff().max())
        tested.notes["causality"] = (
            f"{tried} of {len(starts)} positions were tried; between them, a leak from fewer than "
            f"{gap} positions later may be missed"
        )
    return problems


def repeat_rows(tested: TestedModel, group: int) -> tuple[Inputs, list[int], list[Tensor]]:
    """Repeat the rows of small inputs; return the batch, the row of each row, and the outputs.

    The tokens of one row are repeated to fill two more blocks, or fewer if the model allows fewer,
    since a leak may need a whole block. Positions that a table does not have raise an error on a
    CPU, and end the program on a GPU. Masks that have the length of the inputs are not lengthened.
    """
    inputs = tested.inputs
    row, length = inputs.groups[group].longest, inputs.groups[group].length
    alone, lengths = inputs.alone(row), list[int]()
    pairs = [each for each in inputs.arguments if each.kind == "pairs"]
    on_cpu = all(each.device.type == "cpu" for each in inputs.contents(group).values())
    tokens = alone.groups[group].length
    if on_cpu and not any(each.has_rows or not is_toeplitz(each.value) for each in pairs):
        block = BLOCK * (tokens // BLOCK + 1)
        lengths = [block + BLOCK + 2, block + 2, block, BLOCK // 2 + 2, BLOCK // 4 + 2]
    is_long = tested.passes.limit is not None and tokens >= 2 * BLOCK
    if group in tested.fixed or is_long:
        lengths = []
    repeated = max(inputs.batch_size, min(TOKENS // length, length))
    cycled = [each % inputs.batch_size for each in range(repeated)]
    batches: list[tuple[Inputs, list[int], dict[int, Tensor]]] = []
    for longer in (each for each in lengths if each > tokens):
        index = torch.arange(longer).repeat(max(1, TOKENS // longer), 1) % tokens
        batches.append((alone, [0] * len(index), {group: index}))
    if repeated > inputs.batch_size:
        batches.append((inputs, cycled, {}))
    for source, rows, indices in batches:
        try:
            batch = source.take(rows, indices)
            outputs = tested.outputs(batch)
        except Exception:  # whatever a model raises that takes fewer tokens or rows
            continue
        if bool(is_valid(torch.cat(outputs)).all()):
            return batch, [row] * len(rows) if source is alone else rows, outputs
    return inputs, [*range(inputs.batch_size)], tested.outputs(inputs)


def check_order(tested: TestedModel) -> list[str]:
    """Check that outputs depend on the order of the tokens, and not only on which ones there are.

    The last token stays where it is. The output there, or all outputs that belong to another
    sequence, must change if the tokens before it change places, and if only the two nearest do:
    these have one position if positions are limited to a maximum.
    """
    if tested.group is None:
        raise NotTriedError("there is one output for each row, which may be meant to have no order")
    groups, expected = tested.inputs.groups, tested.outputs(tested.inputs)
    answers = [_find_unordered(tested, number, expected) for number in range(len(groups))]
    if all(answer is None for answer in answers):
        raise NotTriedError(
            "no output depends on the ids of other tokens; vectors may have positions already"
        )
    return [
        f"outputs depend on the {answer} of {group.name}, and not on their order"
        for group, answer in zip(groups, answers, strict=True)
        if answer
    ]


def _find_unordered(tested: TestedModel, number: int, expected: list[Tensor]) -> str | None:
    """Name the ids of a group whose order has no effect; None if no outputs depend on the ids."""
    inputs = tested.inputs
    group, contents = inputs.groups[number], inputs.contents(number)
    if any(value.is_floating_point() for value in contents.values()):
        return None  # vectors, to which positions may have been added
    compared = slice(-1 if number == tested.group else 0, None)

    def largest_change(places: Tensor, *, exact: bool = False) -> float:
        """Return how much outputs change if each position holds the token of another one."""
        values = {each: value.gather(1, places.to(value)) for each, value in contents.items()}
        outputs = tested.outputs(inputs.replaced(values))
        pairs = zip(expected, outputs, strict=True)
        changes = [tested.measure(a, b, exact=exact)[compared] for a, b in pairs]
        return max((float(change.max()) for change in changes if change.numel()), default=0.0)

    given = torch.arange(group.length).repeat(inputs.batch_size, 1)
    repeated, reversed_, rolled = (given.clone() for _ in range(3))
    for row, real in enumerate(group.real):
        before, last = real.nonzero().flatten().tensor_split([-1])
        repeated[row, before] = last
        reversed_[row, before], rolled[row, before] = before.flip(0), before.roll(1)
    if not largest_change(repeated):
        return None
    if not largest_change(reversed_) and not largest_change(rolled):
        return "tokens"
    return _find_equal_positions(tested, number, compared)


def _find_equal_positions(tested: TestedModel, number: int, compared: slice) -> str:
    """Describe two positions whose tokens can change places; an empty string if there are none.

    The longest sequence is repeated. In one row the last token but one, and a token some positions
    before it, change places, and in another row the one has a copy of the other.
    """
    inputs = tested.inputs
    row = inputs.groups[number].longest
    *before, _ = inputs.groups[number].real[row].nonzero().flatten().tolist()
    distances = range(1, min(len(before), DISTANCES + 1))
    index = torch.arange(inputs.groups[number].length).repeat(1 + 2 * len(distances), 1)
    for distance in distances:
        near, far = before[-1], before[-1 - distance]
        index[2 * distance - 1 :, near][:2] = far
        index[2 * distance - 1, far] = near
    repeated = inputs.take([row] * len(index), {})
    values = {
        each: value.gather(1, index.to(value.device))
        for each, value in repeated.contents(number).items()
    }
    first, *others = tested.outputs(repeated.replaced(values))
    sizes = [float(tested.measure(first, each, exact=True)[compared].max()) for each in others]
    for distance, (of_swap, of_copy) in enumerate(zip(sizes[::2], sizes[1::2], strict=True), 1):
        if of_swap < ROUNDING * of_copy:
            return f"tokens {distance} positions apart" if distance > 1 else "last tokens"
    return ""


def is_causal(tested: TestedModel, group: int, dependence: Dependence) -> bool:
    """Decide whether outputs must not depend on later positions.

    They must not if the arguments of the model say so, if it has a source and a target, or if they
    depend on all earlier positions and on much fewer later ones, as with a shifted causal mask.
    """
    later, earlier = int(dependence.later.sum()), int(dependence.earlier.sum())
    if not later:
        return earlier > 0
    own = tested.inputs.groups[group]
    is_target = own.role == "target" and "query" not in own.name.lower()
    if (is_target and len(tested.inputs.groups) > 1) or declares_causal(tested):
        return True
    pairs = dependence.real[:, :, None] & (dependence.real & dependence.probed)[:, None]
    return earlier == int(pairs.tril(-1).sum()) and later < 0.7 * int(pairs.triu(1).sum())


def declares_causal(tested: TestedModel) -> bool:
    """Return whether one of the model's arguments says that it is causal."""
    return any(
        ("causal" in argument.name.lower() and argument.value is True)
        or (argument.kind == "pairs" and _is_triangular(argument.value))
        for argument in tested.inputs.arguments
    )


def _is_triangular(mask: Tensor) -> bool:
    """Return whether a mask hides all later keys, as the last from the first query, and no more."""
    length, keys = mask.shape[-2:]
    hidden = mask == mask[..., :1, -1:]
    return length == keys > 1 and torch.equal(hidden, torch.ones_like(hidden).triu(1))
