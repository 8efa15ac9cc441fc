"""Which files a graph reads its weights from, found without the onnx package, before an engine follows them.

ONNX Runtime before 1.24, and so the last one with the ROCm provider, opens any path that a graph names: absolute ones,
`..`, links. A bundle is untrusted input, so each location must be a file of its folder, whose digests were checked.
Source: ONNX's onnx.proto, field numbers; microsoft/onnxruntime pull 26776; measured with 1.22.2.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from vela.graphs import errors

# Length-delimited fields that lead to tensors: message, field number, message.
_LEADS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {},
}
_KEY, _VALUE = 1, 2
MOST_NESTED = 64


def require_beside(path: Path) -> None:
    """Refuse a graph that reads anything but regular files of its own folder, as ONNX Runtime does from 1.24 on.

    Args:
        path: The ONNX file.

    Raises:
        GraphError: it names something else, or is no ONNX file.
    """
    try:
        found = sorted({name for name in locations(path.read_bytes()) if not _is_beside(path.parent, name)})
    except ValueError as cause:
        raise errors.GraphError(
            f"a file that cannot be read ({cause})", expected="an ONNX graph", where=path.name, fix="Export it again."
        ) from cause
    if found:
        raise errors.GraphError(
            f"weights in {', '.join(map(repr, found[:3]))}",
            expected="weights in files that lie beside the graph",
            where=path.name,
            fix="Do not run this graph: it reads files that are none of its bundle's.",
        )


def _is_beside(folder: Path, name: str) -> bool:
    if name != Path(name).name or name in ("", ".", "..") or "\0" in name:
        return False
    beside = folder / name
    return not beside.is_symlink() and beside.is_file()


def locations(content: bytes) -> Iterator[str]:
    """Give the location of every tensor that lies outside an ONNX file.

    Raises:
        ValueError: it is no protocol buffer, or nested too deeply.
    """
    return _walk(memoryview(content), "model", 0)


def _walk(content: memoryview, message: str, depth: int) -> Iterator[str]:
    if depth > MOST_NESTED:
        raise ValueError(f"messages nested more than {MOST_NESTED} deep")
    leads = _LEADS[message]
    for number, part in _fields(content):
        if leads.get(number) == "entry":
            entry = dict(_fields(part))
            if bytes(entry.get(_KEY, b"")) == b"location":
                yield bytes(entry.get(_VALUE, b"")).decode("utf-8", "surrogateescape")
        elif number in leads:
            yield from _walk(part, leads[number], depth + 1)


def _fields(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Give a message's length-delimited fields, in order."""
    place, size = 0, len(content)
    while place < size:
        tag, place = _varint(content, place)
        match tag & 7:
            case 0:
                _, place = _varint(content, place)
            case 1:
                place += 8
            case 5:
                place += 4
            case 2:
                length, place = _varint(content, place)
                if place + length > size:
                    raise ValueError(f"a field of {length} bytes where {size - place} are left")
                yield tag >> 3, content[place : place + length]
                place += length
            case kind:
                raise ValueError(f"a field of the kind {kind}")
    if place > size:
        raise ValueError("a field that ends behind its message")


def _varint(content: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(content) or shift > 63:
            raise ValueError("a number that does not end")
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
