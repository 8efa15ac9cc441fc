"""Describe a bundle or an ONNX file for a person who asks what it is: shapes, operators, types, where weights lie."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from vela.graphs import bundle, record
from vela.verify import graph_file

SHOWN_OPERATORS = 12


def inspect_graph(path: Path) -> dict[str, Any]:
    """Describe one ONNX file.

    Raises:
        GraphError: it cannot be parsed, or refers outside its folder.
    """
    graph = graph_file.GraphFile.read(path)
    operators = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in graph.model.graph.all_nodes()
    )
    locations = Counter(tensor.location for tensor in graph.external.values())
    types = Counter(tensor.dtype for tensor in graph.external.values())
    types += Counter(value.dtype.name for value in graph.inline.values())
    return {
        "file": path.name,
        "size_bytes": path.stat().st_size,
        "producer": f"{graph.model.producer_name} {graph.model.producer_version}".strip(),
        "opset": graph.opset,
        "inputs": [_spec(spec) for spec in graph.inputs],
        "outputs": [_spec(spec) for spec in graph.outputs],
        "nodes": sum(operators.values()),
        "operators": dict(operators.most_common()),
        "tensor types": dict(types),
        "external tensors": dict(locations),
        "inline tensors": len(graph.inline),
    }


def inspect_bundle(folder: Path) -> dict[str, Any]:
    """Describe a bundle by its manifest and records.

    Raises:
        ManifestInvalid: its manifest cannot be used.
    """
    opened = bundle.Bundle.open(folder)
    written = opened.manifest
    return {
        "model": msgspec.to_builtins(written.model),
        "manifest_sha256": opened.manifest_sha256,
        "heads": [msgspec.to_builtins(head) for head in written.heads],
        "tokenizer": msgspec.to_builtins(written.tokenizer),
        "files": {name: source.size_bytes for name, source in written.sources.items()},
        "graphs": [
            {
                "id": graph.id,
                "target": graph.target,
                "size_bytes": graph.size_bytes,
                "inputs": [_spec(spec) for spec in graph.inputs],
                "outputs": [_spec(spec) for spec in graph.outputs],
                "verdicts": _verdicts(opened, graph.id),
            }
            for graph in written.graphs
        ],
        "tools": written.tools,
    }


def as_json(found: dict[str, Any]) -> str:
    """Give a description as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode()


def as_lines(found: dict[str, Any]) -> Iterator[str]:
    """Give a description as lines of `key  value`, lists one entry a line."""
    width = max(map(len, found))
    for key, value in found.items():
        if isinstance(value, list):
            yield f"{key.ljust(width)}  {len(value)}"
            yield from (f"{' ' * width}  {_inline(entry)}" for entry in value)
        else:
            yield f"{key.ljust(width)}  {_inline(value)}"


def _inline(value: object) -> str:
    if isinstance(value, dict):
        shown = [f"{key} {_inline(entry)}" for key, entry in list(value.items())[:SHOWN_OPERATORS]]
        return ", ".join(shown) + (f", and {len(value) - SHOWN_OPERATORS} more" if len(value) > SHOWN_OPERATORS else "")
    if isinstance(value, (list, tuple)):
        shown = [_inline(entry) for entry in value[:SHOWN_OPERATORS]]
        return " · ".join(shown) + (f" and {len(value) - SHOWN_OPERATORS} more" if len(value) > SHOWN_OPERATORS else "")
    return str(value)


def _spec(spec: Any) -> str:
    return f"{spec.name} {spec.dtype} ({', '.join(map(str, spec.shape))})"


def _verdicts(opened: bundle.Bundle, graph_id: str) -> dict[str, str]:
    """Read the verdicts that lie in the bundle; whether they still bind is publish's question."""
    found: dict[str, str] = {}
    for path in sorted(opened.folder.glob(f"verification/{graph_id}.*.json")):
        if path.stat().st_size <= record.RECORD_LIMIT_BYTES:
            written = msgspec.json.decode(path.read_bytes(), type=record.Record)
            found[path.name.removeprefix(f"{graph_id}.").removesuffix(".json")] = written.verdict
    return found
