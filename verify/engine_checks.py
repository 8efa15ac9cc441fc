"""Does the engine answer alike however it is asked: twice, without its rewrites, and in fresh processes.

A graph that differs from itself proves nothing about the checkpoint; one that differs only where ONNX Runtime rewrote
it shows a wrong fusion; one that differs between processes was verified in a process that nobody serves from.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import causes, errors, manifest, record
from vela.serve import engine
from vela.verify import asked, bars, repeats, runs

REPEATED_RUNS = 3  # runs that are made twice, the shortest and the longest among them
UNOPTIMISED_RUNS = 1  # runs that are repeated without rewrites; more show nothing that parity does not
FRESH_TOKENS = 256  # fresh processes are asked the run nearest to this: long enough for blocks and windows
Answer = dict[str, NDArray[np.float32]]
Answers = Mapping[runs.Run, Answer]


@dataclass(frozen=True, slots=True)
class FreshAnswer:
    """What one fresh process answered.

    Attributes:
        run: The run that it was asked.
        answer: Its own part; None where the process failed.
        problem: Why it failed, else empty.
    """

    run: runs.Run
    answer: Answer | None
    problem: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which of a graph's runs are made again.

    Attributes:
        repeated: On the same session.
        nearest: Without rewrites and in fresh processes: the fullest of those nearest to `FRESH_TOKENS`.
        poisoned: Those with other ids under the mask.
        kept: Those whose answers are kept until the checks are made.
    """

    repeated: tuple[runs.Run, ...]
    nearest: tuple[runs.Run, ...]
    poisoned: tuple[runs.Run, ...]
    kept: frozenset[runs.Run]

    @classmethod
    def from_plan(cls, graph: manifest.Graph, planned: Sequence[runs.Run]) -> Self:
        """Choose from a graph's runs."""
        by_length = sorted(planned, key=lambda run: run.width(graph) * len(run.rows))
        repeated = runs.evenly(by_length, REPEATED_RUNS)
        plain = [run for run in planned if run.poison is None]
        nearest = sorted(plain, key=lambda run: (abs(run.width(graph) - FRESH_TOKENS), -run.case.tokens))
        nearest = nearest[:UNOPTIMISED_RUNS]
        poisoned = [run for run in planned if run.poison is not None]
        kept = (*repeated, *nearest, *poisoned, *(run.unpoisoned for run in poisoned))
        return cls(tuple(repeated), tuple(nearest), tuple(poisoned), frozenset(kept))


@dataclass(frozen=True, slots=True)
class Judged:
    """A session that answered, and what it answered.

    Attributes:
        session: The session.
        reopen: Loads its graph with other options.
        answers: Of the chosen runs.
        pad_id: What rows are padded with.
        forward: Counts the time of a forward.
    """

    session: asked.Session
    reopen: Callable[[engine.SessionOptions], asked.Session]
    answers: Answers
    pad_id: int
    forward: Callable[[], AbstractContextManager[None]]

    @property
    def threads(self) -> int:
        """Threads that the session was opened with."""
        return int(self.session.facts.options.get("threads", "1"))

    @property
    def can_race(self) -> bool:
        """Whether the session computes one answer on several threads."""
        return repeats.can_race(self.threads, self.session.facts.device)

    def answer(self, run: runs.Run, session: asked.Session | None = None) -> Answer:
        """Make a run again."""
        with self.forward():
            return answer(session or self.session, run, self.pad_id)


def answer(session: asked.Session, run: runs.Run, pad_id: int) -> Answer:
    """Make one run and cut out the case's own part."""
    return run.own_part(session.run(run.inputs(session.graph, pad_id)), session.graph)


def check_poison(judged: Judged, chosen: Chosen, bound: float) -> list[record.Check]:
    """Compare runs with other ids under the mask; a graph that is never padded is not under this law."""
    if not chosen.poisoned:
        return []
    problem, answers = "", judged.answers
    cause: causes.Cause | None = None
    found = [
        (run, _largest(answers[run], answers[run.unpoisoned]))
        for run in chosen.poisoned
        if run in answers and run.unpoisoned in answers
    ]
    if len(found) < len(chosen.poisoned):
        problem = f"{len(chosen.poisoned) - len(found)} of {len(chosen.poisoned)} runs gave no answer to compare"
    for run, difference in found:
        if difference > bound:
            problem = problem or (
                f"{run.case.id} ({run.case.tokens} tokens, row {run.row}) answers otherwise by {difference:.1e} where "
                f"only ids under the mask changed and {bound:.1e} is allowed: padding leaks into the answer"
            )
            cause = cause or ("padding mask" if _repeats(judged, run, bound) else "not repeatable")
    largest = max((difference for _, difference in found), default=0.0)
    detail = f"{len(found)} runs with other ids under the mask: {_equal(largest)}"
    return [record.Check("laws.poison", "failed" if problem else "passed", problem or detail, 0.0, cause)]


def _repeats(judged: Judged, run: runs.Run, bound: float) -> bool:
    """Say whether a run gives the same whenever it is made, so that what changed it is what it was fed."""
    often = repeats.how_often(run, judged.session.graph, can_race=judged.can_race)
    try:
        again = (judged.answer(run) for _ in often.numbered())
        return all(_largest(answer, judged.answers[run]) <= bound for answer in again)
    except errors.VelaError:
        return True  # that it fails is another check's to say


def check_repeats(judged: Judged, planned: Sequence[runs.Run], bound: float) -> record.Check:
    """Make some runs again: long ones once, short ones often, and for some time where threads can race."""
    listed = repeats.list_repeats(planned, judged.session.graph, can_race=judged.can_race)

    def repeat() -> Iterator[tuple[str, float]]:
        for run, often in listed:
            for _ in often.numbered():
                yield f"two runs of {run.case.id} on one session", _largest(judged.answer(run), judged.answers[run])

    short = sum(often.fewest > 1 for _, often in listed)
    what = f"{len(planned)} runs made again" + f", {short} of them {repeats.SHORT_REPEATS} times or more" * bool(short)
    return _check_all("engine.repeatable", repeat, bound, what, "not repeatable")


def check_rewrites(judged: Judged, planned: Sequence[runs.Run], noise: float) -> record.Check:
    """Compare with a session that rewrites nothing: what differs only between the two is a wrong fusion."""

    def compare() -> Iterator[tuple[str, float]]:
        plain = judged.reopen(engine.SessionOptions(threads=judged.threads, optimise=False))
        for run in planned:
            found = _largest(judged.answer(run, plain), judged.answers[run])
            yield f"{run.case.id} with ONNX Runtime's rewrites and without them (a wrong fusion)", found

    what = f"{len(planned)} runs without rewrites"
    return _check_all("engine.rewrites", compare, bars.rewrite_bound(noise), what, "fusion")


def check_processes(judged: Judged, fresh: Sequence[FreshAnswer], bound: float) -> record.Check:
    """Compare with what fresh processes answered."""

    def compare() -> Iterator[tuple[str, float]]:
        for number, found in enumerate(fresh, start=1):
            what = f"fresh process {number} and this one on {found.run.case.id}"
            if found.answer is None:
                yield f"{what} ({found.problem})", math.inf
            else:
                yield what, _largest(found.answer, judged.answers[found.run])

    return _check_all("engine.processes", compare, bound, f"{len(fresh)} fresh processes", "not repeatable")


def _check_all(
    name: str, compare: Callable[[], Iterator[tuple[str, float]]], bound: float, what: str, shows: causes.Cause
) -> record.Check:
    """Turn comparisons into a check: the first that is further apart than allowed is its problem and its cause."""
    started = time.monotonic()
    problem, largest = "", 0.0
    cause: causes.Cause | None = None
    try:
        for compared, found in compare():
            largest = max(largest, found)
            if not found <= bound and not problem:
                problem, cause = f"{compared} differ by {found:.1e}, where {bound:.1e} is allowed", shows
    except KeyError:
        problem = problem or "a run gave no answer to compare with"
    except errors.VelaError as raised:
        problem = problem or str(raised)
    return check(name, problem, started, f"{what}: {_equal(largest)}", cause)


def apart(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Give the largest difference of two answers; infinite where only one of them is a number."""
    if first.shape != second.shape:
        return math.inf
    if np.array_equal(first, second, equal_nan=True):
        return 0.0
    found = float(np.max(np.abs(first - second)))
    return found if math.isfinite(found) else math.inf


def check(name: str, problem: str, started: float, detail: str = "", cause: causes.Cause | None = None) -> record.Check:
    """Make an entry of the record from a problem, or from none; a cause only where there is a problem."""
    status: record.CheckStatus = "failed" if problem else "passed"
    took = round(time.monotonic() - started, 3)
    return record.Check(name, status, problem or detail, took, cause if problem else None)


def _largest(first: Answer, second: Answer) -> float:
    return max(apart(first[name], second[name]) for name in first)


def _equal(largest: float) -> str:
    return "equal bit for bit" if largest == 0.0 else f"apart by {largest:.1e} at most"
