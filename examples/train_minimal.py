"""Train a small Transformer for translation, in one file to copy and change.

    python examples/train_minimal.py

The model translates Japanese numerals to English: 二百五 is "two hundred five". It is trained on
8,999 numbers, in less than a minute, and tested on the other 1,000 below 10,000. To train it on
other data, replace ``make_corpus``, which returns source sequences and their translations.
"""

import argparse
import random

import torch
from torch import Tensor

from transformer_blocks import build_seq2seq, greedy_search

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


def encode(sequences: list[list[str]], vocabulary: list[str]) -> list[list[int]]:
    """Turn tokens into ids between <bos> and <eos>."""
    return [[BOS, *map(vocabulary.index, sequence), EOS] for sequence in sequences]


def pad(rows: list[list[int]]) -> Tensor:
    """Pad rows of ids to equal length: (B, L)."""
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def main(*, steps: int = 300, batch_size: int = 128, test_size: int = 1000) -> float:
    """Train the model; return the share of test numbers that it translates correctly."""
    torch.manual_seed(0)
    sources, targets = make_corpus()
    source_vocabulary, target_vocabulary = make_vocabulary(sources), make_vocabulary(targets)
    source_ids, target_ids = encode(sources, source_vocabulary), encode(targets, target_vocabulary)
    sizes = len(source_vocabulary), len(target_vocabulary)
    model = build_seq2seq(*sizes, num_layers=2, d_model=64, num_heads=4, d_ff=256)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    for step in range(1, steps + 1):
        batch = random.Random(step).sample(range(test_size, len(sources)), batch_size)
        source, target = pad([source_ids[i] for i in batch]), pad([target_ids[i] for i in batch])
        loss = model.loss(source, target, label_smoothing=0.1)  # teacher forcing
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)
    model.eval()
    found = model.generate(source_ids[:test_size], greedy_search, end_id=EOS, max_length=12)
    translations = [[target_vocabulary[token] for token in each.tokens] for each in found]
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
