"""The first layer that differs: a failed graph is run once more, with the hidden state after every layer as an output.

Graphs of Vela keep the trace's names for these states, so they are found by name; a graph without them is not tapped.
The copy with more outputs is never written: it is loaded from memory beside the bundle's own weights. Taps keep ONNX
Runtime from fusing across layers, so a fault that only fusing makes is not seen here (`engine.rewrites` sees it).
Source: reference/verification.md §4.5; relative distances of states were 1e-7 for another FP32 implementation, 7e-5 for
tanh GELU, and more for every other fault.
"""

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vela.graphs import contract, errors, manifest, mutation
from vela.serve import engine
from vela.verify import answering, graph_file, reference, runs

HIDDEN_STATE = re.compile(r"hidden_l([1-9][0-9]*)")
MOST_RUNS = 6
MOST_TOKENS = 1024  # 22 layers of 768 numbers are 70 MB at this width


def measure(
    asked: answering.Asked, states: reference.States, candidates: Sequence[runs.Run]
) -> tuple[mutation.Layer, ...]:
    """Measure how far a graph's states are from the checkpoint's after each layer.

    Args:
        asked: The graph and where it is asked.
        states: Gives the checkpoint's.
        candidates: Runs that may be made.

    Returns:
        One entry for each layer, in order; none where the graph has no states under their names, or does not run.
    """
    graph = asked.graph
    short = [run for run in candidates if run.poison is None and run.width(graph) * len(run.rows) <= MOST_TOKENS]
    chosen = runs.evenly(sorted(short, key=lambda run: (run.case.tokens, run.case.id)), MOST_RUNS)
    try:
        content, layers = add_taps(asked)
        if not layers or not chosen:
            return ()
        expected = states([run.case.ids for run in chosen])
        session = _open(asked, content, layers, expected[0][0].shape[1])
        found = [
            _distances(session, run, layers, wanted, asked.pad_id) for run, wanted in zip(chosen, expected, strict=True)
        ]
    except (errors.VelaError, ValueError, KeyError):
        return ()  # whatever keeps it from running is said by the checks
    distances = np.max(found, axis=0)
    if not np.isfinite(distances).all():
        return ()  # states of which some are no numbers: nothing can be said of where the others begin to differ
    return tuple(
        mutation.Layer(f"layer {layer}", float(distance)) for layer, distance in zip(layers, distances, strict=True)
    )


def say(layers: Sequence[mutation.Layer]) -> str:
    """Say which layer is the first to differ."""
    if not layers:
        return ""
    for layer in layers:
        if layer.distance > mutation.STATES_DIFFER:
            apart = f"by {layer.distance:.1e} of their length"
            return f"; {layer.name} of {len(layers)} is the first whose states differ, {apart}"
    return "; no layer's states differ, so it is pooling, the head or the labels"


def add_taps(asked: answering.Asked) -> tuple[bytes, tuple[int, ...]]:
    """Give a graph with every layer's hidden state as an output, and which layers these are."""
    model = graph_file.GraphFile.read(asked.opened.path(asked.graph.file)).model
    outputs = model.graph.outputs
    states = {
        int(match[1]): value
        for node in model.graph
        for value in node.outputs
        if (match := HIDDEN_STATE.fullmatch(value.name or ""))
    }
    for _, value in sorted(states.items()):
        if value not in outputs:
            value.type = ir.TensorType(ir.DataType.FLOAT)
            outputs.append(value)
    return ir.serde.serialize_model(model).SerializeToString(), tuple(sorted(states))


def _open(asked: answering.Asked, content: bytes, layers: Sequence[int], hidden_size: int) -> engine.Session:
    graph = asked.graph
    shape: tuple[int | str, ...] = (graph.batch or contract.BATCH, graph.sequence or contract.SEQUENCE, hidden_size)
    states = tuple(contract.TensorSpec(f"hidden_l{layer}", "float32", shape) for layer in layers)
    tapped: manifest.Graph = msgspec.structs.replace(graph, outputs=states)
    return engine.Session.from_bytes(content, asked.opened.folder, tapped, asked.device, asked.options)


def _distances(
    session: engine.Session,
    run: runs.Run,
    layers: Sequence[int],
    expected: Sequence[NDArray[np.float64]],
    pad_id: int,
) -> list[float]:
    """Give the relative distance of the run's own tokens after each layer."""
    outputs = session.run(run.inputs(session.graph, pad_id))
    distances = []
    for layer in layers:
        wanted = expected[layer - 1]
        found = outputs[f"hidden_l{layer}"][run.row, : run.case.tokens].astype(np.float64)
        distances.append(float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted)))
    return distances
