"""Let a graph answer its runs through serve's own engine, and compare each answer with the reference's.

What is verified is what is served: the same session factory, the same padding, the same placement check. An answer
that is not finite or of another shape ends in a failed check, never in a smaller number of comparisons.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import bundle, errors, heads, manifest, record
from vela.serve import device as devices
from vela.serve import engine
from vela.verify import bars, cases, compare, order, reference

# Pads beyond this fill the whole window of some rows in every model of the family (half-window 64, both sides).
WINDOW_PADS = 128
REPEATED_RUNS = 8  # runs that are run twice and must be equal, bit for bit on the CPU


@dataclass(frozen=True, slots=True)
class Answered:
    """What running a graph gave.

    Attributes:
        checks: Engine and finiteness checks.
        differences: One for each run that could be compared.
        engine: What ran; None where no session could be opened.
    """

    checks: tuple[record.Check, ...]
    differences: tuple[compare.Difference, ...]
    engine: record.EngineFacts | None

    @classmethod
    def nothing(cls) -> Self:
        """Say that no run was made."""
        return cls((record.Check("engine.placement", "not_run", "static checks failed first", 0.0),), (), None)


def answer_runs(
    opened: bundle.Bundle,
    graph: manifest.Graph,
    head: heads.Head,
    runs: Sequence[cases.Run],
    expected: Mapping[str, reference.Answer],
    device: devices.Device,
    options: engine.SessionOptions,
) -> Answered:
    """Run a graph on all its runs and compare.

    Args:
        opened: The bundle.
        graph: The graph.
        head: Its head, from the reference checkpoint.
        runs: What to run.
        expected: The reference's answers by case id.
        device: Where.
        options: Of the session.
    """
    started = time.monotonic()
    try:
        session = engine.Session.open(opened.path(graph.file), graph, device, options)
    except errors.EngineError as cause:
        return Answered((_check("engine.placement", str(cause), started),), (), None)
    placed = _check("engine.placement", "", started, f"every node on {session.facts.provider}")
    started = time.monotonic()
    pad_id = opened.manifest.tokenizer.pad_id
    differences, problem = list[compare.Difference](), ""
    for run in runs:
        try:
            actual = run_case(session, run, pad_id)
            padding = padding_class(run, graph)
            differences.append(compare.compare_answers(head, run.case, actual, expected[run.case.id], padding))
        except (errors.VerificationError, errors.EngineError) as cause:
            problem = problem or str(cause)
    finite = _check("outputs.finite", problem, started, f"{len(differences)} answers, all numbers finite")
    repeated = _repeat(session, runs[:: max(1, len(runs) // REPEATED_RUNS)], pad_id, bars.repeat_bound(device.kind))
    decided = order.place_in_order(differences) if head.kind == "rerank" else tuple(differences)
    return Answered((placed, finite, repeated), decided, session.facts)


def run_case(session: engine.Session, run: cases.Run, pad_id: int) -> dict[str, NDArray[np.float32]]:
    """Run one case with its companions and cut out its own valid part: (C,), (T, C), (H,) or ()."""
    rows = [run.case.ids, *(companion.ids for companion in run.companions)]
    inputs = engine.pad_rows(rows, session.graph, pad_id, width=run.pad_to)
    outputs = session.run(inputs)
    found = {}
    for spec in session.graph.outputs:
        row = outputs[spec.name][0]
        found[spec.name] = row[: run.case.tokens] if len(spec.shape) == 3 else np.asarray(row)
    return found


def padding_class(run: cases.Run, graph: manifest.Graph) -> str:
    """Name how a run's row was padded: `none`, `some`, or `window` for more pads than any local window of use."""
    longest = max(run.pad_to or 0, run.case.tokens, *(companion.tokens for companion in run.companions), 0)
    pads = (graph.sequence or longest) - run.case.tokens
    if pads == 0:
        return "none"
    return "window" if pads > WINDOW_PADS else "some"


def noise_of(exact: Sequence[reference.Answer], wide: Sequence[reference.Answer]) -> float:
    """Give the largest difference between the reference's FP32 and FP64 answers, in logit units."""
    return max(
        float(np.max(np.abs(answer[name] - other[name])))
        for answer, other in zip(exact, wide, strict=True)
        for name in answer
    )


def _repeat(session: engine.Session, runs: Sequence[cases.Run], pad_id: int, bound: float) -> record.Check:
    """Run some runs twice: one that differs from itself proves nothing about the checkpoint."""
    started = time.monotonic()
    problem, largest = "", 0.0
    try:
        for run in runs:
            first, second = run_case(session, run, pad_id), run_case(session, run, pad_id)
            found = max(_apart(first[name], second[name]) for name in first)
            largest = max(largest, found)
            if found > bound:
                problem = problem or (
                    f"two runs of {run.case.id} on the same session differ by {found:.1e}, where {bound:.1e} is allowed"
                )
    except errors.VelaError as cause:
        problem = str(cause)
    detail = "equal themselves bit for bit" if largest == 0.0 else f"differ from themselves by {largest:.1e} at most"
    return _check("engine.repeatable", problem, started, f"{len(runs)} runs {detail}")


def _apart(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Give the largest difference of two answers; infinite where only one of them is a number."""
    if np.array_equal(first, second, equal_nan=True):
        return 0.0
    found = float(np.max(np.abs(first - second)))
    return found if math.isfinite(found) else math.inf


def _check(name: str, problem: str, started: float, detail: str = "") -> record.Check:
    status: record.CheckStatus = "failed" if problem else "passed"
    return record.Check(name, status, problem or detail, round(time.monotonic() - started, 3))
