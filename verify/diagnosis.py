"""Why a graph failed: which mutant of the checkpoint answers like it.

Each mutant is a hypothesis. The graph's answers on its own runs are held against every one of them and against the
checkpoint; a hypothesis is named where it reproduces the graph, several times nearer than any other. Otherwise the
cause is unknown, and what was ruled out is said: a wrong name costs a release engineer more than none.
Source: reference measurements, in which graphs with an injected defect were matched to 4e-7 and the runner-up was 0.13
away; graphs of rounded weights to 1e-3.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from vela.graphs import contract, manifest, mutation
from vela.verify import bars, engine_checks, mutants, plan, reference, runs

MOST_RUNS = 24
MOST_PADDED = 6  # a mutant of padding is asked again for each, since how many pads there are is the run's
# A graph is reproduced within what two implementations differ by, or within this share of its distance to the
# checkpoint: weights that were rounded on top of another fault leave a rest.
REPRODUCED_SHARE = 0.02
MARGIN = 5.0  # by which the runner-up must be further away
MOST_LABELS = 512
# Each suspect is asked anew, so about few and short texts.
SUSPECTED_RUNS, SUSPECTED_TOKENS, FEWEST_SUSPECTED = 6, 256, 2
SUSPECTS_KEPT = 8
UNKNOWN = "cause unknown: "
LABELS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Symptoms:
    """What a failed graph answered.

    Attributes:
        graph: The graph.
        answers: Its own, of runs whose cases mutants were asked; finite or not.
    """

    graph: manifest.Graph
    answers: Mapping[runs.Run, engine_checks.Answer]

    def choose(self) -> list[runs.Run]:
        """Choose runs spread over all lengths whose answers are finite."""
        return runs.evenly(sorted(self._usable(), key=lambda run: (run.case.tokens, run.case.id)), MOST_RUNS)

    def _usable(self) -> list[runs.Run]:
        return [
            run
            for run, answer in self.answers.items()
            if run.poison is None and all(np.isfinite(values).all() for values in answer.values())
        ]

    def choose_differing(self, expected: Mapping[str, reference.Answer], bound: float) -> list[runs.Run]:
        """Choose a few runs that are further from the checkpoint than a bound, short ones if there are."""
        differing = [run for run in self._usable() if _distance(self, {run: expected[run.case.id]}) > bound]
        by_length = sorted(differing, key=lambda run: (run.case.tokens, run.case.id))
        short = [run for run in by_length if run.case.tokens <= SUSPECTED_TOKENS]
        return runs.evenly(short, SUSPECTED_RUNS) or by_length[:FEWEST_SUSPECTED]

    def pads(self, run: runs.Run) -> int:
        """Count the pads of a run's row."""
        return run.width(self.graph) - run.case.tokens


def diagnose(
    found: mutants.Mutants, symptoms: Symptoms, expected: Mapping[str, reference.Answer], noise: float
) -> mutation.Diagnosis | None:
    """Hold a failed graph against every mutant.

    Args:
        found: The mutants with their answers.
        symptoms: What the graph answered.
        expected: The checkpoint's answers, by case id.
        noise: The reference's own.

    Returns:
        The diagnosis; None where no run could be compared.
    """
    chosen = symptoms.choose()
    if not chosen:
        return None
    itself = _distance(symptoms, {run: expected[run.case.id] for run in chosen})
    hypotheses = [mutation.Hypothesis("the checkpoint as it is", None, itself)]
    for measured, original in zip(found.measured, found.originals, strict=True):
        if not measured.answers:
            continue
        if measured.facts.needs_pads:
            answers = _ask_padded(original, symptoms, chosen, expected)
        else:
            answers = {run: measured.answers[run.case.id] for run in chosen}
        distance = _distance(symptoms, answers)
        hypotheses.append(mutation.Hypothesis(measured.facts.statement, measured.facts.cause, distance))
    hypotheses += label_orders(symptoms, expected, chosen)
    hypotheses.sort(key=lambda hypothesis: hypothesis.distance)
    return _name(hypotheses, itself, noise, len(chosen))


def suspect(
    suspects: Sequence[mutants.Mutant],
    symptoms: Symptoms,
    expected: Mapping[str, reference.Answer],
    noise: float,
    tell: Callable[[str], None],
) -> mutation.Diagnosis | None:
    """Hold a failed graph against mutants that were made for the place where it differs.

    Args:
        suspects: The mutants, not asked yet.
        symptoms: What the graph answered.
        expected: The checkpoint's answers, by case id.
        noise: The reference's own.
        tell: Told how many are asked and how long that will take, once the first has answered.

    Returns:
        The diagnosis by these alone; None where there are none, or no run could be compared.
    """
    chosen = symptoms.choose_differing(expected, bars.rewrite_bound(noise))
    if not chosen or not suspects:
        return None
    itself = _distance(symptoms, {run: expected[run.case.id] for run in chosen})
    hypotheses = [mutation.Hypothesis("the checkpoint as it is", None, itself)]
    started = time.monotonic()
    for number, mutant in enumerate(suspects):
        answers = mutant.answer([run.case.ids for run in chosen])
        if number == 0:
            seconds = plan.say_seconds((time.monotonic() - started) * (len(suspects) - 1))
            tell(f"cause not known yet: {len(suspects)} mistakes in that place, {len(chosen)} texts, {seconds}")
        distance = _distance(symptoms, dict(zip(chosen, answers, strict=True)))
        hypotheses.append(mutation.Hypothesis(mutant.facts.statement, mutant.facts.cause, distance))
    hypotheses.sort(key=lambda hypothesis: hypothesis.distance)
    found = _name(hypotheses, itself, noise, len(chosen))
    return msgspec.structs.replace(found, hypotheses=found.hypotheses[:SUSPECTS_KEPT])


def join(found: mutation.Diagnosis, closer: mutation.Diagnosis | None) -> mutation.Diagnosis:
    """Join what mutants told with what those told that were made for one place; the first left the cause unknown.

    A suspect names the cause only where no mutant of another one comes as near: two explanations are none.
    """
    if closer is None:
        return found
    nearest = closer.hypotheses[0].distance
    others = (one for one in found.hypotheses if one.cause not in (None, closer.cause))
    is_alone = all(one.distance >= MARGIN * nearest for one in others)
    mistakes = (one for one in closer.hypotheses if one.cause is not None)  # the checkpoint itself is among the first
    hypotheses = tuple(sorted((*found.hypotheses, *mistakes), key=lambda one: one.distance))
    if closer.cause is None or not is_alone:
        return msgspec.structs.replace(found, hypotheses=hypotheses)
    return msgspec.structs.replace(closer, hypotheses=hypotheses, ways=found.ways)


def _ask_padded(
    original: mutants.Mutant,
    symptoms: Symptoms,
    chosen: Sequence[runs.Run],
    expected: Mapping[str, reference.Answer],
) -> dict[runs.Run, reference.Answer]:
    """Ask a mutant of padding about some padded runs with just their pads; unpadded ones answer as the checkpoint."""
    padded = runs.evenly([run for run in chosen if symptoms.pads(run)], MOST_PADDED)
    answers = {run: expected[run.case.id] for run in chosen if not symptoms.pads(run)}
    for run in padded:
        (answers[run],) = original.answer([run.case.ids], pads=symptoms.pads(run))
    return answers


def label_orders(
    symptoms: Symptoms, expected: Mapping[str, reference.Answer], chosen: Sequence[runs.Run]
) -> list[mutation.Hypothesis]:
    """Give the one other order of labels under which the graph's answers are nearest to the checkpoint's.

    There are too many orders to make a mutant of each, but each column of logits tells which label it is.
    """
    name = contract.LOGITS
    if not all(name in symptoms.answers[run] for run in chosen):
        return []
    found, wanted = (
        np.concatenate([np.atleast_2d(answers(run)[name]) for run in chosen])
        for answers in (symptoms.answers.__getitem__, lambda run: expected[run.case.id])
    )
    if found.shape != wanted.shape or not 2 <= found.shape[1] <= MOST_LABELS:
        return []
    apart = np.array([np.max(np.abs(wanted - found[:, [column]]), axis=0) for column in range(found.shape[1])])
    order = np.argmin(apart, axis=1)
    moved = np.flatnonzero(order != np.arange(len(order)))
    if not moved.size or len({*order.tolist()}) < len(order):
        return []
    pairs = ", ".join(f"{order[column]} at {column}" for column in moved[:LABELS_SHOWN])
    more = f" and {moved.size - LABELS_SHOWN} more" if moved.size > LABELS_SHOWN else ""
    distance = float(np.max(apart[np.arange(len(order)), order]))
    return [mutation.Hypothesis(f"its labels in another order ({pairs}{more})", "label order", distance)]


def _distance(symptoms: Symptoms, expected: Mapping[runs.Run, reference.Answer]) -> float:
    """Give the largest difference between a graph's answers and others to the same runs."""
    return max(
        float(np.max(np.abs(values - answer[name])))
        for run, answer in expected.items()
        for name, values in symptoms.answers[run].items()
    )


def _name(hypotheses: Sequence[mutation.Hypothesis], itself: float, noise: float, count: int) -> mutation.Diagnosis:
    nearest, *others = hypotheses
    # two mutants of one cause that answer alike leave no doubt about the cause
    rivals = [one for one in others if one.cause != nearest.cause]
    runner_up = rivals[0] if rivals else nearest
    tolerated = max(bars.rewrite_bound(noise), REPRODUCED_SHARE * itself)
    is_near, is_alone = nearest.distance <= tolerated, runner_up.distance >= MARGIN * nearest.distance
    if nearest.cause is not None and is_near and is_alone:
        statement = (
            f"{nearest.cause}: it answers like this checkpoint with {nearest.statement}, to {nearest.distance:.1e} on "
            f"{count} runs; the runner-up, {runner_up.statement}, is {runner_up.distance:.2g} away"
        )
        return mutation.Diagnosis(nearest.cause, statement, tuple(hypotheses), count)
    if nearest.cause is None:
        why = "no mutant is nearer than the checkpoint itself"
    elif is_near:
        why = f"{nearest.statement} and {runner_up.statement} reproduce it alike"
    else:
        why = f"the nearest of {len(others)} mutants, {nearest.statement}, is {nearest.distance:.2g} away"
    causes = ", ".join(dict.fromkeys(one.cause for one in hypotheses if one.cause))
    statement = f"{UNKNOWN}{why} (the checkpoint: {itself:.2g}); ruled out as a fault alone: {causes}"
    return mutation.Diagnosis(None, statement, tuple(hypotheses), count)
