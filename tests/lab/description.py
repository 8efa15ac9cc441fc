"""What a manifest says of a graph's tensors, read from the proto: what a careful forger would write there.

Written apart from export and from the gate, so that a mistake in their common reader is not repeated here.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Content = dict[str, Any]


def describe_graph(path: Path, entry: Content, weights: list[Content]) -> Content:
    """Give a graph's entry with its tensors described as they are now; unchanged where the file does not parse."""
    try:
        proto = onnx.load(path, load_external_data=False)
    except Exception:  # a fault that cuts files is judged like any other
        return entry
    external = [one for one in proto.graph.initializer if one.data_location == onnx.TensorProto.EXTERNAL]
    references = {tensor.name: _stored_name(tensor, weights) for tensor in external}
    if not all(references.values()):
        references = entry["external"]
    storage = "reference" if references else entry["storage"]
    return entry | {"inline": list(_constants(proto)), "external": references, "storage": storage}


def _constants(proto: onnx.ModelProto) -> Iterator[Content]:
    """Describe initializers and tensor attributes that lie in the file, sorted by name."""
    found = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in proto.graph.initializer
        if tensor.data_location != onnx.TensorProto.EXTERNAL
    }
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                found[node.output[0]] = numpy_helper.to_array(attribute.t)
    for name, values in sorted(found.items()):
        content = np.ascontiguousarray(values).tobytes()
        yield {
            "name": name,
            "dtype": values.dtype.name,
            "shape": list(values.shape),
            "sha256": hashlib.sha256(content).hexdigest(),
        }


def _stored_name(tensor: onnx.TensorProto, weights: list[Content]) -> str:
    """Give the stored tensor in which an external one lies; empty where it lies in none."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    first = int(place.get("offset", 0))
    for stored in weights:
        is_there = stored["offset"] <= first < stored["offset"] + stored["length"]
        if stored["file"] == place["location"] and is_there:
            return str(stored["name"])
    return ""
