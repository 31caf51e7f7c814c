"""The glossary: complete, in three languages, and linked to chapters and code that exist."""

import re
from pathlib import Path

import pytest

from cells import chapter_files

ROOT = Path(__file__).parents[2]
TEXT, *INDICES = re.split(
    r"^## Index of .* words$", (ROOT / "docs/glossary.md").read_text("utf-8"), flags=re.M
)
TERMS = dict(each.split("\n", 1) for each in re.split(r"^##+ (?:.\n\n### )?", TEXT, flags=re.M)[1:])


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
    *("Scaled Dot-Product Attention", "Source-Target-Attention"),
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


def words(language: str, entry: str) -> list[str]:
    (found,) = re.findall(rf'<span lang="{language}">(.*?)</span>', entry)
    return found.split({"ja": "、", "ko": ", "}[language])


def aliases(entry: str) -> list[str]:
    return words_of("".join(re.findall(r"^- \*\*Also\*\*: (.*)$", entry, re.M)).replace("`", ""))


def anchor(term: str) -> str:
    return term.lower().replace(" ", "-")


def test_there_are_sixty_terms_with_unique_names() -> None:
    assert len(TERMS) >= 60
    assert TEXT.count("\n### ") == len(TERMS) == len({anchor(term) for term in TERMS})
    assert [*TERMS] == sorted(TERMS, key=str.lower)


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_complete_in_three_languages(term: str) -> None:
    _, text, *_ = TERMS[term].split("\n\n")
    assert 1 <= len(re.findall(r"[.!?](?=\s|$)", text)) <= 3, text
    assert text.count("`") % 2 == 0
    assert "**Learn**: [chapter" in TERMS[term]
    assert len({term, *aliases(TERMS[term])}) == 1 + len(aliases(TERMS[term]))
    japanese, korean = r"[\u3041-\u30ff\u4e00-\u9fff]", r"[\uac00-\ud7a3]"
    for language, own, other in (("ja", japanese, korean), ("ko", korean, japanese)):
        for word in words(language, TERMS[term]):
            assert word in LATIN or re.search(own, word), word
            assert not re.search(other, word), word


def test_no_accepted_latin_name_is_unused() -> None:
    assert {
        word for each in TERMS.values() for word in words("ja", each) + words("ko", each)
    } >= LATIN


@pytest.mark.parametrize(("language", "index"), [("ja", 0), ("ko", 1)])
def test_an_index_lists_each_word_with_its_term(language: str, index: int) -> None:
    listed = re.findall(r"^- \[<span[^>]*>(.*)</span>\]\(#(.*?)\)", INDICES[index], re.M)
    told = [(word, anchor(term)) for term, each in TERMS.items() for word in words(language, each)]
    assert sorted(listed) == sorted(told)


def test_every_link_leads_to_a_term_a_chapter_or_a_page() -> None:
    links = re.findall(r"\]\(([^)#]*)(#[^)]*)?\)", TEXT)
    assert {place[1:] for page, place in links if not page} >= {"query", "key"}
    letters = {term[0].lower() for term in TERMS}
    places = {place[1:] for page, place in links if not page and not place.startswith("#index")}
    assert places <= letters | {anchor(term) for term in TERMS}
    assert [page for page, _ in links if not (ROOT / "docs" / page).exists()] == []
    titles = {path.name: path.read_text("utf-8").splitlines()[1] for path in chapter_files()}
    named = re.findall(r"\[chapter (\d+), (.*?)\]\(learn/(.*?)\)", TEXT)
    assert all(titles[name] == f"# # {number} {title}" for number, title, name in named)
    assert {name for _, _, name in named} | {"00_map.py"} == titles.keys()


def test_the_words_of_other_articles_and_of_the_project_are_found() -> None:
    searched = {
        word
        for term, each in TERMS.items()
        for word in (term, *aliases(each), *words("ja", each), *words("ko", each))
    }
    assert {*words_of(ALIASES), *words_of(USED)} <= searched


@pytest.mark.parametrize("pattern", SPELLINGS)
def test_the_texts_use_the_terms_consistently(pattern: str) -> None:
    code = re.compile(r"```.*?```|`.*?`|^- [^\n]*", re.M | re.S)
    texts = [(term, code.sub("", each)) for term, each in TERMS.items()]
    found = [(term, text) for term, text in texts if re.search(pattern, text, re.IGNORECASE)]
    assert found == [], SPELLINGS[pattern]
