"""The files of byte-level tokenizers, as GPT-2 and Llama 3 have them: what the page needs."""

import json
from typing import Any

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The words within which byte pairs are merged, as their authors wrote them."""

LETTERS = {chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 324))}
"""The characters as which bytes are written."""

IN_JAVASCRIPT = {
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)": "'(?:[sSſ]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])",
    r"\s": r"\p{White_Space}",  # a space in JavaScript is also a byte order mark, but not U+0085
    r"\S": r"\P{White_Space}",
}


def read_byte_pairs(content: bytes, size: int) -> dict[str, Any]:
    """Read the ``tokenizer.json`` of a byte-level tokenizer.

    Args:
        content: The file, as the library ``tokenizers`` writes it.
        size: Number of token ids of the model; those that the tokenizer lacks are special tokens.

    Returns:
        What ``tokenizer.js`` reads.

    Raises:
        ValueError: If it is another file, or needs what ``tokenizer.js`` does not compute.
    """
    try:
        file = json.loads(content)
        model, added, splits = file["model"], file["added_tokens"], file["pre_tokenizer"]
        splits = splits.get("pretokenizers", [splits])
        last = splits.pop()
        first = {"pattern": {"Regex": GPT2}} if last["use_regex"] else splits.pop()
        pattern = first["pattern"]["Regex"]
        special = {each["id"]: each["content"] for each in added}
        tokens = {id: token for token, id in model["vocab"].items()} | special
        before = _read_before(file["post_processor"])
        merges = [" ".join(each) if isinstance(each, list) else each for each in model["merges"]]
        options = [model.get(each) for each in ("continuing_subword_prefix", "end_of_word_suffix")]
        is_known = (
            (model["type"], last["type"], file["decoder"]["type"]) == ("BPE", *["ByteLevel"] * 2)
            and pattern in (GPT2, LLAMA3)
            and first.get("behavior", "Isolated") == "Isolated"
            and model["vocab"].keys() >= LETTERS
            and all(each["special"] for each in added)
            and not any((*splits, *options, model.get("dropout"), file["normalizer"]))
            and not (last["add_prefix_space"] or first.get("invert"))
        )
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(
            "tokenizers must be a tokenizer.json of byte pairs, got another"
        ) from error
    if not is_known:
        raise ValueError(
            "tokenizers must be byte-level byte pairs with the words of GPT-2 or Llama 3, without "
            "normalisation, a prefix and added tokens that are not special, got another kind"
        )
    for each, other in IN_JAVASCRIPT.items():
        pattern = pattern.replace(each, other)
    ids = range(max(size, max(tokens) + 1))
    return {
        "tokens": [tokens.get(id, f"<{id}>") for id in ids],
        "special": [id for id in ids if id in special or id not in tokens],
        "merges": merges,
        "pattern": pattern,
        "before": before,
        "isWhole": bool(model.get("ignore_merges")),
    }


def _read_before(processor: Any) -> list[int]:
    """Return the ids of the special tokens before a text.

    Raises:
        KeyError: If there are others after it, or it is processed otherwise.
    """
    processors = processor.get("processors", [processor]) if processor else []
    before: list[int] = []
    for each in processors:
        if each["type"] != "ByteLevel":  # which concerns the places of tokens in the text
            *marks, text = each["single"]
            text["Sequence"]  # raises KeyError
            for mark in marks:
                before += each["special_tokens"][mark["SpecialToken"]["id"]]["ids"]
    return before
