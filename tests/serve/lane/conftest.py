"""A lane, and one that is kept at work."""

from collections.abc import Iterator

import pytest
from steps import PATIENCE_S, Step

from vela.serve.lane import Bounds, Lane


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane("cpu", Bounds(wait_s=10.0, certainty=1.0, tokens=100))
    yield made
    made.close()


@pytest.fixture
def held(lane: Lane) -> Iterator[tuple[Step, list]]:
    """Keep the lane at work, and give the log of what it runs after that."""
    log: list = []
    blocker = Step(0, [], held=True)
    lane.submit([blocker])
    assert blocker.started.wait(PATIENCE_S)
    yield blocker, log
    blocker.release.set()
