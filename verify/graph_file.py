"""Read an ONNX file for judging: its contract and every tensor it holds, with no name trusted and nothing executed.

onnx's own loader and checker refuse hard-linked external data, so files are read with onnx-ir, and external data by
a bounded reader here. Export describes the graphs it wrote with this module, and the gate describes them again.
Source: onnx security notes since 1.21; measured with onnx 1.23.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vela.graphs import contract, digests, errors, manifest

GRAPH_LIMIT_BYTES = 2**31 - 1  # protobuf's own limit


@dataclass(frozen=True, slots=True)
class ExternalTensor:
    """An initializer that refers to another file.

    Attributes:
        location: File name, as the graph gives it.
        offset: First byte.
        length: Bytes.
        dtype: ONNX element type in lower case.
        shape: Dimensions.
    """

    location: str
    offset: int
    length: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GraphFile:
    """A parsed graph.

    Attributes:
        path: Where it lies.
        model: As onnx-ir reads it.
        external: External initializers by name.
        inline: Initializers and Constant nodes whose values lie in the file, by name.
    """

    path: Path
    model: ir.Model
    external: dict[str, ExternalTensor]
    inline: dict[str, NDArray[Any]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Parse a graph; external data is located, not read.

        Raises:
            GraphError: it is missing, too large, not ONNX, or refers outside its folder.
        """
        if not path.is_file() or path.stat().st_size > GRAPH_LIMIT_BYTES:
            raise invalid_graph(path, "no file of a size that protobuf can hold")
        try:
            model = ir.load(path)
        except Exception as cause:  # protobuf and onnx-ir raise many kinds on malformed input
            raise invalid_graph(path, f"content that does not parse ({type(cause).__name__}: {cause})") from cause
        external: dict[str, ExternalTensor] = {}
        inline: dict[str, NDArray[Any]] = {}
        for name, tensor in _tensors(model):
            if isinstance(tensor, ir.ExternalTensor):
                external[name] = _external(path, name, tensor)
            else:
                inline[name] = tensor.numpy()
        return cls(path, model, external, inline)

    @property
    def opset(self) -> int:
        """Version of ai.onnx that the graph imports."""
        return int(self.model.opset_imports.get("", 0))

    @property
    def inputs(self) -> tuple[contract.TensorSpec, ...]:
        """The graph's inputs, in order."""
        return tuple(_spec(self.path, value) for value in self.model.graph.inputs)

    @property
    def outputs(self) -> tuple[contract.TensorSpec, ...]:
        """The graph's outputs, in order."""
        return tuple(_spec(self.path, value) for value in self.model.graph.outputs)

    def inline_entries(self) -> tuple[manifest.InlineTensor, ...]:
        """Describe the inline tensors by content, sorted by name."""
        return tuple(
            manifest.InlineTensor(name, value.dtype.name, value.shape, sha256_of_array(value))
            for name, value in sorted(self.inline.items())
        )

    def read_external(self, name: str) -> NDArray[Any]:
        """Give one external tensor's values; they are mapped from its file, not read, but for 4-bit integers."""
        tensor = self.external[name]
        dtype, path = np.dtype(tensor.dtype), self.path.parent / tensor.location
        if not tensor.length:
            return np.zeros(tensor.shape, dtype)
        count = math.prod(tensor.shape)
        if tensor.length < count:
            nibbles = unpack_nibbles(np.fromfile(path, np.uint8, count=tensor.length, offset=tensor.offset))[:count]
            signed = (nibbles ^ 8).astype(np.int8) - 8  # two's complement of four bits
            return (signed if tensor.dtype == "int4" else nibbles).astype(dtype).reshape(tensor.shape)
        return np.memmap(path, dtype, mode="r", offset=tensor.offset, shape=tensor.shape)


def unpack_nibbles(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Give the 4-bit integers of each byte, the lower half first, along the last dimension: (…, 2 N) of (…, N)."""
    halves = np.stack([packed & 0xF, packed >> 4], axis=-1)
    return halves.reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def sha256_of_array(value: NDArray[Any]) -> str:
    """Give the SHA-256 of an array's bytes in row-major order."""
    return digests.sha256_of_bytes(np.ascontiguousarray(value).tobytes())


def _tensors(model: ir.Model) -> Iterator[tuple[str, Any]]:
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    for graph in graphs:
        for value in graph.initializers.values():
            yield str(value.name), value.const_value
        for node in graph.all_nodes():
            for inner in graphs_of(node):
                yield from ((str(value.name), value.const_value) for value in inner.initializers.values())
            for attribute in node.attributes.values():
                if attribute.type is ir.AttributeType.TENSOR:
                    yield str(node.outputs[0].name), attribute.as_tensor()
                elif node.op_type == "Constant":
                    yield str(node.outputs[0].name), ir.tensor(attribute.value)


def graphs_of(node: ir.Node) -> Iterator[ir.Graph]:
    """Give the subgraphs that a node holds, such as the branches of an If."""
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type is ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _external(path: Path, name: str, tensor: ir.ExternalTensor) -> ExternalTensor:
    """Check where an external tensor lies before anybody reads it."""
    location, offset, length = str(tensor.location), int(tensor.offset or 0), tensor.length
    pure = PurePosixPath(location)
    target = path.parent / location
    if pure.is_absolute() or ".." in pure.parts or "\\" in location or target.is_symlink() or not target.is_file():
        raise invalid_graph(path, f"{name} in {location!r}, which is no regular file inside the folder")
    shape = tuple(int(size) for size in tensor.shape)
    needed = math.ceil(math.prod(shape) * tensor.dtype.itemsize)  # itemsize is a fraction for 4-bit types
    size = os.stat(target).st_size
    if length is not None and int(length) != needed:
        raise invalid_graph(path, f"{name} with {length} bytes where its shape needs {needed}")
    if offset < 0 or offset + needed > size:
        raise invalid_graph(path, f"{name} at bytes {offset} to {offset + needed} of a file of {size}")
    if offset % max(1, int(tensor.dtype.itemsize)):
        raise invalid_graph(path, f"{name} at byte {offset}, not aligned to its elements")
    return ExternalTensor(location, offset, needed, np.dtype(tensor.dtype.numpy()).name, shape)


def _spec(path: Path, value: ir.Value) -> contract.TensorSpec:
    if value.shape is None or value.dtype is None:
        raise invalid_graph(path, f"{value.name} without a type or shape")
    shape = tuple(size if isinstance(size, int) else str(size.value) for size in value.shape)
    return contract.TensorSpec(str(value.name), np.dtype(value.dtype.numpy()).name, shape)


def invalid_graph(path: Path, found: str) -> errors.GraphError:
    """Make the error for a graph file that cannot be judged."""
    return errors.GraphError(
        found,
        expected="a graph that keeps Vela's tensor contract",
        where=path.name,
        fix="Export it again; a graph whose tensors are not where it says answers garbage.",
    )
