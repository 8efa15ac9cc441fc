"""Graphs that another exporter wrote: their weights are found, their interface is read, and wrong ones are named.

Every test that passes a graph has a twin that alters it by one thing.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime import quantization
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForSequenceClassification, BertModel

from vela.verify import checkpoint, foreign_checks

SAMPLE = "tiny-intent"
Change = Callable[[onnx.ModelProto], None]


@pytest.fixture(scope="module")
def bert_graph(tmp_path_factory, embedder, write_foreign) -> Path:
    """Its graph, with the pooler's output beside the hidden state."""
    path = tmp_path_factory.mktemp("graph") / "model.onnx"
    return write_foreign(BertModel.from_pretrained(embedder), path, ["last_hidden_state", "pooler_output"])


@pytest.fixture(scope="module")
def intent(checkpoints) -> Path:
    return checkpoints[SAMPLE]


@pytest.fixture(scope="module")
def intent_graph(tmp_path_factory, intent, write_foreign) -> Path:
    path = tmp_path_factory.mktemp("intent") / "model.onnx"
    return write_foreign(AutoModelForSequenceClassification.from_pretrained(intent), path, ["logits"])


def check(path: Path, folder: Path) -> foreign_checks.Found:
    return foreign_checks.check_foreign(path, checkpoint.Checkpoint.read(folder))


def details(found: foreign_checks.Found, status: str = "failed") -> dict[str, str]:
    return {made.name: made.detail for made in found.checks if made.status == status}


def altered(path: Path, target: Path, change: Change) -> Path:
    proto = onnx.load(path)
    change(proto)
    target.write_bytes(proto.SerializeToString())
    return target


def anonymous(proto: onnx.ModelProto) -> onnx.TensorProto:
    """Give the first weight that the exporter transposed and named by a number."""
    return next(tensor for tensor in proto.graph.initializer if tensor.name.startswith("onnx::MatMul"))


def replace_values(tensor: onnx.TensorProto, values: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def to_half(proto: onnx.ModelProto) -> None:
    """Keep all floats of weight size in FP16, and cast them where they are used."""
    for tensor in list(proto.graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size > 1:
            stored = numpy_helper.from_array(values.astype(np.float16), f"{tensor.name}_half")
            node = onnx.helper.make_node("Cast", [stored.name], [tensor.name], to=onnx.TensorProto.FLOAT)
            proto.graph.initializer.remove(tensor)
            proto.graph.initializer.append(stored)
            proto.graph.node.insert(0, node)


def join_projections(proto: onnx.ModelProto) -> None:
    """Keep query, key and value weights of each layer side by side, as fused attentions do, and split them in use."""
    held = {tensor.name: tensor for tensor in proto.graph.initializer}
    for layer in range(2):
        names = [
            next(
                node.input[1] for node in proto.graph.node if f"layer.{layer}/attention/self/{part}/MatMul" in node.name
            )
            for part in ("query", "key", "value")
        ]
        joined = np.concatenate([numpy_helper.to_array(held[name]) for name in names], axis=1)
        proto.graph.initializer.append(numpy_helper.from_array(joined, f"joined{layer}"))
        for name in names:
            proto.graph.initializer.remove(held[name])
        proto.graph.node.insert(0, onnx.helper.make_node("Split", [f"joined{layer}"], names, axis=1, num_outputs=3))


def test_weights_that_are_transposed_and_have_no_names_are_found(bert_graph, embedder):
    found = check(bert_graph, embedder)

    assert details(found) == {}
    assert found.precision == "fp32"
    assert "37 tensors found by content (37 as fp32)" in details(found, "passed")["weights.identity"]
    assert "not judged: pooler_output" in details(found, "passed")["graph.contract"]


def test_one_number_that_was_altered_is_named_with_its_tensor(tmp_path, bert_graph, embedder):
    def change(proto: onnx.ModelProto) -> None:
        values = numpy_helper.to_array(anonymous(proto)).copy()
        values[3, 4] += np.float32(0.01)
        replace_values(anonymous(proto), values)

    found = check(altered(bert_graph, tmp_path / "g.onnx", change), embedder)

    assert list(details(found)) == ["weights.identity"]
    assert "1 of 37 tensors of the checkpoint are not in the graph (encoder.layer.0.att" in found.checks[-1].detail
    assert "1 tensors of the graph are not the checkpoint's (onnx::MatMul" in found.checks[-1].detail
    assert "but for 1 of 2,304 numbers" in found.checks[-1].detail
    assert found.is_decided


def test_weights_in_fp32_that_were_rounded_before_are_named_as_such(tmp_path, bert_graph, embedder):
    def change(proto: onnx.ModelProto) -> None:
        values = numpy_helper.to_array(anonymous(proto))
        replace_values(anonymous(proto), values.astype(np.float16).astype(np.float32))

    found = check(altered(bert_graph, tmp_path / "g.onnx", change), embedder)

    assert "rounded to float16" in details(found)["weights.identity"]


def test_right_weights_that_lie_unused_beside_others_prove_nothing(tmp_path, bert_graph, embedder):
    def change(proto: onnx.ModelProto) -> None:
        tensor = anonymous(proto)
        other = numpy_helper.from_array(-numpy_helper.to_array(tensor), "other")
        for node in proto.graph.node:
            node.input[:] = ["other" if name == tensor.name else name for name in node.input]
        proto.graph.initializer.append(other)

    found = check(altered(bert_graph, tmp_path / "g.onnx", change), embedder)

    assert "1 of 37 tensors" in details(found)["weights.identity"]


def test_joined_projections_are_found_and_one_number_of_them_is_missed(tmp_path, bert_graph, embedder):
    joined = altered(bert_graph, tmp_path / "joined.onnx", join_projections)

    def change(proto: onnx.ModelProto) -> None:
        tensor = next(tensor for tensor in proto.graph.initializer if tensor.name == "joined1")
        values = numpy_helper.to_array(tensor).copy()
        values[0, 100] += np.float32(0.01)
        replace_values(tensor, values)

    assert details(check(joined, embedder)) == {}
    wrong = details(check(altered(joined, tmp_path / "wrong.onnx", change), embedder))["weights.identity"]
    assert "3 of 37 tensors" in wrong
    assert "joined1" in wrong


def test_an_fp16_copy_is_found_and_called_fp16(tmp_path, bert_graph, embedder):
    found = check(altered(bert_graph, tmp_path / "model_fp16.onnx", to_half), embedder)

    assert details(found) == {}
    assert found.precision == "fp16"
    assert "fp16 in its name says" in details(found, "passed")["graph.types"]


def test_a_file_that_says_fp16_and_holds_fp32_fails_the_census(tmp_path, bert_graph, embedder):
    shutil.copy(bert_graph, tmp_path / "model_fp16.onnx")

    found = check(tmp_path / "model_fp16.onnx", embedder)

    assert list(details(found)) == ["graph.types"]
    assert "a dtype census of 15 in fp32; expected most matrices in fp16" in details(found)["graph.types"]
    assert not found.is_decided


def test_an_fp16_copy_of_a_sibling_is_other_weights(tmp_path, bert_graph, embedder):
    sibling = Path(shutil.copytree(embedder, tmp_path / "sibling"))
    tensors = load_file(sibling / "model.safetensors")
    save_file({name: value * np.float32(1.01) for name, value in tensors.items()}, sibling / "model.safetensors")

    found = check(altered(bert_graph, tmp_path / "g.onnx", to_half), sibling)

    assert "other weights: 37 of 37 tensors" in details(found)["weights.identity"]
    assert found.precision is None


@pytest.mark.parametrize("is_by_channel", [False, True])
@pytest.mark.parametrize("kind", [quantization.QuantType.QInt8, quantization.QuantType.QUInt8])
def test_what_onnx_runtime_quantises_is_found_and_a_sibling_s_is_not(
    tmp_path, bert_graph, embedder, kind, is_by_channel
):
    path = tmp_path / "model_quantized.onnx"
    quantization.quantize_dynamic(bert_graph, path, weight_type=kind, per_channel=is_by_channel)
    sibling = Path(shutil.copytree(embedder, tmp_path / "sibling"))
    tensors = load_file(sibling / "model.safetensors")
    rng = np.random.default_rng(1)
    moved = {name: value + rng.normal(0, 0.01, value.shape).astype(np.float32) for name, value in tensors.items()}
    save_file(moved, sibling / "model.safetensors")

    found = check(path, embedder)

    assert details(found) == {}
    assert found.precision == "int8"
    assert "(22 as fp32, 15 as int8)" in found.checks[-1].detail
    assert "other weights: 37 of 37 tensors" in details(check(path, sibling))["weights.identity"]


def test_a_modernbert_with_tables_of_its_exporter_is_found(intent_graph, intent):
    found = check(intent_graph, intent)

    assert details(found) == {}
    assert "4 cosines and sines turn by 2 tables" in details(found, "passed")["graph.rotary"]


def test_a_modernbert_of_one_length_holds_angles_that_are_computed_again(tmp_path, intent, write_foreign):
    model = AutoModelForSequenceClassification.from_pretrained(intent)
    path = write_foreign(model, tmp_path / "g.onnx", ["logits"], (2, 8))

    def change(proto: onnx.ModelProto) -> None:
        node = next(node for node in proto.graph.node if node.output[0].endswith("rotary_emb/Constant_output_0"))
        angles = numpy_helper.to_array(node.attribute[0].t)
        node.attribute[0].t.CopyFrom(numpy_helper.from_array(angles * np.float32(1.001)))

    assert details(check(path, intent)) == {}
    wrong = details(check(altered(path, tmp_path / "wrong.onnx", change), intent))
    assert set(wrong) == {"graph.rotary", "weights.identity"}


def test_a_graph_of_a_sibling_is_other_weights_with_their_share(intent_graph, sibling):
    found = check(intent_graph, sibling)

    assert "other weights: 42 of 42 tensors of the checkpoint" in details(found)["weights.identity"]
    assert found.is_decided


def test_a_graph_that_turns_by_another_theta_has_the_weights_and_fails_by_its_tables(tmp_path, intent_graph, intent):
    folder = Path(shutil.copytree(intent, tmp_path / "c"))
    config = json.loads((folder / "config.json").read_text())
    config["local_rope_theta"] = 20_000.0
    (folder / "config.json").write_text(json.dumps(config))

    wrong = details(check(intent_graph, folder))

    assert set(wrong) == {"graph.rotary", "weights.identity"}
    assert "theta 10,000" in wrong["graph.rotary"]
    assert "all 42 tensors" in wrong["weights.identity"]


def test_a_file_that_is_no_graph_fails_to_parse(tmp_path, intent):
    (tmp_path / "g.onnx").write_bytes(b"not a graph")

    found = check(tmp_path / "g.onnx", intent)

    assert list(details(found)) == ["graph.parse"]
    assert found.is_decided
