"""Time and peak memory of a mixture of experts, compared with those of dense networks.

    python benchmarks/experts.py --rounds 5

A layer with 8 gated experts, of which each token uses 2, as in Mixtral, is compared with a dense
gated network with as many active parameters (the inner size of 2 experts) and with one with as many
parameters in all (of 8). An expert has an inner size of 2 * d_model. The time is the processor time
of one thread, in float32, which other programs on the machine change little.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from harness import SetUp, new_parser, run

EXPERTS, CHOSEN = 8, 2
SHAPES = ((256, 256), (1024, 512), (1024, 1024))
"""Numbers of tokens, and sizes d_model."""


class Case(NamedTuple):
    """One forward pass, or one forward and backward pass, of a feed-forward network.

    Attributes:
        training: Whether the pass includes a backward pass.
        tokens: Number of tokens.
        width: Size d_model.
    """

    training: bool
    tokens: int
    width: int

    def __str__(self) -> str:
        """Return the name of the table row."""
        mode = "forward and backward" if self.training else "forward"
        return f"{mode}, {self.tokens} tokens of size {self.width}"


def make_set_up(kind: str) -> SetUp:
    """Return the set-up of a network; called in its own process."""
    import torch

    from transformer_blocks import GatedFeedForward, MixtureOfExperts

    torch.set_num_threads(1)

    def make_pass(case: Any) -> Callable[[], object]:
        torch.manual_seed(0)
        network = partial(GatedFeedForward, case.width)
        inner = 2 * case.width
        module: torch.nn.Module
        if kind == "experts":
            expert = partial(network, inner)
            module = MixtureOfExperts(case.width, num_experts=EXPERTS, top_k=CHOSEN, expert=expert)
        else:
            module = network(inner * (CHOSEN if kind == "dense, active" else EXPERTS))
        x = torch.randn(case.tokens, case.width, requires_grad=case.training)

        def train() -> None:
            module(x).sum().backward()
            for tensor in (x, *module.parameters()):
                tensor.grad = None

        return train if case.training else torch.no_grad()(lambda: module(x))

    return make_pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison that the command-line options select."""
    kinds = "dense, active", "experts", "dense, total"
    implementations = {kind: partial(make_set_up, kind) for kind in kinds}
    options = new_parser(__doc__, implementations).parse_args(arguments)
    cases = [Case(training, *shape) for training in (False, True) for shape in SHAPES]
    run(options, implementations, cases, clock=time.process_time, memory=True)


if __name__ == "__main__":
    main()
