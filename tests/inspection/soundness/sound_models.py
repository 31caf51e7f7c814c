"""Models that are sound, each with an example of its inputs: ours, and those of other libraries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_blocks import (
    ALiBi,
    LanguageModel,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    RotaryPositionalEncoding,
    Seq2Seq,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
    mean_pool,
    padding_mask,
)
from transformer_blocks.generation import IncrementalDecoder
from transformer_blocks.inspection import Report, check_soundness

VOCABULARY, D, H = 12, 16, 2
SIZES: dict[str, Any] = {"num_layers": 2, "d_model": D, "num_heads": H, "d_ff": 32}
TOKENS = torch.tensor([[5, 6, 7, 8, 9, 10], [4, 3, 8, 0, 0, 0], [9, 7, 3, 6, 0, 0]])
SOURCE = torch.tensor([[3, 5, 7, 9, 4], [8, 6, 0, 0, 0], [7, 3, 9, 0, 0]])
PADDED = TOKENS == 0
FULL = TOKENS + PADDED * torch.arange(1, 7)  # nothing that looks like padding


class Sound(NamedTuple):
    """A sound model, its example, its kind, and the options of the call."""

    model: Any
    example: Any
    kind: str
    options: Mapping[str, Any] = MappingProxyType({})


MODELS: dict[str, Callable[[], Sound]] = {}


def ask(title: str, model: Any, inputs: Any, **options: Any) -> Report:
    """Check one property alone."""
    return check_soundness(model, inputs, only=title, **options)[title]


def sound(function: Callable[[], Sound]) -> Callable[[], Sound]:
    MODELS[function.__name__] = function
    return function


def vectors(*shape: int) -> Tensor:
    return torch.randn(*shape)


# Ours


class OurEncoder(nn.Module):
    def __init__(self, *, pooled: bool = False, **sizes: Any) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(VOCABULARY, D)
        self.positions = SinusoidalPositionalEncoding(D)
        self.encoder = build_encoder(**SIZES, **sizes)
        self.pooled = pooled

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.positions(self.embedding(tokens))
        mask = padding_mask(tokens)
        x = self.encoder(x, mask=mask)
        return mean_pool(x, mask=mask) if self.pooled else x


def decoder_only(
    positions: nn.Module | None = None,
    attention: Any = None,
    *,
    kind: type[LanguageModel] = LanguageModel,
) -> LanguageModel:
    """Build a language model with positions of any kind."""
    stack = build_encoder(**SIZES, attention=attention)
    return kind(TokenEmbedding(VOCABULARY, D), stack, positions=positions)


def language_model(model: LanguageModel) -> Sound:
    def steps() -> IncrementalDecoder:
        cache = model.decoder.new_cache()
        return IncrementalDecoder(model.decoder, cache, embed=model.embed, output=model.output)

    tokens = torch.tensor([[5, 6, 7, 8, 9, 10], [4, 3, 8, 7, 5, 11]])
    return Sound(model, tokens, "causal", {"new_step_model": steps})


@sound
def our_encoder() -> Sound:
    return Sound(OurEncoder(), TOKENS, "encoder", {"padding_id": 0})


@sound
def our_classifier() -> Sound:
    return Sound(OurEncoder(pooled=True), TOKENS, "sequence to vector", {"padding_id": 0})


@sound
def our_causal_stack() -> Sound:
    example = {"x": vectors(3, 6, D), "mask": padding_mask(TOKENS), "causal": True}
    return Sound(build_encoder(**SIZES), example, "causal")


@sound
def our_decoder_stack() -> Sound:
    example = {
        "x": vectors(3, 6, D),
        "memory": vectors(3, 5, D),
        "mask": padding_mask(TOKENS),
        "memory_mask": padding_mask(SOURCE),
    }
    return Sound(build_decoder(**SIZES), example, "encoder-decoder")


def add_language_model(name: str, positions: Any = None, attention: Any = None) -> None:
    MODELS[f"our_language_model_{name}"] = lambda: language_model(
        decoder_only(positions and positions(), attention)
    )


add_language_model("sinusoidal", partial(SinusoidalPositionalEncoding, D))
add_language_model("learned", partial(LearnedPositionalEncoding, D, max_length=6))
add_language_model(
    "rotary",
    attention=lambda: MultiHeadAttention(D, H, transforms=[RotaryPositionalEncoding(D // H)]),
)
add_language_model("alibi", attention=lambda: MultiHeadAttention(D, H, attention_function=ALiBi(H)))
add_language_model(
    "grouped_query",
    partial(SinusoidalPositionalEncoding, D),
    partial(MultiHeadAttention, D, H, num_key_value_heads=1),
)


def translator(kind: type[Seq2Seq] = Seq2Seq) -> Seq2Seq:
    embedding = TokenEmbedding(VOCABULARY, D)
    stacks = build_encoder(**SIZES), build_decoder(**SIZES)
    return kind(embedding, embedding, *stacks, positions=SinusoidalPositionalEncoding(D))


@sound
def our_encoder_decoder() -> Sound:
    model = translator()
    return Sound(
        model,
        (SOURCE, TOKENS),
        "encoder-decoder",
        {"padding_id": 0, "new_step_model": lambda: model.begin(SOURCE)},
    )


# torch.nn


def initialised(module: nn.Module) -> nn.Module:
    """Initialise each layer for itself: torch's stacks begin with equal ones."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return module


LAYER: dict[str, Any] = {"d_model": D, "nhead": H, "dim_feedforward": 32, "batch_first": True}


@sound
def torch_causal_encoder() -> Sound:
    model = initialised(nn.TransformerEncoder(nn.TransformerEncoderLayer(**LAYER), 2))
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    example = {"src": vectors(3, 6, D), "mask": mask, "src_key_padding_mask": PADDED}
    return Sound(model, example, "causal")


@sound
def torch_decoder() -> Sound:
    model = initialised(nn.TransformerDecoder(nn.TransformerDecoderLayer(**LAYER), 2))
    example = {
        "tgt": vectors(3, 6, D),
        "memory": vectors(3, 5, D),
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(6),
        "tgt_key_padding_mask": torch.zeros(3, 6).masked_fill(PADDED, -torch.inf),
        "memory_key_padding_mask": SOURCE == 0,
    }
    return Sound(model, example, "encoder-decoder")


@sound
def torch_transformer() -> Sound:
    model = nn.Transformer(D, H, 2, 2, 32, batch_first=True)
    example = {
        "src": vectors(3, 5, D),
        "tgt": vectors(3, 5, D),  # as long as the source
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(5),
        "src_key_padding_mask": SOURCE == 0,
        "memory_key_padding_mask": SOURCE == 0,
    }
    return Sound(model, example, "encoder-decoder")


@sound
def torch_attention() -> Sound:
    x = vectors(3, 6, D)
    example = {"query": x, "key": x, "value": x, "key_padding_mask": PADDED}
    return Sound(nn.MultiheadAttention(D, H, batch_first=True), example, "encoder")


# Recurrent networks and convolutions


@sound
def lstm() -> Sound:
    return Sound(nn.LSTM(D, D, 2, batch_first=True), vectors(3, 6, D), "causal")


class PackedLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, D, padding_idx=0)
        self.lstm = nn.LSTM(D, D, batch_first=True, bidirectional=True)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        output, _ = self.lstm(packed)
        return nn.utils.rnn.pad_packed_sequence(
            output, batch_first=True, total_length=tokens.shape[1]
        )[0]


@sound
def lstm_bidirectional_with_lengths() -> Sound:
    return Sound(PackedLSTM(), (TOKENS, (~PADDED).sum(1)), "encoder")


# Arguments and outputs of other forms


class Siamese(nn.Module):
    """Two sequences of one length, whose masks are told apart by their names or their order."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, D)
        self.layer = nn.TransformerEncoderLayer(**LAYER)

    def embed(self, tokens: Tensor, real: Tensor) -> Tensor:
        x = self.layer(self.embedding(tokens), src_key_padding_mask=~real)
        weights = real[..., None].to(x)
        return (x * weights).sum(1) / weights.sum(1)

    def forward(
        self, premise: Tensor, hypothesis: Tensor, hypothesis_mask: Tensor, premise_mask: Tensor
    ) -> Tensor:
        first, second = self.embed(premise, premise_mask), self.embed(hypothesis, hypothesis_mask)
        return torch.cat([first, second], dim=1)


@sound
def two_sequences_with_named_masks() -> Sound:
    other = TOKENS.flip(0)
    return Sound(Siamese(), (TOKENS, other, other != 0, ~PADDED), "sequence to vector")


@dataclass
class Output:
    """Outputs in a class of the user."""

    hidden: Tensor
    loss: Tensor | None = None


class Layer(nn.Module):
    """A layer that returns a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Sequential(nn.Embedding(VOCABULARY, D), SinusoidalPositionalEncoding(D))
        self.layer = nn.TransformerEncoderLayer(**LAYER)

    def forward(self, tokens: Tensor, real: Tensor) -> Output:
        return Output(self.layer(self.embedding(tokens), src_key_padding_mask=~real))


@sound
def output_in_a_dataclass() -> Sound:
    return Sound(Layer(), (TOKENS, ~PADDED), "encoder")


class Subsampled(nn.Module):
    """A speech encoder with half as many outputs as inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(D, D, 3, stride=2, padding=1)
        self.layer = nn.TransformerEncoderLayer(**LAYER)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        x = self.convolution((x * real[..., None]).mT).mT
        return self.layer(x, src_key_padding_mask=~real[:, ::2])


@sound
def subsampled_speech() -> Sound:
    example = vectors(3, 6, D), ~PADDED
    return Sound(Subsampled(), example, "sequence to sequence of another length")


@sound
def bfloat16_layer() -> Sound:
    example = {"src": vectors(3, 6, D).bfloat16(), "src_key_padding_mask": PADDED}
    return Sound(nn.TransformerEncoderLayer(**LAYER).bfloat16(), example, "encoder")


@sound
def parameters_of_several_dtypes() -> Sound:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.output = nn.GRU(D, D, batch_first=True), nn.Linear(D, D).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.output(self.gru(x)[0].double())

    return Sound(Model(), vectors(3, 6, D), "causal")


# Hugging Face

HF: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": D,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def hugging_face(name: str, config: str, kind: str, **sizes: Any) -> Sound:
    import transformers

    settings = getattr(transformers, config)(**(HF | sizes))
    model = getattr(transformers, name)(settings)
    example = {"input_ids": TOKENS, "attention_mask": (~PADDED).long()}
    return Sound(model, example, kind)


def add_hugging_face(name: str, config: str, kind: str, **sizes: Any) -> None:
    MODELS[f"hf_{name}"] = lambda: hugging_face(name, config, kind, **sizes)


GPT: dict[str, Any] = {"n_embd": D, "n_layer": 2, "n_head": H, "n_positions": 24}
LLAMA: dict[str, Any] = {"num_key_value_heads": 1, "head_dim": 8}
add_hugging_face("BertModel", "BertConfig", "encoder")
add_hugging_face("GPT2LMHeadModel", "GPT2Config", "causal", **GPT)
add_hugging_face("LlamaForCausalLM", "LlamaConfig", "causal", **LLAMA)
add_hugging_face("Gemma3ForCausalLM", "Gemma3TextConfig", "causal", **LLAMA, sliding_window=4)
add_hugging_face("GPT2ForSequenceClassification", "GPT2Config", "sequence to vector", **GPT)
add_hugging_face("RwkvForCausalLM", "RwkvConfig", "causal", attention_hidden_size=D)
add_hugging_face("MixtralForCausalLM", "MixtralConfig", "causal", **LLAMA, num_local_experts=2)


def hugging_face_translator(name: str, config: str, **sizes: Any) -> Sound:
    found = hugging_face(name, config, "encoder-decoder", decoder_start_token_id=0, **sizes)
    example = {
        "input_ids": SOURCE,
        "attention_mask": (SOURCE != 0).long(),
        "decoder_input_ids": TOKENS,
        "decoder_attention_mask": (~PADDED).long(),
    }
    return found._replace(example=example)


BART: dict[str, Any] = {
    "d_model": D,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": H,
    "decoder_attention_heads": H,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}


@sound
def hf_t5() -> Sound:
    return hugging_face_translator(
        "T5ForConditionalGeneration",
        "T5Config",
        d_model=D,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=H,
    )


@sound
def hf_bart() -> Sound:
    return hugging_face_translator("BartForConditionalGeneration", "BartConfig", **BART)


@sound
def hf_vit() -> Sound:
    found = hugging_face(
        "ViTModel", "ViTConfig", "rows of a fixed size", image_size=8, patch_size=4
    )
    return found._replace(example={"pixel_values": vectors(2, 3, 8, 8)})


# x-transformers


@sound
def x_transformers_decoder() -> Sound:
    from x_transformers import Decoder, TransformerWrapper

    model = TransformerWrapper(
        num_tokens=VOCABULARY,
        max_seq_len=24,
        attn_layers=Decoder(dim=D, depth=2, heads=H, attn_dim_head=8, rotary_pos_emb=True),
    )
    return Sound(model, {"x": TOKENS, "mask": ~PADDED}, "causal")


@sound
def x_transformers_decoder_stack() -> Sound:
    from x_transformers import Decoder

    model = Decoder(dim=D, depth=2, heads=H, attn_dim_head=8, cross_attend=True)
    example = {
        "x": vectors(3, 6, D),
        "context": vectors(3, 5, D),
        "mask": ~PADDED,
        "context_mask": SOURCE != 0,
    }
    return Sound(model, example, "encoder-decoder")
