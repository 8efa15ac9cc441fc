"""The first layer that differs: found by name in our graphs, and none where no state does."""

import numpy as np
import pytest

from vela.export import verification
from vela.graphs import bundle as bundles
from vela.graphs import mutation
from vela.serve import device as devices
from vela.serve import engine
from vela.verify import answering, cases, checkpoint, runs, taps

SAMPLE = "tiny-intent"
GRAPHS = ("model", "model-unpadded", "portable-b1-s64")


@pytest.fixture(scope="module")
def source(checkpoints) -> checkpoint.Checkpoint:
    return checkpoint.Checkpoint.read(checkpoints[SAMPLE])


@pytest.fixture(scope="module")
def states(source):
    return verification.make_references(source).states


def asked(folder, graph_id: str, source: checkpoint.Checkpoint) -> answering.Asked:
    opened = bundles.Bundle.open(folder)
    options = engine.SessionOptions(threads=1)
    return answering.Asked(opened, opened.graph(graph_id), source.head, devices.CPU, options)


def planned(count: int = 4) -> list[runs.Run]:
    rng = np.random.default_rng(3)
    rows = [tuple(map(int, rng.integers(5, 500, 10 * (place + 1)))) for place in range(count)]
    return [runs.Run(cases.Case(f"c{len(row)}", row, "text", 1, ())) for row in rows]


@pytest.mark.parametrize("graph_id", GRAPHS)
def test_an_honest_graph_differs_by_rounding_after_every_layer(bundles, source, states, graph_id) -> None:
    found = taps.measure(asked(bundles[SAMPLE], graph_id, source), states, planned())

    assert [layer.name for layer in found] == [f"layer {number}" for number in range(1, source.architecture.layers + 1)]
    assert all(0 < layer.distance < mutation.STATES_DIFFER / 4 for layer in found)
    assert taps.say(found) == "; no layer's states differ, so it is pooling, the head or the labels"


@pytest.mark.parametrize("layer", [1, 4])
def test_a_layer_that_answers_otherwise_is_the_first_to_differ(bundles, source, states, layer) -> None:
    def elsewhere(rows):
        found = states(rows)
        return [[state * (1 + 1e-3 * (number >= layer)) for number, state in enumerate(row, 1)] for row in found]

    found = taps.measure(asked(bundles[SAMPLE], "model", source), elsewhere, planned())

    assert taps.say(found).startswith(
        f"; layer {layer} of {source.architecture.layers} is the first whose states differ"
    )


def test_a_graph_that_does_not_load_is_not_tapped(copied, source, states) -> None:
    path = copied[SAMPLE] / "model.onnx"
    path.write_bytes(path.read_bytes()[:-100])

    assert taps.measure(asked(copied[SAMPLE], "model", source), states, planned()) == ()
    assert taps.say(()) == ""


def test_runs_whose_states_would_not_fit_are_left_out(bundles, source, states) -> None:
    long = runs.Run(cases.Case("long", tuple(range(5, 5 + taps.MOST_TOKENS + 1)), "text", 1, ()))

    assert taps.measure(asked(bundles[SAMPLE], "model", source), states, [long]) == ()


def test_nothing_is_written_beside_the_bundle(copied, source, states) -> None:
    before = sorted(path.name for path in copied[SAMPLE].rglob("*"))

    assert taps.measure(asked(copied[SAMPLE], "model", source), states, planned())

    assert sorted(path.name for path in copied[SAMPLE].rglob("*")) == before


def test_states_that_are_no_numbers_are_not_taken_for_states_that_agree(bundles, source, states) -> None:
    def broken(rows):
        return [[state * np.nan if number == 2 else state for number, state in enumerate(row)] for row in states(rows)]

    assert taps.measure(asked(bundles[SAMPLE], "model", source), broken, planned()) == ()
