"""How fast the translator trains: this library beside the loops that people write.

    make bench-training                      # or: python benchmarks/training.py
    python benchmarks/training.py --corpus toy --batch-tokens 600 --rounds 3

Everybody trains a model of the same size, 3 + 3 layers, width 256, 4 heads, feed-forward 1,024,
vocabularies of 4,000, dropout 0.1, label smoothing 0.1, on the same sentences of the corpus, about
4,000 target tokens an update. What counts is real target tokens a second; padding does not.

- ``torch``: ``nn.Transformer``, ``CrossEntropyLoss(label_smoothing=0.1)`` and Adam, in a plain loop
  over shuffled batches; ``torch, sorted``: the same, given the batches of ours;
- ``ours``; ``ours compiled``: by ``torch.compile``;
- ``x-transformers``: ``XTransformer``, which brings its loss, without smoothing; ``transformers``:
  Hugging Face's Marian, with the plain loop of torch; both on the batches of ours.

First, without dropout, torch's weights are given to ours, and the losses compared: they are equal.
"""

import argparse
import math
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parent.parent / "examples"))  # the translator

from contest import Prepare, draw, hold, run_alone, write_json
from marian import build_marian

THREADS = 2
PACKAGES = ("torch", "transformers", "x-transformers", "transformer-blocks")
LAYERS, WIDTH, HEADS, FEED_FORWARD, VOCABULARY = 3, 256, 4, 1024, 4000
UPDATES = 4


class Cell(NamedTuple):
    """Some updates over sentences that are the same for everybody.

    Attributes:
        corpus: Its name.
        batch_tokens: Most tokens of a batch of ours, on either side.
        dropout: Of all.
        tokens: Real target tokens.
    """

    corpus: str
    batch_tokens: int
    dropout: float
    tokens: int

    def __str__(self) -> str:
        """Name the row of the table."""
        return f"{self.corpus}, {self.batch_tokens} tokens, dropout {self.dropout}"


class Data(NamedTuple):
    """Batches of ours, and the same sentences in a random order.

    Attributes:
        ours: Sentences of like length together.
        shuffled: About as many target tokens in each.
    """

    ours: Any
    shuffled: Any

    @property
    def tokens(self) -> int:
        """Real target tokens of all."""
        return sum(len(example.target) + 1 for batch in self.ours for example in batch)


def load(corpus: str, data_dir: Path | None, batch_tokens: int, folder: Path) -> Data:
    """Choose a few of our batches at random, and shuffle their sentences for the others."""
    from common.tokenizer import Tokenizer
    from translation.batches import encode_pairs, make_batches
    from translation.corpus import load_corpus

    pairs = load_corpus(corpus, source_language="ja", target_language="en", data_dir=data_dir).train
    tokenizers = []
    for side in ("source", "target"):
        path = folder / f"{corpus}.{side}.model"
        if not path.is_file():
            texts = [getattr(pair, side) for pair in pairs]
            Tokenizer.train(texts, vocab_size=VOCABULARY, path=path)
        tokenizers.append(Tokenizer.load(path))
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


def settings_of(dropout: float) -> Any:
    """Describe the model of everybody."""
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


def make_ours(load_data: Callable[[int], Data], *, compiled: bool = False) -> Prepare:
    """Set up the trainer of the examples."""
    import torch

    from translation.learning import Learner

    torch.set_num_threads(THREADS)

    def prepare(cell: Cell) -> Callable[[], object]:
        torch.manual_seed(0)
        settings = settings_of(cell.dropout)
        model = settings.build(VOCABULARY, VOCABULARY).train()
        learner = Learner(model, settings, compiled=compiled)
        batches = load_data(cell.batch_tokens).ours

        def train() -> None:
            for batch in batches:
                learner.update([batch], 1e-4)

        return train

    return prepare


def build_torch(dropout: float) -> Any:
    """Build what a tutorial builds around ``nn.Transformer``."""
    import torch
    from torch import nn

    class Plain(nn.Module):
        """Embeddings, positions, ``nn.Transformer``, and the target's table as output."""

        positions: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.source = nn.Embedding(VOCABULARY, WIDTH)
            self.target = nn.Embedding(VOCABULARY, WIDTH)
            self.transformer = nn.Transformer(
                WIDTH, HEADS, LAYERS, LAYERS, FEED_FORWARD, dropout, batch_first=True
            )
            self.transformer.encoder.norm = self.transformer.decoder.norm = None  # as the paper's
            self.dropout = nn.Dropout(dropout)
            place = torch.arange(256)[:, None]
            waves = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
            table = torch.zeros(256, WIDTH)
            table[:, 0::2], table[:, 1::2] = torch.sin(place * waves), torch.cos(place * waves)
            self.register_buffer("positions", table)

        def embed(self, table: nn.Embedding, tokens: torch.Tensor) -> torch.Tensor:
            """Look tokens up and add their positions."""
            x = table(tokens) * math.sqrt(WIDTH) + self.positions[: tokens.shape[1]]
            return self.dropout(x)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            """Score the next tokens."""
            padding = source == 0
            future = nn.Transformer.generate_square_subsequent_mask(
                target.shape[1], dtype=torch.bool
            )
            hidden = self.transformer(
                self.embed(self.source, source),
                self.embed(self.target, target),
                tgt_mask=future,
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
) -> Prepare:
    """Set up a plain loop around a model, with torch's loss or the model's own."""
    import torch

    from translation.batches import collate

    torch.set_num_threads(THREADS)

    def prepare(cell: Cell) -> Callable[[], object]:
        torch.manual_seed(0)
        model = build(cell.dropout).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
        loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=0)
        data = load_data(cell.batch_tokens)
        batches = data.ours if in_order else data.shuffled

        def train() -> None:
            for examples in batches:
                batch = collate(examples)
                if own_loss:
                    loss = model(batch.source, batch.target)
                else:
                    scores = model(batch.source, batch.target)
                    loss = loss_of(scores.flatten(0, 1), batch.next_token.flatten())
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()

        return train

    return prepare


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
    """Build the encoder-decoder of x-transformers; it shifts the target and scores it itself."""
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
    """Give torch's weights to ours, and compare their losses without dropout."""
    import torch

    from translation.batches import collate
    from translation.learning import BatchLoss

    torch.manual_seed(0)
    plain, model = build_torch(0.0), settings_of(0.0).build(VOCABULARY, VOCABULARY)
    theirs, ours = plain.state_dict(), model.state_dict()
    for name in ours:
        ours[name].copy_(_find_weight(name, theirs))
    batch = collate(load_data(batch_tokens).ours[0])
    loss = BatchLoss(model, 0.1)(*batch) / len(batch.real)
    real = batch.next_token != 0
    scores = plain(batch.source, batch.target)[real]
    expected = torch.nn.functional.cross_entropy(
        scores, batch.next_token[real], label_smoothing=0.1
    )
    print(f"loss of one batch with the same weights: torch {expected:.6f}, ours {loss:.6f}\n")
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)


def _find_weight(name: str, theirs: dict[str, Any]) -> Any:
    """Find torch's weight for one of ours, by its name."""
    tables = {"source_embedding.weight": "source.weight", "output.weight": "target.weight"}
    tables["target_embedding.weight"] = "target.weight"
    if name in tables:
        return theirs[tables[name]]
    stack, _, layer, part, rest = name.split(".", 4)
    prefix = f"transformer.{stack}.layers.{layer}"
    attentions = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}
    if part in attentions:
        projection, kind = rest.split(".")
        if projection == "output_projection":
            return theirs[f"{prefix}.{attentions[part]}.out_proj.{kind}"]
        place = ["query_projection", "key_projection", "value_projection"].index(projection)
        return theirs[f"{prefix}.{attentions[part]}.in_proj_{kind}"].chunk(3)[place]
    if part == "feed_forward":
        linear, kind = rest.split(".")
        return theirs[f"{prefix}.linear{1 if linear == 'widen' else 2}.{kind}"]
    norms = ["self_attention_residual", "cross_attention_residual", "feed_forward_residual"]
    if stack == "encoder":
        norms.remove("cross_attention_residual")
    return theirs[f"{prefix}.norm{norms.index(part) + 1}.{rest.split('.')[-1]}"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Hold the contest that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", default="small_parallel_enja")
    parser.add_argument("--data-dir", type=Path, help="where the corpus lies")
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[4000])
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.1])
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--output", type=Path, help="write every round to this file, as JSON")
    parser.add_argument("--picture", type=Path, help="draw the speeds into this file")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    load_data = partial(_load, options.corpus, options.data_dir, options.folder)
    contestants: dict[str, Callable[[], Prepare]] = {
        "torch": partial(make_plain, load_data, build_torch, in_order=False),
        "torch, sorted": partial(make_plain, load_data, build_torch, in_order=True),
        "ours": partial(make_ours, load_data),
        "ours compiled": partial(make_ours, load_data, compiled=True),
        "x-transformers": partial(
            make_plain, load_data, build_x_transformer, in_order=True, own_loss=True
        ),
        "transformers": partial(make_plain, load_data, build_transformers, in_order=True),
    }
    names = options.only or [name for name in contestants if name != "ours compiled"]
    cells = []
    for size in options.batch_tokens:
        run_alone(compare_losses, load_data, size)
        tokens = load_data(size).tokens
        cells += [Cell(options.corpus, size, dropout, tokens) for dropout in options.dropout]
    results = hold({name: contestants[name] for name in names}, cells, rounds=options.rounds)
    print("\nreal target tokens a second")
    for cell in cells:
        rates = [
            f"{result.contestant} {cell.tokens / result.median:,.0f}"
            for result in results
            if result.cell is cell
        ]
        print(f"{cell!s}:  {'  '.join(rates)}")
    if options.output:
        write_json(options.output, results, PACKAGES)
    if options.picture:
        draw(options.picture, results)


def _load(corpus: str, data_dir: Path | None, folder: Path, batch_tokens: int) -> Data:
    return load(corpus, data_dir, batch_tokens, folder)


if __name__ == "__main__":
    main()
