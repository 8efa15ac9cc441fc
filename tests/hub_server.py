"""A Hub on this machine that speaks the file protocol, and fails as it is told: for tests of export/hub.py.

`GET /{organisation}/{name}/resolve/{revision}/{file}` answers as the Hub does: small files at once, large ones by a
redirection to where they are stored, with `X-Repo-Commit`, `ETag` or `X-Linked-ETag`, sizes and ranges.
Source: huggingface_hub 2.4, file_download.py, and its tests' expectations.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from vela.graphs import digests, model_table

LARGE = ".safetensors"  # what the Hub keeps apart
FAULTS = (
    *("wrong byte", "truncated", "breaks off", "longer", "redirect loop", "429", "429 for long", "no revision"),
    *("no repository", "no file", "gated", "500", "stalls", "closes"),
)


@dataclass(slots=True)
class HubServer:
    """What is served, what goes wrong, and what was asked.

    Attributes:
        files: Content by repository, revision and name.
        faults: For a file name, what goes wrong, once for each entry; the last stays where it ends with `always`.
        asked: Every request: file and range.
    """

    files: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    address: str = ""
    released: threading.Event = field(default_factory=threading.Event)

    def put(self, entry: model_table.ModelEntry, folder: Path) -> None:
        """Serve a model's files."""
        for name in entry.files:
            self.files[entry.repository, entry.revision, name] = (folder / name).read_bytes()

    def fault_of(self, name: str) -> str:
        waiting = self.faults.get(name, [])
        if not waiting:
            return ""
        return waiting[0].removesuffix(" always") if waiting[0].endswith("always") else waiting.pop(0)


@contextmanager
def serving() -> Iterator[HubServer]:
    """Serve until the block ends."""
    state = HubServer()

    class Handler(_Handler):
        hub = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[HubServer]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = self.path.split("/", 5)
        if parts[1] == "stored":
            self._stored(*self.path.removeprefix("/stored/").split("/", 3))
            return
        repository, revision, name = "/".join(parts[1:3]), parts[4], parts[5]
        self.hub.asked.append((name, self.headers.get("range", "")))
        content = self.hub.files.get((repository, revision, name))
        fault = self.hub.fault_of(name)
        refusals: dict[str, tuple[int, dict[str, str]]] = {
            "no revision": (404, {"X-Error-Code": "RevisionNotFound"}),
            "no repository": (401, {"X-Error-Code": "RepoNotFound"}),
            "no file": (404, {"X-Error-Code": "EntryNotFound"}),
            "gated": (403, {"X-Error-Code": "GatedRepo"}),
            "500": (500, {}),
            "429": (429, {"Retry-After": "3"}),
            "429 for long": (429, {"Retry-After": "3600"}),
            "redirect loop": (302, {"Location": f"{self.hub.address}{self.path}"}),
        }
        if fault == "closes":
            self.close_connection = True
        elif fault in refusals:
            self._say(*refusals[fault])
        elif content is None:
            self._say(404, {"X-Error-Code": "EntryNotFound"})
        elif name.endswith(LARGE):
            self.hub.faults.setdefault(f"stored {name}", []).append(fault)
            stored = f"{self.hub.address}/stored/{repository}/{revision}/{name}"
            headers = {"Location": stored, "X-Linked-ETag": f'"{digests.sha256_of_bytes(content)}"'}
            self._say(302, {**headers, "X-Linked-Size": str(len(content)), "X-Repo-Commit": revision})
        else:
            self._send(content, fault, {"ETag": '"0"', "X-Repo-Commit": revision})

    def _stored(self, organisation: str, name: str, revision: str, file: str) -> None:
        content = self.hub.files[f"{organisation}/{name}", revision, file]
        self._send(content, self.hub.fault_of(f"stored {file}"), {"ETag": '"1"'})

    def _say(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": "0", **headers}.items():
            self.send_header(key, value)
        self.end_headers()

    def _send(self, content: bytes, fault: str, headers: dict[str, str]) -> None:
        begins = int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if begins >= len(content):
            self._say(416, {})
            return
        if fault == "wrong byte":
            content = content[:-1] + bytes([content[-1] ^ 1])
        body = content[begins:]
        if fault == "truncated":
            body = body[: len(body) // 2]
            headers = {**headers, "X-Linked-Size": str(len(content))}
        elif fault == "longer":
            body += b"more"
            headers = {**headers, "X-Linked-Size": str(len(content))}
        self.send_response(206 if begins else 200)
        self.send_header("Content-Length", str(len(body)))
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if fault in ("breaks off", "stalls"):
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            if fault == "stalls":
                self.hub.released.wait()
            return
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""
