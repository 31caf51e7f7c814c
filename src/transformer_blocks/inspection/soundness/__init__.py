"""Soundness: one call that runs all checks on a model and an example of its inputs.

The mistakes that cost most raise no error. A model that attends to later tokens, an inverted mask,
padding that counts, a batch whose outputs differ from those of single sequences: the loss falls
nevertheless. :func:`check_soundness` calls any model with changed inputs, and reports in one table
which properties hold, which do not, and which could not be tried.

``reading`` finds out what the arguments of an example are, ``example`` makes other batches of them,
and ``subject`` calls the model with these. Each other file checks properties of one subject, and
``table`` runs them all.
"""

from transformer_blocks.inspection.soundness.table import (
    Soundness,
    assert_sound,
    check_soundness,
)

__all__ = ["Soundness", "assert_sound", "check_soundness"]
