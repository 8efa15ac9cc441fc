"""What lies there already: a bundle, and its verdicts, and whether they are what a release would make again."""

import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from vela.export import bundle_writer
from vela.graphs import bundle as bundles
from vela.graphs import contract, digests, errors, manifest, record, verdicts
from vela.scripts.release import ledger
from vela.serve import device as devices
from vela.serve import runtime
from vela.verify import checkpoint
from vela.verify.options import GateOptions

REPORT = f"{contract.RECORDS_FOLDER}/{contract.REPORT_FILE}"


def verdict_key(manifest_sha256: str, options: GateOptions) -> str:
    """Digest what a verdict rests on besides the machine: the bundle, the device, how it is judged, and the tools."""
    parts = {
        "manifest": manifest_sha256,
        "device": str(options.device),
        "bar": options.bar,
        "max_tokens": str(options.max_tokens),
        "budget": str(options.budget_s),
        "corpus": digests.sha256_of_file(options.corpus) if options.corpus else "",
        **tool_versions(),
    }
    return digests.digest_of_listing(parts)


def tool_versions() -> dict[str, str]:
    """Give the versions of what makes and judges graphs."""
    return {name: importlib.metadata.version(name) for name in bundle_writer.TOOLS} | dict([runtime.installed_build()])


def bundle_as_planned(
    folder: Path, source: checkpoint.Checkpoint, asked: bundle_writer.ExportPlan
) -> bundles.Bundle | None:
    """Open the bundle that lies there, if it is what this plan would make of this checkpoint."""
    if not (folder / contract.MANIFEST_FILE).is_file():
        return None
    try:
        opened = bundles.Bundle.open(folder)
        opened.check_files()
    except errors.VelaError:
        return None
    written, planned = opened.manifest, bundle_writer.plan_graphs(source, asked)
    tools = {name: importlib.metadata.version(name) for name in bundle_writer.TOOLS}
    listing = {name: file.sha256 for name, file in written.sources.items()}
    identity = asked.model_sha256 or digests.digest_of_listing(listing)
    same = (
        listing == source.listing()
        and [graph.id for graph in written.graphs] == [graph.id for graph in planned]
        and {graph.storage for graph in written.graphs} == {asked.storage}
        and _identity(written.model) == (asked.name, asked.repository, asked.revision, identity)
        and written.heads == (source.head,)
        and written.tools == tools
    )
    return opened if same else None


def _identity(model: manifest.Model) -> tuple[str, str, str, str]:
    return model.name, model.repository, model.revision, model.model_sha256


def count_graphs(opened: bundles.Bundle) -> str:
    """Say how many graphs a bundle has, and how large they are."""
    graphs = opened.manifest.graphs
    return f"{len(graphs)} graphs, {sum(graph.size_bytes for graph in graphs):,} bytes"


def graph_line(graph: manifest.Graph) -> ledger.GraphLine:
    """Give the ledger's line of a graph that nothing is proven of yet."""
    return ledger.GraphLine(
        graph.id, graph.target, graph.precision, graph.batch, graph.sequence, graph.size_bytes, graph.sha256
    )


def with_verdict(graph: ledger.GraphLine, device: str, found: Mapping[str, ledger.GraphVerdict]) -> ledger.GraphLine:
    """Add what the gate said of a graph on a device."""
    if graph.id not in found:
        return graph
    return msgspec.structs.replace(graph, verdicts={**graph.verdicts, device: found[graph.id]})


def read_verdicts(
    opened: bundles.Bundle, graph_ids: Sequence[str], device: devices.Device
) -> dict[str, ledger.GraphVerdict]:
    """Read the records of a device as they lie in the bundle.

    Raises:
        NotVerified: a record is missing, damaged, or about other bytes.
    """
    found = {}
    for graph_id in graph_ids:
        evidence = verdicts.read_evidence(opened.folder, record.record_file(graph_id, str(device)))
        verdicts.check_agreement(opened, evidence)
        stored, groups = evidence.record, evidence.record.statistics
        found[graph_id] = ledger.GraphVerdict(
            verdict=stored.verdict,
            cause=stored.cause,
            compared=stored.compared,
            max_abs_probability=max((group.max_abs_probability for group in groups), default=None),
            max_abs_logit=max((group.max_abs_logit for group in groups), default=None),
            mutants=stored.mutants.score if stored.mutants else "",
            seconds=stored.duration_s,
            record=evidence.name,
            record_sha256=evidence.sha256,
        )
    return found


def count_passed(found: Mapping[str, ledger.GraphVerdict]) -> str:
    """Say how many graphs passed."""
    return f"{sum(verdict.verdict == 'passed' for verdict in found.values())} of {len(found)} graphs passed"


def require_passed(opened: bundles.Bundle, found: Mapping[str, ledger.GraphVerdict], device: devices.Device) -> None:
    """Refuse to go on unless every FP32 graph passed; a 16-bit copy without a pass is said and never served.

    Raises:
        VerificationFailed: a graph failed.
        NothingCompared: none failed, and one was not compared.
    """
    copies = {graph.id for graph in opened.manifest.graphs if graph.is_reduced}
    open_ones = {name: verdict for name, verdict in found.items() if verdict.verdict != "passed" and name not in copies}
    failed = [name for name, verdict in open_ones.items() if verdict.verdict == "failed"]
    if not open_ones:
        return
    first = (failed or list(open_ones))[0]
    kind = errors.VerificationFailed if failed else errors.NothingCompared
    raise kind(
        open_ones[first].cause,
        expected=f"{len(found)} graphs on {device} that answer like their checkpoint",
        where=f"{first} ({len(open_ones)} of {len(found)} graphs)",
        fix=f"{REPORT} in its bundle shows figures and inputs. Nothing of it was published.",
    )
