"""A 16-bit copy is its FP32 graph with casts, and nothing else passes for one."""

import os
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from vela.graphs import errors
from vela.verify import graph_file
from vela.verify.static import reduction

KINDS = ("fp16", "bf16")
Change = Callable[[ir.Graph], None]


@pytest.fixture(scope="module")
def read(copies):
    """Read a graph of the bundle with copies, anew each time."""

    def run(graph_id: str) -> graph_file.GraphFile:
        return graph_file.GraphFile.read(copies.path(f"{graph_id}.onnx"))

    return run


@pytest.fixture
def altered(read, copies, tmp_path) -> Callable[[Change], graph_file.GraphFile]:
    """Give an FP16 copy after a change, written and read again beside its weights."""

    def run(change: Change) -> graph_file.GraphFile:
        model = read("portable-fp16-b1-s16").model
        change(model.graph)
        path = tmp_path / "altered.onnx"
        os.link(copies.path("model.safetensors"), tmp_path / "model.safetensors")
        ir.save(model, path)
        return graph_file.GraphFile.read(path)

    return run


def node_of(graph: ir.Graph, kind: str) -> ir.Node:
    return next(node for node in graph if node.op_type == kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["cuda", "portable"])
def test_what_export_wrote_is_its_fp32_graph_with_casts(read, form, kind) -> None:
    said = reduction.check_reduction(read(f"{form}-{kind}-b1-s16"), read(f"{form}-b1-s16"), kind)

    assert said.startswith(f"{form}-b1-s16.onnx with ")
    assert said.endswith(f"products in {kind}")


def negate(graph: ir.Graph) -> None:
    softmax = node_of(graph, "Softmax")
    added = ir.node("Neg", [softmax.inputs[0]])
    graph.insert_before(softmax, added)
    softmax.replace_input_with(0, added.outputs[0])


def skip_a_norm(graph: ir.Graph) -> None:
    norm = [node for node in graph if node.op_type == "LayerNormalization"][1]
    ir.convenience.replace_all_uses_with(norm.outputs[0], norm.inputs[0])
    graph.remove(norm, safe=True)


def change_epsilon(graph: ir.Graph) -> None:
    node_of(graph, "LayerNormalization").attributes["epsilon"] = ir.AttrFloat32("epsilon", 1e-3)


def exchange_inputs(graph: ir.Graph) -> None:
    node = node_of(graph, "Div")
    first, second = node.inputs
    node.replace_input_with(0, second)
    node.replace_input_with(1, first)


def change_a_table(graph: ir.Graph) -> None:
    table = next(value for value in graph.initializers.values() if "inv_freq" in str(value.name))
    table.const_value = ir.Tensor(table.const_value.numpy() * np.float32(1.01), name=table.name)


def round_positions(graph: ir.Graph) -> None:
    """Round the angles of positions, and widen them again."""
    wave = node_of(graph, "Cos")
    narrow = ir.node("Cast", [wave.inputs[0]], {"to": int(ir.DataType.FLOAT16)})
    wide = ir.node("Cast", [narrow.outputs[0]], {"to": int(ir.DataType.FLOAT)})
    graph.insert_before(wave, narrow)
    graph.insert_before(wave, wide)
    wave.replace_input_with(0, wide.outputs[0])


def round_distances(graph: ir.Graph) -> None:
    """Compare a distance between positions with the window in 16 bits."""
    near = node_of(graph, "LessOrEqual")
    for place in (0, 1):
        narrow = ir.node("Cast", [near.inputs[place]], {"to": int(ir.DataType.FLOAT16)})
        graph.insert_before(near, narrow)
        near.replace_input_with(place, narrow.outputs[0])


def cast_to_nothing(graph: ir.Graph) -> None:
    added = ir.node("Cast", [node_of(graph, "Softmax").inputs[0]])
    graph.insert_before(node_of(graph, "Softmax"), added)
    node_of(graph, "Softmax").replace_input_with(0, added.outputs[0])


def take_other_rows(graph: ir.Graph) -> None:
    tensors = [one for one in graph.initializers.values() if isinstance(one.const_value, ir.ExternalTensor)]
    first, second = [one for one in tensors if str(one.name).endswith("attn.Wo.weight")][:2]
    first.const_value, second.const_value = second.const_value, first.const_value


def cast_to_another_type(graph: ir.Graph) -> None:
    rounding = next(node for node in graph if node.op_type == "Cast" and node.attributes["to"].as_int() == 10)
    rounding.attributes["to"] = ir.AttrInt64("to", int(ir.DataType.BFLOAT16))


def leave_products_wide(graph: ir.Graph) -> None:
    for node in [node for node in graph if node.op_type == "MatMul"]:
        for place in (0, 1):
            wide = ir.node("Cast", [node.inputs[place]], {"to": int(ir.DataType.FLOAT)})
            graph.insert_before(node, wide)
            node.replace_input_with(place, wide.outputs[0])


def answer_another_value(graph: ir.Graph) -> None:
    wide = graph.outputs[0].producer()
    graph.outputs[0].name, wide.inputs[0].name = "other", "narrow"
    added = ir.node("Cast", [node_of(graph, "LayerNormalization").outputs[0]], {"to": int(ir.DataType.FLOAT)})
    added.outputs[0].name = "logits"
    added.outputs[0].type, added.outputs[0].shape = graph.outputs[0].type, graph.outputs[0].shape
    graph.append(added)
    graph.outputs[0] = added.outputs[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (negate, "ai.onnx.Neg"),
        (skip_a_norm, "expected node"),
        (change_epsilon, "ai.onnx.LayerNormalization"),
        (exchange_inputs, "ai.onnx.Div"),
        (change_a_table, "another tensor"),
        (round_positions, "ai.onnx.Cos. on rounded numbers"),
        (cast_to_nothing, "ai.onnx.Cast"),
        (take_other_rows, "2 other references"),
        (cast_to_another_type, "ai.onnx.Cast"),
        (leave_products_wide, "of 39 products in fp16"),
        (answer_another_value, "logits of another value"),
    ],
)
def test_anything_else_is_no_copy(altered, read, change, said) -> None:
    with pytest.raises(errors.GraphError, match=said) as refused:
        reduction.check_reduction(altered(change), read("portable-b1-s16"), "fp16")

    assert refused.value.cause == ("precision" if change is leave_products_wide else "other computation")


def test_a_window_of_rounded_distances_is_no_copy(read, copies, tmp_path) -> None:
    model = read("portable-fp16-b1-s200").model
    round_distances(model.graph)
    os.link(copies.path("model.safetensors"), tmp_path / "model.safetensors")
    ir.save(model, tmp_path / "altered.onnx")

    with pytest.raises(errors.GraphError, match=r"ai.onnx.LessOrEqual\) on rounded numbers"):
        reduction.check_reduction(
            graph_file.GraphFile.read(tmp_path / "altered.onnx"), read("portable-b1-s200"), "fp16"
        )


@pytest.mark.parametrize("change", ["functions", "opsets"])
def test_other_operators_under_the_same_names_are_no_copy(read, change) -> None:
    reduced = read("portable-fp16-b1-s16")
    if change == "functions":
        inner = ir.Graph([ir.Value(name="x")], [], nodes=[], opset_imports={"": 18})
        reduced.model.functions["", "MatMul", ""] = ir.Function("", "MatMul", graph=inner, attributes=[])
    else:
        reduced.model.graph.opset_imports[""] = 17

    with pytest.raises(errors.GraphError):
        reduction.check_reduction(reduced, read("portable-b1-s16"), "fp16")


@pytest.mark.parametrize(
    ("reduced", "exact", "kind"),
    [
        ("portable-b1-s16", "portable-b1-s16", "fp16"),  # says so, and is not
        ("portable-fp16-b1-s16", "portable-b1-s16", "bf16"),
        ("portable-bf16-b1-s16", "portable-b1-s16", "fp16"),
        ("portable-fp16-b1-s16", "portable-b1-s64", "fp16"),
        ("portable-fp16-b1-s16", "cuda-b1-s16", "fp16"),
        ("portable-fp16-b1-s16", "portable-fp16-b1-s16", "bf16"),
    ],
)
def test_the_copy_of_another_graph_or_type_is_none(read, reduced, exact, kind) -> None:
    with pytest.raises(errors.GraphError):
        reduction.check_reduction(read(reduced), read(exact), kind)


def test_a_graph_that_ends_early_is_none(read) -> None:
    longer = read("portable-b1-s16")
    last = longer.model.graph.outputs[0].producer()
    longer.model.graph.insert_after(last, ir.node("Identity", [last.outputs[0]]))

    with pytest.raises(errors.GraphError, match="fewer nodes"):
        reduction.check_reduction(read("portable-fp16-b1-s16"), longer, "fp16")
