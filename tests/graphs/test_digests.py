"""Digests against values that were worked out by hand, and against each other."""

import hashlib
from pathlib import Path

import pytest

from vela.graphs import digests

# Source: FIPS 180-4's own example, the digest of "abc".
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_bytes_files_and_streams_have_the_same_digest(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")

    assert digests.sha256_of_bytes(b"abc") == ABC
    assert digests.sha256_of_bytes(memoryview(b"abc")) == ABC
    assert digests.sha256_of_file(path) == ABC
    with path.open("rb") as stream:
        assert digests.sha256_of_stream(stream) == ABC


def test_ranges_are_digested_in_the_order_given(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"xxabcyy" + bytes(digests.CHUNK_BYTES))

    found = digests.sha256_of_ranges(path, [(2, 3), (7, digests.CHUNK_BYTES), (0, 0)])

    assert found == [ABC, hashlib.sha256(bytes(digests.CHUNK_BYTES)).hexdigest(), hashlib.sha256().hexdigest()]


@pytest.mark.parametrize("place", [(0, 4), (3, 1), (100, 1)])
def test_a_range_past_the_end_is_refused(tmp_path: Path, place: tuple[int, int]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")

    with pytest.raises(ValueError, match="end past the file"):
        digests.sha256_of_ranges(path, [place])


def test_a_listing_is_what_sha256sum_prints_sorted_by_name() -> None:
    lines = f"{ABC}  a/file\n{'0' * 64}  b\n"

    assert digests.digest_of_listing({"b": "0" * 64, "a/file": ABC}) == hashlib.sha256(lines.encode()).hexdigest()


def test_a_listing_changes_with_a_name_or_a_digest() -> None:
    listings = [{"a": ABC}, {"b": ABC}, {"a": "0" * 64}, {"a": ABC, "b": ABC}, {}]

    assert len({digests.digest_of_listing(files) for files in listings}) == len(listings)


@pytest.mark.parametrize("text", ["", ABC[:-1], ABC + "0", ABC.upper(), "g" * 64, ABC + "\n"])
def test_only_64_lower_case_hexadecimal_digits_are_a_digest(text: str) -> None:
    assert digests.is_sha256(ABC)
    assert not digests.is_sha256(text)
