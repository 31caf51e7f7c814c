"""How fast published models run in these blocks, beside the library that they come from.

    make bench-pretrained                    # or: python benchmarks/published.py
    python benchmarks/published.py --only transformers ours --rounds 11

The models have the sizes of published ones and random weights:

- ``encode``: a MiniLM (6 layers, width 384) reads a batch of sentences of 8 to 64 tokens;
- ``go on``: the small GPT-2 (12 layers, width 768) writes 32 tokens, greedily, after 16;
- ``translate``: an OPUS-MT (6 + 6 layers, width 512) reads 8 to 16 tokens and writes 32, with 4
  beams.

No text ends before its length. The contestants are ``transformers``, with ``generate`` where there
is something to write; ``ours``, prepared as the programs of ``examples/pretrained`` do; ``ours
compiled``, prepared with compiled steps; and ``ours unprepared``.
"""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parent.parent / "examples"))  # the models

from contest import Prepare, draw, hold, write_json
from marian import build_marian

THREADS = 2
NO_PADDING = -1  # an id that no token has
WRITTEN, BEGUN, BEAMS = 32, 16, 4
MINILM, GPT2, OPUS = 30522, 50257, 60716
"""Sizes of the vocabularies; padding is 0 in the first and the last word in the third."""

PACKAGES = ("torch", "transformers", "transformer-blocks")


class Cell(NamedTuple):
    """Something to do for a batch.

    Attributes:
        work: "encode", "go on" or "translate".
        batch: How many texts.
    """

    work: str
    batch: int

    def __str__(self) -> str:
        """Name the row of the table."""
        return f"{self.work}, batch {self.batch}"


WORKS = ("encode", "go on", "translate")
CELLS = [Cell(work, batch) for work in WORKS for batch in (1, 16)]


def texts(count: int, *, shortest: int, longest: int, vocabulary: int, padding: int) -> Any:
    """Make a padded batch of ids, the same for everybody. Shape (B, L)."""
    import torch

    dice = random.Random(0)
    lengths = [longest, *(dice.randint(shortest, longest) for _ in range(count - 1))]
    tokens = torch.full((count, longest), padding)
    for row, length in enumerate(lengths):
        ids = [dice.randrange(1, vocabulary - 1) for _ in range(length)]
        tokens[row, :length] = torch.tensor(ids)
    return tokens


def batch_of(cell: Cell) -> Any:
    """Make the batch that a cell begins with."""
    if cell.work == "encode":
        return texts(cell.batch, shortest=8, longest=64, vocabulary=MINILM, padding=0)
    if cell.work == "go on":
        return texts(cell.batch, shortest=BEGUN, longest=BEGUN, vocabulary=GPT2, padding=0)
    return texts(cell.batch, shortest=8, longest=16, vocabulary=OPUS, padding=OPUS - 1)


def make_ours(*, prepared: bool, compiled: bool = False) -> Prepare:
    """Set up the models of ``examples/pretrained``."""
    import torch

    from pretrained.bert_model import Bert
    from pretrained.gpt2_model import Gpt2, Gpt2Steps
    from pretrained.marian_model import Marian, MarianSteps
    from transformer_blocks import beam_search, greedy_search
    from transformer_blocks.inference import prepare

    torch.set_num_threads(THREADS)
    makers: dict[str, Callable[[], Any]] = {
        "encode": partial(
            Bert,
            vocabulary_size=MINILM,
            d_model=384,
            num_layers=6,
            num_heads=12,
            d_ff=1536,
            max_length=512,
        ),
        "go on": partial(
            Gpt2,
            vocabulary_size=GPT2,
            d_model=768,
            num_layers=12,
            num_heads=12,
            max_length=1024,
            end_id=GPT2 - 1,
        ),
        "translate": partial(
            Marian,
            vocabulary_size=OPUS,
            d_model=512,
            num_layers=(6, 6),
            num_heads=(8, 8),
            d_ff=(2048, 2048),
            max_length=512,
            padding_id=OPUS - 1,
        ),
    }

    @lru_cache(maxsize=1)
    def build(work: str) -> Any:
        torch.manual_seed(0)
        model = makers[work]().eval()
        return prepare(model, compiled=compiled) if prepared else model

    @torch.inference_mode()
    def work(model: Any, tokens: Any, cell: Cell) -> Any:
        if cell.work == "encode":
            return model(tokens)
        if cell.work == "go on":
            steps = Gpt2Steps(model, tokens[:, :-1])
            return greedy_search(steps, tokens[:, -1], end_id=None, max_length=WRITTEN)
        return beam_search(
            MarianSteps(model, tokens, max_length=WRITTEN + 1),
            torch.full((cell.batch,), model.padding_id),
            beam_size=BEAMS,
            end_id=None,
            max_length=WRITTEN,
        )

    def set_up(cell: Cell) -> Callable[[], object]:
        model, tokens = build(cell.work), batch_of(cell)
        return lambda: work(model, tokens, cell)

    return set_up


def make_transformers() -> Prepare:
    """Set up Hugging Face's models."""
    import torch
    import transformers

    torch.set_num_threads(THREADS)

    @lru_cache(maxsize=1)
    def build(work: str) -> Any:
        torch.manual_seed(0)
        if work == "encode":
            config = transformers.BertConfig(
                vocab_size=MINILM,
                hidden_size=384,
                num_hidden_layers=6,
                num_attention_heads=12,
                intermediate_size=1536,
            )
            return transformers.BertModel(config, add_pooling_layer=False).eval()
        if work == "go on":
            model: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config())
        else:
            model = build_marian(
                vocabulary=OPUS,
                d_model=512,
                num_layers=6,
                num_heads=8,
                d_ff=2048,
                padding=OPUS - 1,
                start=OPUS - 1,
                end=0,
                activation="swish",
                max_position_embeddings=512,
                forced_eos_token_id=None,
            )
        return model.eval()

    @torch.inference_mode()
    def work(model: Any, tokens: Any, real: Any, cell: Cell) -> Any:
        if cell.work == "encode":
            return model(tokens, attention_mask=real).last_hidden_state
        written = model.generate(
            tokens,
            attention_mask=real,
            num_beams=BEAMS if cell.work == "translate" else 1,
            do_sample=False,
            min_new_tokens=WRITTEN,
            max_new_tokens=WRITTEN,
            pad_token_id=OPUS - 1 if cell.work == "translate" else 0,
        )
        before = 1 if cell.work == "translate" else BEGUN
        if written.shape != (cell.batch, before + WRITTEN):
            raise RuntimeError(f"texts of {WRITTEN} tokens were asked for, got {written.shape}")
        return written

    def set_up(cell: Cell) -> Callable[[], object]:
        model, tokens = build(cell.work), batch_of(cell)
        padding = {"encode": 0, "go on": NO_PADDING, "translate": OPUS - 1}[cell.work]
        real = (tokens != padding).long()
        return lambda: work(model, tokens, real, cell)

    return set_up


def main(arguments: Sequence[str] | None = None) -> None:
    """Hold the contest that the command line asks for."""
    contestants: dict[str, Callable[[], Prepare]] = {
        "transformers": make_transformers,
        "ours": partial(make_ours, prepared=True),
        "ours compiled": partial(make_ours, prepared=True, compiled=True),
        "ours unprepared": partial(make_ours, prepared=False),
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=contestants, default=list(contestants))
    parser.add_argument("--work", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, help="write every round to this file, as JSON")
    parser.add_argument("--picture", type=Path, help="draw the speeds into this file")
    options = parser.parse_args(arguments)
    results = hold(
        {name: contestants[name] for name in options.only},
        [cell for cell in CELLS if cell.work in options.work],
        rounds=options.rounds,
    )
    if options.output:
        write_json(options.output, results, PACKAGES)
    if options.picture:
        draw(options.picture, results)


if __name__ == "__main__":
    main()
