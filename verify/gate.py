"""The gate: does each graph of a bundle, on this engine, answer like this checkpoint?

Cheapest checks first: the bundle's files and facts, each graph's static checks, then its answers through serve's own
engine against the reference on identical token ids. One record for each graph and engine; a record says `passed`
only if every check ran and passed. Nothing here knows torch.
"""

import datetime
import functools
import importlib.metadata
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vela.graphs import bundle, digests, manifest, record
from vela.serve.runtime import installed_build
from vela.verify import (
    answering,
    bars,
    checkpoint,
    engine_checks,
    fresh_process,
    journal,
    judge,
    meter,
    plan,
    rows,
    runs,
    schedule,
    static_checks,
    verdict,
)
from vela.verify import ground as grounds
from vela.verify.options import GateOptions

Progress = Callable[[str], None]
# Longest case by default: 2,048 tokens cross every window of the family many times, and cost 15 s a run on 2 cores
# for a 307M model; fixed graphs are always judged up to their own length.
DEFAULT_MAX_TOKENS = 2048
TOOLS = ("vela-onnx", "numpy", "onnx", "onnx-ir", "tokenizers")


@dataclass(frozen=True, slots=True)
class _Subject:
    """A bundle under judgement."""

    opened: bundle.Bundle
    source: checkpoint.Checkpoint
    checkpoint_sha256: str
    options: GateOptions

    def ask(self, graph: manifest.Graph) -> answering.Asked:
        """Name a graph and where it is asked."""
        return answering.Asked(self.opened, graph, self.source.head, self.options.device, self.options.session)


@dataclass(frozen=True, slots=True)
class _Part:
    """One graph on its way to a record.

    Attributes:
        graph: The graph.
        static: Its static checks, the bundle's among them.
        planned: Its runs; None where it got no further.
        fresh: What fresh processes answered.
    """

    graph: manifest.Graph
    static: tuple[record.Check, ...]
    planned: plan.GraphPlan | None = None
    fresh: tuple[engine_checks.FreshAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class _Judging:
    """What every graph is judged with."""

    subject: _Subject
    ground: grounds.Ground
    gauge: meter.Meter
    seconds: Callable[[manifest.Graph, runs.Run], float]


def verify_bundle(
    opened: bundle.Bundle,
    source: checkpoint.Checkpoint,
    make_references: Callable[[], grounds.References],
    options: GateOptions,
    progress: Progress,
) -> list[record.Record]:
    """Judge every graph of a bundle.

    Args:
        opened: The bundle; its files need not be trustworthy.
        source: The reference checkpoint, named apart from the bundle.
        make_references: Loads the reference; not called where no graph gets as far as inference.
        options: How to judge.
        progress: Told what is being done.

    Returns:
        One record for each graph, in the manifest's order. They are also written into the bundle.

    Raises:
        VelaError: nothing could be judged at all.
    """
    started = time.monotonic()
    bars.choose_bar(options.bar, options.device.kind)
    name = opened.manifest.model.name
    subject = _Subject(opened, source, digests.digest_of_listing(source.listing()), options)
    graphs = [opened.graph(graph_id) for graph_id in options.graph_ids] or list(opened.manifest.graphs)
    progress(f"{name}: static checks of {len(graphs)} graphs")
    static = static_checks.StaticChecks.prepare(opened, source)
    shared = static.check_bundle()
    checks = {graph.id: (*shared, *static.check_graph(graph)) for graph in graphs}
    going_on = [graph for graph in graphs if not (options.is_fail_fast and _has_failed(checks[graph.id]))]
    parts = [_Part(graph, checks[graph.id]) for graph in graphs]
    if going_on:
        records = _judge_all(subject, parts, going_on, make_references, progress)
    else:
        nothing = _Judging(subject, grounds.Ground.nothing(), meter.Meter(progress, 0.0), lambda graph, run: 0.0)
        records = [_judge_part(nothing, part) for part in parts]
        for found in records:
            verdict.write_record(opened, found, options.device)
    progress(f"{name}: judged {len(records)} graphs in {time.monotonic() - started:.1f} s")
    return records


def _judge_all(
    subject: _Subject,
    parts: Sequence[_Part],
    going_on: Sequence[manifest.Graph],
    make_references: Callable[[], grounds.References],
    progress: Progress,
) -> list[record.Record]:
    """Plan, ask the reference and fresh processes, and judge graph by graph; what an interrupted run did is kept."""
    options = subject.options
    kept = journal.Journal.open(subject.opened.folder, _journal_facts(subject, parts), is_fresh=options.is_fresh)
    prepared = schedule.Preparation.make(subject.opened, subject.source, going_on, make_references(), options)
    planned = prepared.make_plan(kept.plan())
    kept.keep_plan({part.graph.id: len(part.kept) for part in planned.graphs})
    for line in planned.lines():
        progress(line)
    gauge = meter.Meter(progress, planned.seconds)
    finished = _finished(planned, kept, gauge)
    if kept.is_resumed:
        progress(f"resumed: {len(finished)} of {len(parts)} graphs were judged before the interruption")
    asking = grounds.Asking(prepared.references, prepared.paces, kept, gauge)
    ground = asking.lay(planned.cases, prepared.noise_cases) if planned.cases else grounds.Ground.nothing()
    waiting = {part.graph.id: part for part in planned.graphs if part.graph.id not in finished}
    fresh = _ask_fresh(subject, [part for part in waiting.values() if part.kept], gauge)
    judging = _Judging(subject, ground, gauge, prepared.seconds_of_run)
    records = []
    for part in parts:
        graph_id = part.graph.id
        found = finished.get(graph_id)
        if found is None:
            ready = replace(part, planned=waiting.get(graph_id), fresh=tuple(fresh.get(graph_id, ())))
            found = _judge_part(judging, ready)
            kept.keep_record(found)
        verdict.write_record(subject.opened, found, options.device)
        records.append(found)
    kept.close()
    progress(gauge.summary(planned.seconds))
    return records


def _finished(planned: plan.Plan, kept: journal.Journal, gauge: meter.Meter) -> dict[str, record.Record]:
    """Give the records of an interrupted run that rest on the same runs."""
    found = {}
    for part in planned.graphs:
        stored = kept.finished(part.graph.id, runs.digest_of_runs(part.kept))
        if stored is not None:
            found[part.graph.id] = stored
            gauge.skip(part.seconds)
    return found


def _journal_facts(subject: _Subject, parts: Sequence[_Part]) -> dict[str, object]:
    """List everything that an answer or a verdict depends on; static checks have read every file of the bundle."""
    options = subject.options
    return {
        "manifest": subject.opened.manifest_sha256,
        "graphs": {part.graph.id: verdict.digest_now(subject.opened, part.graph.file) for part in parts},
        "static": [[check.name, check.status, check.detail] for part in parts for check in part.static],
        "checkpoint": subject.checkpoint_sha256,
        "corpus": rows.read_corpus(options.corpus).sha256,
        "engine": [*installed_build(), str(options.device), options.session.threads, options.session.optimise],
        "judging": [options.bar, options.max_tokens, options.budget_s, options.is_fail_fast],
        "tools": {name: importlib.metadata.version(name) for name in TOOLS},
    }


def _ask_fresh(
    subject: _Subject, waiting: Sequence[plan.GraphPlan], gauge: meter.Meter
) -> dict[str, list[engine_checks.FreshAnswer]]:
    """Ask fresh processes about every graph that is still to be judged."""
    if not waiting:
        return {}
    options = subject.options
    asked = {part.graph.id: engine_checks.Chosen.from_plan(part.graph, part.kept).nearest[0] for part in waiting}
    request = fresh_process.Request(
        str(subject.opened.folder),
        str(options.device),
        options.session.threads,
        options.session.optimise,
        tuple(fresh_process.Job.from_run(graph_id, run) for graph_id, run in asked.items()),
    )
    with gauge.forward():
        return fresh_process.ask_fresh(request, asked, schedule.FRESH_PROCESSES)


def _has_failed(checks: Sequence[record.Check]) -> bool:
    return any(check.status == "failed" for check in checks)


def _judge_part(judging: _Judging, part: _Part) -> record.Record:
    """Run a graph and judge what it answered."""
    started = time.monotonic()
    subject, ground = judging.subject, judging.ground
    options = subject.options
    kept = part.planned.kept if part.planned else ()
    answered = answering.Answered.nothing(_why_not(part))
    if kept:
        expected = answering.Expected(ground.answers, ground.noise, part.fresh)
        seconds = functools.partial(judging.seconds, part.graph)
        answered = answering.answer_runs(subject.ask(part.graph), kept, expected, judging.gauge, seconds)
    kind = subject.source.head.kind
    evidence = judge.Evidence.from_differences(kind, answered.differences, len(kept), ground.noise)
    chosen = bars.choose_bar(options.bar, options.device.kind)
    results = [judge.judge(evidence, bar) for bar in verdict.bars_to_state(chosen, options.device.kind)]
    checks = (*part.static, *answered.checks, verdict.parity_check(results[0]))
    return record.Record(
        schema_version=record.SCHEMA_VERSION,
        verdict=verdict.decide_verdict(checks, results[0]),
        cause=verdict.name_cause(checks),
        graph_id=part.graph.id,
        graph_sha256=verdict.digest_now(subject.opened, part.graph.file),
        manifest_sha256=subject.opened.manifest_sha256,
        checkpoint_sha256=subject.checkpoint_sha256,
        reference=ground.description,
        reference_noise=ground.noise,
        engine=answered.engine,
        corpus_sha256=runs.digest_of_runs(kept),
        planned=len(kept),
        compared=len(answered.differences),
        bar=chosen.name,
        bars=tuple(results),
        checks=checks,
        form=kind,
        estimate=part.planned.estimate if part.planned else record.Estimate(0.0, 0, 0, 0),
        runs=tuple(evidence.runs),
        statistics=judge.count_ties(evidence, chosen),
        worst=judge.worst_inputs(answered.differences),
        tools={name: importlib.metadata.version(name) for name in TOOLS},
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - started, 3),
    )


def _why_not(part: _Part) -> str:
    """Say why a graph is not run."""
    if part.planned is None:
        return "static checks failed first"
    needed = plan.say_seconds(part.planned.lowest_s)
    return f"no room in the budget: its {part.planned.minimum} probes and laws alone take about {needed}"
