"""Speed of an exported translator, compared with the model itself.

    python benchmarks/exported.py --run runs/small_parallel_enja

Each implementation translates the same test sentences of the run, with one thread and with two; the
table shows the faster of both. They
find the same translations (``translate.py export`` checks it), so that all decode the same number
of tokens. First export the run, to the folder that is the default::

    python examples/translate.py export --to ctranslate2

The implementations:

- ``ours``: the model prepared for inference, as ``translate.py translate`` runs it;
- ``ctranslate2`` and ``ctranslate2 int8``: CTranslate2 with its own search.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from harness import SetUp, new_parser, run

SENTENCES, LENGTH_PENALTY = 32, 0.6
NAMES = ("ours", "ctranslate2", "ctranslate2 int8")


class Case(NamedTuple):
    """A way to translate the sentences.

    Attributes:
        beams: Beam size; 1 for greedy decoding.
        batch: Batch size.
    """

    beams: int
    batch: int

    def __str__(self) -> str:
        """Return the name of the table row."""
        search = "greedy" if self.beams == 1 else f"beam {self.beams}"
        return f"{search}, batch {self.batch}"


CASES = [Case(beams, batch) for beams in (1, 4) for batch in (1, SENTENCES)]


def make(name: str, *, folder: Path, threads: int) -> SetUp:
    """Set up an implementation, in a process of its own."""
    import torch

    from common.batching import pad
    from common.run import Run
    from common.searches import Beam, Greedy
    from common.tokenizer import BOS, EOS
    from transformer_blocks.inference import prepare
    from translation.corpus import corpus_of
    from translation.decoding import length_limit, load_translator
    from translation.presets import TranslatorConfig

    torch.set_num_threads(threads)
    run = Run(folder, TranslatorConfig)
    config, model, source, _ = load_translator(run, torch.device("cpu"))
    sentences = [pair.source for pair in corpus_of(config).test[:SENTENCES]]
    encoded = sorted(source.encode_many(sentences), key=len)
    limit, translate = model.max_length, None
    if name.startswith("ctranslate2"):
        import ctranslate2

        from translation.exporting import search

        compute_type = "int8" if name.endswith("int8") else "float32"
        engine = ctranslate2.Translator(
            str(folder / "ctranslate2"), compute_type=compute_type, intra_threads=threads
        )

        def translate_text(batch: list[list[int]], beams: int) -> object:
            subwords = [source.subwords(ids) for ids in batch]
            return search(engine, subwords, Beam(beams, LENGTH_PENALTY), max_length=limit)

        translate = translate_text
    begin = prepare(model).begin

    @torch.inference_mode()
    def translate_ids(batch: list[list[int]], beams: int) -> object:
        decode = Greedy() if beams == 1 else Beam(beams, LENGTH_PENALTY)
        return decode(
            begin(pad([[*ids, EOS] for ids in batch])),
            torch.full((len(batch),), BOS),
            end_id=EOS,
            max_length=[length_limit(limit, len(ids)) for ids in batch],
        )

    def set_up(case: Case) -> Callable[[], object]:
        chosen = translate or translate_ids
        batches = [encoded[i : i + case.batch] for i in range(0, len(encoded), case.batch)]
        return lambda: [chosen(batch, case.beams) for batch in batches]

    return set_up


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison that the command-line options select."""
    parser = new_parser(__doc__, NAMES, rounds=5)
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    options = parser.parse_args(arguments)
    implementations = {name: partial(make, name, folder=options.run) for name in NAMES}
    run(options, implementations, CASES, threads=(1, 2))


if __name__ == "__main__":
    main()
