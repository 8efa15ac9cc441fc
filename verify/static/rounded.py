"""Was a foreign tensor a tensor of the checkpoint before somebody rounded it?

A graph whose weights are another model's and one whose weights were cast to fewer bits on the way fail alike. A release
engineer does not mend them alike, so the difference is told from the numbers.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from vela.verify.static import graph_tensor, tensor_match
from vela.verify.static.graph_tensor import Floats, GraphTensor

INT8_STEPS = 127  # from zero to the largest of a tensor, a row or a column
STEP_ROUNDING = 1e-3  # of a step: what FP32 loses in the product of a step and a whole number


def rounded_to(reading: GraphTensor, expected: Floats) -> str:
    """Name the type that a tensor's numbers were rounded to; empty where they are no rounding of the expected ones.

    Args:
        reading: Of the graph.
        expected: The checkpoint's, of the same shape.
    """
    if reading.precision != "fp32":
        return reading.stored.dtype.name if tensor_match.agrees(reading, expected) else ""
    for kind in ("float16", "bfloat16"):
        with np.errstate(over="ignore"):
            narrow = reading.stored.astype(np.dtype(kind))
        rounded = GraphTensor.from_floats(reading.name, narrow)
        if tensor_match.agrees(rounded, expected) and tensor_match.agrees(reading, narrow.astype(np.float32)):
            return kind
    return "int8" if _is_on_steps(reading.stored.astype(np.float32), expected) else ""


def are_rounded(missing: Mapping[str, Floats], held: Iterable[tuple[str, NDArray[np.generic]]]) -> bool:
    """Say whether every missing tensor is in the graph in fewer bits, or in another type.

    Args:
        missing: The checkpoint's tensors that are not in the graph as they are.
        held: Float tensors of the graph that are none of the checkpoint's, by name.
    """
    readings = [
        GraphTensor.from_floats(name, values) for name, values in held if values.dtype.name in graph_tensor.ROUNDINGS
    ]
    return bool(missing) and all(
        any(
            rounded_to(turned, expected) or tensor_match.agrees(turned, expected)
            for reading in readings
            for turned in tensor_match.orientations(reading, expected.shape)
        )
        for expected in missing.values()
    )


def _is_on_steps(values: Floats, expected: Floats) -> bool:
    """Say whether numbers are whole multiples of a step, one for all or one for each row or column, and the nearest."""
    if values.ndim < 1 or not np.isfinite(values).all():
        return False
    for axis in (None, *range(values.ndim)):
        others = None if axis is None else tuple(place for place in range(values.ndim) if place != axis)
        step = np.max(np.abs(expected), axis=others, keepdims=True) / INT8_STEPS
        multiples = np.divide(values, step, out=np.zeros_like(values), where=step > 0)
        is_whole = np.abs(multiples - np.round(multiples)).max() <= STEP_ROUNDING * INT8_STEPS
        if is_whole and (np.abs(values - expected) <= (0.5 + STEP_ROUNDING) * step).all():
            return True
    return False
