"""From checks to a verdict: what they say together, and the record that keeps it."""

from collections.abc import Sequence

from vela.graphs import bundle, digests, errors, record
from vela.serve import device as devices
from vela.verify import bars, naming


def bars_to_state(chosen: bars.Bar, device_kind: str) -> list[bars.Bar]:
    """The deciding bar first, then upstream's, so that every record can be compared with theirs.

    Of reduced copies upstream's bar is the one that decides here too.
    """
    upstream = bars.choose_bar("upstream", device_kind)
    return [chosen] if chosen in (upstream, bars.REDUCED) else [chosen, upstream]


def parity_check(result: record.BarResult, figures: str = "") -> record.Check:
    """Turn what the deciding bar says into a check, with the figures that it may not bound."""
    status: record.CheckStatus = "failed" if result.verdict == "failed" else "passed"
    if result.verdict == "not_compared":
        status = "not_run"
    detail = "; ".join(result.reasons) or "within every bound"
    return record.Check(f"{naming.PARITY}{result.bar}", status, f"{detail} ({figures})" if figures else detail, 0.0)


def decide_verdict(checks: Sequence[record.Check], deciding: record.BarResult) -> record.Verdict:
    """Decide: one failed check fails, one that did not run leaves the graph not compared."""
    if any(check.status == "failed" for check in checks):
        return "failed"
    if deciding.verdict != "passed" or any(check.status != "passed" for check in checks):
        return "not_compared"
    return "passed"


def digest_now(opened: bundle.Bundle, file: str) -> str:
    """Give a file's digest as it lies there now; empty where it is missing."""
    path = opened.path(file)
    return digests.sha256_of_file(path) if path.is_file() else ""


def write_record(opened: bundle.Bundle, found: record.Record, device: devices.Device) -> None:
    """Replace the graph's record for this device; a failed run never leaves an older pass behind."""
    path = opened.folder / record.record_file(found.graph_id, str(device))
    path.parent.mkdir(exist_ok=True)
    staging = path.with_suffix(".partial")
    staging.write_bytes(record.encode_record(found))
    staging.replace(path)


def require_passed(records: Sequence[record.Record]) -> None:
    """Refuse unless every record passed.

    Raises:
        NothingCompared: there is no record, or one could not be compared.
        VerificationFailed: one failed; the first cause is the message.
    """
    failed = [found for found in records if found.verdict == "failed"]
    pending = [found for found in records if found.verdict == "not_compared"]
    if failed:
        raise errors.VerificationFailed(
            failed[0].cause,
            expected=f"{len(records)} graphs that answer like their checkpoint",
            where=f"{failed[0].graph_id} ({len(failed)} of {len(records)} graphs failed)",
            fix="Read the record for figures and inputs; do not publish or serve what failed.",
        )
    if pending or not records:
        raise errors.NothingCompared(
            pending[0].cause if pending else "no graph",
            expected="every graph compared",
            where=pending[0].graph_id if pending else "bundle",
            fix="A graph that was not compared is not verified: mend what stopped it and run again.",
        )
