"""The device that a program chooses."""

import pytest
import torch

from common.distributed import choose_device
from common.errors import UserError


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The GPUs of a machine, as torch is made to report them."""
    present: set[str] = set()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in present)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in present)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return present


@pytest.mark.parametrize(
    ("here", "chosen"),
    [((), "cpu"), (("mps",), "mps"), (("cuda",), "cuda:0"), (("cuda", "mps"), "cuda:0")],
)
def test_auto_prefers_cuda_then_mps_then_the_cpu(
    devices: set[str], here: tuple[str, ...], chosen: str
) -> None:
    devices.update(here)
    assert choose_device("auto") == torch.device(chosen)
    assert choose_device("cpu") == torch.device("cpu")
    for name in here:
        assert choose_device(name).type == name


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(devices: set[str], name: str) -> None:
    with pytest.raises(UserError, match=f"^--device {name}: no {name.upper()} device"):
        choose_device(name)


def test_several_processes_never_use_mps(
    devices: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    devices.add("mps")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(UserError, match=r"^--device mps: no MPS device can be used"):
        choose_device("mps")
