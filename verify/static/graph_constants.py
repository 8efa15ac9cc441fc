"""The constants of a graph from which an answer is computed: initializers, Constant nodes, external data.

A tensor that no output depends on proves nothing: the right weights could lie in a file unused, beside the ones that
it computes with. So constants are collected backwards from the output that is judged, and no other is looked at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from vela.verify import graph_file


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant.

    Attributes:
        name: Of the value that it gives.
        value: That value, by which its users are found.
        content: Its numbers; external data is mapped, not read.
    """

    name: str
    value: ir.Value
    content: NDArray[Any]


def constants_behind(graph: graph_file.GraphFile, outputs: Sequence[str]) -> list[Constant]:
    """Collect the constants that outputs are computed from, each once, in the file's order.

    Args:
        graph: The parsed graph.
        outputs: Names of its outputs.
    """
    reached = _reached([value for value in graph.model.graph.outputs if value.name in outputs], graph.model)
    found = {}
    for value in _values(graph.model):
        name = str(value.name)
        if id(value) in reached and name not in found and (name in graph.inline or name in graph.external):
            content = graph.inline[name] if name in graph.inline else graph.read_external(name)
            found[name] = Constant(name, value, content)
    return list(found.values())


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield from graph.initializers.values()
        for node in graph.all_nodes():
            for inner in graph_file.graphs_of(node):
                yield from inner.initializers.values()
            yield from node.outputs


def _reached(outputs: Sequence[ir.Value], model: ir.Model) -> set[int]:
    """Give the identities of all values that outputs depend on, through subgraphs and functions too."""
    reached, waiting = set(), list(outputs)
    while waiting:
        value = waiting.pop()
        if id(value) in reached:
            continue
        reached.add(id(value))
        node = value.producer()
        if node is not None:
            waiting += [source for source in node.inputs if source is not None]
            waiting += [output for inner in graph_file.graphs_of(node) for output in inner.outputs]
            if node.op_identifier() in model.functions:
                waiting += model.functions[node.op_identifier()].outputs
    return reached
