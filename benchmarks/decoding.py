"""How fast sentences are written: this library beside those that people deploy.

    make bench                               # or: python benchmarks/decoding.py
    python benchmarks/decoding.py --only ours ctranslate2 --rounds 11
    python benchmarks/decoding.py --growth   # what a token costs in longer and longer texts
    python benchmarks/decoding.py --small    # a small language model, prepared and not

All models have the same size: 3 + 3 layers, width 256, 4 heads, 4,000 words, random weights. Each
reads sentences of 8 to 16 tokens and writes 32, without ending earlier. The contestants:

- ``transformers``: ``MarianMTModel.generate`` of Hugging Face;
- ``ctranslate2``: the inference engine, in C++, with that Marian model converted;
- ``ours``: the translator of ``examples``, prepared; ``ours compiled``: prepared, with compiled
  steps; ``ours unprepared``: as it was trained;
- ``textbook``: the loop that reads the whole beginning again for each word, greedy only;
- in other number formats: ``ours bfloat16``; ``ours int8``, all linear maps but the last; and
  ``ctranslate2 int8``, with one thread, since a second one makes it slower.

``--small`` times what packing gains least: a language model of 4 layers, width 128, with grouped
queries, rotary positions, RMSNorm and SwiGLU; ``small`` and ``small prepared``, with one thread.
"""

import argparse
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parent.parent / "examples"))  # the translator

from contest import Prepare, draw, hold, run_alone, write_json
from marian import build_marian

THREADS = 2
VOCABULARY, PAD, UNKNOWN, START, END = 4000, 0, 1, 2, 3
PACKAGES = ("torch", "transformers", "ctranslate2", "transformer-blocks")


class Cell(NamedTuple):
    """Sentences to write.

    Attributes:
        beams: 1 for greedy search.
        sentences: How many in a batch.
        length: Tokens that each sentence gets.
    """

    beams: int
    sentences: int
    length: int

    def __str__(self) -> str:
        """Name the row of the table."""
        search = "greedy" if self.beams == 1 else f"beam {self.beams}"
        return f"{search}, batch {self.sentences}, {self.length} tokens"


CELLS = [Cell(beams, sentences, 32) for beams in (1, 4) for sentences in (1, 32, 64)]
SMALL = [Cell(1, rows, 32) for rows in (1, 8, 64)]
GROWTH = [Cell(1, 8, length) for length in (16, 32, 64, 128, 256, 512)]


def sentences(count: int) -> list[list[int]]:
    """Make source sentences, the same for everybody, each closed by the end mark."""
    dice = random.Random(0)
    return [
        [*(dice.randrange(END + 1, VOCABULARY - 1) for _ in range(dice.randint(7, 15))), END]
        for _ in range(count)
    ]


def padded(count: int) -> Any:
    """Make a batch of ids, shape (B, S)."""
    import torch

    rows = sentences(count)
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def make_ours(change: str = "prepared") -> Prepare:
    """Set up this library's translator: "prepared", "compiled", "unprepared", and so on."""
    import torch

    from transformer_blocks import beam_search, greedy_search
    from transformer_blocks.inference import PrepackedLinear, prepare
    from translation.transformer import Transformer

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "num_layers": 3,
        "d_model": 256,
        "num_heads": 4,
        "d_ff": 1024,
        "max_length": 600,
    }
    model: Any = Transformer(VOCABULARY, VOCABULARY, **sizes).eval()
    if change == "prepared":
        model = prepare(model)
    elif change == "compiled":
        model = prepare(model, compiled=True)
    elif change == "bfloat16":
        model = prepare(model.bfloat16())
    elif change == "int8":
        rounded = int8_linear()

        def replace(part: Any) -> Any:
            return PrepackedLinear(part) if part.out_features == VOCABULARY else rounded(part)

        model = prepare(model, linear=replace)

    @torch.inference_mode()
    def textbook(source: Any, cell: Cell) -> Any:
        memory, memory_mask = model.encode(source)
        written = torch.full((cell.sentences, 1), START)
        for _ in range(cell.length):
            hidden = model.decode(written, memory, memory_mask)
            newest = model.output(hidden)[:, -1].argmax(-1, keepdim=True)
            written = torch.cat((written, newest), dim=1)
        return written

    @torch.inference_mode()
    def search(source: Any, cell: Cell) -> Any:
        steps = model.begin(source)
        start = torch.full((cell.sentences,), START)
        if cell.beams == 1:
            return greedy_search(steps, start, end_id=None, max_length=cell.length)
        return beam_search(steps, start, beam_size=cell.beams, end_id=None, max_length=cell.length)

    def set_up(cell: Cell) -> Callable[[], object] | None:
        source = padded(cell.sentences)
        if change != "textbook":
            return lambda: search(source, cell)
        if cell.beams > 1 or cell.length > 128:  # it has no beams, and minutes are too long
            return None
        return lambda: textbook(source, cell)

    return set_up


def make_small(*, prepared: bool) -> Prepare:
    """Set up the layers of a small language model as one builds it today."""
    import torch
    from torch import nn

    from transformer_blocks import (
        Encoder,
        EncoderLayer,
        GatedFeedForward,
        GroupedQueryAttention,
        PreNorm,
        RotaryPositionalEncoding,
    )
    from transformer_blocks.inference import prepare

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [
        EncoderLayer(
            GroupedQueryAttention(
                128, 4, 2, bias=False, transforms=[RotaryPositionalEncoding(32)]
            ),
            GatedFeedForward(128, 341),
            residual=lambda: PreNorm(128, norm=nn.RMSNorm(128)),
        )
        for _ in range(4)
    ]
    encoder = Encoder(layers, norm=nn.RMSNorm(128)).eval()
    model = prepare(encoder) if prepared else encoder

    @torch.inference_mode()
    def write(x: Any, cell: Cell) -> None:
        cache = model.new_cache()
        for _ in range(cell.length):
            model(x, causal=True, cache=cache)

    def set_up(cell: Cell) -> Callable[[], object]:
        x = torch.randn(cell.sentences, 1, 128)
        return lambda: write(x, cell)

    return set_up


def int8_linear() -> Callable[[Any], Any]:
    """Make linear maps with weights of one byte, which torch still has but will take away."""
    import torch
    from torch import nn

    warnings.filterwarnings("ignore", message="fbgemm_.* is deprecated")

    class Int8Linear(nn.Module):
        """Rounds the weight once and the input at each call; multiplies whole numbers."""

        def __init__(self, linear: nn.Linear) -> None:
            super().__init__()
            self.in_features = linear.in_features
            weight = linear.weight.detach().clone()
            rounded, offsets, scale, zero = torch.fbgemm_linear_quantize_weight(weight)
            prepared = torch.fbgemm_pack_quantized_matrix(rounded)
            has_bias = linear.bias is not None
            bias = linear.bias.detach() if has_bias else torch.zeros(linear.out_features)
            self.weights = rounded, prepared, offsets, scale, zero, bias

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fbgemm_linear_int8_weight_fp32_activation(x, *self.weights)

    return Int8Linear


def make_marian() -> Any:
    """Build Hugging Face's Marian with random weights of the same size."""
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    model = build_marian(
        vocabulary=VOCABULARY,
        d_model=256,
        num_layers=3,
        num_heads=4,
        d_ff=1024,
        padding=PAD,
        start=START,
        end=END,
        max_position_embeddings=600,
        forced_eos_token_id=None,
    )
    model.generation_config.bad_words_ids = None
    return model.eval()


def make_transformers() -> Prepare:
    """Set up Hugging Face's ``generate``."""
    import torch

    model = make_marian()

    @torch.inference_mode()
    def generate(source: Any, cell: Cell) -> Any:
        written = model.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=cell.beams,
            do_sample=False,
            min_new_tokens=cell.length,
            max_new_tokens=cell.length,
        )
        expect(written.shape[1] - 1, cell)
        return written

    def set_up(cell: Cell) -> Callable[[], object]:
        source = padded(cell.sentences)
        return lambda: generate(source, cell)

    return set_up


def make_ctranslate2(folder: Path, compute_type: str, threads: int) -> Prepare:
    """Set up CTranslate2 with a model that :func:`convert` wrote; torch is not loaded."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(folder), device="cpu", compute_type=compute_type, intra_threads=threads
    )

    def translate(source: list[list[str]], cell: Cell) -> Any:
        written = translator.translate_batch(
            source,
            beam_size=cell.beams,
            min_decoding_length=cell.length,
            max_decoding_length=cell.length,
        )
        expect(len(written[0].hypotheses[0]), cell)
        return written

    def set_up(cell: Cell) -> Callable[[], object]:
        source = [[f"w{token}" for token in row] for row in sentences(cell.sentences)]
        return lambda: translate(source, cell)

    return set_up


def convert(folder: Path) -> None:
    """Convert the Marian model for CTranslate2, with its own converter."""
    import torch
    from ctranslate2.converters.transformers import MarianMTLoader

    class Words:
        """What the converter asks a tokenizer for."""

        bos_token = None
        eos_token, unk_token = f"w{END}", f"w{UNKNOWN}"

        def get_vocab(self) -> dict[str, int]:
            words = {f"w{token}": token for token in range(VOCABULARY - 1)}
            return words | {"<pad>": VOCABULARY - 1}  # expected at the end, and taken away

        def convert_ids_to_tokens(self, token: int) -> str:
            return f"w{token}"

    model = make_marian()
    with torch.no_grad():
        converted = MarianMTLoader()(model, Words())
    converted.validate()
    converted.optimize()
    converted.save(str(folder))


def expect(length: int, cell: Cell) -> None:
    """See that a contestant did all of the work."""
    if length != cell.length:
        raise RuntimeError(f"sentences of {cell.length} tokens were asked for, got {length}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Hold the contest that the command line asks for."""
    converted = Path(tempfile.mkdtemp(prefix="decoding-"))
    contestants: dict[str, Callable[[], Prepare]] = {
        "transformers": make_transformers,
        "ctranslate2": partial(make_ctranslate2, converted, "float32", THREADS),
        "ours": partial(make_ours, "prepared"),
        "ours compiled": partial(make_ours, "compiled"),
        "ours unprepared": partial(make_ours, "unprepared"),
        "textbook": partial(make_ours, "textbook"),
        "ours bfloat16": partial(make_ours, "bfloat16"),
        "ours int8": partial(make_ours, "int8"),
        "ctranslate2 int8": partial(make_ctranslate2, converted, "int8", 1),
    }
    small: dict[str, Callable[[], Prepare]] = {
        "small": partial(make_small, prepared=False),
        "small prepared": partial(make_small, prepared=True),
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=contestants, default=list(contestants))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--growth", action="store_true", help="time longer and longer texts")
    parser.add_argument("--small", action="store_true", help="time a small language model")
    parser.add_argument("--output", type=Path, help="write every round to this file, as JSON")
    parser.add_argument("--picture", type=Path, help="draw the speeds into this file")
    options = parser.parse_args(arguments)
    try:
        if options.small:
            results = hold(small, SMALL, rounds=options.rounds)
        else:
            if any(name.startswith("ctranslate2") for name in options.only):
                run_alone(convert, converted)
            results = hold(
                {name: contestants[name] for name in options.only},
                GROWTH if options.growth else CELLS,
                rounds=options.rounds,
            )
    finally:
        shutil.rmtree(converted)
    if options.output:
        write_json(options.output, results, PACKAGES)
    if options.picture:
        draw(options.picture, results)


if __name__ == "__main__":
    main()
