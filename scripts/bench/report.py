"""Figures of cpu.py from the replies of its workers: medians, ratios, differences, shares of the floor. Pure."""

import math
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import peers

from vela.serve import host

# More than roundings of another order: the gate allows 2e-5, on logits of up to 13 a correct engine stays within this.
# What is beyond is another graph, or one that is wrong, and its time says nothing.
SAME_ANSWER = 1e-4
Round = Mapping[str, peers.Reply]


def describe_length(
    warm_up: Round, rounds: Sequence[Round], flops: Mapping[str, float], reference: str = peers.TORCH
) -> dict[str, Any]:
    """Describe what the engines did at one length.

    Args:
        warm_up: Replies that are judged and not timed.
        rounds: Replies of each round, by engine.
        flops: Operations of the model's products, by kind.
        reference: The engine whose logits are right.

    Returns:
        The figures, as JSON holds them; engines without a reply in every round are left out.
    """
    names = [name for name in warm_up if all(name in replies for replies in rounds)]
    engines = [name for name in names if name != peers.ROOFLINE]
    spent = {name: [replies[name].total_s for replies in rounds] for name in names}
    differences = {name: largest_difference([warm_up, *rounds], name, reference) for name in engines}
    described = {
        "median_s": {name: _short(statistics.median(values)) for name, values in spent.items()},
        "ratios": {
            f"{name} / {peer}": _ratio(spent[name], spent[peer])
            for name in engines
            for peer in engines
            if name in peers.VELA_GRAPHS and peer not in peers.VELA_GRAPHS
        },
        "max_logit_difference": {name: _finite(value) for name, value in differences.items()},
        "differing": [name for name, value in differences.items() if value > SAME_ANSWER],
        "peak_rss_bytes": {name: rounds[-1][name].peak_rss_bytes for name in names},
        "all_s": {name: [_short(value) for value in values] for name, values in spent.items()},
    }
    if peers.ROOFLINE in names:
        described["share_of_roofline"] = {name: _ratio(spent[peers.ROOFLINE], spent[name]) for name in engines}
        described["roofline"] = _describe_roofline([replies[peers.ROOFLINE] for replies in rounds], flops)
    return described


def largest_difference(rounds: Sequence[Round], name: str, reference: str) -> float:
    """Give the largest |actual - expected| over all rounds: infinite where anything cannot be compared."""
    largest = 0.0
    for replies in rounds:
        if reference not in replies:
            return math.inf
        actual, expected = np.array(replies[name].logits), np.array(replies[reference].logits)
        if actual.shape != expected.shape or not actual.size or not np.isfinite([actual, expected]).all():
            return math.inf
        largest = max(largest, float(np.abs(actual - expected).max()))
    return largest


def _ratio(actual: Sequence[float], expected: Sequence[float]) -> dict[str, float]:
    """Compare seconds: the medians, and the median of what each round says by itself."""
    paired = [one / other for one, other in zip(actual, expected, strict=True)]
    of_medians = statistics.median(actual) / statistics.median(expected)
    return {"of_medians": round(of_medians, 3), "paired": round(statistics.median(paired), 3)}


def _describe_roofline(replies: Sequence[peers.Reply], flops: Mapping[str, float]) -> dict[str, Any]:
    kinds = {kind: statistics.median(reply.parts_s[kind] for reply in replies) for kind in flops}
    return {
        "parts_s": {kind: _short(seconds) for kind, seconds in kinds.items()},
        "gflops": {kind: _short(operations / 1e9) for kind, operations in flops.items()},
        "gflops_per_s": {kind: _short(flops[kind] / 1e9 / seconds) for kind, seconds in kinds.items() if seconds},
    }


def describe_machine() -> dict[str, object]:
    """Describe what everything ran on."""
    processor = Path("/proc/cpuinfo").read_text().splitlines()
    memory = Path("/proc/meminfo").read_text().splitlines()[0]
    names = (line.partition(":")[2].strip() for line in processor if line.startswith("model name"))
    return {
        "processor": next(names, platform.machine()),
        "instruction_set": host.instruction_set(),
        "cores": host.available_cores(),
        "memory_bytes": int(memory.split()[1]) * 1024,
        "system": platform.platform(),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay the main figures out for a person: a line for each length and engine."""
    lines = [
        f"{'tokens':>6} {'engine':<14} {'median s':>9} {'/ torch':>8} {'of floor':>8} {'|Δlogit|':>9} {'peak MB':>8}"
    ]
    for row in rows:
        for name, seconds in row["median_s"].items():
            torch_s, floor_s = (row["median_s"].get(peer) for peer in (peers.TORCH, peers.ROOFLINE))
            figures = [
                f"{row['tokens']:>6} {name:<14} {seconds:>9.4f}",
                f"{seconds / torch_s:>8.2f}" if torch_s else f"{'':>8}",
                f"{floor_s / seconds:>8.2f}" if floor_s else f"{'':>8}",
                _difference_cell(row["max_logit_difference"], name),
                f"{row['peak_rss_bytes'][name] / 1e6:>8.0f}",
            ]
            lines.append(" ".join(figures))
    return "\n".join(lines)


def _difference_cell(differences: Mapping[str, float | None], name: str) -> str:
    if name not in differences:
        return f"{'':>9}"
    value = differences[name]
    return f"{'none':>9}" if value is None else f"{value:>9.1e}"


def _finite(value: float) -> float | None:
    """Give None for what could not be compared: JSON has no infinity."""
    return float(f"{value:.2e}") if math.isfinite(value) else None


def _short(value: float) -> float:
    return float(f"{value:.4g}")
