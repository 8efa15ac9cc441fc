"""The CPU benchmark: figures for every engine, and nothing hidden when an engine is wrong, lost or absent.

No test looks at a time: the machine that runs them is busy.
"""

import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

from vela.verify import checkpoint

SAMPLE = "tiny-intent"
BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
ENGINES = ("vela", "vela-unpadded", "torch", "roofline")
MODULES = ("cpu", "peers", "report", "roofline")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The benchmark's modules, which are scripts and in no package, by name."""
    monkeypatch.syspath_prepend(BENCH)
    imported = {name: __import__(name) for name in MODULES}
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name)
    return imported


def run_benchmark(source: Path, bundle: Path, work: Path, *options: str) -> tuple[int, dict, str]:
    command = [sys.executable, BENCH / "cpu.py", source, work, "--bundle", bundle, "--engines", ",".join(ENGINES)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture
def with_other_weights(copied: dict[str, Path]) -> Path:
    """A bundle whose masked graph alone refers to weights with another classifier."""
    folder = copied[SAMPLE]
    place = checkpoint.Checkpoint.read(folder).tensors["model.safetensors"]["classifier.weight"]
    content = bytearray((folder / "model.safetensors").read_bytes())
    weights = np.frombuffer(content, np.float32, place.length // 4, place.offset)
    weights *= 1.01
    (folder / "other.safetensors").write_bytes(content)
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for entry in (entry for tensor in model.graph.initializer for entry in tensor.external_data):
        entry.value = "other.safetensors" if entry.key == "location" else entry.value
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


def test_every_engine_has_figures_and_answers_like_torch(tmp_path, checkpoints, bundles):
    options = ("--lengths", "64,16", "--runs", "2", "--threads", "1", "--long", "1100")

    status, found, err = run_benchmark(checkpoints[SAMPLE], bundles[SAMPLE], tmp_path, *options)

    assert status == 0, err
    assert (found["differing"], found["lost"], found["absent"]) == ([], {}, {})
    assert [row["tokens"] for row in found["lengths"]] == [16, 64, 1100]
    for row in found["lengths"][:2]:
        assert set(row["median_s"]) == set(row["peak_rss_bytes"]) == set(ENGINES)
        assert all(seconds > 0 for seconds in row["median_s"].values())
        assert all(len(seconds) == 2 for seconds in row["all_s"].values())
        assert set(row["ratios"]) == {"vela / torch", "vela-unpadded / torch"}
        assert set(row["share_of_roofline"]) == set(row["max_logit_difference"]) == set(ENGINES) - {"roofline"}
        assert 0 < row["max_logit_difference"]["vela"] < 2e-5  # 0 would be torch compared with itself
        assert set(row["roofline"]["gflops_per_s"]) == {"linear", "local", "global"}
    assert set(found["lengths"][2]["median_s"]) == {"vela", "vela-unpadded", "roofline"}
    assert "of floor" in err


def test_another_graph_is_reported_as_a_difference(tmp_path, checkpoints, with_other_weights):
    options = ("--lengths", "16", "--runs", "1", "--threads", "1")

    status, found, err = run_benchmark(checkpoints[SAMPLE], with_other_weights, tmp_path, *options)

    (row,) = found["lengths"]
    assert status == 1
    assert found["differing"] == row["differing"] == ["vela"]
    assert row["max_logit_difference"]["vela"] > 1e-3
    assert row["max_logit_difference"]["vela-unpadded"] < 2e-5
    assert "vela answers otherwise" in err


def test_an_engine_that_ends_is_lost_and_the_others_go_on(bench, bundles, checkpoints):
    setup = bench["peers"].Setup("", "", str(bundles[SAMPLE]), "", 1)
    contest = bench["cpu"].Contest(checkpoint.Checkpoint.read(checkpoints[SAMPLE]), setup, Path(sys.executable))
    contest.start(["vela", "vela-unpadded"])
    contest.workers["vela"]._process.kill()  # as the kernel does where memory runs out

    replies = contest.ask_in_turn(list(contest.workers), contest.input_ids(16))

    contest.close()
    assert set(replies) == {"vela-unpadded"}
    assert contest.lost == {"vela": "vela ended with status -9 at 16 tokens"}


def test_an_engine_that_cannot_load_is_lost(bench, tmp_path):
    peers = bench["peers"]
    setup = peers.Setup("vela", "", str(tmp_path / "no-bundle"), "", 1)

    with pytest.raises(peers.WorkerLostError, match="vela ended with status 1"):
        peers.Worker.start(setup, Path(sys.executable))


def test_an_engine_that_is_not_installed_is_absent(tmp_path, bench, monkeypatch):
    peers = bench["peers"]
    (tmp_path / "openvino.py").write_text("raise ModuleNotFoundError(\"No module named 'openvino'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(peers.EngineAbsentError, match="openvino"):
        peers.Worker.start(peers.Setup("openvino", "", "", "", 1), Path(sys.executable))


@pytest.mark.parametrize("wrong", [[1.0, math.nan], [1.0], [], [1.0, math.inf]])
def test_logits_that_cannot_be_compared_differ(bench, wrong):
    replies = {name: bench["peers"].Reply({"forward": 1.0}, [1.0, 2.0], 1) for name in ("vela", "torch")}
    last = replies | {"vela": bench["peers"].Reply({"forward": 1.0}, wrong, 1)}

    row = bench["report"].describe_length(replies, [replies, last], {})

    assert row["differing"] == ["vela"]
    assert row["max_logit_difference"] == {"vela": None, "torch": 0.0}


def test_ratios_are_of_medians_and_of_rounds(bench):
    rounds = [
        {name: bench["peers"].Reply({"forward": seconds}, [0.0], 1) for name, seconds in pair.items()}
        for pair in ({"vela": 1.0, "torch": 4.0}, {"vela": 2.0, "torch": 2.0}, {"vela": 3.0, "torch": 5.0})
    ]

    row = bench["report"].describe_length(rounds[0], rounds, {})

    assert row["median_s"] == {"vela": 2.0, "torch": 4.0}
    assert row["ratios"] == {"vela / torch": {"of_medians": 0.5, "paired": 0.6}}


def test_operations_of_the_307m_shape_are_those_counted_by_hand(bench):
    shape = bench["roofline"].Shape(768, 1152, 12, 64, local_layers=14, global_layers=8)

    assert shape.blocks(2048) == (32, 64, 192)
    assert shape.blocks(16) == (1, 16, 16)
    assert shape.flops(2048) == {
        "linear": 22 * 2048 * 2 * 768 * (2304 + 768 + 2304 + 1152),
        "local": 14 * 2048 * 192 * 3072,
        "global": 8 * 2048 * 2048 * 3072,
    }
