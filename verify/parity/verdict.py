"""From a job's differences to what a bar says of them, in upstream's view or in ours.

Both views are judged by one function: they differ in the figures that they look at (verify/parity/figures.py) and in
the bar (verify/bars.py), which for upstream bounds neither percentiles nor logits. Every bound that is broken becomes
a reason with figure, bound and input.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vela.graphs import record
from vela.verify import bars, cases, judge
from vela.verify.parity import figures, pairing

View = Literal["upstream", "strict"]
SHOWN = 3  # inputs that a reason names
DECISIONS = {"sequence": "labels", "scores": "selected sets", "token": "span sets", "rerank": "places in an order"}
ALL_LENGTHS = "any length"


@dataclass(frozen=True, slots=True)
class Tally:
    """A view's figures of one job under a bar.

    Attributes:
        pairing: The job's inputs.
        view: Which figures count.
        bar: The bounds.
    """

    pairing: pairing.Pairing
    view: View
    bar: bars.Bar

    @property
    def figures(self) -> list[figures.Figures]:
        """Those of each input that was compared, in order."""
        return [_view(each, self.view) for each in self.pairing.differences]

    @property
    def margin(self) -> float:
        """Below it, a decision that differs is a near tie."""
        return self.bar.margin_of(self.pairing.job.kind)

    @property
    def decisions(self) -> int:
        """Decisions compared."""
        return sum(each.decisions for each in self.figures)

    @property
    def lost(self) -> int:
        """Decisions that differ, near ties left out."""
        return sum(each.lost(self.margin) for each in self.figures)

    @property
    def agreement(self) -> float:
        """Share of decisions that agree; 0 where nothing was compared, as upstream has it."""
        if not self.decisions:
            return float(self.pairing.compared > 0)
        return (self.decisions - self.lost) / self.decisions

    @property
    def delta(self) -> float:
        """Largest |Δp|."""
        return max((each.delta for each in self.figures), default=0.0)


def judge_job(tally: Tally) -> record.BarResult:
    """Say whether a job meets a bar; one of which nothing was compared meets none."""
    reasons = tuple(_reasons(tally))
    if not tally.pairing.compared:
        # What only one side answers is a disagreement, also where that is all of it.
        overall: record.Verdict = "failed" if reasons else "not_compared"
        return record.BarResult(tally.bar.name, overall, (_nothing(tally.pairing), *reasons))
    return record.BarResult(tally.bar.name, "failed" if reasons else "passed", reasons)


def lengths(pairs: Sequence[figures.Difference]) -> dict[str, list[figures.Difference]]:
    """Group inputs by length, in order of length; those whose length was not recorded are a group of their own."""
    groups: dict[str, list[figures.Difference]] = {}
    for each in sorted(pairs, key=lambda each: each.tokens or 0):
        name = cases.length_class(each.tokens) if each.tokens else ALL_LENGTHS
        groups.setdefault(name, []).append(each)
    return groups


def percentile_99(pairs: Sequence[figures.Difference], view: View) -> float:
    """Give the nearest-rank 99th percentile of |Δp| over all numbers; 0 where there are none."""
    values = np.concatenate([np.zeros(0), *(_view(each, view).values for each in pairs)])
    return judge.percentile([values], 99) if values.size else 0.0


def _view(difference: figures.Difference, view: View) -> figures.Figures:
    return difference.upstream if view == "upstream" else difference.strict


def _nothing(pairing: pairing.Pairing) -> str:
    rejected = f", {pairing.both_rejected} rejected by both sides" if pairing.both_rejected else ""
    return f"none of {len(pairing.job.inputs)} inputs compared{rejected}"


def _reasons(tally: Tally) -> Iterator[str]:
    yield from _blocks(tally.pairing)
    if not tally.pairing.compared:
        return
    yield from _decisions(tally)
    if tally.pairing.job.kind == "embedding":
        yield from _exceeding(tally, "|Δ| of unit vectors", tally.bar.embedding_difference)
        yield from _cosines(tally)
    else:
        yield from _exceeding(tally, "|Δp|", tally.bar.max_probability)
        yield from _percentiles(tally)
    yield from _logits(tally)


def _blocks(pairing: pairing.Pairing) -> Iterator[str]:
    found = pairing.all_blocks()
    for reason, count in Counter(block.reason for _, block in found).items():
        first, block = next(pair for pair in found if pair[1].reason == reason)
        more = f", and {count - 1} more" if count > 1 else ""
        yield f"{reason}: {block.detail} ({first}{more})"


def _decisions(tally: Tally) -> Iterator[str]:
    kind = tally.pairing.job.kind
    allowed = judge.allowed_disagreements(tally.bar.rate_of(kind), tally.decisions)
    if tally.lost > allowed:
        pairs = zip(tally.pairing.differences, tally.figures, strict=True)
        ids = [each.id for each, found in pairs if found.lost(tally.margin)]
        shown = ", ".join(ids[:SHOWN]) + (", …" if len(ids) > SHOWN else "")
        what = DECISIONS.get(kind, "answers")
        yield f"{tally.lost} of {tally.decisions} {what} differ where {allowed} may: {shown}"


def _exceeding(tally: Tally, name: str, bound: float) -> Iterator[str]:
    found = [each.delta for each in tally.figures]
    worst = int(np.argmax(found))
    if not found[worst] <= bound:
        count = sum(not delta <= bound for delta in found)
        where = tally.pairing.differences[worst].id
        yield f"{name} {found[worst]:.3g} > {bound:g} on {where}, and on {count} of {len(found)} inputs in all"


def _cosines(tally: Tally) -> Iterator[str]:
    bound = tally.bar.embedding_cosine
    cosines = [(each.cosine, each.id) for each in tally.pairing.differences if each.cosine is not None]
    worst, where = min(cosines, default=(1.0, ""))
    if not worst >= bound:
        yield f"cosine {worst:.7f} < {bound} on {where}"


def _percentiles(tally: Tally) -> Iterator[str]:
    bound = tally.bar.p99_probability
    if bound is None:
        return
    for name, group in lengths(tally.pairing.differences).items():
        found = percentile_99(group, tally.view)
        if not found <= bound:
            yield f"99th percentile of |Δp| {found:.3g} > {bound:g} on {len(group)} inputs of {name}"


def _logits(tally: Tally) -> Iterator[str]:
    """Bound logits where both sides recorded them and the noise that the bound rests on is known."""
    noise = tally.pairing.job.logit_noise
    bound = None if noise is None else tally.bar.logit_bound(noise)
    found = [(each.logit, each.id) for each in tally.pairing.differences if each.logit is not None]
    if bound is None or not found:
        return
    worst, where = max(found)
    if not worst <= bound:
        yield f"|Δlogit| {worst:.3g} > {bound:.3g} on {where}"
