"""Soundness: one call that runs all checks on a model and an example of its inputs.

Many mistakes raise no error. With a missing causal mask, an inverted mask, padding
that changes the outputs, or outputs that depend on the other sequences of the batch, the loss falls
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
