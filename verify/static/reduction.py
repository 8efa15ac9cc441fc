"""Is a 16-bit copy the FP32 graph of its shape, but for its casts: so that only roundings are left to judge.

Answers of a copy cannot show a small mistake, since every answer moves. But a copy is its FP32 graph with casts between
its nodes, and that graph is proven to the last digits; so the two are walked through together. What is neither a cast
nor the same node on the same values is another computation, whatever it answers. And nothing is rounded but what words
reach, and what meets them: a position or a distance in 16 bits would be another window, or another turn.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from vela.graphs import causes, contract, errors, precision
from vela.verify import graph_file

TYPES: Mapping[contract.Precision, ir.DataType] = {"fp16": ir.DataType.FLOAT16, "bf16": ir.DataType.BFLOAT16}
# Operators that a copy is made for: most of the time goes into them.
PRODUCTS = frozenset({"Attention", "FusedMatMul", "Gemm", "MatMul", "MultiHeadAttention"})


def check_reduction(reduced: graph_file.GraphFile, exact: graph_file.GraphFile, kind: contract.Precision) -> str:
    """Compare a copy with the graph that it says it is.

    Args:
        reduced: The copy.
        exact: The FP32 graph of its shape.
        kind: `fp16` or `bf16`.

    Raises:
        GraphError: a node, a tensor, an input or an output is another, or most products are not rounded.
    """
    for graph in (reduced, exact):
        if graph.model.functions:
            raise _refused(graph, f"{len(graph.model.functions)} functions of its own", "operators alone")
    if dict(reduced.model.graph.opset_imports) != dict(exact.model.graph.opset_imports):
        raise _refused(reduced, f"{dict(reduced.model.graph.opset_imports)}", f"the operators of {exact.path.name}")
    casts = _Walk(reduced, exact, kind).compare()
    products = [node for node in reduced.model.graph if node.op_type in PRODUCTS]
    rounded = sum(all(_is_rounded(value, kind) for value in node.inputs[:2]) for node in products)
    if 2 * rounded <= len(products):
        found = f"{rounded} of {len(products)} products in {kind}"
        raise _refused(reduced, found, "most of them, since the file says that it computes in it", "precision")
    return f"{exact.path.name} with {casts} casts, {rounded} of its {len(products)} products in {kind}"


class _Walk:
    """Both graphs, node by node; what corresponds to what so far."""

    def __init__(self, reduced: graph_file.GraphFile, exact: graph_file.GraphFile, kind: contract.Precision) -> None:
        self._reduced = reduced
        self._exact = exact
        self._kind = kind
        self._same: dict[ir.Value, ir.Value] = {}  # of the copy, to the FP32 graph's
        self._rounded: set[ir.Value] = set()  # of the copy: cast, to 16 bits or back
        self._worded: set[ir.Value] = set()  # of the FP32 graph: depends on the words

    def compare(self) -> int:
        """Compare everything; give how many casts there are."""
        self._compare_constants()
        self._compare_edges("inputs")
        casts = 0
        waiting = iter(self._exact.model.graph)
        expected = next(waiting, None)
        for node in self._reduced.model.graph:
            if expected is not None and self._is_same(node, expected):
                self._follow_words(node, expected)
                self._same.update(zip(node.outputs, expected.outputs, strict=True))
                expected = next(waiting, None)
            elif self._is_rounding(node):
                casts += 1
                self._same[node.outputs[0]] = self._same[node.inputs[0]]
                self._rounded.add(node.outputs[0])
            else:
                wanted = "no more nodes" if expected is None else _describe(expected)
                raise _refused(self._reduced, _describe(node), f"{wanted}, as {self._exact.path.name} has it")
        if expected is not None:
            raise _refused(self._reduced, "fewer nodes", f"{_describe(expected)}, as {self._exact.path.name} has it")
        self._compare_edges("outputs")
        return casts

    def _follow_words(self, node: ir.Node, expected: ir.Node) -> None:
        """Follow what words reach, and refuse a node that they do not reach where it is given what was rounded."""
        if any(value in self._worded for value in expected.inputs):
            self._worded.update(expected.outputs)
        elif any(value in self._rounded for value in node.inputs):
            raise _refused(self._reduced, f"{_describe(node)} on rounded numbers", "it as it is: words do not reach it")

    def _compare_constants(self) -> None:
        first, second = self._reduced, self._exact
        if first.external != second.external:
            names = [name for name in first.external | second.external if self._differ(name)]
            raise _refused(first, f"{len(names)} other references such as {names[0]}", "the same weights, by reference")
        mine, theirs = first.model.graph.initializers, second.model.graph.initializers
        for name in sorted({*mine, *theirs}):
            is_known = name in mine and name in theirs
            if not is_known or (name in first.inline and not self._is_same_table(name)):
                raise _refused(first, f"another tensor {name}", f"that of {second.path.name}")
            self._same[mine[name]] = theirs[name]

    def _differ(self, name: str) -> bool:
        return self._reduced.external.get(name) != self._exact.external.get(name)

    def _is_same_table(self, name: str) -> bool:
        actual, expected = self._reduced.inline[name], self._exact.inline.get(name)
        if expected is None or actual.dtype != expected.dtype or actual.shape != expected.shape:
            return False
        if expected.dtype == np.float32:
            expected = precision.bound_hidden(expected, self._kind)
        return bool(np.array_equal(actual, expected))

    def _compare_edges(self, which: str) -> None:
        mine, theirs = getattr(self._reduced, which), getattr(self._exact, which)
        if mine != theirs:
            raise _refused(self._reduced, f"other {which}", f"those of {self._exact.path.name}")
        pairs = zip(getattr(self._reduced.model.graph, which), getattr(self._exact.model.graph, which), strict=True)
        for mine, theirs in pairs:
            if which == "inputs":
                self._same[mine] = theirs
                self._worded.update({theirs} if theirs.name == contract.INPUT_IDS else ())
            elif self._same.get(mine) is not theirs:
                raise _refused(self._reduced, f"{mine.name} of another value", f"that of {self._exact.path.name}")

    def _is_same(self, node: ir.Node, expected: ir.Node) -> bool:
        return (
            node.op_identifier() == expected.op_identifier()
            and len(node.outputs) == len(expected.outputs)
            and len(node.inputs) == len(expected.inputs)
            and all(
                mine is theirs if mine is None else self._same.get(mine) is theirs
                for mine, theirs in zip(node.inputs, expected.inputs, strict=True)
            )
            and dict(_attributes(node)) == dict(_attributes(expected))
        )

    def _is_rounding(self, node: ir.Node) -> bool:
        """Say whether a node casts to the reduced type or back.

        A cast of the FP32 graph is that graph's node, and was looked for before.
        """
        is_known = len(node.inputs) == len(node.outputs) == 1 and node.inputs[0] in self._same
        return is_known and cast_to(node) in (TYPES[self._kind], ir.DataType.FLOAT)


def _is_rounded(value: ir.Value | None, kind: contract.Precision) -> bool:
    """Say whether a value is of the reduced type: cast to it, or made from what is."""
    waiting, seen = [value], set[ir.Value]()
    while waiting:
        value = waiting.pop()
        node = None if value is None else value.producer()
        if node is None or not node.inputs:
            return False  # an input or a tensor of the file: those are never of the reduced type
        if node.op_type == "Cast":
            return bool(cast_to(node) == TYPES[kind])
        if value is not None and value not in seen:
            seen.add(value)
            waiting.append(node.inputs[0])  # what computes or moves numbers gives its first input's type
    return False


def cast_to(node: ir.Node) -> ir.DataType:
    """Give the type that a node casts to; that of no type for other nodes."""
    if node.op_type != "Cast" or node.domain:
        return ir.DataType.UNDEFINED
    try:
        return ir.DataType(node.attributes["to"].as_int())
    except (KeyError, TypeError, ValueError):
        return ir.DataType.UNDEFINED  # of no type that ONNX knows: its checker says so


def _attributes(node: ir.Node) -> Iterator[tuple[str, Any]]:
    for name, attribute in node.attributes.items():
        value = attribute.value
        if isinstance(value, ir.TensorProtocol):
            value = (value.dtype, value.numpy().tobytes())
        yield name, tuple(value) if isinstance(value, list) else value


def _describe(node: ir.Node) -> str:
    return f"node {node.name!r} ({node.domain or 'ai.onnx'}.{node.op_type})"


def _refused(
    graph: graph_file.GraphFile, found: str, expected: str, cause: causes.Cause = "other computation"
) -> errors.GraphError:
    return errors.GraphError(
        found,
        expected=expected,
        where=graph.path.name,
        fix="It is no 16-bit copy of that graph: export the bundle again with --reduced.",
        cause=cause,
    )
