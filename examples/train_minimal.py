"""Train a small Transformer for translation, in one file to copy and change.

    python examples/train_minimal.py

The model translates Japanese numerals to English: 二百五 is "two hundred five". It is trained on
8,999 numbers, in less than a minute, and tested on the other 1,000 below 10,000. To train it on
other data, replace ``make_corpus``, which returns source sequences and their translations.
"""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks import (
    EncoderDecoder,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
    padding_mask,
)

SPECIAL = ["<pad>", "<bos>", "<eos>"]
PAD, BOS, EOS = range(3)
UNITS = ((1000, "千", "thousand"), (100, "百", "hundred"), (10, "十", ""))
DIGITS = "一二三四五六七八九"
NUMERALS = """one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"""
SMALL, TENS = NUMERALS.split()[:19], NUMERALS.split()[19:]


def make_corpus() -> tuple[list[list[str]], list[list[str]]]:
    """Return all numbers from 1 to 9,999 in Japanese and in English, in random order."""
    numbers = random.Random(0).sample(range(1, 10_000), 9_999)
    return [japanese(number) for number in numbers], [english(number) for number in numbers]


def japanese(number: int) -> list[str]:
    """Spell a number in kanji: 2,105 is 二千百五, without the digit 1 before a unit."""
    tokens = []
    for unit, kanji, _ in UNITS:
        digit, number = divmod(number, unit)
        tokens += [DIGITS[digit - 1]] * (digit > 1) + [kanji] * (digit > 0)
    return tokens + [DIGITS[number - 1]] * (number > 0)


def english(number: int) -> list[str]:
    """Spell a number in English words: 2,105 is two thousand one hundred five."""
    tokens = []
    for unit, _, word in UNITS[:2]:
        digit, number = divmod(number, unit)
        tokens += [SMALL[digit - 1], word] * (digit > 0)
    if number >= 20:
        tokens.append(TENS[number // 10 - 2])
        number %= 10
    return tokens + [SMALL[number - 1]] * (number > 0)


def make_vocabulary(sequences: list[list[str]]) -> list[str]:
    """List the special tokens and those of the sequences; the id of a token is its index."""
    return SPECIAL + sorted({token for sequence in sequences for token in sequence})


def encode(sequences: list[list[str]], vocabulary: list[str]) -> Tensor:
    """Turn tokens into ids between <bos> and <eos>, padded to equal length: (B, L)."""
    rows = [[BOS, *map(vocabulary.index, sequence), EOS] for sequence in sequences]
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


class Translator(nn.Module):
    """The model of the paper's figure 1: embeddings, encoder, decoder and output layer."""

    def __init__(self, source_size: int, target_size: int, *, d_model: int = 64) -> None:
        super().__init__()
        self.source_embedding = TokenEmbedding(source_size, d_model)
        self.target_embedding = TokenEmbedding(target_size, d_model)
        self.positions = SinusoidalPositionalEncoding(d_model)
        self.blocks = EncoderDecoder(
            build_encoder(num_layers=2, d_model=d_model, num_heads=4, d_ff=256),
            build_decoder(num_layers=2, d_model=d_model, num_heads=4, d_ff=256),
        )
        self.output = nn.Linear(d_model, target_size)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute the logits of each next target token: (B, S) and (B, L) to (B, L, V)."""
        x = self.blocks(
            self.positions(self.source_embedding(source)),
            self.positions(self.target_embedding(target)),
            source_mask=padding_mask(source),  # the decoder applies a causal mask itself
        )
        return self.output(x)

    @torch.no_grad()
    def translate(self, source: Tensor, *, max_length: int = 12) -> list[list[int]]:
        """Decode greedily: append the most probable token, then cut each sequence at its <eos>."""
        target = torch.full((len(source), 1), BOS)
        for _ in range(max_length):
            next_token = self(source, target)[:, -1].argmax(-1)
            target = torch.cat((target, next_token[:, None]), dim=1)
        return [row[1 : row.index(EOS) if EOS in row else None] for row in target.tolist()]


def main(*, steps: int = 300, batch_size: int = 128, test_size: int = 1000) -> float:
    """Train the model; return the share of test numbers that it translates correctly."""
    torch.manual_seed(0)
    sources, targets = make_corpus()
    source_vocabulary, target_vocabulary = make_vocabulary(sources), make_vocabulary(targets)
    model = Translator(len(source_vocabulary), len(target_vocabulary))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    for step in range(1, steps + 1):
        batch = random.Random(step).sample(range(test_size, len(sources)), batch_size)
        source = encode([sources[i] for i in batch], source_vocabulary)
        target = encode([targets[i] for i in batch], target_vocabulary)
        logits = model(source, target[:, :-1])  # teacher forcing: predict each next token
        labels = target[:, 1:].flatten()
        loss = F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=PAD, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)
    model.eval()
    found = model.translate(encode(sources[:test_size], source_vocabulary))
    translations = [[target_vocabulary[token] for token in tokens] for tokens in found]
    for i in range(5):
        print(f"{''.join(sources[i])}: {' '.join(translations[i])}")
    correct = sum(a == b for a, b in zip(translations, targets[:test_size], strict=True))
    print(f"{correct / test_size:.1%} of {test_size:,} test numbers are translated correctly")
    return correct / test_size


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    main()
