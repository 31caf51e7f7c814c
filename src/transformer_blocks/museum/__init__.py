"""Museum: published faults of Transformers, and the checks that find them.

The most expensive faults of Transformers raise no error: the training runs, the loss falls, and the
model is worse than it could be, or better than it can be in use. Each file of this package shows a
fault that was published in the issues of a library: the thread, how it was missed, the smallest
model that has the same fault, the same model with the fault mended, and the check of
:mod:`transformer_blocks.inspection` that finds it. No check knows of an exhibit: each one is called
as you would call it for your own model.

``python -m transformer_blocks.museum`` lists the exhibits and shows each of them.
"""

from transformer_blocks.museum.exhibit import (
    THEMES,
    Examination,
    Exhibit,
    examine,
    exhibits,
    modules,
    reports,
    seeded,
)
from transformer_blocks.museum.reading import code, difference, format_result, story

__all__ = [
    "THEMES",
    "Examination",
    "Exhibit",
    "code",
    "difference",
    "examine",
    "exhibits",
    "format_result",
    "modules",
    "reports",
    "seeded",
    "story",
]
