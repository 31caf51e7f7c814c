"""Isolation: the reader's code runs in a process of its own, which it may end, or never end."""

import faulthandler
import importlib.util
import multiprocessing
import os
import signal
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

LIMIT = 60.0
"""Seconds after which the process is stopped; the slowest check takes about one."""
ANSWER = 5.0
"""Seconds in which a process that is interrupted must say where it was."""
PROCESSES: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
"""How processes start: a fork has imported all modules already, but is not safe elsewhere."""


NOT_READERS = f"{Path(__file__).parent}{os.sep}", sysconfig.get_path("stdlib"), "<frozen"
"""How the names of files begin that are not the reader's."""


def place(error: BaseException) -> str:
    """Name the last line of the reader's code that an error has passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith(NOT_READERS)]
    own = [each for each in own if "site-packages" not in each.filename]
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def told(error: BaseException) -> str:
    """Name an error, the line of the reader's code, and its first words."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}{place(error)}" + (f": {first}" if first else "")


def load(path: Path, name: str) -> ModuleType:
    """Import a file under a name; the file ``__init__.py`` is a package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_process(file: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own.

    Args:
        file: The name of the reader's file.
        work: The function; its result is sent back.
        arguments: Its arguments.

    Returns:
        Its result, or why there is none: the error, the exit status of the process, or where it was
        after :data:`LIMIT` seconds.

    Raises:
        KeyboardInterrupt: If it is interrupted; it names the law and the line.
    """
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(
        target=_send_result, args=(file, work, arguments, sender), daemon=True
    )
    with warnings.catch_warnings():  # that other threads end in the child, as Python 3.12 says
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    try:
        sender.close()
        if receiver.poll(LIMIT):
            return receiver.recv()
        os.kill(process.pid or 0, signal.SIGINT)  # then it sends where it was
        where = receiver.recv() if receiver.poll(ANSWER) else ""
        return f"{file} is stopped{where}: it takes more than {LIMIT:g} seconds"
    except EOFError:
        process.join()
        return f"{file} ends its process, with the exit status {process.exitcode}"
    except KeyboardInterrupt:
        where = receiver.recv() if receiver.poll(ANSWER) else ""
        raise KeyboardInterrupt(where.strip()) from None
    finally:
        process.kill()
        process.join()
        receiver.close()


def _send_result(
    file: str, work: Callable[..., Any], arguments: tuple[Any, ...], sender: Connection
) -> None:
    """Call a function, and send its result, or where it is interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.dump_traceback_later(LIMIT + 2 * ANSWER, exit=True, file=2)  # without parent
    torch.set_num_threads(1)  # threads do not survive a fork
    try:
        found = work(*arguments)
    except KeyboardInterrupt as stop:
        found = f" {stop.args[0]}" if stop.args else place(stop)
    except (Exception, SystemExit) as error:  # whatever the reader's code raises
        found = f"{file} raises {told(error)}"
    sys.stdout.flush()  # what it printed, before this process is killed
    sender.send(found)
