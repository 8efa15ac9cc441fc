"""Write operators into a graph before a node, under that node's scope names; what the attention passes build with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

Constant = int | float | list[int] | list[Any] | np.ndarray


class Writer:
    """Writes operators before a node, under its scope names."""

    def __init__(self, graph: ir.Graph, before: ir.Node) -> None:
        self._graph = graph
        self._before = before

    def op(self, kind: str, inputs: Sequence[ir.Value | None], domain: str = "", **attributes: Any) -> ir.Value:
        """Write one operator and give its first output."""
        return self.ops(kind, inputs, 1, domain, **attributes)[0]

    def ops(
        self, kind: str, inputs: Sequence[ir.Value | None], outputs: int, domain: str = "", **attributes: Any
    ) -> Sequence[ir.Value]:
        """Write one operator with several outputs."""
        node = ir.node(kind, inputs, attributes, domain=domain, num_outputs=outputs)
        node.metadata_props.update(self._before.metadata_props)
        self._graph.insert_before(self._before, node)
        return node.outputs

    def constant(self, value: Constant) -> ir.Value:
        """Write a constant: float32 where it is of floats, else int64."""
        array = np.asarray(value)
        kind = np.float32 if array.dtype.kind == "f" else np.int64
        return self.op("Constant", [], value=ir.tensor(array.astype(kind)))

    def reshape(self, value: ir.Value, shape: list[int]) -> ir.Value:
        """Reshape to fixed sizes; 0 keeps a size and -1 is inferred."""
        return self.op("Reshape", [value, self.constant(shape)])

    def reshape_to(self, value: ir.Value, *sizes: ir.Value | int) -> ir.Value:
        """Reshape to sizes of which some are (1,) int64 values of the graph."""
        parts = [self.constant([size]) if isinstance(size, int) else size for size in sizes]
        return self.op("Reshape", [value, self.op("Concat", parts, axis=0)])

    def range(self, count: ir.Value) -> ir.Value:
        """Count from 0: (count,) int64 for a (1,) count."""
        limit = self.op("Squeeze", [count, self.constant([0])])
        return self.op("Range", [self.constant(0), limit, self.constant(1)])

    def unsqueeze(self, value: ir.Value, *axes: int) -> ir.Value:
        """Add dimensions of size 1."""
        return self.op("Unsqueeze", [value, self.constant(list(axes))])


def replace(graph: ir.Graph, node: ir.Node, output: ir.Value) -> None:
    """Put an output in the place of a node's only one; the node is removed, and whatever led to it alone stays."""
    ir.convenience.replace_all_uses_with(node.outputs[0], output)
    graph.remove(node, safe=True)
