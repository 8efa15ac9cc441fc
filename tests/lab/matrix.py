"""The matrix of faults and checks: which check sees what, which faults get through, which checks are needed.

A check is necessary where some fault is seen by it and by nothing else: without it, that fault would pass. Pure
functions over rows; the checks are whatever the records name.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.trial import CAUSE_SHOWN, Row

SEEN, UNSEEN, NOT_RUN = "X", ".", "-"


@dataclass(frozen=True, slots=True)
class Necessity:
    """Why a check is needed.

    Attributes:
        check: Its name.
        failed: Trials that it failed in.
        alone: Faults, with scene, that would have passed without it.
        last: Faults that only it failed, and that would have been left not compared without it, because others
            could not run.
    """

    check: str
    failed: int
    alone: tuple[str, ...]
    last: tuple[str, ...]

    @property
    def is_shown(self) -> bool:
        return bool(self.alone or self.last)


def checks_of(rows: Iterable[Row]) -> list[str]:
    """List the checks that rows name, each after those it was seen after."""
    found: list[str] = []
    for row in rows:
        previous = -1
        for name in row.outcome.statuses if row.outcome else ():
            if name not in found:
                found.insert(previous + 1, name)
            previous = found.index(name)
    return found


def necessities(rows: Sequence[Row]) -> list[Necessity]:
    """Say of each check which faults it alone catches."""
    found = []
    for check in checks_of(rows):
        outcomes = [(row, row.outcome) for row in rows if row.outcome and check in row.outcome.failed]
        only = [(row, outcome) for row, outcome in outcomes if outcome.failed == (check,)]
        alone = [row for row, outcome in only if not _is_short(outcome.statuses)]
        last = [row for row, outcome in only if _is_short(outcome.statuses)]
        found.append(Necessity(check, len(outcomes), _names(alone), _names(last)))
    return found


def _is_short(statuses: Any) -> bool:
    """Say whether a check could not run, so that the verdict would not be a pass even if nothing had failed."""
    return "not_run" in statuses.values()


def _names(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{row.fault} [{row.scene}]" for row in rows))


def let_through(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.is_let_through]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Count faults and trials."""
    planted = [row for row in rows if row.is_planted]
    faults = {row.fault: row.family for row in planted}
    return {
        "faults": len(faults),
        "faults_by_family": dict(sorted(Counter(faults.values()).items())),
        "trials": len(planted),
        "caught": sum(not row.is_let_through for row in planted),
        "let_through": [f"{row.fault} [{row.scene}]: {row.drawn}" for row in let_through(planted)],
        "without_a_place": len(rows) - len(planted),
    }


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Give the matrix as a record."""
    checks = checks_of(rows)
    return {
        "summary": summary(rows),
        "necessity": [
            {"check": one.check, "failed": one.failed, "alone": list(one.alone), "last": list(one.last)}
            for one in necessities(rows)
        ],
        "checks": checks,
        "legend": {SEEN: "failed", UNSEEN: "passed", NOT_RUN: "not run"},
        "rows": [
            {
                "fault": row.fault,
                "family": row.family,
                "scene": row.scene,
                "drawn": row.drawn,
                "verdict": row.outcome.verdict,
                "cells": cells(row, checks),
                "cause": row.outcome.cause[:CAUSE_SHOWN],
            }
            for row in rows
            if row.outcome is not None
        ],
    }


def cells(row: Row, checks: Sequence[str]) -> str:
    """Give a row's cells, one character for each check."""
    marks = {"failed": SEEN, "passed": UNSEEN}
    statuses = row.outcome.statuses if row.outcome else {}
    return "".join(marks.get(statuses.get(check, ""), NOT_RUN) for check in checks)


def as_lines(rows: Sequence[Row]) -> list[str]:
    """Give the matrix for people: a numbered list of checks, then a line for each trial."""
    checks = checks_of(rows)
    lines = [f"{index + 1:>3}  {check}" for index, check in enumerate(checks)]
    lines.append("     " + "".join(str((index + 1) % 10) for index in range(len(checks))))
    for row in rows:
        if row.outcome is not None:
            mark = "PASSED" if row.is_let_through else row.outcome.verdict
            lines.append(f"     {cells(row, checks)}  {mark:<12} {row.fault} [{row.scene}]: {row.drawn}")
    return lines


def as_table(rows: Sequence[Row]) -> list[str]:
    """Give one line of Markdown for each check: in how many trials it failed, and one fault that only it sees."""
    lines = ["| check | failed in | seen by nothing else |", "|---|---|---|"]
    for one in necessities(rows):
        examples = one.alone or one.last
        names = list(dict.fromkeys(name.partition(" [")[0] for name in examples))
        note = "" if one.alone or not one.last else " (else: not compared)"
        shown = f"{len(names)}, such as: {names[0]}{note}" if names else "none"
        lines.append(f"| `{one.check}` | {one.failed} | {shown} |")
    return lines
