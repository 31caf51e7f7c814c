"""What holds for every test: a fixed seed, settings that remain, fresh names for examples."""

import gc
import locale
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from torch.nn.modules import module

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


# pytest adds its handlers to each logger that does not propagate: torch's many, for every test.
for _logger in logging.root.manager.loggerDict.values():
    if isinstance(_logger, logging.Logger):
        _logger.propagate = True


def pytest_collection_finish() -> None:
    """Freeze what is imported, which garbage collection would read again, and note the settings."""
    gc.collect()
    gc.freeze()
    _known.update(
        _settings() | _compiler_settings()
    )  # only now: some imported packages set variables


hypothesis.settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # as a busy machine is
)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:
        torch.default_generator.manual_seed(0)  # without the stack that is kept for each GPU


# Variables of pytest and of torch's compiler, which change them.
SET_BY_OTHERS = ("PYTEST_", "TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_")


def _settings() -> dict[str, object]:
    """Return the settings of the process on which results depend, in some microseconds."""
    settings: dict[str, object] = {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "anomalies": torch.is_anomaly_enabled(),
        "flash kernel": torch.backends.cuda.flash_sdp_enabled(),
        "efficient kernel": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "explicit kernel": torch.backends.cuda.math_sdp_enabled(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "oneDNN": torch.backends.mkldnn.enabled,
        "precision": torch.get_float32_matmul_precision(),
        "precision of oneDNN": torch.backends.mkldnn.matmul.fp32_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "compiling": torch.compiler.is_compiling(),
        "hooks": (len(module._global_forward_hooks), len(module._global_forward_pre_hooks)),
        "environment": {
            name: value for name, value in os.environ.items() if not name.startswith(SET_BY_OTHERS)
        },
        "folder": Path.cwd(),
        "locale": locale.setlocale(locale.LC_ALL),
        "switch interval": sys.getswitchinterval(),
    }
    return settings


def _compiler_settings() -> dict[str, object]:
    """Return the settings of torch's compiler, in a millisecond; not what it notes there itself."""
    return {
        f"{name}.{key}": value
        for name in ("torch._dynamo.config", "torch._inductor.config")
        if name in sys.modules
        for key, value in sys.modules[name].save_config_portable().items()
        if not key.endswith("metadata")
    }


_known: dict[str, object] = {}


@pytest.fixture(autouse=True)
def _settings_remain() -> Iterator[None]:
    """Find a setting that a test has left changed, or a fixture that it shares with others."""
    yield
    _check_settings(_settings())


@pytest.fixture(autouse=True, scope="module")
def _compiler_settings_remain() -> Iterator[None]:
    """Forget what other files have compiled, and find a compiler's setting that a file leaves."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # a function is compiled anew for a few kinds of arguments only
    yield
    _check_settings(_compiler_settings())


def _check_settings(now: dict[str, object]) -> None:
    before = {name: value for name, value in _known.items() if name in now}
    _known.update(now)  # each change is reported once
    changed = [name for name in before if now.get(name) != before[name]]
    assert not changed, [(name, before[name], now.get(name)) for name in changed]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the examples of the library as if they were pasted into a fresh interpreter."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and "src" in item.path.parts:
            item.dtest.globs = {"__name__": "__main__"}
