"""The glossary: complete, in three languages, and with the words that people search for."""

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
SEARCHED = """
    seq2seq, RoPE, 注意機構, 어텐션, SimpleAttention, Source-Target-Attention, MASK, autoregressive,
    teacher forcing, overfitting, quadratic complexity, KV cache, BPE, PAD, BOS, EOS, BOS/EOS, hs,
    encoder states, temperature, decisive, greedy, hidden_dim, depth, head_num, look-ahead mask,
    Casual mask, softmax, logits, entropy, Jacobian, one-hot, SwiGLU, RMSNorm, GQA, ALiBi, BLEU,
    chrF, perplexity, hypothesis, dropout_rate, x_enc, x_dec, y_dec, LSTM, RNN, warm-up, d_model,
    d_ff, d_k, PE, FFN, LayerNorm, Add & Norm, nucleus, 過学習, 자기 회귀
"""


def words_of(text: str) -> list[str]:
    return [word.strip() for word in text.replace("\n", " ").split(",") if word.strip()]


def words(language: str, entry: str) -> list[str]:
    (found,) = re.findall(rf'<span lang="{language}">(.*?)</span>', entry)
    return found.split({"ja": "、", "ko": ", "}[language])


def aliases(entry: str) -> list[str]:
    return words_of("".join(re.findall(r"^- \*\*Also\*\*: (.*)$", entry, re.M)).replace("`", ""))


def test_every_term_is_explained_in_few_sentences_with_its_chapter() -> None:
    assert len(TERMS) >= 60
    assert [*TERMS] == sorted(TERMS, key=str.lower)
    titles = {path.stem: path.read_text("utf-8").splitlines()[1] for path in chapter_files()}
    for entry in TERMS.values():
        _, text, *_ = entry.split("\n\n")
        assert 1 <= len(re.findall(r"[.!?](?=\s|$)", text)) <= 3, text
        [*chapters] = re.findall(r"\[chapter (\d+), (.*?)\]\(learn/(\w+)\.ipynb\)", entry)
        assert chapters
        assert all(titles[name] == f"# # {number} {title}" for number, title, name in chapters)


@pytest.mark.parametrize(("language", "index"), [("ja", 0), ("ko", 1)])
def test_an_index_lists_each_word_with_its_term(language: str, index: int) -> None:
    listed = re.findall(r"^- \[<span[^>]*>(.*)</span>\]\(#(.*?)\)", INDICES[index], re.M)
    anchors = {term: term.lower().replace(" ", "-") for term in TERMS}
    told = [(word, anchors[term]) for term, each in TERMS.items() for word in words(language, each)]
    assert sorted(listed) == sorted(told)


def test_the_words_of_other_articles_are_found() -> None:
    known = {
        word
        for term, each in TERMS.items()
        for word in (term, *aliases(each), *words("ja", each), *words("ko", each))
    }
    assert {*words_of(SEARCHED)} <= known
