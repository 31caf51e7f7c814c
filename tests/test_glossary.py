"""The glossary: complete, in three languages, and linked to chapters and code that exist."""

import importlib
import importlib.util
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cells import chapter_files

ROOT = Path(__file__).parent.parent
CONTENT = tomllib.loads((ROOT / "docs" / "glossary.toml").read_text("utf-8"))
TERMS: list[dict[str, Any]] = CONTENT["term"]

# What a reader of other articles searches for.
ALIASES = """
    seq2seq, RoPE, 注意機構, 어텐션, SimpleAttention, Source-Target-Attention, MASK, autoregressive,
    teacher forcing, overfitting, quadratic complexity, KV cache, BPE, PAD, BOS, EOS, BOS/EOS, hs,
    encoder states, temperature, decisive, greedy, hidden_dim, depth, head_num, look-ahead mask,
    Casual mask, softmax, logits, entropy, Jacobian, one-hot, SwiGLU, RMSNorm, GQA, ALiBi, BLEU,
    chrF, perplexity, hypothesis, dropout_rate, x_enc, x_dec, y_dec, LSTM, RNN, warm-up, d_model,
    d_ff, d_k, PE, FFN, LayerNorm, Add & Norm, nucleus, 過学習, 자기 회귀
"""
# The terms that the project's texts use.
USED = """
    attention, to attend to, query, key, value, attention scores, attention weights,
    scaled dot-product attention, self-attention, cross-attention, attention head, mask,
    masked position, padding mask, causal mask, fully masked row, projection, linear layer,
    activation function, nonlinearity, hidden size, inner size, head size, residual connection,
    residual stream, layer normalisation, pre-norm, post-norm, feed-forward network,
    positional encoding, embedding, tied embeddings, shared embeddings, dropout, keep probability,
    random mask, random numbers, training mode, evaluation mode, inference mode, gradient flow,
    vanishing gradient, saturated softmax, loss, label smoothing, cross-entropy, optimiser step,
    update, learning-rate schedule, warm-up, gradient accumulation, all-reduce, rank, broadcast,
    checkpoint, resume, teacher forcing, autoregressive decoding, decoding step, prefix, prompt,
    greedy decoding, beam search, sampling, hypothesis, finished hypothesis, length penalty, top-k,
    top-p, nucleus, temperature, KV cache, reorder, prefill, tokenizer, subword, vocabulary,
    byte-pair merge, source, target, reference, parallel corpus, logits, log-probabilities, softmax,
    overfitting, validation set, early stopping, perplexity, explicit implementation, fused kernel,
    prepacked weights, ahead-of-time compiled step, batch, sequence length, padding
"""
# Names that Japanese and Korean texts write in Latin letters.
LATIN = {
    *("ALiBi", "BLEU", "chrF", "LoRA", "RMSNorm", "SwiGLU", "top-k", "top-p"),
    *("Scaled Dot-Product Attention", "Source-Target-Attention", "Pre-LN, Post-LN"),
}
SPELLINGS = {  # in our sentences; an alias may have any spelling
    r"\w{2,}iz(e|es|ed|er|ing|ation)\b(?<!tokenizer)": "-ise",
    r"\bsoft-max|\bpaddings\b|\bwarmup\b": "softmax, padding, warm-up",
    r"\b(cross|self) attention\b|\bfeedforward\b|\bmulti head\b": "with a hyphen",
    r"\bposition(al)? embedding|\bpositions? encoding": "positional encoding",
    r"\bposition(s)? (is|are) hidden\b": "masked",
}


def words_of(text: str) -> list[str]:
    return [word.strip() for word in text.replace("\n", " ").split(",") if word.strip()]


def anchor(term: dict[str, Any]) -> str:
    return term.get("id") or re.sub(r"[^a-z0-9]+", "-", term["term"].lower()).strip("-")


def everything_searched() -> set[str]:
    return {
        word
        for each in TERMS
        for word in (each["term"], *each["aliases"], *each["ja"], *each["ko"])
    }


def test_there_are_sixty_terms_with_unique_names_and_anchors() -> None:
    assert len(TERMS) >= 60
    for names in ([each["term"].lower() for each in TERMS], [anchor(each) for each in TERMS]):
        assert [name for name, count in Counter(names).items() if count > 1] == []


@pytest.mark.parametrize("term", TERMS, ids=anchor)
def test_a_term_is_complete_in_three_languages(term: dict[str, Any]) -> None:
    known = {"term", "id", "aliases", "ja", "ko", "text", "formula", "section", "chapter", "name"}
    assert term.keys() <= known | {"see"}
    assert term.keys() >= {"term", "aliases", "ja", "ko", "text", "chapter"}
    assert term["chapter"] in range(len(chapter_files()))
    assert re.fullmatch(r"[1-7](\.\d){0,2}", term.get("section", "1"))
    sentences = re.findall(r"[.!?](?=\s|$)", term["text"])
    assert 1 <= len(sentences) <= 3, term["text"]
    assert term["text"].count("`") % 2 == 0
    assert len(set(term["aliases"])) == len(term["aliases"])
    assert term["term"] not in term["aliases"]
    names = {each["term"] for each in TERMS} - {term["term"]}
    assert set(term.get("see", [])) <= names
    japanese, korean = r"[\u3041-\u30ff\u4e00-\u9fff]", r"[\uac00-\ud7a3]"
    for language, own, other in (("ja", japanese, korean), ("ko", korean, japanese)):
        assert term[language]
        for word in term[language]:
            assert word in LATIN or re.search(own, word), word
            assert not re.search(other, word), word


def test_no_accepted_latin_name_is_unused() -> None:
    assert {word for each in TERMS for word in (*each["ja"], *each["ko"])} >= LATIN


@pytest.mark.parametrize("term", [each for each in TERMS if "name" in each], ids=anchor)
def test_the_name_of_a_term_exists_in_the_library(term: dict[str, Any]) -> None:
    name = term["name"]
    if importlib.util.find_spec(f"transformer_blocks.{name.partition('.')[0]}") and "." in name:
        package, _, name = name.rpartition(".")
        thing = importlib.import_module(f"transformer_blocks.{package}")
        assert hasattr(thing, name)
    else:
        whole = importlib.import_module("transformer_blocks")
        assert hasattr(whole, name) or importlib.import_module(f"transformer_blocks.{name}")


def test_the_words_of_other_articles_and_of_the_project_are_found() -> None:
    words = [*words_of(ALIASES), *words_of(USED)]
    assert [word for word in words if word not in everything_searched()] == []


@pytest.mark.parametrize("pattern", SPELLINGS)
def test_the_texts_use_the_terms_consistently(pattern: str) -> None:
    texts = [(each["term"], re.sub("`.*?`", "", each["text"])) for each in TERMS]
    found = [(name, text) for name, text in texts if re.search(pattern, text, re.IGNORECASE)]
    assert found == [], SPELLINGS[pattern]


def test_every_kanji_has_a_reading() -> None:
    readings: dict[str, str] = CONTENT["readings"]
    assert all(re.fullmatch(r"[\u3041-\u309f]+", each) for each in readings.values())
    kanji = "|".join(sorted(readings, key=len, reverse=True))
    words = [word for each in TERMS for word in each["ja"]]
    left = [re.sub(kanji, "", word) for word in words]
    assert [word for word in left if re.search(r"[\u4e00-\u9fff]", word)] == []
    assert [each for each in readings if not any(each in word for word in words)] == []


@pytest.mark.slow
def test_chapters_link_to_terms_and_terms_to_chapters(pages: Path) -> None:
    glossary = (pages / "glossary.html").read_text("utf-8")
    for term in TERMS:
        assert f'<section id="{anchor(term)}">' in glossary
    found = set(re.findall(r'href="(learn/\d\d_\w+\.html)"', glossary))
    assert found == {f"learn/{path.stem}.html" for path in chapter_files()}
    chapter = (pages / "learn" / "07_positions.html").read_text("utf-8")
    assert 'href="../glossary.html#embedding"' in chapter
    assert '<span lang="ja">注意機構、アテンション</span>' in glossary
    assert '<span lang="ko">어텐션, 주의 메커니즘</span>' in glossary
    index = glossary[glossary.index('id="japanese"') : glossary.index('id="korean"')]
    words = ("アテンション", "温度", "注意機構", "バッチ", "ロジット")
    order = [index.index(f">{word}<") for word in words]
    assert order == sorted(order)
