"""Give a weightless graph its weights: references into the checkpoint's own files, or copies.

Exact: a bound tensor is the checkpoint's bytes. Tensors of at most 1 KiB lie inline, because a reference costs as
much; RoPE tables are computed by Transformers' own code from the checkpoint's config. The classifier's label count
is taken from its weights here, which is what lets models of one architecture share a trace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vela.export.passes import divide_products
from vela.graphs import contract, errors, safetensors_header

INLINE_LIMIT_BYTES = 1024
BASE_PREFIXES = ("model.", "bert.")  # of a base model within a classifier's state dictionary
LABEL_WEIGHTS = ("classifier.weight", "classifier.bias")


@dataclass(frozen=True, slots=True)
class Weights:
    """What a graph's weight inputs can be bound to.

    Attributes:
        folder: Where the files lie when the graph is written.
        tensors: Places by file and tensor name.
        tables: Computed tensors by name, such as RoPE inverse frequencies.
        storage: Reference, or embed.
    """

    folder: Path
    tensors: Mapping[str, Mapping[str, safetensors_header.StoredTensor]]
    tables: Mapping[str, NDArray[np.float32]]
    storage: contract.WeightStorage

    def find(self, name: str) -> tuple[str, str, safetensors_header.StoredTensor]:
        """Give the file, tensor name and place for a weight of the state dictionary.

        A base model is saved with or without its prefix, such as `model.`; Transformers takes both, so both are tried.

        Raises:
            ExportError: no file has it.
        """
        for candidate in (name, *(f"{prefix}{name}" for prefix in BASE_PREFIXES)):
            for file, entries in self.tensors.items():
                if candidate in entries:
                    return file, candidate, entries[candidate]
        raise errors.ExportError(
            f"no tensor for the weight {name}",
            expected="a tensor for every weight of the model",
            where=", ".join(self.tensors),
            fix="The checkpoint is incomplete, or of another architecture than its config says.",
        )


def bind_weights(
    model: ir.Model, names: tuple[str, ...], weights: Weights, parts: Mapping[str, divide_products.Rows]
) -> dict[str, str]:
    """Bind every weight input that is left in the graph, in place.

    Args:
        model: A graph whose weights are inputs.
        names: The inputs that are weights.
        weights: What they are bound to.
        parts: The inputs that are rows of a weight; they are references whatever their size.

    Returns:
        Initializer name to tensor name in the checkpoint's files, for the external ones.
    """
    external = {}
    for value in [value for value in model.graph.inputs if value.name in names or value.name in parts]:
        model.graph.inputs.remove(value)
        name = str(value.name)
        if name in parts:
            file, tensor_name, place = weights.find(parts[name].weight)
            value.const_value = _reference(weights.folder, file, name, _rows(place, parts[name]))
            external[name] = tensor_name
        elif name in weights.tables:
            value.const_value = ir.Tensor(weights.tables[name], name=name)
        else:
            file, tensor_name, place = weights.find(name)
            if weights.storage == "reference" and place.length > INLINE_LIMIT_BYTES:
                value.const_value = _reference(weights.folder, file, name, place)
                external[name] = tensor_name
            else:
                content = safetensors_header.read_float_tensor(weights.folder / file, place)
                value.const_value = ir.Tensor(content, name=name)
        if name in LABEL_WEIGHTS:
            _forget_shapes_after(value)
        value.shape = value.const_value.shape
        model.graph.register_initializer(value)
    return external


def _reference(folder: Path, file: str, name: str, place: safetensors_header.StoredTensor) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        location=file,
        offset=place.offset,
        length=place.length,
        dtype=ir.DataType.FLOAT,
        shape=ir.Shape(place.shape),
        name=name,
        base_dir=folder,
    )


def _rows(place: safetensors_header.StoredTensor, rows: divide_products.Rows) -> safetensors_header.StoredTensor:
    row_bytes = place.length // place.shape[0]
    return msgspec.structs.replace(
        place,
        shape=(rows.count, *place.shape[1:]),
        offset=place.offset + rows.first * row_bytes,
        length=rows.count * row_bytes,
    )


def _forget_shapes_after(value: ir.Value) -> None:
    """Forget shapes that depend on the traced label count."""
    waiting = [value]
    while waiting:
        for node in waiting.pop().consumers():
            for output in node.outputs:
                if output.shape is not None:
                    output.shape = None
                    waiting.append(output)
