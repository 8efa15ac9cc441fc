"""How able a graph's inputs were to show a fault: which mutants of its checkpoint they tell from it.

A mutant can be killed where any input of the pool that the graph takes breaks a bound of the bar, and it is killed
where one does that the graph was asked. What would kill one that lives is added to what the graph is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vela.graphs import heads, manifest, mutation
from vela.verify import bars, cases, compare, judge, mutants, reference, runs

# Below this multiple of the reference's own noise a mutant cannot be told from the checkpoint by any answer.
NOISE_FACTOR = 3.0
# What stands for an answer that is no number, such as of weights that float16 cannot hold: far from any that is.
NO_NUMBER = 1e6


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What mutants are held against.

    Attributes:
        found: The mutants with their answers.
        head: Of the checkpoint.
        answers: The checkpoint's, by case id.
        noise: The reference's own.
        bar: The deciding bar.
    """

    found: mutants.Mutants
    head: heads.Head
    answers: Mapping[str, reference.Answer]
    noise: float
    bar: bars.Bar

    def score(self, graph: manifest.Graph, planned: Sequence[runs.Run]) -> mutation.Mutation:
        """Say which mutants one graph's runs would have shown; only the graph's own outputs count."""
        judged = []
        for measured in self.found.measured:
            fitting = self._differences(measured, graph)
            asked = _asked(fitting, measured.facts, graph, planned)
            judged.append(self._judge(measured.facts, asked, fitting))
        return mutation.Mutation(tuple(judged), len(self.found.pool.cases))

    def separate(self, graph: manifest.Graph, planned: Sequence[runs.Run]) -> tuple[runs.Run, ...]:
        """Give the runs that kill what a graph's planned runs do not: what separates best, each for what it adds.

        Nothing is added to nothing, nor where the graph gives other outputs than the checkpoint, which it fails for.
        """
        given = {output.name for output in graph.outputs}
        if not planned or not all(given <= answer.keys() for answer in self.answers.values()):
            return ()
        added: dict[runs.Run, None] = {}
        for measured in self.found.measured:
            facts = measured.facts
            fitting = self._differences(measured, graph)
            asked = _asked(fitting, facts, graph, (*planned, *added))
            is_seen = bool(facts.seen_by) or self._first_to_break(asked) is not None
            killer = None if is_seen else self._first_to_break(fitting)
            if killer is not None:
                is_padded = facts.needs_pads and graph.sequence is None
                pad_to = killer.case.tokens + self.found.pool.pads if is_padded else None
                added[runs.Run(killer.case, pad_to=pad_to)] = None
        return tuple(added)

    def _differences(self, measured: mutants.Measured, graph: manifest.Graph) -> list[compare.Difference]:
        """Give a mutant's differences on all inputs of the pool that fit a graph."""
        if not graph.takes_mask and measured.facts.needs_pads:
            return []
        return [
            compare.compare_answers(
                self.head, case, _outputs_of(graph, measured.answers[case.id]), self.answers[case.id], "none"
            )
            for case in self.found.pool.cases
            if _takes(graph, case) and case.id in measured.answers
        ]

    def _judge(
        self, facts: mutants.Facts, asked: Sequence[compare.Difference], fitting: Sequence[compare.Difference]
    ) -> mutation.Mutant:
        """Say what became of a mutant; any check counts, so one that a static check sees is never alive."""
        largest, largest_asked = (max(map(effect_of, some), default=0.0) for some in (fitting, asked))

        def ended(fate: mutation.Fate, reason: str) -> mutation.Mutant:
            return mutation.Mutant(facts.statement, facts.cause, fate, reason, largest_asked)

        if facts.equal_because:
            return ended("indistinguishable", facts.equal_because)
        killer, other = (self._first_to_break(some) for some in (asked, fitting))
        if killer is not None:
            return ended("killed", f"by {killer.case.id} of {killer.case.tokens} tokens")
        if facts.seen_by:
            return ended("seen", f"by {facts.seen_by}, whatever the inputs")
        if facts.needs_pads and not fitting:
            return ended("indistinguishable", "this graph takes no mask, so no pads")
        if largest < NOISE_FACTOR * self.noise:
            told = f"|Δlogit| {largest:.1e} on the {len(fitting)} inputs that fit, below {NOISE_FACTOR:g} x the noise"
            return ended("indistinguishable", told)
        if other is None:
            return ended(
                "tolerated", f"|Δlogit| {largest:.1e} at most on the {len(fitting)} inputs that fit, in every bound"
            )
        told = f"{other.case.id} of {other.case.tokens} tokens would have shown it, and was not asked"
        return ended("alive", f"{told}; |Δlogit| {largest_asked:.1e} on the {len(asked)} that were")

    def _first_to_break(self, differences: Sequence[compare.Difference]) -> compare.Difference | None:
        """Give the largest difference that breaks a bound by itself."""
        for difference in sorted(differences, key=effect_of, reverse=True):
            evidence = judge.Evidence.from_differences(self.head.kind, [difference], 1, self.noise)
            if judge.judge(evidence, self.bar).verdict == "failed":
                return difference
        return None


def _asked(
    differences: Sequence[compare.Difference], facts: mutants.Facts, graph: manifest.Graph, planned: Sequence[runs.Run]
) -> list[compare.Difference]:
    """Give those of the inputs that a graph is asked; of a mutant of padding, with padding."""
    asked = {run.case.id for run in planned if not facts.needs_pads or run.padding_class(graph) != "none"}
    return [difference for difference in differences if difference.case.id in asked]


def _takes(graph: manifest.Graph, case: cases.Case) -> bool:
    """Say whether a graph can be asked a case: without a mask a fixed one takes just its own length."""
    return graph.fits(1, case.tokens) and (graph.takes_mask or graph.sequence in (None, case.tokens))


def _outputs_of(graph: manifest.Graph, answer: reference.Answer) -> reference.Answer:
    """Give a mutant's outputs as numbers, whatever it answered."""
    return {
        output.name: np.nan_to_num(answer[output.name], nan=NO_NUMBER, posinf=NO_NUMBER, neginf=-NO_NUMBER)
        for output in graph.outputs
    }


def effect_of(difference: compare.Difference) -> float:
    """Give the largest |Δlogit| of an answer."""
    return float(np.max(difference.logit))
