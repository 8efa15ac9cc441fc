"""What may be recorded on CUDA, and that nothing else is asked of a device meanwhile."""

import contextlib
import threading
from unittest import mock

import msgspec
import numpy as np
import pytest

from vela.graphs import bundle as bundles
from vela.graphs import contract
from vela.serve import bound, engine, providers
from vela.serve import device as devices

PATIENCE_S = 10.0
CUDA = devices.Device("cuda")


@pytest.fixture
def graph(bags):
    return bundles.Bundle.open(bags["mood"]).manifest.graphs[0]


def test_only_graphs_of_fixed_shape_are_recorded_and_only_on_cuda(graph) -> None:
    fixed = msgspec.structs.replace(
        graph,
        inputs=contract.graph_inputs(1, 16),
        outputs=tuple(msgspec.structs.replace(output, shape=(1, 3)) for output in graph.outputs),
    )

    assert bound.can_bind(fixed, CUDA)
    assert not bound.can_bind(graph, CUDA)
    assert not bound.can_bind(fixed, devices.CPU)


class Inner:
    """ONNX Runtime's session, as far as a run needs it; it notes who held the guard."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def io_binding(self):
        return mock.MagicMock()

    def run_with_iobinding(self, binding, run_options):
        self._seen.append("recording" if bound.GUARD._is_recording else "use" if bound.GUARD._users else "nothing")

    def run(self, names, feeds, run_options=None):
        self._seen.append("recording" if bound.GUARD._is_recording else "use" if bound.GUARD._users else "nothing")
        return [np.zeros((1, 3), np.float32)]


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let values that would lie on a device lie nowhere."""
    monkeypatch.setattr(bound.onnxruntime.OrtValue, "ortvalue_from_numpy", lambda *_: mock.MagicMock())


def run_in_a_thread(made: bound.BoundRun, feeds, times: int) -> None:
    thread = threading.Thread(target=lambda: [made.run(feeds) for _ in range(times)])
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_each_thread_records_alone_and_then_replays_beside_others(graph, no_device) -> None:
    seen: list[str] = []
    fixed = msgspec.structs.replace(graph, inputs=contract.graph_inputs(1, 16))
    made = bound.BoundRun(Inner(seen), fixed, CUDA)
    feeds = {tensor.name: np.ones((1, 16), np.int64) for tensor in fixed.inputs}

    run_in_a_thread(made, feeds, 3)
    run_in_a_thread(made, feeds, 3)

    assert seen == ["recording", "recording", "use"] * 2


@pytest.mark.parametrize(("device", "held"), [(CUDA, "use"), (devices.CPU, "nothing")])
def test_a_run_that_is_not_recorded_uses_the_device_and_the_cpu_is_free(
    graph, device: devices.Device, held: str
) -> None:
    seen: list[str] = []
    facts = providers.engine_facts(devices.CPU, threads=1, optimise=True)
    ids = np.ones((1, 4), np.int64)

    engine.Session(Inner(seen), graph, facts, device).run({"input_ids": ids, "attention_mask": ids})

    assert seen == [held]


@pytest.mark.parametrize(("is_recorded", "tried"), [(True, "recording"), (False, "use")])
def test_a_graph_is_loaded_beside_others_and_tried_alone_where_that_records(
    graph, monkeypatch: pytest.MonkeyPatch, tmp_path, *, is_recorded: bool, tried: str
) -> None:
    """As far as it goes without a device: where the guard is held while ONNX Runtime loads, and while it runs first."""
    seen: list[str] = []

    def opened(*_, **__) -> Inner:
        Inner(seen).run_with_iobinding(None, None)
        return Inner(seen)

    monkeypatch.setattr(providers, "require_provider", lambda *_: None)
    monkeypatch.setattr(engine.onnxruntime, "InferenceSession", opened)
    monkeypatch.setattr(engine.placement, "observing", lambda _: contextlib.nullcontext(lambda _, run: run()))
    monkeypatch.setattr(engine.placement, "require", lambda *_: None)
    monkeypatch.setattr(bound, "can_bind", lambda *_: is_recorded)
    monkeypatch.setattr(bound.onnxruntime.OrtValue, "ortvalue_from_numpy", lambda *_: mock.MagicMock())

    engine.Session.open(tmp_path / "x.onnx", graph, CUDA)

    assert seen == ["use", tried]
