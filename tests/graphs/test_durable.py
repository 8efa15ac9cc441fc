"""Copies: shared blocks where the file system has them, and always a digest of what arrived."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from vela.graphs import digests, durable


def test_a_file_system_that_shares_blocks_is_asked_to_and_the_copy_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").write_bytes(b"what was cloned")

    def clone(target: int, request: int, source: int) -> int:
        assert request == durable.FICLONE
        os.write(target, os.pread(source, 100, 0))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", clone)
    with (tmp_path / "source").open("rb") as source:
        sha256 = durable.copy_file(source.fileno(), tmp_path / "target")

    assert sha256 == digests.sha256_of_bytes(b"what was cloned")
    assert (tmp_path / "target").read_bytes() == b"what was cloned"


def test_a_clone_that_fails_for_lack_of_room_is_not_tried_again_as_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").write_bytes(b"x")

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    with (tmp_path / "source").open("rb") as source, pytest.raises(OSError, match="no space"):
        durable.copy_file(source.fileno(), tmp_path / "target")


def test_a_file_larger_than_a_chunk_is_copied_whole(tmp_path: Path) -> None:
    content = os.urandom(durable.CHUNK_BYTES * 2 + 12345)
    (tmp_path / "source").write_bytes(content)

    with (tmp_path / "source").open("rb") as source:
        sha256 = durable.copy_file(source.fileno(), tmp_path / "target")

    assert (tmp_path / "target").read_bytes() == content
    assert sha256 == digests.sha256_of_bytes(content)
