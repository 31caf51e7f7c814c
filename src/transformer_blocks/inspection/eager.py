"""Compiled models, looked into."""

import sys
from contextlib import AbstractContextManager, nullcontext

import torch


def run_eagerly() -> AbstractContextManager[object]:
    """Have models that ``torch.compile`` made run uncompiled, as long as the context lasts.

    What is compiled no longer calls the hooks that are set on its modules: it would show nothing.
    """
    if "torch._dynamo" not in sys.modules:  # nothing has been compiled; the import takes a second
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance
