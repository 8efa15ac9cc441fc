"""Connections to a server that is asked for its answers: kept alive, bounded, and of many callers at once."""

import http.client
import queue
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from vela.graphs import errors
from vela.verify.parity import lines, recording

TIMEOUT_S = 600.0  # a document of 32,768 tokens takes a 307M model minutes on two cores
MESSAGE_SHOWN = 400
Headers = Mapping[str, str]


class _Failure(msgspec.Struct, frozen=True):
    error: lines.Problem


@dataclass(frozen=True, slots=True)
class Response:
    """What a server sent.

    Attributes:
        status: HTTP status.
        body: Its bytes.
        latency_ns: From the request's first byte to the answer's last.
    """

    status: int
    body: bytes
    latency_ns: int


class Server:
    """Connections to one server.

    Args:
        url: Its address; a path is put before each route.
        headers: Sent with each request.
        timeout_s: After which it counts as dead.
    """

    def __init__(self, url: str, headers: Headers, timeout_s: float = TIMEOUT_S) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")
            parts.path.encode("ascii")
        except ValueError:  # a UnicodeError is one
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise errors.VerificationError(
                repr(url[:200]),
                expected="http://HOST:PORT, without user or query",
                where="--url",
                fix="Such as --url http://127.0.0.1:8080; a key goes into --api-key-file.",
            )
        self.url = url.rstrip("/")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._prefix = parts.hostname, port, parts.path.rstrip("/")
        self._headers = {"content-type": "application/json", **headers}
        self._timeout_s = timeout_s
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()

    def send(self, method: str, path: str, body: bytes | None = None) -> Response:
        """Send one request and wait for its answer.

        Raises:
            EngineError: there is none.
        """
        try:
            connection, is_used = self._idle.get_nowait(), True
        except queue.Empty:
            connection, is_used = self._connect(), False
        try:
            try:
                found = self._exchange(connection, method, path, body)
            except (http.client.RemoteDisconnected, ConnectionError):
                if not is_used:
                    raise
                connection.close()  # servers close what was idle for some seconds; that says nothing of this request
                connection = self._connect()
                found = self._exchange(connection, method, path, body)
        except (OSError, http.client.HTTPException) as cause:
            connection.close()
            raise self.failed(f"no answer ({type(cause).__name__}: {cause})", path) from cause
        self._idle.put(connection)
        return found

    def refused(self, found: Response, path: str) -> errors.EngineError:
        """Make the error of a status that is no answer."""
        problem = problem_of(found.body)
        said = f": {problem.code}: {problem.message}" if problem else ""
        return self.failed("".join(one if one.isprintable() else " " for one in f"status {found.status}{said}"), path)

    def failed(self, found: str, path: str) -> errors.EngineError:
        """Make the error of a server that cannot be asked."""
        return errors.EngineError(
            found, expected="an answer of the native surface", where=f"{self.url}{path}", fix="Look at the server."
        )

    def close(self) -> None:
        """Close all connections."""
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def _connect(self) -> http.client.HTTPConnection:
        return self._kind(self._host, self._port, timeout=self._timeout_s)

    def _exchange(self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None) -> Response:
        begun = time.perf_counter_ns()
        connection.request(method, self._prefix + path, body, self._headers)
        answer = connection.getresponse()
        content = answer.read(recording.LINE_LIMIT_BYTES + 1)
        latency_ns = time.perf_counter_ns() - begun
        if len(content) > recording.LINE_LIMIT_BYTES:
            raise http.client.HTTPException(f"more than {recording.LINE_LIMIT_BYTES:,} bytes")
        return Response(answer.status, content, latency_ns)


def problem_of(body: bytes) -> lines.Problem | None:
    """Read the error that a body states; None where it states none."""
    try:
        found = msgspec.json.decode(body, type=_Failure).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return lines.Problem(found.code, found.message[:MESSAGE_SHOWN])
