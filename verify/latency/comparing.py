"""Two records of equal requests, side by side: what was measured then and now, without an interval between them.

Rounds of one record are not rounds of the other, so nothing is paired and nothing is judged: machines and days differ
more than servers do. `vela latency rounds` measures both at once, and judges.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec

from vela.graphs import errors
from vela.verify.latency import answers, record, table

OTHER_LOAD = 0.5  # of a core: a difference that shows in latencies
HEADINGS = ("SIDE", "CALLERS", "FIGURE", "A", "B", "B/A")


@dataclass(frozen=True, slots=True)
class Measured:
    """One side of a record.

    Attributes:
        name: Its name; empty in a record of one system.
        turns: Those that count.
        answers: Given alone, by request.
    """

    name: str
    turns: tuple[record.Turn, ...]
    answers: tuple[answers.Answer | None, ...]

    @classmethod
    def from_record(cls, found: record.Record) -> list[Self]:
        """Give a record's sides that were measured."""
        if isinstance(found, record.RunRecord):
            return [cls("", (found.turn,), found.answers)]
        turns = [turn for one in found.good for turn in one.turns]
        names = dict.fromkeys(turn.side for turn in turns)
        return [cls(n, tuple(turn for turn in turns if turn.side == n), found.answers.get(n, ())) for n in names]

    def figures(self, concurrency: int) -> dict[str, float]:
        """Give medians over rounds: milliseconds, and answers a second; nothing where nothing was answered."""
        phases = [phase for turn in self.turns for phase in turn.phases if phase.concurrency == concurrency]
        timed = [phase.quantiles for phase in phases if phase.quantiles is not None]
        if not timed:
            return {}
        found: dict[str, float] = {
            figure: statistics.median(one.of(figure) for one in timed) for figure in record.FIGURES
        }
        return found | {"per_s": statistics.median(phase.per_s for phase in phases)}

    @property
    def concurrency(self) -> list[int]:
        """Callers of the phases, in order."""
        return list(dict.fromkeys(phase.concurrency for turn in self.turns for phase in turn.phases))


class Line(msgspec.Struct, frozen=True):
    """One figure of one side in both records; milliseconds, or answers a second."""

    side: str
    concurrency: int
    figure: str
    a: float
    b: float
    ratio: float


class Sides(msgspec.Struct, frozen=True):
    """What two records say of one another.

    Attributes:
        corpus_sha256: Of what both were asked.
        lines: Every figure that both have.
        answers: Of each side, how many answers alone are equal and how many both gave.
        warnings: What makes the figures less comparable.
    """

    corpus_sha256: str
    lines: tuple[Line, ...]
    answers: dict[str, tuple[int, int]]
    warnings: tuple[str, ...]


def compare(first: record.Record, second: record.Record) -> Sides:
    """Put two records side by side.

    Raises:
        VerificationError: they were asked other requests.
        NothingCompared: they have no side, phase or figure in common.
    """
    if first.corpus.sha256 != second.corpus.sha256:
        raise errors.VerificationError(
            f"requests of digest {second.corpus.sha256}",
            expected=f"{first.corpus.sha256}, as in the first record",
            where="the second record's corpus",
            fix="Measure both with the same file; figures of other requests say nothing about each other.",
        )
    pairs = list(_pairs(Measured.from_record(first), Measured.from_record(second)))
    lines = tuple(line for pair in pairs for line in _compare(*pair))
    if not lines:
        raise errors.NothingCompared(
            "no figure that both records have",
            expected="a side of one name, or two records of one system each, with a phase in common",
            where="the records",
            fix="Measure both with equal --concurrency, and name the sides alike.",
        )
    agreed = {actual.name: _agreement(actual.answers, expected.answers) for expected, actual in pairs}
    return Sides(first.corpus.sha256, lines, agreed, tuple(_warnings(first, second)))


def comparison_table(found: Sides) -> Iterator[str]:
    """Give the lines of the table."""
    rows = [
        (one.side or "-", str(one.concurrency), _figure_name(one.figure), f"{one.a:.2f}", f"{one.b:.2f}")
        for one in found.lines
    ]
    ratios = [f"{one.ratio:.3f}" for one in found.lines]
    yield f"{found.corpus_sha256[:12]}: two records of equal requests, not paired and not judged"
    yield from table.aligned([HEADINGS, *((*row, ratio) for row, ratio in zip(rows, ratios, strict=True))])
    for name, (equal, both) in found.answers.items():
        yield f"  {f'{name}: ' if name else ''}{equal} of {both} answers alone are equal"
    yield from (f"  {warning}" for warning in found.warnings)


def _figure_name(figure: str) -> str:
    return "per s" if figure == "per_s" else f"{figure} ms"


def _pairs(first: Sequence[Measured], second: Sequence[Measured]) -> Iterator[tuple[Measured, Measured]]:
    if len(first) == len(second) == 1:  # one system each: what they are called does not matter
        yield first[0], second[0]
        return
    others = {one.name: one for one in second}
    yield from ((one, others[one.name]) for one in first if one.name in others)


def _compare(expected: Measured, actual: Measured) -> Iterator[Line]:
    for concurrency in expected.concurrency:
        wanted, found = expected.figures(concurrency), actual.figures(concurrency)
        for figure in wanted:
            if figure in found and wanted[figure] > 0:
                ratio = found[figure] / wanted[figure]
                yield Line(actual.name, concurrency, figure, wanted[figure], found[figure], ratio)


def _agreement(actual: Sequence[answers.Answer | None], expected: Sequence[answers.Answer | None]) -> tuple[int, int]:
    both = [(one, other) for one, other in zip(actual, expected, strict=False) if one and other]
    return sum(one.sha256 == other.sha256 for one, other in both), len(both)


def _others(load: record.Load) -> float:
    return max(0.0, (load.before or 0.0) - load.own_before)


def _warnings(first: record.Record, second: record.Record) -> Iterator[str]:
    differing = [name for name, value in first.machine.items() if second.machine.get(name) != value]
    if differing:
        yield f"the machines differ: {', '.join(differing)}"
    if isinstance(first, record.RunRecord) and isinstance(second, record.RunRecord):
        one, other = _others(first.load), _others(second.load)
        if abs(one - other) > OTHER_LOAD:
            yield f"others' load was {one:.1f} in A and {other:.1f} in B"
    for name, found in (("A", first), ("B", second)):
        if found.verdict != "passed":
            reason = found.reasons[0] if found.reasons else "no reason stated"
            yield f"record {name} {found.verdict.replace('_', ' ')}: {reason}"
