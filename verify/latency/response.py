"""One HTTP/1.1 response as its bytes arrive: when is it whole, and what does it say.

Written for timing: while bytes arrive, only what tells the end is read; `http.client` costs more than some answers do
(0.1 ms), and reads from one connection at a time. Bytes come from a server under test, which may be broken, so every
length has a limit.
"""

from dataclasses import dataclass, field

HEAD_LIMIT_BYTES = 64 << 10
BODY_LIMIT_BYTES = 256 << 20
END_OF_HEAD, END_OF_LINE = b"\r\n\r\n", b"\r\n"
LAST_INTERIM_STATUS = 199  # such as 100 Continue: another response follows
WITHOUT_BODY = (204, 304)


class NotHttp(ValueError):
    """The bytes are no HTTP/1.1 response that this client can read."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response.

    Attributes:
        status: Such as 200.
        headers: By name in small letters; the last of those that are there twice.
        body: Without transfer coding.
        keeps_alive: Whether another request may follow on the connection.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    keeps_alive: bool


@dataclass(slots=True)
class Arriving:
    """A response under way."""

    _bytes: bytearray = field(default_factory=bytearray)
    _headers: dict[str, str] | None = None
    _version: str = ""
    _status: int = 0
    _body_at: int = 0
    _end: int | None = None  # of the body, where its length is stated
    _chunk_at: int = 0
    _chunks: list[tuple[int, int]] = field(default_factory=list)

    def feed(self, received: bytes) -> bool:
        """Take what arrived; say whether the response is whole.

        Raises:
            NotHttp: it is none, or is too large.
        """
        self._bytes += received
        while self._headers is None:
            if not self._read_head():
                return False
        return self._is_whole()

    def finish(self) -> bool:
        """Say whether the response is whole now that the connection is closed: if only the close tells its end."""
        return self._headers is not None and self._end is None and not self._is_chunked

    def take(self) -> Response:
        """Give the whole response."""
        headers = self._headers or {}
        if self._is_chunked:
            body = b"".join(bytes(self._bytes[start:end]) for start, end in self._chunks)
        else:
            body = bytes(self._bytes[self._body_at : self._end])
        closes = headers.get("connection", "").lower() == "close" or self._version == "HTTP/1.0"
        is_bounded = self._end is not None or self._is_chunked
        return Response(self._status, headers, body, is_bounded and not closes)

    @property
    def _is_chunked(self) -> bool:
        return (self._headers or {}).get("transfer-encoding", "").lower() == "chunked"

    def _read_head(self) -> bool:
        end = self._bytes.find(END_OF_HEAD)
        if end < 0:
            if len(self._bytes) > HEAD_LIMIT_BYTES:
                raise NotHttp(f"headers of more than {HEAD_LIMIT_BYTES:,} bytes")
            return False
        first, *lines = bytes(self._bytes[:end]).decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit() and len(code) == 3):
            raise NotHttp(f"a first line {first[:60]!r}")
        if int(code) <= LAST_INTERIM_STATUS:
            del self._bytes[: end + len(END_OF_HEAD)]
            return bool(self._bytes)
        pairs = (line.partition(":") for line in lines)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._version, self._status = version, int(code)
        self._body_at = self._chunk_at = end + len(END_OF_HEAD)
        self._end = self._stated_end()
        return True

    def _stated_end(self) -> int | None:
        if self._status in WITHOUT_BODY:
            return self._body_at
        length = (self._headers or {}).get("content-length")
        if self._is_chunked or length is None:
            return None
        if not (length.isascii() and length.isdigit()) or int(length) > BODY_LIMIT_BYTES:
            raise NotHttp(f"a content-length of {length[:40]!r}")
        return self._body_at + int(length)

    def _is_whole(self) -> bool:
        if self._end is not None:
            if len(self._bytes) > self._end:
                raise NotHttp(f"{len(self._bytes) - self._end:,} bytes after the end of an answer")
            return len(self._bytes) == self._end
        if len(self._bytes) - self._body_at > BODY_LIMIT_BYTES:
            raise NotHttp(f"an answer of more than {BODY_LIMIT_BYTES:,} bytes")
        return self._is_chunked and self._read_chunks()

    def _read_chunks(self) -> bool:
        """Read the chunks that are there; the last one is empty, and trailing headers may follow it."""
        while (line_end := self._bytes.find(END_OF_LINE, self._chunk_at)) >= 0:
            said = bytes(self._bytes[self._chunk_at : line_end]).partition(b";")[0].strip()
            try:
                size = int(said, 16)
            except ValueError as cause:
                raise NotHttp(f"a chunk of size {said[:20]!r}") from cause
            start = line_end + len(END_OF_LINE)
            if size == 0:
                return END_OF_HEAD in self._bytes[line_end:]
            if not 0 < size <= BODY_LIMIT_BYTES:
                raise NotHttp(f"a chunk of {size:,} bytes")
            if len(self._bytes) < start + size + len(END_OF_LINE):
                return False
            self._chunks.append((start, start + size))
            self._chunk_at = start + size + len(END_OF_LINE)
        return False
