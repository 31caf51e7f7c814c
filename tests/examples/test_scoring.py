import pytest

from translation.scoring import score


def test_a_perfect_translation_scores_a_hundred() -> None:
    scores = score(["a b c d e", "f g h i"], ["a b c d e", "f g h i"], tokenize="none")
    assert scores.bleu == pytest.approx(100.0)
    assert scores.chrf == pytest.approx(100.0)


def test_bleu_is_the_mean_of_matches_times_the_penalty_for_brevity() -> None:
    # 4 of 5 words match, 3 of 4 pairs, 2 of 3 triples, 1 of 2 quadruples; the lengths are equal
    bleu = score(["a b c d x"], ["a b c d e"], tokenize="none").bleu
    assert bleu == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)


def test_the_signature_names_the_tokenizer() -> None:
    for tokenize in ("none", "13a", "char"):
        assert f"tok:{tokenize}" in score(["a"], ["a"], tokenize=tokenize).bleu_signature
