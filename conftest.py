"""Fixtures of every test: a fixed seed, and the names that examples in docstrings assume."""

from types import ModuleType
from typing import Any

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import transformer_blocks
from transformer_blocks import explorer, generation, inference, inspection, interop

# The sizes in the tests are tiny: a second thread would cost more time than it saves, and much more
# on a busy machine.
torch.set_num_threads(1)

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _names_for_examples(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(torch=torch, nn=nn, F=F)
    for package in (transformer_blocks, generation, inspection, interop, inference, explorer):
        doctest_namespace.update(
            {
                name: thing
                for name, thing in vars(package).items()
                if not isinstance(thing, ModuleType)
            }
        )
