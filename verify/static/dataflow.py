"""Where the values of a graph's inputs go: ids only into the table of words, the mask only into attention.

A graph may hold every tensor of its checkpoint and still answer otherwise on one rare token, or move an answer a
little with every pad. No finite corpus says that token; the graph itself does, since its ids then reach an operator
besides the lookup.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import onnx_ir as ir

from vela.graphs import errors
from vela.verify import graph_file

IDS, MASK = "input_ids", "attention_mask"
# Operators that pass values on as they are, in another type or shape.
CARRIERS = frozenset({"Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
SIZES = frozenset({"Shape", "Size"})  # read no value
# The operand by which a table is looked up. Source: ONNX's operators; ONNX Runtime's contrib operators.
LOOKUPS = {"Gather": 1, "GatherBlockQuantized": 1, "EmbedLayerNormalization": 0}
ATTENTIONS = frozenset({"Attention", "MultiHeadAttention", "QAttention", "Softmax"})
WEIGHINGS = frozenset({"Div", "Einsum", "FusedMatMul", "Gemm", "MatMul", "Mul"})  # of a mean over states
NAMED = 3  # nodes that a message names


MaskUse = Literal["attention", "mean"]
_READERS = {"attention": "attention alone", "mean": "attention and a mean over tokens alone"}


@dataclass(frozen=True, slots=True)
class _Flow:
    """A model whose values are followed into the functions that it calls, and out of them and of subgraphs.

    Attributes:
        functions: The model's own, by domain and name.
        beyond: What a function or a subgraph gives, to what the nodes that hold it give.
    """

    functions: Mapping[ir.OperatorIdentifier, ir.Function]
    beyond: Mapping[ir.Value, Sequence[ir.Value]]

    @classmethod
    def of(cls, model: ir.Model) -> Self:
        """Look up who calls what."""
        beyond: dict[ir.Value, list[ir.Value]] = {}
        for graph in (model.graph, *(function.graph for function in model.functions.values())):
            for node in graph.all_nodes():
                called = model.functions.get(node.op_identifier())
                for inner in (*graph_file.graphs_of(node), *([called] if called else [])):
                    for value in inner.outputs:
                        beyond.setdefault(value, []).extend(node.outputs)
        return cls(model.functions, beyond)

    def uses(self, value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
        """Give the operators that take a value, and in which place; those inside a function in place of its call."""
        for use in value.uses():
            called = self.functions.get(use.node.op_identifier())
            if called is None:
                yield use.node, use.idx
            else:
                yield from self.uses(called.inputs[use.idx])

    def reached(self, start: ir.Value, carried: Callable[[ir.Node, int], bool]) -> set[ir.Value]:
        """Give the values that a value goes into, through all operators that carry it."""
        found: set[ir.Value] = set()
        waiting = [start]
        while waiting:
            value = waiting.pop()
            if value in found:
                continue
            found.add(value)
            waiting += self.beyond.get(value, ())
            for node, place in self.uses(value):
                waiting += node.outputs if node.op_type not in SIZES and carried(node, place) else ()
        return found


def check_dataflow(graph: graph_file.GraphFile, mask_use: MaskUse | None) -> str:
    """Check that ids reach nothing but a lookup, and that the mask reaches the answer through attention alone.

    Args:
        graph: The parsed graph.
        mask_use: What reads the mask: `attention` alone, or a mean over tokens too; None where the mask is not
            followed, as in graphs of exporters that use it in ways of their own.

    Raises:
        GraphError: naming the nodes that take what they should not.
    """
    flow = _Flow.of(graph.model)
    inputs = {str(value.name): value for value in graph.model.graph.inputs}
    ids, mask = inputs.get(IDS), inputs.get(MASK)
    lookups, readers = _uses_of_ids(flow, ids) if ids is not None else ([], [])
    found = [f"{IDS} reach node {node.name!r} ({node.op_type}), no lookup" for node in readers]
    if not lookups:
        found.append(f"no table that {IDS} look up")
    detail = f"{IDS} only look up tables ({len(lookups)})"
    if mask_use is not None and ids is not None and mask is not None:
        detail += f", {MASK} is read by {_READERS[mask_use]}"
        states = flow.reached(ids, lambda node, place: True) if mask_use == "mean" else set()
        found += [f"{MASK} reaches {output} around attention" for output in _around_attention(flow, mask, states)]
    if found:
        raise errors.GraphError(
            "; ".join(found[:NAMED]) + (f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""),
            expected=f"ids that only look up the table of words, a mask read by {_READERS[mask_use or 'attention']}",
            where=graph.path.name,
            fix="The graph computes something besides its checkpoint: find out who wrote it, and export it again.",
        )
    return detail


def _uses_of_ids(flow: _Flow, ids: ir.Value) -> tuple[list[ir.Node], list[ir.Node]]:
    """Give the nodes that look ids up, and those that read them as anything else."""
    lookups: dict[ir.Node, None] = {}
    readers: dict[ir.Node, None] = {}
    for value in flow.reached(ids, lambda node, place: node.op_type in CARRIERS and place == 0):
        for node, place in flow.uses(value):
            if LOOKUPS.get(node.op_type) == place:
                lookups[node] = None
            elif node.op_type not in SIZES and (node.op_type not in CARRIERS or place):
                readers[node] = None
    return [*lookups], sorted(readers, key=lambda node: str(node.name))


def _around_attention(flow: _Flow, mask: ir.Value, states: Collection[ir.Value]) -> list[str]:
    """Give the outputs that the mask reaches neither through a softmax over keys nor as the weight of states."""

    def carried(node: ir.Node, place: int) -> bool:
        others = [value for index, value in enumerate(node.inputs) if index != place]
        is_weight = node.op_type in WEIGHINGS and any(value in states for value in others)
        return not is_weight and node.op_type not in ATTENTIONS

    return sorted(str(value.name) for value in flow.reached(mask, carried) if value.is_graph_output())
