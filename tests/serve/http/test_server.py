"""The server as a process: the ready line, a drained stop, refusals at start, and what it never imports."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from vela.graphs import bundle as bundles
from vela.graphs import store

PATIENCE_S = 60

# Imports that serving must do without; a finder that raises stands before all others.
SERVE_WITHOUT = """
import sys

BLOCKED = {"torch", "transformers", "onnx", "onnx_ir", "onnxscript", "safetensors", "huggingface_hub", "scipy", "rich"}


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")
        return None


sys.meta_path.insert(0, Blocker())
sys.argv = ["vela", *sys.argv[1:]]
from vela.scripts import cli

cli.main()
"""


# The same, with a lane that fails as soon as the models that it warmed up are ready.
ARMED = """
from vela.serve import lane, registry

ready = registry._ready


impatient = lane.DEFAULT_BOUNDS


def arm(entry):
    lane.Run.execute = fail
    lane.Lane.bounds = property(lambda _: impatient, lambda *_: None)
    return ready(entry)


registry._ready = arm
"""

# A run that never ends, and a lane that has little patience.
SERVE_WITH_A_HANG = SERVE_WITHOUT.replace(
    "cli.main()",
    """
import threading


def fail(run):
    threading.Event().wait()

"""
    + ARMED
    + """
impatient = lane.Bounds(pulse_s=0.05, hang_s=0.3, hang_factor=0.0, first_s=0.3)
cli.main()
""",
)

# A bug that strikes in the lane's thread.
SERVE_WITH_A_BUG = SERVE_WITHOUT.replace(
    "cli.main()",
    """
def fail(run):
    raise RuntimeError("a bug in the lane")

"""
    + ARMED
    + "cli.main()",
)


@contextmanager
def serving(arguments: Sequence[str], script: str = SERVE_WITHOUT) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `vela serve` and give its process and its address once it says that it is ready."""
    command = [sys.executable, "-c", script, "serve", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            assert line.startswith("ready: "), line + server.stderr.read()
            yield server, line.rsplit(" ", 1)[-1].strip()
        finally:
            server.kill()


def ask(url: str, body: dict[str, object]) -> dict[str, object]:
    request = urllib.request.Request(f"{url}/v1/classify", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return json.load(response)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SERVE_WITHOUT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_it_serves_without_torch_or_onnx_and_stops_with_0_on_sigterm(bag_store: Path) -> None:
    with serving(["--store", str(bag_store), "--port", "0"]) as (server, url):
        answer = ask(url, {"model": "mood", "input": "hello"})
        server.send_signal(signal.SIGTERM)
        status = server.wait(PATIENCE_S)

    assert answer["model"] == "mood"
    assert status == 0


def test_a_stop_lets_the_request_under_way_finish(bag_store: Path) -> None:
    with serving(["--store", str(bag_store), "--models", "mood", "--port", "0"]) as (server, url):
        with httpx.Client(timeout=PATIENCE_S) as client:
            answer = client.post(f"{url}/v1/classify", content=_slowly(server)).json()
        status = server.wait(PATIENCE_S)

    assert answer["results"][0]["index"] == 0
    assert status == 0


def _slowly(server: subprocess.Popen[str]) -> Iterator[bytes]:
    """Send half of a body, then stop the server, then send the other half."""
    whole = json.dumps({"input": "hello"}).encode()
    yield whole[:5]
    server.send_signal(signal.SIGTERM)
    yield whole[5:]


def test_a_lane_that_dies_fails_its_callers_and_ends_the_process_with_1(bag_store: Path) -> None:
    with serving(["--store", str(bag_store), "--models", "mood", "--port", "0"], SERVE_WITH_A_BUG) as (server, url):
        answer = httpx.post(f"{url}/v1/classify", json={"input": "hello"}, timeout=PATIENCE_S)
        status = server.wait(PATIENCE_S)

    assert answer.status_code == 503
    assert status == 1


def test_a_lane_that_hangs_fails_its_callers_and_ends_the_process_with_1(bag_store: Path) -> None:
    arguments = ["--store", str(bag_store), "--models", "mood", "--port", "0"]
    with serving(arguments, SERVE_WITH_A_HANG) as (server, url):
        answer = httpx.post(f"{url}/v1/classify", json={"input": "hello"}, timeout=PATIENCE_S)
        failed_s = time.monotonic()
        status = server.wait(PATIENCE_S)

    assert answer.status_code == 503
    assert "has not ended after" in answer.json()["error"]["message"]
    assert status == 1
    assert time.monotonic() - failed_s < 5.0


def test_a_bundle_that_is_published_later_is_served_without_a_stop(
    bag_store: Path, bags: dict[str, Path], tmp_path: Path, make_bundle: Callable[..., Path]
) -> None:
    path = tmp_path / "store"
    found = store.Store.create_or_open(path)
    found.publish(bags["mood"])
    arguments = ["--store", str(path), "--models", "mood", "--port", "0", "--reload", "0.1"]
    with serving(arguments) as (server, url):
        before = ask(url, {"input": "hello"})
        head = bundles.Bundle.open(bags["mood"]).manifest.head()
        found.publish(make_bundle("mood", head, np.ones((259, 3), dtype=np.float32)))
        line = server.stderr.readline()
        after = ask(url, {"input": "hello"})
        server.send_signal(signal.SIGTERM)
        status = server.wait(PATIENCE_S)

    assert "mood: serves bundle" in line
    assert before["results"][0]["probabilities"] != after["results"][0]["probabilities"]
    assert len({*after["results"][0]["probabilities"]}) == 1  # all logits are 1 now
    assert status == 0


def test_requests_are_logged_as_json_without_their_text(bag_store: Path) -> None:
    arguments = ["--store", str(bag_store), "--models", "mood", "--port", "0", "--log-format", "json", "--access-log"]
    with serving(arguments) as (server, url):
        answer = httpx.post(f"{url}/v1/classify", json={"input": "hello secret"}, headers={"x-request-id": "mine-1"})
        line = server.stderr.readline()
        server.send_signal(signal.SIGTERM)
        server.wait(PATIENCE_S)

    logged = json.loads(line)
    assert answer.headers["x-request-id"] == "mine-1"
    assert (logged["request_id"], logged["status"], logged["model"]) == ("mine-1", 200, "mood")
    assert logged["graphs"] == ["model"]
    assert set(logged["timing_ms"]) == {"parse", "tokenize", "queue", "forward", "post", "serialize", "total"}
    assert "secret" not in line


def test_it_listens_on_a_unix_socket_and_takes_it_away(bag_store: Path, tmp_path: Path) -> None:
    path = tmp_path / "vela.sock"

    with serving(["--store", str(bag_store), "--models", "mood", "--uds", str(path)]) as (server, where):
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            health = client.get("http://vela/health")
        server.send_signal(signal.SIGINT)
        status = server.wait(PATIENCE_S)

    assert where == f"unix:{path}"
    assert health.status_code == 200
    assert status == 0
    assert not path.exists()


def test_check_names_every_model_and_stops(bag_store: Path) -> None:
    found = run("serve", "--store", str(bag_store), "--models", "mood,vectors", "--rehearse")

    assert found.returncode == 0, found.stderr
    assert found.stderr.splitlines() == ["mood: ready", "vectors: ready"]


@pytest.fixture
def damaged(bag_store: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of the store in which a file of the model `mood` has one byte changed."""

    def damage(name: str) -> Path:
        path = Path(shutil.copytree(bag_store, tmp_path / "store"))
        pointer = json.loads((path / "current" / "mood").read_bytes())
        file = path / "bundles" / pointer["bundle"] / name
        os.chmod(file.parent, 0o755)
        os.chmod(file, 0o644)
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        return path

    return damage


@pytest.mark.parametrize("arguments", [["--rehearse"], ["--port", "0"]])
def test_a_damaged_bundle_ends_the_start_with_1_and_its_reason(
    damaged: Callable[[str], Path], arguments: list[str]
) -> None:
    found = run("serve", "--store", str(damaged("model.onnx")), "--models", "mood", *arguments)

    assert found.returncode == 1
    assert "model.onnx: found sha256" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "mood,nope"], "found 'nope'; expected one of claims, mood, names, ranks, topics, vectors"),
        (["--device", "npu"], "found the device 'npu'"),
        (["--device", "cuda:0", "--models", "mood", "--check"], "expected a build with CUDAExecutionProvider"),
        (["--host", "256.0.0.1"], "an address that cannot be bound"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(bag_store: Path, arguments: list[str], message: str) -> None:
    found = run("serve", "--store", str(bag_store), *arguments)

    assert found.returncode == 1
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_predict_answers_a_file_in_order_as_json(bag_store: Path, tmp_path: Path) -> None:
    file = tmp_path / "inputs.jsonl"
    file.write_text('{"context": "a", "question": "b", "answer": "c d"}\n\n"only a text"\n')

    found = run("predict", "--store", str(bag_store), "--model", "claims", "--json", str(file))

    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert found.returncode == 1  # one input failed
    assert [line["index"] for line in lines] == [0, 1]
    assert "spans" in lines[0]
    assert lines[1]["error"]["code"] == "invalid_input"


def test_predict_prints_for_people(bag_store: Path) -> None:
    found = run("predict", "--store", str(bag_store), "--model", "mood", "--text", "hello", "--text", "you")

    assert found.returncode == 0, found.stderr
    assert [line[:2] for line in found.stdout.splitlines()] == ["0:", "1:"]


def test_predict_needs_a_verdict_unless_told_otherwise(bags: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bags["mood"], tmp_path / "mood"))
    shutil.rmtree(folder / "verification")

    refused = run("predict", "--bundle", str(folder), "--text", "hello")
    tried = run("predict", "--bundle", str(folder), "--text", "hello", "--unverified")

    assert refused.returncode == 1
    assert "no record" in refused.stderr
    assert tried.returncode == 0


@pytest.mark.parametrize(
    "arguments", [["--text", "a"], ["--bundle", "B", "--store", "B", "--text", "a"], ["--bundle", "B"]]
)
def test_predict_without_a_model_or_a_text_is_misuse(tmp_path: Path, arguments: list[str]) -> None:
    found = run("predict", *(str(tmp_path) if argument == "B" else argument for argument in arguments))

    assert found.returncode == 2


def test_the_block_blocks() -> None:
    script = SERVE_WITHOUT.replace("from vela.scripts import cli", "import onnx as cli")

    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert "onnx is blocked" in found.stderr
