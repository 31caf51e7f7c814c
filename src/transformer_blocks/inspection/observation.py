"""Observation: what one ``with`` block records or changes in one model, and where."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType

from torch import Tensor, nn

from transformer_blocks.inspection.projections import Projections

ChangeShape = Callable[[tuple[int, int]], None]
"""A function of B and H that divides the first dimension, B * H, of what was recorded."""

NAMED_ATTENTION = re.compile("(attention|attn)(?!.*output)", re.IGNORECASE)


class Observation:
    """What one ``with`` block observes and changes in one model.

    Args:
        model: The model whose attention is observed.
        ignored: Modules whose attention is not observed here, nor that of their submodules.
        record: Function that receives the name and the weights of each attention, and returns a
            function that changes the shape of what was recorded; None to compute no weights.
        record_projections: Function that receives the name and the projections of each attention,
            and returns such a function; None to compute no projections.
        only: Function of a module's name that returns whether its attention is recorded.
        heads: The heads, from 0, whose outputs are replaced by zeros, for names of modules.

    Attributes:
        seen: Names of the modules in which attention was observed.
        partly_seen: Names of the modules in which attention was seen that cannot be recorded.
        failed: Names of modules and the errors that prevented their weights from being computed.
        undivided: Names of the modules in which no dimension of heads was seen.
        separate: Names of modules that compute weights of one head several times in one call.
        called: Names of modules whose class is named after attention and that were executed.
        has_run: Whether any part of the model was executed.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        ignored: Collection[nn.Module] = (),
        record: Callable[[str, Tensor], ChangeShape] | None = None,
        record_projections: Callable[[str, Projections], ChangeShape] | None = None,
        only: Callable[[str], bool] = lambda name: True,
        heads: Mapping[str, Collection[int]] | None = None,
    ) -> None:
        self.modules = {id(module): (name, module) for name, module in model.named_modules()}
        self.ignored = {id(part) for module in ignored for part in module.modules()}
        self.record, self.record_projections = record, record_projections
        self.only, self.heads = only, heads or {}
        self.seen: set[str] = set()
        self.partly_seen: set[str] = set()
        self.failed: dict[str, str] = {}
        self.undivided: set[str] = set()
        self.separate: set[str] = set()
        self.last_frame: FrameType | None = None  # of the call that computed weights of one head
        self.called: set[str] = set()
        self.has_run = False

    def find(self) -> tuple[str, nn.Module] | None:
        """Return the name of the innermost module that is being executed, and the module."""
        for module, _ in _executed_modules():
            if id(module) in self.ignored:
                return None
            if id(module) in self.modules:
                return self.modules[id(module)]
        return None

    def note_call(self) -> None:
        """Note which modules are being executed, to find those whose attention is never seen."""
        for module, _ in _executed_modules():
            if id(module) in self.modules and id(module) not in self.ignored:
                self.has_run = True
                if NAMED_ATTENTION.search(type(module).__name__):
                    self.called.add(self.modules[id(module)][0])

    def note_head(self, name: str) -> None:
        """Note that the weights of one head were computed, to find a loop over the heads."""
        module = dict(self.modules.values())[name]
        frames = [frame for each, frame in _executed_modules() if each is module]
        if frames and frames[-1] is self.last_frame:
            self.separate.add(name)
        self.last_frame = frames[-1] if frames else None

    def unseen(self) -> list[str]:
        """List the modules named after attention that were executed without one being seen."""
        seen = [_parts(name) for name in self.seen]
        return [
            name
            for name in sorted(self.called)
            if not any(_is_within(_parts(name), other) for other in seen)
        ]


def _parts(name: str) -> list[str]:
    return name.split(".") if name else []  # the model itself has an empty name


def _is_within(first: list[str], second: list[str]) -> bool:
    """Return whether one of two module names is within the other, or they are equal."""
    size = min(len(first), len(second))
    return first[:size] == second[:size]


def _executed_modules() -> Iterator[tuple[nn.Module, FrameType]]:
    """Yield the modules whose methods are being executed, and their frames, the innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_argcount:
            first = frame.f_locals.get(frame.f_code.co_varnames[0])  # self, or a module passed on
            if isinstance(first, nn.Module):
                yield first, frame
        frame = frame.f_back  # type: ignore[assignment]
