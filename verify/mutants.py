"""Mutants, as the gate sees them: the checkpoint with one mistake, asked like the checkpoint itself.

`export/mutants.py` makes them with PyTorch from the checkpoint's own config. Here is what they are and the pool of
inputs that each is asked; `scoring.py` says which of them a graph's own inputs would have shown.
Source: reference measurements of injected defects: eight chosen inputs show what hundreds of short ones do not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vela.graphs import causes
from vela.verify import cases, reference, runs

POOL_TOKENS = 512  # four windows of the family; a longer input shows no mutant that these do not
POOL_CASES = 32
FEWEST_CASES = 8  # a smaller pool says nothing of a score
OF_EACH_GRAPH = 3  # of what each graph is always asked: the shortest, the longest that fits a pool, and one between


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
