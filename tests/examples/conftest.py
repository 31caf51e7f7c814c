"""A trained run and a corpus in files, which the tests of this folder share."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.examples.proof_run import Proof, make_proof
from tests.examples.tiny_run import begin, make_corpus

from common import plots
from translation.training import TranslationTraining


@pytest.fixture(autouse=True)
def _quiet_afterwards() -> Iterator[None]:
    """Take back how a program that was run in this process set up the log."""
    root, handlers = logging.getLogger(), list(logging.getLogger().handlers)
    yield
    root.handlers[:] = handlers
    for package in ("common", "translation", "transformer_blocks"):
        logging.getLogger(package).setLevel(logging.NOTSET)


@pytest.fixture
def pictures() -> None:
    """Let a test draw its pictures."""


@pytest.fixture(autouse=True)
def _no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write empty files instead of pictures: to draw one takes longer than a tiny epoch."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(plots, "as_png", lambda _: b"")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TranslationTraining:
    """Finish a training, once; tests read it and leave it as it is."""
    training = begin(tmp_path_factory.mktemp("runs") / "trained")
    training.fit()
    return training


@pytest.fixture(scope="session")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Proof:
    """Finish two trainings whose every update is recorded, once; tests leave them as they are."""
    return make_proof(tmp_path_factory.mktemp("proof"))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two files of thirty aligned lines, in a folder with a comma and a space in its name."""
    corpus = make_corpus()
    folder = tmp_path / "my, files"
    folder.mkdir()
    pairs = [*corpus.train, *corpus.validation, *corpus.test]
    source, target = folder / "ja.txt", folder / "en.txt"
    source.write_text("".join(f"{pair.source}\n" for pair in pairs), encoding="utf-8")
    target.write_text("".join(f"{pair.target}\n" for pair in pairs), encoding="utf-8")
    return ["--source-file", str(source), "--target-file", str(target)]
