"""A trained run that the tests of this folder share."""

import pytest
from tests.examples.tiny_run import begin

from translation.training import Training


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Finish a training, once; tests read it and leave it as it is."""
    training = begin(tmp_path_factory.mktemp("runs") / "trained")
    training.fit()
    return training
