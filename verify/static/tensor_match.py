"""Is a tensor of a graph a tensor of the checkpoint: as stored, reshaped, transposed, in one piece or in several?

Exporters transpose the weights of linear layers, give biases more dimensions, put the three projections of an
attention side by side in one tensor, or cut one apart. Nothing else is a match: every number is compared. A few
numbers at random places are looked at first, so that a tensor that is another one costs next to nothing.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from vela.verify.static.graph_tensor import Floats, GraphTensor

SAMPLE = 64  # numbers that are looked at first
CHUNK = 1 << 22  # numbers that are compared at once: 16 MB in FP32
SEED = 7
Tensors = Mapping[str, Floats]
Numbers = TypeVar("Numbers", Floats, GraphTensor)


@dataclass(frozen=True, slots=True)
class Part(Generic[Numbers]):
    """A tensor that may be one part of another.

    Attributes:
        name: Its name.
        length: Its extent along the dimension that is cut.
        numbers: The checkpoint's where the whole is the graph's, and the other way round.
    """

    name: str
    length: int
    numbers: Numbers


def agrees(reading: GraphTensor, expected: Floats) -> bool:
    """Say whether every number of a graph's tensor is the expected one, up to its rounding.

    Args:
        reading: The graph's.
        expected: The checkpoint's, of the same shape.
    """
    if not expected.size or (expected.size > 2 * SAMPLE and _sample(reading, expected).any()):
        return False
    return not any(differing.any() for differing in _chunks(reading, expected))


def count_differing(reading: GraphTensor, expected: Floats) -> int:
    """Count the numbers of a graph's tensor that are not the expected ones; shapes are equal."""
    return sum(int(np.count_nonzero(differing)) for differing in _chunks(reading, expected))


def share_differing(reading: GraphTensor, expected: Floats) -> float:
    """Estimate the share of numbers that are not the expected ones from a few of them."""
    return float(np.mean(_sample(reading, expected)))


def orientations(reading: GraphTensor, shape: tuple[int, ...]) -> Iterator[GraphTensor]:
    """Give a graph's tensor as each layout of a tensor of this shape: in its order, and transposed."""
    if math.prod(reading.shape) != math.prod(shape):
        return
    if _may_reshape(reading, shape):
        yield reading.reshaped(shape)
    if len(shape) == 2 and min(shape) > 1 and _may_reshape(reading, shape[::-1]):
        yield reading.reshaped(shape[::-1]).transposed()


def match_whole(reading: GraphTensor, tensors: Tensors) -> set[str]:
    """Find every tensor of the checkpoint that a graph's tensor is; equal ones are all found."""
    return {
        name
        for name, expected in tensors.items()
        if any(agrees(turned, expected) for turned in orientations(reading, expected.shape))
    }


def match_joined(reading: GraphTensor, tensors: Tensors) -> set[str]:
    """Find the tensors of the checkpoint that lie side by side in a graph's tensor; nothing where they do not fill it.

    Args:
        reading: Of one or two dimensions, such as (H, 3 H) of a fused attention.
        tensors: The checkpoint's; each may be a part as it is or transposed.
    """
    axes = range(len(reading.shape)) if len(reading.shape) <= 2 else range(0)
    return next((names for axis in axes if (names := _joined_along(axis, reading, tensors))), set())


def _joined_along(axis: int, reading: GraphTensor, tensors: Tensors) -> set[str]:
    parts = [
        Part(name, view.shape[axis], view)
        for name, expected in tensors.items()
        for view in _views(expected)
        if _fits_beside(view.shape, reading.shape, axis)
    ]
    return set(_fill(0, reading.shape[axis], parts, lambda view, place: agrees(reading.cut(axis, place), view)))


def match_cut(expected: Floats, readings: Sequence[GraphTensor]) -> set[str]:
    """Find the tensors of a graph that lie end to end in a tensor of the checkpoint; nothing where they do not fill it.

    Args:
        expected: The checkpoint's, of one or two dimensions.
        readings: The graph's; each may be a part as it is or transposed.
    """
    axes = range(expected.ndim) if expected.ndim <= 2 else range(0)
    return next((names for axis in axes if (names := _cut_along(axis, expected, readings))), set())


def _cut_along(axis: int, expected: Floats, readings: Sequence[GraphTensor]) -> set[str]:
    before = (slice(None),) * axis
    parts = [
        Part(reading.name, view.shape[axis], view)
        for reading in readings
        for view in _turned(reading)
        if _fits_beside(view.shape, expected.shape, axis)
    ]
    return set(_fill(0, expected.shape[axis], parts, lambda view, place: agrees(view, expected[(*before, place)])))


def match_first_rows(reading: GraphTensor, expected: Floats) -> bool:
    """Say whether a graph's tensor is the first rows of one of the checkpoint, and no others."""
    size, width = math.prod(reading.shape), math.prod(expected.shape[1:])
    rows = size // max(1, width)
    if expected.ndim != 2 or rows * width != size or not 0 < rows < len(expected):
        return False
    shape = (rows, width)
    return _may_reshape(reading, shape) and agrees(reading.reshaped(shape), expected[:rows])


def _fill(
    start: int, length: int, parts: Sequence[Part[Numbers]], fits: Callable[[Numbers, slice], bool]
) -> tuple[str, ...]:
    """Lay parts end to end from `start` on; give their names in order, or none where they cannot fill the whole."""
    for part in parts:
        stop = start + part.length
        if stop > length or not fits(part.numbers, slice(start, stop)):
            continue
        if stop == length:
            return (part.name,)
        rest: tuple[str, ...] = _fill(stop, length, [other for other in parts if other.name != part.name], fits)
        if rest:
            return (part.name, *rest)
    return ()


def _views(expected: Floats) -> list[Floats]:
    return [expected, expected.T] if expected.ndim == 2 else [expected]


def _turned(reading: GraphTensor) -> list[GraphTensor]:
    return [reading, reading.transposed()] if len(reading.shape) == 2 else [reading]


def _fits_beside(part: tuple[int, ...], whole: tuple[int, ...], axis: int) -> bool:
    """Say whether a part has the whole's extent in every dimension but the one that is cut, and less in that."""
    if len(part) != len(whole) or part[axis] >= whole[axis]:
        return False
    return all(part[index] == whole[index] for index in range(len(whole)) if index != axis)


def _may_reshape(reading: GraphTensor, shape: tuple[int, ...]) -> bool:
    """Refuse to give integers with a step for each row another number of rows; dimensions of 1 are free."""
    if reading.steps is None or reading.steps.size.size == 1:
        return True
    return [size for size in reading.shape if size > 1] == [size for size in shape if size > 1]


def _sample(reading: GraphTensor, expected: Floats) -> NDArray[np.bool_]:
    """Compare numbers at random places, the same for every tensor of a shape."""
    places = _places(expected.shape)
    return reading.at(places).differing(np.asarray(expected[places]))


@functools.lru_cache(maxsize=256)
def _places(shape: tuple[int, ...]) -> tuple[NDArray[np.intp], ...]:
    rng = np.random.default_rng(SEED)
    return tuple(rng.integers(0, size, SAMPLE) for size in shape)


def _chunks(reading: GraphTensor, expected: Floats) -> Iterator[NDArray[np.bool_]]:
    """Compare a bounded part at a time, so that an embedding table is never there twice in FP32."""
    if not expected.ndim:
        yield reading.differing(expected)
        return
    rows = max(1, CHUNK // max(1, math.prod(expected.shape[1:])))
    for start in range(0, expected.shape[0], rows):
        part = slice(start, start + rows)
        yield reading.cut(0, part).differing(np.asarray(expected[part]))
