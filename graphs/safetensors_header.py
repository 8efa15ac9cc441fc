"""Where each tensor of a safetensors file lies, without reading the tensors.

Weights by reference need byte offsets, which the safetensors library does not give, and a bundle is untrusted
input: the header's size, ranges and shapes are checked before anything is allocated or mapped.

Source: the format is an 8-byte little-endian header length, a JSON header, then the data; offsets in the header are
relative to the data's start (https://github.com/huggingface/safetensors#format).
"""

import math
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors

LENGTH_BYTES = 8
HEADER_LIMIT_BYTES = 100_000_000  # the reference implementation's own limit
RANK_LIMIT = 64  # numpy's and torch's own limit; a header may not make us multiply a million numbers
DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip


class StoredTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor's place in a safetensors file.

    Attributes:
        dtype: The format's own name, such as `F32`.
        shape: Row-major dimensions.
        offset: First byte, counted from the start of the file.
        length: Size in bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


class _HeaderEntry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_safetensors_header(path: Path) -> dict[str, StoredTensor]:
    """Read the places of all tensors in a safetensors file, in the order of their offsets.

    Raises:
        CheckpointError: the file is missing or no safetensors file, or its header contradicts its size or itself.
    """
    try:
        raw, file_bytes = _read_raw_header(path)
    except OSError as cause:
        raise _invalid(path, f"a file that cannot be read ({cause.strerror})") from cause
    try:
        header = msgspec.json.decode(raw, type=dict[str, dict[str, object]])
        header.pop("__metadata__", None)
        entries = msgspec.convert(header, dict[str, _HeaderEntry])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise _invalid(path, f"a header that does not parse ({cause})") from cause
    data_start = LENGTH_BYTES + len(raw)
    tensors = {name: _stored_tensor(path, name, entry, data_start) for name, entry in entries.items()}
    _check_ranges(path, tensors, data_start, file_bytes)
    return dict(sorted(tensors.items(), key=lambda item: item[1].offset))


def _read_raw_header(path: Path) -> tuple[bytes, int]:
    """Read the header's JSON, and the file's size in bytes."""
    file_bytes = path.stat().st_size
    with path.open("rb") as stream:
        prefix = stream.read(LENGTH_BYTES)
        header_bytes = int.from_bytes(prefix, "little")
        if len(prefix) < LENGTH_BYTES or not 2 <= header_bytes <= min(HEADER_LIMIT_BYTES, file_bytes - LENGTH_BYTES):
            raise _invalid(path, f"a header of {header_bytes} bytes in a file of {file_bytes}")
        return stream.read(header_bytes), file_bytes


def read_float_tensor(path: Path, tensor: StoredTensor) -> NDArray[np.float32]:
    """Read one F32 tensor of the file.

    Raises:
        ValueError: the tensor is of another type.
    """
    if tensor.dtype != "F32":
        raise ValueError(f"{path.name}: a {tensor.dtype} tensor where F32 was expected")
    count = tensor.length // DTYPE_BYTES["F32"]
    return np.fromfile(path, dtype="<f4", count=count, offset=tensor.offset).reshape(tensor.shape)


def map_float_tensor(path: Path, tensor: StoredTensor) -> NDArray[np.float32]:
    """Map one F32 tensor of the file, of which pages are read as they are looked at.

    Raises:
        ValueError: the tensor is of another type.
    """
    if tensor.dtype != "F32":
        raise ValueError(f"{path.name}: a {tensor.dtype} tensor where F32 was expected")
    if not tensor.length:
        return np.zeros(tensor.shape, np.float32)
    return np.memmap(path, dtype="<f4", mode="r", offset=tensor.offset, shape=tensor.shape)


def _stored_tensor(path: Path, name: str, entry: _HeaderEntry, data_start: int) -> StoredTensor:
    begin, end = entry.data_offsets
    if len(entry.shape) > RANK_LIMIT:
        raise _invalid(path, f"tensor {name!r} of {len(entry.shape)} dimensions")
    if entry.dtype not in DTYPE_BYTES or any(dimension < 0 for dimension in entry.shape):
        raise _invalid(path, f"tensor {name!r} of type {entry.dtype} and shape {entry.shape}")
    length = math.prod(entry.shape) * DTYPE_BYTES[entry.dtype]
    if begin < 0 or end - begin != length:
        raise _invalid(path, f"tensor {name!r} with {end - begin} bytes where its shape needs {length}")
    return StoredTensor(entry.dtype, entry.shape, data_start + begin, length)


def _check_ranges(path: Path, tensors: dict[str, StoredTensor], data_start: int, file_bytes: int) -> None:
    """Refuse overlaps, gaps and a tail: the format forbids them, and they are where wrong offsets hide."""
    position = data_start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].length)):
        if tensor.offset != position:
            raise _invalid(path, f"tensor {name!r} at byte {tensor.offset} where the one before ends at {position}")
        position += tensor.length
    if position != file_bytes:
        raise _invalid(path, f"tensors that end at byte {position} in a file of {file_bytes} bytes")


def _invalid(path: Path, found: str) -> errors.CheckpointError:
    return errors.CheckpointError(
        found,
        expected="a well-formed safetensors file",
        where=path.name,
        fix="Download or save the checkpoint again; do not edit weight files by hand.",
    )
