"""The ground that graphs of a bundle are judged on: cases, the reference's answers to them, and its own noise.

Answers are kept in the journal as they come, so that an interrupted run asks for none twice.
"""

import functools
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from vela.serve import tokenization
from vela.verify import answering, cases, checkpoint, journal, meter, pace, reference, rows, runs
from vela.verify import mutants as mutating

NOISE_CASES = 24
ROWS_AT_ONCE = 8  # as many rows of one length as the reference takes in one forward
KEEP_EVERY_S = 5.0
KIND_SHOWN = 8  # characters by which the journal tells mutants apart
Ask = Callable[[Sequence[tuple[int, ...]]], list[reference.Answer]]


@dataclass(frozen=True, slots=True)
class References:
    """The checkpoint's own answers.

    Attributes:
        exact: FP32, what graphs are judged against.
        wide: The same in FP64, from which the FP32 noise is measured.
        mutants: The checkpoint with one mistake each; a reference that is no model has none.
        states: Gives the FP32 reference's hidden states; None where it has none.
        suspects: Gives the mutants with a mistake in just some layers, or around them all where none are given, of a
            graph that runs so many.
    """

    exact: reference.Reference
    wide: reference.Reference
    mutants: tuple[mutating.Mutant, ...] = ()
    states: reference.States | None = None
    suspects: Callable[[Sequence[int], int], Sequence[mutating.Mutant]] = lambda layers, exit_layer: ()


@dataclass(frozen=True, slots=True)
class Ground:
    """What graphs are compared with.

    Attributes:
        answers: The reference's, by case id.
        noise: Its own FP32 noise.
        description: What it is, for the record.
        mutants: What mutants of it answered; None where there are none.
    """

    answers: Mapping[str, reference.Answer]
    noise: float
    description: str
    mutants: mutating.Mutants | None = None

    @property
    def watched(self) -> frozenset[str]:
        """Give the ids of the cases that mutants were asked."""
        return frozenset(case.id for case in self.mutants.pool.cases) if self.mutants else frozenset()

    @classmethod
    def nothing(cls) -> Self:
        """Say that no graph got as far as inference, so the reference was not asked."""
        return cls({}, 0.0, "not asked: static checks failed first")


def make_cases(source: checkpoint.Checkpoint, corpus: rows.Corpus, longest: int) -> list[cases.Case]:
    """Make cases with the reference checkpoint's own tokenizer and head."""
    pad_id = int(source.config["pad_token_id"])
    tokenizer = tokenization.Tokenizer.from_file(source.folder / "tokenizer.json", pad_id=pad_id)
    limit = min(longest, source.head.max_tokens)
    return cases.make_cases(source.head, tokenizer, corpus, source.architecture.half_window, limit)


def pick_noise_cases(made: Sequence[cases.Case], max_tokens: int) -> list[cases.Case]:
    """Pick the cases that the noise is measured on, spread over all lengths; FP64 at the longest would take long."""
    return runs.pick_probes([case for case in made if case.tokens <= max_tokens] or made[:1], NOISE_CASES)


@dataclass(frozen=True, slots=True)
class Asking:
    """How the reference is asked.

    Attributes:
        references: The reference.
        seconds: Expected duration of an answer, by kind: `exact` and `wide`.
        kept: Keeps answers.
        gauge: Told what was done.
    """

    references: References
    seconds: Mapping[str, Callable[[cases.Case], float]]
    kept: journal.Journal
    gauge: meter.Meter

    def lay(self, made: Sequence[cases.Case], noise_cases: Sequence[cases.Case], pool: mutating.Pool) -> Ground:
        """Ask for everything, measure the noise, and let the mutants answer the pool."""
        needed = list(dict.fromkeys([*made, *noise_cases, *pool.cases]))
        answers = self._answer("exact", self.references.exact.answer, needed)
        wide = self._answer("wide", self.references.wide.answer, noise_cases)
        noise = answering.noise_of([answers[case.id] for case in noise_cases], [wide[case.id] for case in noise_cases])
        measured = self._measure(pool) if self.references.mutants else None
        return Ground(answers, noise, self.references.exact.facts.description, measured)

    def _measure(self, pool: mutating.Pool) -> mutating.Mutants:
        measured = []
        for mutant in self.references.mutants:
            kind = f"{mutant.facts.cause} {hashlib.sha256(mutant.facts.statement.encode()).hexdigest()[:KIND_SHOWN]}"
            ask = functools.partial(mutant.answer, pads=pool.pads)
            answers = {} if mutant.facts.equal_because else self._answer(kind, ask, pool.cases, "a mutant")
            measured.append(mutating.Measured(mutant.facts, answers))
        return mutating.Mutants(pool, tuple(measured), self.references.mutants)

    def _answer(
        self, kind: str, ask: Ask, made: Sequence[cases.Case], who: str = "the reference"
    ) -> dict[str, reference.Answer]:
        """Answer cases, those of one length together, and keep answers every few seconds."""
        found = self.kept.answers(kind)
        waiting: dict[str, reference.Answer] = {}
        kept_at, seconds = time.monotonic(), self.seconds.get(kind, self.seconds["exact"])
        missing = [case for case in made if journal.key_of_ids(case.ids) not in found]
        self.gauge.skip(sum(map(seconds, made)) - sum(map(seconds, missing)))
        for group in group_by_length(missing):
            with self.gauge.forward():
                answers = ask([case.ids for case in group])
            new = {journal.key_of_ids(case.ids): answer for case, answer in zip(group, answers, strict=True)}
            found.update(new)
            waiting.update(new)
            if time.monotonic() - kept_at > KEEP_EVERY_S:
                self.kept.keep_answers(kind, waiting)
                waiting, kept_at = {}, time.monotonic()
            self.gauge.did(f"{who}, {kind}, {group[0].tokens} tokens", sum(map(seconds, group)))
        self.kept.keep_answers(kind, waiting)
        return {case.id: found[journal.key_of_ids(case.ids)] for case in made}


def group_by_length(made: Sequence[cases.Case]) -> list[list[cases.Case]]:
    """Group cases of one length, at most `ROWS_AT_ONCE` together, shortest first."""
    by_length: dict[int, list[cases.Case]] = {}
    for case in made:
        by_length.setdefault(case.tokens, []).append(case)
    return [
        group[start : start + ROWS_AT_ONCE]
        for _, group in sorted(by_length.items())
        for start in range(0, len(group), ROWS_AT_ONCE)
    ]


def time_references(
    references: References, work: pace.Work, made: Sequence[cases.Case], kind_limits: Mapping[str, int]
) -> dict[str, pace.Pace]:
    """Time the reference at a few lengths, cut from the longest case.

    Args:
        references: What is timed.
        work: How its arithmetic grows.
        made: Cases; their ids are valid for it.
        kind_limits: Longest row worth timing, for `exact` and `wide`.
    """
    longest = max(made, key=lambda case: case.tokens).ids
    asked: dict[str, reference.Reference] = {"exact": references.exact, "wide": references.wide}
    found = {}
    for kind, limit in kind_limits.items():
        run = functools.partial(_answer_cut, asked[kind], longest)
        found[kind] = pace.Pace.timed(work, run, pace.lengths_up_to(min(limit, len(longest))))
    return found


def time_together(references: References, made: Sequence[cases.Case]) -> dict[int, float]:
    """Time several rows of one length in one forward, on the fullest length: a GPU or many cores hardly notice them.

    Returns:
        For each length that several cases share, what one of them costs beside a row alone.
    """
    groups = [group for group in group_by_length(made) if len(group) > 1]
    if not groups:
        return {}
    fullest = max(groups, key=lambda group: (len(group), group[0].tokens))
    ids = [case.ids for case in fullest]
    references.exact.answer(ids)
    alone, together = (_seconds(functools.partial(references.exact.answer, asked)) for asked in (ids[:1], ids))
    saved = max(0.0, 1.0 - together / (len(ids) * max(alone, 1e-9))) / (1.0 - 1.0 / len(ids))
    return {group[0].tokens: 1.0 - saved * (1.0 - 1.0 / len(group)) for group in groups}


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _answer_cut(asked: reference.Reference, ids: tuple[int, ...], tokens: int) -> None:
    asked.answer([ids[:tokens]])
