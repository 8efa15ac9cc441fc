"""The published graph that started this project, from answers with its published figures: it fails every bar."""

from typing import Any

import pytest


def label(*probabilities: float) -> dict[str, Any]:
    return {"probabilities": list(probabilities)}


CLEAR = label(0.9, 0.1)
REJECTED = {"error": {"code": "max_length_exceeded", "message": "9,000 tokens"}}


def shield() -> tuple[list[Any], list[Any]]:
    """547 inputs: 2 that both reject, 12 flips, the worst of them by 0.81, 339 in all beyond 0.02."""
    worst = [label(0.9, 0.1)], [label(0.09, 0.91)]
    flips = [label(0.6, 0.4)] * 11, [label(0.4, 0.6)] * 11
    moved = [CLEAR] * 327, [label(0.87, 0.13)] * 327
    same = [CLEAR] * 206, [CLEAR] * 206
    rejected = [REJECTED] * 2, [REJECTED] * 2
    parts = (worst, flips, moved, same, rejected)
    return tuple([line for part in parts for line in part[side]] for side in (0, 1))


@pytest.mark.parametrize("device_class", ["cpu", "rocm"])
def test_the_published_shield_graph_fails_both_bars_with_its_published_figures(recorded, device_class):
    found = recorded.compare("sequence", *shield(), device_class)

    (job,) = found.jobs
    assert (job.inputs, job.compared, job.both_rejected, job.near_ties) == (547, 545, 2, 0)
    assert f"{job.agreement:.2%}" == "97.80%"
    assert job.max_abs_delta == pytest.approx(0.81)
    assert sum(each.reason == "label" for each in job.disagreements) == 12
    assert sum(each.reason == "probability" for each in job.disagreements) == 339
    assert not found.passed
    budget, reasons = {"cpu": 0, "rocm": 2}[device_class], found.vela.jobs[0].verdicts
    for view in ("upstream", "strict"):
        assert reasons[view].verdict == "failed"
    assert reasons["upstream"].reasons[0].startswith(f"12 of 545 labels differ where {budget} may: p0000, p0001, p0002")
    assert "|Δp| 0.81 > " in reasons["upstream"].reasons[1]
    assert "on p0000, and on 339 of 545 inputs in all" in reasons["upstream"].reasons[1]
