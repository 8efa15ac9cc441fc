"""A tensor that was rounded is told from one of another model, and from one that was altered."""

import ml_dtypes
import numpy as np
import pytest

from vela.verify.static import rounded
from vela.verify.static.graph_tensor import GraphTensor

EXPECTED = np.random.default_rng(2).standard_normal((48, 64)).astype(np.float32)
OTHER = np.random.default_rng(3).standard_normal((48, 64)).astype(np.float32)


def on_steps(axis: int | None) -> np.ndarray:
    step = np.max(np.abs(EXPECTED), axis=axis, keepdims=True) / np.float32(127)
    return (np.round(EXPECTED / step) * step).astype(np.float32)


def name(values: np.ndarray) -> str:
    return rounded.rounded_to(GraphTensor.from_floats("w", values), EXPECTED)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (EXPECTED.astype(np.float16), "float16"),
        (EXPECTED.astype(np.float16).astype(np.float32), "float16"),
        (EXPECTED.astype(ml_dtypes.bfloat16).astype(np.float32), "bfloat16"),
        (on_steps(None), "int8"),
        (on_steps(0), "int8"),
        (on_steps(1), "int8"),
        (OTHER, ""),
        (OTHER.astype(np.float16), ""),
        (EXPECTED * np.float32(1 + 1e-6), ""),
        (-EXPECTED, ""),
        (np.zeros_like(EXPECTED), ""),
    ],
)
def test_the_type_is_named_from_the_numbers(values, kind) -> None:
    assert name(values) == kind


TENSORS = {"a": EXPECTED, "b": OTHER}


def test_all_that_is_missing_must_be_there_in_fewer_bits() -> None:
    narrow = {"x": EXPECTED.astype(np.float16), "y": OTHER.astype(np.float16).T}

    assert rounded.are_rounded(["a", "b"], narrow, TENSORS)
    assert not rounded.are_rounded(["a", "b"], {"x": narrow["x"]}, TENSORS)
    assert not rounded.are_rounded([], {}, TENSORS)


def test_nothing_else_may_be_there() -> None:
    held = {"x": EXPECTED.astype(np.float16), "y": np.float32(3) * OTHER}

    assert not rounded.are_rounded(["a"], held, TENSORS)


def test_rows_of_a_tensor_may_be_rounded_alone() -> None:
    assert rounded.are_rounded([], {"x": EXPECTED[16:32].astype(np.float16)}, TENSORS)


def test_a_tensor_in_a_wider_type_was_not_exchanged_either() -> None:
    assert rounded.are_rounded(["a"], {"x": EXPECTED.astype(np.float64)}, TENSORS)


def test_a_bias_that_lost_its_last_bits_beside_rounded_weights_was_rounded_too() -> None:
    bias = OTHER[0]
    held = {"x": on_steps(None), "y": bias * np.float32(1 + 2.0**-22)}

    assert rounded.are_rounded(["a", "b"], held, {"a": EXPECTED, "b": bias})
    assert not rounded.are_rounded(["b"], {"y": held["y"]}, {"b": bias})


def test_a_vector_that_was_altered_was_not_rounded() -> None:
    vector = EXPECTED[0]
    altered = vector.copy()
    altered[3] = np.nextafter(altered[3], np.float32(9))

    assert not rounded.are_rounded(["a"], {"x": altered}, {"a": vector})
