"""Time and memory of causal self-attention against the length of the sequence.

    make bench-lengths                       # or: python benchmarks/lengths.py
    python benchmarks/lengths.py --only ours minimum --kinds decoding --lengths 512 1024

One sequence, float32, four heads of 64 dimensions, projections included, no dropout. The kinds:

- ``forward``: a pass without gradients; ``training``: a forward and a backward pass;
- ``decoding``: one step of one position, with the keys and values of all positions before it.

The contestants, each in a process of its own:

- ``torch``: ``nn.MultiheadAttention`` with ``need_weights=False``, ``is_causal=True`` and the mask
  that this demands. It has no cache: a step projects all positions to keys and values again.
- ``x-transformers``: its ``Attention`` with ``flash=True`` and its own cache;
- ``ours``: ``MultiHeadAttention``; ``ours, window 256``: with ``SlidingWindowAttention(256)``;
  ``ours, packed documents``: with a ``packed_mask`` of documents of 1 to 1,023 positions;
  ``window 256, stored mask``, ``packed documents, stored mask``: with ``sliding_window_mask`` and
  ``document_mask``, which hide the same keys, but save nothing;
- ``minimum``: what no implementation can go below on this machine, and what it can go below with
  packed documents or a window: the floating-point operations of the matrix products (half of those
  of attention, since the future is masked; a backward pass has twice as many as a forward pass) at
  the rate of a large matrix product, or the bytes that must be read and written once, at the rate
  at which two large vectors are read, whichever takes longer. (What lies in the processor's cache
  is read faster: a short step can take less.) Its memory is that of the tensors that must exist.

Times are the best of several passes and of one and two threads; a pass of more than two seconds is
not repeated, and not tried with one thread. Memory is the peak above that before the input was
made: input, weights, masks and cache are included. A contestant stops at the length at which it
would exceed the limit of time, judged by the growth so far, or exceeds that of memory. ``--output``
keeps earlier results of the file that are not measured again. ``--processor-time`` measures the
processor's time with one thread instead, for a machine that others use too.
"""

import argparse
import ctypes
import json
import multiprocessing
import platform
import resource
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

WIDTH, HEADS = 256, 4
LENGTHS = [2**power for power in range(9, 16)]
THREADS_OF: dict[Callable[[], float], tuple[int, ...]] = {
    time.perf_counter: (2, 1),
    time.process_time: (1,),  # of all threads together
}
KINDS = "forward", "training", "decoding"
MEAN_DOCUMENT = 512
TIME_LIMIT = 60.0  # seconds of one pass
MEMORY_LIMIT = 6 * 1024  # MB
ENOUGH_SECONDS, MOST_PASSES = 0.4, 20  # passes are repeated until one of them is reached
LONG_PASS = 2.0  # seconds

Pass = Callable[[], object]
Clock = Callable[[], float]


class Result(NamedTuple):
    """Time and memory of one contestant at one length.

    Attributes:
        contestant: Its name.
        kind: "forward", "training" or "decoding".
        length: Length of the sequence.
        threads: Number of threads with which it was faster.
        seconds: Seconds of a pass; None if it was stopped.
        megabytes: Peak memory in MB (2^20 bytes); None if it was stopped.
        stopped: "time" or "memory" if it would have exceeded this limit.
    """

    contestant: str
    kind: str
    length: int
    threads: int | None = None
    seconds: float | None = None
    megabytes: float | None = None
    stopped: str = ""


def torch_attention(kind: str, length: int) -> tuple[Any, Callable[[Any], Any]]:
    """Build torch's attention, as its documentation says."""
    import torch
    from torch import nn

    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    if kind == "decoding":
        prefix = torch.randn(1, length, WIDTH)
        return attention, lambda x: attention(x, prefix, prefix, need_weights=False)[0]
    mask = nn.Transformer.generate_square_subsequent_mask(length, dtype=torch.float32)
    return attention, lambda x: attention(
        x, x, x, attn_mask=mask, is_causal=True, need_weights=False
    )[0]


def x_transformers_attention(kind: str, length: int) -> tuple[Any, Callable[[Any], Any]]:
    """Build the attention of x-transformers."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import x_transformers
        from x_transformers.attend import Intermediates

    attention = x_transformers.Attention(WIDTH, heads=HEADS, causal=True, flash=True)
    if kind == "decoding":
        keys, values = torch.randn(2, 1, HEADS, length, WIDTH // HEADS).unbind()
        cache = Intermediates(cached_kv=(keys, values))
        return attention, lambda x: attention(x, cache=cache, return_intermediates=True)[0]
    return attention, lambda x: attention(x)


def our_attention(
    kind: str, length: int, *, window: int = 0, packing: bool = False, stored: bool = False
) -> tuple[Any, Callable[[Any], Any]] | None:
    """Build our attention with a window or packed documents, hidden by a stored mask or not."""
    import torch

    from transformer_blocks import (
        KeyValueCache,
        MultiHeadAttention,
        SlidingWindowAttention,
        document_mask,
        fused_attention,
        packed_mask,
        sliding_window_mask,
    )

    mask = None
    if packing:
        documents = draw_documents(length)
        mask = document_mask(documents) if stored else packed_mask(documents)
    elif stored:
        mask = sliding_window_mask(length, window=window)
    windowed = window and not stored
    function = SlidingWindowAttention(window) if windowed else fused_attention
    attention = MultiHeadAttention(WIDTH, HEADS, attention_function=function)
    if kind != "decoding":
        return attention, lambda x: attention(x, x, x, mask=mask, causal=True)
    if packing or stored:
        return None
    cache = KeyValueCache()
    cache.append(*torch.randn(2, 1, HEADS, length, WIDTH // HEADS).unbind())

    def step(x: Any) -> Any:
        output = attention(x, x, x, causal=True, cache=cache)
        cache.crop(length)
        return output

    return attention, step


def draw_documents(length: int) -> Any:
    """Draw the ids of packed documents, of shape (1, L)."""
    import torch

    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 2 * MEAN_DOCUMENT, (length,), generator=generator)
    return torch.arange(length).repeat_interleave(lengths)[None, :length]


BUILDS: dict[str, Callable[[str, int], tuple[Any, Callable[[Any], Any]] | None]] = {
    "torch": torch_attention,
    "x-transformers": x_transformers_attention,
    "ours": our_attention,
    "ours, window 256": lambda *case: our_attention(*case, window=256),
    "ours, window 1024": lambda *case: our_attention(*case, window=1024),
    "ours, packed documents": lambda *case: our_attention(*case, packing=True),
    "window 256, stored mask": lambda *case: our_attention(*case, window=256, stored=True),
    "packed documents, stored mask": lambda *case: our_attention(*case, packing=True, stored=True),
}
MINIMA: dict[str, Callable[[int], int]] = {
    "minimum": lambda length: length * (length + 1) // 2,
    "minimum, window 256": lambda length: window_pairs(length, 256),
    "minimum, window 1024": lambda length: window_pairs(length, 1024),
    "minimum, packed documents": lambda length: packed_pairs(length),
}
"""For each bound, a function that counts the pairs of a query and a key that is not masked."""


def window_pairs(length: int, window: int) -> int:
    """Count the pairs of a query and a key within a causal window."""
    inner = min(length, window)
    return inner * (inner + 1) // 2 + (length - inner) * window


def packed_pairs(length: int) -> int:
    """Count the pairs of a query and a key before it in the same document."""
    return sum(int(n) * (int(n) + 1) // 2 for n in draw_documents(length)[0].bincount())


def make_pass(name: str, kind: str, length: int) -> Pass | None:
    """Return a function that computes one pass of a contestant; None if it has no such kind."""
    import torch

    torch.manual_seed(0)
    x = torch.randn(1, 1 if kind == "decoding" else length, WIDTH)
    built = BUILDS[name](kind, length)
    if built is None:
        return None
    module, attend = built
    if kind != "training":
        module.eval()
        return torch.no_grad()(lambda: attend(x))
    upstream = torch.randn_like(x)
    x.requires_grad_()

    def train() -> None:
        attend(x).backward(upstream)
        for tensor in (x, *module.parameters()):
            tensor.grad = None

    return train


def work(connection: Connection, name: str, clock: Clock) -> None:
    """Send the time and the memory of each case that is received: kind, length and threads."""
    import torch

    for kind in KINDS:  # once, to import and to set up what is set up at the first call
        run = make_pass(name, kind, 64)
        if run is not None:
            run()
    limit = status("VmSize") * 1024 + MEMORY_LIMIT * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    while True:
        kind, length, threads = connection.recv()
        torch.set_num_threads(threads)
        run = None
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = status("VmRSS")
        try:
            run = make_pass(name, kind, length)
            if run is None:
                connection.send("no such kind")
                continue
            seconds = [seconds_of(run, clock)]
            megabytes = (status("VmHWM") - before) / 1024
            while sum(seconds) < ENOUGH_SECONDS and len(seconds) < MOST_PASSES:
                seconds.append(seconds_of(run, clock))
            if len(seconds) == 1 and seconds[0] < LONG_PASS:
                seconds.append(seconds_of(run, clock))
            connection.send((min(seconds), megabytes))
        except (MemoryError, RuntimeError) as error:
            if "alloc" not in str(error) and not isinstance(error, MemoryError):
                raise
            connection.send("memory")


def seconds_of(run: Pass, clock: Clock) -> float:
    """Return the time of one pass."""
    started = clock()
    run()
    return clock() - started


def status(name: str) -> int:
    """Return a number of kB from the process's status."""
    lines = Path("/proc/self/status").read_text().split("\n")
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def measure(
    name: str,
    kinds: Sequence[str],
    lengths: Sequence[int],
    known: Mapping[Any, Result],
    clock: Clock,
) -> Iterator[Result]:
    """Measure one contestant at growing lengths, until it exceeds a limit."""
    context = multiprocessing.get_context("spawn")
    connection, other = context.Pipe()
    process = context.Process(target=work, args=(other, name, clock), daemon=True)
    process.start()
    other.close()
    try:
        for kind in kinds:
            done = {each.length: each for each in known.values() if each[:2] == (name, kind)}
            for length in sorted(lengths):
                result = measure_length(connection, name, kind, length, done, THREADS_OF[clock])
                if result is not None:
                    done[length] = result
                    yield result
    except EOFError:
        raise SystemExit(f"error: {name} failed; its message is above") from None
    finally:
        process.kill()
        process.join()


def measure_length(
    connection: Connection,
    name: str,
    kind: str,
    length: int,
    done: Mapping[int, Result],
    numbers_of_threads: Sequence[int],
) -> Result | None:
    """Measure one contestant at one length with each number of threads."""
    last, before = (done.get(length // part) for part in (2, 4))
    growth = 4.0  # if nothing is known
    if last and before and last.seconds and before.seconds:
        growth = min(growth, last.seconds / before.seconds)
    if last and (last.stopped or (last.seconds and growth * last.seconds > TIME_LIMIT)):
        return Result(name, kind, length, stopped=last.stopped or "time")
    best, peak = (float("inf"), 0), 0.0
    for threads in numbers_of_threads:
        if LONG_PASS < best[0] < float("inf"):
            continue
        connection.send((kind, length, threads))
        answer = connection.recv()
        if isinstance(answer, str):
            return Result(name, kind, length, stopped=answer) if answer == "memory" else None
        best, peak = min(best, (answer[0], threads)), max(peak, answer[1])
    return Result(name, kind, length, best[1], best[0], peak)


def measure_rates(clock: Clock) -> dict[str, float]:
    """Measure the operations and the bytes per second of large products of matrices and vectors."""
    import torch

    a, b = torch.randn(2, 2048, 2048).unbind()
    x, y = torch.randn(2, 2**26).unbind()
    rates = {"operations": 0.0, "bytes": 0.0}
    for threads in THREADS_OF[clock]:
        torch.set_num_threads(threads)
        multiply = min(seconds_of(lambda: torch.mm(a, b), clock) for _ in range(10))
        read = min(seconds_of(lambda: torch.dot(x, y), clock) for _ in range(10))
        rates["operations"] = max(rates["operations"], 2 * 2048**3 / multiply)
        rates["bytes"] = max(rates["bytes"], 2 * 4 * 2**26 / read)
    return rates


def minima(
    name: str, kinds: Sequence[str], lengths: Sequence[int], rates: dict[str, float]
) -> Iterator[Result]:
    """Compute the least time and memory at each length."""
    for kind, length in product(kinds, lengths):
        result = minimum(name, kind, length, rates)
        if result is not None:
            yield result


def minimum(name: str, kind: str, length: int, rates: dict[str, float]) -> Result | None:
    """Compute the least time and memory of a pass."""
    weights = 4 * WIDTH**2
    if kind == "decoding":
        if "documents" in name:
            return None
        window = int(name.split()[-1]) if "window" in name else length
        keys = min(length, window)
        operations = 2 * weights + 4 * keys * WIDTH
        moved = 4 * (weights + 2 * keys * WIDTH)
        kept = 4 * (weights + 2 * length * WIDTH)
    else:
        operations = 2 * length * weights + 4 * MINIMA[name](length) * WIDTH
        if kind == "training":
            operations *= 3
        # Moved: input and output, and in training also their gradients and those of the weights.
        # Kept: input, keys, values and output; in training also queries, the heads' output and two
        # gradients.
        tensors, kept_tensors, copies = (4, 8, 2) if kind == "training" else (2, 4, 1)
        moved = 4 * (tensors * length * WIDTH + copies * weights)
        kept = 4 * (kept_tensors * length * WIDTH + copies * weights)
    seconds = max(operations / rates["operations"], moved / rates["bytes"])
    return Result(name, kind, length, None, seconds, kept / 2**20)


def show(results: Sequence[Result]) -> None:
    """Print a table of each kind: milliseconds and MB, a row for each length."""
    for kind in dict.fromkeys(each.kind for each in results):
        chosen = {(r.contestant, r.length): r for r in results if r.kind == kind}
        names = list(dict.fromkeys(name for name, _ in chosen))
        print(f"\n{kind}: milliseconds with the best number of threads / MB")
        print("  ".join([" length", *(name.rjust(30) for name in names)]))
        for length in sorted({length for _, length in chosen}):
            cells = [describe(chosen.get((name, length))).rjust(30) for name in names]
            print("  ".join([f"{length:7}", *cells]), flush=True)


def describe(result: Result | None) -> str:
    """Format a cell of the table."""
    if result is None:
        return "-"
    if result.seconds is None or result.megabytes is None:
        return f"({result.stopped})"
    threads = f"({result.threads})" if result.threads else ""
    return f"{1e3 * result.seconds:.3g}{threads} / {result.megabytes:.3g}"


def sort(results: Iterable[Result]) -> list[Result]:
    """Sort results by kind, contestant and length."""
    names = [*BUILDS, *MINIMA]
    return sorted(results, key=lambda r: (KINDS.index(r.kind), names.index(r.contestant), r.length))


def save(
    path: Path, rates: dict[str, float], results: Iterable[Result], *, processor_time: bool
) -> None:
    """Write the results as JSON."""
    from transformer_blocks.explorer.files import write_atomically

    option, time_of = " --processor-time" * processor_time, "one thread" * processor_time
    content = {
        "command": f"python benchmarks/lengths.py{option} --output docs/images/data/lengths.json",
        "origin": f"measured on {platform.machine()}, {time_of or 'two cores'} of a CPU, "
        f"torch {version('torch')}, x-transformers {version('x-transformers')}",
        "rates": rates,
        "results": [result._asdict() for result in sort(results)],
    }
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def load(path: Path | None) -> dict[str, Any]:
    """Return what an earlier run wrote, or nothing."""
    if path is None or not path.exists():
        return {"results": []}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command-line options select."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*BUILDS, *MINIMA]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--output", type=Path, help="file for the results, as JSON")
    parser.add_argument("--processor-time", action="store_true", help="measure it, with one thread")
    options = parser.parse_args(arguments)
    clock = time.process_time if options.processor_time else time.perf_counter
    content = load(options.output)
    known = {Result(**each)[:3]: Result(**each) for each in content["results"]}
    rates = content.get("rates") or measure_rates(clock)
    print(f"{rates['operations'] / 1e9:.0f} GFLOP/s, {rates['bytes'] / 1e9:.1f} GB/s")
    for name in options.only:
        if name in BUILDS:
            found = measure(name, options.kinds, options.lengths, known, clock)
        else:
            found = minima(name, options.kinds, options.lengths, rates)
        for result in found:
            known[result[:3]] = result
            print(f"{name:30}  {result.kind:8} {result.length:6}  {describe(result)}", flush=True)
            if options.output:
                save(
                    options.output,
                    rates,
                    known.values(),
                    processor_time=options.processor_time,
                )
    show(sort(known.values()))


if __name__ == "__main__":
    main()
