"""Commands: what the commands of ``translate.py`` do, but ``train``."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import common.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch

from common.distributed import choose_device
from common.errors import UserError
from common.files import check_output, write_atomically
from common.options import check_together
from common.plots import save
from common.run import Run, choose_run
from common.searches import Beam, Sample, Search
from common.terminal import counted, progress_bar, say
from common.text_files import decode_line, input_lines
from common.tokenizer import BOS, EOS
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import align
from translation.arguments import (
    LENGTH_PENALTY,
    TRAIN,
    Align,
    BeamOptions,
    Compare,
    DecodingOptions,
    Evaluate,
    Explore,
    Export,
    Translate,
)
from translation.comparison import attention_along, compare, load_runs, print_results
from translation.corpus import Corpus, corpus_of, seen_targets
from translation.decoding import (
    TrainedTranslator,
    attention_with_teacher_forcing,
    check_transformer,
    decode_sentences,
    decoder_of,
    load_translator,
    translate,
    translate_with_attention,
)
from translation.exploring import explore, page_of, snapshots_of
from translation.exporting import export, make_decoder
from translation.pairs import SMALL_PARALLEL_ENJA, clean, read_pairs
from translation.pictures import comparison_figure, side_by_side_figure
from translation.presets import TranslatorConfig
from translation.scoring import score


def load(
    options: DecodingOptions | Explore | Align,
) -> tuple[Run[TranslatorConfig], TrainedTranslator, Search]:
    """Load the translator of the run that ``--run`` names, or of the latest, and make its search.

    Raises:
        UserError: If there is none, or an option requires a CPU.
    """
    run = choose_run(options.run, TranslatorConfig, train=TRAIN)
    device, last = choose_device(options.device), None
    if isinstance(options, DecodingOptions):
        last = options.average_last
        if options.int8 and device.type != "cpu":
            raise UserError(f"--int8 requires --device cpu, got {device}")
    trained = load_translator(run, device, last=last)
    return run, trained, make_search(options, trained.target.vocab_size)


def translate_command(options: Translate) -> None:
    """Translate sentences from arguments, a file or standard input, line by line."""
    run, trained, search = load(options)
    config, model, source, target = trained
    device = next(model.parameters()).device
    if options.engine == "ctranslate2":
        if device.type != "cpu":
            raise UserError(f"--engine ctranslate2 requires --device cpu, got {device}")
        assert isinstance(search, Beam)
        decode = make_decoder(run, trained, search, int8=options.int8)
    else:
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


def evaluate_command(options: Evaluate) -> None:
    """Score the translations of the test sentences."""
    if options.output:
        check_output(options.output, has_folder=True)
    _, trained, search = load(options)
    corpus = evaluated_corpus(trained.config, options)
    sentences = [pair.source for pair in corpus.test]
    with progress_bar() as bar:
        task = bar.add_task("sentences", total=len(sentences))
        outputs = translate(
            trained._replace(model=prepare(trained.model, int8=options.int8)),
            sentences,
            search=search,
            batch_tokens=options.batch_tokens,
            progress=lambda done: bar.update(task, advance=done, refresh=True),
        )
    if options.output:  # before anything is printed, which may fail
        write_atomically(options.output, "".join(f"{line}\n" for line in outputs).encode())
    title = counted(len(sentences), "test sentence")
    report(title, outputs, corpus)
    if trained.config.corpus == SMALL_PARALLEL_ENJA and corpus.train:
        seen = seen_targets(corpus)
        title = f"without the {len(seen)} whose reference occurs in training"
        report(title, outputs, corpus, without=seen)


def evaluated_corpus(config: TranslatorConfig, options: Evaluate) -> Corpus:
    """Load the run's corpus, or two test files as a corpus without other splits."""
    given = [name for name, value in vars(options).items() if value is not None]
    check_together(given, "test_source", "test_target")
    if options.test_source is None or options.test_target is None:
        return corpus_of(config)
    test = read_pairs((options.test_source, options.test_target), config.languages)
    return Corpus(config.languages, train=[], validation=[], test=test)


def compare_command(options: Compare) -> None:
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
    print_results(groups, results)  # last: it may fail
    say(f"\nWritten: {', '.join(map(str, written))}")


def explore_command(options: Explore) -> None:
    """Write a page with all attention weights of the translation of one sentence."""
    if options.output:
        check_output(options.output, has_folder=True)
    run, trained, search = load(options)
    page = options.output or page_of(run)
    if not trained.model.cross_attentions:
        raise UserError(f"{run.folder} holds a model without attention")
    sentences = explored_sentences(options, trained.config)
    trained.source.warn_of_unknown(sentences)
    title = explore(
        *(trained, sentences, page),
        search=search,
        has_model=not options.no_model,
        snapshots=snapshots_of(run, trained),
    )
    if options.sentence is None:
        say(f"Without --sentence, a test sentence of {run.folder} is translated:")
    print(f"{title}\nWritten: {page}\n{page.resolve().as_uri()}")


def explored_sentences(options: Explore | Align, config: TranslatorConfig) -> list[str]:
    """Return the sentence of ``--sentence``, or test sentences of the run."""
    if options.sentence is None:
        return corpus_of(config).example_sentences
    return [read_sentence(options.sentence, "--sentence", config.source_language, config)]


def read_sentence(text: str, where: str, language: str, config: TranslatorConfig) -> str:
    """Clean a sentence of the command line.

    Raises:
        UserError: If it is blank.
    """
    line = decode_line(os.fsencode(text), where=where)
    if not (sentence := clean(line, language, corpus=config.corpus)):
        raise UserError(f"{where} must not be blank")
    return sentence


def align_command(options: Align) -> None:
    """Print a word alignment of a sentence and its translation."""
    run, trained, search = load(options)
    config, _, source, target = trained
    model = check_transformer(run, trained, "aligned")
    sentence = explored_sentences(options, config)[0]
    source.warn_of_unknown([sentence])
    if options.translation is None:
        ids = translate_with_attention(trained, sentence, search=search).ids
    else:
        given = read_sentence(options.translation, "--translation", config.target_language, config)
        ids = [*target.encode(given)[: model.max_length - 1], EOS]
    record = attention_with_teacher_forcing(trained, sentence, ids)
    words = record.source, ["", *record.target]
    found = align(model, record.inputs[0], [BOS, *ids], ignored=[BOS, EOS], words=words)
    print(f"{sentence}\n{record.translation}\n{found}")


def export_command(options: Export) -> None:
    """Write a trained Transformer for another engine."""
    run = choose_run(options.run, TranslatorConfig, train=TRAIN)
    output = options.output or run.folder / f"ctranslate2{'-int8' if options.int8 else ''}"
    trained = load_translator(run, torch.device("cpu"), last=options.average_last)
    export(run, trained, output, int8=options.int8)
    size = sum(file.stat().st_size for file in output.iterdir())
    say(f"Written: {output} ({size / 1e6:.1f} MB)")


def make_search(options: BeamOptions, vocabulary: int) -> Search:
    """Make the search from the options of the command line.

    Raises:
        UserError: If the beam is larger than the vocabulary.
    """
    n_best = options.n_best if isinstance(options, Translate) else 1
    if isinstance(options, DecodingOptions) and options.sample:
        temperature = 1.0 if options.temperature is None else options.temperature
        return Sample(temperature, options.top_k, options.top_p, options.seed, n_best)
    if options.beam_size > vocabulary:
        raise UserError(
            f"--beam must not exceed the vocabulary size {vocabulary}, got {options.beam_size}"
        )
    penalty = LENGTH_PENALTY if options.length_penalty is None else options.length_penalty
    return Beam(options.beam_size, penalty, n_best)


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


RUN: dict[type, Callable[[Any], None]] = {
    Translate: translate_command,
    Evaluate: evaluate_command,
    Compare: compare_command,
    Explore: explore_command,
    Align: align_command,
    Export: export_command,
}
"""The function that runs each command."""
