"""Kill a training many times, and check that it ends with the same bits as one never killed.

    python examples/kill_training.py               # 20 kills, about two minutes
    python examples/kill_training.py --kills 5 --seed 1
    python examples/kill_training.py --shard       # two processes

The same training of the toy translator runs twice. One is never killed. The other is killed with
``kill -9``, which no program can catch: in turns at a random moment, and in the middle of saving a
checkpoint. Each time it is resumed with ``--resume``. In the end the weights, their averages and
the optimiser's moments of both have the same SHA-256: not one bit was lost. Of two processes, the
one that is killed first is chosen at random.
"""

import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from common.errors import UserError
from common.options import Number, Parser
from common.program import finishing_unread, run_program
from common.terminal import counted

TRAINING = ["--corpus", "toy", "--preset", "tiny", "--epochs", "1", "--save-steps", "25"]
CHECKPOINTS = "checkpoints"  # in the folder of a run
Training = list[subprocess.Popen[bytes]]


def start(run: Path, *, shard: bool) -> Training:
    """Begin the training, or resume it, in one process or in two."""
    program = Path(__file__).with_name("translate.py")
    command = [sys.executable, str(program), "train", "--run", str(run), "--resume", *TRAINING]
    if not shard:
        return [subprocess.Popen(command, stdout=subprocess.DEVNULL)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    together = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [*command, "--shard", "--device", "cpu"],
            env=os.environ | together | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]


def wait(training: Training) -> bool:
    """Wait for all processes; return whether one has failed."""
    return max(process.wait() != 0 for process in training)


def newest(run: Path) -> Path | None:
    """Find the newest checkpoint."""
    return max((run / CHECKPOINTS).glob("step-*"), default=None)


def fingerprint(run: Path) -> str:
    """Compute the SHA-256 of weights, averages and optimiser state."""
    checkpoint = newest(run)
    if checkpoint is None:
        raise UserError(f"{run / CHECKPOINTS} holds no checkpoint")
    digest = hashlib.sha256(checkpoint.name.encode())
    for file in sorted(checkpoint.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def is_saving(run: Path) -> bool:
    """Return whether a checkpoint is being written."""
    return any((run / CHECKPOINTS).glob(".partial-*"))


def kill(training: Training, run: Path, *, in_save: bool, seconds: float) -> str:
    """Kill a training, after some seconds or within its next save; return what happened."""
    began = newest(run)
    began_at = time.monotonic()
    while all(process.poll() is None for process in training):
        late = time.monotonic() - began_at > seconds
        has_moved = newest(run) != began  # killed earlier each time, it would make no progress
        if is_saving(run) if in_save else late and has_moved:
            for process in training:
                process.kill()
            wait(training)
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
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--kills",
        type=Number(int, "from 1 to 1000"),
        default=20,
        help="number of kills (default: 20)",
    )
    parser.add_argument(
        "--seed",
        type=Number(int, "at least 0"),
        default=0,
        help="seed of the random moments (default: 0)",
    )
    parser.add_argument(
        "--shard",
        action="store_true",
        help="train in two processes with --shard (default: in one)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("runs/kills"),
        help="folder of both runs; it must not exist yet (default: runs/kills)",
    )
    options = parser.parse_args(arguments)
    if options.folder.exists():
        raise UserError(f"{options.folder} exists already; remove it, or choose another --folder")
    options.folder.mkdir(parents=True)
    rng = random.Random(options.seed)
    killed, undisturbed = options.folder / "killed", options.folder / "undisturbed"
    kills = 0
    while True:
        training = start(killed, shard=options.shard)
        if kills == options.kills:
            break
        rng.shuffle(training)  # the first one is killed first
        what = kill(training, killed, in_save=kills % 2 == 1, seconds=rng.uniform(0.0, 2.0))
        kills += what.startswith("killed")
        print(f"{kills:3d}  {what}", flush=True)
        if not what.startswith("killed"):
            break
    if wait(training):
        raise UserError("the training failed; see its message above")
    print("resumed to the end; now a training that is never killed", flush=True)
    if wait(start(undisturbed, shard=options.shard)):
        raise UserError("the training failed; see its message above")
    hashes = fingerprint(killed), fingerprint(undisturbed)
    print(f"{counted(kills, 'kill'):11} {hashes[0]}\n{'no kill':11} {hashes[1]}")
    if hashes[0] != hashes[1]:
        raise UserError(f"they differ: see {options.folder}")
    print("equal")
    for run in (killed, undisturbed):
        shutil.rmtree(run)
    with suppress(OSError):
        options.folder.rmdir()  # unless it holds other files


if __name__ == "__main__":
    sys.exit(main())
