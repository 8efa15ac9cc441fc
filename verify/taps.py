"""Which layer is at fault: a failed graph is run again with the hidden state after every layer as an output.

Taps keep ONNX Runtime from fusing across layers, so a fault that only fusing makes is not seen here (`differential.py`
sees it).
Source: reference/verification.md §4.5; relative distances of states were 1e-7 for another FP32 implementation, 7e-5 for
tanh GELU, and more for every other fault.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors, mutation
from vela.verify import architecture, reference, runs, tapped
from vela.verify import asked as asking

MOST_RUNS, MOST_WIDE_RUNS = 6, 2
MOST_TOKENS = 1024  # 22 layers of 768 numbers are 70 MB at this width; the states of wider runs are sketched
LAYERS_NAMED = 12


@dataclass(frozen=True, slots=True)
class Compared:
    """Runs whose states are compared.

    Attributes:
        asked: The graph and where it is asked.
        reading: Its checkpoint's architecture.
        chosen: The runs.
        expected: The checkpoint's states of each, or their sketches, from layer 1 on.
        sketch: Projections of them; None for the states themselves.
    """

    asked: asking.Asked
    reading: architecture.Architecture
    chosen: Sequence[runs.Run]
    expected: Sequence[Sequence[NDArray[np.float64]]]
    sketch: tapped.Sketch | None

    def distances(self, *, is_fed: bool) -> dict[int, float]:
        """Give each layer's relative distance over the runs' own tokens, the largest of all runs.

        Args:
            is_fed: Whether each layer is fed the checkpoint's own state, so that the distance is what it brings in.

        Returns:
            Nothing where the graph's states are not found, it does not run so, or a state is no number.
        """
        try:
            copy = tapped.Tapped.open(self.asked, self.reading, is_fed=is_fed, sketch=self.sketch)
            if copy is None:
                return {}
            found = [self._run(copy, run, own) for run, own in zip(self.chosen, self.expected, strict=True)]
        except (errors.VelaError, ValueError, KeyError):
            return {}  # whatever keeps it from running is said by the checks
        largest = {layer: float(np.max([one[layer] for one in found])) for layer in copy.layers}
        return largest if np.isfinite([*largest.values()]).all() else {}

    def _run(self, copy: tapped.Tapped, run: runs.Run, expected: Sequence[NDArray[np.float64]]) -> dict[int, float]:
        inputs = run.inputs(self.asked.graph, self.asked.pad_id)
        shape = next(iter(inputs.values())).shape
        own = {layer: _laid(expected[layer - 1], shape, run.row) for layer in copy.layers} if copy.is_fed else {}
        found = copy.run(self.asked.feed(inputs), own)
        return {
            layer: _apart(state[run.row, : run.case.tokens].astype(np.float64), expected[layer - 1])
            for layer, state in found.items()
        }


def measure(
    asked: asking.Asked,
    states: reference.States,
    reading: architecture.Architecture,
    candidates: Sequence[runs.Run],
) -> tuple[mutation.Layer, ...]:
    """Measure how far a graph's states are from the checkpoint's after each layer, and what each layer brings in.

    Args:
        asked: The graph and where it is asked.
        states: Gives the checkpoint's.
        reading: Its architecture.
        candidates: Runs that may be made.

    Returns:
        One entry for each layer, in order; none where the graph's states are not found, or it does not run.
    """
    chosen, is_wide = choose_runs(asked, candidates)
    if not chosen:
        return ()
    sketch = tapped.make_sketch(reading.hidden_size) if is_wide else None
    compared = Compared(asked, reading, chosen, states([run.case.ids for run in chosen], sketch), sketch)
    distances = compared.distances(is_fed=False)
    introduced = compared.distances(is_fed=True) if distances and not is_wide else {}
    return tuple(
        mutation.Layer(f"layer {layer}", distance, introduced.get(layer)) for layer, distance in distances.items()
    )


def choose_runs(asked: asking.Asked, candidates: Sequence[runs.Run]) -> tuple[list[runs.Run], bool]:
    """Choose runs, spread over their lengths where their states fit into memory; else the shortest, to be sketched."""
    plain = [run for run in dict.fromkeys(candidates) if run.poison is None]
    by_length = sorted(plain, key=lambda run: (run.width(asked.graph) * len(run.rows), run.case.tokens, run.case.id))
    narrow = [run for run in by_length if run.width(asked.graph) * len(run.rows) <= MOST_TOKENS]
    return (runs.evenly(narrow, MOST_RUNS), False) if narrow else (by_length[:MOST_WIDE_RUNS], True)


def guilty(layers: Sequence[mutation.Layer]) -> list[int]:
    """Give the layers that are at fault, from 1 on; the first that differs where what each brings in is not known."""
    found = [number for number, layer in enumerate(layers, 1) if (layer.introduced or 0.0) > mutation.STATES_DIFFER]
    return found or [n for n, layer in enumerate(layers, 1) if layer.distance > mutation.STATES_DIFFER][:1]


def say(layers: Sequence[mutation.Layer], total: int) -> str:
    """Say which layer is the first to differ, and which bring in a difference by themselves.

    Args:
        layers: What was measured.
        total: Layers that the checkpoint has.
    """
    if not layers:
        return ""
    first = next((layer for layer in layers if layer.distance > mutation.STATES_DIFFER), None)
    if first is None:
        last = "" if len(layers) == total else f"what follows layer {len(layers)}: the last layer, "
        return f"; no layer's states differ, so it is {last}pooling, the head or the labels"
    said = f"; {first.name} of {total} is the first whose states differ, by {first.distance:.1e} of their length"
    guilty = [layer.name for layer in layers if (layer.introduced or 0.0) > mutation.STATES_DIFFER]
    if not guilty:
        return said
    if guilty == [first.name]:
        return f"{said}, and the only one that answers otherwise to the checkpoint's own states"
    numbers = ", ".join(name.removeprefix("layer ") for name in guilty[:LAYERS_NAMED])
    more = f" and {len(guilty) - LAYERS_NAMED} more" if len(guilty) > LAYERS_NAMED else ""
    return f"{said}; fed the checkpoint's own states, these answer otherwise: {numbers}{more}"


def _laid(state: NDArray[np.float64], shape: tuple[int, ...], row: int) -> NDArray[np.float32]:
    """Lay one row's state (N, H) into what a graph takes, (B, T, H); no other row or pad moves it."""
    laid = np.zeros((*shape, state.shape[1]), np.float32)
    laid[row, : len(state)] = state
    return laid


def _apart(found: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
