"""What live systems are asked: requests as JSON lines, made once and replayed to every side, named by one digest.

A file begins with a line that says what it is, how many requests follow and their digest, so that a file that was cut
or edited is refused. The digest is of the requests and not of the file: who writes such lines by hand needs no first
line, and gets the digest that a written one would state.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from vela.graphs import digests, durable, errors

FORMAT: Literal["vela-latency-corpus/1"] = "vela-latency-corpus/1"
FILE_LIMIT_BYTES = 256 << 20
LINE_LIMIT_BYTES = 32 << 20
PATH_LIMIT = 2_048  # characters of a request's path; servers take a few thousand


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request.

    Attributes:
        id: Its name, unique in a corpus.
        path: Where it is sent, below a side's address.
        body: The JSON object that is posted.
    """

    id: str
    path: str
    body: dict[str, Any]


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a file.

    Attributes:
        format: This format.
        requests: How many follow.
        sha256: Their digest.
        made: How they were made, for people.
    """

    format: Literal["vela-latency-corpus/1"]
    requests: int
    sha256: str
    made: str = ""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Requests in the order in which they are sent.

    Attributes:
        requests: At least one, each with an id of its own.
        made: How they were made, for people.
    """

    requests: tuple[Request, ...]
    made: str = ""

    def __post_init__(self) -> None:
        ids = {request.id for request in self.requests}
        if not self.requests or len(ids) < len(self.requests):
            raise ValueError("a corpus needs requests, each with an id of its own")

    @property
    def sha256(self) -> str:
        """Digest of ids, paths and bodies, in order; it does not depend on how a file spells them."""
        lines = [msgspec.json.encode(request, order="sorted") for request in self.requests]
        return digests.sha256_of_bytes(b"\n".join(lines))

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read requests that somebody wrote.

        Raises:
            VerificationError: a line is no request, or the file is not what its first line says.
            NothingCompared: it holds no request.
        """
        lines = _read_lines(path)
        header = _read_header(path, lines[0]) if lines and _begins_with_header(lines[0]) else None
        first = 1 if header else 0
        requests = [_read_request(path, number, line) for number, line in enumerate(lines[first:], first + 1)]
        _require_unique(path, requests)
        found = cls(tuple(requests), header.made if header else "")
        if header and (header.requests, header.sha256) != (len(requests), found.sha256):
            raise errors.VerificationError(
                f"{len(requests)} requests of digest {found.sha256}",
                expected=f"{header.requests} of digest {header.sha256}, as its first line says",
                where=path.name,
                fix="It was cut or edited: make it again, or leave out the first line if that is meant.",
            )
        return found

    def write(self, path: Path) -> None:
        """Write the file in one step.

        Raises:
            VerificationError: it cannot be written there.
        """
        header = Header(FORMAT, len(self.requests), self.sha256, self.made)
        lines = [msgspec.json.encode(line) for line in (header, *self.requests)]
        write_in_one_step(path, b"\n".join([*lines, b""]))


def require_folder(path: Path) -> None:
    """Refuse a place that cannot be written to, before minutes are spent on what would be written there.

    Raises:
        VerificationError: there is no such folder, or none that this user may write to.
    """
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)) or path.is_dir():
        raise _not_writable(path, "no such folder, or no right to write there")


def write_in_one_step(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of either.

    Raises:
        VerificationError: it cannot be written there.
    """
    draft = path.with_name(f".{path.name}.partial")
    try:
        draft.unlink(missing_ok=True)
        durable.write_file(draft, content)
        durable.rename(draft, path)
    except OSError as cause:
        raise _not_writable(path, str(cause.strerror)) from cause


def _not_writable(path: Path, reason: str) -> errors.VerificationError:
    return errors.VerificationError(
        f"a place that cannot be written to ({reason})",
        expected="a file in a folder that is there and that you may write to",
        where=str(path),
        fix="Name another file, or make the folder first.",
    )


def _read_lines(path: Path) -> Sequence[bytes]:
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= FILE_LIMIT_BYTES else b""
    except OSError as cause:
        raise _unusable(path, f"a file that cannot be read ({cause.strerror})") from cause
    if size > FILE_LIMIT_BYTES:
        raise _unusable(path, f"{size:,} bytes")
    return [line for line in content.split(b"\n") if line.strip()]


def _begins_with_header(line: bytes) -> bool:
    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return "format" in found and "path" not in found


def _read_header(path: Path, line: bytes) -> Header:
    try:
        return msgspec.json.decode(line, type=Header)
    except (msgspec.MsgspecError, RecursionError) as cause:
        raise _unusable(path, f"a first line of another format ({cause})") from cause


def _read_request(path: Path, number: int, line: bytes) -> Request:
    if len(line) > LINE_LIMIT_BYTES:
        raise _unusable(path, f"a request of {len(line):,} bytes as number {number}")
    try:
        request = msgspec.json.decode(line, type=Request)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise _unusable(path, f"request {number} that does not parse ({cause})") from cause
    # What is sent is made from the path as it stands: a space or a line break in it would begin another request.
    is_plain = request.path.isascii() and request.path.isprintable() and " " not in request.path
    if not request.path.startswith("/") or not is_plain or len(request.path) > PATH_LIMIT:
        raise _unusable(path, f"request {number} with the path {request.path[:80]!r}")
    return request


def _require_unique(path: Path, requests: Sequence[Request]) -> None:
    if not requests:
        raise errors.NothingCompared(
            "no request",
            expected='JSON lines of {"id": ..., "path": ..., "body": {...}}',
            where=path.name,
            fix="Make a corpus with `vela latency corpus`.",
        )
    seen: set[str] = set()
    for request in requests:
        if request.id in seen:
            raise _unusable(path, f"the id {request.id[:80]!r} twice")
        seen.add(request.id)


def _unusable(path: Path, found: str) -> errors.VerificationError:
    return errors.VerificationError(
        found,
        expected='JSON lines of {"id": ..., "path": "/v1/...", "body": {...}} with unique ids',
        where=path.name,
        fix="Mend the file, or make one with `vela latency corpus`; nothing was asked.",
    )
