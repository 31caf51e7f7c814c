"""Families: the published architectures by name, and the function that loads a model of one."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_blocks.explorer.packages import check_packages
from transformer_blocks.models import LanguageModel, Seq2Seq
from transformer_blocks.pretrained.bert import Bert, TextEncoder
from transformer_blocks.pretrained.config import Config, LoadError, read_json
from transformer_blocks.pretrained.deepseek_v3 import DeepseekV3
from transformer_blocks.pretrained.distilbert import DistilBert
from transformer_blocks.pretrained.family import Family
from transformer_blocks.pretrained.gemma3 import Gemma3
from transformer_blocks.pretrained.gpt2 import Gpt2
from transformer_blocks.pretrained.gpt_oss import GptOss
from transformer_blocks.pretrained.llama_family import Llama
from transformer_blocks.pretrained.marian import Marian
from transformer_blocks.pretrained.qwen3 import Qwen3
from transformer_blocks.pretrained.qwen3_moe import Qwen3Moe
from transformer_blocks.pretrained.roberta import Roberta
from transformer_blocks.pretrained.sentence_pieces import SentencePieces
from transformer_blocks.pretrained.t5 import T5
from transformer_blocks.pretrained.tokenizer import FILE, Tokenizer
from transformer_blocks.pretrained.weights import (
    INDEX,
    PICKLE,
    WEIGHTS,
    load_parameters,
    open_weights,
)
from transformer_blocks.variants.pooling import first_pool, last_pool, mean_pool

FAMILIES: dict[str, type[Family]] = {
    "bert": Bert,
    "distilbert": DistilBert,
    "roberta": Roberta,
    "marian": Marian,
    "t5": T5,
    "gpt2": Gpt2,
    "llama": Llama,
    "qwen3": Qwen3,
    "qwen3_moe": Qwen3Moe,
    "gpt_oss": GptOss,
    "deepseek_v3": DeepseekV3,
    "gemma3_text": Gemma3,
}
"""The architectures by ``model_type`` in ``config.json``."""

POOLINGS: dict[str, Callable[..., Tensor]] = {
    **dict.fromkeys(("cls", "cls_token"), first_pool),
    **dict.fromkeys(("mean", "mean_tokens"), mean_pool),
    "lasttoken": last_pool,
}
"""What makes one vector of a text, by its names in the files of sentence-transformers."""

CONFIGS = ("config.json", "generation_config.json", INDEX)
LAYERS = "[1-9]_*/config.json"  # what sentence-transformers computes after the encoder
FILES = (*CONFIGS, WEIGHTS, "model-*.safetensors", FILE, "source.spm", "vocab.json", LAYERS)
"""Patterns of the names of the files that are read; ``pytorch_model.bin`` only if need be."""


def from_pretrained(
    name: str | Path, *, revision: str | None = None, dtype: torch.dtype = torch.float32
) -> tuple[LanguageModel | Seq2Seq | TextEncoder, Tokenizer]:
    """Load a published model of BERT, DistilBERT, RoBERTa, Marian, T5, GPT-2, Llama, Qwen3 ...

    Args:
        name: A folder, or the name of a model on the Hugging Face hub, from which its files are
            downloaded once.
        revision: Branch, tag or commit on the hub; the main branch if not given.
        dtype: Data type of the parameters, in which the model computes.

    Returns:
        The model, composed of these blocks, in evaluation mode; and its tokenizer, whose
        ``end_ids`` end a text. BERT, DistilBERT and RoBERTa are encoders, which compute a hidden
        vector for each token, and whose ``pool`` makes one vector of those of a text; Marian and T5
        a :class:`~transformer_blocks.Seq2Seq`; all others a
        :class:`~transformer_blocks.LanguageModel`.

    Raises:
        LoadError: If there is no such model, a file is missing or damaged, a setting is not
            implemented, or the files do not belong together. It is a ``ValueError``.

    Example:
        >>> from transformer_blocks import LanguageModel, greedy_search
        >>> from transformer_blocks.pretrained import from_pretrained
        >>> model, tokenizer = from_pretrained("openai-community/gpt2")  # doctest: +SKIP
        >>> assert isinstance(model, LanguageModel)  # doctest: +SKIP
        >>> prompts = [tokenizer.encode("The Transformer is")]  # doctest: +SKIP
        >>> (found,) = model.generate(  # doctest: +SKIP
        ...     prompts, greedy_search, end_id=tokenizer.end_ids, max_length=40
        ... )
        >>> print(tokenizer.decode(found.tokens))  # doctest: +SKIP
    """
    check_packages("a published model", "safetensors", "tokenizers", extra="pretrained")
    folder = find_folder(str(name), revision)
    model, family, config = load_model(folder, dtype)
    tokenizer = SentencePieces(folder) if isinstance(family, Marian) else Tokenizer(folder)
    if isinstance(model, TextEncoder):
        model.pool = read_pooling(folder)
    tokenizer.max_length = family.max_length
    tokenizer.end_ids = read_end_ids(folder, config, family.end_id)
    rows, largest = config.size("vocab_size"), max((*tokenizer.ids, *tokenizer.end_ids))
    if largest >= rows:
        raise config.error("vocab_size", f"exceed all ids of the vocabulary, up to {largest}", rows)
    return model, tokenizer


def load_model(folder: Path, dtype: torch.dtype) -> tuple[Any, Family, Config]:
    """Load the model of a folder; return it with its family and its settings.

    Raises:
        LoadError: As for :func:`from_pretrained`.
    """
    path = folder / "config.json"
    config = Config(path, read_json(path))
    kind = config.choice("model_type", FAMILIES)
    with open_weights(folder) as tensors:
        family = kind(config, tensors.files)
        config.check_rest()
        build, origin, left_out = family.build, family.origin, family.left_out
        model = load_parameters(build, tensors, origin, left_out=left_out, dtype=dtype)
    return model, family, config


def build_model(settings: dict[str, Any]) -> Any:
    """Build the model of a ``config.json`` with initial weights, for example for a benchmark."""
    config = Config("config.json", settings)
    family = config.choice("model_type", FAMILIES)(config)
    config.check_rest()
    return family.build()


def read_pooling(folder: Path) -> Callable[..., Tensor]:
    """Read what makes one vector of a text, if sentence-transformers saved the model.

    Raises:
        LoadError: If it is another pooling, or another layer follows.
    """
    pool = POOLINGS["mean"]
    for path in sorted(folder.glob(LAYERS)):
        if not path.parent.name.endswith("_Pooling"):
            raise LoadError(f"{path.parent} holds a layer that is not implemented here")
        config = Config(path, read_json(path))
        older = {name.partition("mode_")[2]: on for name, on in config.values.items() if on is True}
        found = config.get("pooling_mode", "+".join(mode for mode in older if mode))
        pool = Config(path, {"pooling_mode": found}).choice("pooling_mode", POOLINGS)
    return pool


def read_end_ids(folder: Path, config: Config, default: int | None) -> tuple[int, ...]:
    """Read the ids of the tokens that end a text, from ``generation_config.json`` if it has any.

    Raises:
        LoadError: If they are not token ids.
    """
    path = folder / "generation_config.json"
    generation = Config(path, read_json(path)) if path.exists() else config
    config = config if generation.get("eos_token_id") is None else generation
    found = config.get("eos_token_id", default if "eos_token_id" not in config.values else None)
    ids: Sequence[Any] = [] if found is None else found if isinstance(found, list) else [found]
    if not all(type(each) is int and each >= 0 for each in ids):
        raise config.error("eos_token_id", "be a token id or a list", found)
    return tuple(ids)


def find_folder(name: str, revision: str | None = None) -> Path:
    """Return a model's folder, which is downloaded if the name is one of the Hugging Face hub.

    Raises:
        LoadError: If there is no such folder and it cannot be downloaded, or if a file is a pointer
            of git-lfs or a web page.
    """
    folder = Path(name)
    if not folder.is_dir():
        folder = _download(name, revision, FILES)
        if not any(folder.glob("*.safetensors")):
            folder = _download(name, revision, (PICKLE,))
    for pattern in (*FILES, PICKLE):
        for path in folder.glob(pattern):
            check_content(path)
    return folder


def _download(name: str, revision: str | None, files: Sequence[str]) -> Path:
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith(".") or Path(name).exists():
        raise LoadError(f"{name} is neither a folder nor the name of a model, such as owner/model")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise LoadError(
            f"there is no folder {name}; to download a model of that name, install "
            'huggingface_hub: pip install "transformer-blocks[pretrained]"'
        ) from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except Exception as error:  # network, hub and disk have dozens of classes of errors
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise LoadError(
            f"there is no folder {name}, and no model of that name could be downloaded: {reason}"
        ) from error


def check_content(path: Path) -> None:
    """Check that a path is a file, and neither a pointer of git-lfs nor a web page.

    Raises:
        LoadError: If it is not.
    """
    if not path.is_file():
        raise LoadError(f"{path} is not a file")
    try:
        with path.open("rb") as file:
            beginning = file.read(64).lstrip().lower()
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}") from error
    if beginning.startswith(b"version https://git-lfs"):
        raise LoadError(f"{path} is a pointer of git-lfs, not the file: run git lfs pull")
    if beginning.startswith((b"<!doctype html", b"<html")):
        raise LoadError(f"{path} is a web page, not the file: download it again")
