"""Numbers of 16-bit types that export and the gate must agree on."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vela.graphs import contract

# What is added to a score to hide its token, in a type that does not hold float32's smallest number: its weight is 0 in
# every type (the exponential of less than -104 is 0 in float32), two of them with any score still fit, and so does
# their product with the scale of a head.
HIDDEN: Mapping[contract.Precision, float] = {"fp16": -3e4, "bf16": -1e30}


def bound_hidden(values: NDArray[np.float32], reduced: contract.Precision) -> NDArray[np.float32]:
    """Give numbers with those that hide a token bounded to what a reduced type holds; others are left as they are."""
    return np.maximum(values, np.float32(HIDDEN[reduced])) if values.size else values
