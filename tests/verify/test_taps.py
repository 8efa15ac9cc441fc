"""The first layer that differs: found by name in our graphs, and none where no state does."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from vela.export import verification
from vela.graphs import bundle as bundles
from vela.graphs import mutation
from vela.serve import device as devices
from vela.serve import engine
from vela.verify import answering, cases, checkpoint, foreign, foreign_runs, graph_file, runs, tapped, taps

SAMPLE = "tiny-intent"
OPTIMUM = Path(__file__).with_name("optimum")
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


def planned(count: int = 4, vocabulary: int = 500) -> list[runs.Run]:
    rng = np.random.default_rng(3)
    rows = [tuple(map(int, rng.integers(5, vocabulary, 10 * (place + 1)))) for place in range(count)]
    return [runs.Run(cases.Case(f"c{len(row)}", row, "text", 1, ())) for row in rows]


def measure(asked, states, source, planned) -> tuple[mutation.Layer, ...]:
    return taps.measure(asked, states, source.architecture, planned)


@pytest.mark.parametrize("graph_id", GRAPHS)
def test_an_honest_graph_differs_by_rounding_after_every_layer(bundles, source, states, graph_id) -> None:
    found = measure(asked(bundles[SAMPLE], graph_id, source), states, source, planned())

    assert [layer.name for layer in found] == [f"layer {number}" for number in range(1, source.architecture.layers + 1)]
    assert all(0 < layer.distance < mutation.STATES_DIFFER / 4 for layer in found)
    assert all(0 < layer.introduced < mutation.STATES_DIFFER / 4 for layer in found)
    assert taps.say(found, len(found)) == "; no layer's states differ, so it is pooling, the head or the labels"


@pytest.mark.parametrize("layer", [1, 4])
def test_a_layer_that_answers_otherwise_is_the_first_to_differ(bundles, source, states, layer) -> None:
    def elsewhere(rows, sketch):
        found = states(rows, sketch)
        return [[state * (1 + 1e-3 * (number >= layer)) for number, state in enumerate(row, 1)] for row in found]

    found = measure(asked(bundles[SAMPLE], "model", source), elsewhere, source, planned())

    assert taps.say(found, len(found)).startswith(
        f"; layer {layer} of {source.architecture.layers} is the first whose states differ"
    )


def test_a_graph_that_does_not_load_is_not_tapped(copied, source, states) -> None:
    path = copied[SAMPLE] / "model.onnx"
    path.write_bytes(path.read_bytes()[:-100])

    assert measure(asked(copied[SAMPLE], "model", source), states, source, planned()) == ()
    assert taps.say((), 4) == ""


def test_states_that_would_not_fit_are_sketched(bundles, source, states) -> None:
    rng = np.random.default_rng(4)
    ids = tuple(map(int, rng.integers(5, 500, taps.MOST_TOKENS + 1)))
    long = runs.Run(cases.Case("long", ids, "text", 1, ()))
    widths = []

    def watched(rows, sketch):
        found = states(rows, sketch)
        widths.extend(state.shape[1] for state in found[0])
        return [[state * (1 + 1e-3 * (number >= 2)) for number, state in enumerate(row, 1)] for row in found]

    found = measure(asked(bundles[SAMPLE], "model", source), watched, source, [long])

    assert set(widths) == {tapped.SKETCH_WIDTH}
    assert taps.say(found, len(found)).startswith("; layer 2 of 6 is the first whose states differ, by 1.0e-03")


def test_a_sketch_keeps_lengths_on_average() -> None:
    vectors = np.random.default_rng(5).standard_normal((400, 96))

    lengths = np.linalg.norm(vectors @ tapped.make_sketch(96), axis=1) / np.linalg.norm(vectors, axis=1)

    assert np.mean(lengths**2) == pytest.approx(1.0, abs=0.1)


def test_a_layer_that_passes_a_difference_on_is_told_from_one_that_brings_it_in(copied, source, states) -> None:
    path = copied[SAMPLE] / "model.onnx"
    model = graph_file.GraphFile.read(path).model
    state = tapped.find_states(model.graph, source.architecture.layers)[2]
    factor = ir.Value(name="factor", const_value=ir.tensor(np.float32(1.001), name="factor"))
    model.graph.register_initializer(factor)
    users = tuple(state.uses())
    node = ir.Node("", "Mul", [state, factor])
    for user, place in users:
        user.replace_input_with(place, node.outputs[0])
    model.graph.insert_after(state.producer(), node)
    state.name, node.outputs[0].name = "before", state.name
    path.write_bytes(ir.serde.serialize_model(model).SerializeToString())

    found = measure(asked(copied[SAMPLE], "model", source), states, source, planned())

    differing = [layer.name for layer in found if layer.distance > mutation.STATES_DIFFER]
    assert differing == [f"layer {number}" for number in range(2, 7)]
    assert [layer.name for layer in found if layer.introduced > mutation.STATES_DIFFER] == ["layer 2"]
    assert taps.say(found, 6).endswith("and the only one that answers otherwise to the checkpoint's own states")


@pytest.mark.parametrize(("file", "first"), [("right.onnx", None), ("wrong.onnx", "layer 2")])
def test_states_of_another_exporters_graph_are_found_by_its_residuals(file, first) -> None:
    source = checkpoint.Checkpoint.read(OPTIMUM / "checkpoint")
    graph = graph_file.GraphFile.read(OPTIMUM / file)
    options = engine.SessionOptions(threads=1)
    pad_id = int(source.config["pad_token_id"])
    subject = foreign_runs.Asked(foreign.read_foreign(graph, source), source.head, pad_id, devices.CPU, options)

    found = measure(subject, verification.make_references(source).states, source, planned(vocabulary=90))

    assert [layer.name for layer in found] == [f"layer {number}" for number in range(1, source.architecture.layers)]
    assert next((layer.name for layer in found if layer.distance > mutation.STATES_DIFFER), None) == first
    said = taps.say(found, source.architecture.layers)
    if first is None:
        assert "so it is what follows layer" in said
    else:
        at_fault = [layer.name for layer in found if layer.introduced > mutation.STATES_DIFFER]
        kinds = source.architecture.layer_types
        local = [f"layer {number}" for number, kind in enumerate(kinds[:-1], 1) if kind == "sliding_attention"]
        assert at_fault == local


def test_nothing_is_written_beside_the_bundle(copied, source, states) -> None:
    before = sorted(path.name for path in copied[SAMPLE].rglob("*"))

    assert measure(asked(copied[SAMPLE], "model", source), states, source, planned())

    assert sorted(path.name for path in copied[SAMPLE].rglob("*")) == before


def test_states_that_are_no_numbers_are_not_taken_for_states_that_agree(bundles, source, states) -> None:
    def broken(rows, sketch):
        found = states(rows, sketch)
        return [[state * np.nan if number == 2 else state for number, state in enumerate(row)] for row in found]

    assert measure(asked(bundles[SAMPLE], "model", source), broken, source, planned()) == ()
