"""Integer weights are found whatever operators turn them into numbers, and only with the graph's own steps."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from vela.graphs import errors
from vela.verify import architecture, graph_file
from vela.verify.static import graph_constants, identity

ROWS, COLUMNS, BLOCK = 64, 32, 16
WEIGHT = np.random.default_rng(4).normal(0, 0.1, (ROWS, COLUMNS)).astype(np.float32)  # as a Linear layer keeps it
CONFIG = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32, "num_attention_heads": 2}
BERT = architecture.read_architecture(CONFIG)
Arrays = dict[str, np.ndarray]


def symmetric(values: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Quantise by the largest magnitude, of all or along all other dimensions than `axis`."""
    axes = None if axis is None else tuple(index for index in range(values.ndim) if index != axis)
    step = np.abs(values).max(axis=axes, keepdims=True).astype(np.float32) / np.float32(127)
    return np.rint(values / step).astype(np.int8), step


def asymmetric(values: np.ndarray) -> tuple[np.ndarray, np.float32, np.uint8]:
    """Quantise all numbers between the least and the largest to 0 to 255."""
    low, high = min(0.0, values.min()), max(0.0, values.max())
    step = np.float32((high - low) / 255)
    zero = np.uint8(np.rint(-low / step))
    return np.clip(np.rint(values / step) + zero, 0, 255).astype(np.uint8), step, zero


def cast_and_mul(axis: int | None) -> tuple[Arrays, list[onnx.NodeProto]]:
    stored, step = symmetric(WEIGHT.T, axis)
    nodes = [
        helper.make_node("Cast", ["q"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return {"q": stored, "s": step}, nodes


def cast_sub_and_mul() -> tuple[Arrays, list[onnx.NodeProto]]:
    stored, step, zero = asymmetric(WEIGHT.T)
    nodes = [
        helper.make_node("Cast", ["q"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["f", "z"], ["d"]),
        helper.make_node("Mul", ["d", "s"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return {"q": stored, "s": step, "z": np.float32(zero)}, nodes


def dequantize_linear(axis: int | None) -> tuple[Arrays, list[onnx.NodeProto]]:
    stored, step = symmetric(WEIGHT.T, axis)
    zero = np.zeros(step.size if axis is not None else (), np.int8)
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], **attributes),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return {"q": stored, "s": step.reshape(zero.shape), "z": zero}, nodes


def dequantize_with_zero() -> tuple[Arrays, list[onnx.NodeProto]]:
    stored, step, zero = asymmetric(WEIGHT.T)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return {"q": stored, "s": np.asarray(step), "z": np.asarray(zero)}, nodes


def gather_then_dequantize() -> tuple[Arrays, list[onnx.NodeProto]]:
    stored, step = symmetric(WEIGHT, None)
    nodes = [
        helper.make_node("Gather", ["q", "ids"], ["g"]),
        helper.make_node("DequantizeLinear", ["g", "s"], ["e"]),
        helper.make_node("MatMul", ["x", "e"], ["y"]),
    ]
    return {"q": stored, "s": step.reshape(()), "ids": np.arange(COLUMNS)[None]}, nodes


def matmul_integer() -> tuple[Arrays, list[onnx.NodeProto]]:
    stored, step = symmetric(WEIGHT.T, 1)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
        helper.make_node("MatMulInteger", ["xq", "q", "xz", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["xs", "s"], ["ss"]),
        helper.make_node("Mul", ["f", "ss"], ["y"]),
    ]
    return {"q": stored, "s": step.ravel(), "z": np.zeros(ROWS, np.int8)}, nodes


def blocks(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantise rows in blocks: (N, blocks, block) unsigned with a middle of 2^(bits - 1), and their steps."""
    blocked = WEIGHT.reshape(ROWS, COLUMNS // BLOCK, BLOCK)
    middle = 1 << (bits - 1)
    step = np.abs(blocked).max(axis=2, keepdims=True).astype(np.float32) / np.float32(middle - 1)
    return (np.rint(blocked / step) + middle).astype(np.uint8), step


def matmul_nbits(bits: int) -> tuple[Arrays, list[onnx.NodeProto]]:
    stored, step = blocks(bits)
    packed = stored if bits == 8 else stored[..., ::2] | (stored[..., 1::2] << 4)
    node = helper.make_node(
        "MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", K=COLUMNS, N=ROWS, bits=bits, block_size=BLOCK
    )
    return {"q": packed, "s": step.reshape(ROWS, -1)}, [node]


def int4_in_blocks() -> tuple[Arrays, list[onnx.NodeProto]]:
    stored, step = blocks(4)
    signed = (stored.astype(np.int8) - 8).reshape(ROWS, COLUMNS)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["t"], axis=1, block_size=BLOCK),
        helper.make_node("Transpose", ["t"], ["w"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return {"q": signed, "s": step.reshape(ROWS, -1)}, nodes


FORMS: dict[str, tuple[Callable[[], tuple[Arrays, list[onnx.NodeProto]]], str]] = {
    "Cast and Mul": (lambda: cast_and_mul(None), "int8"),
    "Cast and Mul by columns": (lambda: cast_and_mul(1), "int8"),
    "Cast, Sub and Mul": (cast_sub_and_mul, "int8"),
    "DequantizeLinear": (lambda: dequantize_linear(None), "int8"),
    "DequantizeLinear by columns": (lambda: dequantize_linear(1), "int8"),
    "DequantizeLinear with a zero": (dequantize_with_zero, "int8"),
    "Gather before DequantizeLinear": (gather_then_dequantize, "int8"),
    "MatMulInteger": (matmul_integer, "int8"),
    "MatMulNBits of 8 bits": (lambda: matmul_nbits(8), "int8"),
    "MatMulNBits of 4 bits": (lambda: matmul_nbits(4), "int4"),
    "4-bit integers in blocks": (int4_in_blocks, "int4"),
}


def write(path: Path, arrays: Arrays, nodes: list[onnx.NodeProto], form: str) -> Path:
    """Write a graph of one product."""
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in arrays.items()]
    if form == "4-bit integers in blocks":
        initializers[0] = helper.make_tensor("q", TensorProto.INT4, arrays["q"].shape, arrays["q"].ravel().tolist())
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", COLUMNS])
    target = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", None])
    graph = helper.make_graph(nodes, "g", [source], [target], initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    return path


def identify(path: Path, weight: np.ndarray = WEIGHT) -> identity.Identity:
    graph = graph_file.GraphFile.read(path)
    constants = graph_constants.constants_behind(graph, ["y"])
    return identity.identify_weights(constants, {"weight": weight}, {"weight"}, BERT, path.name)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_found_and_its_precision_named(tmp_path, form):
    make, precision = FORMS[form]

    found = identify(write(tmp_path / "g.onnx", *make(), form))

    assert found.precision == precision
    assert found.table_count == 0


@pytest.mark.parametrize("form", FORMS)
def test_one_integer_that_is_off_by_one_is_another_weight(tmp_path, form):
    arrays, nodes = FORMS[form][0]()
    arrays["q"].flat[17] = arrays["q"].flat[17] ^ 1

    with pytest.raises(errors.GraphError, match=r"other weights: 1 of 1 .*, and 1 tensors of the graph .*q \(u?int"):
        identify(write(tmp_path / "g.onnx", arrays, nodes, form))


@pytest.mark.parametrize("form", FORMS)
def test_a_step_that_was_altered_is_another_weight(tmp_path, form):
    arrays, nodes = FORMS[form][0]()
    arrays["s"] = arrays["s"] * np.float32(1.02 if "4" not in form else 1.3)

    with pytest.raises(errors.GraphError, match="other weights"):
        identify(write(tmp_path / "g.onnx", arrays, nodes, form))


@pytest.mark.parametrize("form", FORMS)
def test_integers_of_a_sibling_are_other_weights(tmp_path, form):
    sibling = WEIGHT + np.random.default_rng(6).normal(0, 0.05, WEIGHT.shape).astype(np.float32)

    with pytest.raises(errors.GraphError, match="other weights: 1 of 1"):
        identify(write(tmp_path / "g.onnx", *FORMS[form][0](), form), sibling)


def test_a_zero_that_was_altered_is_another_weight(tmp_path):
    arrays, nodes = dequantize_with_zero()
    arrays["z"] = arrays["z"] + np.uint8(1)

    with pytest.raises(errors.GraphError, match="other weights"):
        identify(write(tmp_path / "g.onnx", arrays, nodes, ""))


@pytest.mark.parametrize("stored", [np.zeros((COLUMNS, ROWS), np.int8), np.eye(COLUMNS, ROWS, dtype=np.int8)])
def test_a_step_so_coarse_that_it_is_near_every_weight_is_not_believed(tmp_path, stored):
    arrays, nodes = cast_and_mul(None)
    arrays = {"q": stored, "s": np.float32([[2.0]])}

    with pytest.raises(errors.GraphError, match="other weights"):
        identify(write(tmp_path / "g.onnx", arrays, nodes, ""))


def test_a_row_of_zeros_must_be_zeros_in_the_checkpoint(tmp_path):
    weight = WEIGHT.copy()
    weight[5] = 0.0
    step = np.maximum(np.abs(weight.T).max(axis=0, keepdims=True), 1e-3).astype(np.float32) / np.float32(127)
    stored = np.rint(weight.T / step).astype(np.int8)
    path = write(tmp_path / "g.onnx", {"q": stored, "s": step}, cast_and_mul(1)[1], "")
    other = weight.copy()
    other[5, 0] = 3e-6  # within half a step of zero

    assert identify(path, weight).precision == "int8"
    with pytest.raises(errors.GraphError, match="other weights"):
        identify(path, other)


def test_integers_that_no_answer_depends_on_prove_nothing(tmp_path):
    arrays, nodes = cast_and_mul(None)
    unused = [*nodes[:2], helper.make_node("MatMul", ["x", "other"], ["y"])]
    arrays["other"] = np.zeros((COLUMNS, ROWS), np.float32)

    with pytest.raises(errors.GraphError, match="other weights: 1 of 1"):
        identify(write(tmp_path / "g.onnx", arrays, unused, ""))
