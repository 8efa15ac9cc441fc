"""Graphs that read files of others are refused without the onnx package, whatever their bytes are."""

from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vela.graphs import errors
from vela.serve import external_paths


def tensor_at(location: str) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[1])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def graph_with(tensor: onnx.TensorProto, place: str) -> onnx.ModelProto:
    """Put a tensor where a graph may have one."""
    node = onnx.helper.make_node("Identity", ["w"], ["y"])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], []))
    match place:
        case "initializer":
            model.graph.initializer.append(tensor)
        case "constant":
            model.graph.node.append(onnx.helper.make_node("Constant", [], ["w"], value=tensor))
        case "tensors":
            model.graph.node.append(onnx.helper.make_node("Many", [], ["w"], values=[tensor]))
        case "subgraph":
            inner = onnx.helper.make_graph([], "inner", [], [], initializer=[tensor])
            model.graph.node.append(onnx.helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner))
        case "sparse":
            model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=tensor, dims=[1]))
        case "function":
            inside = onnx.helper.make_node("Constant", [], ["w"], value=tensor)
            opsets = [onnx.helper.make_opsetid("", 18)]
            model.functions.append(onnx.helper.make_function("d", "f", [], ["w"], [inside], opsets))
        case _:
            raise ValueError(place)
    return model


PLACES = ("initializer", "constant", "tensors", "subgraph", "sparse", "function")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../other/weights.bin", "sub/weights.bin", "", "..", "missing.bin"]
)
def test_a_location_that_is_no_file_beside_is_refused(tmp_path: Path, place: str, location: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(graph_with(tensor_at(location), place).SerializeToString())

    with pytest.raises(errors.GraphError, match="weights in files that lie beside the graph"):
        external_paths.require_beside(path)


@pytest.mark.parametrize("place", PLACES)
def test_a_file_beside_is_taken_and_a_link_is_not(tmp_path: Path, place: str) -> None:
    path, weights = tmp_path / "model.onnx", tmp_path / "weights.bin"
    path.write_bytes(graph_with(tensor_at("weights.bin"), place).SerializeToString())
    weights.write_bytes(bytes(4))

    external_paths.require_beside(path)

    weights.rename(tmp_path / "elsewhere.bin")
    weights.symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(errors.GraphError, match=r"weights\.bin"):
        external_paths.require_beside(path)


def test_the_graphs_of_a_bundle_read_its_weights_and_nothing_else(bags: dict[str, Path]) -> None:
    graphs = [path for folder in bags.values() for path in folder.glob("*.onnx")]

    assert graphs
    for path in graphs:
        external_paths.require_beside(path)


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        found = list(external_paths.locations(content))
    except ValueError:
        return
    assert all(isinstance(name, str) for name in found)


def test_a_graph_nested_without_end_is_refused(tmp_path: Path) -> None:
    content = b""
    for _ in range(200):  # a graph in an attribute of a node of a graph, each around the last
        for field in (6, 5, 1):
            size = len(content)
            length = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
            content = bytes([field << 3 | 2]) + length + content
    content = bytes([7 << 3 | 2]) + bytes([len(content) & 0x7F | 0x80, len(content) >> 7]) + content
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    with pytest.raises(errors.GraphError, match="nested"):
        external_paths.require_beside(path)
