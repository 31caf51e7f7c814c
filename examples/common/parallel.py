"""Parallel: a function applied to the parts of a large input by several processes, in order."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, TypeVar

from common.errors import UserError

Part = TypeVar("Part")
Result = TypeVar("Result")

_function: Callable[[Any], Any]  # in a worker process: the function to apply


def cpu_count() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_order(
    function: Callable[[Part], Result], parts: Iterable[Part], *, workers: int
) -> Iterator[Result]:
    """Apply a function to each part, in several processes, and yield the results in order.

    The results do not depend on the number of processes. Only a few parts and results are in memory
    at any time, however many there are. A single part is computed in this process.

    Args:
        function: The function; it is pickled once for each process.
        parts: The parts, which are pickled.
        workers: Number of processes; 1 computes in this process.

    Raises:
        UserError: If a process was killed, for example because the memory is full.
    """
    remaining = iter(parts)
    first = list(islice(remaining, 2))
    if workers == 1 or len(first) < 2:
        yield from map(function, chain(first, remaining))
        return
    executor = ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),  # threads of torch do not survive a fork
        initializer=_initialise_worker,
        initargs=(function,),
    )
    waiting: deque[Future[Result]] = deque()
    try:
        for part in chain(first, remaining):
            waiting.append(executor.submit(_apply, part))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise UserError("a process that read the corpus was killed; is the memory full?") from error
    finally:
        executor.shutdown(cancel_futures=True)


def _initialise_worker(function: Callable[[Any], Any]) -> None:
    """Initialise a worker process, which ends as soon as its parent has ended."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, too
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """End this process as soon as its parent has ended; the work of a thread."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _apply(part: Any) -> Any:
    return _function(part)
