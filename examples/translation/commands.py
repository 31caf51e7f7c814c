"""Commands: what each command of ``translate.py`` does."""

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from common.distributed import choose_device
from common.errors import UserError
from common.files import check_output, write_atomically
from common.plots import save
from common.run import RUNS, Run, choose_run
from common.searches import Search, beam
from common.terminal import counted, progress_bar, say
from common.text_files import decode_line, input_lines
from common.tokenizer import BOS
from common.training import run_training
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import align
from translation.arguments import (
    BEAM_SIZE,
    LENGTH_PENALTY,
    TRAIN,
    Align,
    BeamOptions,
    Compare,
    DecodingOptions,
    Evaluate,
    Explore,
    Export,
    Train,
    Translate,
)
from translation.comparison import attention_along, compare, load_runs, print_results
from translation.corpus import corpus_of
from translation.decoding import (
    TrainedTranslator,
    decode_sentences,
    decoder_of,
    load_translator,
    translate,
)
from translation.exploring import PAGE, explore, snapshots_of
from translation.exporting import export, make_decoder
from translation.pairs import SMALL_PARALLEL_ENJA, Corpus, clean
from translation.pictures import (
    comparison_figure,
    draw_attention,
    side_by_side_figure,
)
from translation.presets import TranslatorConfig, fit_to_corpus, new_config
from translation.recording import ids_of, translate_with_attention
from translation.scoring import score
from translation.training import TranslationTask

PROGRAM = Path(__file__).resolve().parents[1] / "translate.py"
TOKENIZER_PAIRS = 500_000
"""Number of training pairs of which tokenizers are trained, if there are more."""


def train_command(options: Train) -> None:
    """Train a model, by itself or as one of several processes, and show the results."""
    chosen = options.chosen(TranslatorConfig)
    new = new_config(chosen)
    run_training(
        options,
        Run(options.run or RUNS / new.corpus, TranslatorConfig),
        new,
        load=corpus_of,
        prepare=lambda config, corpus: fit(config, chosen, corpus),
        make_task=TranslationTask,
        show=show_results,
        save_steps=options.save_steps,
        snapshots=options.snapshots,
    )


def fit(
    config: TranslatorConfig, chosen: Collection[str], corpus: Corpus
) -> tuple[TranslatorConfig, dict[str, list[str]]]:
    """Complete the configuration of a new run.

    Args:
        config: The configuration, as far as the command line decides.
        chosen: The fields that the command line sets.
        corpus: Its corpus.

    Returns:
        The configuration that fits the corpus, and the training texts of each tokenizer.
    """
    pairs = corpus.train[:: math.ceil(len(corpus.train) / TOKENIZER_PAIRS)]
    sides = ([pair.source for pair in pairs], [pair.target for pair in pairs])
    config = fit_to_corpus(config, chosen, sides, len(corpus.train))
    texts: dict[str, list[str]] = {}
    for name, side in zip(config.tokenizer_names, sides, strict=True):
        texts.setdefault(name, []).extend(side)
    return config, texts


def show_results(run: Run[TranslatorConfig], corpus: Corpus, device: torch.device) -> None:
    """Translate five test sentences, and show the attention weights of the first and the last.

    The last lines are the address of the page, or of the picture of the losses for a model without
    attention, and the command that translates.
    """
    trained = load_translator(run, device)
    pairs = corpus.shown_pairs
    search = beam(BEAM_SIZE, LENGTH_PENALTY)
    outputs = translate(trained, [pair.source for pair in pairs], search=search)
    say("\nTest sentences, none of which is in the training data:")
    for pair, output in zip(pairs, outputs, strict=True):
        print(f"  source     {pair.source}\n  output     {output}\n  reference  {pair.reference}\n")
    written, sentences = [run.picture], corpus.example_sentences
    if trained.model.cross_attentions:
        written += [run.folder / "attention.png", run.folder / PAGE]
        draw_attention(trained, pairs[0].source, written[1], search=search)
        snapshots = snapshots_of(run, trained)
        explore(trained, sentences, written[2], search=search, snapshots=snapshots)
    say(f"Written: {', '.join(map(str, written))}")
    say("The last of these in a browser, and a command that translates:")
    if written[-1].exists():
        print(written[-1].resolve().as_uri())
    print(translating_command(run.folder, sentences[0]))


def translating_command(run: Path, sentence: str) -> str:
    """Return the command that translates a sentence in any folder, quoted for a POSIX shell."""
    options = ["translate", "--run", str(run.resolve())]
    if sentence.startswith("-"):
        options.append("--")  # the end of the options
    return shlex.join([sys.executable, str(PROGRAM), *options, sentence])


def load(
    options: DecodingOptions | Explore | Align,
) -> tuple[Run[TranslatorConfig], TrainedTranslator, Search]:
    """Load the translator of the run that ``--run`` names, or of the latest, and make its search.

    Raises:
        UserError: If there is none, or an option requires a CPU.
    """
    run, device = choose_run(options.run, TranslatorConfig, train=TRAIN), options.device
    trained = load_translator(run, choose_device(device))
    is_on_cpu = next(trained.model.parameters()).device.type == "cpu"
    if isinstance(options, DecodingOptions) and options.int8 and not is_on_cpu:
        raise UserError(f"--int8 requires --device cpu, got {device}")
    return run, trained, make_search(options, trained.target.vocab_size)


def make_search(options: BeamOptions, vocabulary: int) -> Search:
    """Make the beam search of the command line.

    Raises:
        UserError: If the beam is larger than the vocabulary.
    """
    if options.beam > vocabulary:
        raise UserError(
            f"--beam must not exceed the vocabulary size {vocabulary}, got {options.beam}"
        )
    return beam(options.beam, options.length_penalty)


def translate_command(options: Translate) -> None:
    """Translate sentences from arguments, a file or standard input, line by line."""
    _, trained, search = load(options)
    config, model, source, target = trained
    device = next(model.parameters()).device
    if options.engine == "ctranslate2":
        if device.type != "cpu":
            raise UserError(f"--engine ctranslate2 requires --device cpu, got {device}")
        decode = make_decoder(trained, options, int8=options.int8)
    else:
        decode = decoder_of(prepare(model, int8=options.int8), search, device)
    for lines in input_lines(options.sentences, options.file):
        sentences = [clean(line, config.source_language, corpus=config.corpus) for line in lines]
        source.warn_of_unknown(sentences)
        for found in decode_sentences(decode, source, sentences, max_length=model.max_length):
            print(target.decode(found.tokens), flush=sys.stdin.isatty())


def evaluate_command(options: Evaluate) -> None:
    """Score the translations of the test sentences."""
    if options.output:
        check_output(options.output, has_folder=True)
    _, trained, search = load(options)
    corpus = corpus_of(trained.config)
    sentences = [pair.source for pair in corpus.test]
    with progress_bar() as bar:
        task = bar.add_task("sentences", total=len(sentences))
        outputs = translate(
            trained._replace(model=prepare(trained.model, int8=options.int8)),
            sentences,
            search=search,
            progress=lambda done: bar.update(task, advance=done, refresh=True),
        )
    if options.output:  # before anything is printed, which may fail
        write_atomically(options.output, "".join(f"{line}\n" for line in outputs).encode())
    report(counted(len(sentences), "test sentence"), outputs, corpus, range(len(sentences)))
    if trained.config.corpus == SMALL_PARALLEL_ENJA:
        # Different sentences may share a translation: はい。 and そうです。 are both "Yes.", so
        # even disjoint splits can have targets in common.
        known = {pair.target for pair in corpus.train}
        new = [i for i, pair in enumerate(corpus.test) if pair.target not in known]
        seen = len(sentences) - len(new)
        report(f"without the {seen} whose reference occurs in training", outputs, corpus, new)


def report(title: str, outputs: list[str], corpus: Corpus, indices: Collection[int]) -> None:
    """Print BLEU and chrF of some of the test sentences, with their signatures."""
    references = [corpus.test[i].reference for i in indices]
    scores = score([outputs[i] for i in indices], references, tokenize=corpus.bleu_tokenizer)
    print(
        f"{title}\n  BLEU {scores.bleu:.1f}  {scores.bleu_signature}"
        f"\n  chrF {scores.chrf:.1f}  {scores.chrf_signature}"
    )


def compare_command(options: Compare) -> None:
    """Score runs side by side, and draw their learning curves and attention weights."""
    written = [options.output / name for name in ("compare.json", "compare.png", "attention.png")]
    figures, picture, attention = written
    if (options.output / "config.json").exists():
        raise UserError(f"--output: {options.output} holds a run; choose another folder")
    for file in written:
        check_output(file)
    compared = load_runs(options.runs, choose_device(options.device))
    corpus = corpus_of(compared[0].trained.config)
    options.output.mkdir(parents=True, exist_ok=True)
    vocabulary = min(each.trained.target.vocab_size for each in compared)
    groups, results = compare(compared, corpus, search=make_search(options, vocabulary))
    is_again = figures.exists()
    content = json.dumps({"groups": groups, "results": results}, indent=1)
    write_atomically(figures, f"{content}\n".encode())
    save(comparison_figure(groups, results), picture)
    pair = sorted(corpus.test, key=lambda pair: len(pair.source))[len(corpus.test) // 2]
    if records := attention_along(compared, pair):
        save(side_by_side_figure(records, title=f"{pair.source} → {pair.target}"), attention)
    else:
        written.remove(attention)
        if is_again:
            attention.unlink(missing_ok=True)  # of the earlier comparison
    print_results(groups, results)  # last: it may fail
    say(f"\nWritten: {', '.join(map(str, written))}")


def explore_command(options: Explore) -> None:
    """Write a page with all attention weights of the translation of one sentence."""
    if options.output:
        check_output(options.output, has_folder=True)
    run, trained, search = load(options)
    page = options.output or run.folder / PAGE
    sentences = attended_sentences(options, run, trained)
    snapshots = snapshots_of(run, trained)
    title = explore(trained, sentences, page, search=search, snapshots=snapshots)
    print(f"{title}\nWritten: {page}\n{page.resolve().as_uri()}")


def attended_sentences(
    options: Explore | Align, run: Run[TranslatorConfig], trained: TrainedTranslator
) -> list[str]:
    """Return the sentence of ``--sentence``, or test sentences of the run.

    Raises:
        UserError: If it is blank, or the model has no attention.
    """
    if not trained.model.cross_attentions:
        raise UserError(f"{run.folder} holds a model without attention")
    config = trained.config
    if options.sentence is None:
        sentences = corpus_of(config).example_sentences
        say(f"Without --sentence, a test sentence of {run.folder} is translated:")
    else:
        language = config.source_language
        sentences = [read_sentence(options.sentence, "--sentence", language, config.corpus)]
    trained.source.warn_of_unknown(sentences)
    return sentences


def read_sentence(text: str, option: str, language: str, corpus: str) -> str:
    """Clean the sentence of an option.

    Raises:
        UserError: If it is blank.
    """
    sentence = clean(decode_line(os.fsencode(text), where=option), language, corpus=corpus)
    if not sentence:
        raise UserError(f"{option} must not be blank")
    return sentence


def align_command(options: Align) -> None:
    """Print which subword of a sentence each subword of its translation translates."""
    run, trained, search = load(options)
    config, model, source, target = trained
    sentence = attended_sentences(options, run, trained)[0]
    if options.translation is None:
        ids = translate_with_attention(trained, sentence, search=search).ids
    else:
        language = config.target_language
        given = read_sentence(options.translation, "--translation", language, config.corpus)
        target.warn_of_unknown([given])
        ids = ids_of(given, target, model.max_length)
    read = ids_of(sentence, source, model.max_length), [BOS, *ids]
    found = align(model, *read, words=(source.subwords(read[0]), target.subwords(read[1])))
    print(f"{sentence}\n{target.decode(ids)}\n{found}")


def export_command(options: Export) -> None:
    """Write a trained Transformer for another engine."""
    run = choose_run(options.run, TranslatorConfig, train=TRAIN)
    output = options.output or run.folder / f"ctranslate2{'-int8' if options.int8 else ''}"
    export(run, load_translator(run, torch.device("cpu")), output, int8=options.int8)
    size = sum(file.stat().st_size for file in output.iterdir())
    say(f"Written: {output} ({size / 1e6:.1f} MB)")


RUN: dict[type, Callable[[Any], None]] = {
    Train: train_command,
    Translate: translate_command,
    Evaluate: evaluate_command,
    Compare: compare_command,
    Explore: explore_command,
    Align: align_command,
    Export: export_command,
}
"""The function that runs each command."""
