"""Training speed of the translator, compared with plain training loops of other libraries.

    make bench-training                      # or: python benchmarks/training.py
    python benchmarks/training.py --corpus toy --batch-tokens 600 --rounds 3

All implementations train a model of the same size (3 + 3 layers, d_model 256, 4 heads, d_ff 1,024,
vocabularies of 4,000, dropout 0.1, label smoothing 0.1) on the same sentences of the corpus, with
about 4,000 target tokens per update. The result is the number of target tokens per second, without
padding.

- ``torch``: ``nn.Transformer``, ``CrossEntropyLoss(label_smoothing=0.1)`` and Adam, in a plain loop
  over shuffled batches; ``torch, sorted``: the same with the batches of ``ours``, which group
  sentences by length;
- ``ours``;
- ``x-transformers``: ``XTransformer`` with its own loss, which has no label smoothing;
  ``transformers``: Hugging Face's Marian in the same plain loop; both with the batches of ``ours``.

Before that, torch's weights are copied into ours, and both compute the same loss without dropout.
"""

import math
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from harness import SetUp, new_parser, run, run_in_process, show
from marian import build_marian

THREADS = 2
LAYERS, WIDTH, HEADS, FEED_FORWARD, VOCABULARY = 3, 256, 4, 1024, 4000
UPDATES = 4


class Case(NamedTuple):
    """Some updates over sentences that are equal for all implementations.

    Attributes:
        corpus: Name of the corpus.
        batch_tokens: Largest number of tokens in a batch of ``ours``, for source and for target.
        dropout: Dropout probability of all models.
        tokens: Number of target tokens in all updates, without padding.
    """

    corpus: str
    batch_tokens: int
    dropout: float
    tokens: int

    def __str__(self) -> str:
        """Return the name of the table row."""
        return f"{self.corpus}, {self.batch_tokens} tokens, dropout {self.dropout}"


class Data(NamedTuple):
    """Batches of ``ours``, and the same sentences in random order.

    Attributes:
        ours: Batches of sentences with similar lengths.
        shuffled: Batches of shuffled sentences, each with about as many target tokens.
    """

    ours: Any
    shuffled: Any

    @property
    def tokens(self) -> int:
        """Number of target tokens in all batches, without padding."""
        return sum(len(example.target) + 1 for batch in self.ours for example in batch)


def load(corpus: str, data_dir: Path | None, folder: Path, batch_tokens: int) -> Data:
    """Choose a few of our batches at random, and shuffle their sentences for the plain loop."""
    from common.tokenizer import Tokenizer
    from translation.batches import encode_pairs, make_batches
    from translation.corpus import load_corpus
    from translation.pairs import Languages

    pairs = load_corpus(Languages(corpus), data_dir=data_dir).train
    tokenizers = []
    for side in ("source", "target"):
        path = folder / f"{corpus}.{side}.model"
        if not path.is_file():
            texts = (getattr(pair, side) for pair in pairs)
            Tokenizer.train(texts, vocab_size=VOCABULARY, path=path)
        tokenizers.append(Tokenizer(path.read_bytes()))
    examples = encode_pairs(pairs, *tokenizers, max_length=256)
    ours = make_batches(examples, batch_tokens=batch_tokens, seed=0, epoch=0)[:UPDATES]
    sentences = [example for batch in ours for example in batch]
    random.Random(0).shuffle(sentences)
    shuffled: list[list[Any]] = [[]]
    share = Data(ours, []).tokens / len(ours)
    for sentence in sentences:
        shuffled[-1].append(sentence)
        done = sum(len(example.target) + 1 for batch in shuffled for example in batch)
        if done >= share * len(shuffled) and len(shuffled) < len(ours):
            shuffled.append([])
    return Data(ours, shuffled)


def config_of(dropout: float) -> Any:
    """Return the configuration of the model that all implementations train."""
    from translation.presets import SMALL

    return replace(
        SMALL,
        num_layers=LAYERS,
        d_model=WIDTH,
        num_heads=HEADS,
        d_ff=FEED_FORWARD,
        dropout=dropout,
        max_length=256,
        pre_norm=False,
    )


def make_ours(load_data: Callable[[int], Data]) -> SetUp:
    """Set up the training loop of the examples."""
    import torch

    from common.training import Learner
    from translation.training import TranslationLoss

    torch.set_num_threads(THREADS)

    def set_up(case: Case) -> Callable[[], object]:
        torch.manual_seed(0)
        config = config_of(case.dropout)
        model = config.build(VOCABULARY, VOCABULARY).train()
        loss = TranslationLoss(config.label_smoothing)
        learner = Learner(model, loss, average=config.average)
        batches = load_data(case.batch_tokens).ours

        def train() -> None:
            for batch in batches:
                learner.update([batch], 1e-4)

        return train

    return set_up


def build_torch(dropout: float) -> Any:
    """Build the model that tutorials build around ``nn.Transformer``."""
    import torch
    from torch import nn

    class Plain(nn.Module):
        """Embeddings, positional encoding, ``nn.Transformer``, and tied output weights."""

        positions: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.source = nn.Embedding(VOCABULARY, WIDTH)
            self.target = nn.Embedding(VOCABULARY, WIDTH)
            self.transformer = nn.Transformer(
                WIDTH, HEADS, LAYERS, LAYERS, FEED_FORWARD, dropout, batch_first=True
            )
            self.transformer.encoder.norm = self.transformer.decoder.norm = None  # as in the paper
            self.dropout = nn.Dropout(dropout)
            positions = torch.arange(256)[:, None]
            frequencies = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
            table = torch.zeros(256, WIDTH)
            angles = positions * frequencies
            table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
            self.register_buffer("positions", table)

        def embed(self, table: nn.Embedding, tokens: torch.Tensor) -> torch.Tensor:
            """Embed tokens and add the positional encoding."""
            x = table(tokens) * math.sqrt(WIDTH) + self.positions[: tokens.shape[1]]
            return self.dropout(x)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            """Compute the logits of the next tokens."""
            padding = source == 0
            causal = nn.Transformer.generate_square_subsequent_mask(
                target.shape[1], dtype=torch.bool
            )
            hidden = self.transformer(
                self.embed(self.source, source),
                self.embed(self.target, target),
                tgt_mask=causal,
                src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
                tgt_is_causal=True,
            )
            return hidden @ self.target.weight.T

    return Plain()


def make_plain(
    load_data: Callable[[int], Data],
    build: Callable[[float], Any],
    *,
    in_order: bool,
    own_loss: bool = False,
) -> SetUp:
    """Set up a plain loop around a model, with torch's loss or the model's own."""
    import torch

    from translation.batches import collate

    torch.set_num_threads(THREADS)

    def set_up(case: Case) -> Callable[[], object]:
        torch.manual_seed(0)
        model = build(case.dropout).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
        loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=0)
        data = load_data(case.batch_tokens)
        batches = data.ours if in_order else data.shuffled

        def train() -> None:
            for examples in batches:
                batch = collate(examples)
                if own_loss:
                    loss = model(batch.source, batch.target)
                else:
                    logits = model(batch.source, batch.target)
                    loss = loss_of(logits.flatten(0, 1), batch.next_token.flatten())
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()

        return train

    return set_up


def build_transformers(dropout: float) -> Any:
    """Build Hugging Face's Marian."""
    model = build_marian(
        vocabulary=VOCABULARY,
        d_model=WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        d_ff=FEED_FORWARD,
        padding=0,
        start=2,
        end=3,
        max_position_embeddings=256,
        dropout=dropout,
        attention_dropout=dropout,
        activation_dropout=dropout,
        use_cache=False,
    )
    forward = model.forward
    model.forward = lambda source, target: (
        forward(
            input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target
        ).logits
    )
    return model


def build_x_transformer(dropout: float) -> Any:
    """Build the encoder-decoder of x-transformers, which computes the loss itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import x_transformers

    sides: dict[str, Any] = {}
    for side in ("enc", "dec"):
        sides |= {
            f"{side}_num_tokens": VOCABULARY,
            f"{side}_depth": LAYERS,
            f"{side}_heads": HEADS,
            f"{side}_max_seq_len": 256,
            f"{side}_attn_flash": True,
            f"{side}_ff_dropout": dropout,
            f"{side}_emb_dropout": dropout,
        }
    model: Any = x_transformers.XTransformer(dim=WIDTH, pad_value=0, ignore_index=0, **sides)
    forward = model.forward
    model.forward = lambda source, target: forward(source, target, mask=source != 0)
    return model


def compare_losses(load_data: Callable[[int], Data], batch_tokens: int) -> None:
    """Copy torch's weights into ours, and compare the losses without dropout."""
    import torch

    from transformer_blocks.interop import from_torch
    from translation.batches import collate
    from translation.training import TranslationLoss

    torch.manual_seed(0)
    plain, model = build_torch(0.0), config_of(0.0).build(VOCABULARY, VOCABULARY)
    for stack in ("encoder", "decoder"):
        converted = from_torch(getattr(plain.transformer, stack))
        getattr(model, stack).load_state_dict(converted.state_dict())
    model.source_embedding.load_state_dict(plain.source.state_dict())
    model.target_embedding.load_state_dict(plain.target.state_dict())
    batch = collate(load_data(batch_tokens).ours[0])
    loss = TranslationLoss(0.1).loss(model, *batch) / len(batch.real)
    is_token = batch.next_token != 0
    logits = plain(batch.source, batch.target)[is_token]
    expected = torch.nn.functional.cross_entropy(
        logits, batch.next_token[is_token], label_smoothing=0.1
    )
    print(f"loss of one batch with the same weights: torch {expected:.6f}, ours {loss:.6f}\n")
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison that the command-line options select."""
    names = ("torch", "torch, sorted", "ours", "x-transformers", "transformers")
    parser = new_parser(__doc__, names, rounds=5)
    parser.add_argument("--corpus", default="small_parallel_enja")
    parser.add_argument("--data-dir", type=Path, help="folder of the corpus")
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[4000])
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.1])
    parser.add_argument("--folder", type=Path, default=Path("runs/benchmark"))
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    load_data = partial(load, options.corpus, options.data_dir, options.folder)
    plain = partial(make_plain, load_data)
    implementations: dict[str, Callable[[], SetUp]] = {
        "torch": partial(plain, build_torch, in_order=False),
        "torch, sorted": partial(plain, build_torch, in_order=True),
        "ours": partial(make_ours, load_data),
        "x-transformers": partial(plain, build_x_transformer, in_order=True, own_loss=True),
        "transformers": partial(plain, build_transformers, in_order=True),
    }
    cases = []
    for size in options.batch_tokens:
        run_in_process(compare_losses, load_data, size)
        tokens = load_data(size).tokens
        cases += [Case(options.corpus, size, dropout, tokens) for dropout in options.dropout]
    results = run(options, implementations, cases)
    title = "target tokens per second, without padding"
    show(title, results, lambda case, seconds: f"{case.tokens / seconds:,.0f}")


if __name__ == "__main__":
    main()
