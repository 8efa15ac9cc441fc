"""A graph's tensor is a checkpoint's only where every number is: in any layout, in parts, up to its rounding."""

import ml_dtypes
import numpy as np
import pytest

from vela.verify.static import tensor_match
from vela.verify.static.graph_tensor import GraphTensor

RNG = np.random.default_rng(3)
WEIGHT = RNG.normal(0, 0.1, (96, 40)).astype(np.float32)
QUERY, KEY, VALUE = (RNG.normal(0, 0.1, (24, 24)).astype(np.float32) for _ in range(3))
CHECKPOINT = {"w": WEIGHT, "b": WEIGHT[0].copy(), "q": QUERY, "k": KEY, "v": VALUE}


def reading(stored: np.ndarray, name: str = "anonymous") -> GraphTensor:
    return GraphTensor.from_floats(name, stored)


@pytest.mark.parametrize(
    "stored",
    [WEIGHT, WEIGHT.T.copy(), WEIGHT.reshape(1, 96, 40), WEIGHT.T.reshape(40, 12, 8), WEIGHT.ravel()],
    ids=["as stored", "transposed", "with a dimension more", "transposed and cut into heads", "flat"],
)
def test_a_layout_of_a_weight_is_found(stored):
    assert tensor_match.match_whole(reading(stored), CHECKPOINT) == {"w"}


@pytest.mark.parametrize("place", [0, 1234, 3839])
def test_one_number_that_differs_in_its_last_bit_is_no_match(place):
    stored = WEIGHT.copy()
    stored.flat[place] = np.nextafter(stored.flat[place], np.float32(1))

    assert tensor_match.match_whole(reading(stored), CHECKPOINT) == set()


def test_a_number_that_is_nan_is_no_match():
    stored = WEIGHT.copy()
    stored[5, 5] = np.nan

    assert tensor_match.match_whole(reading(stored), CHECKPOINT) == set()


def test_rows_in_another_order_are_no_match():
    assert tensor_match.match_whole(reading(WEIGHT[::-1].copy()), CHECKPOINT) == set()


@pytest.mark.parametrize(("dtype", "precision"), [(np.float16, "fp16"), (ml_dtypes.bfloat16, "bf16")])
def test_a_sixteen_bit_copy_is_found_and_named(dtype, precision):
    found = reading(WEIGHT.T.astype(dtype))

    assert found.precision == precision
    assert tensor_match.match_whole(found, CHECKPOINT) == {"w"}


@pytest.mark.parametrize(("dtype", "factor"), [(np.float16, 1 + 2**-10), (ml_dtypes.bfloat16, 1 + 2**-7)])
def test_a_sixteen_bit_number_further_off_than_its_rounding_is_no_match(dtype, factor):
    stored = WEIGHT.astype(dtype)
    stored[7, 3] = dtype(np.float32(WEIGHT[7, 3]) * factor + np.sign(WEIGHT[7, 3]) * 1e-3)

    assert tensor_match.match_whole(reading(stored), CHECKPOINT) == set()


def test_numbers_below_the_normal_range_of_fp16_are_found():
    small = np.float32([1e-5, -3e-6, 1e-8, 0.0] * 300)

    assert tensor_match.match_whole(reading(small.astype(np.float16)), {"small": small}) == {"small"}
    assert tensor_match.match_whole(reading(np.zeros_like(small, np.float16)), {"small": small}) == set()


def test_equal_tensors_are_all_found_in_one():
    ones = np.ones(40, np.float32)

    assert tensor_match.match_whole(reading(ones), {"norm1": ones, "norm2": ones.copy(), "b": WEIGHT[0]}) == {
        "norm1",
        "norm2",
    }


@pytest.mark.parametrize("axis", [0, 1])
def test_three_projections_side_by_side_are_found(axis):
    joined = np.concatenate([QUERY.T, KEY.T, VALUE.T], axis=axis)

    assert tensor_match.match_joined(reading(joined), CHECKPOINT) == {"q", "k", "v"}


def test_biases_end_to_end_are_found():
    parts = {name: RNG.normal(0, 1, 24).astype(np.float32) for name in "qkv"}

    assert tensor_match.match_joined(reading(np.concatenate(list(parts.values()))), parts) == {"q", "k", "v"}


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_projections_of_which_one_is_another_do_not_fill_the_whole(changed):
    parts = [QUERY.T.copy(), KEY.T.copy(), VALUE.T.copy()]
    parts[changed][3, 3] += np.float32(0.01)

    assert tensor_match.match_joined(reading(np.concatenate(parts, axis=1)), CHECKPOINT) == set()


def test_a_projection_twice_is_not_two_projections():
    joined = np.concatenate([QUERY.T, QUERY.T, VALUE.T], axis=1)

    assert tensor_match.match_joined(reading(joined), CHECKPOINT) == set()


@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_weight_cut_into_parts_is_found(is_transposed):
    parts = [WEIGHT[:32], WEIGHT[32:64], WEIGHT[64:]]
    readings = [reading(part.T.copy() if is_transposed else part.copy(), f"p{i}") for i, part in enumerate(parts)]

    assert tensor_match.match_cut(WEIGHT, [*readings, reading(QUERY, "other")]) == {"p0", "p1", "p2"}


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_weight_of_which_a_part_is_missing_is_not_found(lost):
    parts = [WEIGHT[:32], WEIGHT[32:64], WEIGHT[64:]]
    readings = [reading(part.copy(), f"p{i}") for i, part in enumerate(parts) if i != lost]

    assert tensor_match.match_cut(WEIGHT, readings) == set()


def test_only_the_first_rows_of_a_table_are_its_first_rows():
    assert tensor_match.match_first_rows(reading(WEIGHT[None, :8].copy()), WEIGHT)
    assert not tensor_match.match_first_rows(reading(WEIGHT[None, 1:9].copy()), WEIGHT)
    assert not tensor_match.match_first_rows(reading(WEIGHT.copy()), WEIGHT)


def test_a_large_tensor_is_compared_to_its_end(monkeypatch):
    monkeypatch.setattr(tensor_match, "CHUNK", 100)
    stored = WEIGHT.copy()
    stored[-1, -1] += np.float32(1.0)

    assert tensor_match.match_whole(reading(WEIGHT.copy()), CHECKPOINT) == {"w"}
    assert tensor_match.match_whole(reading(stored), CHECKPOINT) == set()
    assert tensor_match.count_differing(reading(stored), WEIGHT) == 1
