"""Speed of prompts of unequal length in one batch, compared with one prompt after the other.

    python benchmarks/prompts.py
    python benchmarks/prompts.py --models stories --rounds 11

Both generate the same tokens, in float32, with models prepared for inference and random weights:

- ``stories``: the default language model of ``generate_text.py`` (2 layers, d_model 128, rotary
  positions, a context of 128);
- ``gpt2``: the small GPT-2 (12 layers, d_model 768, learned positions).

The prompts have from 1 token to ``longest`` tokens, equally distributed, and no text ends earlier.
``one by one`` decodes them in turn, ``one batch`` together, padded at the left. ``equal lengths``
is a batch of as many prompts without padding, which are all as long as the longest one: the
difference between it and ``one batch`` is what masks and positions of each row cost.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from random import Random
from typing import Any, NamedTuple

from harness import SetUp, new_parser, run

VOCABULARY = {"stories": 400, "gpt2": 50257}


class Case(NamedTuple):
    """Prompts to continue.

    Attributes:
        model: "stories" or "gpt2".
        search: "greedy", "beam" (4 beams) or "sample".
        prompts: Number of prompts.
        longest: Number of tokens of the longest prompt.
        length: Number of tokens to generate for each.
    """

    model: str
    search: str
    prompts: int
    longest: int
    length: int

    def __str__(self) -> str:
        """Return the name of the table row."""
        return (
            f"{self.model}, {self.search}, {self.prompts} prompts of 1 to {self.longest} tokens, "
            f"{self.length} new"
        )


CASES = [
    Case("stories", "greedy", 16, 32, 64),
    Case("stories", "beam", 16, 32, 64),
    Case("stories", "sample", 16, 32, 64),
    Case("stories", "greedy", 16, 120, 64),
    Case("stories", "greedy", 16, 120, 400),  # each text leaves the context at another step
    Case("gpt2", "greedy", 16, 32, 32),
    Case("gpt2", "sample", 16, 32, 32),
    Case("gpt2", "greedy", 16, 120, 32),
]


def make_prompts(case: Case, *, equal: bool) -> list[list[int]]:
    """Return the prompts of a case, of mixed lengths or as many of the largest length."""
    random = Random(0)
    steps = max(1, case.prompts - 1)
    lengths = [1 + (case.longest - 1) * number // steps for number in range(case.prompts)]
    random.shuffle(lengths)
    size = VOCABULARY[case.model]
    return [
        [random.randrange(size) for _ in range(case.longest if equal else length)]
        for length in lengths
    ]


def make(way: str, *, threads: int) -> SetUp:
    """Set up one way of decoding: "one by one", "one batch" or "equal lengths"."""
    import torch

    from common.options import SamplingOptions
    from common.searches import sampling
    from text.models import build_text_model
    from transformer_blocks import beam_search, greedy_search
    from transformer_blocks.inference import prepare
    from transformer_blocks.pretrained.families import build_model

    torch.set_num_threads(threads)

    @lru_cache(maxsize=1)
    def build(name: str) -> Any:
        torch.manual_seed(0)
        if name == "stories":
            sizes: dict[str, Any] = {"num_layers": 2, "d_model": 128, "num_heads": 4, "d_ff": 384}
            sizes |= {"context": 128, "style": "today", "dropout": 0.0}
            return prepare(build_text_model(VOCABULARY[name], **sizes).eval())
        settings = {"model_type": "gpt2", "vocab_size": VOCABULARY[name], "n_positions": 1024}
        model = build_model(settings | {"n_embd": 768, "n_layer": 12, "n_head": 12})
        return prepare(model.eval())

    @torch.inference_mode()
    def generate(case: Case, model: Any, prompts: Sequence[Sequence[int]]) -> Any:
        options: dict[str, Any] = {"end_id": None, "max_length": case.length}
        if case.search == "beam":
            return model.generate(prompts, beam_search, beam_size=4, **options)
        if case.search == "sample":
            return model.generate(prompts, sampling(SamplingOptions(seed=0)), **options)
        return model.generate(prompts, greedy_search, **options)

    def set_up(case: Case) -> Callable[[], object]:
        model = build(case.model)
        prompts = make_prompts(case, equal=way == "equal lengths")
        if way == "one by one":
            return lambda: [generate(case, model, [prompt]) for prompt in prompts]
        return lambda: generate(case, model, prompts)

    return set_up


def main() -> None:
    """Time all cases and print a table."""
    ways = ("one by one", "one batch", "equal lengths")
    parser = new_parser(__doc__, ways, rounds=5)
    parser.add_argument("--models", nargs="+", choices=VOCABULARY, default=[*VOCABULARY])
    parser.add_argument("--threads", type=int, default=2, help="threads (default: 2)")
    options = parser.parse_args()
    implementations = {way: partial(make, way, threads=options.threads) for way in ways}
    run(options, implementations, [case for case in CASES if case.model in options.models])


if __name__ == "__main__":
    main()
