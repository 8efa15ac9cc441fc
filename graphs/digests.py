"""SHA-256 of files, folders and tensors: the names by which everything in Vela refers to everything else.

A manifest, a record and a store never trust a file name; they trust a digest that was computed from the bytes that
are about to be used. This module computes them; a store's copy (graphs/durable.py) also takes one as it copies.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

CHUNK_BYTES = 1 << 20  # large enough that hashing, not the read call, is the cost; small enough to stay in cache

_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_sha256(text: str) -> bool:
    """Say whether `text` is a SHA-256 as Vela writes it: 64 lower-case hexadecimal digits."""
    return _SHA256.fullmatch(text) is not None


def sha256_of_bytes(content: bytes | memoryview) -> str:
    """Give the lower-case hexadecimal SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Give the lower-case hexadecimal SHA-256 of a file's bytes, in bounded memory."""
    with path.open("rb") as stream:
        return sha256_of_stream(stream)


def sha256_of_stream(stream: io.BufferedReader) -> str:
    """Give the lower-case hexadecimal SHA-256 of what is left in an open file, in bounded memory."""
    return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of_ranges(path: Path, ranges: Iterable[tuple[int, int]]) -> list[str]:
    """Give one SHA-256 for each (offset, length) in bytes of a file, in the order given.

    Raises:
        ValueError: a range ends past the end of the file.
    """
    digests = []
    with path.open("rb") as stream:
        for offset, length in ranges:
            stream.seek(offset)
            state, left = hashlib.sha256(), length
            while left:
                chunk = stream.read(min(CHUNK_BYTES, left))
                if not chunk:
                    raise ValueError(f"{path}: bytes {offset}..{offset + length} end past the file")
                state.update(chunk)
                left -= len(chunk)
            digests.append(state.hexdigest())
    return digests


def digest_of_listing(files: Mapping[str, str]) -> str:
    """Give one digest for a set of files: SHA-256 over the sorted lines `<sha256>  <name>`.

    It identifies a checkpoint that no table pins (`model_sha256` of its card) and a published folder in a store.
    """
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))
    return sha256_of_bytes(lines.encode())
