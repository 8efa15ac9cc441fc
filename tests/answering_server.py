"""A server whose answers a test scripts: real sockets of this machine, in a thread, with time that the test owns."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = {"label": "a", "probabilities": [0.75, 0.25], "input": {"tokens": 5}}


@dataclass(frozen=True)
class Reply:
    """What one request gets."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drops: bool = False


@dataclass(frozen=True)
class Asked:
    """One request as the server saw it; `times` counts requests of this body, this one included."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    times: int

    @property
    def text(self) -> str:
        return str(self.body["input"])


def answer(**fields: Any) -> Reply:
    return Reply({"model": "m", "results": [{"index": 0} | ANSWER | fields], "meta": {"timing_ms": 1.5}})


def refusal(code: str = "max_length_exceeded") -> Reply:
    return Reply({"results": [{"index": 0, "error": {"code": code, "message": "9,000 tokens"}}]})


class Clock:
    """Nanoseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1

    def __call__(self) -> int:
        return self.now

    def pass_ms(self, milliseconds: float) -> None:
        self.now += round(milliseconds * 1e6)


class AnsweringServer:
    """Answers what `script` says, and says who it is: `card` in /v1/models, `started_s` in /metrics."""

    def __init__(self, port: int = 0) -> None:
        self.script: Callable[[Asked], Reply] = lambda asked: answer()
        self.asked: list[Asked] = []
        self.connections = 0
        self.card: dict[str, Any] | None = {"id": "m", "model_sha256": "f" * 64, "engine": "e 1", "device": "cpu"}
        self.started_s: float | None = 1000.0
        self._times: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = _Listening(self, port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def reply(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        spelled = json.dumps([path, body], sort_keys=True)
        with self._lock:
            self._times[spelled] += 1
            asked = Asked(path, body, headers, self._times[spelled])
            self.asked.append(asked)
        return self.script(asked)

    def describe(self, path: str) -> tuple[int, bytes]:
        if path == "/v1/models" and self.card is not None:
            return 200, json.dumps({"object": "list", "data": [self.card]}).encode()
        if path == "/metrics" and self.started_s is not None:
            return 200, f"# TYPE x counter\nvela_cancelled_created {self.started_s}\nx_total 5\n".encode()
        return 404, b"{}"


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, owner: AnsweringServer, port: int) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listening

    def setup(self) -> None:
        super().setup()
        self.server.owner.connections += 1

    def do_GET(self) -> None:
        self._send(*self.server.owner.describe(self.path), {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        reply = self.server.owner.reply(self.path, body, {k.lower(): v for k, v in self.headers.items()})
        if reply.drops:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self._send(reply.status, content, reply.headers)

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} x", f"content-length: {len(content)}", *(f"{k}: {v}" for k, v in headers.items())]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode() + content)
        self.close_connection = headers.get("connection") == "close"

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""
