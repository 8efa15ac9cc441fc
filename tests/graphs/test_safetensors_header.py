"""The header of a safetensors file is untrusted: what is malformed is refused, and never costs more than its size."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vela.graphs import errors, safetensors_header

FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def file_of(header: Any, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def read(folder: Path, content: bytes) -> dict[str, safetensors_header.StoredTensor]:
    path = folder / "model.safetensors"
    path.write_bytes(content)
    return safetensors_header.read_safetensors_header(path)


GOOD = file_of({"b": entry(8, 12, [1]), "a": entry(0, 8, [2, 1]), "__metadata__": {"format": "pt"}}, bytes(12))


def test_tensors_come_in_the_order_of_their_bytes_with_offsets_from_the_start_of_the_file(tmp_path: Path) -> None:
    start = len(GOOD) - 12

    found = read(tmp_path, GOOD)

    assert list(found.items()) == [
        ("a", safetensors_header.StoredTensor("F32", (2, 1), start, 8)),
        ("b", safetensors_header.StoredTensor("F32", (1,), start + 8, 4)),
    ]


def test_a_scalar_and_an_empty_tensor_are_tensors(tmp_path: Path) -> None:
    found = read(tmp_path, file_of({"empty": entry(0, 0, [0, 5]), "scalar": entry(0, 4, [])}, bytes(4)))

    assert (found["empty"].length, found["scalar"].length) == (0, 4)


def test_the_library_and_this_reader_agree(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    tensors = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.ones(5, dtype=np.float32)}
    save_file(tensors, tmp_path / "model.safetensors")

    found = safetensors_header.read_safetensors_header(tmp_path / "model.safetensors")

    for name, expected in tensors.items():
        actual = safetensors_header.read_float_tensor(tmp_path / "model.safetensors", found[name])
        np.testing.assert_array_equal(actual, expected)


HUGE = 1 << 62
BROKEN = {
    "nothing": b"",
    "half a length": b"\x08\0\0",
    "a length and no header": (2).to_bytes(8, "little"),
    "a length of zero": bytes(8) + b"{}",
    "a huge length": b"\xff" * 8 + b"{}",
    "a length beyond the limit": (safetensors_header.HEADER_LIMIT_BYTES + 1).to_bytes(8, "little") + b"{}",
    "a length past the end": (100).to_bytes(8, "little") + b"{}",
    "no JSON": file_of(b"{{"),
    "a list": file_of([]),
    "text that is not UTF-8": file_of(b'{"\xff": {}}'),
    "deep nesting": file_of(b'{"a":' + b"[" * 100_000),
    "a tensor that is a number": file_of({"a": 1}),
    "a missing field": file_of({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
    "three offsets": file_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, bytes(4)),
    "an unknown type": file_of({"a": entry(0, 4, [1], "F31")}, bytes(4)),
    "a negative dimension": file_of({"a": entry(0, 4, [-1, -1])}, bytes(4)),
    "a dimension that is no integer": file_of({"a": {**entry(0, 4, []), "shape": [1.5]}}, bytes(4)),
    "a negative offset": file_of({"a": entry(-4, 0, [1])}, bytes(4)),
    "offsets the wrong way round": file_of({"a": entry(4, 0, [1])}, bytes(4)),
    "a size that is not the shape's": file_of({"a": entry(0, 8, [1])}, bytes(8)),
    "a shape that overflows 64 bits": file_of({"a": entry(0, 0, [HUGE, HUGE, 4])}),
    "a shape that wraps to zero in 64 bits": file_of({"a": entry(0, 0, [1 << 32, 1 << 32])}),
    "an offset of many digits": file_of(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,' + b"9" * 5000 + b"]}}"),
    "a dimension of many digits": file_of(b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,1]}}'),
    "overlapping tensors": file_of({"a": entry(0, 8, [2]), "b": entry(4, 8, [1])}, bytes(8)),
    "the same bytes twice": file_of({"a": entry(0, 4, [1]), "b": entry(0, 4, [1])}, bytes(4)),
    "a gap": file_of({"a": entry(0, 4, [1]), "b": entry(8, 12, [1])}, bytes(12)),
    "a gap at the start": file_of({"a": entry(4, 8, [1])}, bytes(8)),
    "a tail": file_of({"a": entry(0, 4, [1])}, bytes(5)),
    "data that ends early": file_of({"a": entry(0, 4, [1])}, bytes(3)),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_malformed_file_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(errors.CheckpointError, match=r"model\.safetensors"):
        read(tmp_path, content)


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.CheckpointError, match="No such file"):
        safetensors_header.read_safetensors_header(tmp_path / "model.safetensors")


def test_a_shape_of_a_million_dimensions_is_refused_without_multiplying_them(tmp_path: Path) -> None:
    started = time.monotonic()

    with pytest.raises(errors.CheckpointError):
        read(tmp_path, file_of({"a": entry(0, 0, [HUGE] * 1_000_000)}))

    assert time.monotonic() - started < 20  # multiplying takes minutes; the bound is no timing of the reader


def read_or_refuse(folder: Path, content: bytes) -> None:
    """Read a file that may be anything: either it is refused, or its tensors tile it."""
    try:
        found = read(folder, content)
    except errors.CheckpointError:
        return
    position = 8 + int.from_bytes(content[:8], "little")
    for tensor in found.values():
        assert tensor.offset == position
        position += tensor.length
    assert position == len(content)


@FUZZ
@given(content=st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    read_or_refuse(tmp_path, content)


@FUZZ
@given(cut=st.integers(0, len(GOOD)), at=st.integers(0, len(GOOD) - 1), to=st.integers(0, 255))
def test_any_cut_or_changed_byte_of_a_good_file_is_read_or_refused(tmp_path: Path, cut: int, at: int, to: int) -> None:
    changed = bytearray(GOOD)
    changed[at] = to

    read_or_refuse(tmp_path, bytes(changed))
    if cut < len(GOOD):
        with pytest.raises(errors.CheckpointError):
            read(tmp_path, GOOD[:cut])


numbers = st.one_of(st.integers(-8, 16), st.integers(-(1 << 70), 1 << 70), st.floats(), st.none(), st.text(max_size=2))
lists = st.lists(numbers, max_size=4)
entries = st.fixed_dictionaries(
    {"dtype": st.sampled_from(["F32", "U8", "BF16", "", "F4"]), "shape": lists, "data_offsets": lists}
)


@FUZZ
@given(header=st.dictionaries(st.text(max_size=3), entries, max_size=4), data=st.binary(max_size=16))
def test_any_header_is_read_or_refused(tmp_path: Path, header: dict[str, Any], data: bytes) -> None:
    read_or_refuse(tmp_path, file_of(header, data))


def test_a_tensor_of_another_type_is_not_read_as_float(tmp_path: Path) -> None:
    read(tmp_path, file_of({"a": entry(0, 2, [1], "F16")}, bytes(2)))

    with pytest.raises(ValueError, match="F16"):
        safetensors_header.read_float_tensor(
            tmp_path / "model.safetensors", safetensors_header.StoredTensor("F16", (1,), 0, 2)
        )
