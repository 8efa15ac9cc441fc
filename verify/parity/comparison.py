"""Compare two recordings, job by job, and state what was found in a record. Nothing is run, nothing is written."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from vela.graphs import errors
from vela.graphs import record as records
from vela.verify import bars
from vela.verify.parity import figures, jobs, lines, pairing, record, recording, verdict

CLASSES: dict[record.DeviceClass, tuple[bars.Bar, bars.Bar]] = {
    "cpu": (bars.CPU, bars.STRICT),
    "rocm": (bars.GPU, bars.STRICT_GPU),
    # There is one bar for reduced copies; our view of the answers is still the stricter one.
    "reduced": (bars.REDUCED, bars.REDUCED),
}
VIEWS: tuple[verdict.View, ...] = ("upstream", "strict")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides that were asked the same.

    Attributes:
        plan: What they were asked.
        baseline: The side that is taken as right.
        candidate: The side that is judged.
    """

    plan: jobs.Plan
    baseline: recording.Recording
    candidate: recording.Recording

    @classmethod
    def from_recordings(
        cls, baseline: recording.Recording, candidate: recording.Recording, plan: jobs.Plan | None = None
    ) -> Self:
        """Check that both were asked the same.

        Args:
            baseline: As it was read.
            candidate: As it was read.
            plan: What they were asked, where a file has no header.

        Raises:
            VerificationError: they were not.
        """
        headers = baseline.header, candidate.header
        if headers[0] is not None and headers[1] is not None:
            recording.require_same(headers[1].plan, headers[0].plan, "the candidate's header", "the baseline's header")
        asked = headers[0].plan if headers[0] is not None else plan
        if asked is None:
            raise ValueError("a baseline without a header needs a plan")
        return cls(asked, baseline, candidate)


def compare(comparison: Comparison, device_class: record.DeviceClass) -> record.ParityRecord:
    """Judge the candidate against the baseline, under upstream's bar and under Vela's."""
    sides = comparison.candidate, comparison.baseline
    pairings = [pairing.Pairing.from_recordings(job, *sides) for job in comparison.plan.jobs]
    upstream, strict = CLASSES[device_class]
    tallies = [
        (verdict.Tally(found, "upstream", upstream), verdict.Tally(found, "strict", strict)) for found in pairings
    ]
    extras = tuple(_extras(*pair, _revisions(pair[0].pairing.job.job, comparison)) for pair in tallies)
    return record.ParityRecord(
        format=record.FORMAT,
        baseline="runtime" if device_class == "reduced" else "legacy",
        device_class=device_class,
        thresholds=record.Thresholds(
            upstream.max_probability, upstream.tie_margin, upstream.decision_rate, upstream.span_rate
        ),
        inputs_sha256=comparison.plan.inputs_sha256,
        context={name: dict(found.header.context) for name, found in _named(comparison) if found.header},
        jobs=tuple(_job(pair[0], comparison) for pair in tallies),
        passed=_overall(extras, "upstream") == "passed",
        vela=record.Extras(
            sides=record.Sides(*(found.header.side if found.header else "" for _, found in _named(comparison))),
            verdicts={view: _overall(extras, view) for view in VIEWS},
            bars={"upstream": upstream.name, "strict": strict.name},
            jobs=extras,
        ),
    )


def require_passed(found: record.ParityRecord, view: verdict.View) -> None:
    """Refuse unless every job meets the bar.

    Raises:
        NothingCompared: there is no job, or one of which nothing was compared.
        VerificationFailed: a job failed; its first reason is the message.
    """
    overall = found.vela.verdicts[view]
    if overall == "passed":
        return
    open_jobs = [each for each in found.vela.jobs if each.verdicts[view].verdict == overall]
    reasons = open_jobs[0].verdicts[view].reasons if open_jobs else ("no job",)
    where = f"{open_jobs[0].job} ({len(open_jobs)} of {len(found.jobs)} jobs)" if open_jobs else "the plan"
    if overall == "failed":
        raise errors.VerificationFailed(
            reasons[0],
            expected=f"answers within the {found.vela.bars[view]} bar",
            where=where,
            fix="--json lists every disagreement with its input's id.",
        )
    raise errors.NothingCompared(
        reasons[0],
        expected="every job compared",
        where=where,
        fix="Inputs that both sides reject prove nothing: record others, or with other options.",
    )


def percentile_ms(latency_ns: Sequence[int], rank: float) -> float | None:
    """Give the nearest-rank percentile, rounded up as upstream does; None where nothing was timed."""
    ordered = sorted(latency_ns)
    return ordered[max(0, math.ceil(rank * len(ordered)) - 1)] / 1e6 if ordered else None


def _named(comparison: Comparison) -> list[tuple[str, recording.Recording]]:
    return [("legacy", comparison.baseline), ("runtime", comparison.candidate)]


def _overall(extras: Sequence[record.JobExtras], view: verdict.View) -> records.Verdict:
    found = {each.verdicts[view].verdict for each in extras}
    return "failed" if "failed" in found else "passed" if found == {"passed"} else "not_compared"


def _job(tally: verdict.Tally, comparison: Comparison) -> record.JobRecord:
    """State a job in upstream's shape."""
    pairs = tally.pairing
    job = pairs.job
    is_near = [each.margin < tally.bar.tie_margin for each in pairs.differences]
    return record.JobRecord(
        job=job.job,
        model=job.model,
        revision=job.revision,
        mode=job.mode,
        options=record.Options(job.options.max_tokens, job.options.overflow, job.options.window),
        inputs=len(job.inputs),
        compared=pairs.compared,
        both_rejected=pairs.both_rejected,
        agreement=tally.agreement,
        near_ties=sum(is_near),
        max_abs_delta=tally.delta,
        passed=verdict.judge_job(tally).verdict == "passed",
        disagreements=tuple(_disagreements(tally)),
        latency_ms=record.Sides(*(_quantiles(each) for each in pairs.latency_ns)),
        throughput=record.Sides(*(_throughput(each.loads.get(job.job)) for _, each in _named(comparison))),
    )


def _disagreements(tally: verdict.Tally) -> Iterator[record.Disagreement]:
    """List what differs, in the order of the inputs."""
    pairs = tally.pairing
    differences = {each.id: each for each in pairs.differences}
    blocks: dict[str, list[figures.Blocked]] = {}
    for item_id, block in pairs.all_blocks():
        blocks.setdefault(item_id, []).append(block)
    for item_id in pairs.job.inputs:
        for block in blocks.get(item_id, ()):
            yield record.Disagreement(
                item_id, block.reason, legacy=block.expected, runtime=block.actual, detail=block.detail
            )
        if item_id in differences:
            yield from _differing(differences[item_id], tally)


def _differing(each: figures.Difference, tally: verdict.Tally) -> Iterator[record.Disagreement]:
    kind, found = tally.pairing.job.kind, each.upstream
    is_comparable = not any(block.reason in ("non-finite", "shape") for block in each.blocks)
    if kind == "sequence" and found.flips.size and is_comparable:
        yield record.Disagreement(each.id, "label", near_tie=each.margin < tally.bar.tie_margin, delta=found.delta)
    if kind == "rerank" and found.lost(tally.margin) and is_comparable:
        turned = f"{found.lost(tally.margin)} of {found.decisions} pairs of documents change places"
        yield record.Disagreement(each.id, "order", delta=found.delta, detail=turned)
    if each.expected_only or each.actual_only:
        yield record.Disagreement(each.id, "spans", legacy_only=each.expected_only, runtime_only=each.actual_only)
    bound = tally.bar.embedding_difference if kind == "embedding" else tally.bar.max_probability
    if kind != "token" and found.delta > bound:
        yield record.Disagreement(each.id, "probability", delta=found.delta)


def _quantiles(latency_ns: Sequence[int]) -> record.Quantiles:
    return record.Quantiles(percentile_ms(latency_ns, 0.5), percentile_ms(latency_ns, 0.95))


def _throughput(load: lines.Load | None) -> record.Throughput | None:
    if load is None:
        return None
    quantiles = _quantiles(load.latency_ns)
    return record.Throughput(load.concurrency, load.calls / load.seconds, quantiles.p50, quantiles.p95)


def _revisions(name: str, comparison: Comparison) -> record.Sides[str]:
    """Give which model each side says that it asked."""
    stated = [
        next((job.revision for job in found.header.jobs if job.job == name), "") if found.header else ""
        for _, found in _named(comparison)
    ]
    return record.Sides(*stated)


def _extras(upstream: verdict.Tally, strict: verdict.Tally, revisions: record.Sides[str]) -> record.JobExtras:
    pairs = strict.pairing
    selects = [each.selects for each in pairs.differences if each.selects is not None]
    flips = sum(each.flips.size for each in strict.figures)
    return record.JobExtras(
        job=pairs.job.job,
        revisions=revisions,
        verdicts={"upstream": verdict.judge_job(upstream), "strict": verdict.judge_job(strict)},
        agreement=strict.agreement,
        excused=flips - strict.lost,
        max_abs_delta=strict.delta,
        p99_abs_delta=verdict.percentile_99(pairs.differences, "strict"),
        max_abs_logit=max((each.logit for each in pairs.differences if each.logit is not None), default=None),
        min_cosine=min((each.cosine for each in pairs.differences if each.cosine is not None), default=None),
        selected_compared=len(selects),
        selected_differ=selects.count(False),
        lengths=tuple(_length(name, group, strict) for name, group in verdict.lengths(pairs.differences).items()),
    )


def _length(name: str, group: Sequence[figures.Difference], tally: verdict.Tally) -> record.LengthRecord:
    agreed = sum(not each.strict.lost(tally.margin) for each in group)
    delta = max(each.strict.delta for each in group)
    return record.LengthRecord(name, len(group), agreed, delta, verdict.percentile_99(group, "strict"))
