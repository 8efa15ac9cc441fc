"""Failures that come with loading: a graph that is too long, stale, for another engine, or not where it should run.

Their numbers are in test_failure_catalogue.py.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from starlette.testclient import TestClient

from vela.graphs import bundle as bundles
from vela.graphs import contract, golden, heads, manifest
from vela.serve import buckets, engine, model, policy, registry
from vela.serve.costs import Costs
from vela.serve.forward import Loaded
from vela.serve.http.app import build_app
from vela.serve.model import ServedModel

LONGEST = 32_768


def statuses_of(plan: registry.Plan) -> tuple[tuple[int, int, int], str]:
    """Load a plan; give the statuses of its readiness, its liveness and a request, and what the first one says."""
    made = registry.Registry(plan)
    made.load()
    with TestClient(build_app(made)) as client:
        ready, alive = client.get("/readyz"), client.get("/livez")
        answer = client.post("/v1/classify", json={"input": "x"})
    made.close()
    return (ready.status_code, alive.status_code, answer.status_code), ready.text


def test_a_model_of_long_documents_is_loaded_without_a_long_run(
    make_bundle: Callable[..., Path],
    tables: dict[str, np.ndarray],
    source_of: Callable[..., registry.Source],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = heads.Head("default", "text", heads.SequenceDecoder(("a", "b", "c")), LONGEST, "reject")
    folder, inner, sizes = make_bundle("long", head, tables["mood"]), engine.Session.run, []

    def run(session: engine.Session, inputs: Any, run_options: Any = None) -> engine.Outputs:
        sizes.append(inputs["input_ids"].size)
        return inner(session, inputs, run_options)

    monkeypatch.setattr(engine.Session, "run", run)
    loaded = registry.Registry(registry.Plan((source_of("long", folder),)))
    problems = loaded.load()
    loaded.close()

    assert problems == []
    assert max(sizes) == max(model.WARM_UP_TOKENS) == 512


def elsewhere(_: object) -> list[object]:
    """Say that another provider runs a node."""
    return [SimpleNamespace(ep_name="OtherExecutionProvider", get_nodes=lambda: [SimpleNamespace(op_type="Gather")])]


@pytest.mark.parametrize(
    ("place", "name", "found", "said"),
    [
        (engine.onnxruntime, "get_available_providers", lambda: ["OtherExecutionProvider"], "which offers Other"),
        (engine.onnxruntime.InferenceSession, "get_provider_graph_assignment_info", elsewhere, "1 nodes on Other"),
        (engine.onnxruntime.InferenceSession, "get_provider_graph_assignment_info", lambda _: [], "no nodes anywhere"),
    ],
)
def test_without_its_provider_a_server_is_alive_and_not_ready(
    bags: dict[str, Path],
    source_of: Callable[..., registry.Source],
    monkeypatch: pytest.MonkeyPatch,
    place: object,
    name: str,
    found: object,
    said: str,
) -> None:
    monkeypatch.setattr(place, name, found)

    statuses, reasons = statuses_of(registry.Plan((source_of("mood", bags["mood"]),)))

    assert statuses == (503, 200, 503)
    assert said in reasons


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"precision": "int8"}, "does not validate"),
        ({"precision": "fp16"}, "no graph that gives logits on cpu"),
        ({"target": "portable"}, "no graph that gives logits on cpu"),
    ],
)
def test_a_graph_of_another_precision_or_target_is_not_served(
    bags: dict[str, Path],
    source_of: Callable[..., registry.Source],
    tmp_path: Path,
    change: dict[str, str],
    said: str,
) -> None:
    folder = Path(shutil.copytree(bags["mood"], tmp_path / "mood"))
    content = bundles.Bundle.open(folder).manifest
    (graph,) = content.graphs
    changed = msgspec.structs.replace(content, graphs=(msgspec.structs.replace(graph, **change),)).sealed()
    (folder / contract.MANIFEST_FILE).write_bytes(manifest.encode_manifest(changed))

    statuses, reasons = statuses_of(registry.Plan((source_of("mood", folder),), demand="nothing"))

    assert statuses == (503, 200, 503)
    assert said in reasons


@pytest.mark.parametrize(("classes", "said"), [(3, "found logits"), (2, "found logits of shape (1, 2)")])
def test_a_stale_program_under_the_right_name_is_not_served(
    bags: dict[str, Path],
    served: dict[str, ServedModel],
    make_bundle: Callable[..., Path],
    source_of: Callable[..., registry.Source],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    classes: int,
    said: str,
) -> None:
    """Every file has its digest, and what the engine runs is not what they hold."""
    folder = Path(shutil.copytree(bags["mood"], tmp_path / "mood"))
    golden.write(bundles.Bundle.open(folder), golden_of(served["mood"]))
    stale = make_bundle("stale", served["mood"].head, np.ones((259, classes), np.float32)) / "model.onnx"
    plan, inner = registry.Plan((source_of("mood", folder),)), engine.Session.open
    fresh = statuses_of(plan)

    monkeypatch.setattr(engine.Session, "open", lambda path, *others: inner(stale, *others))
    statuses, reasons = statuses_of(plan)

    assert fresh[0] == (200, 200, 200)
    assert statuses == (503, 200, 503)
    assert said in reasons


def golden_of(found: ServedModel) -> golden.Golden:
    """Give one golden answer of a sequence model's own."""
    ids = (256, 3, 4, 5, 257)
    row = np.array([ids])
    logits = found.loaded["model"].session.run({"input_ids": row, "attention_mask": np.ones_like(row)})["logits"][0]
    probe = golden.Probe("one", ids, {"logits": golden.Values(logits.shape, tuple(map(float, logits)))})
    bounds: dict[golden.EngineClass, float] = {"cpu": 2e-5, "gpu": 4e-3}
    return golden.Golden(1, found.bundle.manifest_sha256, "0" * 64, "itself", "test", {}, bounds, (probe,))


def test_no_length_makes_a_session(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.onnxruntime, "InferenceSession", None)  # whoever makes one fails

    answers = [client.post("/v1/classify", json={"model": "mood", "input": "x" * length}) for length in range(1, 63)]

    assert {(answer.status_code, answer.headers["x-vela-bucket"]) for answer in answers} == {(200, "model")}
    assert [answer.json()["results"][0]["input"]["tokens"] for answer in answers] == list(range(3, 65))


def test_every_length_runs_on_the_smallest_fixed_graph_and_that_one_is_warm(served: dict[str, ServedModel]) -> None:
    sizes, ran = (16, 32, 64), set()

    class Session:
        def __init__(self, size: int) -> None:
            inputs = contract.graph_inputs(1, size)
            self.graph = msgspec.structs.replace(served["mood"].bundle.graph("model"), id=f"s{size}", inputs=inputs)

        def run(self, inputs: Any, run_options: Any = None) -> engine.Outputs:
            ran.add(self.graph.id)
            return {"logits": np.zeros((1, 3), np.float32)}

    sessions = [Session(size) for size in sizes]
    fixed = replace(
        served["mood"],
        ladders={"logits": buckets.Ladder("logits", tuple(session.graph for session in sessions))},
        loaded={session.graph.id: Loaded(session, Costs()) for session in sessions},  # type: ignore[arg-type]
        settled={},
    )
    for forward in fixed.warm_up_runs():
        forward.run()
    readings = fixed.read(["x" * length for length in range(1, 63)], fixed.settle(policy.Options(), "logits"))
    chosen = [forward.tokens for reading in readings for forward in fixed.forwards(reading, "logits")]  # type: ignore[arg-type]

    assert ran == {"s16", "s32", "s64"}
    assert chosen == [min(size for size in sizes if size >= tokens) for tokens in range(3, 65)]
