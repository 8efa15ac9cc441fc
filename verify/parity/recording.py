"""Reading recorded answers: somebody else's file, so bounded, and refused as a whole where a line is not of the format.

Numbers that are not finite are no reason to refuse a file: they are an answer, and a wrong one. JSON has no NaN, but
Python's writer writes it, so a line that does not parse strictly is read once more as Python reads it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec

from vela.graphs import errors
from vela.verify.parity import jobs, lines

FILE_LIMIT_BYTES = 256 << 20  # 547 inputs for each of eleven jobs are 10 MB, and 200 MB with every token's row
LINE_LIMIT_BYTES = 32 << 20  # 32,768 tokens of 35 labels are 25 MB
ERROR_SHOWN = 200  # characters of a rejection's reason that are kept, for people


@dataclass(frozen=True, slots=True)
class Answer:
    """One input's answer.

    Attributes:
        result: What was answered; None where the input was rejected.
        error: Why it was rejected; empty where it was answered.
        latency_ns: Of each time it was asked.
    """

    result: lines.Result | None
    error: str
    latency_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """One side's answers.

    Attributes:
        header: None in files of upstream, which have none.
        answers: By job and input id.
        loads: By job.
    """

    header: lines.Header | None
    answers: Mapping[tuple[str, str], Answer]
    loads: Mapping[str, lines.Load]

    @classmethod
    def from_file(cls, path: Path, plan: jobs.Plan | None = None) -> Self:
        """Read a file.

        Args:
            path: JSON lines; the first is a header, or a plan is given.
            plan: What was asked, where the caller has it apart from the file; it must be what the header says.

        Raises:
            VerificationError: too large, not of the format, an answer twice or to no job; the message names the line.
        """
        with path.open("rb") as stream:
            raw = _Lines(path.name, stream)
            header = raw.header()
            return cls(header, *_collect(raw, _settle(path, header, plan)))


def _settle(path: Path, header: lines.Header | None, plan: jobs.Plan | None) -> jobs.Plan:
    """Choose what was asked: the plan that was given, if the header does not contradict it, else the header's."""
    if header is None and plan is None:
        raise errors.VerificationError(
            "no header",
            expected=f'{{"format": "{lines.FORMAT}", …}} in the first line',
            where=f"{path.name}, line 1",
            fix="Files without one need --jobs FILE, the .jobs.json that they were recorded with.",
        )
    if header is None or plan is None:
        return plan or header.plan  # type: ignore[union-attr]
    require_same(header.plan, plan, path.name, "--jobs")
    return plan


def require_same(found: jobs.Plan, expected: jobs.Plan, where: str, other: str) -> None:
    """Refuse two plans that do not ask the same.

    Raises:
        VerificationError: inputs have other digests, or jobs differ.
    """
    if found.inputs_sha256 != expected.inputs_sha256:
        raise errors.VerificationError(
            f"inputs of sha256 {found.inputs_sha256}",
            expected=f"{expected.inputs_sha256}, as in {other}",
            where=where,
            fix="Both sides must answer the same inputs: record them once, and replay them to each.",
        )
    theirs = {job.job: job for job in expected.jobs}
    names = [job.job for job in found.jobs]
    differing = [job.job for job in found.jobs if job.job in theirs and not job.asks_the_same(theirs[job.job])]
    if set(names) != set(theirs) or differing:
        raise errors.VerificationError(
            f"jobs {', '.join(differing or names)}",
            expected=f"the mode, options, inputs and labels of {other}, whose jobs are {', '.join(theirs)}",
            where=where,
            fix="Both sides must be asked in the same way; nothing was compared.",
        )


class _Lines:
    """A file's lines as decoded values, each within its limit; the file as a whole as well."""

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self._name = name
        self._stream = stream
        self._number = 0
        self._left = FILE_LIMIT_BYTES
        self._held: Any = None

    def header(self) -> lines.Header | None:
        """Take the first line if it is a header."""
        first = next(iter(self), None)
        if isinstance(first, dict) and "format" in first:
            header: lines.Header = self.convert(first, lines.Header)
            return header
        self._held = first
        return None

    def __iter__(self) -> Iterator[Any]:
        if self._held is not None:
            held, self._held = self._held, None
            yield held
        while line := self._stream.readline(min(LINE_LIMIT_BYTES, self._left) + 1):
            self._number += 1
            self._left -= len(line)
            if len(line) > LINE_LIMIT_BYTES or self._left < 0:
                limits = f"lines of at most {LINE_LIMIT_BYTES:,} bytes and {FILE_LIMIT_BYTES:,} in all"
                raise self.unusable("more bytes", expected=limits)
            if line.strip():
                yield self._decode(line)

    def convert(self, value: Any, kind: Any) -> Any:
        """Make a struct of a decoded value."""
        try:
            return msgspec.convert(value, kind)
        except (msgspec.MsgspecError, ValueError) as cause:
            raise self.unusable(f"a line that is not of the format ({cause})") from cause

    def unusable(self, found: str, expected: str = f"a line of {lines.FORMAT}") -> errors.VerificationError:
        """Say what is wrong with the line that was read last."""
        return errors.VerificationError(
            found,
            expected=expected,
            where=f"{self._name}, line {self._number}",
            fix="docs/parity.md shows the format; nothing was compared.",
        )

    def _decode(self, line: bytes) -> Any:
        try:
            return msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # perhaps only for NaN, which JSON does not have
        try:
            value = json.loads(line)
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair cannot be written again
        except (ValueError, RecursionError) as cause:
            raise self.unusable(f"a line that does not parse ({cause})") from cause
        return value


def _collect(raw: _Lines, plan: jobs.Plan) -> tuple[dict[tuple[str, str], Answer], dict[str, lines.Load]]:
    """Read all lines behind the header."""
    answers: dict[tuple[str, str], Answer] = {}
    loads: dict[str, lines.Load] = {}
    asked = {job.job: (job, frozenset(job.inputs)) for job in plan.jobs}
    for value in raw:
        if isinstance(value, dict) and "concurrency" in value:
            load = raw.convert(value, lines.Load)
            if load.job not in asked or load.job in loads:
                raise raw.unusable(f"a load of job {load.job!r}", expected="at most one for each job that was asked")
            loads[load.job] = load
            continue
        line = raw.convert(value, lines.Line)
        job, ids = asked.get(line.job, (None, frozenset()))
        if job is None or line.id not in ids or (line.job, line.id) in answers:
            raise raw.unusable(
                f"an answer to {line.id!r} of job {line.job!r}", expected="one answer to each input that was asked"
            )
        answers[line.job, line.id] = _answer(raw, line, job)
    return answers, loads


def _answer(raw: _Lines, line: lines.Line, job: jobs.Job) -> Answer:
    inner = line.result.get("error") if isinstance(line.result, dict) else None
    error = line.error or (raw.convert(inner, str | lines.Problem) if inner else None)
    if (line.result is None) == (line.error is None):
        raise raw.unusable("both or neither of result and error", expected="one of them")
    if error:
        said = error if isinstance(error, str) else f"{error.code}: {error.message}".rstrip(": ")
        shown = "".join(character if character.isprintable() else " " for character in said[:ERROR_SHOWN])
        return Answer(None, shown, line.latency_ns)
    return Answer(raw.convert(line.result, lines.RESULTS[job.kind]), "", line.latency_ns)
