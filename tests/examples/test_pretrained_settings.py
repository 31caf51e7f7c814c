"""Settings of published models: the family that they name, and those that a file leaves out."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.examples.published import computing_in, save

from common.errors import UserError
from pretrained import bert_sentences, generator
from pretrained.bert_sentences import SentenceEncoder
from pretrained.generator import TextGenerator
from pretrained.marian_model import Marian
from pretrained.marian_translator import PublishedTranslator
from pretrained.t5_model import T5
from pretrained.text_to_text import TextToText

LLAMA: dict[str, Any] = {
    "vocab_size": 9,
    "hidden_size": 12,
    "intermediate_size": 10,
    "num_hidden_layers": 2,
}
LLAMA |= {"num_attention_heads": 2, "eos_token_id": 2}
GROUPED = LLAMA | {"num_key_value_heads": 1, "head_dim": 6}
BERT: dict[str, Any] = {
    "vocab_size": 9,
    "hidden_size": 12,
    "intermediate_size": 10,
    "num_hidden_layers": 2,
}
BERT |= {"num_attention_heads": 2}
MARIAN: dict[str, Any] = {"vocab_size": 9, "d_model": 12, "encoder_layers": 1, "decoder_layers": 1}
MARIAN |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 10}
MARIAN |= {"decoder_ffn_dim": 10, "pad_token_id": 8, "decoder_start_token_id": 8, "eos_token_id": 0}
MARIAN |= {"scale_embedding": True, "activation_function": "swish"}
MODELS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", None, {"vocab_size": 9, "n_embd": 12, "n_layer": 1, "n_head": 2}),
    "llama": ("LlamaForCausalLM", None, LLAMA),
    "qwen3": ("Qwen3ForCausalLM", None, GROUPED),
    "gemma3_text": ("Gemma3ForCausalLM", None, GROUPED | {"num_hidden_layers": 7}),
    "bert": ("BertModel", None, BERT),
    "roberta": ("RobertaModel", None, BERT),
    "distilbert": (
        "DistilBertModel",
        None,
        {"vocab_size": 9, "dim": 12, "hidden_dim": 10, "n_layers": 1, "n_heads": 2},
    ),
    "marian": ("MarianMTModel", Marian, MARIAN),
    "t5": (
        "T5ForConditionalGeneration",
        T5,
        {"vocab_size": 9, "d_model": 12, "d_kv": 4, "d_ff": 10, "num_layers": 1, "num_heads": 2},
    ),
}
"""Class of transformers, class of ours if no table of families has it, and sizes."""


def load_with_few_settings(load: Any, folder: Path) -> Any:
    """Load a model without the settings that have their default, except those that are required."""
    path = folder / "config.json"
    published = json.loads(path.read_text())
    defaults = transformers.AutoConfig.for_model(published["model_type"]).to_dict()
    few = {name for name, each in published.items() if each != defaults.get(name)}
    few = few - {"layer_types"} | {"model_type"}  # those of Gemma depend on the number of layers
    for _ in published:
        path.write_text(json.dumps({name: published[name] for name in few}))
        try:
            return load(folder, dtype=torch.float64)
        except UserError as error:
            few |= {*re.findall(r": (\w+) must ", str(error))}
    raise AssertionError(f"a complete file is refused, or its settings by another name: {few}")


@pytest.mark.parametrize("family", MODELS)
def test_a_setting_that_is_left_out_is_required_or_has_the_default_of_transformers(
    family: str, tmp_path: Path
) -> None:
    their_class, our_class, sizes = MODELS[family]
    config = transformers.AutoConfig.for_model(family, **sizes)
    with computing_in(torch.float64):
        theirs = save(getattr(transformers, their_class)(config), tmp_path, dtype=torch.float64)
    families = generator.FAMILIES | bert_sentences.FAMILIES
    ours = load_with_few_settings((our_class or families[family][0]).load, tmp_path)
    tokens = torch.randint(3, 8, (1, 30))
    with torch.no_grad():
        with computing_in(torch.float64):
            inputs = {"decoder_input_ids": tokens} if our_class else {}
            expected = theirs(input_ids=tokens, **inputs)[0]
        if our_class:
            memory, mask = ours.encode(tokens)
            found = ours.logits(ours.decoder(ours.embed(tokens, 0), memory, memory_mask=mask))
        else:
            found = ours(tokens)
    tolerance = 1e-6 if family == "marian" else 1e-9  # transformers rounds its sinusoids to float32
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "program", [SentenceEncoder, PublishedTranslator, TextToText, TextGenerator]
)
def test_a_model_of_another_family_is_named_before_its_other_files_are_missed(
    program: Any, tmp_path: Path
) -> None:
    for settings, found in (({"model_type": "gptj"}, "'gptj'"), ({}, "None")):
        (tmp_path / "config.json").write_text(json.dumps(settings))
        with pytest.raises(UserError, match=rf"config.json: model_type must be .*, got {found}$"):
            program.load(tmp_path)
