"""Pooled hidden states to unit vectors: cut to the dimension first, then normalise."""

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors


def unit_vector(pooled: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Cut and normalise one pooled vector.

    Args:
        pooled: (H,), mean over the tokens that the mask keeps.
        dimension: At most H.

    Returns:
        (dimension,) of Euclidean length 1; the length is taken in float64.

    Raises:
        ItemError: the vector has no length, so it has no direction either.
    """
    cut = pooled[:dimension].astype(np.float64)
    length = np.linalg.norm(cut)
    if length == 0:
        raise errors.ItemError(
            "invalid_model_output",
            "a pooled vector of zeros",
            expected="a vector with a direction",
            where="embedding",
            fix="The model gives nothing for this input; report it with the input.",
        )
    return (cut / length).astype(np.float32)
