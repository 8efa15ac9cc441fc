"""From differences to statistics, and from statistics to what a bar says of them.

Pure functions over the evidence of one graph. Every bound that is broken becomes a reason with its figure, its bound
and the input, because a release engineer reads reasons, not a boolean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vela.graphs import heads, record
from vela.verify import bars, cases, compare

WORST_COUNT = 8
TEXT_SHOWN = 160  # characters of a worst input that the record keeps


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was measured on one graph.

    Attributes:
        head: The head that it answers.
        differences: One for each run that was compared.
        planned: Runs planned.
        noise: The reference's own FP32 noise, largest |Δlogit| against float64.
    """

    head: heads.Head
    differences: Sequence[compare.Difference]
    planned: int
    noise: float


def judge(evidence: Evidence, bar: bars.Bar) -> record.BarResult:
    """Say whether the evidence meets a bar, and which bounds it breaks."""
    differences = evidence.differences
    if not differences or len(differences) < evidence.planned:
        reason = f"{len(differences)} of {evidence.planned} planned runs compared"
        return record.BarResult(bar.name, "not_compared", (reason,))
    is_embedding = isinstance(evidence.head.decoder, heads.EmbeddingDecoder)
    reasons = _embedding_reasons(differences, bar) if is_embedding else _probability_reasons(evidence, bar)
    bound = bar.logit_bound(evidence.noise)
    if bound is not None:
        reasons += _exceeding(differences, "logit", "|Δlogit|", bound)
    return record.BarResult(bar.name, "failed" if reasons else "passed", tuple(reasons))


def allowed_disagreements(rate: float, count: int) -> int:
    """Turn a rate into an integer budget at the actual n: 0.995 of 547 allows 2, of 100 none."""
    return count - int(np.ceil(rate * count - 1e-9))


def _probability_reasons(evidence: Evidence, bar: bars.Bar) -> list[str]:
    differences = evidence.differences
    reasons = _exceeding(differences, "probability", "|Δp|", bar.max_probability)
    if bar.p99_probability is not None:
        for name, group in group_by_class(differences).items():
            found = percentile([difference.probability for difference in group], 99)
            if not found <= bar.p99_probability:
                reasons.append(
                    f"99th percentile of |Δp| {found:.3g} > {bar.p99_probability:g} on {' '.join(name)} padding"
                )
    kinds = {"token": ("span sets", bar.span_rate), "rerank": ("places in an order", bar.order_rate)}
    what, rate = kinds.get(evidence.head.kind, ("decisions", bar.decision_rate))
    lost = [difference for difference in differences if not is_agreed(difference, evidence.head, bar)]
    if len(lost) > allowed_disagreements(rate, len(differences)):
        shown = lost[0]
        reasons.append(
            f"{len(lost)} of {len(differences)} {what} differ where "
            f"{allowed_disagreements(rate, len(differences))} may: {shown.case.id} gives {shown.actual!r} for "
            f"{shown.expected!r}"
        )
    return reasons


def _embedding_reasons(differences: Sequence[compare.Difference], bar: bars.Bar) -> list[str]:
    reasons = _exceeding(differences, "probability", "|Δ| of unit vectors", bar.embedding_difference)
    # numpy takes nan for the smallest, min() passes over it
    worst = differences[int(np.argmin([difference.cosine for difference in differences]))]
    if not worst.cosine >= bar.embedding_cosine:
        reasons.append(f"cosine {worst.cosine:.7f} < {bar.embedding_cosine} on {worst.case.id}")
    return reasons


def _exceeding(differences: Sequence[compare.Difference], field: str, name: str, bound: float) -> list[str]:
    """Say which case exceeds a bound by most; nan exceeds every bound, and is found wherever it stands."""
    largest = [float(np.max(getattr(difference, field))) for difference in differences]
    worst = differences[int(np.argmax(largest))]  # numpy takes nan for the largest, max() takes it for nothing
    found = float(np.max(largest))
    if found <= bound:
        return []
    count = sum(not value <= bound for value in largest)
    return [
        f"{name} {found:.3g} > {bound:.3g} on {worst.case.id} ({worst.case.tokens} tokens, {worst.padding_class} "
        f"padding), and on {count} of {len(differences)} runs in all"
    ]


def is_agreed(difference: compare.Difference, head: heads.Head, bar: bars.Bar) -> bool:
    """Say whether a run counts as agreed: the same decision, or a near tie of the reference."""
    margin = bar.span_tie_margin if head.kind == "token" else bar.tie_margin
    return difference.agrees or difference.margin < margin


def group_by_class(
    differences: Iterable[compare.Difference],
) -> dict[tuple[str, str], list[compare.Difference]]:
    """Group runs by length and padding class, in order of length."""
    groups: dict[tuple[str, str], list[compare.Difference]] = {}
    for difference in sorted(differences, key=lambda difference: difference.case.tokens):
        key = (cases.length_class(difference.case.tokens), difference.padding_class)
        groups.setdefault(key, []).append(difference)
    return groups


def statistics(evidence: Evidence, bar: bars.Bar) -> tuple[record.ClassStatistics, ...]:
    """Describe each class of inputs."""
    found = []
    for (length_class, padding_class), group in group_by_class(evidence.differences).items():
        probability = [difference.probability for difference in group]
        logit = [difference.logit for difference in group]
        agreed = sum(is_agreed(difference, evidence.head, bar) for difference in group)
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
                agreed=agreed,
                near_ties=agreed - sum(difference.agrees for difference in group),
            )
        )
    return tuple(found)


def percentile(values: Sequence[compare.Values], rank: float) -> float:
    """Give the nearest-rank percentile of all numbers, as upstream's records do."""
    return float(np.percentile(np.concatenate(values), rank, method="inverted_cdf"))


def worst_inputs(differences: Sequence[compare.Difference]) -> tuple[record.WorstInput, ...]:
    """Give the inputs that are furthest apart, worst first."""
    ordered = sorted(differences, key=lambda found: (found.agrees, -float(np.max(found.logit))))
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
