"""Bundles that do not answer like their checkpoint fail, say which fault it is, and cannot be published.

Each fault is planted in a finished bundle; where the manifest would give it away at once, a careful forger reseals
it, so that the check behind is seen to stand on its own.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from vela.graphs import errors, record
from vela.graphs import store as stores

SAMPLE = "tiny-intent"
Judge = Callable[..., list[record.Record]]


def failed_checks(records: list[record.Record]) -> dict[str, str]:
    return {check.name: check.detail for found in records for check in found.checks if check.status == "failed"}


def assert_refused(folder: Path, records: list[record.Record], tmp_path: Path) -> None:
    """Every graph failed, and publish refuses the bundle."""
    assert {found.verdict for found in records} == {"failed"}
    with pytest.raises(errors.NotVerified):
        stores.Store.create_or_open(tmp_path / "refusing-store").publish(folder)


def own_copy(path: Path) -> None:
    """Break a hard link, so that a test does not write into the checkpoint."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


def edit_graph(path: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    proto = onnx.load(path, load_external_data=False)
    change(proto)
    path.write_bytes(proto.SerializeToString())


def initializer(proto: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(tensor for tensor in proto.graph.initializer if tensor.name == name)


def test_an_untouched_copy_passes(copied, judge_folder):
    records = judge_folder(copied[SAMPLE], with_inference=True, graph="portable-b1-s64")

    assert [found.verdict for found in records] == ["passed"]
    assert records[0].compared == records[0].planned > 100


def test_a_bundle_with_embedded_weights_of_another_checkpoint_fails(tmp_path, export, sibling, judge_folder):
    folder = export(sibling, tmp_path / "bundle", storage="embedded")

    records = judge_folder(folder)

    failed = failed_checks(records)
    assert "model.safetensors" in failed["sources.identity"]
    assert "other weights: " in failed["weights.identity"]
    assert_refused(folder, records, tmp_path)


def test_an_embedded_graph_of_another_checkpoint_fails_among_the_right_files(
    tmp_path, export, copied, sibling, judge_folder, reseal
):
    folder = copied[SAMPLE]
    foreign = export(sibling, tmp_path / "foreign", storage="embedded")
    shutil.copy(foreign / "model.onnx", folder / "model.onnx")
    entry = json.loads((foreign / "manifest.json").read_bytes())["graphs"][0]
    reseal(folder, lambda content: content["graphs"].__setitem__(0, entry))

    records = judge_folder(folder, graph="model")

    assert list(failed_checks(records)) == ["weights.identity"]
    assert "50 of " in failed_checks(records)["weights.identity"] or "other weights" in records[0].cause
    assert_refused(folder, records, tmp_path)


def test_an_honest_bundle_with_embedded_weights_passes(tmp_path, export, checkpoints, judge_folder):
    folder = export(checkpoints[SAMPLE], tmp_path / "bundle", storage="embedded")

    records = judge_folder(folder, with_inference=True, graph="portable-b1-s64")

    assert [found.verdict for found in records] == ["passed"]


def test_weights_swapped_for_a_siblings_fail(tmp_path, copied, sibling, judge_folder):
    folder = copied[SAMPLE]
    (folder / "model.safetensors").unlink()
    shutil.copy(sibling / "model.safetensors", folder / "model.safetensors")

    records = judge_folder(folder)

    failed = failed_checks(records)
    assert "model.safetensors" in failed["sources.identity"]
    assert "model.safetensors" in failed["sources.digests"]
    assert "other weights" in failed["weights.identity"]
    assert_refused(folder, records, tmp_path)


def test_a_bundle_of_an_altered_config_agrees_with_itself_and_fails_against_the_original(
    tmp_path, export, swapped_thetas, judge_folder
):
    folder = export(swapped_thetas, tmp_path / "bundle")

    records = judge_folder(folder, with_inference=True)

    failed = failed_checks(records)
    assert "config.json" in failed["sources.identity"]
    assert_refused(folder, records, tmp_path)


def test_other_thetas_change_answers_beyond_the_bar(tmp_path, export, swapped_thetas, judge_folder, copied, reseal):
    folder = copied[SAMPLE]
    foreign = export(swapped_thetas, tmp_path / "foreign")
    shutil.copy(foreign / "model.onnx", folder / "model.onnx")
    entry = json.loads((foreign / "manifest.json").read_bytes())["graphs"][0]
    reseal(folder, lambda content: content["graphs"].__setitem__(0, entry))

    records = judge_folder(folder, with_inference=True, graph="model")

    assert "parity.strict" in failed_checks(records)


def test_a_flipped_byte_in_the_weights_fails(tmp_path, copied, judge_folder):
    folder = copied[SAMPLE]
    path = folder / "model.safetensors"
    own_copy(path)
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)

    records = judge_folder(folder)

    failed = failed_checks(records)
    assert "model.safetensors" in failed["sources.digests"]
    assert "1 of " in failed["weights.identity"]
    assert_refused(folder, records, tmp_path)


@pytest.mark.parametrize("is_resealed", [False, True])
def test_an_initializer_offset_moved_by_four_bytes_fails(tmp_path, copied, judge_folder, reseal, is_resealed):
    folder = copied[SAMPLE]

    def move(proto: onnx.ModelProto) -> None:
        tensor = next(t for t in proto.graph.initializer if "layers.1.mlp.Wi.weight" in t.name)
        entry = next(entry for entry in tensor.external_data if entry.key == "offset")
        entry.value = str(int(entry.value) + 4)

    for path in folder.glob("*.onnx"):
        edit_graph(path, move)
    if is_resealed:
        reseal(folder)

    records = judge_folder(folder)

    failed = failed_checks(records)
    assert "layers.1.mlp.Wi.weight" in failed["weights.identity"]
    assert "offset" in failed["weights.identity"]
    assert ("graph.digest" in failed) is not is_resealed
    assert_refused(folder, records, tmp_path)


def test_an_edited_manifest_is_refused_by_its_seal(tmp_path, copied, vela, checkpoints):
    folder = copied[SAMPLE]
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"max_tokens": 32768', b'"max_tokens": 32769'))

    status, _, err = vela("verify-graph", str(folder), "--checkpoint", str(checkpoints[SAMPLE]))

    assert status == 1
    assert "edited after export" in err
    with pytest.raises(errors.ManifestInvalid, match="edited"):
        stores.Store.create_or_open(tmp_path / "store").publish(folder)


def test_an_edited_and_resealed_manifest_contradicts_the_checkpoint(tmp_path, copied, judge_folder, reseal):
    folder = copied[SAMPLE]

    def swap_labels(content: dict) -> None:
        labels = content["heads"][0]["decoder"]["labels"]
        labels[0], labels[1] = labels[1], labels[0]

    reseal(folder, swap_labels)

    records = judge_folder(folder)

    assert list(failed_checks(records)) == ["manifest.facts"]
    assert "heads" in failed_checks(records)["manifest.facts"]
    assert_refused(folder, records, tmp_path)


@pytest.mark.parametrize("is_resealed", [False, True])
def test_an_altered_classifier_bias_fails_and_is_named(tmp_path, copied, judge_folder, reseal, is_resealed):
    folder = copied[SAMPLE]

    def alter(proto: onnx.ModelProto) -> None:
        tensor = initializer(proto, "classifier.bias")
        values = onnx.numpy_helper.to_array(tensor).copy()
        values[0] += np.float32(0.5)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))

    for path in folder.glob("*.onnx"):
        edit_graph(path, alter)
    if is_resealed:
        reseal(folder)

    records = judge_folder(folder)

    failed = failed_checks(records)
    assert "classifier.bias" in failed["weights.identity"]
    assert "1 of " in failed["weights.identity"]
    assert ("graph.digest" in failed) is not is_resealed
    assert_refused(folder, records, tmp_path)


def test_a_failed_run_replaces_an_older_pass(tmp_path, copied, judge_folder):
    folder = copied[SAMPLE]
    before = record.msgspec.json.decode((folder / "verification/model.cpu.json").read_bytes(), type=record.Record)
    edit_graph(folder / "model.onnx", lambda proto: proto.graph.node[0].attribute.clear())

    judge_folder(folder)

    after = record.msgspec.json.decode((folder / "verification/model.cpu.json").read_bytes(), type=record.Record)
    assert (before.verdict, after.verdict) == ("passed", "failed")


def test_a_graph_that_answers_nan_is_named_and_never_passes(copied, judge_folder, reseal):
    folder = copied[SAMPLE]

    def poison(proto: onnx.ModelProto) -> None:
        output = proto.graph.output[0].name
        for node in proto.graph.node:
            for index, name in enumerate(node.output):
                if name == output:
                    node.output[index] = "unpoisoned"
        zero = onnx.numpy_helper.from_array(np.zeros((), np.float32), "planted_zero")
        proto.graph.initializer.append(zero)
        proto.graph.node.extend(
            [
                onnx.helper.make_node("Div", ["planted_zero", "planted_zero"], ["planted_nan"], "planted_div"),
                onnx.helper.make_node("Add", ["unpoisoned", "planted_nan"], [output], "planted_add"),
            ]
        )

    edit_graph(folder / "portable-b1-s64.onnx", poison)
    reseal(folder)

    (found,) = judge_folder(folder, with_inference=True, graph="portable-b1-s64")

    failed = failed_checks([found])
    assert found.verdict == "failed"
    assert "nan" in failed["outputs.finite"]
    assert found.compared == 0
