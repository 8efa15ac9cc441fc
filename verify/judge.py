"""From differences to statistics, and from statistics to what a bar says of them.

Pure functions over the evidence of one graph, which is what its record keeps: so a stored record can be judged again
under another bar. Every bound that is broken becomes a reason with its figure, its bound and the input, because a
release engineer reads reasons, not a boolean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec
import numpy as np

from vela.graphs import heads, record
from vela.verify import bars, cases, compare

WORST_COUNT = 8
TEXT_SHOWN = 160  # characters of a worst input that the record keeps
DECISION_SHOWN = 80  # characters of a decision that differs


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was measured on one graph.

    Attributes:
        kind: Of the head that it answers.
        runs: One for each run that was compared.
        statistics: One for each class of runs.
        planned: Runs planned.
        noise: The reference's own FP32 noise, largest |Δlogit| against float64.
    """

    kind: heads.SurfaceKind
    runs: Sequence[record.Run]
    statistics: Sequence[record.ClassStatistics]
    planned: int
    noise: float

    @classmethod
    def from_differences(
        cls, kind: heads.SurfaceKind, differences: Sequence[compare.Difference], planned: int, noise: float
    ) -> Self:
        """Sum up what was compared."""
        return cls(kind, tuple(map(describe_run, differences)), statistics(differences), planned, noise)

    @classmethod
    def from_record(cls, stored: record.Record) -> Self:
        """Take up what a record keeps."""
        return cls(stored.form, stored.runs, stored.statistics, stored.planned, stored.reference_noise)


def judge(evidence: Evidence, bar: bars.Bar) -> record.BarResult:
    """Say whether the evidence meets a bar, and which bounds it breaks."""
    if not evidence.runs or len(evidence.runs) < evidence.planned:
        reason = f"{len(evidence.runs)} of {evidence.planned} planned runs compared"
        return record.BarResult(bar.name, "not_compared", (reason,))
    is_embedding = evidence.kind == "embedding"
    reasons = _embedding_reasons(evidence.runs, bar) if is_embedding else _probability_reasons(evidence, bar)
    bound = bar.logit_bound(evidence.noise)
    if bound is not None:
        reasons += _exceeding(evidence.runs, "max_abs_logit", "|Δlogit|", bound)
    return record.BarResult(bar.name, "failed" if reasons else "passed", tuple(reasons))


def allowed_disagreements(rate: float, count: int) -> int:
    """Turn a rate into an integer budget at the actual n: 0.995 of 547 allows 2, of 100 none."""
    return count - int(np.ceil(rate * count - 1e-9))


def _probability_reasons(evidence: Evidence, bar: bars.Bar) -> list[str]:
    runs = evidence.runs
    reasons = _exceeding(runs, "max_abs_probability", "|Δp|", bar.max_probability)
    if bar.p99_probability is not None:
        reasons += [
            f"99th percentile of |Δp| {group.p99_abs_probability:.3g} > {bar.p99_probability:g} on "
            f"{group.length_class} {group.padding_class} padding"
            for group in evidence.statistics
            if not group.p99_abs_probability <= bar.p99_probability
        ]
    kinds = {"token": ("span sets", bar.span_rate), "rerank": ("places in an order", bar.order_rate)}
    what, rate = kinds.get(evidence.kind, ("decisions", bar.decision_rate))
    lost = [run for run in runs if not is_agreed(run, evidence.kind, bar)]
    allowed = allowed_disagreements(rate, len(runs))
    if len(lost) > allowed:
        shown = lost[0]
        reasons.append(
            f"{len(lost)} of {len(runs)} {what} differ where {allowed} may: {shown.case_id} gives {shown.actual!r} "
            f"for {shown.expected!r}"
        )
    return reasons


def _embedding_reasons(runs: Sequence[record.Run], bar: bars.Bar) -> list[str]:
    reasons = _exceeding(runs, "max_abs_probability", "|Δ| of unit vectors", bar.embedding_difference)
    # numpy takes nan for the smallest, min() passes over it
    worst = runs[int(np.argmin([run.cosine for run in runs]))]
    if not worst.cosine >= bar.embedding_cosine:
        reasons.append(f"cosine {worst.cosine:.7f} < {bar.embedding_cosine} on {worst.case_id}")
    return reasons


def _exceeding(runs: Sequence[record.Run], field: str, name: str, bound: float) -> list[str]:
    """Say which run exceeds a bound by most; nan exceeds every bound, and is found wherever it stands."""
    largest = [float(getattr(run, field)) for run in runs]
    worst = runs[int(np.argmax(largest))]  # numpy takes nan for the largest, max() takes it for nothing
    found = float(np.max(largest))
    if found <= bound:
        return []
    count = sum(not value <= bound for value in largest)
    return [
        f"{name} {found:.3g} > {bound:.3g} on {worst.case_id} ({worst.tokens} tokens, {worst.padding_class} "
        f"padding), and on {count} of {len(runs)} runs in all"
    ]


def is_agreed(run: record.Run, kind: heads.SurfaceKind, bar: bars.Bar) -> bool:
    """Say whether a run counts as agreed: the same decision, or a near tie of the reference."""
    return run.margin is None or run.margin < bar.margin_of(kind)


def describe_run(difference: compare.Difference) -> record.Run:
    """Reduce a difference to what a bar needs of it."""
    probability, logit = float(np.max(difference.probability)), float(np.max(difference.logit))
    case = difference.case
    found = record.Run(case.id, case.tokens, difference.padding_class, probability, logit, cosine=difference.cosine)
    if difference.agrees:
        return found
    shown = (difference.actual[:DECISION_SHOWN], difference.expected[:DECISION_SHOWN])
    return msgspec.structs.replace(found, margin=difference.margin, actual=shown[0], expected=shown[1])


def group_by_class(
    differences: Iterable[compare.Difference],
) -> dict[tuple[str, str], list[compare.Difference]]:
    """Group runs by length and padding class, in order of length."""
    groups: dict[tuple[str, str], list[compare.Difference]] = {}
    for difference in sorted(differences, key=lambda difference: difference.case.tokens):
        key = (cases.length_class(difference.case.tokens), difference.padding_class)
        groups.setdefault(key, []).append(difference)
    return groups


def statistics(differences: Sequence[compare.Difference]) -> tuple[record.ClassStatistics, ...]:
    """Describe each class of inputs; near ties are a bar's, and none is counted here."""
    found = []
    for (length_class, padding_class), group in group_by_class(differences).items():
        probability = [difference.probability for difference in group]
        logit = [difference.logit for difference in group]
        places = np.digitize(np.concatenate(probability), record.DECADES)
        found.append(
            record.ClassStatistics(
                length_class=length_class,
                padding_class=padding_class,
                cases=len(group),
                values=sum(map(len, probability)),
                max_abs_probability=percentile(probability, 100),
                p99_abs_probability=percentile(probability, 99),
                median_abs_probability=percentile(probability, 50),
                max_abs_logit=percentile(logit, 100),
                p99_abs_logit=percentile(logit, 99),
                agreed=sum(difference.agrees for difference in group),
                near_ties=0,
                decades=tuple(np.bincount(places, minlength=len(record.DECADES) + 1).tolist()),
            )
        )
    return tuple(found)


def count_ties(evidence: Evidence, bar: bars.Bar) -> tuple[record.ClassStatistics, ...]:
    """Give the statistics with the near ties that a bar counts as agreed."""
    found = []
    for group in evidence.statistics:
        key = (group.length_class, group.padding_class)
        runs = [run for run in evidence.runs if (cases.length_class(run.tokens), run.padding_class) == key]
        agreed = sum(is_agreed(run, evidence.kind, bar) for run in runs)
        ties = agreed - sum(run.agrees for run in runs)
        found.append(msgspec.structs.replace(group, agreed=agreed, near_ties=ties))
    return tuple(found)


def percentile(values: Sequence[compare.Values], rank: float) -> float:
    """Give the nearest-rank percentile of all numbers, as upstream's records do."""
    return float(np.percentile(np.concatenate(values), rank, method="inverted_cdf"))


def worst_inputs(differences: Sequence[compare.Difference]) -> tuple[record.WorstInput, ...]:
    """Give the inputs that are furthest apart, worst first, each once: by the run in which it is furthest apart."""
    ordered = sorted(differences, key=lambda found: (found.agrees, -float(np.max(found.logit))))
    worst = {found.case.id: found for found in reversed(ordered)}
    ordered = [found for found in ordered if worst[found.case.id] is found]
    return tuple(
        record.WorstInput(
            case_id=found.case.id,
            tokens=found.case.tokens,
            text=found.case.text[:TEXT_SHOWN],
            max_abs_probability=float(np.max(found.probability)),
            max_abs_logit=float(np.max(found.logit)),
            actual=found.actual[:TEXT_SHOWN],
            expected=found.expected[:TEXT_SHOWN],
        )
        for found in ordered[:WORST_COUNT]
    )
