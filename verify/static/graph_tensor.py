"""A tensor of a graph as numbers, with how far each may be from the number that was rounded to it.

An exporter keeps FP32 weights as they are, casts them to sixteen bits, or keeps integers that the graph multiplies by
a step. All three are one thing here: numbers and a bound. FP32 has no bound, so it is compared bit by bit.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import contract

Floats = NDArray[np.float32]
# By element type: its precision, and the largest rounding error, relative and for numbers near zero. Half a unit in
# the last place of FP16 is 2^-11 of the number; numbers below its smallest subnormal become that, or zero, by tool.
# Of BF16 it is 2^-8.
ROUNDINGS: dict[str, tuple[contract.WeightPrecision, float, float]] = {
    "float64": ("fp32", 0.0, 0.0),
    "float32": ("fp32", 0.0, 0.0),
    "float16": ("fp16", 2.0**-11, 2.0**-24),
    "bfloat16": ("bf16", 2.0**-8, 0.0),
}


@dataclass(frozen=True, slots=True)
class Steps:
    """How stored integers become numbers: (stored - zero) * size.

    Attributes:
        size: Distance of two neighbouring numbers; of as many dimensions as the tensor, each of them whole or 1.
        zero: The integer that stands for zero; shaped likewise.
        half: Largest rounding error; shaped as `size`.
        relative: Rounding error of the step size itself, as a share of the number.
    """

    size: Floats
    zero: Floats
    half: Floats
    relative: float

    def transposed(self) -> "Steps":
        """Swap the two dimensions."""
        return Steps(self.size.T, self.zero.T, self.half.T, self.relative)

    def cut(self, axis: int, part: slice) -> "Steps":
        """Keep a part of one dimension."""
        size, zero, half = (_cut(values, axis, part) for values in (self.size, self.zero, self.half))
        return Steps(size, zero, half, self.relative)

    def reshaped(self, before: tuple[int, ...], shape: tuple[int, ...]) -> "Steps":
        """Follow a tensor of shape `before` into another shape."""
        size, zero, half = (_spread(values, before, shape) for values in (self.size, self.zero, self.half))
        return Steps(size, zero, half, self.relative)


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """Numbers of a graph.

    Attributes:
        name: The initializer or constant that holds them.
        stored: As they lie in the file.
        precision: What they were rounded to.
        steps: Of integers; None for floats.
        uses: Other constants that take part, such as the steps.
    """

    name: str
    stored: NDArray[Any]
    precision: contract.WeightPrecision
    steps: Steps | None = None
    uses: frozenset[str] = frozenset()

    @classmethod
    def from_floats(cls, name: str, stored: NDArray[Any]) -> Self:
        """Take a float tensor as it is; KeyError for an element type that no weights are kept in."""
        return cls(name, stored, ROUNDINGS[stored.dtype.name][0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions."""
        return self.stored.shape

    def transposed(self) -> Self:
        """Swap the two dimensions."""
        return replace(self, stored=self.stored.T, steps=self.steps and self.steps.transposed())

    def cut(self, axis: int, part: slice) -> Self:
        """Keep a part of one dimension."""
        return replace(self, stored=_cut_all(self.stored, axis, part), steps=self.steps and self.steps.cut(axis, part))

    def reshaped(self, shape: tuple[int, ...]) -> Self:
        """Give the same numbers, in the same order, another shape; one extent may be -1."""
        if shape == self.shape:
            return self
        stored = self.stored.reshape(shape)
        return replace(self, stored=stored, steps=self.steps and self.steps.reshaped(self.shape, stored.shape))

    def differing(self, expected: Floats) -> NDArray[np.bool_]:
        """Say of each number whether it is no rounding of the expected one; nan is none of anything.

        Args:
            expected: Of the same shape.
        """
        found, relative, half = self._numbers()
        with np.errstate(invalid="ignore", over="ignore"):  # infinities are compared like any other number
            bound = np.abs(expected) * np.float32(relative) + half
            is_near: NDArray[np.bool_] = np.abs(found - expected) <= bound
        is_equal: NDArray[np.bool_] = found == expected
        return ~(is_near if relative or np.any(half) else is_equal)

    def _numbers(self) -> tuple[Floats, float, Floats]:
        """Give the numbers, and their largest rounding error, as a share and for numbers near zero."""
        if self.steps is None:
            _, relative, floor = ROUNDINGS[self.stored.dtype.name]
            return self.stored.astype(np.float32), relative, np.array(floor, np.float32)
        numbers = (self.stored.astype(np.float32) - self.steps.zero) * self.steps.size
        return numbers, self.steps.relative, self.steps.half

    def at(self, places: tuple[NDArray[np.intp], ...]) -> Self:
        """Take single numbers by their places, (N,)."""
        if self.steps is None:
            return replace(self, stored=self.stored[places])
        size, zero, half = (
            np.broadcast_to(values, self.shape)[places]
            for values in (self.steps.size, self.steps.zero, self.steps.half)
        )
        return replace(self, stored=self.stored[places], steps=Steps(size, zero, half, self.steps.relative))


def _cut_all(values: NDArray[Any], axis: int, part: slice) -> NDArray[Any]:
    return values[(slice(None),) * axis + (part,)]


def _cut(values: Floats, axis: int, part: slice) -> Floats:
    """Cut a dimension that is whole; one of size 1 holds for every part."""
    return values if values.shape[axis] == 1 else _cut_all(values, axis, part)


def _spread(values: Floats, before: tuple[int, ...], shape: tuple[int, ...]) -> Floats:
    if math.prod(values.shape) == 1:
        return values.reshape((1,) * len(shape))
    return np.broadcast_to(values, before).reshape(shape)
