"""Faults that only a reranker can have, each planted in a finished bundle: scorer, norm, exit, heads file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

from vela.export import bundle_writer, trace
from vela.graphs import record
from vela.verify import checkpoint

SAMPLE = "tiny-reranker"
HEADS_FILE = "classification_heads.safetensors"
EARLY = "portable-l2-b1-s64"


def failed_checks(records: list[record.Record]) -> dict[str, str]:
    return {check.name: check.detail for found in records for check in found.checks if check.status == "failed"}


def edit_graph(path: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    proto = onnx.load(path, load_external_data=False)
    change(proto)
    path.write_bytes(proto.SerializeToString())


@pytest.fixture
def folder(copied: dict[str, Path]) -> Path:
    return copied[SAMPLE]


@pytest.fixture
def other_scorers(tmp_path: Path, checkpoints: dict[str, Path]) -> Path:
    """A sibling: the same encoder with other scorers, as another training run would leave them."""
    sibling = Path(shutil.copytree(checkpoints[SAMPLE], tmp_path / SAMPLE))
    rng = np.random.default_rng(5)
    tensors = load_file(sibling / HEADS_FILE)
    changed = {name: (value + rng.normal(0, 0.02, value.shape)).astype(np.float32) for name, value in tensors.items()}
    (sibling / HEADS_FILE).unlink()
    save_file(changed, sibling / HEADS_FILE)
    return sibling


def test_an_untouched_copy_passes_with_every_pair_in_its_place(folder, judge_folder):
    (found,) = judge_folder(folder, with_inference=True, graph=EARLY, sample=SAMPLE)

    assert found.verdict == "passed"
    assert found.compared == found.planned > 50


def test_scorers_of_two_dimensions_that_changed_places_fail_by_their_answers_alone(folder, judge_folder, reseal):
    names = {"score_l2_d96": "score_l2_d64", "score_l2_d64": "score_l2_d96"}

    def swap(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            node.output[:] = [names.get(name, name) for name in node.output]

    edit_graph(folder / f"{EARLY}.onnx", swap)
    reseal(folder)

    records = judge_folder(folder, with_inference=True, graph=EARLY, sample=SAMPLE)

    assert list(failed_checks(records)) == ["parity.strict"]
    assert "Δlogit" in failed_checks(records)["parity.strict"]


def test_an_early_exit_without_the_final_norm_is_named_and_answers_otherwise(folder, judge_folder, reseal):
    def bypass(proto: onnx.ModelProto) -> None:
        norm = next(node for node in proto.graph.node if "final_norm.weight" in node.input)
        for node in proto.graph.node:
            node.input[:] = [norm.input[0] if name == norm.output[0] else name for name in node.input]
        proto.graph.node.remove(norm)
        kept = [tensor for tensor in proto.graph.initializer if tensor.name != "final_norm.weight"]
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(kept)

    edit_graph(folder / f"{EARLY}.onnx", bypass)
    reseal(folder)

    records = judge_folder(folder, with_inference=True, graph=EARLY, sample=SAMPLE)

    # 2 of the embeddings, 5 and 6 of the layers, the final norm, and 4 for each of 3 scorers
    assert "1 of 26 tensors" in failed_checks(records)["weights.identity"]
    assert "final_norm.weight" in failed_checks(records)["weights.identity"]
    assert "parity.strict" in failed_checks(records)


def test_a_final_norm_that_is_there_but_not_applied_fails_by_its_answers(folder, judge_folder, reseal):
    def skip(proto: onnx.ModelProto) -> None:
        norm = next(node for node in proto.graph.node if "final_norm.weight" in node.input)
        for node in proto.graph.node:
            node.input[:] = [norm.input[0] if name == norm.output[0] else name for name in node.input]

    edit_graph(folder / f"{EARLY}.onnx", skip)
    reseal(folder)

    assert list(failed_checks(judge_folder(folder, with_inference=True, graph=EARLY, sample=SAMPLE))) == [
        "parity.strict"
    ]


def test_a_scorer_of_another_exit_is_foreign_by_its_place(folder, judge_folder, reseal):
    places = checkpoint.Checkpoint.read(folder).tensors[HEADS_FILE]

    def move(proto: onnx.ModelProto) -> None:
        tensor = next(t for t in proto.graph.initializer if t.name == "heads.layer_2_dim_96.dense.weight")
        entry = next(entry for entry in tensor.external_data if entry.key == "offset")
        entry.value = str(places["heads.layer_4_dim_96.dense.weight"].offset)

    edit_graph(folder / f"{EARLY}.onnx", move)
    reseal(folder)

    failed = failed_checks(judge_folder(folder, graph=EARLY, sample=SAMPLE))

    assert list(failed) == ["graph.facts", "weights.identity"]
    assert "holds heads.layer_4_dim_96.dense.weight, which this exit does not use" in failed["weights.identity"]
    assert "not in the graph (heads.layer_2_dim_96.dense.weight)" in failed["weights.identity"]


def test_an_altered_bias_of_a_single_number_is_named(folder, judge_folder, reseal):
    def alter(proto: onnx.ModelProto) -> None:
        tensor = next(t for t in proto.graph.initializer if t.name == "heads.layer_2_dim_32.out.bias")
        values = onnx.numpy_helper.to_array(tensor) + np.float32(0.5)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))

    edit_graph(folder / f"{EARLY}.onnx", alter)
    reseal(folder)

    failed = failed_checks(judge_folder(folder, graph=EARLY, sample=SAMPLE))

    assert "heads.layer_2_dim_32.out.bias" in failed["weights.identity"]


def test_a_sibling_s_heads_file_beside_the_graphs_fails(folder, judge_folder, other_scorers):
    (folder / HEADS_FILE).unlink()
    shutil.copy(other_scorers / HEADS_FILE, folder / HEADS_FILE)

    failed = failed_checks(judge_folder(folder, sample=SAMPLE))

    assert HEADS_FILE in failed["sources.identity"]
    assert HEADS_FILE in failed["sources.digests"]
    assert "heads.layer_" in failed["weights.identity"]


def test_graphs_that_embed_a_sibling_s_scorers_fail_among_the_right_files(
    tmp_path, folder, judge_folder, other_scorers, traces: trace.TraceCache, reseal
):
    plan = bundle_writer.ExportPlan(SAMPLE, buckets=(64,), storage="embedded")
    foreign = tmp_path / "foreign"
    bundle_writer.export_bundle(checkpoint.Checkpoint.read(other_scorers), foreign, plan, traces, lambda _: None)
    shutil.copy(foreign / "model.onnx", folder / "model.onnx")
    entry = json.loads((foreign / "manifest.json").read_bytes())["graphs"][0]
    reseal(folder, lambda content: content["graphs"].__setitem__(0, entry))

    failed = failed_checks(judge_folder(folder, graph="model", sample=SAMPLE))

    assert list(failed) == ["weights.identity"]
    assert "12 of 50 tensors" in failed["weights.identity"]
