"""Soundness: one call that checks the properties of a model.

Many mistakes raise no error. With a missing causal mask, an inverted mask, padding
that changes the outputs, or outputs that depend on the other sequences of the batch, the loss falls
nevertheless. :func:`check_soundness` calls any model with changed inputs, and reports in one table
which properties hold, which do not, and which could not be tried.

``reading`` finds out what the arguments of a model are, ``inputs`` makes other batches of them,
and ``tested`` calls the model with these. Each other file checks properties of one model;
``table`` lists and runs them.
"""

from transformer_blocks.inspection.soundness.report import Report, Soundness
from transformer_blocks.inspection.soundness.table import assert_sound, check_soundness

__all__ = ["Report", "Soundness", "assert_sound", "check_soundness"]
