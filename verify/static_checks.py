"""The static checks in order, each turned into an entry of the record; none runs a graph.

A check that fails does not stop the others: a release engineer wants to know that a graph has other weights *and* an
edited manifest.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from vela.graphs import bundle, errors, manifest, model_table, record, safetensors_header
from vela.verify import checkpoint, graph_file
from vela.verify.static import (
    bundle_check,
    contract_check,
    dataflow,
    facts_check,
    lint,
    norms,
    reduction,
    rotary,
    weights,
)


@dataclass(frozen=True, slots=True)
class StaticChecks:
    """A bundle and the reference checkpoint, with their weights hashed once for all graphs.

    Attributes:
        opened: The bundle.
        source: The reference checkpoint.
        bundle_weights: What lies in the bundle now; empty where its weight files cannot be read.
        checkpoint_weights: What the reference checkpoint holds.
        table: The pinned models that the bundle may say it is.
    """

    opened: bundle.Bundle
    source: checkpoint.Checkpoint
    bundle_weights: weights.StoredWeights
    checkpoint_weights: weights.StoredWeights
    table: model_table.ModelTable

    @classmethod
    def prepare(cls, opened: bundle.Bundle, source: checkpoint.Checkpoint, table: model_table.ModelTable) -> Self:
        """Hash the weights of both sides."""
        return cls(
            opened,
            source,
            weights.StoredWeights.from_tensors(_tensors_now(opened)),
            weights.StoredWeights.from_tensors(source.weight_tensors()),
            table,
        )

    def check_bundle(self) -> tuple[record.Check, ...]:
        """Check what all graphs share."""
        return (
            run_check("sources.identity", lambda: bundle_check.check_sources(self.opened, self.source)),
            run_check("sources.digests", self._check_digests),
            run_check("manifest.facts", lambda: bundle_check.check_facts(self.opened, self.source, self.table)),
        )

    def check_graph(self, graph: manifest.Graph) -> tuple[record.Check, ...]:
        """Check one graph file.

        What a 16-bit copy computes is checked on the FP32 graph of its shape, once it is seen to be that with casts.
        """
        digest = run_check("graph.digest", lambda: self._check_graph_digest(graph))
        started = time.monotonic()
        try:
            parsed = graph_file.GraphFile.read(self.opened.path(graph.file))
        except errors.VelaError as problem:
            took = round(time.monotonic() - started, 3)
            return digest, record.Check("graph.parse", "failed", str(problem), took, problem.cause)
        architecture = self.source.architecture
        interface = (
            digest,
            run_check(
                "graph.contract",
                lambda: contract_check.check_contract(
                    parsed,
                    graph,
                    self.source.head,
                    hidden_size=architecture.hidden_size,
                    layers=architecture.layers,
                ),
            ),
            run_check("graph.facts", lambda: facts_check.check_graph_facts(parsed, graph, self.bundle_weights)),
            run_check("graph.checker", lambda: contract_check.check_proto(parsed)),
            run_check("graph.types", lambda: contract_check.check_types(parsed, graph)),
            run_check("graph.lint", lambda: lint.lint_graph(parsed, graph.target)),
        )
        if not graph.is_reduced:
            return *interface, *self._check_computation(parsed, graph)
        copied = run_check("graph.reduction", lambda: self._check_reduction(parsed, graph))
        if copied.status != "passed":
            return *interface, copied
        exact = self.opened.exact_of(graph)
        return *interface, copied, *self._check_computation(self._read(exact), exact)

    def _check_computation(self, parsed: graph_file.GraphFile, graph: manifest.Graph) -> tuple[record.Check, ...]:
        """Check what a graph computes, and with which weights."""
        architecture = self.source.architecture
        return (
            run_check("graph.rotary", lambda: rotary.check_rotary(parsed, architecture, graph.exit_layer)),
            run_check(
                "graph.dataflow",
                lambda: dataflow.check_dataflow(
                    parsed, "mean" if architecture.pools_by_mask(self.source.head.decoder) else "attention"
                ),
            ),
            run_check("graph.norms", lambda: norms.check_norms(parsed, architecture.norm_eps)),
            run_check(
                "weights.identity",
                lambda: weights.check_weights(
                    parsed, self.bundle_weights, self.checkpoint_weights, self.source, graph.exit_layer
                ),
            ),
        )

    def _check_reduction(self, parsed: graph_file.GraphFile, graph: manifest.Graph) -> str:
        exact = self.opened.exact_of(graph)
        self.opened.check_files([exact.file])
        return reduction.check_reduction(parsed, self._read(exact), graph.precision)

    def _read(self, graph: manifest.Graph) -> graph_file.GraphFile:
        return graph_file.GraphFile.read(self.opened.path(graph.file))

    def _check_digests(self) -> str:
        self.opened.check_files(self.opened.manifest.sources)
        return f"{len(self.opened.manifest.sources)} files have the manifest's digests"

    def _check_graph_digest(self, graph: manifest.Graph) -> str:
        self.opened.check_files([graph.file])
        return f"sha256 {graph.sha256}"


def run_check(name: str, check: Callable[[], str]) -> record.Check:
    """Run one check; a VelaError is its failure, anything else is a defect of Vela and goes up."""
    started = time.monotonic()
    status: record.CheckStatus = "passed"
    cause = None
    try:
        detail = check()
    except errors.VelaError as problem:
        detail, status, cause = str(problem), "failed", problem.cause
    return record.Check(name, status, detail, round(time.monotonic() - started, 3), cause)


def _tensors_now(opened: bundle.Bundle) -> tuple[manifest.WeightTensor, ...]:
    """Read the bundle's weight files as they are now, whatever the manifest says of them."""
    files = sorted({tensor.file for tensor in opened.manifest.weights})
    try:
        tensors = {name: safetensors_header.read_safetensors_header(opened.path(name)) for name in files}
        return checkpoint.describe_tensors(opened.folder, tensors)
    except (errors.VelaError, OSError):
        return ()  # `sources.digests` names the file; no tensor of it can be matched
