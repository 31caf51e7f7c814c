"""A trained run and a corpus in files, which the tests of this folder share."""

import logging
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.examples.tiny_run import PLAN, TranslationTraining, begin, write_files
from tests.examples.translation.proof_run import Proof, make_proof

import translate
from common import plots


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


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Train a model with the program, once for each model; tests leave the run as it is."""
    folder = tmp_path_factory.mktemp("small")
    files = write_files(folder)

    @cache
    def train(model: str) -> Path:
        options = ["--run", str(folder / model), "--model", model, *files, *PLAN]
        assert translate.main(["train", *options]) == 0
        return folder / model

    return train


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run ``translate.py`` in this process; return what it prints."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        status = translate.main([*map(str, arguments)])
        captured = capsys.readouterr()
        assert status == 0, captured.err
        return captured.out

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run ``translate.py`` with arguments that it must refuse; return its error, one line."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        assert translate.main([*map(str, arguments)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        return line

    return run


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two files of thirty aligned lines, in a folder with a comma and a space in its name."""
    folder = tmp_path / "my, files"
    folder.mkdir()
    return write_files(folder)
