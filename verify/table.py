"""The verdict as a table for a terminal, and as one JSON line for a pipe."""

from collections.abc import Iterator, Sequence

import msgspec

from vela.graphs import record

HEADINGS = (
    *("GRAPH", "VERDICT", "COMPARED", "MAX |Δp|", "MAX |Δlogit|", "AGREED", "TIES", "MUTANTS", "UPSTREAM", "SECONDS"),
)


def verdict_table(name: str, records: Sequence[record.Record]) -> Iterator[tuple[str, str]]:
    """Give the lines of the table, each with the verdict that colours it; what did not pass, and why, follows."""
    rows = [HEADINGS, *map(_row, records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    yield f"{name}: {_summary(records)}", _overall(records)
    for row, verdict in zip(rows, ["", *(found.verdict for found in records)], strict=True):
        cells = [row[0].ljust(widths[0]), row[1].ljust(widths[1])]
        cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        yield "  " + "  ".join(cells), verdict
    for (name, detail, verdict), graphs in _open_checks(records).items():
        yield f"  {name} ({', '.join(graphs)}): {detail}", verdict
    for word, graphs in _named(records).items():
        yield f"  cause: {word} ({', '.join(graphs)})", "failed"
    for found in records:
        if found.diagnosis is not None:
            yield f"  why ({found.graph_id}): {found.diagnosis.statement}", found.verdict


def _named(records: Sequence[record.Record]) -> dict[str, list[str]]:
    """Group failed graphs by what is wrong, in one word."""
    groups: dict[str, list[str]] = {}
    for found in records:
        if found.verdict == "failed":
            groups.setdefault(found.named or "unknown", []).append(found.graph_id)
    return groups


def _open_checks(records: Sequence[record.Record]) -> dict[tuple[str, str, str], list[str]]:
    """Group what did not pass by check and finding, so that what all graphs share is said once."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for found in records:
        for check in found.checks:
            if check.status != "passed":
                groups.setdefault((check.name, check.detail, found.verdict), []).append(found.graph_id)
    return groups


def as_json_line(found: record.Record) -> str:
    """Give a record as one line of JSON."""
    return msgspec.json.encode(found).decode()


def _row(found: record.Record) -> tuple[str, ...]:
    groups = found.statistics
    probability = max((group.max_abs_probability for group in groups), default=None)
    logit = max((group.max_abs_logit for group in groups), default=None)
    return (
        found.graph_id,
        found.verdict.replace("_", " "),
        f"{found.compared}/{found.planned}",
        "-" if probability is None else f"{probability:.1e}",
        "-" if logit is None else f"{logit:.1e}",
        f"{sum(group.agreed for group in groups)}/{found.compared}",
        str(sum(group.near_ties for group in groups)),
        found.mutants.score.replace(" of ", "/") if found.mutants else "-",
        found.bars[-1].verdict.replace("_", " "),
        f"{found.duration_s:.1f}",
    )


def _summary(records: Sequence[record.Record]) -> str:
    passed = sum(found.verdict == "passed" for found in records)
    if not records:
        return "no graph judged"
    noise = records[0].reference_noise
    bars = " or ".join(dict.fromkeys(found.bar for found in records))
    return (
        f"{passed} of {len(records)} graphs{_weights(records[0])} passed the {bars} bar on "
        f"{_engine(records[0])} (reference {records[0].reference}; its own noise {noise:.1e})"
    )


def _weights(found: record.Record) -> str:
    """Say what weights were rounded to, where they were."""
    return "" if found.precision in ("fp32", "unknown") else f" of {found.precision} weights"


def _engine(found: record.Record) -> str:
    return f"{found.engine.runtime} {found.engine.version} {found.engine.device}" if found.engine else "no engine"


def _overall(records: Sequence[record.Record]) -> str:
    verdicts = {found.verdict for found in records}
    return "failed" if "failed" in verdicts else "not_compared" if verdicts != {"passed"} else "passed"
