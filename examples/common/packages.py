"""Packages: importing this file checks that all packages of the programs are installed."""

from transformer_blocks.explorer.packages import check_packages

check_packages(
    "this program",
    "matplotlib",
    "sacrebleu",
    "safetensors",
    "sentencepiece",
    "tqdm",
    extra="examples",
)
