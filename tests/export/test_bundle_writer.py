"""What export writes: whole or not at all, by reference, described as it lies on disk."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from vela.export import bundle_writer, sources, trace, verification
from vela.graphs import bundle, errors
from vela.verify import checkpoint, graph_file
from vela.verify.options import GateOptions

SAMPLE = "tiny-intent"
HEADS_FILE = "classification_heads.safetensors"


def test_every_graph_refers_to_the_checkpoint_s_own_weight_files(bundles):
    for folder in bundles.values():
        opened = bundle.Bundle.open(folder)
        for graph in opened.manifest.graphs:
            parsed = graph_file.GraphFile.read(opened.path(graph.file))
            files = {"model.safetensors"} | ({HEADS_FILE} if graph.outputs[0].name.startswith("score_") else set())
            assert {tensor.location for tensor in parsed.external.values()} == files
            assert all(value.nbytes <= 1024 for value in parsed.inline.values() if value.dtype == np.float32)


def test_a_reference_reads_the_checkpoint_tensor_of_its_name(bundles):
    opened = bundle.Bundle.open(bundles[SAMPLE])
    parsed = graph_file.GraphFile.read(opened.path("model.onnx"))
    source = checkpoint.Checkpoint.read(opened.folder)

    for name, tensor_name in opened.manifest.graphs[0].external.items():
        place = source.tensors["model.safetensors"][tensor_name]
        first = int(name.partition("[")[2].partition(":")[0] or 0)  # of the rows that the initializer holds
        assert parsed.external[name].offset == place.offset + first * (place.length // place.shape[0])
        assert parsed.external[name].shape[1:] == place.shape[1:]
        assert parsed.external[name].shape[0] == place.shape[0] or "[" in name


def test_the_weights_of_an_unpublished_bundle_are_not_a_second_copy(bundles, checkpoints):
    linked = (bundles[SAMPLE] / "model.safetensors").stat()

    assert linked.st_ino == (checkpoints[SAMPLE] / "model.safetensors").stat().st_ino


def test_external_keys_lie_in_the_order_that_migraphx_reads_them(bundles):
    proto = onnx.load(bundles[SAMPLE] / "portable-b1-s64.onnx", load_external_data=False)

    keys = {
        tuple(entry.key for entry in tensor.external_data) for tensor in proto.graph.initializer if tensor.external_data
    }

    assert keys == {("location", "offset", "length")}


def test_one_graph_of_each_target_keeps_scope_names_and_no_other_does(bundles):
    for folder in bundles.values():
        opened = bundle.Bundle.open(folder)
        for graph in opened.manifest.graphs:
            proto = onnx.load(opened.path(graph.file), load_external_data=False)
            has_scopes = any(node.metadata_props for node in proto.graph.node)
            assert has_scopes == (graph.sequence == 64 or (graph.sequence is None and graph.takes_mask)), graph.id


@pytest.mark.parametrize("name", ["tiny-embedding", "tiny-reranker"])
def test_an_early_exit_holds_no_later_layer(bundles, name):
    opened = bundle.Bundle.open(bundles[name])
    exits = {graph.exit_layer: graph for graph in opened.manifest.graphs if graph.sequence is None}

    assert sorted(exits) == [2, 4, 6]
    assert [graph.takes_mask for graph in opened.manifest.graphs if graph.sequence is None] == [True, False] * 3
    for layer, graph in exits.items():
        parsed = graph_file.GraphFile.read(opened.path(graph.file))
        names = [name for name in (*parsed.external, *parsed.inline) if "layers." in name]
        assert {int(name.split("layers.")[1].split(".")[0]) for name in names} == set(range(layer))


def test_a_reranker_s_exit_holds_its_own_scorers_and_the_final_norm(bundles):
    opened = bundle.Bundle.open(bundles["tiny-reranker"])

    for graph in opened.manifest.graphs:
        parsed = graph_file.GraphFile.read(opened.path(graph.file))
        names = [*parsed.external, *parsed.inline]
        assert {name.split("_")[1] for name in names if name.startswith("heads.")} == {str(graph.exit_layer)}
        assert "final_norm.weight" in names
        assert [spec.name for spec in graph.outputs] == [f"score_l{graph.exit_layer}_d{size}" for size in (96, 64, 32)]
        assert {spec.shape for spec in graph.outputs} == {(graph.batch or "batch",)}


def test_the_exits_of_a_reranker_share_two_head_traces(checkpoints, traces):
    source = checkpoint.Checkpoint.read(checkpoints["tiny-reranker"])
    made = trace.TraceCache(dict(traces.traces))
    before = set(made.traces)

    found = {layer: made.head(source, layer) for layer in source.head.decoder.exits}

    assert len(set(made.traces) - before) <= 2
    assert {
        layer: {name.split("_")[1] for name in head.weights if "_" in name and "norm" not in name}
        for layer, head in found.items()
    } == {layer: {str(layer)} for layer in found}
    assert ["final_norm.weight" in found[layer].weights for layer in (2, 4, 6)] == [True, True, False]


def test_dynamic_graphs_build_no_table_of_all_pairs_and_hold_no_node_of_the_trace(bundles):
    for file in ("model.onnx", "model-unpadded.onnx"):
        nodes = onnx.load(bundles[SAMPLE] / file, load_external_data=False).graph.node
        assert {node.domain for node in nodes} == {"", "com.microsoft"}
        used = {node.op_type for node in nodes if node.domain}
        assert used == {"Gelu", "MultiHeadAttention", "RotaryEmbedding"}  # residual norms are fused for CUDA only
        assert "Split" not in {node.op_type for node in nodes}  # each part has a product of its own
        assert not {"Erf", "Neg"} & {node.op_type for node in nodes if "head/" not in node.name}  # nothing left unfused
        inputs = [len(node.input) for node in nodes if node.op_type == "MultiHeadAttention"]
        assert inputs == [3, 6, 6, 3, 6, 6]  # blocks of local layers have a bias, global layers neither that nor a mask


def test_graphs_for_cuda_pass_the_strict_bar_on_the_cpu_too(tmp_path, checkpoints, traces):
    plan = bundle_writer.ExportPlan(SAMPLE, buckets=(64, 128, 512), forms=("cuda",))
    source = checkpoint.Checkpoint.read(checkpoints[SAMPLE])
    bundle_writer.export_bundle(source, tmp_path / "bundle", plan, traces, lambda _: None)

    options = GateOptions(max_tokens=512)
    records = verification.verify_folder(tmp_path / "bundle", checkpoints[SAMPLE], options, lambda _: None)

    assert [(found.graph_id, found.verdict, found.cause) for found in records] == [
        (f"cuda-b1-s{tokens}", "passed", "") for tokens in plan.buckets
    ]
    assert all(found.bar == "strict" and found.compared == found.planned > 0 for found in records)


def test_models_of_one_encoder_share_its_trace(checkpoints, traces, monkeypatch):
    traces.encoder(checkpoint.Checkpoint.read(checkpoints[SAMPLE]))
    monkeypatch.setattr(trace, "trace_encoder", lambda *_: pytest.fail("traced again"))

    found = [traces.encoder(checkpoint.Checkpoint.read(folder)) for folder in checkpoints.values()]

    assert all(other is found[0] for other in found)


def test_a_half_made_bundle_never_looks_finished(tmp_path, checkpoints, traces, monkeypatch):
    out = tmp_path / "bundle"

    def interrupt(message: str) -> None:
        if "portable" in message:
            raise KeyboardInterrupt

    plan = bundle_writer.ExportPlan(SAMPLE, buckets=(64,))
    with pytest.raises(KeyboardInterrupt):
        bundle_writer.export_bundle(checkpoint.Checkpoint.read(checkpoints[SAMPLE]), out, plan, traces, interrupt)

    assert not out.exists()


def test_an_existing_folder_is_not_overwritten(tmp_path, checkpoints, traces):
    (tmp_path / "bundle").mkdir()
    plan = bundle_writer.ExportPlan(SAMPLE)

    with pytest.raises(errors.ExportError, match="existing folder"):
        bundle_writer.export_bundle(
            checkpoint.Checkpoint.read(checkpoints[SAMPLE]), tmp_path / "bundle", plan, traces, lambda _: None
        )


def test_a_name_that_is_a_path_is_refused_before_any_work(tmp_path, checkpoints, traces):
    plan = bundle_writer.ExportPlan("../escape")

    with pytest.raises(errors.ExportError, match="escape"):
        bundle_writer.export_bundle(
            checkpoint.Checkpoint.read(checkpoints[SAMPLE]), tmp_path / "b", plan, traces, lambda _: None
        )


def test_buckets_beyond_the_heads_limit_are_left_out(checkpoints):
    source = checkpoint.Checkpoint.read(checkpoints["tiny-multilabel"])

    plans = bundle_writer.plan_graphs(source, bundle_writer.ExportPlan("m"))

    assert max(plan.sequence or 0 for plan in plans) == source.head.max_tokens == 4096


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "pickled weights never"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("{}"), "weight_map"),
        (lambda folder: (folder / "config.json").write_text("[]"), "a JSON list"),
        (lambda folder: (folder / "config.json").write_text("{"), "not JSON"),
        (lambda folder: set_config(folder, architectures=["GPT2LMHeadModel"]), "GPT2LMHeadModel"),
        (lambda folder: set_config(folder, rope_scaling={"type": "yarn"}), "yarn"),
        (lambda folder: set_config(folder, surprise=1), "surprise"),
        (lambda folder: halve(folder / "model.safetensors"), "BF16"),
        (lambda folder: make_reranker(folder), r"1 are not a scorer's \(scorer\.weight.*heads\.layer_6_dim_96\.dense"),
    ],
)
def test_a_checkpoint_that_cannot_be_exported_says_why(tmp_path, checkpoints, damage: Callable, message):
    import shutil

    folder = Path(shutil.copytree(checkpoints[SAMPLE], tmp_path / "c"))
    damage(folder)

    with pytest.raises(errors.CheckpointError, match=message):
        checkpoint.Checkpoint.read(folder)


def test_a_folder_is_named_after_itself_and_pins_nothing(checkpoints):
    found = sources.find_checkpoint(None, checkpoints[SAMPLE])

    assert (found.name, found.is_pinned) == (SAMPLE, False)


def test_a_pinned_name_with_other_files_is_refused(checkpoints):
    with pytest.raises(errors.CheckpointError, match=r"config\.json: found sha256"):
        sources.find_checkpoint("shield", checkpoints[SAMPLE])


def test_an_unknown_name_without_a_folder_lists_the_names():
    with pytest.raises(errors.CheckpointError, match="Shield"):
        sources.find_checkpoint("sheild", None)


def set_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def halve(path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    save_file({name: value.to(torch.bfloat16) for name, value in load_file(path).items()}, path)


def make_reranker(folder: Path) -> None:
    """Put a heads file of another layout beside an encoder."""
    from safetensors.numpy import save_file

    set_config(folder, architectures=["ModernBertModel"])
    save_file({"scorer.weight": np.zeros((1, 96), np.float32)}, folder / HEADS_FILE)
