"""Recorded answers made by hand: files as a recorder writes them, with one job unless a test says otherwise.

And what is recorded here: jobs for the samples, with limits so short that every mode cuts, windows and rejects; and a
server that answers what a test tells it.
"""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import parity_samples
import pytest

from vela.graphs import model_table
from vela.verify.parity import asking, comparison, connection, corpus, inputs, record, recording, side, side_http

INPUTS_SHA256 = "5" * 64
TEXTS = 6


REPORT = {"tokens": 3, "processed_tokens": 3, "truncated": False}
ANSWER = {"index": 0, "label": "safe", "probabilities": [0.75, 0.25], "input": REPORT}
CARD = {
    "id": "shield",
    "repo": "",
    "revision": "r1",
    "manifest_sha256": "m" * 64,
    "engine": "onnxruntime 1.32.0",
    "device": "cpu",
    "heads": [{"name": "default", "labels": ["safe", "unsafe"], "thresholds": None}],
}


class Recorded:
    """Writes answer files, and compares them through the same files that a user has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def header(self, jobs: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        return {"format": "vela-answers/1", "side": "a", "inputs_sha256": INPUTS_SHA256, "jobs": jobs, **fields}

    def job(self, mode: str, count: int, **fields: Any) -> dict[str, Any]:
        options = {"max_tokens": 8192, "overflow": "reject", "window": None}
        ids = [f"p{index:04d}" for index in range(count)]
        return {"job": "j", "model": "m", "revision": "r", "mode": mode, "options": options, "inputs": ids} | fields

    def answers(self, results: list[dict[str, Any] | None], job: str = "j") -> list[dict[str, Any]]:
        """Give a line for each result; one that holds `error` and nothing else is a rejection, None is left out."""
        found = []
        for index, result in enumerate(results):
            body = result if result is None or list(result) == ["error"] else {"result": result}
            if body is not None:
                found.append({"job": job, "id": f"p{index:04d}", "latency_ns": [9_000_000, 2_000_000], **body})
        return found

    def write(self, name: str, lines: list[Any]) -> Path:
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def sides(self, mode: str, baseline: list[Any], candidate: list[Any], **fields: Any) -> tuple[Path, Path]:
        """Write both files."""
        head = self.header([self.job(mode, max(len(baseline), len(candidate)), **fields)])
        return (
            self.write("baseline.jsonl", [head, *self.answers(baseline)]),
            self.write("candidate.jsonl", [head, *self.answers(candidate)]),
        )

    def compare(
        self, mode: str, baseline: list[Any], candidate: list[Any], device_class: str = "cpu", **fields: Any
    ) -> record.ParityRecord:
        """Write both files, read them, compare."""
        expected, actual = map(recording.Recording.from_file, self.sides(mode, baseline, candidate, **fields))
        return comparison.compare(comparison.Comparison.from_recordings(expected, actual), device_class)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


@pytest.fixture(scope="session")
def table(checkpoints: dict[str, Path]) -> model_table.ModelTable:
    """The samples as pinned models."""
    return parity_samples.sample_table(checkpoints)


@pytest.fixture(scope="session")
def sample_jobs(table: model_table.ModelTable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A jobs file that asks each sample a few inputs, the longest among them."""
    path = tmp_path_factory.mktemp("parity") / "samples.jobs.json"
    corpus.write_jobs(corpus.make_jobs(corpus.Wanted("cpu", table, most=TEXTS)), path)
    return path


@pytest.fixture
def record_side(tmp_path: Path) -> Callable[..., recording.Recording]:
    """Record a side's answers without load, and read them back."""

    def run(asked: inputs.Asked, system: side.Side, name: str = "answers.jsonl") -> recording.Recording:
        asking.Asking(asked, system, 0.0, lambda message: None).record(tmp_path / name)
        return recording.Recording.from_file(tmp_path / name)

    return run


class FakeServer:
    """A server whose answers are set, and whose requests are kept."""

    def __init__(self) -> None:
        self.answer: Callable[[], tuple[int, bytes] | None] = lambda: (200, json.dumps({"results": [ANSWER]}).encode())
        self.models: tuple[int, bytes] = (200, json.dumps({"object": "list", "data": [CARD]}).encode())
        self.asked: list[tuple[str, dict]] = []
        self.keys: list[str | None] = []
        self.connections = 0
        self.closes_after_each = False
        self.url = ""

    def say(self, body: Any, status: int = 200) -> None:
        """Answer like that from now on."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answer = lambda: (status, content)


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    told = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            told.connections += 1
            super().setup()

        def do_GET(self) -> None:
            told.keys.append(self.headers.get("authorization"))
            self.reply(told.models)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            told.asked.append((self.path, json.loads(body)))
            self.reply(told.answer())
            if told.closes_after_each:  # without a word, as servers close what was idle
                self.close_connection = True

        def reply(self, found: tuple[int, bytes] | None) -> None:
            if found is None:
                self.close_connection = True
                return
            self.send_response(found[0])
            self.send_header("content-length", str(len(found[1])))
            self.end_headers()
            self.wfile.write(found[1])

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_port}"
    yield told
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def system(fake) -> Iterator[side_http.HttpSide]:
    made = side_http.HttpSide(connection.Server(fake.url, {}, timeout_s=20.0), model_table.load_table())
    yield made
    made.close()
