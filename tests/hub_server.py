"""A Hub on this machine that speaks the file protocol, and fails as it is told: for tests of export/hub.py.

`GET /{organisation}/{name}/resolve/{revision}/{file}` answers as the Hub does: small files at once, large ones by a
redirection to another host, where they are stored, with `X-Repo-Commit`, `ETag` or `X-Linked-ETag`, sizes and ranges.
Source: huggingface_hub 2.4, file_download.py, and its tests' expectations.
"""

import gzip
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from vela.graphs import digests, model_table

LARGE = ".safetensors"  # what the Hub keeps apart
DROP_S, DROPS = 0.02, 200
REFUSALS: dict[str, tuple[int, dict[str, str]]] = {
    "no revision": (404, {"X-Error-Code": "RevisionNotFound"}),
    "no repository": (401, {"X-Error-Code": "RepoNotFound"}),
    "no file": (404, {"X-Error-Code": "EntryNotFound"}),
    "gated": (403, {"X-Error-Code": "GatedRepo"}),
    "401": (401, {}),
    "403": (403, {}),
    "404": (404, {}),
    "304": (304, {}),
    "418": (418, {}),
    "500": (500, {}),
    "503": (503, {"Retry-After": "5"}),
    "429": (429, {"Retry-After": "3"}),
    "429 for long": (429, {"Retry-After": "3600"}),
    "429 of the Hub": (429, {"RateLimit": '"resolvers";r=0;t=7'}),
    "429 without end": (429, {"RateLimit": f'"api";r=0;t={"9" * 5000}', "Retry-After": "9" * 5000}),
}
BROKEN = ("breaks off", "stalls", "drips")  # half of it comes, then nothing, or hardly anything
FAULTS = (
    *REFUSALS,
    *BROKEN,
    *("wrong byte", "truncated", "longer", "length not stated", "compressed", "no ranges", "huge"),
    *("redirect loop", "closes", "hangs"),
)


@dataclass(slots=True)
class HubServer:
    """What is served, what goes wrong, and what was asked.

    Attributes:
        files: Content by repository, revision and name.
        faults: For a file name, what goes wrong, once for each entry; the last stays where it ends with `always`.
        asked: Every request to the Hub: file and range.
        credentials: What `Authorization` each request had, to the Hub and to where large files are stored.
        address: The Hub's.
        storage: Where large files are stored; another origin.
    """

    files: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    credentials: list[tuple[str, str]] = field(default_factory=list)
    address: str = ""
    storage: str = ""
    released: threading.Event = field(default_factory=threading.Event)

    def put(self, entry: model_table.ModelEntry, folder: Path) -> None:
        """Serve a model's files."""
        for name in entry.files:
            self.files[entry.repository, entry.revision, name] = (folder / name).read_bytes()

    def fault_of(self, name: str) -> str:
        """Say what goes wrong this time."""
        waiting = self.faults.get(name, [])
        if not waiting:
            return ""
        found = waiting[0].removesuffix(" always") if waiting[0].endswith(" always") else waiting.pop(0)
        if found and found not in FAULTS:
            raise ValueError(f"no fault is called {found!r}")
        return found


@contextmanager
def serving() -> Iterator[HubServer]:
    """Serve until the block ends."""
    state = HubServer()

    class Handler(_Handler):
        hub = state

    with ExitStack() as stack:
        state.address, state.storage = (stack.enter_context(_listening(Handler)) for _ in range(2))
        stack.callback(state.released.set)
        yield state


@contextmanager
def _listening(handler: type["_Handler"]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[HubServer]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = self.path.split("/", 5)
        place = "storage" if parts[1] == "stored" else "hub"
        self.hub.credentials.append((place, self.headers.get("authorization", "")))
        if place == "storage":
            self._stored(*self.path.removeprefix("/stored/").split("/", 3))
        else:
            self._resolve("/".join(parts[1:3]), parts[4], parts[5])

    def _resolve(self, repository: str, revision: str, name: str) -> None:
        self.hub.asked.append((name, self.headers.get("range", "")))
        content = self.hub.files.get((repository, revision, name))
        fault = self.hub.fault_of(name)
        if fault in ("closes", "hangs"):
            self.close_connection = True
            if fault == "hangs":
                self.hub.released.wait()
        elif fault == "redirect loop":
            self._say(302, {"Location": f"{self.hub.address}{self.path}"})
        elif content is None or fault in REFUSALS:
            self._say(*REFUSALS[fault or "no file"])
        elif name.endswith(LARGE):
            self.hub.faults[f"stored {name}"] = [fault]
            linked = {"X-Linked-ETag": f'"{digests.sha256_of_bytes(content)}"', "X-Linked-Size": str(len(content))}
            if fault == "length not stated":
                del linked["X-Linked-Size"]
            elif fault == "huge":
                linked["X-Linked-Size"] = str(1 << 50)
            stored = f"{self.hub.storage}/stored/{repository}/{revision}/{name}"
            self._say(302, {"Location": stored, **linked, "X-Repo-Commit": revision})
        else:
            self._send(content, fault, {"ETag": '"0"', "X-Repo-Commit": revision})

    def _stored(self, organisation: str, name: str, revision: str, file: str) -> None:
        content = self.hub.files[f"{organisation}/{name}", revision, file]
        self._send(content, self.hub.fault_of(f"stored {file}"), {"ETag": '"1"'})

    def _say(self, status: int, headers: dict[str, str]) -> None:
        # A body that trips over whoever takes it for the Hub's usual object.
        body = b"" if status < 400 else b'["\xff"]'
        self._begin(status, {"Content-Length": str(len(body)), "Content-Type": "application/json", **headers})
        self.wfile.write(body)

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def _send(self, content: bytes, fault: str, headers: dict[str, str]) -> None:
        begins = int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if fault == "no ranges":
            begins = 0
        if begins >= len(content):
            self._say(416, {})
            return
        body = {
            "wrong byte": content[:-1] + bytes([content[-1] ^ 1]),
            "longer": content + b"more",
            "truncated": content[: begins + (len(content) - begins) // 2],
        }.get(fault, content)[begins:]
        if fault == "compressed":
            body, begins, headers = gzip.compress(content), 0, {**headers, "Content-Encoding": "gzip"}
        if fault in ("truncated", "longer"):
            headers = {**headers, "X-Linked-Size": str(len(content))}
        if fault == "length not stated":
            body, headers = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), {**headers, "Transfer-Encoding": "chunked"}
        else:
            headers = {**headers, "Content-Length": str(len(body))}
        self._begin(206 if begins else 200, headers)
        self._break(body, fault) if fault in BROKEN else self.wfile.write(body)

    def _break(self, body: bytes, fault: str) -> None:
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.wfile.flush()
        self.close_connection = True
        if fault == "stalls":
            self.hub.released.wait()
        for place in range(half, half + DROPS if fault == "drips" else half):
            try:
                self.wfile.write(body[place : place + 1])
            except OSError:
                return  # whoever asked has left
            if self.hub.released.wait(DROP_S):
                return

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""
