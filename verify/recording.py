"""Make a record of what was found: one shape for a bundle's graph and for a file of any exporter."""

import datetime
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vela.graphs import contract, heads, mutation, record
from vela.verify import answering, bars, ground, judge, naming, plan, runs, verdict

TOOLS = ("vela-onnx", "numpy", "onnx", "onnx-ir", "tokenizers")


@dataclass(frozen=True, slots=True)
class About:
    """What a record is about.

    Attributes:
        graph_id: The graph, as serve and publish call it.
        graph_sha256: Of its file as it lies there now; empty where it is missing.
        manifest_sha256: Of the bundle's manifest; empty for a single file.
        checkpoint_sha256: Of the reference checkpoint's listing.
        kind: Of the head.
        precision: What the weights were rounded to.
    """

    graph_id: str
    graph_sha256: str
    manifest_sha256: str
    checkpoint_sha256: str
    kind: heads.SurfaceKind
    precision: contract.WeightPrecision | None = "fp32"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a graph was asked and what it answered.

    Attributes:
        answered: Its answers compared, and what was seen of its engine.
        ground: What they were compared with.
        planned: What was to be run; None where static checks ended it.
        mutants: Which mutants its inputs would have shown; None where none were asked.
        diagnosis: What a graph that failed is nearest to.
        speed: What a 16-bit copy gains; None where that was not timed.
    """

    answered: answering.Answered
    ground: ground.Ground
    planned: plan.GraphPlan | None = None
    mutants: mutation.Mutation | None = None
    diagnosis: mutation.Diagnosis | None = None
    speed: record.Speed | None = None

    @classmethod
    def nothing(cls, reason: str, planned: plan.GraphPlan | None = None) -> "Outcome":
        """Say that nothing was run, and why."""
        return cls(answering.Answered.nothing(reason), ground.Ground.nothing(), planned)

    @property
    def kept(self) -> tuple[runs.Run, ...]:
        """The runs that were to be made."""
        return self.planned.kept if self.planned else ()


def tool_versions() -> dict[str, str]:
    """Give the versions of what judged."""
    return {name: importlib.metadata.version(name) for name in TOOLS}


def make_record(
    about: About,
    static: Sequence[record.Check],
    outcome: Outcome,
    chosen: bars.Bar,
    device_kind: str,
    duration_s: float,
    *,
    left_out: frozenset[str] = frozenset(),
) -> record.Record:
    """Judge an outcome and put everything that a verdict rests on into a record.

    Args:
        about: What it is about.
        static: The static checks.
        outcome: What inference gave.
        chosen: The deciding bar.
        device_kind: Where the graph ran, for upstream's bar.
        duration_s: How long it took.
        left_out: Checks of the engine that mean nothing for this graph.
    """
    answered, stand = outcome.answered, outcome.ground
    evidence = judge.Evidence.from_differences(about.kind, answered.differences, len(outcome.kept), stand.noise)
    results = [judge.judge(evidence, bar) for bar in verdict.bars_to_state(chosen, device_kind)]
    made = [check for check in answered.checks if check.name not in left_out]
    checks = (*static, *made, verdict.parity_check(results[0], say_figures(evidence)))
    return record.Record(
        schema_version=record.SCHEMA_VERSION,
        verdict=verdict.decide_verdict(checks, results[0]),
        cause=naming.say(checks, outcome.diagnosis),
        graph_id=about.graph_id,
        graph_sha256=about.graph_sha256,
        manifest_sha256=about.manifest_sha256,
        checkpoint_sha256=about.checkpoint_sha256,
        reference=stand.description,
        reference_noise=stand.noise,
        engine=answered.engine,
        corpus_sha256=runs.digest_of_runs(outcome.kept),
        planned=len(outcome.kept),
        compared=len(answered.differences),
        bar=chosen.name,
        bars=tuple(results),
        checks=checks,
        form=about.kind,
        estimate=outcome.planned.estimate if outcome.planned else record.Estimate(0.0, 0, 0, 0),
        runs=tuple(evidence.runs),
        statistics=judge.count_ties(evidence, chosen),
        worst=judge.worst_inputs(answered.differences),
        tools=tool_versions(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 3),
        precision=about.precision or "unknown",
        mutants=outcome.mutants,
        diagnosis=outcome.diagnosis,
        named=naming.name(checks, outcome.diagnosis),
        speed=outcome.speed,
    )


def say_figures(evidence: judge.Evidence) -> str:
    """Say how far apart the two are, whatever a bar bounds."""
    if not evidence.runs:
        return ""
    if evidence.kind == "embedding":
        cosines = [run.cosine for run in evidence.runs]
        return f"cosine {min(cosines):.7f} at least, {float(np.median(cosines)):.7f} in the middle"
    figures = [run.max_abs_probability for run in evidence.runs]
    agreed = sum(run.agrees for run in evidence.runs)
    middle = float(np.median(figures))
    return f"|Δp| {max(figures):.3g} at most, {middle:.3g} in the middle; {agreed} of {len(figures)} decide alike"
