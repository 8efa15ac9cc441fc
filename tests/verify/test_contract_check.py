"""Which graphs may do without a mask: the dynamic `ort` ones that say so by their name. And types on the way."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from onnx import TensorProto, helper

from vela.graphs import contract, errors, heads, manifest
from vela.verify import graph_file
from vela.verify.static import contract_check

HEAD = heads.Head("default", "text", heads.SequenceDecoder(("no", "yes")), 512, "reject")


def check(folder: Path, file: str, *, takes_mask: bool, target: str = "ort", batch: int | str = "batch") -> str:
    """Write a graph with two or one inputs under a name, and check it with an entry that agrees with it."""
    sequence = "sequence" if batch == "batch" else 8
    specs = contract.graph_inputs(batch, sequence, takes_mask=takes_mask)
    inputs = [helper.make_tensor_value_info(spec.name, TensorProto.INT64, spec.shape) for spec in specs]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, (batch, 2))
    nodes = [helper.make_node("Cast", ["input_ids"], ["logits"], "n", to=TensorProto.FLOAT)]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", inputs, [output]), opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )
    (folder / file).write_bytes(proto.SerializeToString())
    parsed = graph_file.GraphFile.read(folder / file)
    name = file.removesuffix(".onnx")
    entry = manifest.Graph(
        name, file, "0" * 64, 1, target, "fp32", "reference", 18, "default", 4, parsed.inputs, parsed.outputs, {}, ()
    )
    return contract_check.check_contract(parsed, entry, HEAD, hidden_size=16, layers=4)


@pytest.mark.parametrize("file", ["model-unpadded.onnx", "model-unpadded-l2.onnx"])
def test_an_unpadded_graph_takes_ids_only(tmp_path, file):
    assert check(tmp_path, file, takes_mask=False).startswith("input_ids in")


def test_an_unpadded_graph_with_a_mask_is_refused(tmp_path):
    with pytest.raises(errors.GraphError, match="attention_mask"):
        check(tmp_path, "model-unpadded.onnx", takes_mask=True)


@pytest.mark.parametrize("file", ["model.onnx", "model-l2.onnx"])
def test_a_graph_that_loaders_feed_a_mask_takes_one(tmp_path, file):
    assert check(tmp_path, file, takes_mask=True).startswith("input_ids and attention_mask in")
    with pytest.raises(errors.GraphError, match="attention_mask"):
        check(tmp_path, file, takes_mask=False)


@pytest.mark.parametrize(("target", "batch"), [("portable", "batch"), ("ort", 1), ("portable", 1)])
def test_no_fixed_or_portable_graph_does_without_a_mask(tmp_path, target, batch):
    with pytest.raises(errors.GraphError, match="attention_mask"):
        check(tmp_path, "model-unpadded.onnx", takes_mask=False, target=target, batch=batch)


@pytest.mark.parametrize(
    ("kinds", "refused"),
    [
        ((TensorProto.FLOAT,), ""),
        ((TensorProto.BOOL, TensorProto.FLOAT), ""),
        ((TensorProto.FLOAT16, TensorProto.FLOAT), "1 casts such as v0 to float16"),
        ((TensorProto.BFLOAT16, TensorProto.FLOAT), "to bfloat16"),
        ((TensorProto.DOUBLE, TensorProto.FLOAT), "to double"),
        ((TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT), "to float8e4m3fn"),
    ],
)
def test_no_number_passes_through_another_type(tmp_path, kinds, refused):
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, (1, 8))
    output = helper.make_tensor_value_info(f"v{len(kinds) - 1}", kinds[-1], (1, 8))
    names = ["input_ids", *(f"v{place}" for place in range(len(kinds)))]
    nodes = [
        helper.make_node("Cast", [names[place]], [names[place + 1]], f"n{place}", to=kind)
        for place, kind in enumerate(kinds)
    ]
    opsets = [helper.make_opsetid("", 21)]
    proto = helper.make_model(helper.make_graph(nodes, "g", [ids], [output]), opset_imports=opsets, ir_version=10)
    path = tmp_path / "graph.onnx"
    path.write_bytes(proto.SerializeToString())
    entry = SimpleNamespace(precision="fp32")

    if refused:
        with pytest.raises(errors.GraphError, match=refused):
            contract_check.check_types(graph_file.GraphFile.read(path), entry)
    else:
        contract_check.check_types(graph_file.GraphFile.read(path), entry)
