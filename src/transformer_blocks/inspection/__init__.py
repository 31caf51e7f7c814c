"""Inspection: a look inside a model while it works.

The weights of attention are the one part of a Transformer that a person can read: which word looked
at which. :func:`record_attention` shows them for any model made of these blocks.
:func:`explain_mask` tells what a mask hides and why, :func:`trace_shapes` what goes through a model
and where it gets stuck; :func:`ablate` takes parts out, to see what they are good for.
:func:`check_causal`, :func:`check_padding` and :func:`check_cache` find the mistakes that raise no
error, in any model.

Next chapter: :mod:`transformer_blocks.interop`, weights from elsewhere.
"""

# ruff: noqa: I001  (in teaching order)
from transformer_blocks.inspection.recorder import record_attention
from transformer_blocks.inspection.explain import MaskExplanation, explain_mask
from transformer_blocks.inspection.shapes import Trace, trace_shapes
from transformer_blocks.inspection.ablation import ablate
from transformer_blocks.inspection.checks import Report, check_cache, check_causal, check_padding

__all__ = [
    "MaskExplanation",
    "Report",
    "Trace",
    "ablate",
    "check_cache",
    "check_causal",
    "check_padding",
    "explain_mask",
    "record_attention",
    "trace_shapes",
]
