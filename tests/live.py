"""What tests of pages with a model share: the model on the page, and torch with its weights."""

from typing import Any

import torch
from tests.page import weights
from tests.page_script import Script
from torch import nn

from transformer_blocks.explorer import AttentionMaps, Explorer
from transformer_blocks.explorer.live import LiveModel, quantize
from transformer_blocks.models import Seq2Seq, TokenModel

END = 3


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

    def __init__(self, model: TokenModel, tokenizers: Any = (), language: str = "") -> None:
        live = LiveModel(model, tokenizers, end_id=END, max_length=40, language=language)
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
