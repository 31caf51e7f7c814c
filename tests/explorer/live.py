"""What tests of pages with a model share: the model on the page, and torch with its weights."""

import io
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tests.explorer.page import weights
from tests.explorer.page_script import Script
from torch import nn

from transformer_blocks import PreNorm, build_seq2seq
from transformer_blocks.explorer import AttentionMaps, Explorer
from transformer_blocks.explorer.live import LiveModel, quantize
from transformer_blocks.models import Seq2Seq, TokenModel

END = 3
SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 2, "d_ff": 24}
TEXTS = [
    *("the cat sleeps", "the dog runs.", "a cat and a dog", "猫が眠る。", "犬が走る。"),
    *("ＡＢＣ　１２３ ｶﾞｷﾞ", "cafe\u0301 ﬁ ½ ㌔ ㍿", "한국어", "e\u0301\u0323\u0327x"),
]


def train(kind: str, **options: Any) -> bytes:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 3),
        model_writer=model,
        model_type=kind,
        **{"vocab_size": 95, "hard_vocab_limit": False, "num_threads": 1, "minloglevel": 2}
        | options,
    )
    return model.getvalue()


def with_other_weights(model: Any) -> Any:
    """Change weights that are zeros or ones, so that none of them is without effect."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model.eval()


def translator_of_texts() -> tuple[Seq2Seq, bytes]:
    """Build a translator of a small tokenizer, which it also returns."""
    content = train("bpe")
    size = SentencePieceProcessor(model_proto=content).vocab_size()
    torch.manual_seed(0)
    model = build_seq2seq(size, size, **SIZES, residual=PreNorm, begin_id=1).eval()
    model.output = nn.Linear(16, size)
    return model, content


def round_weights(model: nn.Module) -> None:
    """Give a model the rounded weights that its page has. Rounding twice may round further."""
    with torch.no_grad():
        for weight in model.parameters():  # each of them once
            if weight.dim() == 2:
                integers, steps = quantize(weight)
                weight.copy_(integers * steps[:, None])
            else:
                weight.copy_(weight.bfloat16())


class LivePage(Script):
    """A page with a model, which has the same rounded weights afterwards.

    On the page, ``model`` is it.
    """

    def __init__(self, model: TokenModel, tokenizers: Any = (), **options: Any) -> None:
        live = LiveModel(model, tokenizers, **{"end_id": END, "max_length": 40} | options)
        maps = AttentionMaps("Self-attention", weights(1, 1, 2, 2), ["a", "b"])
        super().__init__(Explorer([maps], live=live).html)
        self("(liveModel.then(model => { globalThis.model = model; }), 0)")
        round_weights(model)
        self.begin = "seq2seq" if isinstance(model, Seq2Seq) else "languageModel"

    def logits(self, prompt: list[int], tokens: list[int], off: Any = (), mask: str = "") -> Any:
        """Compute the logits after the last of some tokens, which are read one by one."""
        begun = f"finish({self.begin}(model, {prompt}, newRun({{off: {list(off)}}}){mask}))"
        step = "(logits, token) => finish(steps.step([token]))"
        return torch.tensor(self(f"(steps => {tokens}.reduce({step}, null))({begun})"))
