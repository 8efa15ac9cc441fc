"""Exit codes of the command line: 0 passed, 1 failed, 2 misuse, 3 not compared; a bug keeps its traceback."""

import json
from pathlib import Path

import pytest

from vela.scripts import cli

SAMPLE = "tiny-intent"


def test_a_passing_graph_exits_with_0_and_prints_the_table(copied, vela, checkpoints):
    status, out, _ = vela(
        *("verify-graph", str(copied[SAMPLE]), "--checkpoint", str(checkpoints[SAMPLE])),
        *("--graph", "portable-b1-s64", "--max-tokens", "64"),
    )

    assert status == 0
    assert "1 of 1 graphs passed the strict bar" in out


def test_records_are_json_lines_for_a_pipe(copied, vela, checkpoints):
    status, out, _ = vela(
        *("verify-graph", str(copied[SAMPLE]), "--checkpoint", str(checkpoints[SAMPLE])),
        *("--graph", "portable-b1-s64", "--max-tokens", "64", "--json"),
    )

    (line,) = out.splitlines()
    assert status == 0
    assert json.loads(line)["verdict"] == "passed"


def test_a_failing_graph_exits_with_1_and_names_the_fault(copied, vela, checkpoints):
    path = copied[SAMPLE] / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)

    status, out, err = vela(
        "verify-graph", str(copied[SAMPLE]), "--checkpoint", str(checkpoints[SAMPLE]), "--fail-fast"
    )

    assert status == 1
    assert "sources.digests" in out
    assert "other weights: 1 of " in err


def test_a_bundle_without_a_reference_is_not_compared_and_exits_with_3(copied, vela):
    status, _, err = vela("verify-graph", str(copied[SAMPLE]))

    assert status == 3
    assert "no reference" in err


def test_a_bundle_is_not_taken_as_its_own_reference(copied, vela):
    status, _, err = vela("verify-graph", str(copied[SAMPLE]), "--checkpoint", str(copied[SAMPLE]))

    assert status == 3
    assert "the bundle itself" in err


def test_misuse_exits_with_2(vela):
    status, _, err = vela("verify-graph", "--bar", "generous", "nowhere")

    assert status == 2
    assert "generous" in err


def test_a_bug_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(cli.vela, "main", lambda prog_name: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_a_missing_extra_is_named(vela, monkeypatch):
    def fail(prog_name: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(cli.vela, "main", fail)

    status, _, err = vela("export")

    assert status == 1
    assert "vela-onnx[export]" in err


def test_export_verify_publish_predict_from_the_command_line(tmp_path: Path, vela, checkpoints):
    bundle, store = str(tmp_path / "bundle"), str(tmp_path / "store")

    exported = vela("export", "--checkpoint", str(checkpoints[SAMPLE]), "--out", bundle, "--buckets", "64")
    refused = vela("publish", bundle, "--store", store)
    verified = vela("verify-graph", bundle, "--checkpoint", str(checkpoints[SAMPLE]), "--max-tokens", "64")
    published = vela("publish", bundle, "--store", store)
    inspected = vela("inspect", bundle, "--json")
    predicted = vela("predict", "--store", store, "--model", SAMPLE, "--text", "Where is my card?", "--json")

    assert [run[0] for run in (exported, refused, verified, published, inspected, predicted)] == [0, 1, 0, 0, 0, 0]
    assert json.loads(inspected[1])["graphs"][0]["verdicts"] == {"cpu": "passed"}
    assert json.loads(predicted[1])["label"] == "card_arrival"
