"""What records prove: which graphs of a bundle answered like the checkpoint, on which engines.

Publish refuses a bundle without a pass on the CPU for every graph, serve refuses an engine that no record names. Both
ask here, so they cannot disagree. The rules are pure: manifest and records in, verdict out; reading files is apart,
at the end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vela.graphs import bundle as bundles
from vela.graphs import contract, digests, errors, manifest, member
from vela.graphs import record as records

CPU_PROVIDER = "CPUExecutionProvider"
CPU_KIND = "cpu"
# What a pass of a 16-bit copy rests on besides its answers. Source: verify/copies.py and verify/static/reduction.py.
COPY_CHECKS = frozenset({"graph.reduction", "exact.verified", "engine.faster"})


@dataclass(frozen=True, slots=True)
class Evidence:
    """A record as it was read.

    Attributes:
        root: The folder it was read from.
        name: Its file name in that folder.
        sha256: Digest of the bytes that were decoded.
        record: What it says.
    """

    root: Path
    name: str
    sha256: str
    record: records.Record


@dataclass(frozen=True, slots=True, order=True)
class Proof:
    """An engine that a graph was proven on.

    Attributes:
        device_kind: `cpu`, `migraphx`, `rocm` or `cuda`.
        provider: ONNX Runtime's name of the execution provider.
        version: ONNX Runtime's version.
        architecture: Instruction set of the CPU, gfx or compute capability of the GPU.
    """

    device_kind: str
    provider: str
    version: str
    architecture: str

    def __str__(self) -> str:
        return f"{self.device_kind} ({self.provider}, ONNX Runtime {self.version}, {self.architecture})"


def check_agreement(bundle: bundles.Bundle, evidence: Evidence) -> None:
    """Refuse a record that is not about this bundle as it lies there, or that contradicts itself.

    Raises:
        NotVerified: with the record's name, what it says and what the bundle says.
    """
    record, where = evidence.record, evidence.name
    if record.manifest_sha256 != bundle.manifest_sha256:
        found, expected = f"manifest {record.manifest_sha256}", f"manifest {bundle.manifest_sha256}"
        raise _refused(f"a record for {found}: stale, or of another bundle", expected, where)
    graphs = {graph.id: graph.sha256 for graph in bundle.manifest.graphs}
    if record.graph_id not in graphs:
        raise _refused(f"a record for the graph {record.graph_id!r}", f"one of {', '.join(graphs)}", where)
    if record.graph_sha256 != graphs[record.graph_id]:
        raise _refused(f"a record for graph file {record.graph_sha256}", f"{graphs[record.graph_id]}", where)
    graph = bundle.graph(record.graph_id)
    if record.verdict == "passed" and (problem := contradiction(record) or _lacking(record, graph)):
        raise _refused(f"a record that says passed with {problem}", "a pass with its evidence", where)


def contradiction(record: records.Record) -> str | None:
    """Say what in a record speaks against its pass; a stage that was not run is never a pass."""
    unfinished = [check.name for check in record.checks if check.status != "passed"]
    broken = [bar.bar for bar in record.bars if bar.bar == record.bar and bar.verdict != "passed"]
    if record.engine is None:
        return "no engine"
    if record.compared < max(1, record.planned):
        return f"{record.compared} of {record.planned} cases compared"
    if record.compared < record.estimate.minimum:
        return f"{record.compared} cases compared where {record.estimate.minimum} are the least"
    if not record.checks or unfinished:
        return f"checks that did not pass: {', '.join(unfinished) or 'none was made'}"
    if broken:
        return f"the deciding bar {record.bar!r} not passed"
    return None


def _lacking(record: records.Record, graph: manifest.Graph) -> str | None:
    """Say what a pass lacks for its kind of graph: a copy's rests on more than answers, another's on exact ones."""
    if record.precision != graph.precision:
        return f"precision {record.precision} of a graph in {graph.precision}"
    if not graph.is_reduced:
        return "the bar of reduced weights for a graph in fp32" if record.bar == "reduced" else None
    missing = COPY_CHECKS - {check.name for check in record.checks}
    if missing or record.speed is None or not record.statistics:
        return f"no {', '.join(sorted(missing)) or 'figures'}, which a 16-bit copy needs"
    return None


def passing(found: Iterable[records.Record]) -> list[records.Record]:
    """Keep the records that prove something: passes that no failure on the same engine takes back.

    Two records of a graph on one provider and ONNX Runtime version that disagree prove nothing; which of them is
    right is for the gate to find out, not for whoever adds a file.
    """
    everything = list(found)
    failed = {_engine_key(record) for record in everything if record.verdict == "failed"}
    return [record for record in everything if record.verdict == "passed" and _engine_key(record) not in failed]


def proofs(found: Iterable[records.Record]) -> dict[str, tuple[Proof, ...]]:
    """List for each graph id the engines it was proven on, sorted; a graph without a proof has no entry."""
    listed: dict[str, set[Proof]] = {}
    for record in passing(found):
        if record.engine is not None:
            facts = record.engine
            proof = Proof(_kind(facts.device), facts.provider, facts.version, facts.architecture)
            listed.setdefault(record.graph_id, set()).add(proof)
    return {graph_id: tuple(sorted(found)) for graph_id, found in listed.items()}


def passes_on(
    found: Iterable[records.Record], provider: str, device_kind: str, *, version: str | None = None
) -> dict[str, records.Record]:
    """Give for each graph id the record that proves it on an engine, the latest of several.

    Args:
        found: Records of one bundle.
        provider: ONNX Runtime's name of the execution provider.
        device_kind: `cpu`, `migraphx`, `rocm` or `cuda`.
        version: ONNX Runtime's version; None takes a proof by any version.
    """
    proven = {}
    for record in sorted(passing(found), key=lambda record: record.created):
        facts = record.engine
        if facts is None or version not in (None, facts.version):
            continue
        if (facts.provider, _kind(facts.device)) == (provider, device_kind):
            proven[record.graph_id] = record
    return proven


def check_publishable(bundle: bundles.Bundle, evidence: Sequence[Evidence]) -> None:
    """Refuse a bundle unless every record agrees with it and every FP32 graph passed on the CPU.

    16-bit copies are for engines that gain by them. One without a pass is published and never served.

    Raises:
        NotVerified: names the record that does not agree, or the graph without a pass and why.
    """
    for item in evidence:
        check_agreement(bundle, item)
    graph_ids = [graph.id for graph in bundle.exact_graphs()]
    if not graph_ids:
        raise _refused("a bundle without FP32 graphs", "at least one graph", bundle.folder.name)
    check_proven([item.record for item in evidence], graph_ids, CPU_PROVIDER, CPU_KIND, where=bundle.folder.name)


def check_proven(
    found: Sequence[records.Record],
    graph_ids: Iterable[str],
    provider: str,
    device_kind: str,
    *,
    version: str | None = None,
    where: str = "bundle",
) -> None:
    """Refuse graphs that have no pass on an engine.

    Raises:
        NotVerified: names the first such graph, what its records say, and how to get a verdict.
    """
    listed = proofs(found)
    for graph_id in graph_ids:
        known = listed.get(graph_id, ())
        if any(_covers(proof, provider, device_kind, version) for proof in known):
            continue
        verdicts = [verdict_in_words(record) for record in found if record.graph_id == graph_id]
        raise errors.NotVerified(
            f"graph {graph_id!r} with {'; '.join(verdicts) or 'no record'}",
            expected=f"a pass on {device_kind} ({provider}{f', ONNX Runtime {version}' if version else ''})",
            where=where,
            fix=f"Run `vela verify-graph` on the bundle with --device {device_kind}; a failed record names its cause.",
        )


def _covers(proof: Proof, provider: str, device_kind: str, version: str | None) -> bool:
    return (proof.provider, proof.device_kind) == (provider, device_kind) and version in (None, proof.version)


def verdict_in_words(record: records.Record) -> str:
    """Say what a record says, where it was made, and why."""
    facts = record.engine
    engine = f"{facts.device} ({facts.provider}, ONNX Runtime {facts.version})" if facts else "no engine"
    cause = f": {record.cause}" if record.cause else ""
    return f"{record.verdict.replace('_', ' ')} on {engine}{cause}"


def _engine_key(record: records.Record) -> tuple[str, str, str, str]:
    facts = record.engine
    return (record.graph_id, facts.provider, facts.version, _kind(facts.device)) if facts else (record.graph_id, *"---")


def _kind(device: str) -> str:
    return device.partition(":")[0]


def read_evidence(root: Path, name: str) -> Evidence:
    """Read one record of bounded size, without following a link.

    Raises:
        NotVerified: it is missing, too large, not a record, of another schema version, or contradicts itself.
    """
    try:
        content = member.read_member(root, name, records.RECORD_LIMIT_BYTES)
        record = msgspec.json.decode(content, type=records.Record)
    except OSError as cause:
        raise _refused(member.describe(cause, root, name), "a record of the gate", name) from cause
    except (msgspec.MsgspecError, ValueError, RecursionError) as cause:
        raise _refused(f"content that is no record ({cause})", "a record of the gate", name) from cause
    if record.schema_version != records.SCHEMA_VERSION:
        raise _refused(f"schema version {record.schema_version}", f"version {records.SCHEMA_VERSION}", name)
    return Evidence(root, name, digests.sha256_of_bytes(content), record)


def read_all_evidence(bundle: bundles.Bundle) -> tuple[Evidence, ...]:
    """Read every record of a bundle, sorted by file name; a bundle that was never judged has none.

    Raises:
        NotVerified: a record cannot be read or does not agree with the bundle; it is named.
    """
    folder = bundle.folder / contract.RECORDS_FOLDER
    names = sorted(path.name for path in folder.glob("*.json")) if folder.is_dir() else []
    evidence = tuple(read_evidence(bundle.folder, f"{contract.RECORDS_FOLDER}/{name}") for name in names)
    for item in evidence:
        check_agreement(bundle, item)
    return evidence


def passing_records(bundle: bundles.Bundle) -> list[records.Record]:
    """Read a bundle's records and give those that prove something.

    Raises:
        NotVerified: a record cannot be read or does not agree with the bundle; it is named.
    """
    return passing(item.record for item in read_all_evidence(bundle))


def require_verified(
    bundle: bundles.Bundle, graph_ids: Iterable[str], provider: str, device_kind: str, *, version: str | None = None
) -> None:
    """Refuse graphs that are not proven on an engine.

    Args:
        bundle: The opened bundle.
        graph_ids: The graphs that are about to run.
        provider: ONNX Runtime's name of the execution provider.
        device_kind: `cpu`, `migraphx`, `rocm` or `cuda`.
        version: ONNX Runtime's version; None takes a proof by any version.

    Raises:
        NotVerified: a graph has no pass there, or a record does not agree with the bundle.
    """
    found = [item.record for item in read_all_evidence(bundle)]
    check_proven(found, graph_ids, provider, device_kind, version=version, where=bundle.folder.name)


def _refused(found: str, expected: str, where: str) -> errors.NotVerified:
    return errors.NotVerified(
        found, expected=expected, where=where, fix="Remove that record and run `vela verify-graph` on the bundle again."
    )
