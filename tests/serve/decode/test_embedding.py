"""Unit vectors."""

import numpy as np
import pytest

from vela.graphs import errors
from vela.serve.decode import embedding


def test_the_vector_is_cut_before_it_is_normalised() -> None:
    vector = embedding.unit_vector(np.array([3, 4, 12], dtype=np.float32), 2)

    assert vector == pytest.approx([0.6, 0.8], rel=1e-7)
    assert vector.dtype == np.float32


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_very_small_and_large_vectors_keep_their_direction(scale: float) -> None:
    vector = embedding.unit_vector(np.array([scale, scale], dtype=np.float32), 2)

    assert vector == pytest.approx([2**-0.5] * 2, rel=1e-7)


def test_a_vector_of_zeros_is_an_error_and_never_nan() -> None:
    with pytest.raises(errors.ItemError) as caught:
        embedding.unit_vector(np.array([0, 0, 1], dtype=np.float32), 2)

    assert caught.value.code == "invalid_model_output"
