"""One model through the pipeline: its source, its bundle, its verdicts, its place in the store.

Each step looks at what an earlier run left and keeps it where it was made from the same bytes in the same way. So a
release that was killed goes on where it was, and one that is run twice makes nothing again.
"""

import resource
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from vela.export import bundle_writer, sources, trace, verification
from vela.graphs import attestation, contract, errors
from vela.graphs import bundle as bundles
from vela.graphs import store as stores
from vela.scripts.release import ledger, plan, standing
from vela.serve import buckets
from vela.serve import device as devices
from vela.verify import checkpoint
from vela.verify.report import page, reading

Progress = Callable[[str], None]
Told = Callable[[ledger.ModelLine], None]
KIB = 1024


@dataclass(slots=True)
class Pipeline:
    """What makes models, one after the other; equal architectures share a trace.

    Attributes:
        asked: The plan.
        traces: Of this process.
        progress: Told what is being done.
    """

    asked: plan.ReleasePlan
    traces: trace.TraceCache
    progress: Progress

    def run(self, wanted: plan.Wanted, before: ledger.ModelLine | None, told: Told) -> ledger.ModelLine:
        """Release one model as far as it goes.

        Args:
            wanted: The model.
            before: What an earlier run says of it.
            told: Given the model's line whenever it changes.

        Returns:
            The line at the end: what does not pass is said there and does not stop other models.
        """
        made = _Making(self, wanted, before, told, ledger.ModelLine(wanted.name, "running"))
        try:
            made.release()
        except errors.NothingCompared as problem:
            made.end("not_compared", problem)
        except (errors.VelaError, OSError) as problem:
            made.end("failed", problem)
        return made.line


def release_all(asked: plan.ReleasePlan, progress: Progress, told: Told = lambda line: None) -> list[ledger.ModelLine]:
    """Release models one after the other in this process, without a ledger."""
    pipeline = Pipeline(asked, trace.TraceCache(), progress)
    return [pipeline.run(wanted, None, told) for wanted in asked.models]


@dataclass(slots=True)
class _Making:
    """One model on its way."""

    pipeline: Pipeline
    wanted: plan.Wanted
    before: ledger.ModelLine | None
    told: Told
    line: ledger.ModelLine
    started: float = field(default_factory=time.monotonic)

    @property
    def asked(self) -> plan.ReleasePlan:
        return self.pipeline.asked

    @property
    def folder(self) -> Path:
        return self.asked.bundle(self.wanted)

    def release(self) -> None:
        """Do the steps in order."""
        self._begin("source")
        found = self._find()
        source = checkpoint.Checkpoint.read(found.folder, table=self.asked.table)
        self._change(repository=found.repository, revision=found.revision)
        self._finish(detail=str(found.folder))
        opened = self._export(source, found)
        for device in self.asked.devices:
            self._verify(opened, source, device)
        self._publish(opened)

    def end(self, outcome: ledger.Outcome, problem: Exception) -> None:
        """Say why it went no further."""
        reason = " ".join(str(problem).split())
        state: ledger.State = "failed" if outcome == "failed" else "not_compared"
        self._finish(state, detail=reason)
        self._change(outcome=outcome, reason=reason)

    def _find(self) -> sources.Source:
        if not self.wanted.is_pinned:
            return sources.find_checkpoint(None, self.wanted.folder)
        return sources.find_checkpoint(
            self.wanted.name, self.wanted.folder, self.asked.table, progress=self.pipeline.progress
        )

    def _export(self, source: checkpoint.Checkpoint, found: sources.Source) -> bundles.Bundle:
        self._begin("export")
        planned = self.asked.shapes.plan(found)
        kept = standing.bundle_as_planned(self.folder, source, planned)
        if kept is None:
            if self.folder.exists():
                self.pipeline.progress(f"{self.wanted.name}: its bundle is of other bytes or shapes, and is made again")
                shutil.rmtree(self.folder)
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            kept = bundle_writer.export_bundle(
                source, self.folder, planned, self.pipeline.traces, self.pipeline.progress
            )
            self._finish(detail=standing.count_graphs(kept))
        else:
            self._finish("kept", detail=standing.count_graphs(kept))
        self._change(graphs=tuple(map(standing.graph_line, kept.manifest.graphs)))
        return kept

    def _verify(self, opened: bundles.Bundle, source: checkpoint.Checkpoint, device: devices.Device) -> None:
        name, key = f"verify {device}", standing.verdict_key(opened.manifest_sha256, self.asked.options(device))
        self._begin(name, key)
        judged = buckets.choose_judged(opened, device.kind)
        kept = self._kept_verdicts(name, key, opened, [graph.id for graph in judged], device)
        if kept is None:
            options = self.asked.options(device)
            verification.verify_folder(self.folder, source.folder, options, self.pipeline.progress)
            page.write(self.folder / standing.REPORT, reading.Collected.from_bundle(self.folder))
            kept = standing.read_verdicts(opened, [graph.id for graph in judged], device)
            state: ledger.State = "done"
        else:
            state = "kept"
        self._change(graphs=tuple(standing.with_verdict(graph, str(device), kept) for graph in self.line.graphs))
        standing.require_passed(opened, kept, device)
        self._finish(state, detail=standing.count_passed(kept))

    def _kept_verdicts(
        self, name: str, key: str, opened: bundles.Bundle, graph_ids: Sequence[str], device: devices.Device
    ) -> dict[str, ledger.GraphVerdict] | None:
        """Give the verdicts of an earlier run, if they are still about these bytes and nothing failed then."""
        step = self.before.step(name) if self.before else None
        if self.before is None or step is None or step.key != key or step.state not in ledger.ENDED:
            return None
        stored = {graph.id: graph.verdicts.get(str(device)) for graph in self.before.graphs}
        try:
            found = standing.read_verdicts(opened, graph_ids, device)
        except errors.VelaError:
            return None  # a record is missing or damaged: the gate writes it again
        same = all(stored.get(name) == verdict and verdict.verdict == "passed" for name, verdict in found.items())
        return found if same else None

    def _publish(self, opened: bundles.Bundle) -> None:
        self._begin("publish")
        if self.asked.sign_key is None and (self.folder / contract.ATTESTATION_FILE).is_file():
            attestation.refresh(opened)
        else:
            attestation.write(opened, self.asked.sign_key)
        store = stores.Store.create_or_open(self.asked.store)
        there = store.models().get(opened.manifest.model.name)
        published = store.publish(self.folder)
        was_there = there is not None and there.digest == published.digest
        self._finish("kept" if was_there else "done", detail=published.digest)
        refused = self.line.refused_copies
        reason = f"published without {', '.join(refused)}: copies that did not pass" if refused else ""
        self._change(outcome="published", published=published.digest, reason=reason)

    def _begin(self, name: str, key: str = "") -> None:
        self.started = time.monotonic()
        self.pipeline.progress(f"{self.wanted.name}: {name}")
        self._change(steps=(*self.line.steps, ledger.Step(name, "running", key=key)))

    def _finish(self, state: ledger.State = "done", *, detail: str) -> None:
        """End the running step; one that was kept took as long as when it was done."""
        *others, last = self.line.steps
        if last.state != "running":
            return
        seconds = round(time.monotonic() - self.started, 3)
        earlier = self.before.step(last.name) if self.before and state == "kept" else None
        done = msgspec.structs.replace(
            last, state=state, seconds=earlier.seconds if earlier else seconds, detail=detail
        )
        peak = max(
            self.before.peak_bytes if self.before else 0, KIB * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        )
        self._change(steps=(*others, done), peak_bytes=peak)

    def _change(self, **changes: Any) -> None:
        self.line = msgspec.structs.replace(self.line, **changes)
        self.told(self.line)
