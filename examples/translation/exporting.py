"""Exporting: a trained Transformer in the format of CTranslate2, and the search of that engine.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) is an engine in C++ that runs Transformers
without torch. Its specification of a model is a tree of layers; each receives the weights of ours.
A folder that was exported also holds the tokenizers. It appears when it is complete.
"""

import math
import os
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from common.errors import UserError
from common.files import check_output, write_atomically
from common.run import Run
from common.tokenizer import BOS, EOS, UNK
from transformer_blocks.explorer.packages import check_packages
from transformer_blocks.generation import Generation
from translation.arguments import BeamOptions
from translation.decoding import Decoder, TrainedTranslator, length_limit
from translation.presets import TranslatorConfig
from translation.transformer import Transformer


def export(
    run: Run[TranslatorConfig], trained: TrainedTranslator, output: Path, *, int8: bool
) -> None:
    """Export a translator to a new folder.

    Args:
        run: The run, whose tokenizers are copied.
        trained: The translator, on the CPU.
        output: The folder to write.
        int8: Whether to store the weights as 8-bit integers.

    Raises:
        UserError: If the model is no Transformer, or ``output`` cannot be written.
        ModuleNotFoundError: If the package is not installed.
    """
    check_exportable(trained)
    if os.path.lexists(output):
        raise UserError(f"{output} exists already; remove it, or choose another --output")
    check_output(output, has_folder=True)
    with TemporaryDirectory(prefix=".export", dir=output.parent) as partial:
        folder = Path(partial) / output.name
        folder.mkdir()
        for file in {run.tokenizer_file(name) for name in trained.config.tokenizer_names}:
            write_atomically(folder / file.name, file.read_bytes())
        write_model(trained, folder, int8=int8)
        folder.rename(output)


def make_decoder(trained: TrainedTranslator, beam: BeamOptions, *, int8: bool) -> Decoder:
    """Make the decoder of a translator that CTranslate2 computes.

    Raises:
        UserError: If the model is no Transformer.
        ModuleNotFoundError: If the package is not installed.
    """
    check_exportable(trained)
    with TemporaryDirectory() as folder:
        write_model(trained, Path(folder), int8=int8)
        return load_decoder(trained, Path(folder), beam)


def check_exportable(trained: TrainedTranslator) -> None:
    """Raise unless the model is a Transformer, and the package is installed."""
    check_packages("CTranslate2", "ctranslate2", extra="export")
    if not isinstance(trained.model, Transformer):
        raise UserError(f"only a Transformer can be exported, got {trained.config.model}")


@torch.no_grad()
def write_model(trained: TrainedTranslator, folder: Path, *, int8: bool = False) -> None:
    """Write a model to a folder.

    Args:
        trained: The translator, a Transformer on the CPU.
        folder: The folder, which exists.
        int8: Whether to store the weights of linear layers and embeddings as 8-bit integers.
    """
    from ctranslate2.specs import TransformerSpec  # only now: it is not always installed

    _, _, source, target = trained
    model: Any = deepcopy(trained.model)  # CTranslate2 quantises in place
    is_pre_norm = model.encoder.norm is not None
    layers: list[Any] = [*model.encoder.layers]
    spec = TransformerSpec.from_config(
        len(layers), layers[0].self_attention.num_heads, pre_norm=is_pre_norm
    )
    spec.decoder.projection.weight = model.output.weight
    sides = (
        (spec.encoder, model.encoder, model.source_embedding, spec.encoder.embeddings[0]),
        (spec.decoder, model.decoder, model.target_embedding, spec.decoder.embeddings),
    )
    for stack_spec, stack, embedding, embedding_spec in sides:
        embedding_spec.weight = embedding.weight  # scaled by sqrt(d_model) there, too
        stack_spec.position_encodings.encodings = model.positions.table
        if is_pre_norm:
            _set(stack_spec.layer_norm, stack.norm)
        for layer_spec, layer in zip(stack_spec.layer, stack.layers, strict=True):
            _set_layer(layer_spec, layer)
    names = target.vocabulary
    spec.register_source_vocabulary(source.vocabulary)
    spec.register_target_vocabulary(names)
    spec.config.unk_token, spec.config.eos_token = names[UNK], names[EOS]
    spec.config.bos_token = spec.config.decoder_start_token = names[BOS]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = layers[0].self_attention_residual.norm.eps
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    spec.save(str(folder))


def _set_layer(spec: Any, layer: Any) -> None:
    """Copy the weights of an encoder or decoder layer."""
    of_self = layer.self_attention
    fused = [of_self.query_projection, of_self.key_projection, of_self.value_projection]
    _set_attention(spec.self_attention, of_self, layer.self_attention_residual, [fused])
    if hasattr(layer, "cross_attention"):
        cross = layer.cross_attention
        groups = [[cross.query_projection], [cross.key_projection, cross.value_projection]]
        _set_attention(spec.attention, cross, layer.cross_attention_residual, groups)
    _set(spec.ffn.layer_norm, layer.feed_forward_residual.norm)
    _set(spec.ffn.linear_0, layer.feed_forward.up_projection)
    _set(spec.ffn.linear_1, layer.feed_forward.down_projection)


def _set_attention(spec: Any, attention: Any, residual: Any, groups: list[list[nn.Linear]]) -> None:
    """Copy the weights of an attention layer, whose projections are fused in groups."""
    _set(spec.layer_norm, residual.norm)
    groups = [*groups, [attention.output_projection]]
    for linear_spec, group in zip(spec.linear, groups, strict=True):
        linear_spec.weight = torch.cat([each.weight for each in group])
        linear_spec.bias = torch.cat([each.bias for each in group])


def _set(spec: Any, module: Any) -> None:
    """Copy the weight and bias of a linear layer or a normalisation."""
    if isinstance(module, nn.LayerNorm):
        spec.gamma, spec.beta = module.weight, module.bias
    else:
        spec.weight, spec.bias = module.weight, module.bias


def load_decoder(trained: TrainedTranslator, folder: Path, beam: BeamOptions) -> Decoder:
    """Load what was exported, as a decoder; the scores of translations are NaN."""
    import ctranslate2  # only now: it is not always installed

    _, model, source, target = trained
    ids = {name: i for i, name in enumerate(target.vocabulary)}
    threads = torch.get_num_threads()
    translator = ctranslate2.Translator(str(folder), device="cpu", intra_threads=threads)

    def decode(sources: Sequence[Sequence[int]]) -> list[Generation]:
        subwords = [source.subwords(each) for each in sources]
        found = search(translator, subwords, beam, max_length=model.max_length)
        limits = [length_limit(model.max_length, len(each)) for each in sources]
        return [  # the model obeys the limit of each sentence
            Generation([ids[name] for name in tokens[:limit]], math.nan, finished=True)
            for tokens, limit in zip(found, limits, strict=True)
        ]

    return decode


def search(
    translator: Any, sources: Sequence[Sequence[str]], beam: BeamOptions, *, max_length: int
) -> list[list[str]]:
    """Translate with the search of CTranslate2, and rank its hypotheses as ``beam_search`` does.

    Both searches extend the same hypotheses, and stop once as many of them are finished as the beam
    has. They differ in the length penalty: CTranslate2 divides the log-probability of n tokens by a
    power of n, ours by a power of (5 + n) / 6. The hypotheses are therefore requested with about
    half the exponent, which is closest to ours for short sentences, and ranked again. CTranslate2
    returns no more of them than the beam has; where more are finished at the last step, the result
    may differ.

    Args:
        translator: The translator.
        sources: The subwords of each sentence.
        beam: The beam search.
        max_length: Maximum number of tokens of every translation.

    Returns:
        The subwords of each translation.
    """
    exponent = max(beam.length_penalty / 2, 1e-3)  # without one, CTranslate2 stops differently
    results = translator.translate_batch(
        sources,
        beam_size=beam.beam,
        num_hypotheses=beam.beam,
        length_penalty=exponent,
        min_decoding_length=0,  # by default, a translation has one token at least
        max_decoding_length=max_length,
        return_scores=True,
    )

    def rank(hypothesis: tuple[list[str], float]) -> float:
        tokens, score = hypothesis
        length = len(tokens) + 1  # and the end token
        return score * length**exponent / ((5 + length) / 6) ** beam.length_penalty

    return [
        max(zip(result.hypotheses, result.scores, strict=True), key=rank)[0] for result in results
    ]
