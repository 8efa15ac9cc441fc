"""Explain an outcome: which mutants its inputs would have shown, and, where it failed, which of them it is."""

from dataclasses import replace

import msgspec

from vela.graphs import contract, heads, manifest, mutation, record
from vela.verify import answering, bars, diagnosis, judge, mutants, recording, reference, taps

PROBES = "probes.mutants"


def explain(outcome: recording.Outcome, head: heads.Head, graph: manifest.Graph, bar: bars.Bar) -> recording.Outcome:
    """Add to an outcome what the mutants tell.

    Args:
        outcome: What a graph was asked and answered.
        head: Of the checkpoint.
        graph: The graph.
        bar: The deciding bar.
    """
    stand, answered = outcome.ground, outcome.answered
    if stand.mutants is None or not answered.differences:
        return outcome
    score = mutants.judge_mutants(stand.mutants, head, graph, stand.answers, outcome.kept, stand.noise, bar)
    evidence = judge.Evidence.from_differences(head.kind, answered.differences, len(outcome.kept), stand.noise)
    found = None
    if judge.judge(evidence, bar).verdict == "failed":
        symptoms = diagnosis.Symptoms(graph, answered.watched)
        found = diagnosis.diagnose(stand.mutants, symptoms, stand.answers, stand.noise)
    checks = (*answered.checks, check_probes(score, bar))
    return replace(outcome, answered=replace(answered, checks=checks), mutants=score, diagnosis=found)


def locate(outcome: recording.Outcome, asked: answering.Asked, states: reference.States | None) -> recording.Outcome:
    """Add to the diagnosis of a graph that failed which layer is the first to differ."""
    found = outcome.diagnosis
    if found is None or states is None:
        return outcome
    layers = taps.measure(asked, states, tuple(outcome.answered.watched))
    return replace(
        outcome,
        diagnosis=msgspec.structs.replace(found, layers=layers, statement=f"{found.statement}{taps.say(layers)}"),
    )


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
