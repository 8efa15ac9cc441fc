"""Was a foreign tensor a tensor of the checkpoint before somebody rounded it?

A graph whose weights are another model's and one whose weights were cast to fewer bits on the way fail alike. A release
engineer does not mend them alike, so the difference is told from the numbers.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vela.verify.static import graph_tensor, tensor_match
from vela.verify.static.graph_tensor import Floats, GraphTensor

INT8_STEPS = 127  # from zero to the largest of a tensor, a row or a column
COARSEST = 2.0**-8  # of bfloat16
SAMPLE, SEED = 64, 11
LAST_BITS = 2.0**-20
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


def are_rounded(missing: Collection[str], held: Mapping[str, NDArray[Any]], tensors: Mapping[str, Floats]) -> bool:
    """Say whether a graph's foreign tensors are the checkpoint's in fewer bits or another type, and none is missing.

    Args:
        missing: Names of the checkpoint's tensors that are not in the graph as they are.
        held: Float tensors of the graph that are none of the checkpoint's, by name.
        tensors: The checkpoint's, by name.
    """
    readings = [
        GraphTensor.from_floats(name, values)
        for name, values in held.items()
        if values.dtype.name in graph_tensor.ROUNDINGS
    ]
    explained: set[str] = set()
    has_fewer_bits = False
    for reading in readings:
        origins = _origins(reading, tensors, _was)
        has_fewer_bits = has_fewer_bits or bool(origins)
        origins = origins or _origins(reading, tensors, _is_near)
        if not origins:
            return False
        explained |= origins
    return has_fewer_bits and explained.issuperset(missing)


def _origins(
    reading: GraphTensor, tensors: Mapping[str, Floats], is_of: Callable[[GraphTensor, Floats], bool]
) -> set[str]:
    """Name the tensors of the checkpoint that a graph's tensor, or some rows of one, was before it was rounded."""
    found = set()
    for name, expected in tensors.items():
        for part in _parts(expected, reading.stored.shape):
            if any(is_of(turned, part) for turned in tensor_match.orientations(reading, part.shape)):
                found.add(name)
                break
    return found


def _was(reading: GraphTensor, expected: Floats) -> bool:
    if not _may_be(reading, expected):
        return False
    is_wider = reading.stored.dtype == np.float64 and tensor_match.agrees(reading, expected)
    return is_wider or bool(rounded_to(reading, expected))


def _may_be(reading: GraphTensor, expected: Floats) -> bool:
    """Say whether some numbers are within the coarsest rounding, so that another tensor costs next to nothing."""
    if not expected.size:
        return False
    places = np.random.default_rng(SEED).integers(expected.size, size=SAMPLE)
    found = reading.stored.reshape(-1)[places].astype(np.float32)
    wanted = expected.reshape(-1)[places]
    bound = COARSEST * np.abs(wanted) + np.max(np.abs(expected)) / INT8_STEPS
    return bool((np.abs(found - wanted) <= bound).all())


def _is_near(reading: GraphTensor, expected: Floats) -> bool:
    """Say whether numbers went through steps so fine that only last bits changed, as biases do beside weights."""
    return bool(np.allclose(reading.stored, expected, rtol=LAST_BITS, atol=0.0))


def _parts(expected: Floats, shape: tuple[int, ...]) -> Iterator[Floats]:
    """Give a tensor, and its runs of as many rows as a graph's tensor has: an exporter may cut it there."""
    yield expected
    if shape and expected.ndim == len(shape) and expected.shape[1:] == shape[1:] and 0 < shape[0] < len(expected):
        for start in range(0, len(expected) - shape[0] + 1, shape[0]):
            yield expected[start : start + shape[0]]


def _is_on_steps(values: Floats, expected: Floats) -> bool:
    """Say whether numbers are whole multiples of a step, one for all or one for each row or column, and the nearest."""
    if values.ndim < 1 or not np.isfinite(values).all():
        return False
    for axis in (None, *(range(values.ndim) if values.ndim > 1 else ())):
        others = None if axis is None else tuple(place for place in range(values.ndim) if place != axis)
        step = np.max(np.abs(expected), axis=others, keepdims=True) / INT8_STEPS
        multiples = np.divide(values, step, out=np.zeros_like(values), where=step > 0)
        is_whole = np.abs(multiples - np.round(multiples)).max() <= STEP_ROUNDING * INT8_STEPS
        if is_whole and (np.abs(values - expected) <= (0.5 + STEP_ROUNDING) * step).all():
            return True
    return False
