"""Figures: what one pair of answers comes to, in upstream's terms and in ours.

Upstream looks at less: a span's probability only where both span sets are equal, a multi-label head's scores and never
what they select. Both views are measured in one go, so that a job's two verdicts rest on the same answers.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
SpanKey = tuple[str, int, int]  # LABEL, start, end

# Why two answers differ in more than numbers; each fails a job whatever the rates are.
Block = Literal["missing", "error", "windows", "non-finite", "shape"]
INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class Figures:
    """One view of one pair of answers.

    Attributes:
        values: |Δp| of every number that the view compares, flat; of unit vectors' components for embeddings.
        flips: For each decision that differs, how clearly the baseline made it; infinity where that is not known.
        decisions: Decisions made: one for each input, or one for each two documents of a query.
    """

    values: Values = field(default_factory=lambda: np.zeros(0))
    flips: Values = field(default_factory=lambda: np.zeros(0))
    decisions: int = 1

    @property
    def delta(self) -> float:
        """The largest |Δp|; nothing compared is 0, as upstream has it."""
        return float(np.max(self.values, initial=0.0))

    def lost(self, margin: float) -> int:
        """Count the decisions that differ and were no near tie of the baseline."""
        return int(np.count_nonzero(self.flips >= margin))


@dataclass(frozen=True, slots=True)
class Blocked:
    """Something that fails the job by itself.

    Attributes:
        reason: Which of the kinds.
        detail: What was found, for people.
        expected: What the baseline has, where that is data.
        actual: What the candidate has.
    """

    reason: Block
    detail: str
    expected: object = None
    actual: object = None


@dataclass(frozen=True, slots=True)
class Difference:
    """What one pair of answers comes to.

    Attributes:
        id: The input's.
        upstream: As upstream compares.
        strict: As Vela compares.
        blocks: What fails the job by itself.
        tokens: Length of the input, where it was recorded.
        margin: Distance of the baseline's two largest probabilities, for upstream's count of near ties.
        logit: Largest |Δlogit|, where both sides recorded them.
        cosine: Of two embeddings.
        selects: Whether both sides select the same labels, where both recorded that.
        expected_only: Spans that only the baseline has.
        actual_only: Spans that only the candidate has.
    """

    id: str
    upstream: Figures
    strict: Figures
    blocks: tuple[Blocked, ...] = ()
    tokens: int | None = None
    margin: float = INFINITE
    logit: float | None = None
    cosine: float | None = None
    selects: bool | None = None
    expected_only: tuple[SpanKey, ...] = ()
    actual_only: tuple[SpanKey, ...] = ()

    @classmethod
    def not_comparable(cls, item_id: str, tokens: int | None, block: Blocked) -> "Difference":
        """Make the difference of two answers whose numbers cannot be compared: a decision lost in either view."""
        lost = Figures(flips=flips(INFINITE, differs=True))
        return cls(item_id, lost, lost, (block,), tokens)


def flips(margin: float, *, differs: bool) -> Values:
    """Give the flips of one decision: its margin if it differs, else none."""
    return np.full(int(differs), margin)
