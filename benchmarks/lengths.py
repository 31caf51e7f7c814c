"""Time and memory of causal self-attention against the length of the sequence.

    make bench-lengths                       # or: python benchmarks/lengths.py
    python benchmarks/lengths.py --only ours minimum --kinds decoding --lengths 512 1024

One sequence, float32, four heads of 64 dimensions, projections included, no dropout. The kinds:

- ``forward``: a pass without gradients; ``training``: a forward and a backward pass;
- ``decoding``: one step of one position, with the keys and values of all positions before it.

The contestants:

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

Times are those of one thread or of two, whichever is faster. A contestant stops at the length at
which it would exceed the limit of time, as if its time grew with the square of the length, or
exceeds that of memory. ``--processor-time`` measures the processor's time with one thread instead,
for a machine that others use too.
"""

import resource
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from harness import Result, SetUp, compare, new_parser, save, status

WIDTH, HEADS = 256, 4
LENGTHS = [2**power for power in range(9, 16)]
KINDS = "forward", "training", "decoding"
MEAN_DOCUMENT = 512
TIME_LIMIT = 15.0  # seconds of one pass
MEMORY_LIMIT = 6 * 1024  # MB

Pass = Callable[[], object]


class Case(NamedTuple):
    """A pass of a kind of ``KINDS``, with a sequence of a length."""

    kind: str
    length: int

    def __str__(self) -> str:
        return f"{self.kind}, {self.length}"


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
    "ours, packed documents": lambda *case: our_attention(*case, packing=True),
    "window 256, stored mask": lambda *case: our_attention(*case, window=256, stored=True),
    "packed documents, stored mask": lambda *case: our_attention(*case, packing=True, stored=True),
}
MINIMA: dict[str, Callable[[int], int]] = {
    "minimum": lambda length: length * (length + 1) // 2,
    "minimum, window 256": lambda length: window_pairs(length, 256),
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


def make_pass(name: str, case: Case) -> Pass | None:
    """Return a function that computes one pass of a contestant; None if it has no such kind."""
    import torch

    torch.manual_seed(0)
    x = torch.randn(1, 1 if case.kind == "decoding" else case.length, WIDTH)
    built = BUILDS[name](*case)
    if built is None:
        return None
    module, attend = built
    if case.kind != "training":
        module.eval()
        return torch.no_grad()(lambda: attend(x))
    upstream = torch.randn_like(x)
    x.requires_grad_()

    def train() -> None:
        attend(x).backward(upstream)
        for tensor in (x, *module.parameters()):
            tensor.grad = None

    return train


def make(name: str, *, threads: int) -> SetUp:
    """Set up a contestant, in a process whose memory is limited."""
    import torch

    torch.set_num_threads(threads)
    for kind in KINDS:  # once, to import and to set up what is set up at the first call
        run = make_pass(name, Case(kind, 64))
        if run is not None:
            run()
    limit = int((status("VmSize") + MEMORY_LIMIT) * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    done: dict[Case, float] = {}

    def set_up(case: Case) -> Pass | None:
        shorter = [each for each in done if each.kind == case.kind and each.length < case.length]
        for each in shorter[-1:]:
            if done[each] * (case.length / each.length) ** 2 > TIME_LIMIT:
                return None
        run = make_pass(name, case)
        if run is None:
            return None

        def timed() -> None:
            done[case] = _seconds(run, time.perf_counter)

        return timed

    return set_up


def _seconds(run: Pass, clock: Callable[[], float]) -> float:
    """Return the time of one pass."""
    started = clock()
    run()
    return clock() - started


def measure_rates(clock: Callable[[], float], threads: Sequence[int]) -> dict[str, float]:
    """Measure the operations and the bytes per second of large products of matrices and vectors."""
    import torch

    a, b = torch.randn(2, 2048, 2048).unbind()
    x, y = torch.randn(2, 2**26).unbind()
    rates = {"operations": 0.0, "bytes": 0.0}
    for number in threads:
        torch.set_num_threads(number)
        multiply = min(_seconds(lambda: torch.mm(a, b), clock) for _ in range(10))
        read = min(_seconds(lambda: torch.dot(x, y), clock) for _ in range(10))
        rates["operations"] = max(rates["operations"], 2 * 2048**3 / multiply)
        rates["bytes"] = max(rates["bytes"], 2 * 4 * 2**26 / read)
    return rates


def minimum(name: str, case: Case, rates: dict[str, float]) -> Result | None:
    """Compute the least time and memory of a pass."""
    (kind, length), weights = case, 4 * WIDTH**2
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
    return Result(name, case, [seconds], [kept / 2**20])


def minima(
    names: Sequence[str], cases: Sequence[Case], rates: dict[str, float]
) -> Iterator[Result]:
    """Compute and print the least time and memory of each case."""
    print(f"\n{rates['operations'] / 1e9:.0f} GFLOP/s, {rates['bytes'] / 1e9:.1f} GB/s")
    for name, case in product(names, cases):
        result = minimum(name, case, rates)
        if result is not None:
            milliseconds, megabytes = 1e3 * result.median, result.megabytes[0]
            print(f"{name:26}  {case!s:16} {milliseconds:10.3g} ms {megabytes:8.3g} MB")
            yield result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command-line options select."""
    parser = new_parser(__doc__, [*BUILDS, *MINIMA], rounds=3)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--processor-time", action="store_true", help="measure it, with one thread")
    options = parser.parse_args(arguments)
    # The processor's time is that of all threads together.
    clock = time.process_time if options.processor_time else time.perf_counter
    threads = (1,) if options.processor_time else (2, 1)
    cases = [Case(*case) for case in product(options.kinds, sorted(options.lengths))]
    results = compare(
        {name: partial(make, name) for name in options.only if name in BUILDS},
        cases,
        rounds=options.rounds,
        threads=threads,
        clock=clock,
        memory=True,
    )
    names = [name for name in options.only if name in MINIMA]
    if names:
        results += minima(names, cases, measure_rates(clock, threads))
    save(options, results)


if __name__ == "__main__":
    main()
