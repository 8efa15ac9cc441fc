"""Ask every loaded graph the bundle's golden answers, before it answers anybody else."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors, golden, manifest
from vela.serve import device as devices
from vela.serve import engine

# A fixed graph computes its whole length for every probe, so it is asked those that separate mutants best.
FIXED_PROBES = 2


def check_golden(
    expected: golden.Golden,
    sessions: Mapping[str, engine.Session],
    device: devices.Device,
    pad_id: int,
    bounds: Mapping[str, float] = MappingProxyType({}),
) -> int:
    """Compare each graph's answers with the golden ones.

    Args:
        expected: The bundle's.
        sessions: Loaded graphs by id.
        device: Where they run; it decides which bound holds.
        pad_id: Fills rows up to a fixed graph's length.
        bounds: By graph id, wider ones of 16-bit copies, from their own verdicts.

    Returns:
        How many answers were compared.

    Raises:
        GoldenMismatch: a graph answers otherwise, not at all, or with numbers that are not finite.
    """
    usual = bound_on(expected, device)
    compared = 0
    for name, session in sessions.items():
        bound = max(usual, bounds.get(name, usual))
        asked = fitting(expected, session.graph)
        for probe in asked if session.graph.sequence is None else asked[:FIXED_PROBES]:
            for output, distance in distances(session, probe, pad_id).items():
                if not distance <= bound:  # nan is no match
                    raise _mismatch(session, probe, f"{output} {distance:.3g} away", f"at most {bound:.3g}")
            compared += 1
    return compared


def bound_on(expected: golden.Golden, device: devices.Device) -> float:
    """Give the largest |Δ| that holds on a device."""
    return expected.bounds["cpu" if device.kind == "cpu" else "gpu"]


def fitting(expected: golden.Golden, graph: manifest.Graph) -> list[golden.Probe]:
    """List the probes that a graph takes, those that separate mutants best first."""
    return [probe for probe in expected.probes if graph.fits(1, len(probe.ids))]


def distances(session: engine.Session, probe: golden.Probe, pad_id: int) -> dict[str, float]:
    """Ask a graph one probe.

    Returns:
        By output, the largest |Δ| of any number; nan where one of them is.

    Raises:
        GoldenMismatch: an output has no golden answer, or one of another shape.
        EngineError: the run failed.
    """
    found = {}
    for name, values in session.run(engine.pad_rows([probe.ids], session.graph, pad_id)).items():
        wanted = probe.outputs.get(name)
        row = values[0][: len(probe.ids)] if values.ndim == 3 else values[0]
        if wanted is None or row.shape != wanted.shape:
            expected = str({key: one.shape for key, one in probe.outputs.items()})
            raise _mismatch(session, probe, f"{name} of shape {row.shape}", expected)
        found[name] = _distance(row, wanted)
    return found


def _distance(row: NDArray[np.float32], wanted: golden.Values) -> float:
    return float(np.max(np.abs(row.astype(np.float64) - np.reshape(wanted.numbers, wanted.shape))))


def _mismatch(session: engine.Session, probe: golden.Probe, found: str, expected: str) -> errors.GoldenMismatch:
    return errors.GoldenMismatch(
        found,
        expected=f"the checkpoint's own answer to {probe.case_id} ({len(probe.ids)} tokens), {expected}",
        where=f"{session.graph.id} on {session.facts.device}",
        fix="Another graph than the one that was proven, or an engine that computes otherwise: verify it here.",
    )
