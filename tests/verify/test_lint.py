"""Each construct that MIGraphX's provider would answer with a silent CPU run is planted and refused by name."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from vela.graphs import errors
from vela.verify import graph_file
from vela.verify.static import lint


def make_graph(path: Path, nodes: list, *, shape: tuple = (1, 4), opset: int = 18, domains: tuple = ()) -> Path:
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [value], [output])
    path.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString())
    return path


def lint_file(path: Path, target: str = "portable") -> str:
    return lint.lint_graph(graph_file.GraphFile.read(path), target)


def test_plain_operators_of_fixed_shape_pass(tmp_path):
    path = make_graph(tmp_path / "g.onnx", [helper.make_node("Tanh", ["x"], ["y"], "n1")])

    assert "1 nodes" in lint_file(path)


@pytest.mark.parametrize(
    "operator",
    ["IsNaN", "IsInf", "RMSNormalization", "Attention", "RotaryEmbedding", "Trilu", "Loop", "NonZero", "LSTM"],
)
def test_an_operator_that_the_provider_does_not_take_is_named_with_its_rule(tmp_path, operator):
    path = make_graph(tmp_path / "g.onnx", [helper.make_node(operator, ["x"], ["y"], "planted")])

    with pytest.raises(errors.GraphError, match=rf"planted.*{operator}.*rule"):
        lint_file(path)


@pytest.mark.parametrize("operator", ["MultiHeadAttention", "FusedMatMul", "RotaryEmbedding", "Gelu"])
def test_operators_of_other_domains_are_refused_in_portable_graphs_and_taken_in_ort_graphs(tmp_path, operator):
    node = helper.make_node(operator, ["x"], ["y"], "planted", domain="com.microsoft")
    path = make_graph(tmp_path / "g.onnx", [node], domains=("com.microsoft",))

    with pytest.raises(errors.GraphError, match=r"planted.*ai\.onnx only"):
        lint_file(path)
    assert lint_file(path, "ort")


@pytest.mark.parametrize("operator", ["Attention", "GroupQueryAttention", "BiasSplitGelu", "BiasGelu"])
def test_an_operator_of_com_microsoft_that_export_does_not_write_is_refused_everywhere(tmp_path, operator):
    node = helper.make_node(operator, ["x"], ["y"], "planted", domain="com.microsoft")
    path = make_graph(tmp_path / "g.onnx", [node], domains=("com.microsoft",))

    with pytest.raises(errors.GraphError, match=rf"planted.*{operator}.*of com\.microsoft only FusedMatMul"):
        lint_file(path, "ort")


@pytest.mark.parametrize("operator", ["IsNaN", "Loop", "NonZero", "RandomNormal"])
def test_an_operator_that_no_text_encoder_needs_is_refused_in_ort_graphs_too(tmp_path, operator):
    path = make_graph(tmp_path / "g.onnx", [helper.make_node(operator, ["x"], ["y"], "planted")])

    with pytest.raises(errors.GraphError, match=rf"planted.*{operator}"):
        lint_file(path, "ort")


def test_an_unknown_domain_is_refused_everywhere(tmp_path):
    node = helper.make_node("FlashAttention", ["x"], ["y"], "planted", domain="vendor.ck")
    path = make_graph(tmp_path / "g.onnx", [node], domains=("vendor.ck",))

    with pytest.raises(errors.GraphError, match=r"vendor\.ck"):
        lint_file(path, "ort")


def test_a_dynamic_dimension_is_refused(tmp_path):
    node = helper.make_node("Tanh", ["x"], ["y"], "n1")
    path = make_graph(tmp_path / "g.onnx", [node], shape=("batch", 4))

    with pytest.raises(errors.GraphError, match="every dimension fixed"):
        lint_file(path)


@pytest.mark.parametrize("opset", [16, 21, 23])
def test_another_opset_is_refused(tmp_path, opset):
    path = make_graph(tmp_path / "g.onnx", [helper.make_node("Tanh", ["x"], ["y"], "n1")], opset=opset)

    with pytest.raises(errors.GraphError, match=f"opset {opset}"):
        lint_file(path)


def with_external_weight(folder: Path, change: Callable[[onnx.TensorProto], None]) -> Path:
    """Write a graph whose one weight is external, its entry changed."""
    (folder / "w.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1, 4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "16"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    change(tensor)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4))
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"], "n1")], "g", [value], [output], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path = folder / "g.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_keys_in_order_pass(tmp_path):
    assert lint_file(with_external_weight(tmp_path, lambda tensor: None))


def test_external_data_keys_in_another_order_are_refused(tmp_path):
    def reorder(tensor: onnx.TensorProto) -> None:
        entries = [(entry.key, entry.value) for entry in tensor.external_data]
        del tensor.external_data[:]
        for key, value in (entries[0], entries[2], entries[1]):
            tensor.external_data.add(key=key, value=value)

    with pytest.raises(errors.GraphError, match="'w' with external-data keys"):
        lint_file(with_external_weight(tmp_path, reorder))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("location", "../w.bin", "no regular file inside"),
        ("location", "/etc/hostname", "no regular file inside"),
        ("location", "missing.bin", "no regular file inside"),
        ("offset", "20", "bytes 20 to 36 of a file of 32"),
        ("offset", "2", "not aligned"),
        ("length", "12", "12 bytes where its shape needs 16"),
    ],
)
def test_external_data_that_is_not_where_it_says_is_refused(tmp_path, key, value, message):
    def change(tensor: onnx.TensorProto) -> None:
        next(entry for entry in tensor.external_data if entry.key == key).value = value

    with pytest.raises(errors.GraphError, match=message):
        lint_file(with_external_weight(tmp_path, change))


def test_external_data_behind_a_symbolic_link_is_refused(tmp_path):
    path = with_external_weight(tmp_path, lambda tensor: None)
    (tmp_path / "w.bin").rename(tmp_path / "elsewhere.bin")
    (tmp_path / "w.bin").symlink_to(tmp_path / "elsewhere.bin")

    with pytest.raises(errors.GraphError, match="no regular file inside"):
        lint_file(path)


def test_external_data_behind_a_hard_link_is_read(tmp_path):
    path = with_external_weight(tmp_path, lambda tensor: None)
    (tmp_path / "second-name.bin").hardlink_to(tmp_path / "w.bin")

    graph = graph_file.GraphFile.read(path)

    assert graph.read_external("w").tolist() == [[4.0, 5.0, 6.0, 7.0]]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff" * 100])
def test_a_file_that_is_no_onnx_is_refused(tmp_path, content):
    path = tmp_path / "g.onnx"
    path.write_bytes(content)

    with pytest.raises(errors.GraphError):
        lint_file(path)


def test_constants_of_both_kinds_are_found(tmp_path):
    nodes = [
        helper.make_node("Constant", [], ["c"], "c1", value=numpy_helper.from_array(np.ones((1, 4), np.float32))),
        helper.make_node("Add", ["x", "c"], ["y"], "n1"),
    ]

    graph = graph_file.GraphFile.read(make_graph(tmp_path / "g.onnx", nodes))

    assert list(graph.inline) == ["c"]
