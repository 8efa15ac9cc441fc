"""Judge stored evidence again under another bar, without running anything.

A policy that changes does not cost the hours of a run: a record keeps every figure that a bar looks at. Nothing is
written. What was judged stays as it was judged; whoever wants another verdict on file runs the gate under that bar.
"""

from collections.abc import Sequence

import msgspec

from vela.graphs import bundle, errors, record, verdicts
from vela.serve import buckets
from vela.serve import device as devices
from vela.verify import bars, judge, naming, recording, verdict


def rejudge_bundle(
    opened: bundle.Bundle, bar_name: str, device: str, graph_ids: Sequence[str] = ()
) -> list[record.Record]:
    """Judge a bundle's records of one device again.

    Args:
        opened: The bundle; records that are not about it as it lies there are refused.
        bar_name: As on the command line.
        device: Whose records.
        graph_ids: Graphs to judge; those of that device where empty.

    Raises:
        NothingCompared: a graph has no record of that device.
        NotVerified: a record is stale, of another bundle, or contradicts itself.
    """
    found = {item.record.graph_id: item.record for item in verdicts.read_all_evidence(opened) if _is_of(item, device)}
    kind = devices.Device.parse(device).kind
    wanted = [graph.id for graph in buckets.choose_judged(opened, kind, graph_ids)]
    missing = [graph_id for graph_id in wanted if graph_id not in found]
    if missing:
        raise errors.NothingCompared(
            f"no record of {missing[0]} on {device} ({len(missing)} of {len(wanted)} graphs have none)",
            expected="evidence of every graph",
            where=f"{opened.folder.name}/verification",
            fix="Run `vela verify-graph` without --rejudge first.",
        )
    return [rejudge_record(found[graph_id], bar_name) for graph_id in wanted]


def rejudge_record(stored: record.Record, bar_name: str) -> record.Record:
    """Judge one record's evidence under a bar; its other checks stand as they were found."""
    kind = stored.engine.device.partition(":")[0] if stored.engine else "cpu"
    precision = "fp32" if stored.precision == "unknown" else stored.precision
    chosen = bars.choose_bar(bar_name, kind, precision)
    evidence = judge.Evidence.from_record(stored)
    results = [judge.judge(evidence, bar) for bar in verdict.bars_to_state(chosen, kind)]
    standing = tuple(check for check in stored.checks if not check.name.startswith(naming.PARITY))
    checks = (*standing, verdict.parity_check(results[0], recording.say_figures(evidence)))
    is_failed = results[0].verdict == "failed"  # a diagnosis is of what failed; under this bar nothing may have
    return msgspec.structs.replace(
        stored,
        verdict=verdict.decide_verdict(checks, results[0]),
        cause=naming.say(checks, stored.diagnosis if is_failed else None),
        named=naming.name(checks, stored.diagnosis if is_failed else None),
        bar=chosen.name,
        bars=tuple(results),
        checks=checks,
        statistics=judge.count_ties(evidence, chosen),
    )


def _is_of(item: verdicts.Evidence, device: str) -> bool:
    """Say whether a record was made on a device; one that reached no engine is found by its file's name."""
    made_on = item.record.engine
    expected = record.record_file(item.record.graph_id, device)
    return made_on.device == device if made_on else item.name == expected
