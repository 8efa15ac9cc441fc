"""A comparison as a table for a terminal: one row a job, and below it the reasons of those that did not pass."""

from collections.abc import Iterator

from vela.verify.parity import record, verdict

WORDS = {"passed": "PASS", "failed": "FAIL", "not_compared": "NOT COMPARED"}
HEADINGS = ("JOB", "", "INPUTS", "COMPARED", "REJECTED", "AGREED", "TIES", "MAX |Δ|", "P50 MS", "P95 MS")
OTHER: dict[verdict.View, verdict.View] = {"strict": "upstream", "upstream": "strict"}


def parity_table(found: record.ParityRecord, view: verdict.View) -> Iterator[tuple[str, str]]:
    """Give the lines of the table in one view, each with the verdict that colours it.

    Args:
        found: What is shown; `REJECTED` counts inputs that both sides rejected, latencies are baseline → candidate.
        view: Whose figures; the last column is the other view's verdict.
    """
    pairs = list(zip(found.jobs, found.vela.jobs, strict=True))
    rows = [(*HEADINGS, OTHER[view].upper()), *(_row(job, extra, view) for job, extra in pairs)]
    verdicts = ["", *(extra.verdicts[view].verdict for _, extra in pairs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield _summary(found, view), found.vela.verdicts[view]
    for row, colour in zip(rows, verdicts, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        yield ("  " + "  ".join(cells)).rstrip(), colour
    for job, extra in pairs:
        for reason in extra.verdicts[view].reasons:
            yield f"  {job.job}: {reason}", extra.verdicts[view].verdict


def _summary(found: record.ParityRecord, view: verdict.View) -> str:
    passed = sum(extra.verdicts[view].verdict == "passed" for extra in found.vela.jobs)
    sides = found.vela.sides
    between = f": {sides.runtime} against {sides.legacy}" if sides.legacy and sides.runtime else ""
    return f"{passed} of {len(found.jobs)} jobs passed the {view} bar for {found.device_class}{between}"


def _row(job: record.JobRecord, extra: record.JobExtras, view: verdict.View) -> tuple[str, ...]:
    ours = view == "strict"
    delta = extra.max_abs_delta if ours else job.max_abs_delta
    return (
        job.job,
        WORDS[extra.verdicts[view].verdict],
        str(job.inputs),
        str(job.compared),
        str(job.both_rejected),
        f"{extra.agreement if ours else job.agreement:.2%}" if job.compared else "-",
        str(extra.excused if ours else job.near_ties),
        f"{delta:.1e}" if job.compared else "-",
        _latency(job.latency_ms.legacy.p50, job.latency_ms.runtime.p50),
        _latency(job.latency_ms.legacy.p95, job.latency_ms.runtime.p95),
        WORDS[extra.verdicts[OTHER[view]].verdict],
    )


def _latency(baseline: float | None, candidate: float | None) -> str:
    if baseline is candidate is None:
        return "-"
    return "→".join("-" if value is None else f"{value:.1f}" for value in (baseline, candidate))
