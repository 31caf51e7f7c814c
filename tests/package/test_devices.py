"""Devices: what is computed on the CPU is computed on a GPU without float64, too."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ROOT, ROOT / "src", ROOT / "examples"
PROGRAM = Path(__file__).with_name("device_without_float64.py")


def test_everything_works_on_a_device_without_float64() -> None:
    found = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, FOLDERS))},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = found.stdout.splitlines()
    assert found.returncode == 0, found.stderr
    assert len(lines) == 8
    assert [line for line in lines if not line.endswith(": ok")] == []
