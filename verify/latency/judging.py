"""From measured rounds to what they say: paired differences with intervals, what differs, one verdict. Pure."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vela.graphs import errors
from vela.graphs import record as records
from vela.verify.latency import answers, intervals, record

# The 99th percentile of a few hundred is the fourth largest: it is shown and not judged.
JUDGED: tuple[record.Figure, ...] = ("p50", "p95", "mean")
SHOWN = 3  # ids that a reason names
Answers = tuple[answers.Answer | None, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reasons, the first one first."""

    verdict: records.Verdict
    reasons: tuple[str, ...]


def compare_sides(good: Sequence[record.Round], names: Sequence[str], slower: float) -> tuple[record.Comparison, ...]:
    """Compare every other side with the first, in each phase, figure by figure.

    Args:
        good: Rounds that count; fewer than three are compared with nothing.
        names: Of the sides, the first one first.
        slower: How much slower a side may be, as a share of the first side's figure.
    """
    if len(good) < intervals.MIN_ROUNDS:
        return ()
    turns = {name: [next(turn for turn in one.turns if turn.side == name) for one in good] for name in names}
    found = []
    for name in names[1:]:
        for place, phase in enumerate(turns[name][0].phases):
            sides = [[turn.phases[place].quantiles for turn in turns[side]] for side in (name, names[0])]
            pairs = [(one, other) for one, other in zip(*sides, strict=True) if one is not None and other is not None]
            if len(pairs) == len(good):
                found += [_compare(name, phase.concurrency, figure, pairs, slower) for figure in record.FIGURES]
    return tuple(found)


def compare_answers(
    side: str, actual: Answers, expected: Answers, ids: Sequence[str], allowed: float
) -> record.Between:
    """Hold a side's answers alone against the first side's."""
    triples = list(zip(ids, actual, expected, strict=True))
    both = [(name, one, other, one.distance(other)) for name, one, other in triples if one and other]
    return record.Between(
        side=side,
        compared=len(both),
        equal=sum(one.decision == other.decision and one.numbers == other.numbers for _, one, other, _ in both),
        differing=tuple(
            record.Differing(name, 1, one.sha256, other.sha256, distance)
            for name, one, other, distance in both
            if distance is None or distance > allowed
        ),
        max_abs=max((distance for *_, distance in both if distance is not None), default=0.0),
        one_sided=tuple(name for name, one, other in triples if (one is None) != (other is None)),
    )


def judge_run(turn: record.Turn, allowed: float) -> Judgement:
    """Judge one system by itself."""
    reasons = list(_faults([turn], allowed))
    if reasons:
        return Judgement("failed", tuple(reasons))
    if nothing := _unanswered([turn]):
        return Judgement("not_compared", (nothing,))
    return Judgement("passed", ())


def judge_rounds(
    rounds: Sequence[record.Round],
    comparisons: Sequence[record.Comparison],
    between: Sequence[record.Between],
    limits: record.Limits,
) -> Judgement:
    """Judge several systems: what failed comes first, then whether there is enough to say, then who is slower."""
    turns = [turn for one in rounds for turn in one.turns]
    names = dict.fromkeys(turn.side for turn in turns)
    faults = [
        reason for name in names for reason in _faults([turn for turn in turns if turn.side == name], limits.answers)
    ]
    faults += [reason for one in between for reason in _other_answers(one, limits)]
    if faults:
        return Judgement("failed", tuple(faults))
    good = [one for one in rounds if not one.discarded]
    if len(good) < intervals.MIN_ROUNDS:
        why = next((f"; the last reason: {one.discarded}" for one in reversed(rounds) if one.discarded), "")
        too_few = f"{len(good)} rounds that count where {intervals.MIN_ROUNDS} are needed{why}"
        return Judgement("not_compared", (too_few,))
    if nothing := _unanswered(turns):
        return Judgement("not_compared", (nothing,))
    slower = [_slower(one, limits) for one in comparisons if one.verdict == "slower"]
    return Judgement("failed" if slower else "passed", tuple(slower))


def require_passed(verdict: records.Verdict, reasons: Sequence[str]) -> None:
    """Refuse what did not pass.

    Raises:
        VerificationFailed: a side is slower, failed, restarted, or answered otherwise.
        NothingCompared: there is too little to say.
    """
    if verdict == "failed":
        raise errors.VerificationFailed(
            reasons[0],
            expected="no failure, no restart, equal answers, and no figure slower beyond noise and tolerance",
            where=f"the measurement ({len(reasons)} reasons)" if len(reasons) > 1 else "the measurement",
            fix="The record lists every latency and every answer that differs.",
        )
    if verdict == "not_compared":
        raise errors.NothingCompared(
            reasons[0],
            expected="enough answers and rounds to say something",
            where="the measurement",
            fix="Measure again on a quieter machine, or with more rounds.",
        )


def _compare(
    side: str,
    concurrency: int,
    figure: record.Figure,
    pairs: Sequence[tuple[record.Quantiles, record.Quantiles]],
    slower: float,
) -> record.Comparison:
    actual, expected = [one.of(figure) for one, _ in pairs], [other.of(figure) for _, other in pairs]
    difference = intervals.Interval.of_differences(actual, expected)
    allowed = slower * statistics.fmean(expected)
    verdict: record.Outcome = "within_noise"
    if figure not in JUDGED:
        verdict = ""
    elif difference.low > 0.0:
        verdict = "slower" if difference.low > allowed else "tolerated"
    elif difference.high < 0.0:
        verdict = "faster"
    return record.Comparison(
        side=side,
        concurrency=concurrency,
        figure=figure,
        actual_ms=statistics.median(actual),
        expected_ms=statistics.median(expected),
        difference_ms=difference,
        ratio=intervals.Interval.of_ratios(actual, expected),
        verdict=verdict,
    )


def _faults(turns: Sequence[record.Turn], allowed: float) -> Iterator[str]:
    """Say what went wrong in a side's turns, whichever rounds count: a crash in a disturbed round is a crash."""
    phases = [phase for turn in turns for phase in turn.phases]
    side = turns[0].side
    asked = sum(phase.requests for phase in phases)
    for failures, where in (
        (_sum_up([phase.failures for phase in phases]), f"of {asked} requests"),
        (_sum_up([turn.warm_up_failures for turn in turns]), "requests of the warm-up"),
    ):
        if failures:
            said = ", ".join(f"{count} {reason}" for reason, count in failures.items())
            yield f"{side}: {sum(failures.values())} {where} failed: {said}"
    for change in dict.fromkeys(change for turn in turns for change in turn.restarts):
        yield f"{side} is not what it was: {change}"
    beyond = [one for turn in turns for one in turn.differing if one.max_abs is None or one.max_abs > allowed]
    if beyond:
        compared = sum(phase.answered for phase in phases)
        yield f"{side}: {len(beyond)} of {compared} answers are not the ones given alone: {_name(beyond)}"


def _sum_up(counts: Sequence[Mapping[str, int]]) -> Counter[str]:
    return sum((Counter(one) for one in counts), Counter())


def _other_answers(between: record.Between, limits: record.Limits) -> Iterator[str]:
    # Percentiles of other requests say nothing about each other, whether or not answers must be equal.
    if between.one_sided:
        shown = ", ".join(between.one_sided[:SHOWN])
        yield f"{between.side}: {len(between.one_sided)} requests are answered by it or by the first side only: {shown}"
    if limits.is_same and between.differing:
        said = f"{len(between.differing)} of {between.compared} answers are not the first side's"
        yield f"{between.side}: {said}: {_name(between.differing)}"


def _name(differing: Sequence[record.Differing]) -> str:
    shown = [
        f"{one.id} {_under(one.concurrency)} "
        + ("decides otherwise" if one.max_abs is None else f"is {one.max_abs:.1e} off")
        for one in differing[:SHOWN]
    ]
    return ", ".join(shown) + (", …" if len(differing) > SHOWN else "")


def _under(concurrency: int) -> str:
    return "alone" if concurrency == 1 else f"with {concurrency} callers"


def _unanswered(turns: Sequence[record.Turn]) -> str:
    """Name a phase in which nothing was answered."""
    for turn in turns:
        for phase in turn.phases:
            if not phase.answered:
                refused: Mapping[str, int] = phase.refused
                said = ", ".join(f"{count} {reason}" for reason, count in refused.items()) or "nothing was asked"
                return f"{turn.side} answered none of {phase.requests} requests: {said}"
    return ""


def _slower(one: record.Comparison, limits: record.Limits) -> str:
    found = one.difference_ms
    tolerated = f", beyond {limits.slower:.1%}" if limits.slower else ""
    return (
        f"{one.side} is slower {_under(one.concurrency)}{tolerated}: {one.figure} {one.actual_ms:.2f} ms where "
        f"{one.expected_ms:.2f} is the first side's; {found.mean:+.2f} ms, from {found.low:+.2f} to {found.high:+.2f}"
    )
