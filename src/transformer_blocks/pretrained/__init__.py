"""Pretrained: language models with the parts and sizes of published families.

GPT-2 and the paper's model have the same parts in other sizes. Since LLaMA ("LLaMA: Open and
Efficient Foundation Language Models", Touvron et al. 2023, https://arxiv.org/abs/2302.13971,
section 2.2), most published language models have others, and share them: rotary positions in place
of added ones, RMSNorm before each sublayer, gated feed-forward networks, few heads of keys and
values, and no biases. :func:`build_llama` composes them from sizes. Options make its relatives:
normalised queries and keys (Qwen3), windows (Gemma 3), mixtures of experts (Qwen3-MoE).

The programs in ``examples/pretrained`` read published weights into such models.

Next: :mod:`transformer_blocks.inspection`, which shows what a model attends to.
"""

from transformer_blocks.pretrained.llama import build_llama

__all__ = ["build_llama"]
