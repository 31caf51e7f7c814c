"""The folder of a small model of each published family."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Save the folder of a model of a family, once; tests copy it before they change it."""
    from tests.pretrained.published import save_folder  # only now: it imports transformers

    folder = tmp_path_factory.mktemp("published, once")
    return cache(lambda family: save_folder(family, folder / family))
