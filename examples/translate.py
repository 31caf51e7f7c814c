"""Train a Japanese-English translator, translate with it, score it, and compare it.

    python examples/translate.py train                     # the toy corpus, minutes on a CPU
    python examples/translate.py translate "犬が水を飲みました。"
    python examples/translate.py evaluate

    python examples/translate.py train --corpus small_parallel_enja --preset small --minutes 40
    python examples/translate.py evaluate --run runs/small_parallel_enja

    python examples/translate.py train --model rnn --run runs/rnn      # what came before
    python examples/translate.py compare runs/toy runs/rnn
    python examples/translate.py explore --sentence "犬が水を飲みました。"   # a page to open

Everything of a run lies in one folder, ``runs/<name>``. A stopped training goes on with
``--resume``. ``python examples/translate.py train --help`` lists what can be chosen.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import torch

import common  # noqa: F401  # isort: skip  (first: it names packages that are missing)
from tqdm import tqdm

from common.checkpoint import latest_checkpoint
from common.configuration import checked
from common.distributed import Processes, choose_device, joined
from common.errors import UserError
from common.files import FolderLock, check_output, file_hash, write_atomically
from common.program import as_text, finishing_unread, lines_in_chunks, resumable, run_program
from common.searches import Beam, Sample, Search
from common.text_files import decode_line
from common.tokenizer import Tokenizer
from transformer_blocks.inference import prepare
from translation.arguments import BEAM_SIZE, LENGTH_PENALTY, parse
from translation.comparison import (
    Contestant,
    check_comparable,
    compare,
    format_results,
    looks_along,
    names_of,
)
from translation.corpus import SMALL_PARALLEL_ENJA, Corpus, clean, load_test_pairs, seen_targets
from translation.decoding import look, translate, translate_n_best
from translation.exploring import explore
from translation.pictures import plot_comparison, plot_cross_attention, plot_side_by_side
from translation.presets import settings_for
from translation.run import FORMAT_VERSION, Config, Run, corpus_of
from translation.scoring import score
from translation.training import Keeping, Training
from translation.translator import Translator


def new_config(options: argparse.Namespace) -> Config:
    """Make the configuration of a run that begins."""
    preset = options.preset or "tiny"
    settings = settings_for(preset, options.model or "transformer")
    for name in CHOSEN:
        if getattr(options, name) is not None:
            settings = replace(settings, **{name: getattr(options, name)})
    files = [options.source_file, options.target_file]
    corpus = options.corpus or ("files" if any(files) else "toy")
    if (corpus == "files") != all(files) or (corpus != "files" and any(files)):
        raise UserError("--corpus files goes with --source-file and --target-file, all three")
    for split in ("valid", "test"):
        check_both_files(options, split)
        if corpus != "files" and getattr(options, f"{split}_source"):
            raise UserError(f"--{split}-source goes with --corpus files")
    config = Config(
        corpus=corpus,
        source_language=options.source_language or "ja",
        target_language=options.target_language or "en",
        data_dir=as_text(options.data_dir),
        source_file=as_text(options.source_file),
        target_file=as_text(options.target_file),
        valid_source=as_text(options.valid_source),
        valid_target=as_text(options.valid_target),
        test_source=as_text(options.test_source),
        test_target=as_text(options.test_target),
        seed=options.seed or 0,
        preset=preset,
        settings=settings,
        minutes=options.minutes,
        corpus_hash="",
        tokenizers={},
    )
    return checked(config)


def check_both_files(options: argparse.Namespace, split: str) -> None:
    """Raise if only one of the two files of a split is given.

    Raises:
        UserError: If one is missing.
    """
    source, target = (getattr(options, f"{split}_{side}") for side in ("source", "target"))
    if (source is None) != (target is None):
        raise UserError(f"--{split}-source and --{split}-target go together")


CHOSEN = (
    *("epochs", "vocabulary", "batch_tokens", "accumulate"),
    *("dropout", "peak_rate", "tie_embeddings"),
)
"""Settings of a preset that the command line may change."""


def begin(run: Run, config: Config, lock: FolderLock) -> tuple[Config, Corpus]:
    """Load the corpus, train the tokenizers, and write the configuration, last."""
    if run.checkpoints.exists() or run.best.exists():
        raise UserError(
            f"{run.folder} holds weights but no config.json; "
            "put the file back, or choose another --run"
        )
    corpus = corpus_of(config)
    for side, sentences in (
        ("source", [pair.source for pair in corpus.train]),
        ("target", [pair.target for pair in corpus.train]),
    ):
        path = run.tokenizer_file(side)
        Tokenizer.train(
            sentences, vocab_size=config.settings.vocabulary, path=path, write=lock.write_new
        )
        config.tokenizers[side] = file_hash(path)
    config = replace(config, corpus_hash=corpus.fingerprint)
    run.write_config(config, write=lock.write_new)
    return config, corpus


def go_on(run: Run, options: argparse.Namespace) -> tuple[Config, Corpus]:
    """Read the configuration of a run; its plan and the place of its data may be changed.

    Nothing is written: the training may still be refused.
    """
    config = run.read_config()
    if config.format_version < FORMAT_VERSION:
        raise UserError(
            f"{run.folder} was trained by an earlier version of this program; it translates, "
            "but cannot be resumed; begin another --run"
        )
    begun = vars(config.settings) | vars(config)
    for name, wanted in vars(options).items():
        wanted = as_text(wanted) if isinstance(wanted, Path) else wanted
        if name in ("epochs", "minutes", "data_dir") or name not in begun or wanted is None:
            continue
        if wanted != begun[name]:
            raise UserError(
                f"{run.folder} was begun with {name}={begun[name]}, got {wanted}; "
                "leave the option out, or begin another --run"
            )
    if options.epochs is not None:
        settings = replace(config.settings, epochs=options.epochs)
        config = replace(config, settings=settings, minutes=None)
    if options.minutes is not None:
        config = replace(config, minutes=options.minutes)
    if options.data_dir is not None:
        config = replace(config, data_dir=as_text(options.data_dir))
    return config, corpus_of(config)


def train_command(options: argparse.Namespace) -> None:
    """Train, then show what came of it."""
    device = choose_device(options.device)
    with joined(device) as processes, finishing_unread():
        train(options, device, processes)


def train(options: argparse.Namespace, device: torch.device, processes: Processes) -> None:
    """Train, by itself or as one of several processes."""
    if options.shard and (processes.count == 1 or options.compile):
        raise UserError("--shard goes with several processes (torchrun), and without --compile")
    config = new_config(options)
    run = Run(options.run or Path("runs") / config.corpus)
    lock = FolderLock(run.folder)
    with lock if processes.is_first else nullcontext():
        # The first process prepares the run; then the others find it there.
        config, corpus = processes.agree(lambda: set_up(run, config, options, lock))
        training = Training(
            run,
            config.settings,
            corpus,
            run.load_tokenizers(config),
            seed=config.seed,
            device=device,
            minutes=config.minutes,
            processes=processes,
            keeping=Keeping(options.save_steps, options.keep),
            compiled=options.compile,
            sharded=options.shard,
        )
        train_and_show(run, config, training, corpus, lock, resume=options.resume)


def set_up(
    run: Run, config: Config, options: argparse.Namespace, lock: FolderLock
) -> tuple[Config, Corpus]:
    """Begin a run, or find the one to go on with."""
    if not run.config_file.exists():
        return begin(run, config, lock)
    if options.resume:
        return go_on(run, options)
    raise UserError(f"{run.folder} holds a run; go on with --resume, or choose another --run")


def train_and_show(
    run: Run, config: Config, training: Training, corpus: Corpus, lock: FolderLock, *, resume: bool
) -> None:
    """Train, then translate and draw what it has learnt."""
    device, processes = training.device, training.processes
    if resume and training.resume():
        if processes.is_first:
            print(f"{run.folder}: going on after {training.progress}")
    elif latest_checkpoint(run.best) is not None:
        raise UserError(
            f"{run.folder} holds trained weights but no checkpoint to go on from; "
            "choose another --run"
        )
    if processes.is_first:
        if config != training.config:  # a plan or a place that was changed, and is now accepted
            run.write_config(config)
        parameters = sum(p.numel() for p in training.model.parameters())
        several = f", in {processes.count} processes" if processes.count > 1 else ""
        print(
            f"{corpus.sizes}, {parameters:,} parameters, vocabularies of "
            f"{training.tokenizers[0].vocab_size} and {training.tokenizers[1].vocab_size}, "
            f"on {device}{several}",
            flush=True,
        )
    with resumable():
        training.fit(begun=lock.commit)
    if processes.is_first:
        show_results(run, corpus, device)


def show_results(run: Run, corpus: Corpus, device: torch.device) -> None:
    """Translate a few test sentences and draw the attention of the first."""
    _, model, source, target = run.load_best(device)
    pairs = corpus.test[:: max(1, len(corpus.test) // 5)][:5]
    search = Beam(BEAM_SIZE, LENGTH_PENALTY)
    outputs = translate(model, source, target, [pair.source for pair in pairs], search=search)
    print("\nSentences it has never seen:")
    for pair, output in zip(pairs, outputs, strict=True):
        print(f"  source     {pair.source}\n  output     {output}\n  reference  {pair.reference}\n")
    written = [run.folder / "loss.png"]
    if model.cross_attentions:
        written.append(run.folder / "attention.png")
        draw_attention(model, source, target, pairs[0].source, written[-1], search=search)
    print("Written:", ", ".join(map(str, written)))


def draw_attention(
    model: Translator,
    source: Tokenizer,
    target: Tokenizer,
    sentence: str,
    path: Path,
    *,
    search: Search,
) -> None:
    """Draw where the last layer that can look into the source looked in translating it."""
    seen = look(model, source, target, sentence, search=search)
    plot_cross_attention(
        seen.weights[model.cross_attentions[-1]],
        source=seen.source,
        target=seen.target,
        path=path,
        title=f"{sentence} → {seen.translation}",
    )


def choose_search(options: argparse.Namespace, vocabulary: int) -> Search:
    """Make the search that the command line asks for.

    Raises:
        UserError: If it asks for more beams than there are words.
    """
    n_best = getattr(options, "n_best", 1)
    if options.sample:
        dice = torch.Generator()
        dice.seed() if options.seed is None else dice.manual_seed(options.seed)
        temperature = 1.0 if options.temperature is None else options.temperature
        return Sample(temperature, options.top_k, options.top_p, dice, n_best)
    beam_size = BEAM_SIZE if options.beam is None else options.beam
    if beam_size > vocabulary:
        raise UserError(
            f"--beam must not exceed the {vocabulary} tokens there are, got {beam_size}"
        )
    penalty = LENGTH_PENALTY if options.length_penalty is None else options.length_penalty
    return Beam(beam_size, penalty, n_best)


def check_folder(file: Path) -> None:
    """Raise unless a file can be written, and the folder that it is to be written to exists.

    Raises:
        UserError: If it does not.
    """
    check_output(file)
    if not file.parent.is_dir():
        raise UserError(f"there is no folder {file.parent} to write {file} to")


def translate_command(options: argparse.Namespace) -> None:
    """Translate sentences from arguments, a file or standard input, line in, line out."""
    if options.sentences and options.file:
        raise UserError("give sentences or --file, not both")
    if options.picture:
        check_folder(options.picture)
    run = Run(options.run or Path("runs/toy"))
    device = choose_device(options.device)
    config, model, source, target = run.load_best(device, last=options.average_last)
    search = choose_search(options, target.vocab_size)
    if options.picture and not model.cross_attentions:
        raise UserError(f"--picture: {run.folder} holds a model without attention")
    model = prepare(model, compiled=options.compile)
    number = 0
    for lines in lines_in_chunks(options):
        sentences = [clean(line, config.source_language, corpus=config.corpus) for line in lines]
        if options.picture and any(sentences):
            first = next(filter(None, sentences))
            draw_attention(model, source, target, first, options.picture, search=search)
            options.picture = None
        found = translate_n_best(
            model, source, target, sentences, search=search, batch_tokens=options.batch_tokens
        )
        for translations in found:
            number += 1
            for text, likelihood in translations:
                note = f"{number}\t{likelihood:.4f}\t" if options.n_best > 1 else ""
                print(f"{note}{text}", flush=sys.stdin.isatty())


def evaluate_command(options: argparse.Namespace) -> None:
    """Score the translations of the test sentences."""
    run = Run(options.run or Path("runs/toy"))
    if options.output:
        check_folder(options.output)
    device = choose_device(options.device)
    config, model, source, target = run.load_best(device, last=options.average_last)
    search = choose_search(options, target.vocab_size)
    corpus = evaluated_corpus(config, options)
    with tqdm(
        total=len(corpus.test), unit="sentence", leave=False, disable=not sys.stderr.isatty()
    ) as bar:
        outputs = translate(
            prepare(model),
            source,
            target,
            [pair.source for pair in corpus.test],
            search=search,
            batch_tokens=options.batch_tokens,
            progress=bar.update,
        )
    if options.output:  # before anything is printed, which may fail
        write_atomically(options.output, "".join(f"{line}\n" for line in outputs).encode())
    references = [pair.reference for pair in corpus.test]
    report(f"{len(references)} test sentences", outputs, references, corpus.bleu_tokenizer)
    if corpus.name == SMALL_PARALLEL_ENJA and corpus.train:
        seen = set(seen_targets(corpus))
        unseen = [i for i in range(len(references)) if i not in seen]
        report(
            f"without the {len(seen)} whose reference occurs in training",
            [outputs[i] for i in unseen],
            [references[i] for i in unseen],
            corpus.bleu_tokenizer,
        )


def evaluated_corpus(config: Config, options: argparse.Namespace) -> Corpus:
    """Load the run's corpus, or a corpus of nothing but the test files that were asked for."""
    check_both_files(options, "test")
    if options.test_source is None:
        return corpus_of(config)
    languages = config.source_language, config.target_language
    test = load_test_pairs(
        (options.test_source, options.test_target),
        source_language=config.source_language,
        target_language=config.target_language,
        corpus=config.corpus,
    )
    return Corpus(config.corpus, *languages, train=[], validation=[], test=test)


@finishing_unread()
def compare_command(options: argparse.Namespace) -> None:
    """Score runs side by side, and draw how they learnt and where they look."""
    figures, picture, attention = (
        options.output / name for name in ("compare.json", "compare.png", "attention.png")
    )
    if (options.output / "config.json").exists():
        raise UserError(f"--output: {options.output} holds a run; choose another folder")
    for file in (figures, picture, attention):
        check_output(file)
    device = choose_device(options.device)
    contestants = []
    for name, folder in zip(names_of(options.runs), options.runs, strict=True):
        run = Run(folder)
        contestants.append(Contestant(name, run, run.read_metrics(), *run.load_best(device)))
    check_comparable(contestants)
    corpus = corpus_of(contestants[0].config)
    if options.sentence is not None and options.sentence > len(corpus.test):
        raise UserError(
            f"--sentence must be one of the {len(corpus.test)} test sentences, "
            f"got {options.sentence}"
        )
    options.output.mkdir(parents=True, exist_ok=True)
    vocabulary = min(contestant.target.vocab_size for contestant in contestants)
    groups, results = compare(
        contestants,
        corpus,
        search=choose_search(options, vocabulary),
        batch_tokens=options.batch_tokens,
    )
    is_again = figures.exists()
    content = {"groups": groups, "results": [asdict(result) for result in results]}
    write_atomically(figures, (json.dumps(content, indent=1) + "\n").encode())
    plot_comparison(groups, results, picture)
    written = [figures, picture]
    middle = sorted(corpus.test, key=lambda pair: len(pair.source))[len(corpus.test) // 2]
    pair = middle if options.sentence is None else corpus.test[options.sentence - 1]
    if looks := looks_along(contestants, pair):
        plot_side_by_side(looks, attention, title=f"{pair.source} → {pair.target}")
        written.append(attention)
    elif is_again:
        attention.unlink(missing_ok=True)  # of the earlier comparison
    print(format_results(groups, results))  # last: it may fail
    print("\nWritten:", ", ".join(map(str, written)))


def explore_command(options: argparse.Namespace) -> None:
    """Write a page with all attention of the model over one sentence."""
    run = Run(options.run or Path("runs/toy"))
    if options.output:
        check_folder(options.output)
    config, model, source, target = run.load_best(choose_device(options.device))
    page = options.output or run.folder / "explorer.html"
    if not model.attentions:
        raise UserError(f"{run.folder} holds a model without attention")
    line = decode_line(os.fsencode(options.sentence), where="--sentence")
    sentence = clean(line, config.source_language, corpus=config.corpus)
    if not sentence:
        raise UserError("--sentence must hold something to translate")
    search = choose_search(options, target.vocab_size)
    title = explore(model, source, target, sentence, page, search=search)
    print(f"{title}\nWritten: {page}")


def report(title: str, outputs: Sequence[str], references: Sequence[str], tokenize: str) -> None:
    """Print BLEU and chrF with their signatures."""
    scores = score(outputs, references, tokenize=tokenize)
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
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""

    def work() -> None:
        options = parse(arguments, description=__doc__)
        COMMANDS[options.command](options)

    return run_program(work)


if __name__ == "__main__":
    sys.exit(main())
