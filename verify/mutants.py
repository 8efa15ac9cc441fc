"""Mutants, as the gate sees them: the checkpoint with one mistake, asked like the checkpoint itself.

`export/mutants.py` makes them with PyTorch from the checkpoint's own config. Here they are measured: on a pool of
inputs, how far each answers from the checkpoint; and for a graph, which of them its own inputs would have shown.
Source: reference measurements of injected defects: eight chosen inputs show what hundreds of short ones do not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vela.graphs import causes, heads, manifest, mutation
from vela.verify import bars, cases, compare, judge, reference, runs

POOL_TOKENS = 512  # four windows of the family; a longer input shows no mutant that these do not
POOL_CASES = 32
FEWEST_CASES = 8  # a smaller pool says nothing of a score
OF_EACH_GRAPH = 3  # of what each graph is always asked: the shortest, the longest that fits a pool, and one between
# Below this multiple of the reference's own noise a mutant cannot be told from the checkpoint by any answer.
NOISE_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What a mutant is.

    Attributes:
        statement: What is wrong with it, for people.
        cause: Of which kind that is.
        seen_by: A static check that sees this fault in a graph whatever the inputs are; else empty.
        equal_because: Why this checkpoint's config makes it the checkpoint itself; such a mutant is not asked.
        needs_pads: Whether it differs on padded rows only.
    """

    statement: str
    cause: causes.Cause
    seen_by: str = ""
    equal_because: str = ""
    needs_pads: bool = False


class Mutant(Protocol):
    """The checkpoint with one mistake."""

    @property
    def facts(self) -> Facts:
        """What it is."""
        ...

    def answer(self, rows: Sequence[tuple[int, ...]], *, pads: int = 0) -> list[reference.Answer]:
        """Answer each row of token ids.

        Args:
            rows: Token ids.
            pads: Tokens of padding behind each row, for mutants that need them; others ignore it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Pool:
    """The inputs that mutants are asked.

    Attributes:
        cases: Of every length up to `POOL_TOKENS`.
        pads: Padding behind each, for mutants that need it: more than a whole local window.
    """

    cases: tuple[cases.Case, ...]
    pads: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One mutant's answers to the pool.

    Attributes:
        facts: What it is.
        answers: By case id; empty where config makes it equal.
    """

    facts: Facts
    answers: Mapping[str, reference.Answer]


@dataclass(frozen=True, slots=True)
class Mutants:
    """All mutants of a checkpoint, measured.

    Attributes:
        pool: What they were asked.
        measured: Each with its answers.
        originals: The mutants themselves, to be asked again about runs of a graph that failed.
    """

    pool: Pool
    measured: tuple[Measured, ...]
    originals: tuple[Mutant, ...]


def choose_pool(
    planned: Sequence[runs.Planned], made: Sequence[cases.Case], half_window: int, count: int = POOL_CASES
) -> Pool:
    """Choose the pool, spread over all lengths.

    Args:
        planned: Of each graph; what is always run comes first.
        made: All cases of the corpus; they fill up.
        half_window: Of the local layers.
        count: How many cases at most.
    """
    each = max(OF_EACH_GRAPH, count // (2 * max(1, len(planned))))
    required = [runs.evenly(_fitting(run.case for run in listed.required), each) for listed in planned]
    chosen = list(dict.fromkeys(case for some in required for case in some))
    others = [case for case in _fitting(made) if case not in {*chosen}]
    filled = [*chosen, *runs.evenly(others, max(2, count - len(chosen)))]
    return Pool(tuple(filled[: max(count, len(chosen))]), 2 * half_window + 3)


def _fitting(made: Iterable[cases.Case]) -> list[cases.Case]:
    """List cases of a length that mutants are asked, shortest first."""
    found = dict.fromkeys(case for case in made if case.tokens <= POOL_TOKENS)
    return sorted(found, key=lambda case: (case.tokens, case.id))


def seconds_of(made: Sequence[Mutant], pool: Pool, seconds: Callable[[cases.Case], float]) -> float:
    """Give the expected seconds of asking every mutant the pool, from what the reference takes for a case."""
    asked = sum(not mutant.facts.equal_because for mutant in made)
    return asked * sum(map(seconds, pool.cases))


def judge_mutants(
    found: Mutants,
    head: heads.Head,
    graph: manifest.Graph,
    answers: Mapping[str, reference.Answer],
    planned: Sequence[runs.Run],
    noise: float,
    bar: bars.Bar,
) -> mutation.Mutation:
    """Say which mutants one graph's runs would have shown.

    A mutant can be killed where any input of the pool that the graph takes breaks a bound of the bar, and it is killed
    where one does that the graph was asked.

    Args:
        found: The mutants with their answers.
        head: Of the checkpoint.
        graph: The graph; only its own outputs count.
        answers: The checkpoint's, by case id.
        planned: The graph's runs.
        noise: The reference's own.
        bar: The deciding bar.
    """
    judged = []
    for measured in found.measured:
        told, fitting = _differences(found.pool, measured, head, graph, answers, planned)
        judged.append(_judge(measured.facts, told, fitting, head.kind, noise, bar))
    return mutation.Mutation(tuple(judged), len(found.pool.cases))


def separating_runs(
    found: Mutants,
    head: heads.Head,
    graph: manifest.Graph,
    answers: Mapping[str, reference.Answer],
    planned: Sequence[runs.Run],
    noise: float,
    bar: bars.Bar,
) -> tuple[runs.Run, ...]:
    """Give the runs that kill what a graph's planned runs do not: the probes that separate best, each for what it adds.

    Args:
        found: The mutants with their answers.
        head: Of the checkpoint.
        graph: The graph.
        answers: The checkpoint's, by case id.
        planned: What it is asked in any case; nothing is added to nothing.
        noise: The reference's own.
        bar: The deciding bar.
    """
    added: dict[runs.Run, None] = {}
    for measured in found.measured if planned else ():
        facts = measured.facts
        told, fitting = _differences(found.pool, measured, head, graph, answers, (*planned, *added))
        is_seen = bool(facts.seen_by) or _first_to_break(told, head.kind, noise, bar) is not None
        killer = None if is_seen else _first_to_break(fitting, head.kind, noise, bar)
        if killer is not None:
            is_padded = facts.needs_pads and graph.sequence is None
            added[runs.Run(killer.case, pad_to=killer.case.tokens + found.pool.pads if is_padded else None)] = None
    return tuple(added)


def _differences(
    pool: Pool,
    measured: Measured,
    head: heads.Head,
    graph: manifest.Graph,
    answers: Mapping[str, reference.Answer],
    planned: Sequence[runs.Run],
) -> tuple[list[compare.Difference], list[compare.Difference]]:
    """Give a mutant's differences on the inputs that a graph is asked, and on all that fit it."""
    needs_pads = measured.facts.needs_pads
    asked = {run.case.id for run in planned if not needs_pads or run.padding_class(graph) != "none"}
    shown = [case for case in pool.cases if _takes(graph, case)] if graph.takes_mask or not needs_pads else []
    fitting = [
        compare.compare_answers(head, case, _outputs_of(graph, measured.answers[case.id]), answers[case.id], "none")
        for case in shown
        if case.id in measured.answers
    ]
    return [difference for difference in fitting if difference.case.id in asked], fitting


def _takes(graph: manifest.Graph, case: cases.Case) -> bool:
    """Say whether a graph can be asked a case: without a mask a fixed one takes just its own length."""
    return graph.fits(1, case.tokens) and (graph.takes_mask or graph.sequence in (None, case.tokens))


def _outputs_of(graph: manifest.Graph, answer: reference.Answer) -> reference.Answer:
    return {output.name: answer[output.name] for output in graph.outputs}


def _judge(
    facts: Facts,
    asked: Sequence[compare.Difference],
    fitting: Sequence[compare.Difference],
    kind: heads.SurfaceKind,
    noise: float,
    bar: bars.Bar,
) -> mutation.Mutant:
    """Say what became of a mutant; any check counts, so one that a static check sees is never alive."""
    largest, largest_asked = (max(map(effect_of, some), default=0.0) for some in (fitting, asked))

    def ended(fate: mutation.Fate, reason: str) -> mutation.Mutant:
        return mutation.Mutant(facts.statement, facts.cause, fate, reason, largest_asked)

    if facts.equal_because:
        return ended("indistinguishable", facts.equal_because)
    killer, other = (_first_to_break(some, kind, noise, bar) for some in (asked, fitting))
    if killer is not None:
        return ended("killed", f"by {killer.case.id} of {killer.case.tokens} tokens")
    if facts.seen_by:
        return ended("seen", f"by {facts.seen_by}, whatever the inputs")
    if facts.needs_pads and not fitting:
        return ended("indistinguishable", "this graph takes no mask, so no pads")
    if largest < NOISE_FACTOR * noise:
        told = f"|Δlogit| {largest:.1e} on the {len(fitting)} inputs that fit, below {NOISE_FACTOR:g} x the noise"
        return ended("indistinguishable", told)
    if other is None:
        return ended(
            "tolerated", f"|Δlogit| {largest:.1e} at most on the {len(fitting)} inputs that fit, in every bound"
        )
    told = f"{other.case.id} of {other.case.tokens} tokens would have shown it, and was not asked"
    return ended("alive", f"{told}; |Δlogit| {largest_asked:.1e} on the {len(asked)} that were")


def _first_to_break(
    differences: Sequence[compare.Difference], kind: heads.SurfaceKind, noise: float, bar: bars.Bar
) -> compare.Difference | None:
    """Give the largest difference that breaks a bound by itself."""
    for difference in sorted(differences, key=effect_of, reverse=True):
        evidence = judge.Evidence.from_differences(kind, [difference], 1, noise)
        if judge.judge(evidence, bar).verdict == "failed":
            return difference
    return None


def effect_of(difference: compare.Difference) -> float:
    """Give the largest |Δlogit| of an answer."""
    return float(np.max(difference.logit))
