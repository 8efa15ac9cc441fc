"""A measurement as tables for a terminal: a row a phase, and below them the reasons of what did not pass."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from vela.verify.latency import intervals, record

Row = tuple[str, ...]
STATES = {"passed": "PASS", "failed": "FAIL", "not_compared": "NOT COMPARED"}
WORDS: dict[record.Outcome, str] = {
    "slower": "SLOWER",
    "tolerated": "tolerated",
    "within_noise": "within noise",
    "faster": "faster",
    "": "-",
}
RUN_HEADINGS = (*("CALLERS", "ANSWERED", "P50 MS", "P95 MS", "P99 MS", "MEAN MS", "PER S"), "DIFFER", "MAX |Δ|")
SIDE_HEADINGS = ("SIDE", *RUN_HEADINGS)
PAIR_HEADINGS = ("SIDE", "CALLERS", "FIGURE", "MS", "FIRST MS", "RATIO", "95 % INTERVAL", "Δ MS", "95 % INTERVAL", "")


def run_table(found: record.RunRecord) -> Iterator[tuple[str, str]]:
    """Give the lines for one system, each with the verdict that colours it."""
    yield f"{STATES[found.verdict]}: {found.side.url}, {_asked(found.corpus)}", found.verdict
    yield f"  {_load(found.load)}", ""
    rows = [_phase_row([phase], _of_phase([found.turn], phase)) for phase in found.turn.phases]
    yield from _lines([RUN_HEADINGS, *rows])
    if stages := _stages(found.turn.phases):
        yield from stages
    yield from ((f"  {reason}", found.verdict) for reason in found.reasons)


def rounds_table(found: record.RoundsRecord) -> Iterator[tuple[str, str]]:
    """Give the lines for several systems, each with the verdict that colours it."""
    good = found.good
    sides = ", ".join(f"{one.name} ({one.url})" for one in found.sides)
    yield f"{STATES[found.verdict]}: {sides}, {_asked(found.corpus)}", found.verdict
    discarded = [one.discarded for one in found.rounds if one.discarded]
    lost = f"; {len(discarded)} discarded, the last because {discarded[-1]}" if discarded else ""
    yield f"  {len(good)} rounds count{lost}", "not_compared" if discarded else ""
    rows = [row for one in found.sides for row in side_rows(one.name, good)]
    yield from _lines([SIDE_HEADINGS, *rows])
    if found.comparisons:
        yield "", ""
        verdicts = {"slower": "failed", "faster": "passed"}
        pairs = [(_pair_row(one), verdicts.get(one.verdict, "")) for one in found.comparisons]
        lines = list(_lines([PAIR_HEADINGS, *(row for row, _ in pairs)]))
        yield lines[0]
        yield from ((line, colour) for (line, _), (_, colour) in zip(lines[1:], pairs, strict=True))
    for one in found.between:
        said = f"{one.equal} of {one.compared} answers equal {found.sides[0].name}'s, largest |Δ| {one.max_abs:.1e}"
        yield f"  {one.side}: {said}, {len(one.differing)} beyond {found.limits.answers:g}", ""
    yield from ((f"  {reason}", found.verdict) for reason in found.reasons)


def side_rows(name: str, good: Sequence[record.Round]) -> Iterator[Row]:
    """Give a side's rows, one for each phase: medians over the rounds that count, counts of all of them."""
    turns = [turn for one in good for turn in one.turns if turn.side == name]
    for phases in zip(*(turn.phases for turn in turns), strict=True):
        yield (name, *_phase_row(phases, _of_phase(turns, phases[0])))


def aligned(rows: Sequence[Row]) -> list[str]:
    """Lay cells out in columns: names to the left, everything else to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first = [row[0].ljust(widths[0]) for row in rows]
    rest = ["  ".join(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)) for row in rows]
    return [f"  {name}  {cells}".rstrip() for name, cells in zip(first, rest, strict=True)]


def milliseconds(value: float) -> str:
    """Give milliseconds in three digits or so."""
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _lines(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    return ((line, "") for line in aligned(rows))


def _asked(corpus: record.CorpusFacts) -> str:
    return f"{len(corpus.ids)} requests {corpus.sha256[:12]}"


def _load(load: record.Load) -> str:
    if load.before is None or load.after is None:
        return "no load average to be had"
    own = f"{load.own_before:.2f} and {load.own_after:.2f}"
    return f"load {load.before:.2f} before and {load.after:.2f} after, of it our own {own}"


def _of_phase(turns: Sequence[record.Turn], phase: record.Phase) -> list[record.Differing]:
    return [one for turn in turns for one in turn.differing if one.concurrency == phase.concurrency]


def _phase_row(phases: Sequence[record.Phase], differing: Sequence[record.Differing]) -> Row:
    """Give the row of a phase: medians over rounds, counts of all of them."""
    timed = [phase.quantiles for phase in phases if phase.quantiles is not None]
    medians = [
        milliseconds(statistics.median(one.of(figure) for one in timed)) if timed else "-" for figure in record.FIGURES
    ]
    distances = [one.max_abs for one in differing]
    worst = "otherwise" if None in distances else f"{max((d for d in distances if d is not None), default=0):.1e}"
    return (
        str(phases[0].concurrency),
        f"{sum(phase.answered for phase in phases)}/{sum(phase.requests for phase in phases)}",
        *medians,
        f"{statistics.median(phase.per_s for phase in phases):.1f}",
        str(len(differing)),
        worst if differing else "-",
    )


def _pair_row(one: record.Comparison) -> Row:
    return (
        one.side,
        str(one.concurrency),
        one.figure,
        milliseconds(one.actual_ms),
        milliseconds(one.expected_ms),
        f"{one.ratio.mean:.3f}",
        _interval(one.ratio, "{:.3f}"),
        f"{one.difference_ms.mean:+.2f}",
        _interval(one.difference_ms, "{:+.2f}"),
        WORDS[one.verdict],
    )


def _interval(found: intervals.Interval, shape: str) -> str:
    return f"{shape.format(found.low)} … {shape.format(found.high)}"


def _stages(phases: Sequence[record.Phase]) -> list[tuple[str, str]]:
    """Give the server's own account, where it gave one."""
    stated: list[Mapping[str, float]] = [phase.stages_ms for phase in phases]
    names = list(dict.fromkeys(name for one in stated for name in one))
    if not names:
        return []
    rows = [
        (str(phase.concurrency), *(f"{one[name]:.2f}" if name in one else "-" for name in names))
        for phase, one in zip(phases, stated, strict=True)
    ]
    headings = ("CALLERS", *(name.upper()[:12] for name in names))
    return [("  the server's own account, medians in ms:", ""), *_lines([headings, *rows])]
