"""Exporting: a trained Transformer as files for another engine, checked against the model.

A folder that was exported holds the model, in the format of ONNX or CTranslate2, the tokenizers,
and ``export.json``, which names the ids of the special tokens, the settings of the search, the
inputs and outputs, and the versions that wrote it. The folder appears when it is complete and
checked.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import nn

from common.errors import UserError
from common.files import check_output, write_atomically, write_folder
from common.run import Run
from common.searches import Beam
from common.tokenizer import BOS, EOS, PAD, UNK
from transformer_blocks import __version__
from transformer_blocks.explorer.packages import check_packages
from translation.arguments import BEAM_SIZE, LENGTH_PENALTY
from translation.decoding import Decoder, decode_sentences, decoder_of
from translation.presets import Config
from translation.run import TrainedTranslator
from translation.transformer import Transformer

PACKAGES = {"onnx": ("onnx", "onnxruntime", "onnxscript"), "ctranslate2": ("ctranslate2",)}
"""The packages that each format needs."""
BEAMS = (1, 4)
"""The beam sizes with which exported files are checked; 1 is greedy decoding."""

Engine = Callable[[Beam], Decoder]
"""Function that makes a decoder, given the beam search."""


def export(
    run: Run[Config],
    trained: TrainedTranslator,
    kind: str,
    output: Path,
    *,
    int8: bool = False,
    sentences: Sequence[str] = (),
) -> list[str]:
    """Export a translator to a new folder, and compare the translations of some sentences.

    Args:
        run: The run, whose tokenizers are copied.
        trained: The translator, on the CPU.
        kind: The format, "onnx" or "ctranslate2".
        output: The folder to write.
        int8: Whether to quantise the weights to 8-bit integers, for CTranslate2 only.
        sentences: Cleaned source sentences to translate with the model and with what was exported.

    Returns:
        How far the translations agree, in words, for each beam size; nothing without sentences.

    Raises:
        UserError: If the model is no Transformer, ``output`` cannot be written, or no translation
            agrees, except with ``int8``; nothing is written then.
        ModuleNotFoundError: If a package is not installed.
    """
    check_packages(f"export --to {kind}", *PACKAGES[kind], extra="export")
    model = check_transformer(run, trained, "exported")
    if os.path.lexists(output):
        raise UserError(f"{output} exists already; remove it, or choose another --output")
    check_folder(output)
    content: dict[str, Any] = {
        "format": kind,
        "int8": int8,
        "source_language": trained.config.source_language,
        "target_language": trained.config.target_language,
        "tokenizers": [run.tokenizer_file(name).name for name in trained.config.tokenizer_names],
        "ids": {"padding": PAD, "unknown": UNK, "begin": BOS, "end": EOS},
        "max_length": model.max_length,
        "weights": hash_of(model),
        "search": {"beam_size": BEAM_SIZE, "length_penalty": LENGTH_PENALTY},
        "versions": {"transformer-blocks": __version__}
        | {package: version(package) for package in ("torch", *PACKAGES[kind])},
    }
    with write_folder(output) as folder:
        for name in content["tokenizers"]:
            write_atomically(folder / name, (run.folder / name).read_bytes())
        module = import_module(f"translation.{kind}_export")  # only now: it needs the packages
        content |= module.write_model(trained, folder, int8=int8)
        write_json(folder / "export.json", content)
        agreements = compare(trained, partial(module.load_decoder, trained, folder), sentences)
        if not int8 and any(identical == 0 for identical, _ in agreements):
            raise UserError(
                f"nothing was written: none of {len(sentences)} sentences is translated by the "
                "exported files as by the model"
            )
        return [described for _, described in agreements]


def check_transformer(run: Run[Config], trained: TrainedTranslator, done: str) -> Transformer:
    """Return the model of a run, which is to be exported or compiled.

    Raises:
        UserError: If it is no Transformer.
    """
    if not isinstance(trained.model, Transformer):
        raise UserError(
            f"only a Transformer can be {done}, and {run.folder} holds a recurrent model "
            f"({trained.config.model})"
        )
    return trained.model


def folder_of(run: Run[Config], kind: str, *, int8: bool) -> Path:
    """Return the folder of a run for what is exported."""
    return run.folder / (f"{kind}-int8" if int8 else kind)


def hash_of(model: nn.Module) -> str:
    """Compute the SHA-256 of the weights of a model on the CPU."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file."""
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def compare(
    trained: TrainedTranslator, exported: Engine, sentences: Sequence[str]
) -> list[tuple[int, str]]:
    """Compare the translations of a model with those of what was exported.

    Returns:
        For each beam size, the number of sentences whose two translations have the same tokens, and
        a description, with the first other translation.
    """
    _, model, source, target = trained
    agreements = []
    for beams in BEAMS if sentences else ():
        ours, others = (
            decode_sentences(
                engine(Beam(beams, LENGTH_PENALTY)), source, sentences, max_length=model.max_length
            )
            for engine in (partial(decoder_of, model), exported)
        )
        pairs = [(a[0].tokens, b[0].tokens) for a, b in zip(ours, others, strict=True)]
        different = [(target.decode(a), target.decode(b)) for a, b in pairs if a != b]
        identical = len(pairs) - len(different)
        name = "greedy decoding" if beams == 1 else f"beam search, {beams} beams"
        line = f"{name}: {identical} of {len(pairs)} translations as by the model"
        for ours_first, other in different[:1]:
            line += f"; the first other one:\n  model     {ours_first}\n  exported  {other}"
        agreements.append((identical, line))
    return agreements


def check_folder(file: Path) -> None:
    """Raise unless a file or folder can be written and its parent exists.

    Raises:
        UserError: If it cannot, or the parent does not exist.
    """
    check_output(file, has_folder=True)
