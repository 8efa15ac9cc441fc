"""What optimum-onnx 0.1.0 with Transformers 4.57 makes of a checkpoint that Transformers 5 saved: the real case.

The files were made by optimum/make.py with optimum-onnx 0.1.0, transformers 4.57.6 and torch 2.13.0 from a checkpoint
that transformers 5.24.0 saved, on 2026-11-30. Under `-m peers` they are made anew:

    VELA_OPTIMUM_PYTHON=PATH .venv/bin/pytest -m peers tests/verify/test_optimum.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vela.export import verification
from vela.graphs import record
from vela.verify import checkpoint, foreign_gate
from vela.verify.options import GateOptions

KEPT = Path(__file__).with_name("optimum")
# Beyond 64 tokens, where a wrong theta of sliding layers would move answers too.
MAX_TOKENS = 160


@pytest.fixture(scope="module", params=["kept", pytest.param("anew", marks=pytest.mark.peers)])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint and both graphs."""
    if request.param == "kept":
        return KEPT
    made = tmp_path_factory.mktemp("optimum")
    python = os.environ["VELA_OPTIMUM_PYTHON"]
    subprocess.run([sys.executable, KEPT / "make.py", made, "--optimum-python", python], check=True)
    return made


def judge(files: Path, name: str) -> record.Record:
    source = checkpoint.Checkpoint.read(files / "checkpoint")
    options = GateOptions(max_tokens=MAX_TOKENS, budget_s=60.0)
    references = lambda: verification.make_references(source)  # noqa: E731
    return foreign_gate.verify_file(files / name, source, references, options, lambda line: None)


def test_the_theta_that_transformers_4_takes_fails_and_is_named(files):
    found = judge(files, "wrong.onnx")

    failed = {check.name: check.detail for check in found.checks if check.status == "failed"}
    assert found.verdict == "failed"
    assert "Cos of theta 10,000" in failed["graph.rotary"]
    assert "a RoPE table: theta 10,000" in failed["weights.identity"]
    assert "all 24 tensors of the checkpoint are in the graph, and 1 tensors" in failed["weights.identity"]
    assert found.diagnosis.cause == "local theta"
    assert "with local RoPE theta 10,000 instead of 160,000, to" in found.cause


def test_the_same_export_done_right_passes(files):
    found = judge(files, "right.onnx")

    assert found.verdict == "passed"
    assert found.compared == found.planned > 100
    assert max(run.max_abs_logit for run in found.runs) < 2e-5
    details = {check.name: check.detail for check in found.checks}
    assert details["engine.processes"] == "3 fresh processes: equal bit for bit"
