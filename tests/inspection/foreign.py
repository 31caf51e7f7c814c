"""Small random models of other libraries, with the weights that those return themselves."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,  # so that attention matters
}
TWO_STACKS: dict[str, Any] = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
}
DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "dropout"),
    *("activation_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop", "dropout_rate"),
)
KINDS = ("encoder_attentions", "attentions", "decoder_attentions", "cross_attentions")


@dataclass(frozen=True)
class Family:
    """How to build a family of models of Hugging Face, and where its attention is.

    Attributes:
        model: Class of the model.
        config: Class of its configuration.
        sizes: Arguments of the configuration.
        projection: The end of an attention module's name, and what replaces it in the name of the
            output projection.
        kind: "encoder", "decoder", "both" or "image".
        implementation: How the model computes attention by default.
    """

    model: Any
    config: Any
    sizes: dict[str, Any]
    projection: tuple[str, str]
    kind: str
    implementation: str = "sdpa"

    def build(self, *, dropout: bool = False, **sizes: Any) -> Any:
        torch.manual_seed(0)
        given = SIZES | self.sizes | ({} if dropout else dict.fromkeys(DROPOUTS, 0.0)) | sizes
        config = self.config(**given)
        config._attn_implementation = self.implementation
        return self.model(config)

    def eager(self, model: Any) -> Any:
        """Copy a model, so that it returns its attention weights."""
        config = copy.deepcopy(model.config)
        config._attn_implementation = "eager"
        eager = self.model(config).train(model.training)
        eager.load_state_dict(model.state_dict())
        return eager

    def inputs(self, *, padded: bool) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(1)
        if self.kind == "image":
            return {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator)}
        ids = torch.randint(5, 50, (2, 7), generator=generator)
        inputs = {"input_ids": ids}
        if padded:
            mask = torch.ones_like(ids)
            mask[1, :2] = 0  # padding at the left, as decoder-only models need it
            if self.kind != "decoder":
                mask = mask.flip(1)
            inputs["attention_mask"] = mask
        if self.kind == "both":
            inputs["decoder_input_ids"] = ids[:, :4]
        return inputs


GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
WINDOW = {"sliding_window": 4}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4}
MARIAN = {"d_model": 32, "decoder_start_token_id": 0, **TWO_STACKS}
T5 = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 40}
IMAGE = {"image_size": 16, "patch_size": 8}
O_PROJ = ("", ".o_proj")
T = transformers
FAMILIES = {
    "BERT": Family(T.BertModel, T.BertConfig, {}, (".self", ".output.dense"), "encoder"),
    "GPT-2": Family(T.GPT2LMHeadModel, T.GPT2Config, GPT2, ("", ".c_proj"), "decoder"),
    "Marian": Family(T.MarianMTModel, T.MarianConfig, MARIAN, ("", ".out_proj"), "both"),
    "T5": Family(
        *(T.T5ForConditionalGeneration, T.T5Config, T5 | {"decoder_start_token_id": 0}),
        *(("", ".o"), "both"),
    ),
    "ViT": Family(T.ViTModel, T.ViTConfig, IMAGE, O_PROJ, "image"),
    "Llama": Family(T.LlamaForCausalLM, T.LlamaConfig, GROUPED, O_PROJ, "decoder"),
    "Qwen 2": Family(
        *(T.Qwen2ForCausalLM, T.Qwen2Config, {"num_key_value_heads": 2}, O_PROJ, "decoder")
    ),
    "Qwen 3": Family(T.Qwen3ForCausalLM, T.Qwen3Config, GROUPED, O_PROJ, "decoder"),
    "Gemma 2": Family(  # its scores are capped, which the fused kernel cannot
        *(T.Gemma2ForCausalLM, T.Gemma2Config, GROUPED | WINDOW, O_PROJ, "decoder", "eager")
    ),
    "Gemma 3": Family(
        *(T.Gemma3ForCausalLM, T.Gemma3TextConfig, GROUPED | WINDOW, O_PROJ, "decoder")
    ),
}


def own_weights(result: Any) -> list[Tensor]:
    """List the attention weights that a model of Hugging Face returned, layer by layer."""
    weights = {kind: getattr(result, kind, None) or () for kind in KINDS}
    encoder = [*weights["encoder_attentions"], *weights["attentions"]]
    decoder, cross = weights["decoder_attentions"], weights["cross_attentions"]
    return encoder + [each for pair in zip(decoder, cross, strict=True) for each in pair]


def capture_torch_weights(model: nn.Module, run: Callable[[], object]) -> dict[str, Tensor]:
    """Run a model whose modules of torch are made to return their weights, of all heads."""
    weights: dict[str, Any] = {}

    def returning(name: str, module: nn.MultiheadAttention) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            asked = {"need_weights": True, "average_attn_weights": False}
            output, weights[name] = type(module).forward(module, *args, **kwargs | asked)
            return output, weights[name]

        return forward

    modules = dict(model.named_modules())
    layers = {k: m for k, m in modules.items() if isinstance(m, nn.MultiheadAttention)}
    for name, module in layers.items():
        module.forward = returning(name, module)  # type: ignore[method-assign]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        run()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
        for module in layers.values():
            del module.forward
    return weights
