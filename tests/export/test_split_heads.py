"""Heads that would only be joined again are not split; whoever wants them split gets them so."""

import numpy as np
import onnx_ir as ir
import pytest

from vela.export import attention
from vela.export.passes import graph_writer, split_heads

HEADS, WIDTH = 2, 3
FLOAT = ir.TensorType(ir.DataType.FLOAT)


def value_of(name: str, *shape: int | str) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=FLOAT)


@pytest.fixture
def graph() -> ir.Graph:
    """A symbolic attention (B, T, 2, 3) beside what stands in its place, (B, T, 6)."""
    joined, shape = value_of("joined", "b", "t", HEADS * WIDTH), value_of("shape", 3)
    node = ir.node(
        attention.GLOBAL, [joined], {"heads": HEADS, "width": WIDTH}, domain=attention.SYMBOLIC_DOMAIN, name="attended"
    )
    node.outputs[0].shape, node.outputs[0].type = ir.Shape(("b", "t", HEADS, WIDTH)), FLOAT
    return ir.Graph([joined, shape], [], nodes=[node], opset_imports={"": 18})


def add_user(graph: ir.Graph, kind: str, *shape: int | str) -> ir.Node:
    """Let somebody use the attention's output, and be the next output of the graph."""
    inputs = [graph[0].outputs[0], graph.inputs[1]] if kind == "Reshape" else [graph[0].outputs[0]]
    node = ir.node(kind, inputs)
    node.outputs[0].shape, node.outputs[0].type = ir.Shape(shape), FLOAT
    node.outputs[0].name = f"out{len(graph.outputs)}"
    graph.append(node)
    graph.outputs.append(node.outputs[0])
    return node


def put(graph: ir.Graph) -> ir.Value:
    found = split_heads.split_heads(graph, graph[0], graph.inputs[0])
    graph_writer.replace(graph, next(node for node in graph if node.domain), found)
    return found


def test_who_joins_the_heads_gets_them_joined(graph) -> None:
    add_user(graph, "Reshape", "b", "t", HEADS * WIDTH)

    assert put(graph) is graph.inputs[0]
    assert list(graph) == []
    assert graph.outputs[0] is graph.inputs[0]


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("Identity", ("b", "t", HEADS, WIDTH)),
        ("Reshape", ("t", "b", HEADS * WIDTH)),  # other numbers in a row
        ("Reshape", ("b", "t", HEADS, WIDTH)),
        ("Reshape", ("b", "t", 3, 2)),
        ("Reshape", ("n", HEADS * WIDTH)),
        ("Transpose", ("b", "t", HEADS * WIDTH)),
    ],
)
def test_who_wants_anything_else_gets_them_split(graph, kind, shape) -> None:
    user = add_user(graph, kind, *shape)

    split = put(graph)

    made = split.producer()
    assert made.op_type == "Reshape"
    assert made.inputs[0] is graph.inputs[0]
    assert made.inputs[1].producer().attributes["value"].as_tensor().numpy().tolist() == [0, 0, HEADS, WIDTH]
    assert user.inputs[0] is split


def test_each_of_several_users_gets_what_it_wants(graph) -> None:
    add_user(graph, "Reshape", "b", "t", HEADS * WIDTH)
    other = add_user(graph, "Identity", "b", "t", HEADS, WIDTH)

    split = put(graph)

    assert graph.outputs[0] is graph.inputs[0]
    assert other.inputs[0] is split
    assert [node.op_type for node in graph] == ["Constant", "Reshape", "Identity"]


def test_a_shape_that_is_not_known_is_no_reason(graph) -> None:
    user = add_user(graph, "Reshape", "b", "t", HEADS * WIDTH)
    user.outputs[0].shape = None

    assert put(graph).producer().op_type == "Reshape"
    assert np.array_equal([node.op_type for node in graph], ["Constant", "Reshape", "Reshape"])
