"""Can a training be lost? Kill one again and again, and see it end as if nothing had happened.

    python examples/kill_training.py                 # 20 kills, about two minutes
    python examples/kill_training.py --kills 5 --seed 1

The same training of the toy translator runs twice. One is left alone. The other is killed with
``kill -9``, which no program can catch: every other time at a random moment, and every other time
as soon as a checkpoint is being written, in the middle of the save. Each time it goes on with
``--resume``. In the end the weights, the averages and the optimiser's moments of both have the same
SHA-256: not one bit was lost.
"""

import argparse
import hashlib
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from common.errors import UserError
from common.options import Parser, number
from common.program import finishing_unread, run_program
from common.run import Run
from translation.presets import Config

TRAINING = ["--corpus", "toy", "--preset", "tiny", "--epochs", "1", "--save-steps", "25"]
TENSORS = "model.safetensors", "average.safetensors", "state.safetensors"


def start(run: Run[Config]) -> subprocess.Popen[bytes]:
    """Begin the training, or go on with it."""
    program = Path(__file__).with_name("translate.py")
    command = [sys.executable, str(program), "train", "--run", str(run.folder), "--resume"]
    return subprocess.Popen([*command, *TRAINING], stdout=subprocess.DEVNULL)


def newest(run: Run[Config]) -> Path | None:
    """Find the newest checkpoint."""
    return max(run.checkpoints.glob("step-*"), default=None)


def fingerprint(run: Run[Config]) -> str:
    """Compute the SHA-256 of all that was learnt."""
    checkpoint = newest(run)
    if checkpoint is None:
        raise UserError(f"{run.checkpoints} holds no checkpoint")
    digest = hashlib.sha256(checkpoint.name.encode())
    for name in TENSORS:
        digest.update((checkpoint / name).read_bytes())
    return digest.hexdigest()


def is_saving(run: Run[Config]) -> bool:
    """Tell whether a checkpoint is half written."""
    return any(run.checkpoints.glob(".partial-*"))


def kill(
    process: subprocess.Popen[bytes], run: Run[Config], *, in_save: bool, seconds: float
) -> str:
    """Kill a training, after some seconds or within its next save; say what happened."""
    began = newest(run)
    began_at = time.monotonic()
    while process.poll() is None:
        late = time.monotonic() - began_at > seconds
        has_moved = newest(run) != began  # else, killed at once, it would never come further
        if is_saving(run) if in_save else late and has_moved:
            process.kill()
            process.wait()
            where = "inside a save" if is_saving(run) else "between saves"
            checkpoint = newest(run)
            return f"killed {where}, at {checkpoint.name if checkpoint else 'the beginning'}"
        time.sleep(0.0005)
    return "ended before it was killed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: compare(arguments))


@finishing_unread()
def compare(arguments: Sequence[str] | None) -> None:
    """Train twice, once with kills, and compare."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=number(int, "from 1 to 1000"), default=20)
    parser.add_argument("--seed", type=number(int, "at least 0"), default=0, help="of the moments")
    parser.add_argument("--folder", type=Path, default=Path("runs/kills"))
    options = parser.parse_args(arguments)
    if options.folder.exists():
        raise UserError(f"{options.folder} is there already; remove it, or choose another --folder")
    options.folder.mkdir(parents=True)
    dice = random.Random(options.seed)
    killed, calm = (Run(options.folder / name, Config) for name in ("killed", "calm"))
    kills = 0
    while True:
        process = start(killed)
        if kills == options.kills:
            process.wait()
            break
        what = kill(process, killed, in_save=kills % 2 == 1, seconds=dice.uniform(0.0, 2.0))
        kills += what.startswith("killed")
        print(f"{kills:3d}  {what}", flush=True)
        if process.returncode == 0:
            break
        if process.returncode > 0:
            raise UserError("the training failed; its message stands above")
    print("going on to the end, then once more without a kill", flush=True)
    if start(calm).wait() or process.returncode:
        raise UserError("the training failed; its message stands above")
    hashes = fingerprint(killed), fingerprint(calm)
    print(f"{kills} kills    {hashes[0]}\nno kill     {hashes[1]}")
    if hashes[0] != hashes[1]:
        raise UserError(f"they differ: see {options.folder}")
    print("equal")
    for run in (killed, calm):
        shutil.rmtree(run.folder)
    with suppress(OSError):
        options.folder.rmdir()  # unless somebody put something into it


if __name__ == "__main__":
    sys.exit(main())
