"""The gate: does each graph of a bundle, on this engine, answer like this checkpoint?

Cheapest checks first: the bundle's files and facts, each graph's static checks, then its answers through serve's own
engine against the reference on identical token ids. One record for each graph and engine; a record says `passed`
only if every check ran and passed. Nothing here knows torch.
"""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vela.graphs import bundle, digests, golden, manifest, record
from vela.serve import buckets
from vela.serve.runtime import installed_build
from vela.verify import (
    answering,
    bars,
    checkpoint,
    copies,
    engine_checks,
    explaining,
    fresh_process,
    golden_writing,
    journal,
    meter,
    plan,
    recording,
    rows,
    runs,
    schedule,
    scoring,
    static_checks,
    verdict,
)
from vela.verify import ground as grounds
from vela.verify.options import GateOptions

Progress = Callable[[str], None]
# Longest case by default: 2,048 tokens cross every window of the family many times, and cost 15 s a run on 2 cores
# for a 307M model; fixed graphs are always judged up to their own length.
DEFAULT_MAX_TOKENS = 2048


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

    def bar_of(self, graph: manifest.Graph) -> bars.Bar:
        """Give the bar that decides about a graph."""
        return bars.choose_bar(self.options.bar, self.options.device.kind, graph.precision)


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
    prepared: schedule.Preparation


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
    name = opened.manifest.model.name
    subject = _Subject(opened, source, digests.digest_of_listing(source.listing()), options)
    graphs = buckets.choose_judged(opened, options.device.kind, options.graph_ids)
    for graph in graphs:
        subject.bar_of(graph)
    progress(f"{name}: static checks of {len(graphs)} graphs")
    static = static_checks.StaticChecks.prepare(opened, source, options.table)
    shared = static.check_bundle()
    checks = {graph.id: (*shared, *static.check_graph(graph)) for graph in graphs}
    going_on = [graph for graph in graphs if not (options.is_fail_fast and _has_failed(checks[graph.id]))]
    parts = [_Part(graph, checks[graph.id]) for graph in graphs]
    if going_on:
        records = _judge_all(subject, parts, going_on, make_references, progress)
    else:
        records = [_record(subject, part, recording.Outcome.nothing(_why_not(part)), started) for part in parts]
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
    asking = grounds.Asking(prepared.references, prepared.seconds_of_case, kept, gauge)
    ground = grounds.Ground.nothing()
    if planned.cases:
        ground = asking.lay(planned.cases, prepared.noise_cases, prepared.pool)
        planned = replace(planned, graphs=tuple(_with_probes(subject, part, ground) for part in planned.graphs))
    finished = _finished(planned, kept, gauge)
    if kept.is_resumed:
        progress(f"resumed: {len(finished)} of {len(parts)} graphs were judged before the interruption")
    waiting = {part.graph.id: part for part in planned.graphs if part.graph.id not in finished}
    fresh = _ask_fresh(subject, prepared, [part for part in waiting.values() if part.kept], gauge)
    judging = _Judging(subject, ground, gauge, prepared)
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
    _keep_golden(subject, ground, records)
    progress(gauge.summary())
    return records


def _keep_golden(subject: _Subject, ground: grounds.Ground, records: Sequence[record.Record]) -> None:
    """Write golden answers where every graph passed on the CPU; take them back where one failed."""
    opened = subject.opened
    if subject.options.device.kind != "cpu":
        return  # what a graph computes is proven on the CPU; elsewhere, how an engine computes it
    wanted = {graph.id for graph in opened.exact_graphs()}
    own = [found for found in records if found.graph_id in wanted]
    if any(found.verdict == "failed" for found in own):
        golden.remove(opened)
    is_whole = {found.graph_id for found in own} == wanted
    has_passed = all(found.verdict == "passed" for found in own)
    if ground.mutants is None or not (is_whole and has_passed):
        return
    origin = golden_writing.Origin(subject.checkpoint_sha256, "vela verify-graph")
    golden.write(opened, golden_writing.make(opened, ground, ground.mutants, origin))


def _with_probes(subject: _Subject, part: plan.GraphPlan, ground: grounds.Ground) -> plan.GraphPlan:
    """Add to a graph's runs those that kill mutants which the others do not."""
    if ground.mutants is None:
        return part
    bar = subject.bar_of(part.graph)
    yardstick = scoring.Yardstick(ground.mutants, subject.source.head, ground.answers, ground.noise, bar)
    added = yardstick.separate(part.graph, part.kept)
    return replace(part, kept=(*part.kept, *added), whole=part.whole + len(added))


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
        "tools": recording.tool_versions(),
    }


def _ask_fresh(
    subject: _Subject, prepared: schedule.Preparation, waiting: Sequence[plan.GraphPlan], gauge: meter.Meter
) -> dict[str, list[engine_checks.FreshAnswer]]:
    """Ask fresh processes about every graph that is still to be judged."""
    if not waiting:
        return {}
    options = subject.options
    asked = {part.graph.id: engine_checks.Chosen.from_plan(part.graph, part.kept).nearest[0] for part in waiting}
    subject_of = fresh_process.Bundled(str(subject.opened.folder))
    pad_id = subject.opened.manifest.tokenizer.pad_id
    request = fresh_process.Request.about(subject_of, pad_id, options.device, options.session, asked)
    with gauge.forward():
        answers = fresh_process.ask_fresh(request, asked, prepared.processes)
    gauge.did("fresh processes", sum(prepared.seconds_of_fresh(part.graph, part.kept) for part in waiting))
    return answers


def _has_failed(checks: Sequence[record.Check]) -> bool:
    return any(check.status == "failed" for check in checks)


def _judge_part(judging: _Judging, part: _Part) -> record.Record:
    """Run a graph, as far as the plan has room for it, and judge what it answered."""
    started = time.monotonic()
    subject, ground, gauge, prepared = judging.subject, judging.ground, judging.gauge, judging.prepared
    outcome = recording.Outcome(answering.Answered.nothing(_why_not(part)), ground, part.planned)
    if outcome.kept:
        expected = answering.Expected(ground.answers, ground.noise, part.fresh, ground.watched)
        seconds = functools.partial(prepared.seconds_of_run, part.graph)
        answered = answering.answer_runs(subject.ask(part.graph), outcome.kept, expected, gauge, seconds)
        gauge.did(f"{part.graph.id} asked again", prepared.seconds_of_checks(part.graph, outcome.kept))
        bar = subject.bar_of(part.graph)
        asked, reading = subject.ask(part.graph), subject.source.architecture
        outcome = explaining.explain(replace(outcome, answered=answered), asked, bar)
        outcome = copies.lay_to_arithmetic(outcome, part.graph, part.static)
        outcome = explaining.locate(outcome, asked, prepared.references, reading, gauge.say)
        outcome = explaining.eliminate(outcome, asked, part.static)
        if part.graph.is_reduced:
            outcome = copies.judge_copy(outcome, asked)
    return _record(subject, part, outcome, started)


def _record(subject: _Subject, part: _Part, outcome: recording.Outcome, started: float) -> record.Record:
    about = recording.About(
        graph_id=part.graph.id,
        graph_sha256=verdict.digest_now(subject.opened, part.graph.file),
        manifest_sha256=subject.opened.manifest_sha256,
        checkpoint_sha256=subject.checkpoint_sha256,
        kind=subject.source.head.kind,
        precision=part.graph.precision,
    )
    device_kind = subject.options.device.kind
    chosen = subject.bar_of(part.graph)
    took = time.monotonic() - started
    left_out = copies.LAWS_OF_FP32 if part.graph.is_reduced else frozenset[str]()
    return recording.make_record(about, part.static, outcome, chosen, device_kind, took, left_out=left_out)


def _why_not(part: _Part) -> str:
    """Say why a graph is not run."""
    if part.planned is None:
        return "static checks failed first"
    needed = plan.say_seconds(part.planned.lowest_s)
    return f"no room in the budget: its {part.planned.minimum} probes and laws alone take about {needed}"
