"""Make the page that chapter 18 shows in a frame, and the translator of the home page.

    python docs/figures/explorer_page.py

trains the translator of chapter 18, and writes its attention maps for the sentence of the book to
``docs/_static/explorer_book.html``. It trains the translator of chapter 0, too, and writes it to
``docs/_static/translator_model.js`` with the forward pass and the search of the explorer's page;
``docs/_static/widgets/translator.js`` runs it.
"""

import json
import re
import sys
from pathlib import Path

import torch

DOCS = Path(__file__).parent.parent
sys.path.append(str(DOCS / "_ext"))

from cells import definitions  # noqa: E402
from transformer_blocks import causal_mask, record_attention  # noqa: E402
from transformer_blocks.explorer import (  # noqa: E402
    Arithmetic,
    AttentionMaps,
    DecodingSteps,
    Explorer,
)
from transformer_blocks.explorer.live import LiveModel, serialize_live  # noqa: E402
from transformer_blocks.explorer.page import read_script  # noqa: E402
from transformer_blocks.inspection import record_projections  # noqa: E402

PAGE = DOCS / "_static" / "explorer_book.html"
TRANSLATOR = DOCS / "_static" / "translator_model.js"
SHOWN = 4  # tokens with their probabilities, in each decoding step


def save_page(path: Path) -> None:
    """Write the page."""
    torch.set_num_threads(1)
    chapter = definitions("18_look_inside")
    model, ours, words = chapter["model"], chapter["ours"], chapter["target_words"]
    source, target = chapter["to_ids"](chapter["held_out"][:1])
    with record_attention(model) as recorded, record_projections(model) as heads, torch.no_grad():
        probabilities = model(source, target[:, :-1])[0].softmax(dim=-1)  # (L, vocabulary)
    best, ids = probabilities.topk(SHOWN)
    candidates = [
        [(words[token], p) for p, token in zip(*row, strict=True)]
        for row in zip(best.tolist(), ids.tolist(), strict=True)
    ]
    written = [words[token] for token in probabilities.argmax(dim=-1)]
    read = [words[token] for token in target[0, :-1]]
    mask = causal_mask(len(read))
    encoder, decoder, cross = (calls[0] for calls in recorded.values())
    of_encoder, of_decoder, of_cross = (
        Arithmetic.of(heads[name][:1], calls[0]) for name, calls in recorded.items()
    )
    maps = [
        AttentionMaps("Encoder self-attention", encoder, ours, arithmetic=of_encoder),
        AttentionMaps(
            "Decoder self-attention",
            decoder,
            read,
            mask=mask,
            is_decoding=True,
            arithmetic=of_decoder,
        ),
        AttentionMaps(
            "Cross-attention", cross, written, ours, is_decoding=True, arithmetic=of_cross
        ),
    ]
    title = f"{''.join(ours)} → {' '.join(written[:-1])}"
    Explorer(maps, title, DecodingSteps(written, candidates), docs="../").save(path)


def translator_script() -> str:
    """Train chapter 0's translator, and return a script with it."""
    chapter = definitions("00_map", until="library = Seq2Seq(")
    live = LiveModel(chapter["library"], [], end_id=chapter["EOS"], max_length=9)
    content = serialize_live(live) | {
        "sourceWords": chapter["source_words"],
        "targetWords": chapter["target_words"],
        "choices": [chapter[name] for name in ("beings", "things", "verbs")],
    }
    scripts = [read_script(name) for name in ("blocks", "search")]
    [codec] = re.findall(
        r"(?ms)^const ALPHABET.*?^async function inflate.*?^}$", read_script("data")
    )
    parts = "{data, loadModel, seq2seq, newRun, finish, generate, mostProbable, headPart}"
    data = f"const data = {json.dumps(content, ensure_ascii=False)};"
    body = "\n".join([codec, *scripts, data, f"return {parts};"])
    return f"const translator = (() => {{\n{body}\n}})();\n"


def main() -> None:
    """Write both."""
    save_page(PAGE)
    TRANSLATOR.write_text(translator_script(), encoding="utf-8")


if __name__ == "__main__":
    main()
