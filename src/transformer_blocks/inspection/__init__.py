"""Inspection: attention weights, masks, shapes, ablations and checks of a model.

Attention weights are the part of a Transformer that is easiest to interpret: they show which keys
each query attends to. :func:`~transformer_blocks.record_attention` collects them for models of
these blocks or of another library whose attention has a softmax, except in FlexAttention and in the
kernels of the flash-attn package; :func:`record_projections` collects the queries, keys and values
from which they are computed, and :func:`logit_lens` the predictions of each layer.
:func:`head_patterns` names heads whose weights follow a simple rule. :func:`explain_mask` shows
which positions a mask hides and why. :func:`trace_shapes` lists the shapes in a forward pass and
finds the module that fails. :func:`patched` replaces outputs of heads and modules, for example by
those of another input, which :func:`record_values` records, and :func:`ablate` removes parts of a
trained model, to measure what they contribute. :func:`align` reads word alignments from the
cross-attention of a translator.
:func:`check_soundness` finds mistakes that raise no error, in any model: it checks thirteen
properties in one call, or those that are named, also of a training step or a loss, and
:func:`assert_sound` is its form for tests. :func:`check_search` checks a decoding algorithm.
:func:`first_difference` names the module in which two models
first differ, and the cause, also beside values that :func:`save_values` saved elsewhere;
:func:`assert_equivalent` is its form for tests.

Next: :mod:`transformer_blocks.interop`, conversion from and to torch's modules.
"""

# ruff: noqa: I001  (in teaching order)
from transformer_blocks.inspection.record.attention_layers import (
    record_attention,
    record_projections,
)
from transformer_blocks.inspection.record.projections import Projections
from transformer_blocks.inspection.record.lens import logit_lens
from transformer_blocks.inspection.patterns import HeadPattern, head_patterns
from transformer_blocks.inspection.explain import MaskExplanation, explain_mask
from transformer_blocks.inspection.record.shapes import Trace, trace_shapes
from transformer_blocks.inspection.record.values import record_values, save_values
from transformer_blocks.inspection.record.patching import ablate, patched
from transformer_blocks.inspection.record.alignment import Alignment, align
from transformer_blocks.inspection.soundness import Report, Soundness, assert_sound, check_soundness
from transformer_blocks.inspection.compare.difference import (
    Difference,
    Pair,
    assert_equivalent,
    first_difference,
)
from transformer_blocks.inspection.soundness.search import check_search

__all__ = [
    "Alignment",
    "Difference",
    "HeadPattern",
    "MaskExplanation",
    "Pair",
    "Projections",
    "Report",
    "Soundness",
    "Trace",
    "ablate",
    "align",
    "assert_equivalent",
    "assert_sound",
    "check_search",
    "check_soundness",
    "explain_mask",
    "first_difference",
    "head_patterns",
    "logit_lens",
    "patched",
    "record_attention",
    "record_projections",
    "record_values",
    "save_values",
    "trace_shapes",
]
