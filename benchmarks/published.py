"""Speed of published models in these blocks, compared with the library that they come from.

    make bench-pretrained                    # or: python benchmarks/published.py
    python benchmarks/published.py --only transformers ours --rounds 11

The models have the sizes of published ones, and random weights:

- ``encode``: a MiniLM (6 layers, d_model 384) encodes a batch of sequences of 8 to 64 tokens;
- ``generate``: the small GPT-2 (12 layers, d_model 768) continues a prompt of 16 tokens by 32, with
  greedy decoding;
- ``qwen3``: the smallest Qwen3 (28 layers, d_model 1024, 16 query heads, 8 key and value heads)
  does the same; its 600 million weights take 2.4 GB, and three times that when prepared;
- ``translate``: an OPUS-MT model (6 + 6 layers, d_model 512) encodes 8 to 16 tokens and decodes 32,
  with beam search of 4 beams.

No sequence ends earlier. The implementations are ``transformers``, with ``generate`` for all but
the first; ``ours``, prepared for inference as ``examples/pretrained.py`` does; and
``ours unprepared``.
"""

import random
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from harness import SetUp, new_parser
from harness import run as compare
from marian import build_marian

THREADS = 2
NO_PADDING = -1  # not the id of any token
NEW_TOKENS, PROMPT_LENGTH, BEAMS = 32, 16, 4
MINILM, GPT2, QWEN3, OPUS = 30522, 50257, 151936, 60716
"""Vocabulary sizes; the padding id is 0 in MiniLM and the last id in OPUS-MT."""


class Case(NamedTuple):
    """A task for one batch.

    Attributes:
        work: "encode", "generate", "qwen3" or "translate".
        batch: Batch size.
    """

    work: str
    batch: int

    def __str__(self) -> str:
        """Return the name of the table row."""
        return f"{self.work}, batch {self.batch}"


WORKS = ("encode", "generate", "qwen3", "translate")
CASES = [Case(work, batch) for work in WORKS for batch in (1, 16)]


def make_tokens(count: int, *, shortest: int, longest: int, vocabulary: int, padding: int) -> Any:
    """Return a padded batch of token ids, equal for all implementations, of shape (B, L)."""
    import torch

    generator = random.Random(0)
    lengths = [longest, *(generator.randint(shortest, longest) for _ in range(count - 1))]
    tokens = torch.full((count, longest), padding)
    for row, length in enumerate(lengths):
        ids = [generator.randrange(1, vocabulary - 1) for _ in range(length)]
        tokens[row, :length] = torch.tensor(ids)
    return tokens


def batch_of(case: Case) -> Any:
    """Return the inputs of a case."""
    if case.work == "encode":
        return make_tokens(case.batch, shortest=8, longest=64, vocabulary=MINILM, padding=0)
    if case.work in ("generate", "qwen3"):
        return make_tokens(
            case.batch, shortest=PROMPT_LENGTH, longest=PROMPT_LENGTH, vocabulary=GPT2, padding=0
        )
    return make_tokens(case.batch, shortest=8, longest=16, vocabulary=OPUS, padding=OPUS - 1)


SETTINGS: dict[str, dict[str, Any]] = {
    "encode": {
        "model_type": "bert",
        "vocab_size": MINILM,
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "max_position_embeddings": 512,
        "hidden_act": "gelu",
    },
    "generate": {
        "model_type": "gpt2",
        "vocab_size": GPT2,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 1024,
    },
    "qwen3": {
        "model_type": "qwen3",
        "vocab_size": QWEN3,
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "max_position_embeddings": 40960,
        "hidden_act": "silu",
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
    },
    "translate": {
        "model_type": "marian",
        "vocab_size": OPUS,
        "d_model": 512,
        "scale_embedding": True,
        **{f"{stack}_layers": 6 for stack in ("encoder", "decoder")},
        **{f"{stack}_attention_heads": 8 for stack in ("encoder", "decoder")},
        **{f"{stack}_ffn_dim": 2048 for stack in ("encoder", "decoder")},
        "max_position_embeddings": 512,
        "pad_token_id": OPUS - 1,
        "activation_function": "swish",
    },
}
"""The settings of the models, as in a ``config.json``."""


def make_ours(*, prepared: bool) -> SetUp:
    """Set up the models of ``transformer_blocks.pretrained``."""
    import torch

    from transformer_blocks import beam_search, greedy_search
    from transformer_blocks.inference import prepare
    from transformer_blocks.pretrained.families import build_model

    torch.set_num_threads(THREADS)

    @lru_cache(maxsize=1)
    def build(work: str) -> Any:
        torch.manual_seed(0)
        model = build_model(SETTINGS[work]).eval()
        return prepare(model) if prepared else model

    @torch.inference_mode()
    def run(model: Any, tokens: Any, case: Case) -> Any:
        if case.work == "encode":
            return model(tokens)
        if case.work in ("generate", "qwen3"):
            return model.generate(
                tokens.tolist(), greedy_search, end_id=None, max_length=NEW_TOKENS
            )
        return model.generate(
            tokens.tolist(), beam_search, beam_size=BEAMS, end_id=None, max_length=NEW_TOKENS
        )

    def set_up(case: Case) -> Callable[[], object]:
        model, tokens = build(case.work), batch_of(case)
        return lambda: run(model, tokens, case)

    return set_up


def make_transformers() -> SetUp:
    """Set up Hugging Face's models."""
    import torch
    import transformers

    torch.set_num_threads(THREADS)

    @lru_cache(maxsize=1)
    def build(work: str) -> Any:
        torch.manual_seed(0)
        if work == "encode":
            config = transformers.BertConfig(
                vocab_size=MINILM,
                hidden_size=384,
                num_hidden_layers=6,
                num_attention_heads=12,
                intermediate_size=1536,
            )
            return transformers.BertModel(config, add_pooling_layer=False).eval()
        if work == "generate":
            model: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config())
        elif work == "qwen3":
            today = transformers.Qwen3Config(
                hidden_size=1024,
                num_hidden_layers=28,
                num_attention_heads=16,
                num_key_value_heads=8,
                intermediate_size=3072,
                tie_word_embeddings=True,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            )
            model = transformers.Qwen3ForCausalLM(today)
        else:
            model = build_marian(
                vocabulary=OPUS,
                d_model=512,
                num_layers=6,
                num_heads=8,
                d_ff=2048,
                padding=OPUS - 1,
                start=OPUS - 1,
                end=0,
                activation="swish",
                max_position_embeddings=512,
                forced_eos_token_id=None,
            )
        return model.eval()

    @torch.inference_mode()
    def run(model: Any, tokens: Any, attention_mask: Any, case: Case) -> Any:
        if case.work == "encode":
            return model(tokens, attention_mask=attention_mask).last_hidden_state
        output = model.generate(
            tokens,
            attention_mask=attention_mask,
            num_beams=BEAMS if case.work == "translate" else 1,
            do_sample=False,
            min_new_tokens=NEW_TOKENS,
            max_new_tokens=NEW_TOKENS,
            pad_token_id=OPUS - 1 if case.work == "translate" else 0,
        )
        before = 1 if case.work == "translate" else PROMPT_LENGTH
        if output.shape != (case.batch, before + NEW_TOKENS):
            raise RuntimeError(f"{NEW_TOKENS} new tokens are required, got {output.shape}")
        return output

    def set_up(case: Case) -> Callable[[], object]:
        model, tokens = build(case.work), batch_of(case)
        padding = {"encode": 0, "translate": OPUS - 1}.get(case.work, NO_PADDING)
        attention_mask = (tokens != padding).long()
        return lambda: run(model, tokens, attention_mask, case)

    return set_up


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison that the command-line options select."""
    implementations: dict[str, Callable[[], SetUp]] = {
        "transformers": make_transformers,
        "ours": partial(make_ours, prepared=True),
        "ours unprepared": partial(make_ours, prepared=False),
    }
    parser = new_parser(__doc__, implementations)
    parser.add_argument("--work", nargs="+", choices=WORKS, default=WORKS)
    options = parser.parse_args(arguments)
    compare(options, implementations, [case for case in CASES if case.work in options.work])


if __name__ == "__main__":
    main()
