"""What every test starts from: a fixed seed, and names for the examples in docstrings."""

from typing import Any

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import transformer_blocks

# The tests' sizes are tiny: a second thread would cost more than it gives, far more where the
# machine is busy with other things.
torch.set_num_threads(1)

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _names_for_examples(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(torch=torch, nn=nn, F=F)
    for name in transformer_blocks.__all__:
        doctest_namespace[name] = getattr(transformer_blocks, name)
