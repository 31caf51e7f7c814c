"""The corpus and the model of chapter 0, for the chapters that use them again."""

from itertools import product

import torch
from torch import nn

from transformer_blocks import (
    EncoderDecoder,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
)

beings = {"猫": "cat", "犬": "dog", "鳥": "bird", "子供": "child"}
things = {"魚": "fish", "肉": "meat", "パン": "bread", "米": "rice"}
verbs = {"食べ": "eats", "買い": "buys", "見": "sees"}
pairs = [
    (
        [being, "は", thing, "を", verb, "ます", "。"],
        ["the", beings[being], verbs[verb], things[thing], "."],
    )
    for being, thing, verb in product(beings, things, verbs)
]
ours = ["猫", "は", "魚", "を", "食べ", "ます", "。"]
torch.manual_seed(0)
shuffled = [pairs[i] for i in torch.randperm(len(pairs)).tolist()]
shuffled.sort(key=lambda pair: pair[0] != ours)  # ours first
held_out, training = shuffled[:12], shuffled[12:]

BOS, EOS = 0, 1
source_words = sorted({word for pair in pairs for word in pair[0]})
target_words = sorted({word for pair in pairs for word in pair[1]})
target_words = ["<bos>", "<eos>", *target_words]


def to_ids(pairs):
    """Return the token ids: sources (B, 7) and targets (B, 7)."""
    sources = [
        [source_words.index(w) for w in pair[0]] for pair in pairs
    ]
    targets = [
        [target_words.index(w) for w in pair[1]] for pair in pairs
    ]
    return torch.tensor(sources), torch.tensor(
        [[BOS, *ids, EOS] for ids in targets]
    )


SIZES = {"num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 64}


class Translator(nn.Module):
    """Embeddings, encoder, decoder, output layer."""

    def __init__(self):
        super().__init__()
        self.source_embedding = TokenEmbedding(len(source_words), 32)
        self.target_embedding = TokenEmbedding(len(target_words), 32)
        self.positions = SinusoidalPositionalEncoding(32)
        self.blocks = EncoderDecoder(
            build_encoder(**SIZES), build_decoder(**SIZES)
        )
        self.output = nn.Linear(32, len(target_words))

    def embed_source(self, source):
        return self.positions(self.source_embedding(source))

    def decode(self, memory, target):
        """Return logits of the next tokens: (B, L, vocabulary)."""
        y = self.positions(self.target_embedding(target))
        return self.output(self.blocks.decoder(y, memory))

    def forward(self, source, target):
        memory = self.blocks.encoder(self.embed_source(source))
        return self.decode(memory, target)
