"""What is asked of a 16-bit copy beside its answers: that its FP32 graph is proven there, and that it is faster.

A copy moves every answer a little, and is worth that only for its speed. So it is timed as serve runs it, in turn with
the FP32 graph that it was made from, and refused with both figures where it gains nothing. Which of a bundle's copies
gain differs between engines and lengths, so a copy that does not takes nothing from the bundle: serve keeps the FP32
graph there.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from vela.graphs import errors, manifest, record, verdicts
from vela.serve import engine
from vela.verify import answering, recording, runs
from vela.verify import asked as asking

# A copy that saves less is not worth its roundings, and could not be told from one that saves nothing.
LEAST_GAIN = 0.05
ROUNDS = 9
ROUND_S = 0.05  # how long each of the two runs before the other's turn, and three runs at least
FEWEST_RUNS = 3
WARM_UP_RUNS = 4  # CUDA runs a graph as it is, then records it
# What bounds the noise of float32 arithmetic bounds nothing where every step rounds to 16 bits; laws and parity stay.
LAWS_OF_FP32 = frozenset({"engine.rewrites"})

Clock = Callable[[], float]


def lay_to_arithmetic(
    outcome: recording.Outcome, graph: manifest.Graph, static: Sequence[record.Check]
) -> recording.Outcome:
    """Name the 16 bits of a copy whose answers differ, where it is seen to differ from its FP32 graph by them alone."""
    found = outcome.diagnosis
    is_copy = any(check.name == "graph.reduction" and check.status == "passed" for check in static)
    if found is None or found.cause is not None or not is_copy:
        return outcome
    statement = f"precision: the FP32 graph in {graph.precision} arithmetic, and nothing else; {found.statement}"
    return replace(outcome, diagnosis=msgspec.structs.replace(found, cause="precision", statement=statement))


def judge_copy(outcome: recording.Outcome, asked: answering.Asked) -> recording.Outcome:
    """Add to what a copy answered whether its FP32 graph is proven on this device, and what the copy gains.

    Args:
        outcome: What it was asked and answered.
        asked: The copy and where it was asked.
    """
    try:
        exact = replace(asked, graph=asked.opened.exact_of(asked.graph))
    except errors.BundleError as problem:
        return _with(outcome, record.Check("exact.verified", "failed", str(problem), 0.0))
    timed, speed = check_speed(asked, exact, outcome.kept)
    return replace(_with(outcome, check_exact(exact, outcome.answered.engine), timed), speed=speed)


def check_exact(exact: answering.Asked, made_on: record.EngineFacts | None) -> record.Check:
    """Look up the verdict on the FP32 graph, which was written before: of this bundle, on this very engine."""
    name = record.record_file(exact.graph.id, str(exact.device))
    try:
        found = verdicts.read_evidence(exact.opened.folder, name)
        verdicts.check_agreement(exact.opened, found)
    except errors.NotVerified as problem:
        return record.Check("exact.verified", "not_run", f"no verdict on {exact.graph.id}: {problem}", 0.0)
    judged = found.record.engine
    is_here = judged is not None and made_on is not None and _engine_of(judged) == _engine_of(made_on)
    if found.record.verdict == "passed" and is_here:
        return record.Check("exact.verified", "passed", f"{exact.graph.id} passed the {found.record.bar} bar here", 0.0)
    said = found.record.verdict.replace("_", " ") if is_here else f"a verdict of another engine ({judged})"
    return record.Check("exact.verified", "not_run", f"{exact.graph.id}, of which this is a copy: {said}", 0.0)


def check_speed(
    reduced: asking.Asked, exact: asking.Asked, planned: Sequence[runs.Run], clock: Clock = time.perf_counter
) -> tuple[record.Check, record.Speed | None]:
    """Time a copy and its FP32 graph in turn on the longest row that was planned.

    Returns:
        The check, and the figures; None where one of the two could not run.
    """
    started = time.monotonic()
    longest = max(planned, key=lambda run: run.case.tokens)
    try:
        found = time_alternately(reduced.open(), exact.open(), longest, reduced.pad_id, clock)
    except errors.VelaError as problem:
        return _check("not_run", f"no time could be taken: {problem}", started), None
    figures = f"{found.ratio:.3f} of the FP32 graph's time ({found.seconds * 1e3:.3g} ms for "
    figures += f"{found.exact_seconds * 1e3:.3g} ms at {found.tokens} tokens)"
    if found.ratio > 1 - LEAST_GAIN:
        return _check("failed", f"{figures}, where at most {1 - LEAST_GAIN:g} is worth a copy", started), found
    return _check("passed", figures, started), found


def time_alternately(
    reduced: asking.Session, exact: asking.Session, run: runs.Run, pad_id: int, clock: Clock = time.perf_counter
) -> record.Speed:
    """Time two sessions in turn, so that what the machine does meanwhile meets both.

    Args:
        reduced: The copy.
        exact: The FP32 graph of the same shape.
        run: What both run.
        pad_id: What rows are padded with.
        clock: In seconds.
    """
    feeds = run.inputs(reduced.graph, pad_id)
    both = (reduced, exact)
    counts = []
    for session in both:
        warm = [_seconds(session, feeds, clock) for _ in range(WARM_UP_RUNS)]
        counts.append(max(FEWEST_RUNS, int(ROUND_S / min(warm))))
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for session, count, times in zip(both, counts, spent, strict=True):
            times.append(statistics.median(_seconds(session, feeds, clock) for _ in range(count)))
    mine, theirs = map(statistics.median, spent)
    ratios = [first / second for first, second in zip(*spent, strict=True)]
    return record.Speed(run.width(reduced.graph), mine, theirs, statistics.median(ratios))


def _seconds(session: asking.Session, feeds: engine.Inputs, clock: Clock) -> float:
    began = clock()
    session.run(feeds)
    return clock() - began


def _with(outcome: recording.Outcome, *added: record.Check) -> recording.Outcome:
    return replace(outcome, answered=replace(outcome.answered, checks=(*outcome.answered.checks, *added)))


def _engine_of(facts: record.EngineFacts) -> tuple[str, str, str]:
    return facts.provider, facts.version, facts.device


def _check(status: record.CheckStatus, detail: str, started: float) -> record.Check:
    return record.Check("engine.faster", status, detail, round(time.monotonic() - started, 3))
