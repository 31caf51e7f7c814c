"""pytest plugin: the fixture ``assert_sound``, which checks a model and shows the table.

pytest loads it in every environment in which this package is installed. It therefore imports
neither torch nor the package before a test uses the fixture.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from transformer_blocks.inspection import Soundness


@pytest.fixture
def assert_sound(request: pytest.FixtureRequest) -> "Iterator[Callable[..., Soundness]]":
    """Assert that a model is sound, as ``transformer_blocks.inspection.assert_sound`` does.

    The random seed is 0 during the test, so that models have the same parameters in each run. If
    the test fails, its report has a section with the table of each checked model.
    """
    import torch

    from transformer_blocks.inspection import check_soundness

    def check(model: Callable[..., Any], inputs: Any, **options: Any) -> "Soundness":
        __tracebackhide__ = True  # the report shows the line of the test
        soundness = check_soundness(model, inputs, **options)
        request.node.add_report_section(
            "call", f"soundness of {type(model).__name__}", repr(soundness)
        )
        if not soundness:
            raise AssertionError(f"violated: {', '.join(soundness.violated)}")
        return soundness

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield check
