"""Training: the reader's own modules become a translator, and its attention a page.

Every unit takes part but the cache of unit 11: the tokens are the reader's merges, the modules, the
loss and the optimiser are the reader's, greedy search translates the test sentences, BLEU scores
them, and beam search translates the sentence of the page.
"""

import random
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor, nn

from common.batching import pad
from transformer_blocks.explorer import Explorer, explore

PAD, BOS, EOS = range(3)
SPECIAL = ["<pad>", "<bos>", "<eos>"]
LAYERS, D_MODEL, HEADS, D_FF = 2, 128, 4, 256
WARMUP_STEPS, SMOOTHING = 400, 0.1
SAMPLE = 4000
"""Number of sentences of which the merges are learned."""

Pairs = Sequence[tuple[str, str]]


class Vocabulary:
    """The tokens of one language: merges of unit 1, with ids after those of the special tokens.

    Args:
        mine: The reader's modules by the names of their units.
        sentences: Sentences of which merges are learned.
        merges: Number of merges.
    """

    def __init__(self, mine: Any, sentences: Sequence[str], merges: int) -> None:
        self.mine = mine
        characters = " ".join(sorted(set("".join(sentences)) - {" "}))
        text = " ".join([characters, *sentences[:SAMPLE]])
        self.merges, tokens = mine.tokens.learn_merges(text, merges)
        self.tokens = SPECIAL + [f"{token}{end}" for token in tokens for end in ("", " ")]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        self.words: dict[str, list[int]] = {}

    def encode(self, sentence: str) -> list[int]:
        """Return the ids of a sentence; the last token of a word has an id of its own."""
        ids = []
        for word in sentence.split():
            if word not in self.words:
                *start, end = self.mine.tokens.encode_word(word, self.merges)
                self.words[word] = [self.ids[token] for token in (*start, f"{end} ")]
            ids += self.words[word]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the sentence of these ids."""
        return "".join(self.tokens[each] for each in ids if each > EOS).strip()


class Translator(nn.Module):
    """The paper's model, of the reader's modules.

    Args:
        mine: The reader's modules by the names of their units.
        source_size: Number of source tokens.
        target_size: Number of target tokens.
    """

    def __init__(self, mine: Any, source_size: int, target_size: int) -> None:
        super().__init__()
        sizes = LAYERS, D_MODEL, HEADS, D_FF
        self.source_embedding = mine.embedding.TokenEmbedding(source_size, D_MODEL)
        self.target_embedding = mine.embedding.TokenEmbedding(target_size, D_MODEL)
        self.positions = mine.positions.SinusoidalPositionalEncoding(D_MODEL)
        self.encoder = mine.layers.Encoder(*sizes)
        self.decoder = mine.layers.Decoder(*sizes)
        self.padding_mask = mine.masks.padding_mask
        self.output_logits = mine.embedding.output_logits

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the memory, (B, S, d_model), and the mask that hides its padding."""
        mask = self.padding_mask(source)
        return self.encoder(self.positions(self.source_embedding(source)), mask), mask

    def decode(self, target: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """Return the logits of the token after each target token, (B, L, V)."""
        x = self.positions(self.target_embedding(target))
        hidden = self.decoder(x, memory, self.padding_mask(target), memory_mask)
        logits: Tensor = self.output_logits(hidden, self.target_embedding)
        return logits

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits for a batch of pairs, source (B, S) and target (B, L)."""
        return self.decode(target, *self.encode(source))


class Hypotheses:
    """What the searches of unit 11 ask: the translator with the hypotheses of one sentence.

    Each step computes all positions again.

    Args:
        model: The translator.
        source: Ids of the sentence, of shape (1, S).
    """

    def __init__(self, model: Translator, source: Tensor) -> None:
        self.model = model
        self.memory, self.mask = model.encode(source)
        self.tokens = torch.empty(1, 0, dtype=torch.long)

    def step(self, tokens: Tensor) -> Tensor:
        """Append a token to each hypothesis, and return the logits of the next, (N, V)."""
        self.tokens = torch.cat([self.tokens, tokens[:, None]], dim=1)
        memory = self.memory.expand(len(tokens), -1, -1)
        return self.model.decode(self.tokens, memory, self.mask)[:, -1]

    def reorder(self, rows: Tensor) -> None:
        """Continue the hypotheses of these rows."""
        self.tokens = self.tokens[rows]


def batches(ids: list[tuple[list[int], list[int]]], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of pairs of similar length, in random order, for ever."""
    ids = sorted(ids, key=lambda pair: (len(pair[1]), len(pair[0])))
    starts = range(0, len(ids), size)
    for epoch in count():
        for start in random.Random(epoch).sample(starts, len(starts)):
            sources, targets = zip(*ids[start : start + size], strict=True)
            yield pad(sources), pad([[BOS, *target, EOS] for target in targets])


def train(
    mine: Any,
    training: Pairs,
    test: Pairs,
    *,
    updates: int,
    merges: int = 400,
    batch_size: int = 64,
) -> tuple[float, Explorer]:
    """Train the reader's translator, and print how it learns and what it translates.

    Args:
        mine: The reader's modules by the names of their units.
        training: Pairs of sentences, source and target.
        test: Pairs of other sentences; the page shows the translation of the first.
        updates: Number of updates.
        merges: Number of merges of each language.
        batch_size: Number of pairs in a batch.

    Returns:
        BLEU of the test sentences, and the page with the attention of the first.
    """
    torch.manual_seed(0)
    started = time.monotonic()
    texts = zip(*training, *test, strict=True)
    source, target = sides = [Vocabulary(mine, text, merges) for text in texts]
    ids = [(source.encode(a), target.encode(b)) for a, b in training]
    model = Translator(mine, len(source.tokens), len(target.tokens))
    weights = sum(each.numel() for each in model.parameters())
    print(f"{len(source.tokens)} and {len(target.tokens)} tokens, {weights:,} weights")
    optimizer = mine.optimizer.Adam(model.parameters(), lr=0.0)
    for step, (sources, targets) in enumerate(islice(batches(ids, batch_size), updates), start=1):
        optimizer.lr = 0.5 * mine.optimizer.noam_rate(step, D_MODEL, WARMUP_STEPS)
        logits = model(sources, targets[:, :-1])  # teacher forcing
        loss = mine.loss.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 or step == updates:
            print(f"update {step:5}  loss {loss:.3f}  {time.monotonic() - started:4.0f} s")
    return evaluate(mine, model.eval(), sides, test)


@torch.no_grad()
def evaluate(mine: Any, model: Translator, sides: Any, test: Pairs) -> tuple[float, Explorer]:
    """Translate the test sentences, score them, and draw the attention of the first."""
    source, target = sides
    longest = 3 * max(len(target.encode(reference)) for _, reference in test[:100])
    limits = {"start": BOS, "end_id": EOS, "max_length": longest}
    found = []
    for sentence, reference in test:
        hypotheses = Hypotheses(model, torch.tensor([source.encode(sentence)]))
        found.append(target.decode(mine.search.greedy_search(hypotheses, **limits)))
        if len(found) <= 5:
            print(f"{sentence}  {found[-1]}{'' if found[-1] == reference else f'  ({reference})'}")
    references = [reference.split() for _, reference in test]
    score = mine.bleu.bleu([text.split() for text in found], references)
    print(f"BLEU {score:.1f} of {len(test)} test sentences")
    first = torch.tensor([source.encode(test[0][0])])
    ids, _ = mine.search.beam_search(Hypotheses(model, first), beam_size=4, **limits)
    pair = first, torch.tensor([[BOS, *ids]])
    tokens = [[side.tokens[each] for each in row[0]] for side, row in zip(sides, pair, strict=True)]
    title = f"{test[0][0]} → {target.decode(ids)}"
    return score, explore(model, pair, tokens=(tokens[0], tokens[1]), title=title)
