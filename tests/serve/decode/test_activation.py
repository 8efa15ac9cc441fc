"""Softmax and sigmoid, on values that are known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from vela.serve.decode import activation

LOGITS = np_st.arrays(np.float32, st.integers(2, 9), elements=st.floats(-90, 90, width=32))


def test_a_row_far_apart_keeps_its_smallest_probability() -> None:
    probabilities = activation.softmax(np.array([-90, 0], dtype=np.float32))

    # e^-90 is 8.194e-40, below the smallest normal float32.
    assert probabilities[0] == pytest.approx(math.exp(-90), rel=1e-12)
    assert probabilities[1] == 1.0


def test_large_logits_do_not_overflow() -> None:
    assert activation.softmax(np.array([3e38, -3e38], dtype=np.float32)).tolist() == [1.0, 0.0]
    assert activation.sigmoid(np.array([3e38, -3e38, 0], dtype=np.float32)).tolist() == [1.0, 0.0, 0.5]


def test_equal_logits_share_equally() -> None:
    assert activation.softmax(np.full(4, 7, dtype=np.float32)).tolist() == [0.25] * 4


@given(logits=LOGITS)
def test_probabilities_sum_to_one_and_keep_the_order(logits: np.ndarray) -> None:
    probabilities = activation.softmax(logits)

    assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(probabilities[np.argsort(logits)]) >= 0).all()


@given(logits=LOGITS)
def test_sigmoid_is_its_own_mirror(logits: np.ndarray) -> None:
    assert activation.sigmoid(-logits) == pytest.approx(1 - activation.sigmoid(logits), abs=1e-15)


@given(logits=LOGITS, shift=st.integers(-20, 20))
def test_softmax_does_not_see_a_shift(logits: np.ndarray, shift: int) -> None:
    whole = np.round(logits)  # so that the shifted float32 logits are exact

    assert activation.softmax(whole + np.float32(shift)) == pytest.approx(activation.softmax(whole), abs=1e-15)
