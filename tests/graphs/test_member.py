"""Opening a file by a name that somebody else chose never leaves the folder."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vela.graphs import member

BAD_NAMES = ["", ".", "..", "/etc/passwd", "../x", "a/../x", "a/..", "a//b", "./a", "a/", "a\\b", "a\0b", "a/./b"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_not_plain_is_refused(tmp_path: Path, name: str) -> None:
    assert name == "." or not member.is_plain_name(name)
    with pytest.raises((ValueError, OSError)):
        member.open_member(tmp_path, name)


@given(st.text(alphabet="a./\\\0é", max_size=12))
@example("a/b")
def test_a_plain_name_stays_inside_its_folder(name: str) -> None:
    if member.is_plain_name(name):
        joined = os.path.normpath(os.path.join("/root/folder", name))
        assert joined == "/root/folder" or joined.startswith("/root/folder/")


def test_a_file_in_a_folder_of_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"content")

    assert member.read_member(tmp_path, "a/b", 7) == b"content"


def test_the_root_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")

    assert member.read_member(tmp_path / "link", "file", 1) == b"x"


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_link_on_the_way_is_refused_and_named(tmp_path: Path, link: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    if link == "file":
        (root / "folder" / "file").symlink_to(tmp_path / "outside" / "file")
    else:
        (root / "folder").rmdir()
        (root / "folder").symlink_to(tmp_path / "outside")

    with pytest.raises(OSError) as caught:  # noqa: PT011 - which errno it is differs by kernel
        member.open_member(root, "folder/file")

    assert member.describe(caught.value, root, "folder/file") == "a symbolic link"


def test_hard_links_are_files(tmp_path: Path) -> None:
    (tmp_path / "original").write_bytes(b"x")
    os.link(tmp_path / "original", tmp_path / "other")

    assert member.read_member(tmp_path, "other", 1) == b"x"


@pytest.mark.parametrize(
    ("kind", "words"), [("none", "no such file"), ("folder", "no regular"), ("fifo", "no regular")]
)
def test_what_is_no_regular_file_is_refused_and_named(tmp_path: Path, kind: str, words: str) -> None:
    if kind == "folder":
        (tmp_path / "x").mkdir()
    if kind == "fifo":
        os.mkfifo(tmp_path / "x")

    with pytest.raises(OSError) as caught:  # noqa: PT011 - as above
        member.open_member(tmp_path, "x")

    assert words in member.describe(caught.value, tmp_path, "x")


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"123")

    with pytest.raises(OSError, match="more than 2 bytes"):
        member.read_member(tmp_path, "x", 2)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    before = len(os.listdir("/dev/fd"))

    for name in ("a/missing", "a", "missing/x"):
        with pytest.raises(OSError):  # noqa: PT011 - as above
            member.open_member(tmp_path, name)

    assert len(os.listdir("/dev/fd")) == before


def test_members_are_listed_with_links_and_without_following_them(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"")
    (tmp_path / "a" / "link").symlink_to(tmp_path)

    assert member.list_members(tmp_path) == ["a/b/file", "a/link"]
