"""What may be recorded on CUDA, and that nothing else is asked of a device meanwhile."""

import threading
import time

import msgspec
import numpy as np
import pytest

from vela.graphs import bundle as bundles
from vela.graphs import contract
from vela.serve import bound, engine
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


class Holding:
    """ONNX Runtime's session, which holds its first run until it is let go, and notes runs that overlap."""

    def __init__(self) -> None:
        self.entered, self.release = threading.Event(), threading.Event()
        self.inside = self.most = 0

    def run(self, names, feeds, run_options):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.set()
        assert self.release.wait(PATIENCE_S)
        self.inside -= 1
        return [np.zeros((1, 3), np.float32)]


@pytest.mark.parametrize(("device", "most"), [(CUDA, 1), (devices.CPU, 2)])
def test_runs_of_two_threads_do_not_overlap_on_cuda(graph, device: devices.Device, most: int) -> None:
    """A recording is broken by whatever another thread asks of the device."""
    inner = Holding()
    facts = msgspec.structs.replace(engine.providers.engine_facts(devices.CPU, threads=1, optimise=True))
    sessions = [engine.Session(inner, graph, facts, device) for _ in range(2)]
    ids = np.ones((1, 4), np.int64)
    threads = [
        threading.Thread(target=session.run, args=({"input_ids": ids, "attention_mask": ids},)) for session in sessions
    ]
    for thread in threads:
        thread.start()
    assert inner.entered.wait(PATIENCE_S)
    until = time.monotonic() + (PATIENCE_S if most == 2 else 0.05)
    while inner.most < 2 and time.monotonic() < until:
        time.sleep(0.001)
    inner.release.set()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert inner.most == most


def test_a_device_is_held_again_by_the_thread_that_holds_it() -> None:
    with bound.alone_on(CUDA), bound.alone_on(CUDA):
        assert bound.alone_on(CUDA) is not bound.alone_on(devices.Device("cuda", 1))
