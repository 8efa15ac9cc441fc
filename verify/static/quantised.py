"""Weights that a graph keeps as integers, read with the steps and zeros that the graph itself puts to them.

Whether a tensor is such a weight is seen by its element type and not by operators, of which there are many: Cast and
Mul, DequantizeLinear, MatMulInteger with its products of two steps, a dozen fused ones. All of them bring the integers
together with the step within a few nodes, so the constants that they meet there are tried, and the checkpoint says
which of them is the step: a wrong one does not give its numbers. Steps must be as fine as their integers allow, because
a coarse one would be near any small number.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vela.graphs import contract
from vela.verify import graph_file
from vela.verify.static.graph_constants import Constant
from vela.verify.static.graph_tensor import ROUNDINGS, Floats, GraphTensor, Steps

# Bits by element type. Integers of 32 bits are the biases of quantised products.
BITS = {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8, "int32": 32}
PRECISIONS: dict[int, contract.WeightPrecision] = {4: "int4", 8: "int8", 32: "int8"}
HOPS = 4  # nodes between integers and their step: a product of integers, a cast, a product with the step
STEPS_BEHIND = 2  # nodes between those and a step that is itself multiplied by the activation's
# The largest integer of a group that has a step of its own, at least: of eight bits, one is given up by quantisers
# that guard against saturation; biases have the step of a product, which is much finer than they need.
LEAST_LEVELS = {4: 7, 8: 63, 32: 1}
SLACK = 1e-3  # of a step: integers were rounded in FP32 arithmetic
WIDE_INTEGERS = 2.0**-22  # what FP32 loses of an integer of 32 bits
LARGEST_ZERO = 255
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Integers as they can be read: as they lie, or unpacked from bytes where a node says how many bits they have.

    Attributes:
        stored: Integers of at most 8 or 32 bits, one a number.
        bits: Of each.
        zero: What stands for zero where the graph does not say.
        columns: Numbers in a row of a matrix that is stored in blocks; None for others.
    """

    stored: NDArray[Any]
    bits: int
    zero: int = 0
    columns: int | None = None

    @property
    def is_packed(self) -> bool:
        """Whether bytes held two of the integers each."""
        return self.columns is not None and self.bits == 4

    def finished(self, reading: GraphTensor) -> GraphTensor:
        """Take groups together again: blocks (N, blocks, block) that a node multiplies by are a matrix (N, K)."""
        if self.columns is None:
            return reading.reshaped(self.stored.shape)
        return reading.reshaped((len(self.stored), -1)).cut(1, slice(0, self.columns))


def is_integer_weight(constant: Constant) -> bool:
    """Say whether a constant may be a weight by its element type; single numbers and shapes are none."""
    return constant.content.dtype.name in BITS and constant.content.size > 1


def read_integers(constant: Constant, known: Mapping[int, Constant]) -> Iterator[GraphTensor]:
    """Give every reading of integers with steps and zeros that they meet in the graph.

    Args:
        constant: The integers.
        known: All constants, by the identity of their values.
    """
    met = _met(constant.value, known)
    for layout in _layouts(constant):
        levels = _Levels(layout)
        for step in met:
            relative = ROUNDINGS.get(step.content.dtype.name, ("", 0.0))[1]
            for shape, size in _groupings(step, layout):
                for zero_name, zero in _zeros(met, layout, size.shape):
                    steps = levels.steps(shape, size, zero, relative)
                    if steps is not None:
                        uses = frozenset({step.name, zero_name} - {""})
                        stored, precision = layout.stored.reshape(shape), PRECISIONS[layout.bits]
                        yield layout.finished(GraphTensor(constant.name, stored, precision, steps, uses))


def nearest_step(constant: Constant, known: Mapping[int, Constant]) -> str:
    """Name the first constant that may be the step of integers, so that it is not taken for a weight; or none."""
    layouts = list(_layouts(constant))
    met = _met(constant.value, known)
    return next((step.name for step in met for layout in layouts if any(True for _ in _groupings(step, layout))), "")


class _Levels:
    """The least and largest integers of a layout by group, computed once for each way of grouping."""

    def __init__(self, layout: _Layout) -> None:
        self._layout = layout
        self._known: dict[tuple[Shape, Shape], tuple[Floats, Floats]] = {}

    def steps(self, shape: Shape, size: Floats, zero: Floats, relative: float) -> Steps | None:
        """Make the steps of integers in a shape; None where a group does not use the levels that it has."""
        if not (np.isfinite(size).all() and (size > 0).all()):
            return None
        axes = tuple(axis for axis, extent in enumerate(size.shape) if extent == 1)
        if (shape, axes) not in self._known:
            stored = self._layout.stored.reshape(shape)
            least, most = stored.min(axis=axes, keepdims=True), stored.max(axis=axes, keepdims=True)
            self._known[shape, axes] = least.astype(np.float32), most.astype(np.float32)
        least, most = self._known[shape, axes]
        levels = np.maximum(np.abs(least - zero), np.abs(most - zero))
        if not levels.any() or np.any((levels > 0) & (levels < LEAST_LEVELS[self._layout.bits])):
            return None
        half = np.where(levels == 0, 0.0, size * np.float32(0.5 + SLACK)).astype(np.float32)
        wide = WIDE_INTEGERS if self._layout.bits == 32 else 0.0
        return Steps(size, zero, half, relative + wide)


def _layouts(constant: Constant) -> Iterator[_Layout]:
    name = constant.content.dtype.name
    small = np.int8 if name == "int4" else np.uint8
    stored: NDArray[Any] = constant.content.astype(small) if BITS[name] == 4 else constant.content
    yield _Layout(stored, BITS[name])
    for node in constant.value.consumers():
        bits, columns = _integer(node, "bits"), _integer(node, "K")
        if bits in (4, 8) and name == "uint8":
            unpacked = graph_file.unpack_nibbles(stored) if bits == 4 else stored
            yield _Layout(unpacked, bits, 1 << (bits - 1), columns)


def _integer(node: ir.Node, name: str) -> int | None:
    attribute = node.attributes.get(name)
    return attribute.as_int() if attribute is not None and attribute.type is ir.AttributeType.INT else None


def _met(value: ir.Value, known: Mapping[int, Constant]) -> list[Constant]:
    """List the constants that a value meets on its way, nearest first."""
    found: dict[str, Constant] = {}
    seen, frontier = {id(value)}, [value]
    for _ in range(HOPS):
        following = []
        for current in frontier:
            for node in current.consumers():
                for other in node.inputs:
                    if other is not None and id(other) not in seen:
                        found |= {constant.name: constant for constant in _behind(other, known, STEPS_BEHIND)}
                following += [output for output in node.outputs if id(output) not in seen]
        seen |= {id(output) for output in following}
        frontier = following
    return list(found.values())


def _behind(value: ir.Value, known: Mapping[int, Constant], nodes: int) -> Iterator[Constant]:
    """Give the constant that a value is, or those that it is computed from."""
    producer = value.producer()
    if id(value) in known:
        yield known[id(value)]
    elif nodes and producer is not None:
        for source in producer.inputs:
            if source is not None:
                yield from _behind(source, known, nodes - 1)


def _zeros(met: list[Constant], layout: _Layout, grouping: Shape) -> Iterator[tuple[str, Floats]]:
    """Give what may stand for zero: the layout's own, integers, and floats that hold whole numbers, of either sign."""
    whole = (1,) * len(grouping)
    yield "", np.full(whole, layout.zero, np.float32)
    for constant in met:
        name = constant.content.dtype.name
        if name not in BITS and name not in ROUNDINGS:
            continue
        numbers = constant.content.astype(np.float32)
        if name == "uint8" and layout.is_packed:
            numbers = _unpacked_zeros(constant.content, grouping).astype(np.float32)
        if numbers.size not in (1, math.prod(grouping)) or not _are_zeros(numbers):
            continue
        zero = numbers.reshape(whole if numbers.size == 1 else grouping)
        yield constant.name, zero
        if name in ROUNDINGS:
            yield constant.name, -zero


def _are_zeros(numbers: Floats) -> bool:
    return np.array_equal(numbers, np.rint(numbers)) and 0 < np.abs(numbers).max(initial=0) <= LARGEST_ZERO


def _unpacked_zeros(packed: NDArray[np.uint8], grouping: Shape) -> NDArray[np.uint8]:
    """Take the zeros of blocks (N, blocks, 1) out of bytes, of which each row begins with a new one."""
    rows, blocks = grouping[:2]
    if packed.size != rows * math.ceil(blocks / 2):
        return packed
    return graph_file.unpack_nibbles(packed.reshape(rows, -1))[:, :blocks]


def _groupings(step: Constant, layout: _Layout) -> Iterator[tuple[Shape, Floats]]:
    """Give the ways in which a constant can be the steps of integers: of all, along a dimension, or of blocks.

    Returns:
        For each, a shape of the integers, and the steps in as many dimensions, each of them whole or 1.
    """
    values, shape = step.content, layout.stored.shape
    if values.dtype.name not in ROUNDINGS or values.size >= layout.stored.size:
        return
    size = values.astype(np.float32)
    if size.size == 1:
        yield shape, size.reshape((1,) * len(shape))
        return
    if size.ndim == len(shape) and all(own in (1, whole) for own, whole in zip(size.shape, shape, strict=True)):
        yield shape, size
    elif size.ndim == len(shape) == 2:
        yield from _blocks(size, shape)
    if size.ndim == 1:
        for axis, extent in enumerate(shape):
            if extent == size.size:
                yield shape, size.reshape(tuple(extent if index == axis else 1 for index in range(len(shape))))
    if len(shape) == 3 and size.size == math.prod(shape[:2]):
        yield shape, size.reshape(*shape[:2], 1)


def _blocks(size: Floats, shape: Shape) -> Iterator[tuple[Shape, Floats]]:
    """Give steps of blocks within columns, (K / block, N) for (K, N), or within rows, as the extents say."""
    (rows, columns), (step_rows, step_columns) = shape, size.shape
    if step_columns == columns and step_rows > 1 and rows % step_rows == 0:
        yield (step_rows, rows // step_rows, columns), size[:, None, :]
    if step_rows == rows and step_columns > 1 and columns % step_columns == 0:
        yield (rows, step_columns, columns // step_columns), size[:, :, None]
