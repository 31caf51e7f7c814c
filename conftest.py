"""Fixtures of every test: a fixed seed, and the names that examples in docstrings assume."""

import os
from collections.abc import Iterator
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
# on a busy machine, in the programs that tests start, too.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_auto_num_workers() -> int:
    """Count the processors that this process may use; xdist would count the machine's cores."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


def _settings() -> dict[str, object]:
    """Return the settings of torch on which the bits of a result depend."""
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "flash kernel": torch.backends.cuda.flash_sdp_enabled(),
        "efficient kernel": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "explicit kernel": torch.backends.cuda.math_sdp_enabled(),
        "oneDNN": torch.backends.mkldnn.enabled,
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


@pytest.fixture(autouse=True)
def _settings_remain() -> Iterator[None]:
    before = _settings()
    yield
    assert _settings() == before


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
