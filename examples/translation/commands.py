"""Commands: what each command of ``translate.py`` does; that of ``train`` is in ``training``."""

import argparse
import json
import os
import sys
from collections.abc import Sequence

import common.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch
from tqdm import tqdm

from common.commands import input_lines
from common.distributed import choose_device
from common.errors import UserError
from common.files import check_output, write_atomically
from common.options import check_together
from common.plots import save
from common.run import Run, choose_run
from common.searches import Beam, Sample, Search
from common.terminal import counted, fit, limit
from common.text_files import decode_line
from transformer_blocks.inference import prepare
from translation.arguments import BEAM_SIZE, DEFAULTS, LENGTH_PENALTY, TRAIN
from translation.comparison import attention_along, compare, format_results, load_runs
from translation.corpus import Corpus, seen_targets
from translation.decoding import decode_sentences, decoder_of, translate
from translation.engines import compile_search, load_compiled
from translation.exploring import explore, page_of, snapshots_of
from translation.exporting import export, folder_of, load_exported
from translation.pairs import SMALL_PARALLEL_ENJA, clean, read_pairs
from translation.pictures import comparison_figure, side_by_side_figure
from translation.presets import Config
from translation.run import TrainedTranslator, corpus_of, load_translator
from translation.scoring import score
from translation.training import train_command


def load(options: argparse.Namespace) -> tuple[Run[Config], TrainedTranslator, Search]:
    """Load the translator of the run that ``--run`` names, or of the latest, and make its search.

    Raises:
        UserError: If there is none, or an option requires a CPU.
    """
    run = choose_run(options.run, Config, train=TRAIN)
    device = choose_device(options.device)
    for name in ("int8", "program", "engine"):
        if getattr(options, name) != DEFAULTS[name] and device.type != "cpu":
            raise UserError(f"--{name} requires --device cpu, got {device}")
    trained = load_translator(run, device, last=options.average_last)
    return run, trained, make_search(options, trained.target.vocab_size)


def translate_command(options: argparse.Namespace) -> None:
    """Translate sentences from arguments, a file or standard input, line by line."""
    run, trained, search = load(options)
    config, model, source, target = trained
    if options.engine == "ctranslate2":
        assert isinstance(search, Beam)
        decode = load_exported(run, trained, search, int8=options.int8)
    elif options.program is not None:
        assert isinstance(search, Beam)
        decode = load_compiled(run, trained, options.program, search, options.beam)
    else:
        device = next(model.parameters()).device
        decode = decoder_of(prepare(model, int8=options.int8), search, device)
    number = 0
    for lines in input_lines(options.sentences, options.file):
        sentences = [clean(line, config.source_language, corpus=config.corpus) for line in lines]
        source.warn_of_unknown(sentences)
        for translations in decode_sentences(
            *(decode, source, sentences),
            max_length=model.max_length,
            batch_tokens=options.batch_tokens,
        ):
            number += 1
            for each in translations:
                note = f"{number}\t{each.score:.4f}\t" if options.n_best > 1 else ""
                print(f"{note}{target.decode(each.tokens)}", flush=sys.stdin.isatty())


def evaluate_command(options: argparse.Namespace) -> None:
    """Score the translations of the test sentences."""
    if options.output:
        check_output(options.output, has_folder=True)
    run, trained, search = load(options)
    corpus = evaluated_corpus(run, trained.config, options)
    sentences = [pair.source for pair in corpus.test]
    with tqdm(total=len(sentences), unit="sentence", leave=False, disable=None) as bar:
        outputs = translate(
            trained._replace(model=prepare(trained.model, int8=options.int8)),
            sentences,
            search=search,
            batch_tokens=options.batch_tokens,
            progress=bar.update,
        )
    if options.output:  # before anything is printed, which may fail
        write_atomically(options.output, "".join(f"{line}\n" for line in outputs).encode())
    title = counted(len(sentences), "test sentence")
    report(title, outputs, corpus)
    if trained.config.corpus == SMALL_PARALLEL_ENJA and corpus.train:
        seen = seen_targets(corpus)
        title = f"without the {len(seen)} whose reference occurs in training"
        report(title, outputs, corpus, without=seen)


def evaluated_corpus(run: Run[Config], config: Config, options: argparse.Namespace) -> Corpus:
    """Load the run's corpus, or two test files as a corpus without other splits."""
    given = [name for name, value in vars(options).items() if value is not None]
    check_together(given, "test_source", "test_target")
    if options.test_source is None:
        return corpus_of(config)
    test = read_pairs((options.test_source, options.test_target), config.languages)
    return Corpus(config.languages, train=[], validation=[], test=test)


def compare_command(options: argparse.Namespace) -> None:
    """Score runs side by side, and draw their learning curves and attention weights."""
    figures, picture, attention = (
        options.output / name for name in ("compare.json", "compare.png", "attention.png")
    )
    if (options.output / "config.json").exists():
        raise UserError(f"--output: {options.output} holds a run; choose another folder")
    for file in (figures, picture, attention):
        check_output(file)
    compared = load_runs(options.runs, choose_device(options.device))
    corpus = corpus_of(compared[0].trained.config)
    options.output.mkdir(parents=True, exist_ok=True)
    vocabulary = min(each.trained.target.vocab_size for each in compared)
    groups, results = compare(
        compared,
        corpus,
        search=make_search(options, vocabulary),
        batch_tokens=options.batch_tokens,
    )
    is_again = figures.exists()
    content = json.dumps({"groups": groups, "results": results}, indent=1)
    write_atomically(figures, f"{content}\n".encode())
    save(comparison_figure(groups, results), picture)
    written = [figures, picture]
    pair = sorted(corpus.test, key=lambda pair: len(pair.source))[len(corpus.test) // 2]
    if records := attention_along(compared, pair):
        save(side_by_side_figure(records, title=f"{pair.source} → {pair.target}"), attention)
        written.append(attention)
    elif is_again:
        attention.unlink(missing_ok=True)  # of the earlier comparison
    print(format_results(groups, results, width=limit(sys.stdout)))  # last: it may fail
    print(fit(f"\nWritten: {', '.join(map(str, written))}", sys.stdout))


def explore_command(options: argparse.Namespace) -> None:
    """Write a page with all attention weights of the translation of one sentence."""
    if options.output:
        check_output(options.output, has_folder=True)
    run, trained, search = load(options)
    page = options.output or page_of(run)
    if not trained.model.cross_attentions:
        raise UserError(f"{run.folder} holds a model without attention")
    sentences = explored_sentences(options, run, trained.config)
    trained.source.warn_of_unknown(sentences)
    title = explore(
        *(trained, sentences, page),
        search=search,
        has_model=not options.no_model,
        snapshots=snapshots_of(run, trained),
    )
    if options.sentence is None:
        note = f"Without --sentence, a test sentence of {run.folder} is translated:"
        print(fit(note, sys.stdout))
    print(f"{title}\nWritten: {page}\n{page.resolve().as_uri()}")


def explored_sentences(options: argparse.Namespace, run: Run[Config], config: Config) -> list[str]:
    """Return the sentence of ``--sentence``, or test sentences of the run."""
    if options.sentence is None:
        return corpus_of(config).example_sentences
    line = decode_line(os.fsencode(options.sentence), where="--sentence")
    sentence = clean(line, config.source_language, corpus=config.corpus)
    if not sentence:
        raise UserError("--sentence must not be blank")
    return [sentence]


def export_command(options: argparse.Namespace) -> None:
    """Write a trained Transformer for another engine, and compare translations of both."""
    run = choose_run(options.run, Config, train=TRAIN)
    output = options.output or folder_of(run, int8=options.int8)
    trained = load_translator(run, torch.device("cpu"), last=options.average_last)
    count = options.check
    pairs = corpus_of(trained.config).validation[:count] if count else []
    sentences = [pair.source for pair in pairs]
    agreement = export(run, trained, output, int8=options.int8, sentences=sentences)
    size = sum(file.stat().st_size for file in output.iterdir())
    print(fit(f"Written: {output} ({size / 1e6:.1f} MB)", sys.stdout))
    if agreement:
        print(agreement)


def compile_command(options: argparse.Namespace) -> None:
    """Compile the search of a trained Transformer into a program."""
    run = choose_run(options.run, Config, train=TRAIN)
    output = options.output or run.folder / f"program{'-int8' if options.int8 else ''}.pt2"
    check_output(output, has_folder=True)
    trained = load_translator(run, torch.device("cpu"), last=options.average_last)
    beam_size = beam_size_of(options, trained.target.vocab_size)
    print("Compiling takes about three minutes.", flush=True)
    compile_search(run, trained, output, beam_size=beam_size, int8=options.int8)
    print(fit(f"Written: {output} ({output.stat().st_size / 1e6:.1f} MB)", sys.stdout))


def make_search(options: argparse.Namespace, vocabulary: int) -> Search:
    """Make the search from the options of the command line.

    Raises:
        UserError: If the beam is larger than the vocabulary.
    """
    if options.sample:
        temperature = 1.0 if options.temperature is None else options.temperature
        return Sample(temperature, options.top_k, options.top_p, options.seed, options.n_best)
    penalty = LENGTH_PENALTY if options.length_penalty is None else options.length_penalty
    return Beam(beam_size_of(options, vocabulary), penalty, options.n_best)


def beam_size_of(options: argparse.Namespace, vocabulary: int) -> int:
    """Return the beam size of the command line.

    Raises:
        UserError: If it is larger than the vocabulary.
    """
    beam_size: int = BEAM_SIZE if options.beam is None else options.beam
    if beam_size > vocabulary:
        raise UserError(f"--beam must not exceed the vocabulary size {vocabulary}, got {beam_size}")
    return beam_size


def report(
    title: str, outputs: Sequence[str], corpus: Corpus, *, without: Sequence[int] = ()
) -> None:
    """Print BLEU and chrF of the test sentences, with their signatures."""
    indices = sorted({*range(len(outputs))}.difference(without))
    references = [corpus.test[i].reference for i in indices]
    scores = score([outputs[i] for i in indices], references, tokenize=corpus.bleu_tokenizer)
    print(
        f"{title}\n  BLEU {scores.bleu:.1f}  {scores.bleu_signature}"
        f"\n  chrF {scores.chrf:.1f}  {scores.chrf_signature}"
    )


COMMANDS = {
    "train": train_command,
    "translate": translate_command,
    "evaluate": evaluate_command,
    "compare": compare_command,
    "explore": explore_command,
    "export": export_command,
    "compile": compile_command,
}
