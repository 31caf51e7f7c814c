"""Packages: importing this file checks that all packages of the programs are installed."""

from transformer_blocks.explorer.packages import check_packages

PACKAGES = "filelock", "matplotlib", "pooch", "sacrebleu", "safetensors", "sentencepiece"
check_packages("this program", *PACKAGES, extra="examples")
