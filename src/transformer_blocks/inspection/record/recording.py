"""Recording: what one ``with`` block records or patches in the attention of one model."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.inspection.changes import without_gradients
from transformer_blocks.inspection.record.projections import Projections
from transformer_blocks.multi_head import MultiHeadAttention, SingleHeadAttention

BEAM_SEARCHES = "beam_search", "_beam_search"  # of this package, and of Hugging Face
NAMED_ATTENTION = re.compile("(attention|attn)(?!.*output)", re.IGNORECASE)

Patch = Tensor | float | Callable[[Tensor], Tensor]
"""What replaces a tensor: another one, a number, or a function of the tensor."""


class Record(dict[str, list[Any]]):
    """What is recorded, by name of the module; its form names the shapes instead of all numbers."""

    def __repr__(self) -> str:
        return "\n".join(
            f"{name}: {_describe(first)}" + (f" and {len(others)} more" if others else "")
            for name, (first, *others) in self.items()
        )


def _describe(x: Any) -> str:
    """Describe the shape of what one call recorded."""
    if isinstance(x, dict):
        return f"heads {', '.join(map(str, x))} of {_describe(next(iter(x.values())))}"
    return str(tuple(getattr(x, "query", x).shape))


class Recording:
    """The attention that one ``with`` block records or patches in one model.

    Args:
        model: The model.
        only: Function of a module's name that returns whether its attention is recorded; none is
            by default.
        of_projections: Whether projections are recorded, and not weights.
        device: Device that stores what is recorded; None leaves it where it is.
        patches: What replaces the outputs of heads, from 0, for names of modules.
        positions: The positions at which they are replaced; None for all.

    Attributes:
        own: The attention layers of this package, whose attention functions are changed.
        recorded: The weights (or the projections) of each attention, by name of the module.
        seen: Names of the modules in which attention was seen.
        failed: Names of modules and the errors that prevented their weights from being computed.
        undivided: Names of the modules whose outputs had no dimension of heads.
        called: Names of modules whose class is named after attention and that were executed.
        unseen: Names of modules that called another attention function than those that are seen.
        has_run: Whether any part of the model was executed.
        has_hypotheses: Whether a beam search executed it, whose rows are hypotheses.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        only: Callable[[str], bool] = lambda name: False,
        of_projections: bool = False,
        device: torch.device | str | None = None,
        patches: Mapping[str, Mapping[int, Patch]] | None = None,
        positions: Collection[int] | None = None,
    ) -> None:
        self.modules = {id(module): (name, module) for name, module in model.named_modules()}
        kinds = SingleHeadAttention, MultiHeadAttention
        self.own = {name: part for name, part in self.modules.values() if isinstance(part, kinds)}
        self.ignored = {id(part) for module in self.own.values() for part in module.modules()}
        self.of_projections, self.is_recorded = of_projections, only
        self.device, self.patches, self.positions = device, patches or {}, positions
        self.recorded = Record()
        self.seen = {*self.own}
        self.failed: dict[str, str] = {}
        self.undivided: set[str] = set()
        self.called: set[str] = set()
        self.unseen: set[str] = set()
        self.has_run = self.has_hypotheses = False

    def see(
        self,
        name: str,
        weights: Callable[[], Tensor],
        projections: Callable[[], Projections] | None = None,
    ) -> None:
        """Record one attention of a module, without gradients; if that raises an error, note it.

        Args:
            name: Name of the module.
            weights: Function that computes its weights.
            projections: Function that computes its projections; None if they are not known.
        """
        compute = projections if self.of_projections else weights
        if compute is None or not self.is_recorded(name):
            return
        try:
            with without_gradients():
                new = compute()
                new = new.map(_unwrap) if isinstance(new, Projections) else _unwrap(new)
        except Exception as error:  # whatever it is: the model itself must not be disturbed
            self.failed[name] = str(error)
            return
        new = new.map(self._convert) if isinstance(new, Projections) else self._convert(new)
        self.recorded.setdefault(name, []).append(new)
        self.has_hypotheses |= any(f.f_code.co_name in BEAM_SEARCHES for f in _find_frames())

    def _convert(self, x: Tensor) -> Tensor:
        """Insert a dimension of heads, or of the batch, where there is none: (B, H, L, S)."""
        x = x[None] if x.dim() == 2 else x
        return (x[:, None] if x.dim() == 3 else x).to(device=self.device)

    def patch(self, name: str, output: Tensor, place: int = 1) -> Tensor:
        """Replace the outputs of heads.

        Args:
            name: Name of the module.
            output: The product of its weights and its values.
            place: The dimension of the heads; -1 if it is not known.
        """
        if output.dim() != 4 or place < 0:
            self.undivided.add(name)
            return output
        if name not in self.patches:
            return output
        heads = output.movedim(place, 1).clone()  # (B, H, L, d_k)
        for head, patch in self.patches[name].items():
            heads[:, head] = apply_patch(heads[:, head].clone(), patch, self.positions)
        return heads.movedim(1, place)

    def find(self) -> tuple[str, nn.Module] | None:
        """Return the name of the innermost module that is being executed, and the module itself."""
        for module in _executed_modules():
            if id(module) in self.ignored:
                return None
            if id(module) in self.modules:
                return self.modules[id(module)]
        return None

    def note_call(self) -> None:
        """Note which modules are being executed, to find those whose attention is never seen."""
        for module in _executed_modules():
            if id(module) in self.modules and id(module) not in self.ignored:
                self.has_run = True
                if NAMED_ATTENTION.search(type(module).__name__):
                    self.called.add(self.modules[id(module)][0])

    def note_scripts(self) -> None:
        """Note the scripted and traced modules, whose calls cannot be seen, as if executed."""
        for name, part in self.modules.values():
            if isinstance(part, torch.jit.ScriptModule):
                self.has_run = True
                if NAMED_ATTENTION.search(getattr(part, "original_name", "")):
                    self.unseen.add(name)

    def find_unseen(self) -> list[str]:
        """List the executed modules whose attention was not seen.

        These are those that called an unknown attention function, and those named after attention
        in which no attention was seen.
        """
        paths = {name: f"{name}." if name else "" for name in self.called | self.seen}
        missing = {
            name
            for name in self.called
            if not any(  # one of the two is within the other
                paths[name].startswith(paths[other]) or paths[other].startswith(paths[name])
                for other in self.seen
            )
        }
        return sorted(missing | self.unseen)


def apply_patch(x: Tensor, patch: Patch, positions: Collection[int] | None) -> Tensor:
    """Replace a tensor, of shape (..., L, size), or some of its positions.

    Raises:
        IndexError: If a position does not exist.
        RuntimeError: If the new tensor does not broadcast to the shape of ``x``.
    """
    new = torch.as_tensor(patch(x) if callable(patch) else patch).to(x).expand_as(x)
    if positions is None:
        return new.clone()
    x, places = x.clone(), [*positions]
    x[..., places, :] = new[..., places, :]
    return x


def _unwrap(x: Tensor) -> Tensor:
    """Return the tensor itself inside a transform of torch.func, with which its wrappers end.

    Raises:
        RuntimeError: If the transform is ``vmap``, whose batches are no dimension of a tensor.
    """
    plain: Tensor = torch.func.debug_unwrap(x)
    if plain.dim() != x.dim():
        raise RuntimeError("it was executed inside torch.vmap")
    return plain


def _find_frames() -> Iterator[FrameType]:
    """Yield what is being executed, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _executed_modules() -> Iterator[nn.Module]:
    """Yield the modules whose methods are being executed, the innermost first."""
    for frame in _find_frames():
        if frame.f_code.co_argcount:
            first = frame.f_locals.get(frame.f_code.co_varnames[0])  # self, or a module argument
            if isinstance(first, nn.Module):
                yield first
