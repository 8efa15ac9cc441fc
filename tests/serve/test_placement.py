"""Where nodes run, as a session says it and as its profile does; both must be believed only as far as they go."""

from pathlib import Path

import pytest

from vela.graphs import bundle as bundles
from vela.graphs import errors
from vela.serve import engine, placement
from vela.serve.device import CPU, Device


def open_graph(folder: Path) -> engine.Session:
    opened = bundles.Bundle.open(folder)
    graph = opened.manifest.graphs[0]
    return engine.Session.open(opened.path(graph.file), graph, CPU)


@pytest.mark.parametrize("says", [True, False])
def test_a_graph_on_the_cpu_is_found_there_either_way(bags, monkeypatch: pytest.MonkeyPatch, says: bool) -> None:
    seen: list[placement.Placed] = []
    require = placement.require
    monkeypatch.setattr(placement, "SESSIONS_SAY_WHERE", says)
    monkeypatch.setattr(placement, "require", lambda placed, *rest: (seen.append(placed), require(placed, *rest)))

    open_graph(bags["mood"])

    assert list(seen[0]) == [CPU.provider]
    assert "Gather" in seen[0][CPU.provider]


def test_a_profile_leaves_no_file(bags, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(placement, "SESSIONS_SAY_WHERE", False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    open_graph(bags["mood"])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("placed", "found"),
    [
        ({"CPUExecutionProvider": ["Gather"]}, "1 nodes on CPUExecutionProvider"),
        ({"CUDAExecutionProvider": ["MatMul"], "CPUExecutionProvider": ["Gather"]}, "1 nodes on CUDA"),
        ({"CUDAExecutionProvider": []}, "0 nodes on CUDA"),
        ({}, "no nodes anywhere"),
    ],
)
def test_a_node_elsewhere_or_none_at_all_is_refused(placed: placement.Placed, found: str) -> None:
    with pytest.raises(errors.PlacementMismatch) as refused:
        placement.require(placed, "graph", Device.parse("cuda:0"))

    assert found in str(refused.value)
