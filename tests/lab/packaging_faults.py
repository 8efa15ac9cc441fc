"""Faults of packing: files that are cut, linked, exchanged or written again, and references that lead elsewhere."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import onnx
from lab.fault import Fault
from lab.sketch import NotApplicable
from lab.workbench import WEIGHTS, Bench, sha256

Content = dict[str, Any]
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
LINKED = "weights.safetensors"


def cut_file(bench: Bench, name: str, *, is_resealed: bool) -> str:
    path = bench.path if name == "graph" else bench.folder / name
    content = path.read_bytes()
    kept = int(len(content) * bench.rng.uniform(0.5, 0.95))
    path.unlink()
    path.write_bytes(content[:kept])
    if is_resealed:
        bench.reseal()
    return f"{path.name} ends after {kept} of {len(content)} bytes"


def touch_graph(bench: Bench) -> str:
    """Write a graph again under another producer's version, as long as before; nothing that runs has changed."""
    sketch = bench.sketch()
    sketch.proto.producer_version = sketch.proto.producer_version[:-1] + "x"
    sketch.save(is_sorted=False)
    return f"producer {sketch.proto.producer_version}"


def reorder_external_keys(bench: Bench) -> str:
    """Write a reference's keys in another order, which one parser reads by position."""
    sketch = bench.sketch()
    if bench.entry["target"] != "portable":
        raise NotApplicable("ONNX Runtime reads keys by name")
    for tensor in sketch.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = [onnx.StringStringEntryProto(key=one.key, value=one.value) for one in tensor.external_data]
            del tensor.external_data[:]
            tensor.external_data.extend([entries[1], entries[0], entries[2]])
    sketch.save()
    bench.reseal()
    return "offset before location"


def refer_elsewhere(bench: Bench, make: Callable[[Bench], str]) -> str:
    """Let the graph's references lead to the same bytes by another name."""
    name = make(bench)
    sketch = bench.sketch()
    for tensor in sketch.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location" and entry.value == WEIGHTS:
                entry.value = name
    sketch.save()
    bench.reseal()
    return name


def _link(bench: Bench) -> str:
    (bench.folder / LINKED).symlink_to(WEIGHTS)
    return LINKED


def _copy(bench: Bench) -> str:
    shutil.copy(bench.folder / WEIGHTS, bench.folder / LINKED)
    return LINKED


def link_source(bench: Bench) -> str:
    """Let a file of the checkpoint be a link, whose end can change after every check."""
    path = bench.folder / CONFIG
    outside = bench.folder.with_name(f"{bench.folder.name}.{CONFIG}")
    shutil.move(path, outside)
    path.symlink_to(outside)
    return CONFIG


def take_bucket(bench: Bench) -> str:
    """Put another bucket's graph under this one's name."""
    entry = bench.entry
    other = bench.other_graph(lambda graph: graph["target"] == entry["target"] and _shape(graph) != _shape(entry))
    shutil.copy(bench.folder / other["file"], bench.path)
    bench.reseal()
    return f"{other['file']} as {entry['file']}"


def _shape(graph: Content) -> tuple[Any, ...]:
    return tuple(graph["inputs"][0]["shape"])


def add_source(bench: Bench) -> str:
    """Let the manifest and the folder hold a file that the checkpoint does not."""
    path = bench.folder / "generation_config.json"
    path.write_text("{}")

    def change(content: Content) -> None:
        content["sources"][path.name] = {"sha256": sha256(path), "size_bytes": 2}

    bench.reseal(change)
    return path.name


def edit_unsealed(bench: Bench) -> str:
    """Edit the manifest by hand and leave its seal."""
    path = bench.folder / "manifest.json"
    content = json.loads(path.read_bytes())
    content["graphs"][0]["size_bytes"] += 1
    path.write_text(json.dumps(content))
    return "a size is one byte larger"


FAULTS = (
    Fault("the graph file is cut short", "packaging", partial(cut_file, name="graph", is_resealed=False)),
    Fault("the graph file is cut short and resealed", "packaging", partial(cut_file, name="graph", is_resealed=True)),
    Fault("the weight file is cut short", "packaging", partial(cut_file, name=WEIGHTS, is_resealed=False)),
    Fault("the graph file was written again", "packaging", touch_graph, only="graph.digest"),
    Fault("references are written in another order", "packaging", reorder_external_keys, only="graph.lint"),
    Fault("references go through a link", "packaging", partial(refer_elsewhere, make=_link), only="graph.parse"),
    Fault("references go to an unlisted copy", "packaging", partial(refer_elsewhere, make=_copy)),
    Fault("a file of the checkpoint is a link", "packaging", link_source, only="sources.digests"),
    Fault("another bucket's graph has this one's name", "packaging", take_bucket),
    Fault("a file is there that the checkpoint has not", "packaging", add_source, only="sources.identity"),
    Fault("the manifest was edited by hand", "packaging", edit_unsealed),
)
