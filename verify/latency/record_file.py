"""A record as a file: written in one step, refused where a number is none, read with every field checked."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from vela.graphs import errors
from vela.verify.latency import corpus, record

FILE_LIMIT_BYTES = 512 << 20


def write(found: record.Record, path: Path) -> None:
    """Write a record; a reader sees the old file or the new one.

    Raises:
        NotFinite: a number of it is none.
        VerificationError: it cannot be written there.
    """
    corpus.write_in_one_step(path, encode(found))


def encode(found: record.Record) -> bytes:
    """Give the bytes that are written: one JSON object.

    Raises:
        NotFinite: a number is none; JSON would hold null in its place.
    """
    for where, value in _numbers(msgspec.to_builtins(found), "record"):
        if not math.isfinite(value):
            raise errors.NotFinite(
                str(value), expected="a finite number", where=where, fix="Report this; nothing was written."
            )
    return msgspec.json.encode(found) + b"\n"


def decode(content: bytes, where: str) -> record.Record:
    """Read a record.

    Raises:
        VerificationError: it is none.
    """
    try:
        return msgspec.json.decode(content, type=record.RunRecord | record.RoundsRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise errors.VerificationError(
            f"no record ({cause})",
            expected=f"JSON of format {record.RUN} or {record.ROUNDS}",
            where=where,
            fix="Give what `vela latency run --out` or `rounds --out` wrote.",
        ) from cause


def from_file(path: Path) -> record.Record:
    """Read a record's file."""
    try:
        content = path.read_bytes() if path.stat().st_size <= FILE_LIMIT_BYTES else b""
    except OSError as cause:
        raise errors.VerificationError(
            f"a file that cannot be read ({cause.strerror})", expected="a record", where=path.name, fix="Name another."
        ) from cause
    return decode(content, path.name)


def _numbers(value: Any, where: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, float):
        yield where, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _numbers(one, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _numbers(one, f"{where}[{number}]")
