"""Speed of autoregressive decoding, compared with libraries in production use.

    make bench                               # or: python benchmarks/decoding.py
    python benchmarks/decoding.py --only ours ctranslate2 --rounds 11
    python benchmarks/decoding.py --growth   # time per token at increasing lengths

All models have the same size: 3 + 3 layers, d_model 256, 4 heads, a vocabulary of 4,000, random
weights. Each encodes source sentences of 8 to 16 tokens and decodes 32 target tokens, without an
earlier end. The implementations:

- ``transformers``: ``MarianMTModel.generate`` of Hugging Face;
- ``ctranslate2``: the inference engine in C++, with the same Marian model converted;
- ``ours``: the translator of ``examples``, prepared for inference; ``ours program``: the search as
  a program, compiled before the timing; ``ours unprepared``: as trained; ``ours uncached``: as
  trained and without a cache, so that each step recomputes the whole prefix, with greedy decoding
  only;
- in other data types: ``ours bfloat16``; ``ours int8`` and ``ours program int8``, which quantise
  all linear layers; and ``ctranslate2 int8``.

Each implementation runs with one thread and with two; the table shows the faster of both.
"""

import random
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from harness import SetUp, new_parser, run, run_in_process
from marian import build_marian

THREADS = 1, 2
VOCABULARY, PAD, UNKNOWN, START, END = 4000, 0, 1, 2, 3
BEAMS = 1, 4
SIZES: dict[str, Any] = {
    "num_layers": 3,
    "d_model": 256,
    "num_heads": 4,
    "d_ff": 1024,
    "max_length": 600,
}


class Case(NamedTuple):
    """A batch of sentences to decode.

    Attributes:
        beams: Beam size; 1 for greedy decoding.
        sentences: Batch size.
        length: Number of tokens to decode for each sentence.
    """

    beams: int
    sentences: int
    length: int

    def __str__(self) -> str:
        """Return the name of the table row."""
        search = "greedy" if self.beams == 1 else f"beam {self.beams}"
        return f"{search}, batch {self.sentences}, {self.length} tokens"


CASES = [Case(beams, sentences, 32) for beams in BEAMS for sentences in (1, 32, 64)]
GROWTH = [Case(1, 8, length) for length in (16, 32, 64, 128, 256, 512)]


def sentences(count: int) -> list[list[int]]:
    """Return source sentences, equal for all implementations, each with an end token."""
    generator = random.Random(0)
    return [
        [
            *(
                generator.randrange(END + 1, VOCABULARY - 1)
                for _ in range(generator.randint(7, 15))
            ),
            END,
        ]
        for _ in range(count)
    ]


def padded(count: int) -> Any:
    """Return a padded batch of token ids, of shape (B, S)."""
    import torch

    rows = sentences(count)
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def make_ours(variant: str, *, threads: int) -> SetUp:
    """Set up this library's translator: "prepared", "unprepared", and so on."""
    import torch

    from transformer_blocks import beam_search, greedy_search
    from transformer_blocks.inference import prepare
    from translation.transformer import Transformer

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model: Any = Transformer(VOCABULARY, VOCABULARY, **SIZES).eval()
    if variant == "prepared":
        model = prepare(model)
    elif variant == "bfloat16":
        model = prepare(model.bfloat16())
    elif variant == "int8":
        model = prepare(model, int8=True)

    @torch.inference_mode()
    def decode_without_cache(source: Any, case: Case) -> Any:
        memory, memory_mask = model.encode(source)
        target = torch.full((case.sentences, 1), START)
        for _ in range(case.length):
            hidden = model.decoder(model.embed(target), memory, memory_mask=memory_mask)
            new = model.output(hidden)[:, -1].argmax(-1, keepdim=True)
            target = torch.cat((target, new), dim=1)
        return target

    @torch.inference_mode()
    def search(source: Any, case: Case) -> Any:
        steps = model.begin(source)
        start = torch.full((case.sentences,), START)
        if case.beams == 1:
            return greedy_search(steps, start, end_id=None, max_length=case.length)
        return beam_search(steps, start, beam_size=case.beams, end_id=None, max_length=case.length)

    def set_up(case: Case) -> Callable[[], object] | None:
        source = padded(case.sentences)
        if variant != "uncached":
            return lambda: search(source, case)
        if case.beams > 1 or case.length > 128:  # which would take minutes
            return None
        return lambda: decode_without_cache(source, case)

    return set_up


def make_program(folder: Path, *, threads: int, int8: bool = False) -> SetUp:
    """Set up the same translator as programs, which :func:`compile_programs` saved."""
    import torch

    from transformer_blocks.inference import load_program

    torch.set_num_threads(threads)
    programs = {beams: load_program(program_file(folder, beams, int8=int8)) for beams in BEAMS}

    def set_up(case: Case) -> Callable[[], object]:
        sources = sentences(case.sentences)
        program = programs[case.beams]
        return lambda: program.generate(sources, max_length=case.length)

    return set_up


def compile_programs(folder: Path, *, int8: bool) -> None:
    """Save the programs of all beam sizes."""
    import torch

    from transformer_blocks import build_seq2seq
    from transformer_blocks.inference import save_program

    torch.manual_seed(0)
    sizes = {name: size for name, size in SIZES.items() if name != "max_length"}
    model = build_seq2seq(VOCABULARY, VOCABULARY, **sizes).eval()
    for beams in BEAMS:
        file = program_file(folder, beams, int8=int8)
        save_program(model, file, beam_size=beams, end_id=None, int8=int8)


def program_file(folder: Path, beams: int, *, int8: bool) -> Path:
    """Return the file of a program."""
    return folder / f"{'int8' if int8 else 'float32'}-{beams}.pt2"


def make_marian() -> Any:
    """Build Hugging Face's Marian in the same size, with random weights."""
    import torch

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


def make_transformers(*, threads: int) -> SetUp:
    """Set up Hugging Face's ``generate``."""
    import torch

    torch.set_num_threads(threads)
    model = make_marian()

    @torch.inference_mode()
    def generate(source: Any, case: Case) -> Any:
        output = model.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=case.beams,
            do_sample=False,
            min_new_tokens=case.length,
            max_new_tokens=case.length,
        )
        check_length(output.shape[1] - 1, case)
        return output

    def set_up(case: Case) -> Callable[[], object]:
        source = padded(case.sentences)
        return lambda: generate(source, case)

    return set_up


def make_ctranslate2(folder: Path, compute_type: str, *, threads: int) -> SetUp:
    """Set up CTranslate2 with the model that :func:`convert` saved; torch is not loaded."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(folder), device="cpu", compute_type=compute_type, intra_threads=threads
    )

    def translate(source: list[list[str]], case: Case) -> Any:
        results = translator.translate_batch(
            source,
            beam_size=case.beams,
            min_decoding_length=case.length,
            max_decoding_length=case.length,
        )
        check_length(len(results[0].hypotheses[0]), case)
        return results

    def set_up(case: Case) -> Callable[[], object]:
        source = [[f"w{token}" for token in row] for row in sentences(case.sentences)]
        return lambda: translate(source, case)

    return set_up


def convert(folder: Path) -> None:
    """Convert the Marian model for CTranslate2, with its own converter."""
    import torch
    from ctranslate2.converters.transformers import MarianMTLoader

    class Vocabulary:
        """The part of a tokenizer that the converter requires."""

        bos_token = None
        eos_token, unk_token = f"w{END}", f"w{UNKNOWN}"

        def get_vocab(self) -> dict[str, int]:
            words = {f"w{token}": token for token in range(VOCABULARY - 1)}
            return words | {"<pad>": VOCABULARY - 1}  # the converter expects it last and removes it

        def convert_ids_to_tokens(self, token: int) -> str:
            return f"w{token}"

    model = make_marian()
    with torch.no_grad():
        converted = MarianMTLoader()(model, Vocabulary())
    converted.validate()
    converted.optimize()
    converted.save(str(folder))


def check_length(length: int, case: Case) -> None:
    """Raise unless an implementation has decoded all tokens."""
    if length != case.length:
        raise RuntimeError(f"the target must have {case.length} tokens, got {length}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison that the command-line options select."""
    with tempfile.TemporaryDirectory(prefix="decoding-") as name:
        folder = Path(name)
        implementations: dict[str, Callable[..., SetUp]] = {
            "transformers": make_transformers,
            "ctranslate2": partial(make_ctranslate2, folder, "float32"),
            "ours": partial(make_ours, "prepared"),
            "ours program": partial(make_program, folder),
            "ours unprepared": partial(make_ours, "unprepared"),
            "ours uncached": partial(make_ours, "uncached"),
            "ours bfloat16": partial(make_ours, "bfloat16"),
            "ours int8": partial(make_ours, "int8"),
            "ours program int8": partial(make_program, folder, int8=True),
            "ctranslate2 int8": partial(make_ctranslate2, folder, "int8"),
        }
        parser = new_parser(__doc__, implementations)
        parser.add_argument("--growth", action="store_true", help="time increasing lengths")
        options = parser.parse_args(arguments)
        if any(name.startswith("ctranslate2") for name in options.only):
            run_in_process(convert, folder)
        for int8 in (False, True):
            if f"ours program{' int8' if int8 else ''}" in options.only:
                run_in_process(partial(compile_programs, int8=int8), folder)
        cases = GROWTH if options.growth else CASES
        run(options, implementations, cases, threads=THREADS)


if __name__ == "__main__":
    main()
