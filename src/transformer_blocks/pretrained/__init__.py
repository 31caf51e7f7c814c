"""Pretrained: published models, composed of these blocks, and the parts that they share.

GPT-2 and the paper's model have the same parts in other sizes. Since LLaMA ("LLaMA: Open and
Efficient Foundation Language Models", Touvron et al. 2023, https://arxiv.org/abs/2302.13971,
section 2.2), most published language models have others, and share them: rotary positions in place
of added ones, RMSNorm before each sublayer, gated feed-forward networks, few heads of keys and
values, and no biases. :func:`build_llama` composes them from sizes. Options make its relatives:
normalised queries and keys (Qwen3), windows (Gemma 3), mixtures of experts (Qwen3-MoE).

:func:`from_pretrained` loads a published model with its tokenizer: BERT, DistilBERT, RoBERTa,
Marian, T5, GPT-2, Llama, Qwen3, Qwen3-MoE, gpt-oss, DeepSeek-V3 and Gemma 3. It needs the packages
of the extra ``pretrained``. ``examples/pretrained.py`` is a program that uses it.

Next: :mod:`transformer_blocks.inspection`, which shows what a model attends to.
"""

from transformer_blocks.pretrained.families import from_pretrained
from transformer_blocks.pretrained.llama import build_llama

__all__ = ["build_llama", "from_pretrained"]
