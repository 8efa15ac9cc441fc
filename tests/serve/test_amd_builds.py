"""The real builds for AMD GPUs on a machine without one: asked for the GPU there is an error, else an answer.

    python -m venv M && M/bin/pip install onnxruntime-migraphx==1.27.1 $SERVING
    python -m venv R && R/bin/pip install onnxruntime-rocm==1.22.2.post3 $SERVING
    export VELA_MIGRAPHX_PYTHON=M/bin/python VELA_ROCM_PYTHON=R/bin/python
    .venv/bin/pytest -m peers tests/serve/test_amd_builds.py

SERVING is numpy, tokenizers, click, starlette, uvicorn, uvloop, httptools, msgspec, prometheus-client and pyyaml.
Builds of ONNX Runtime overwrite each other, so each needs an environment of its own.
"""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.peers

ROOT = Path(__file__).parents[2]
BUILDS = {
    "migraphx": ("VELA_MIGRAPHX_PYTHON", "MIGraphXExecutionProvider", "libmigraphx_c.so.3"),
    "rocm": ("VELA_ROCM_PYTHON", "ROCMExecutionProvider", "libhipblas.so.3"),
}


@pytest.fixture(params=BUILDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def run(kind: str, *arguments: str, path: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of this source tree with a build's Python."""
    python = os.environ[BUILDS[kind][0]]
    script = "from vela.scripts.cli import main; main()"
    paths = os.pathsep.join(filter(None, [path, str(ROOT / ".typing")]))
    return subprocess.run(
        [python, "-c", script, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def ways(store: Path, device: str) -> dict[str, list[str]]:
    """Every command that asks for a device."""
    return {
        "predict": ["predict", "--store", str(store), "--model", "mood", "--text", "hello", "--device", device],
        "serve": ["serve", "--store", str(store), "--models", "mood", "--port", "0", "--device", device],
        "check": ["serve", "--store", str(store), "--models", "mood", "--check", "--device", device],
    }


@pytest.mark.parametrize("way", ["predict", "serve", "check"])
def test_asked_for_the_gpu_there_is_one_error_and_no_answer(kind: str, way: str, bag_store: Path) -> None:
    _, provider, library = BUILDS[kind]

    found = run(kind, *ways(bag_store, f"{kind}:0")[way])

    assert found.returncode == 1
    assert found.stdout == ""
    assert provider in found.stderr
    assert library in found.stderr
    assert found.stderr.count("does not load") == 1
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("way", ["predict", "check"])
def test_asked_for_the_cpu_it_answers(kind: str, way: str, bag_store: Path) -> None:
    found = run(
        kind, *ways(bag_store, "cpu")[way], "--unverified" if way == "predict" else "--accept-unverified-engine"
    )

    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("other", ["cuda:0", "rocm:0", "migraphx:0"])
def test_another_device_than_the_builds_own_is_refused_with_what_to_install(
    kind: str, other: str, bag_store: Path
) -> None:
    if other == f"{kind}:0":
        other = "cuda:1"

    found = run(kind, *ways(bag_store, other)["predict"])

    assert found.returncode == 1
    assert f"vela-onnx[{other.partition(':')[0]}]" in found.stderr


def test_two_builds_together_are_refused(kind: str, bag_store: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "onnxruntime-1.32.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: onnxruntime\nVersion: 1.32.0\n")

    found = run(kind, *ways(bag_store, "cpu")["predict"], path=str(tmp_path))

    assert found.returncode == 1
    assert "exactly one ONNX Runtime build" in found.stderr


def test_a_variable_that_overrides_options_is_refused(bag_store: Path) -> None:
    found = run("migraphx", *ways(bag_store, "migraphx:0")["predict"], ORT_MIGRAPHX_FP16_ENABLE="0")

    assert found.returncode == 1
    assert "Unset ORT_MIGRAPHX_FP16_ENABLE" in found.stderr
