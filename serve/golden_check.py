"""Ask every loaded graph the bundle's golden answers, before it answers anybody else."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors, golden
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
    usual = expected.bounds["cpu" if device.kind == "cpu" else "gpu"]
    compared = 0
    for name, session in sessions.items():
        bound = max(usual, bounds.get(name, usual))
        asked = [probe for probe in expected.probes if session.graph.fits(1, len(probe.ids))]
        for probe in asked if session.graph.sequence is None else asked[:FIXED_PROBES]:
            _check_probe(session, probe, bound, pad_id)
            compared += 1
    return compared


def _check_probe(session: engine.Session, probe: golden.Probe, bound: float, pad_id: int) -> None:
    outputs = session.run(engine.pad_rows([probe.ids], session.graph, pad_id))
    for name, values in outputs.items():
        wanted = probe.outputs.get(name)
        row = values[0][: len(probe.ids)] if values.ndim == 3 else values[0]
        if wanted is None or row.shape != wanted.shape:
            found = f"{name} of shape {row.shape}"
            raise _mismatch(session, probe, found, str({key: one.shape for key, one in probe.outputs.items()}))
        distance = _distance(row, wanted)
        if not distance <= bound:  # nan is no match
            raise _mismatch(session, probe, f"{name} {distance:.3g} away", f"at most {bound:.3g}")


def _distance(row: NDArray[np.float32], wanted: golden.Values) -> float:
    return float(np.max(np.abs(row.astype(np.float64) - np.reshape(wanted.numbers, wanted.shape))))


def _mismatch(session: engine.Session, probe: golden.Probe, found: str, expected: str) -> errors.GoldenMismatch:
    return errors.GoldenMismatch(
        found,
        expected=f"the checkpoint's own answer to {probe.case_id} ({len(probe.ids)} tokens), {expected}",
        where=f"{session.graph.id} on {session.facts.device}",
        fix="Another graph than the one that was proven, or an engine that computes otherwise: verify it here.",
    )
