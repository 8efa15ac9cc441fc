"""Rounds: every side takes its turn in each, who begins changes, and a round that others disturbed does not count."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vela.verify.latency import load, record, subject

LOOK_S = 5.0  # the kernel computes load averages as often
PATIENCE_S = 120.0  # a load that ended is an eighth of what it was after so long
ATTEMPTS_PER_ROUND = 2


@dataclass(frozen=True, slots=True)
class Schedule:
    """How many rounds, and when one counts.

    Attributes:
        rounds: That count, at best.
        load: Others' load that no round may have at its begin or its end; None where there is no limit.
        patience_s: Waited for others to be done before a round is given up.
    """

    rounds: int
    load: float | None
    patience_s: float = PATIENCE_S

    @property
    def attempts(self) -> int:
        """Rounds that are begun or given up at most."""
        return ATTEMPTS_PER_ROUND * self.rounds


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What rounds need of the world.

    Attributes:
        meter: Of the load.
        sleep: Waits for others to be done.
        report: Takes a line for a person at each step.
    """

    meter: load.Meter
    sleep: Callable[[float], None] = time.sleep
    report: Callable[[str], None] = lambda line: None


def run_rounds(
    subjects: Sequence[subject.Subject], schedule: Schedule, surroundings: Surroundings
) -> tuple[record.Round, ...]:
    """Run rounds until enough count, none can count any more, or a side has stopped answering."""
    for each in subjects:
        each.identify()
    found: list[record.Round] = []
    while len(found) < schedule.attempts and _counting(found) < schedule.rounds:
        # Who began in a round that was discarded begins in its repetition, so that every side begins as often.
        first = _counting(found) % len(subjects)
        ordered = [*subjects[first:], *subjects[:first]]
        surroundings.report(f"round {_counting(found) + 1} of {schedule.rounds}")
        found.append(_run_round(ordered, schedule, surroundings))
        if found[-1].discarded:
            surroundings.report(f"discarded: {found[-1].discarded}")
        if any(not phase.answered for turn in found[-1].turns for phase in turn.phases):
            break
    return tuple(found)


def measure_load(
    subjects: Sequence[subject.Subject], meter: load.Meter, before: load.Load | None = None
) -> tuple[load.Load, record.Load]:
    """Measure now, and give the record of the load before and of now; of now alone where nothing was before."""
    now = meter.measure([process for each in subjects for process in each.processes()])
    then = before or now
    return now, record.Load(then.one_minute, then.own, now.one_minute, now.own)


def _counting(found: Sequence[record.Round]) -> int:
    return sum(not one.discarded for one in found)


def _run_round(ordered: Sequence[subject.Subject], schedule: Schedule, surroundings: Surroundings) -> record.Round:
    order = tuple(each.asked.name for each in ordered)
    before, stated = _wait_for_quiet(ordered, schedule, surroundings)
    if reason := _disturbance(before, schedule, "before it began"):
        return record.Round(order, stated, reason, ())
    turns = []
    for each in ordered:
        surroundings.report(f"  {each.asked.name}: {len(each.requests.requests)} requests in each phase")
        turns.append(each.take_turn())
    after, stated = measure_load(ordered, surroundings.meter, before)
    return record.Round(order, stated, _disturbance(after, schedule, "at its end"), tuple(turns))


def _wait_for_quiet(
    subjects: Sequence[subject.Subject], schedule: Schedule, surroundings: Surroundings
) -> tuple[load.Load, record.Load]:
    found = measure_load(subjects, surroundings.meter)
    waited_s = 0.0
    while _disturbance(found[0], schedule, "") and waited_s < schedule.patience_s:
        if not waited_s:
            surroundings.report(f"  waiting: others' load is {found[0].others:.1f}, above {schedule.load:g}")
        surroundings.sleep(LOOK_S)
        waited_s += LOOK_S
        found = measure_load(subjects, surroundings.meter)
    return found


def _disturbance(found: load.Load, schedule: Schedule, when: str) -> str:
    """Say how others disturb; empty where they do not."""
    if schedule.load is None or found.others <= schedule.load:
        return ""
    return f"others' load was {found.others:.1f} {when}, above {schedule.load:g}"
