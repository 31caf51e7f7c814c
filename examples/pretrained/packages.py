"""Packages: importing this file checks that all packages of these programs are installed."""

import common.packages  # noqa: F401
from transformer_blocks.explorer.packages import check_packages

check_packages("this program", "tokenizers", extra="pretrained")
