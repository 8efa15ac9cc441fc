"""Faults of the engine and of what is claimed for it: session options, and records that are not of this graph."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from lab.fault import Fault
from lab.sketch import NotApplicable
from lab.workbench import Bench

Content = dict[str, Any]


def leave(bench: Bench) -> str:
    """Alter nothing in the bundle; the session is what is at fault."""
    return "nothing in the bundle"


def leave_with_erf(bench: Bench) -> str:
    """Alter nothing in a bundle whose graph leaves the fusion of GELU to the engine."""
    if not bench.sketch().nodes("Erf"):
        raise NotApplicable("GELU is one operator already")
    return leave(bench)


def edit_record(bench: Bench, change: Callable[[Bench, Content], str]) -> str:
    """Alter the graph's record, as it lies in the bundle."""
    path = bench.folder / "verification" / f"{bench.graph_id}.cpu.json"
    content = json.loads(path.read_bytes())
    drawn = change(bench, content)
    path.write_text(json.dumps(content))
    return drawn


def remove_record(bench: Bench) -> str:
    path = bench.folder / "verification" / f"{bench.graph_id}.cpu.json"
    path.unlink()
    return path.name


def add_failure(bench: Bench) -> str:
    """Lay a failed record of the same engine beside the pass."""
    path = bench.folder / "verification" / f"{bench.graph_id}.cpu.json"
    content = json.loads(path.read_bytes()) | {"verdict": "failed", "cause": "parity.strict: elsewhere"}
    path.with_name(f"{bench.graph_id}.cpu-elsewhere.json").write_text(json.dumps(content))
    return "a failure of the same engine"


def change_after(bench: Bench, *, is_resealed: bool) -> str:
    """Change the graph after it passed."""
    sketch = bench.sketch()
    sketch.graph.doc_string = "edited after the gate"
    sketch.save()
    if is_resealed:
        bench.reseal()
    return bench.graph_id


def _another_graph(bench: Bench, content: Content) -> str:
    other = bench.other_graph(lambda graph: True)
    content["graph_sha256"] = other["sha256"]
    return other["id"]


def _another_manifest(bench: Bench, content: Content) -> str:
    content["manifest_sha256"] = "3" * 64
    return "another manifest"


def _another_engine(bench: Bench, content: Content) -> str:
    content["engine"] |= {"provider": "CUDAExecutionProvider", "device": "cuda:0", "architecture": "9.0"}
    return "a GPU"


def _failed_check(bench: Bench, content: Content) -> str:
    check = bench.pick(content["checks"])
    check["status"] = "failed"
    return check["name"]


def _unfinished(bench: Bench, content: Content) -> str:
    if content["compared"] < 2:
        raise NotApplicable("nothing to take away")
    content["compared"] -= 1
    return f"{content['compared']} of {content['planned']}"


def _no_engine(bench: Bench, content: Content) -> str:
    content["engine"] = None
    return "no engine"


def _recorded(name: str, change: Callable[[Bench, Content], str], provenance: str = "") -> Fault:
    return Fault(name, "engine", partial(edit_record, change=change), is_published=True, provenance=provenance)


FAULTS = (
    Fault(
        "the session approximates GELU",
        "engine",
        leave,
        session={"optimization.enable_gelu_approximation": "1"},
        provenance="microsoft/onnxruntime issue 14702: erf and tanh differ by 1e-3",
    ),
    Fault(
        "the gate's session fuses otherwise than a server's",
        "engine",
        leave_with_erf,
        session={"optimization.disable_specified_optimizers": "GeluFusionL1;GeluFusionL2"},
        only="engine.processes",
    ),
    _recorded(
        "the record is another graph's",
        _another_graph,
        "ROCm/onnxruntime: a cache key without weights serves an old program for a new graph",
    ),
    _recorded("the record is another manifest's", _another_manifest),
    _recorded("the record is another engine's", _another_engine),
    _recorded("the record passes with a failed check", _failed_check),
    _recorded("the record passes with a case left out", _unfinished),
    _recorded("the record passes with no engine", _no_engine),
    Fault("the record is gone", "engine", remove_record, is_published=True),
    Fault("the record is contradicted by another", "engine", add_failure, is_published=True),
    Fault("the graph changed after it passed", "engine", partial(change_after, is_resealed=False), is_published=True),
    Fault(
        "the graph changed after it passed, and was resealed",
        "engine",
        partial(change_after, is_resealed=True),
        is_published=True,
    ),
)
