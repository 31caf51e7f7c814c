"""Sampling: tokens drawn at random from the model's distribution.

The most probable text is often a dull one, and a story has no single right continuation. Drawing
each token with the probability that the model gives it keeps the variety of the language, but also
the model's mistakes: the probabilities of thousands of improbable tokens add up, so that one of
them is drawn now and then. Three parameters make that rarer:

- *temperature* T divides the logits: T < 1 sharpens the distribution, T > 1 flattens it;
- *top-k* draws from the k most probable tokens only ("Hierarchical Neural Story Generation", Fan et
  al. 2018, https://arxiv.org/abs/1805.04833);
- *top-p*, or nucleus sampling, draws from the smallest set of most probable tokens whose
  probabilities sum to at least p ("The Curious Case of Neural Text Degeneration", Holtzman et al.
  2020, https://arxiv.org/abs/1904.09751).
"""

from collections.abc import Sequence
from functools import cache
from typing import Annotated

import torch
from torch import Tensor

from transformer_blocks._contracts import Size, checked, in_range, instance_of
from transformer_blocks.generation.protocol import Generation
from transformer_blocks.generation.stepping import (
    CheckedModel,
    EndId,
    MaxLength,
    Start,
    generate,
    limits_and_ends,
    step_log_probabilities,
)

HINT = "positive (greedy_search takes the most probable token)"
Temperature = Annotated[float, in_range(float, HINT, lambda number: number > 0.0)]
TopP = Annotated[float, in_range(float, "in (0, 1]", lambda number: 0.0 < number <= 1.0)]
Generator = Annotated[torch.Generator, instance_of(torch.Generator)]


@checked
@torch.inference_mode()
def sample(
    model: CheckedModel,
    start: Start,
    *,
    end_id: EndId | None,
    max_length: MaxLength,
    temperature: Temperature = 1.0,
    top_k: Size | None = None,
    top_p: TopP | None = None,
    generator: Generator | Sequence[Generator] | None = None,
) -> list[Generation]:
    """Generate sequences by drawing each token at random.

    All random numbers are drawn beforehand, one for each sequence and step. The same generator
    state therefore gives the same sequences, and a sequence does not depend on when others in its
    batch finish. With a generator for each sequence, it does not depend on the batch at all.

    Args:
        model: Model that computes the logits of the next token. Its state must hold everything that
            precedes ``start``: the source or the prompt.
        start: First token of each sequence, of shape (N,).
        end_id: Id of the end token, which finishes a sequence; or several such ids; None if there
            is none.
        max_length: Maximum number of tokens to generate, including the end token; or a list with
            one such number for each sequence.
        temperature: T, by which the logits are divided; above 0.
        top_k: Draw from this number of most probable tokens only; from all if not given.
        top_p: Draw from the smallest set of most probable tokens whose probabilities sum to at
            least this number, in (0, 1]. With ``top_k``, the probabilities are those among the
            ``top_k`` tokens.
        generator: Generator of the random numbers; torch's default generator on the CPU if not
            given. Or a list with one generator for each sequence: each then gets the random numbers
            that it gets alone.

    Returns:
        N generated sequences, in the order of ``start``. Their scores are the log-probabilities of
        the model, without temperature, top-k and top-p.

    Raises:
        TypeError: If ``start`` does not hold ids, or an argument is of the wrong type.
        ValueError: If an argument is out of range, ``end_id`` is not in the model's vocabulary, or
            the model's logits are NaN or infinite.

    Example:
        >>> import torch
        >>> from transformer_blocks import sample
        >>> class Coin:  # heads is 1, tails is 2, and 0 would be the end
        ...     def step(self, tokens):
        ...         return torch.tensor([[0.0, 0.6, 0.4]]).log().expand(len(tokens), 3)
        ...
        ...     def reorder(self, rows): ...
        >>> start, generator = torch.zeros(1, dtype=torch.int64), torch.Generator().manual_seed(0)
        >>> (drawn,) = sample(Coin(), start, end_id=0, max_length=1000, generator=generator)
        >>> 550 < drawn.tokens.count(1) < 650
        True
    """
    limits, ends = limits_and_ends(start, max_length, end_id)
    dtype = _widest_dtype(start.device)
    uniform = _draw(generator, limits).to(start.device, dtype)  # (longest, N)

    def choose(tokens: Tensor, unfinished: list[int], step: int) -> tuple[Tensor, Tensor]:
        log_probabilities = step_log_probabilities(model, tokens, ends)  # (M, V)
        below_best = log_probabilities - log_probabilities.amax(dim=-1, keepdim=True)
        scaled = below_best.to(dtype) / temperature
        probabilities, order = scaled.softmax(-1).sort(descending=True)  # (M, V)
        if top_k is not None:
            probabilities[:, top_k:] = 0.0
        if top_p is not None:
            cumulative = probabilities.cumsum(dim=-1)
            total, more_probable = cumulative[:, -1:], cumulative - probabilities
            probabilities = probabilities.masked_fill(more_probable >= top_p * total, 0.0)
        cumulative = probabilities.cumsum(dim=-1)
        drawn = uniform[step][unfinished][:, None] * cumulative[:, -1:]
        # In a row of NaN, searchsorted returns V, beyond the last index; `generate` raises for it.
        places = torch.searchsorted(cumulative, drawn).clamp(max=order.shape[1] - 1)
        chosen = order.gather(1, places)  # (M, 1)
        return chosen[:, 0], log_probabilities.gather(1, chosen)[:, 0]

    return generate(model, start, choose, limits, ends)


def _draw(
    generator: torch.Generator | Sequence[torch.Generator] | None, limits: Sequence[int]
) -> Tensor:
    """Draw a random number in [0, 1) for each step and sequence, of shape (max(limits), N)."""
    steps = max(limits, default=0)
    if generator is None or isinstance(generator, torch.Generator):
        device = "cpu" if generator is None else generator.device
        shape = steps, len(limits)
        dtype = _widest_dtype(torch.device(device))
        return torch.rand(shape, generator=generator, dtype=dtype, device=device)
    if len(generator) != len(limits) or len(set(map(id, generator))) != len(limits):
        raise ValueError(
            f"generator must be one, or a different one for each of the {len(limits)} sequences, "
            f"got {len(set(map(id, generator)))} different ones in a list of {len(generator)}"
        )
    uniform = torch.zeros(steps, len(limits), dtype=torch.float64, device="cpu")
    for row, (own, limit) in enumerate(zip(generator, limits, strict=True)):
        dtype = _widest_dtype(own.device)
        uniform[:limit, row] = torch.rand(limit, generator=own, dtype=dtype, device=own.device)
    return uniform


@cache
def _widest_dtype(device: torch.device) -> torch.dtype:
    """Return float64, or float32 for a device without it, such as a GPU of Apple."""
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError):
        return torch.float32
    return torch.float64
