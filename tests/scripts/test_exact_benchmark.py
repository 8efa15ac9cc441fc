"""The proof on a checkpoint of full size, here on a tiny one: what it passes, and what it must not.

Each bound has a twin that breaks it: other weights, a moved reference, ids that leak through the mask, another window.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

from vela.export import bundle_writer, trace
from vela.verify import checkpoint

SAMPLE = "tiny-intent"
HALF_WINDOW = 16
BUCKETS = (16, 64)
LENGTHS = ("--lengths", "16,100")
BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
MODULES = ("exact", "chunked_reference")
LEAK = 1e-12  # times a sum of ids: far below the bound, and above the last bit of small logits


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path], traces: trace.TraceCache) -> Path:
    """A bundle with graphs of every form; read only."""
    folder = tmp_path_factory.mktemp("exact") / "bundle"
    plan = bundle_writer.ExportPlan(SAMPLE, buckets=BUCKETS, forms=("cpu", "portable", "cuda"))
    bundle_writer.export_bundle(checkpoint.Checkpoint.read(checkpoints[SAMPLE]), folder, plan, traces, lambda _: None)
    return folder


@pytest.fixture
def damaged(tmp_path: Path, exported: Path) -> Path:
    """A private copy of the bundle."""
    return Path(shutil.copytree(exported, tmp_path / "damaged"))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The script and its reference, which are in no package, by name."""
    monkeypatch.syspath_prepend(BENCH)
    yield {name: __import__(name) for name in MODULES}
    for name in MODULES:
        del sys.modules[name]


def run_script(source: Path, bundle: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, BENCH / "exact.py", source, bundle, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.fixture
def prove(bench: dict[str, ModuleType]) -> Callable[..., dict[str, Any]]:
    """Run the proof in this process, which has PyTorch loaded already; graphs have their own in any case."""

    def run(source: Path, bundle: Path, *options: str) -> dict[str, Any]:
        return bench["exact"].prove(bench["exact"].read_arguments([str(source), str(bundle), *options]))

    return run


def edit_graph(path: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    proto = onnx.load(path, load_external_data=False)
    change(proto)
    path.write_bytes(proto.SerializeToString())


def move_a_reference(proto: onnx.ModelProto) -> None:
    tensor = next(entry for entry in proto.graph.initializer if "layers.1.mlp.Wi.weight" in entry.name)
    entry = next(entry for entry in tensor.external_data if entry.key == "offset")
    entry.value = str(int(entry.value) + 4)


def leak_ids(proto: onnx.ModelProto) -> None:
    """Add a trace of all ids to the logits, whether or not they are masked."""
    graph = proto.graph
    for node in graph.node:
        node.output[:] = ["clean" if name == "logits" else name for name in node.output]
        node.input[:] = ["clean" if name == "logits" else name for name in node.input]
    factor, axes = np.array(LEAK, np.float32), np.array([1], np.int64)
    graph.initializer.extend([onnx.numpy_helper.from_array(factor, "leak"), onnx.numpy_helper.from_array(axes, "row")])
    make = onnx.helper.make_node
    graph.node.extend(
        [
            make("Cast", ["input_ids"], ["leak_ids"], to=onnx.TensorProto.FLOAT),
            make("ReduceSum", ["leak_ids", "row"], ["leak_sum"]),
            make("Mul", ["leak_sum", "leak"], ["leak_part"]),
            make("Add", ["clean", "leak_part"], ["logits"]),
        ]
    )


def failed(found: dict[str, Any]) -> set[str]:
    return {row["graph"] for row in found["rows"] if not row["passed"]}


def test_every_graph_answers_like_the_reference(checkpoints, exported):
    options = (*LENGTHS, "--long", "600", "--proof-tokens", "300")

    status, found, err = run_script(checkpoints[SAMPLE], exported, *options)

    assert (status, found["verdict"]) == (0, "passed"), err
    fixed = {f"{form}-b1-s{size}" for form in ("cuda", "portable") for size in BUCKETS}
    assert {row["graph"] for row in found["rows"]} == {"model", "model-unpadded"} | fixed
    assert all(0 < row["max_logit_difference"] <= found["bound"] for row in found["rows"])
    assert found["bound"] == max(2e-5, 8 * found["reference_noise"])
    assert found["logits"]["largest_change_between_inputs"] > 1000 * found["bound"]
    assert found["long"]["proof"]["passed"]
    assert 0 < found["long"]["proof"]["max_logit_difference"] <= found["bound"]
    long = [(row["graph"], row["tokens"], row["width"]) for row in found["long"]["rows"]]
    assert long == [("model", 600, 600), ("model", 360, 600), ("model-unpadded", 600, 600)]
    assert all(row["peak_rss_bytes"] > 1_000_000 for row in [*found["rows"], *found["long"]["rows"]])


def test_rows_are_full_partly_filled_and_behind_whole_windows_of_padding(checkpoints, exported, prove):
    found = prove(checkpoints[SAMPLE], exported, *LENGTHS, "--graphs", "*l*")

    assert found["verdict"] == "passed"
    inputs = {(row["graph"], row["width"]): [] for row in found["rows"]}
    for row in found["rows"]:
        inputs[row["graph"], row["width"]].append((row["tokens"], len(row["bit_equal_with"])))
    assert inputs == {
        ("model", 16): [(16, 0), (10, 3)],
        ("model", 100): [(100, 0), (60, 3), (HALF_WINDOW + 1, 0)],
        ("model-unpadded", 16): [(16, 0)],
        ("model-unpadded", 100): [(100, 0)],
        ("portable-b1-s16", 16): [(16, 0), (10, 3)],
        ("portable-b1-s64", 64): [(64, 0), (38, 3), (HALF_WINDOW + 1, 0)],
    }


def test_a_moved_reference_fails_in_its_graph_alone(checkpoints, damaged):
    edit_graph(damaged / "model.onnx", move_a_reference)

    status, found, err = run_script(checkpoints[SAMPLE], damaged, *LENGTHS, "--graphs", "model*")

    assert (status, found["verdict"]) == (1, "failed")
    assert failed(found) == {"model"}
    assert "FAILED" in err


def test_the_bundle_of_another_checkpoint_fails(tmp_path, checkpoints, exported, prove):
    other = Path(shutil.copytree(checkpoints[SAMPLE], tmp_path / "other"))
    tensors = load_file(other / "model.safetensors")
    tensors["classifier.weight"] = tensors["classifier.weight"] * np.float32(1.001)
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})

    found = prove(other, exported, *LENGTHS)

    assert found["verdict"] == "failed"
    assert failed(found) == {row["graph"] for row in found["rows"]}


def test_ids_that_leak_through_the_mask_fail_within_the_bound(checkpoints, damaged, prove):
    edit_graph(damaged / "portable-b1-s64.onnx", leak_ids)

    found = prove(checkpoints[SAMPLE], damaged, "--graphs", "portable-*")

    assert found["verdict"] == "failed"
    (leaking,) = [row for row in found["rows"] if not row["passed"]]
    assert leaking["graph"] == "portable-b1-s64"
    assert leaking["max_logit_difference"] <= found["bound"]
    assert not any(leaking["bit_equal_with"].values())


def test_a_graph_that_gives_no_answer_fails(checkpoints, damaged, prove, capfd):
    (damaged / "cuda-b1-s16.onnx").write_bytes(b"no graph")

    found = prove(checkpoints[SAMPLE], damaged, "--graphs", "cuda-*")

    assert found["verdict"] == "failed"
    assert failed(found) == {"cuda-b1-s16"}
    assert "cuda-b1-s16 ended with status 1" in capfd.readouterr().err


def test_nothing_to_compare_is_no_pass(checkpoints, exported):
    status, found, err = run_script(checkpoints[SAMPLE], exported, "--graphs", "nothing")

    assert (status, found) == (1, {})
    assert "0 graphs" in err


@pytest.mark.parametrize("step", [-1, 1])
def test_a_chunked_reference_with_another_window_is_refused(bench, prove, checkpoints, exported, monkeypatch, step):
    attend = bench["chunked_reference"].attend_in_chunks

    def attend_otherwise(*tensors: Any, sliding_window: int | None = None, **options: Any) -> Any:
        return attend(*tensors, sliding_window=sliding_window and sliding_window + step, **options)

    monkeypatch.setattr(bench["chunked_reference"], "attend_in_chunks", attend_otherwise)
    long = ("--long", "600", "--proof-tokens", "128")

    found = prove(checkpoints[SAMPLE], exported, "--lengths", "16", "--graphs", "model", *long)

    assert found["verdict"] == "failed"
    assert failed(found) == set()
    assert not found["long"]["proof"]["passed"]
    assert found["long"]["rows"] == []
