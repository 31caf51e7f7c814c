"""Sampling: a word is as likely to be written as the model thinks it is.

The likeliest sentence is often a dull one, and for a story there is no single right answer. Drawing
words at random keeps the variety of the model's language, but also its slips: thousands of unlikely
words have some chance together. Three knobs hold them down:

- *temperature* T divides the logits: below 1 the likely words gain, above 1 the unlikely ones;
- *top-k* draws from the k likeliest words only ("Hierarchical Neural Story Generation", Fan et al.
  2018, https://arxiv.org/abs/1805.04833);
- *top-p*, or nucleus sampling, from the fewest words that have a probability of p together ("The
  Curious Case of Neural Text Degeneration", Holtzman et al. 2020, https://arxiv.org/abs/1904.09751).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_blocks._checks import check_instance, check_number, check_size
from transformer_blocks.generation.protocol import Generation, StepModel
from transformer_blocks.generation.stepping import check_search, write


@torch.inference_mode()
def sample(
    model: StepModel,
    start: Tensor,
    *,
    end_id: int | None,
    max_length: int | Sequence[int],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> list[Generation]:
    """Write sentences by drawing each token at random.

    All dice are thrown beforehand, one for each sentence and step. So the same generator gives the
    same sentences, and when a neighbour ends makes no difference to those that go on.

    Args:
        model: What scores the next token; at its beginning.
        start: First token of each sentence. Shape (N,).
        end_id: The token that ends a sentence; None if there is none.
        max_length: Largest number of tokens to generate, the end token included; or a list with
            one such number for each sentence.
        temperature: T, by which the logits are divided; above 0.
        top_k: Draw from so many tokens only, the likeliest; from all if not given.
        top_p: Draw from the fewest tokens that have this probability together, in (0, 1]. With
            ``top_k`` too, the probability is that among the ``top_k`` likeliest.
        generator: Where the dice come from; torch's own on the CPU if not given.

    Returns:
        N sentences, in the order of ``start``. Their scores are the model's log-probabilities,
        whatever the knobs.

    Raises:
        TypeError: If ``start`` does not hold ids, or an argument is of the wrong kind.
        ValueError: If an argument is out of range, ``end_id`` is not in the model's vocabulary, or
            the model's logits are not numbers.

    Example:
        >>> class Coin:  # heads is 1, tails is 2, and 0 would be the end
        ...     def step(self, tokens):
        ...         return torch.tensor([[0.0, 0.6, 0.4]]).log().expand(len(tokens), 3)
        ...
        ...     def reorder(self, rows): ...
        >>> start, dice = torch.zeros(1, dtype=torch.int64), torch.Generator().manual_seed(0)
        >>> (thrown,) = sample(Coin(), start, end_id=0, max_length=1000, generator=dice)
        >>> 550 < thrown.tokens.count(1) < 650
        True
    """
    limits = check_search(model, start, end_id, max_length)
    check_number(temperature=temperature)
    if top_p is not None:
        check_number(top_p=top_p)
    if generator is not None:
        check_instance(torch.Generator, generator=generator)
    if top_k is not None:
        check_size(top_k=top_k)
    if not 0.0 < temperature < math.inf:
        raise ValueError(f"temperature must be above 0, finite, got temperature={temperature}")
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p must be in (0, 1], got top_p={top_p}")
    dice_device = "cpu" if generator is None else generator.device
    dice = torch.rand(
        *(max(limits, default=0), len(start)),
        generator=generator,
        dtype=torch.float64,
        device=dice_device,
    ).to(start.device)

    def choose(log_probabilities: Tensor, alive: list[int], step: int) -> Tensor:
        below_best = log_probabilities - log_probabilities.amax(dim=-1, keepdim=True)
        likely, tokens = (below_best.double() / temperature).softmax(-1).sort(descending=True)
        if top_k is not None:
            likely[:, top_k:] = 0.0
        if top_p is not None:
            reached = likely.cumsum(dim=-1)
            mass_before = reached - likely  # of all likelier tokens
            likely = likely.masked_fill(mass_before >= top_p * reached[:, -1:], 0.0)
        reached = likely.cumsum(dim=-1)  # (M, V)
        thrown = dice[step][alive][:, None] * reached[:, -1:]
        places = torch.searchsorted(reached, thrown).clamp(
            max=tokens.shape[1] - 1
        )  # NaN: see write
        return tokens.gather(1, places)[:, 0]

    return write(model, start, choose, end_id=end_id, max_length=max_length)
