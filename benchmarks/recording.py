"""The cost of recording attention weights, in models of this and of other libraries.

    python benchmarks/recording.py
    python benchmarks/recording.py --rounds 11

Each model has 12 layers with 12 heads and d_model = 768, as BERT base and GPT-2 have, and is run
without gradients. "recorded" is the same forward pass inside ``record_attention``. "returned" is
the only way in which Hugging Face's models return weights: with ``attn_implementation="eager"`` and
``output_attentions=True``. The last column is the memory of the recorded weights.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch

from harness import SetUp, new_parser, run

LAYERS, HEADS, WIDTH, INNER, VOCABULARY = 12, 12, 768, 3072, 1000


class Case(NamedTuple):
    """One forward pass.

    Attributes:
        model: Name of the model.
        batch: Batch size B.
        length: Length of the sequences L.
    """

    model: str
    batch: int
    length: int

    def __str__(self) -> str:
        return f"{self.model}, {self.batch} x {self.length}"

    @property
    def megabytes(self) -> float:
        """The size of all attention weights in float32."""
        return LAYERS * self.batch * HEADS * self.length**2 * 4 / 1e6


MODELS = ("ours", "torch.nn", "BERT", "GPT-2")
CASES = [Case(model, *shape) for model in MODELS for shape in ((1, 32), (8, 128), (1, 512))]


def build(name: str, *, implementation: str = "sdpa") -> Any:
    """Build a model with random weights, in evaluation mode."""
    torch.manual_seed(0)
    if name == "ours":
        from transformer_blocks import build_encoder

        return build_encoder(
            num_layers=LAYERS, d_model=WIDTH, num_heads=HEADS, d_ff=INNER, dropout=0.0
        ).eval()
    if name == "torch.nn":
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True)
        return torch.nn.TransformerEncoder(layer, LAYERS).eval()
    import transformers

    classes: dict[str, Any] = {
        "BERT": (transformers.BertModel, transformers.BertConfig),
        "GPT-2": (transformers.GPT2Model, transformers.GPT2Config),
    }
    model, config = classes[name]
    settings = config(vocab_size=VOCABULARY)
    settings._attn_implementation = implementation
    return model(settings).eval()


def make(way: str) -> SetUp:
    """Return the set-up of one way to run the models: plain, recorded or returned."""
    from transformer_blocks import record_attention

    torch.set_grad_enabled(False)
    implementation = "eager" if way == "returned" else "sdpa"
    models: dict[str, Any] = {}

    def set_up(case: Case) -> Callable[[], object] | None:
        is_theirs = case.model in ("BERT", "GPT-2")
        if way == "returned" and not is_theirs:
            return None
        if case.model not in models:
            models.clear()
            models[case.model] = build(case.model, implementation=implementation)
        model, shape = models[case.model], (case.batch, case.length)
        x = torch.randint(VOCABULARY, shape) if is_theirs else torch.randn(*shape, WIDTH)
        options = {"output_attentions": True} if way == "returned" else {}

        def run() -> object:
            with record_attention(model) if way == "recorded" else nullcontext():
                return model(x, **options)

        return run

    return set_up


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    ways = {way: partial(make, way) for way in ("plain", "recorded", "returned")}
    run(new_parser(__doc__, ways).parse_args(arguments), ways, CASES)
    for case in CASES:
        print(f"{case}: {case.megabytes:,.0f} MB of weights")


if __name__ == "__main__":
    main()
