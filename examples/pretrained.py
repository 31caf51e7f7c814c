r"""Continue texts, translate, or find similar sentences with a published model.

    python examples/pretrained.py openai-community/gpt2 "The Transformer is" --length 40
    python examples/pretrained.py Qwen/Qwen3-0.6B-Base "The cat" "A dog" --sample --seed 1
    python examples/pretrained.py Helsinki-NLP/opus-mt-ja-en "猫が好きです。" --beam 4
    python examples/pretrained.py google-t5/t5-small "translate English to German: The cat sleeps."
    python examples/pretrained.py sentence-transformers/all-MiniLM-L6-v2 \
        "how do plants eat?" --file sentences.txt

The model is a folder, or a name on the Hugging Face hub, from which it is downloaded once. What
the program does depends on the model:

- A language model (GPT-2, Llama, Qwen3, Qwen3-MoE, gpt-oss, DeepSeek-V3, Gemma 3) continues texts.
- An encoder and a decoder (Marian, T5) write a text for each text, such as its translation.
- An encoder (BERT, DistilBERT, RoBERTa) compares the first text with the others, and the most
  similar ones are printed, with the cosine of their vectors: means of their tokens', or what the
  files of the model say. Sentence-BERT (Reimers and Gurevych 2019,
  https://arxiv.org/abs/1908.10084) is trained for that.

Texts are arguments, or the lines of ``--file``. Decoding is greedy; with ``--beam``, the most
probable of several hypotheses is found; with ``--sample``, tokens are drawn at random by their
probabilities. Texts of different lengths share a batch, and each has the result that it has alone.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.options import Count, Flag, SamplingOptions, Words, parse
from common.program import run_program

BATCH_TOKENS = 4096
"""Maximum number of tokens of a batch, with padding and continuations."""


@dataclass(frozen=True)
class Pretrained(SamplingOptions):
    """The options of the command line.

    Attributes:
        model: A folder, or the name of a model on the Hugging Face hub.
        texts: Texts (default: those of --file).
        file: File of texts, one per line (default: none).
        revision: Branch, tag or commit on the hub (default: main).
        length: Maximum number of tokens to generate.
        beam: Beam size.
        sample: Sample tokens by their probabilities.
        best: Number of similar texts to print.
    """

    model: str
    texts: Words = ()
    file: Path | None = field(default=None, kw_only=True)
    revision: str | None = field(default=None, kw_only=True)
    length: Count = field(default=100, kw_only=True)
    beam: Count = field(default=1, kw_only=True)
    sample: Flag = field(default=False, kw_only=True)
    best: Count = field(default=5, kw_only=True)

    def __post_init__(self) -> None:
        """Check that the options go together."""
        if not self.texts and not self.file:
            raise UserError("give texts or --file")
        if not self.sample:
            self.check_greedy("requires --sample")
        elif self.beam > 1:
            raise UserError("--beam cannot be combined with --sample")

    def read_texts(self) -> list[str]:
        """Read the texts of the command line and the lines of the file."""
        from common.text_files import read_lines, read_prompts

        texts = read_prompts(self.texts) if self.texts else []
        return texts + (read_lines(self.file) if self.file else [])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments, __doc__, Pretrained)))


def run(options: Pretrained) -> None:
    """Load the model, and print what it makes of the texts."""
    from transformer_blocks.inference import prepare  # only now: it imports torch
    from transformer_blocks.pretrained import from_pretrained

    texts = options.read_texts()
    model, tokenizer = from_pretrained(options.model, revision=options.revision)
    ids = [tokenizer.encode(text) if text.strip() else [] for text in texts]
    work = generate if hasattr(model, "generate") else compare
    for line in work(options, prepare(model), tokenizer, texts, ids):
        print(line)


def generate(
    options: Pretrained, model: Any, tokenizer: Any, texts: list[str], ids: list[list[int]]
) -> Iterator[str]:
    """Continue texts, or write one for each; a blank text gives a blank line."""
    import torch

    from common.batching import group_by_length
    from common.searches import beam, sampling
    from transformer_blocks import LanguageModel, greedy_search

    continues, written = isinstance(model, LanguageModel), dict[int, str]()
    room = tokenizer.max_length or sys.maxsize
    for row, text in zip(ids, texts, strict=True):
        if len(row) + continues * options.length > room:
            raise UserError(f"a text and --length must not exceed {room} tokens, got {text[:40]!r}")
    search = beam(options.beam, length_penalty=0.6) if options.beam > 1 else greedy_search
    search = sampling(options) if options.sample else search
    lengths = [len(row) + options.length if row else 0 for row in ids]
    for chosen in group_by_length(lengths, BATCH_TOKENS):
        limits = {"end_id": tokenizer.end_ids, "max_length": [options.length] * len(chosen)}
        try:
            with torch.inference_mode():
                found = model.generate([ids[i] for i in chosen], search, **limits)
        except ValueError as error:  # the beam is larger than the vocabulary
            raise UserError(str(error)) from error
        for i, each in zip(chosen, found, strict=True):
            after = ids[i] if continues else []
            written[i] = texts[i] * continues + tokenizer.decode(each.tokens, after)
    for i in range(len(texts)):
        yield written.get(i, "").replace("\r", " ").replace("\n", " ")


def compare(
    options: Pretrained, model: Any, tokenizer: Any, texts: list[str], ids: list[list[int]]
) -> Iterator[str]:
    """Compare the first text with the others; return the most similar ones."""
    import torch
    from torch.nn.functional import normalize
    from torch.nn.utils.rnn import pad_sequence

    from common.batching import group_by_length
    from transformer_blocks import padding_mask

    length = tokenizer.max_length  # of a longer text, the end is left out, but not the end token
    short = (row if len(row) <= length else [*row[: length - 1], row[-1]] for row in ids)
    rows = {i: torch.tensor(row) for i, row in enumerate(short) if row}
    if 0 not in rows or len(rows) < 2:
        raise UserError("the first text and one of the others must hold text")
    vectors: dict[int, torch.Tensor] = {}
    for chosen in group_by_length([len(rows.get(i, ())) for i in range(len(ids))], BATCH_TOKENS):
        tokens = pad_sequence([rows[i] for i in chosen], True, model.padding_id)
        with torch.inference_mode():
            mask = padding_mask(tokens, model.padding_id)
            pooled = normalize(model.pool(model(tokens), mask=mask), dim=-1)
        if not pooled.isfinite().all():
            raise UserError("sentence vectors must be finite: the model's weights are too large")
        vectors |= dict(zip(chosen, pooled, strict=True))
    similar = {i: float(vectors[0] @ vector) for i, vector in vectors.items() if i}
    for i in sorted(similar, key=similar.__getitem__, reverse=True)[: options.best]:
        yield f"{similar[i]:.4f}\t{texts[i]}"


if __name__ == "__main__":
    sys.exit(main())
