"""Train a Transformer that translates, in one file: copy it and change what you need.

    python examples/train_minimal.py

A small model of the paper's kind learns to write Japanese numerals in English: 二百五 becomes "two
hundred five". It is tested on numbers that it has never seen. To use your own data, replace
``make_pairs``: a pair is two lists of tokens.
"""

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


def make_pairs() -> list[tuple[list[str], list[str]]]:
    """Write every number from 1 to 9,999 in Japanese and in English, in random order."""
    numbers = random.Random(0).sample(range(1, 10_000), 9_999)
    return [(japanese(number), english(number)) for number in numbers]


def japanese(number: int) -> list[str]:
    """Write a number in kanji: 2,105 is 二千百五, where the digit 1 before a unit is left out."""
    tokens = []
    for unit, kanji, _ in UNITS:
        digit, number = divmod(number, unit)
        tokens += [DIGITS[digit - 1]] * (digit > 1) + [kanji] * (digit > 0)
    return tokens + [DIGITS[number - 1]] * (number > 0)


def english(number: int) -> list[str]:
    """Write a number in words: 2,105 is two thousand one hundred five."""
    tokens = []
    for unit, _, word in UNITS[:2]:
        digit, number = divmod(number, unit)
        tokens += [SMALL[digit - 1], word] * (digit > 0)
    if number >= 20:
        tokens.append(TENS[number // 10 - 2])
        number %= 10
    return tokens + [SMALL[number - 1]] * (number > 0)


def encode(sentences: list[list[str]], vocabulary: list[str]) -> Tensor:
    """Turn sentences into token ids between <bos> and <eos>, padded to one length: (B, L)."""
    rows = [[BOS, *map(vocabulary.index, sentence), EOS] for sentence in sentences]
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


class Translator(nn.Module):
    """Embeddings, encoder, decoder and output layer: figure 1 of the paper."""

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
        """Compute the logits of the token after each target token: (B, S), (B, L) to (B, L, V)."""
        x = self.blocks(
            self.positions(self.source_embedding(source)),
            self.positions(self.target_embedding(target)),
            source_mask=padding_mask(source),  # the decoder's causal mask is always on
        )
        return self.output(x)

    @torch.no_grad()
    def translate(self, source: Tensor, *, max_length: int = 12) -> list[list[int]]:
        """Decode greedily: append the most probable next token, and cut each row at its <eos>."""
        target = torch.full((len(source), 1), BOS)
        for _ in range(max_length):
            next_token = self(source, target)[:, -1].argmax(-1)
            target = torch.cat((target, next_token[:, None]), dim=1)
        return [row[1 : row.index(EOS) if EOS in row else None] for row in target.tolist()]


def main(*, steps: int = 300, batch_size: int = 128) -> float:
    """Train, then return the share of unseen numbers that are translated without an error."""
    torch.manual_seed(0)
    pairs = make_pairs()
    train, test = pairs[1000:], pairs[:1000]
    words = [SPECIAL + sorted({token for pair in pairs for token in pair[i]}) for i in (0, 1)]
    model = Translator(*map(len, words))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    for step in range(1, steps + 1):
        batch = random.Random(step).sample(train, batch_size)
        source, target = (encode([pair[i] for pair in batch], words[i]) for i in (0, 1))
        logits = model(source, target[:, :-1])  # teacher forcing: predict each next token
        labels = target[:, 1:].flatten()
        loss = F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=PAD, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}")
    model.eval()
    found = model.translate(encode([pair[0] for pair in test], words[0]))
    outputs = [[words[1][token] for token in tokens] for tokens in found]
    for (source_tokens, _), output in zip(test[:5], outputs, strict=False):
        print(f"{''.join(source_tokens)}: {' '.join(output)}")
    accuracy = sum(out == pair[1] for out, pair in zip(outputs, test, strict=True)) / len(test)
    print(f"{accuracy:.1%} of {len(test):,} numbers that it has never seen are right")
    return accuracy


if __name__ == "__main__":
    main()
