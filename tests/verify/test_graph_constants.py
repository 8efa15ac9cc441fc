"""Constants are those that an answer depends on: initializers, Constant nodes, branches, files beside the graph."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from vela.verify import graph_file
from vela.verify.static import graph_constants

ONES = np.ones(3, np.float32)


def write(path: Path, nodes: list[onnx.NodeProto], initializers: list[onnx.TensorProto]) -> graph_file.GraphFile:
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    targets = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("y", "z")]
    made = helper.make_graph(nodes, "g", [source], targets, initializers)
    opsets = [helper.make_opsetid("", 21)]
    path.write_bytes(helper.make_model(made, opset_imports=opsets, ir_version=10).SerializeToString())
    return graph_file.GraphFile.read(path)


def names(graph: graph_file.GraphFile, *outputs: str) -> set[str]:
    return {constant.name for constant in graph_constants.constants_behind(graph, outputs)}


def test_only_what_an_output_depends_on_is_collected(tmp_path):
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(ONES))
    nodes = [
        constant,
        helper.make_node("Add", ["x", "a"], ["s"]),
        helper.make_node("Mul", ["s", "c"], ["y"]),
        helper.make_node("Mul", ["x", "b"], ["z"]),
    ]
    stored = [numpy_helper.from_array(ONES, name) for name in ("a", "b", "unused")]

    graph = write(tmp_path / "g.onnx", nodes, stored)

    assert names(graph, "y") == {"a", "c"}
    assert names(graph, "z") == {"b"}
    assert names(graph, "y", "z") == {"a", "b", "c"}


def test_constants_within_branches_are_collected(tmp_path):
    branches = {}
    for name in ("then_branch", "else_branch"):
        node = helper.make_node("Mul", ["outer", f"{name}_w"], [f"{name}_out"])
        target = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [3])
        branches[name] = helper.make_graph([node], name, [], [target], [numpy_helper.from_array(ONES, f"{name}_w")])
    nodes = [
        helper.make_node("If", ["flag"], ["y"], **branches),
        helper.make_node("Identity", ["x"], ["z"]),
    ]
    stored = [numpy_helper.from_array(np.array(True), "flag"), numpy_helper.from_array(ONES, "outer")]

    graph = write(tmp_path / "g.onnx", nodes, stored)

    assert names(graph, "y") == {"flag", "outer", "then_branch_w", "else_branch_w"}
    assert names(graph, "z") == set()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (TensorProto.INT4, [-8, -1, 0, 3, 7]),
        (TensorProto.UINT4, [0, 15, 8, 1, 2]),
        (TensorProto.FLOAT16, [0.5, -2.0, 0.0, 1.0, 3.0]),
        (TensorProto.BFLOAT16, [0.5, -2.0, 0.0, 1.0, 3.0]),
    ],
)
def test_numbers_of_a_file_beside_the_graph_are_read_as_they_are(tmp_path, kind, values):
    inline = helper.make_tensor("w", kind, [5], values)
    content = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(inline), "w").raw_data
    (tmp_path / "data").write_bytes(b"\0" * 8 + content)
    outside = onnx.TensorProto(name="w", data_type=kind, dims=[5], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "data"), ("offset", "8"), ("length", str(len(content)))):
        outside.external_data.add(key=key, value=value)
    nodes = [
        helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Slice", ["f", "zero", "three"], ["y"]),
        helper.make_node("Identity", ["x"], ["z"]),
    ]
    ends = [numpy_helper.from_array(np.array([end]), name) for name, end in (("zero", 0), ("three", 3))]

    graph = write(tmp_path / "g.onnx", nodes, [outside, *ends])

    found = {constant.name: constant for constant in graph_constants.constants_behind(graph, ["y"])}["w"].content
    assert found.dtype.name == helper.tensor_dtype_to_np_dtype(kind).name
    assert found.astype(np.float32).tolist() == values
