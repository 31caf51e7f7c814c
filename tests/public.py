"""The public names of the package and of its sub-packages."""

from types import ModuleType

import transformer_blocks
from transformer_blocks import explorer, generation, inference, inspection, interop, pretrained

LATE = "record_attention", transformer_blocks.record_attention  # imported at its first use

EXPORTS: dict[str, object] = {
    name: thing
    for name, thing in [*vars(transformer_blocks).items(), LATE]
    if not name.startswith("_") and not isinstance(thing, ModuleType)
}
"""What ``from transformer_blocks import ...`` gives, in the order of the chapters."""

PUBLIC: dict[str, object] = EXPORTS | {
    name: getattr(package, name)
    for package in (generation, inspection, interop, inference, explorer, pretrained)
    for name in package.__all__
}
"""These, and what the sub-packages export."""
