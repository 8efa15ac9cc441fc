"""Explain an outcome: which mutants its inputs would have shown, and, where it failed, which of them it is."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from vela.graphs import contract, mutation, record
from vela.verify import (
    architecture,
    bars,
    diagnosis,
    differential,
    judge,
    naming,
    recording,
    runs,
    scoring,
    taps,
)
from vela.verify import asked as asking
from vela.verify import ground as grounds

PROBES = "probes.mutants"
WORTH_A_LOOK = 0.01  # share of the largest difference from which a run shows the same fault


def explain(outcome: recording.Outcome, asked: asking.Asked, bar: bars.Bar) -> recording.Outcome:
    """Add to an outcome what the mutants tell, and where none does, what other ways of running the graph tell.

    Args:
        outcome: What a graph was asked and answered.
        asked: The graph and where it was asked.
        bar: The deciding bar.
    """
    stand, answered, head = outcome.ground, outcome.answered, asked.head
    if stand.mutants is None or not answered.differences:
        return outcome
    yardstick = scoring.Yardstick(stand.mutants, head, stand.answers, stand.noise, bar)
    score = yardstick.score(asked.graph, outcome.kept)
    evidence = judge.Evidence.from_differences(head.kind, answered.differences, len(outcome.kept), stand.noise)
    found = None
    if judge.judge(evidence, bar).verdict == "failed":
        symptoms = diagnosis.Symptoms(asked.graph, answered.watched)
        found = diagnosis.diagnose(stand.mutants, symptoms, stand.answers, stand.noise)
    if found is not None:
        found = differential.explain(found, asked, answered.watched, stand.answers, stand.noise)
    checks = (*answered.checks, check_probes(score, bar))
    return replace(outcome, answered=replace(answered, checks=checks), mutants=score, diagnosis=found)


def locate(
    outcome: recording.Outcome,
    asked: asking.Asked,
    references: grounds.References,
    reading: architecture.Architecture,
    tell: Callable[[str], None],
) -> recording.Outcome:
    """Add to the diagnosis of a graph that failed which layers are at fault, and look for a mistake in just those.

    Args:
        outcome: What the graph was asked and answered.
        asked: The graph and where it was asked.
        references: The checkpoint's states, and suspects.
        reading: Its architecture.
        tell: Told what is to be done, and how long it will take.
    """
    found = outcome.diagnosis
    if found is None or references.states is None:
        return outcome
    tell(f"{asked.graph.id} failed: comparing its layers' states")
    layers = taps.measure(asked, references.states, reading, runs_that_differ(outcome))
    if found.cause is None:
        stand = outcome.ground
        symptoms = diagnosis.Symptoms(asked.graph, outcome.answered.watched)
        suspects = references.suspects(taps.guilty(layers), asked.graph.exit_layer)
        closer = diagnosis.suspect(suspects, symptoms, stand.answers, stand.noise, tell)
        found = diagnosis.join(found, closer)
    statement = f"{found.statement}{taps.say(layers, asked.graph.exit_layer)}"
    return replace(outcome, diagnosis=msgspec.structs.replace(found, layers=layers, statement=statement))


def eliminate(outcome: recording.Outcome, asked: asking.Asked, static: Sequence[record.Check]) -> recording.Outcome:
    """Say that a graph computes something else, where nothing but that is left.

    Every tensor is the checkpoint's and in its precision, no check knows a cause, the engine answers so in every way
    of running the graph, and no mutant answers like it.

    Args:
        outcome: What the graph was asked and answered.
        asked: The graph and where it was asked.
        static: The static checks.
    """
    found, checks = outcome.diagnosis, (*static, *outcome.answered.checks)
    if found is None or found.cause is not None or naming.name(checks, found) is not None:
        return outcome
    has_weights = any(check.name == naming.IDENTITY and check.status == "passed" for check in checks)
    ways = {differential.UNOPTIMISED} | ({differential.ON_CPU} if asked.device.kind != "cpu" else set())
    if not has_weights or not ways <= {*found.ways}:
        return outcome
    statement = (
        "other computation: every tensor is the checkpoint's, the graph answers so however it is run, and no mistake "
        f"that is known answers like it; {found.statement.removeprefix(diagnosis.UNKNOWN)}"
    )
    return replace(outcome, diagnosis=msgspec.structs.replace(found, cause="other computation", statement=statement))


def runs_that_differ(outcome: recording.Outcome) -> list[runs.Run]:
    """Give the runs whose cases are nearly as far from the checkpoint as the worst: others may not show the fault."""
    apart: dict[str, float] = {}
    for difference in outcome.answered.differences:
        case_id = difference.case.id
        apart[case_id] = max(apart.get(case_id, 0.0), float(np.max(difference.logit)))
    least = WORTH_A_LOOK * max(apart.values(), default=0.0)
    return [run for run in outcome.kept if apart.get(run.case.id, 0.0) >= least]


def lay_to_rounding(outcome: recording.Outcome, precision: contract.WeightPrecision | None) -> recording.Outcome:
    """Name the rounding of a graph whose every tensor is the checkpoint's within it: that is known, not guessed."""
    found = outcome.diagnosis
    if found is None or found.cause is not None or precision in (None, "fp32"):
        return outcome
    statement = f"precision: {precision} weights of this checkpoint, each within its rounding; {found.statement}"
    return replace(outcome, diagnosis=msgspec.structs.replace(found, cause="precision", statement=statement))


def check_probes(score: mutation.Mutation, bar: bars.Bar) -> record.Check:
    """Say whether the inputs could have shown every fault that can be shown.

    Only bars that bound logits by the reference's noise promise that: what a graph computes is proven under those, and
    under others, on a GPU or for rounded weights, how an engine computes it. A mutant that no input moves beyond a
    bound blocks nothing: the bar tolerates it, on an honest graph as on any.
    """
    alive = [f"{mutant.statement} ({mutant.reason})" for mutant in score.of_fate("alive")]
    hidden, tolerated = (len(score.of_fate(fate)) for fate in ("indistinguishable", "tolerated"))
    detail = f"{score.score} mutants that can be killed were, {hidden} cannot be told from the checkpoint"
    if tolerated:
        detail += f", {tolerated} are within the bounds of this bar"
    if alive:
        detail += f"; alive: {'; '.join(alive)}"
    is_open = bool(alive) and bar.logit_floor is not None
    return record.Check(PROBES, "not_run" if is_open else "passed", detail, 0.0)
