"""Independent labels and the operating point."""

import numpy as np
import pytest

from vela.graphs import heads
from vela.serve.decode import scores

LABELS = ("a", "b", "c")


def point(comparison: str) -> heads.OperatingPoint:
    return heads.OperatingPoint(comparison, (0.5, 0.5, 0.9), "0" * 64)


@pytest.mark.parametrize(("comparison", "selected"), [("score >= threshold", ["a", "b"]), ("score > threshold", ["b"])])
def test_equality_passes_only_where_the_operating_point_says_so(comparison: str, selected: list[str]) -> None:
    found = scores.select_labels([0.5, 0.6, 0.89], LABELS, point(comparison))

    assert found == selected


def test_a_score_is_the_maximum_of_sigmoids_over_windows() -> None:
    found = scores.reduce_windows(scores.decode_windows([np.float32([0, -2]), np.float32([-1, 2])]))

    assert found == pytest.approx([0.5, 1 / (1 + np.exp(-2))], rel=1e-15)


def test_nothing_may_be_selected() -> None:
    assert scores.select_labels([0.0] * 3, LABELS, point("score >= threshold")) == []
