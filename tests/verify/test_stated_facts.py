"""What a manifest states of graphs and model, and what a graph states of its norms: each is derived again.

All of them passed before they were checked: no answer depends on the first, and the last moves answers by less than
the reference's own noise.
"""

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

SAMPLE = "tiny-intent"
GRAPH = "portable-b1-s64"


@pytest.fixture
def folder(copied: dict[str, Path]) -> Path:
    return copied[SAMPLE]


@pytest.fixture
def failed(judge_folder) -> Callable[[Path], dict[str, str]]:
    def run(folder: Path) -> dict[str, str]:
        (found,) = judge_folder(folder, graph=GRAPH)
        return {check.name: check.detail for check in found.checks if check.status == "failed"}

    return run


def entry_of(content: dict) -> dict:
    return next(graph for graph in content["graphs"] if graph["id"] == GRAPH)


def test_references_that_change_places_in_the_manifest_are_seen(folder, reseal, failed):
    def exchange(content: dict) -> None:
        external = entry_of(content)["external"]
        first, second = sorted(external)[:2]
        external[first], external[second] = external[second], external[first]

    reseal(folder, exchange)

    assert list(found := failed(folder)) == ["graph.facts"]
    assert "other references" in found["graph.facts"]


def test_another_digest_for_a_constant_is_seen(folder, reseal, failed):
    reseal(folder, lambda content: entry_of(content)["inline"][0].update(sha256="f" * 64))

    assert list(found := failed(folder)) == ["graph.facts"]
    assert "other constants" in found["graph.facts"]


def test_weights_by_reference_that_are_said_to_be_embedded_are_seen(folder, reseal, failed):
    reseal(folder, lambda content: entry_of(content).update(storage="embedded"))

    assert list(found := failed(folder)) == ["graph.facts"]
    assert "other storage" in found["graph.facts"]


def test_another_size_of_the_graph_is_seen(folder, reseal, failed):
    reseal(folder, lambda content: entry_of(content).update(size_bytes=7))

    assert list(failed(folder)) == ["graph.facts"]


@pytest.mark.parametrize("claimed", [{"model_sha256": "1" * 64}, {"repository": "someone/model", "revision": "2" * 40}])
def test_another_identity_is_seen(folder, reseal, failed, claimed):
    reseal(folder, lambda content: content["model"].update(claimed))

    assert list(found := failed(folder)) == ["manifest.facts"]
    assert "identity" in found["manifest.facts"]


def test_one_norm_s_other_epsilon_is_seen_though_no_answer_shows_it(folder, reseal, failed):
    path = folder / f"{GRAPH}.onnx"
    proto = onnx.load(path, load_external_data=False)
    norm = next(node for node in proto.graph.node if node.op_type == "LayerNormalization")
    next(entry for entry in norm.attribute if entry.name == "epsilon").f = 1e-12
    path.write_bytes(proto.SerializeToString())
    reseal(folder)

    assert list(found := failed(folder)) == ["graph.norms"]
    assert f"1 of 14 norms with another epsilon: {norm.output[0]} with 1e-12" in found["graph.norms"]
    assert json.loads((folder / "config.json").read_text())["norm_eps"] == 1e-5
