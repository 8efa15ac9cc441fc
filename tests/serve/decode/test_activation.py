"""Softmax and sigmoid, on values that are known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from vela.serve.decode import activation

LOGITS = st.lists(st.floats(-90, 90, width=32), min_size=2, max_size=9)
ROWS = np_st.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(2, 9)), elements=st.floats(-90, 90, width=32))


def test_a_row_far_apart_keeps_its_smallest_probability() -> None:
    probabilities = activation.softmax([-90.0, 0.0])

    # e^-90 is 8.194e-40, below the smallest normal float32.
    assert probabilities[0] == pytest.approx(math.exp(-90), rel=1e-12)
    assert probabilities[1] == 1.0


def test_large_logits_do_not_overflow() -> None:
    assert activation.softmax([3e38, -3e38]) == [1.0, 0.0]
    assert activation.softmax_rows(np.float32([[3e38, -3e38]])).tolist() == [[1.0, 0.0]]
    assert [activation.sigmoid(logit) for logit in (3e38, -3e38, 0.0)] == [1.0, 0.0, 0.5]


def test_equal_logits_share_equally() -> None:
    assert activation.softmax([7.0] * 4) == [0.25] * 4


@given(logits=LOGITS)
def test_probabilities_sum_to_one_and_keep_the_order(logits: list[float]) -> None:
    probabilities = activation.softmax(logits)

    assert math.fsum(probabilities) == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(np.array(probabilities)[np.argsort(logits)]) >= 0).all()


@given(logit=st.floats(-90, 90, width=32))
def test_sigmoid_is_its_own_mirror(logit: float) -> None:
    assert activation.sigmoid(-logit) == pytest.approx(1 - activation.sigmoid(logit), abs=1e-15)


@given(logits=st.lists(st.integers(-90, 90), min_size=2, max_size=9), shift=st.integers(-20, 20))
def test_softmax_does_not_see_a_shift(logits: list[int], shift: int) -> None:
    shifted = activation.softmax([logit + shift for logit in logits])

    assert shifted == pytest.approx(activation.softmax(logits), abs=1e-15)


@given(rows=ROWS)
def test_many_rows_have_the_probabilities_that_each_has_alone(rows: np.ndarray) -> None:
    alone = [activation.softmax(row.tolist()) for row in rows]

    assert activation.softmax_rows(rows) == pytest.approx(np.array(alone), abs=1e-15)
