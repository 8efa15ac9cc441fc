"""A recording that is being made: a `.partial` beside its file, which appears under its own name when it is whole.

Each line reaches the file when its input was answered, so what an interrupted run left is taken up again: by a run of
the same header, and by one process at a time. A last line that was torn is dropped and asked again.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from vela.graphs import durable, errors
from vela.verify.parity import jobs, lines, recording

SUFFIX = ".partial"


class _Held(msgspec.Struct, frozen=True):
    """What is read back of a line; answers themselves stay in the file."""

    job: str
    id: str = ""
    concurrency: int | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


@dataclass(slots=True)
class Draft:
    """An open draft.

    Attributes:
        target: The name that the file will have.
        stream: The draft, at its end.
        answered: Whether an input was answered rather than rejected, by job and id.
        loads: Jobs whose load was measured.
    """

    target: Path
    stream: BinaryIO
    answered: dict[tuple[str, str], bool] = field(default_factory=dict)
    loads: set[str] = field(default_factory=set)

    @classmethod
    @contextmanager
    def open(cls, target: Path, header: bytes) -> Iterator[Self]:
        """Begin a draft, or take one up that was begun with the same header.

        Raises:
            VerificationError: the file is there already, a draft was begun otherwise, is damaged, or is being written.
        """
        require_free(target)
        path = target.with_name(target.name + SUFFIX)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as cause:
            found = f"a place that cannot be written to ({cause.strerror})"
            raise _unusable(path, found, "a folder that you may write to", "Name another file with --out.") from cause
        with open(descriptor, "r+b") as stream:
            _lock(stream, path)
            made = cls(target, stream)
            made._take_up(path, header)
            yield made

    def append(self, line: bytes) -> None:
        """Write a line; a kill of this process does not lose it.

        Raises:
            VerificationError: no reader would take so much.
        """
        if len(line) > recording.LINE_LIMIT_BYTES or self.stream.tell() + len(line) > recording.FILE_LIMIT_BYTES:
            limits = f"at most {recording.LINE_LIMIT_BYTES:,} bytes a line and {recording.FILE_LIMIT_BYTES:,} in all"
            raise _unusable(
                self.target, "more bytes", limits, "Ask fewer inputs at a time: --jobs-only, or `corpus --texts`."
            )
        self.stream.write(line)
        self.stream.flush()

    def finish(self) -> None:
        """Give the file its name."""
        os.fsync(self.stream.fileno())
        durable.rename(self.target.with_name(self.target.name + SUFFIX), self.target)

    def _take_up(self, path: Path, header: bytes) -> None:
        first = self.stream.readline(recording.LINE_LIMIT_BYTES)
        if header.startswith(first) and first != header:  # nothing, or a torn header: no answer stands behind it
            self.stream.seek(0)
            self.stream.truncate()
            self.append(header)
            return
        if first != header:
            raise _unusable(
                path,
                f"a recording begun otherwise: {_differing(first, header)}",
                "what this command asks",
                f"Finish it with the command that began it, or remove {path.name} to begin anew.",
            )
        self.stream.seek(self._read_lines(path, header))
        self.stream.truncate()

    def _read_lines(self, path: Path, header: bytes) -> int:
        """Read what is there; give where it ends."""
        asked = {(job.job, one) for job in msgspec.json.decode(header, type=lines.Header).jobs for one in job.inputs}
        end = self.stream.tell()
        while line := self.stream.readline(recording.LINE_LIMIT_BYTES + 1):
            try:
                found = msgspec.json.decode(line, type=_Held)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                found = None
            if found is None or not line.endswith(b"\n"):
                if self.stream.read(1):
                    raise _damaged(path, "a line in the middle that does not parse")
                return end
            key = (found.job, found.id)
            if found.concurrency is not None:
                self.loads.add(found.job)
            elif key not in asked or key in self.answered:
                raise _damaged(path, f"an answer to {found.id!r} of job {found.job!r}, twice or never asked")
            else:
                self.answered[key] = not bytes(found.error)
            end = self.stream.tell()
        return end


def require_free(target: Path) -> None:
    """Refuse a name that a recording cannot take: what was recorded once is never written over.

    Raises:
        VerificationError: there is a file of that name, or no folder.
    """
    if target.exists():
        raise _unusable(target, "a file", "no file of that name", "Name another file with --out, or remove it.")
    if not target.parent.is_dir():
        raise _unusable(target, "no folder", "a folder to write to", "Make it first.")


def _lock(stream: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as cause:
        raise _unusable(
            path, "a recording that another process writes", "one writer", "Wait for it, or name another --out."
        ) from cause


def _differing(first: bytes, header: bytes) -> str:
    """Say in which parts two headers differ."""
    try:
        found = msgspec.json.decode(first, type=lines.Header)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "its first line is no header"
    wanted = msgspec.json.decode(header, type=lines.Header)
    parts = [name for name in ("side", "inputs_sha256") if getattr(found, name) != getattr(wanted, name)]
    parts += ["jobs"] if _names(found.jobs) != _names(wanted.jobs) else []
    parts += [f"job {one.job}" for one, other in zip(found.jobs, wanted.jobs, strict=False) if one != other]
    names = sorted({*found.context, *wanted.context})
    parts += [name for name in names if found.context.get(name) != wanted.context.get(name)]
    return f"other {', '.join(parts[:6])}"


def _names(found: tuple[jobs.Job, ...]) -> list[str]:
    return [job.job for job in found]


def _damaged(path: Path, found: str) -> errors.VerificationError:
    return _unusable(path, found, "what an interrupted run leaves", f"Remove {path.name} and record again.")


def _unusable(path: Path, found: str, expected: str, fix: str) -> errors.VerificationError:
    return errors.VerificationError(found, expected=expected, where=path.name, fix=fix)
