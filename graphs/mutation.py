"""What a record says about mutants: how able the inputs were to show a fault, and which fault a failed graph has.

A mutant is the checkpoint with one mistake that exporters make: another theta, a window off by one, the mask ignored.
One that the inputs do not show beside the bounds is a fault that would have passed, so the score stands next to the
verdict. The same mutants are the hypotheses when a graph fails: the one that answers like the graph names the cause.
"""

import math
from typing import Literal

import msgspec

from vela.graphs.causes import Cause

STATES_DIFFER = 2e-5  # relative distance from which a layer's states are others: between FP32's rounding and any fault
# `killed` by the answers, `seen` by a static check whatever the inputs are, `alive` where an input would have killed it
# that was not asked, `tolerated` where no input breaks a bound of this bar, `indistinguishable` where none tells it
# from the checkpoint.
Fate = Literal["killed", "seen", "alive", "tolerated", "indistinguishable"]


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mutant and what became of it.

    Attributes:
        statement: What is wrong with it, such as `local RoPE theta 10,000 instead of 160,000`.
        cause: Of which kind that is.
        fate: What became of it.
        reason: By which input or check it was killed, or why it is indistinguishable or alive.
        max_abs_logit: Largest |Δlogit| to the checkpoint on the inputs that the graph was asked.
    """

    statement: str
    cause: Cause
    fate: Fate
    reason: str
    max_abs_logit: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.max_abs_logit):
            raise ValueError(f"{self.statement}: a difference that is not finite; JSON would write it as null")


class Mutation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mutants of a checkpoint beside one graph's inputs.

    Attributes:
        mutants: All of them, in the order in which they were made.
        cases: Inputs that mutants were asked.
    """

    mutants: tuple[Mutant, ...]
    cases: int

    def of_fate(self, *fates: Fate) -> tuple[Mutant, ...]:
        """Give the mutants that ended so."""
        return tuple(mutant for mutant in self.mutants if mutant.fate in fates)

    @property
    def score(self) -> str:
        """Say how many of those that can be killed were."""
        killed = len(self.of_fate("killed", "seen"))
        return f"{killed} of {killed + len(self.of_fate('alive'))}"


class Hypothesis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a failed graph is from one mutant.

    Attributes:
        statement: The mutant's.
        cause: The mutant's; None for the checkpoint as it is.
        distance: Largest |Δlogit| between graph and mutant on the compared runs.
    """

    statement: str
    cause: Cause | None
    distance: float


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a failed graph's hidden states are from the checkpoint's after one layer.

    Attributes:
        name: Such as `layer 3`; the last one is after the final norm.
        distance: Of the states of all tokens, relative to their length; the largest over the runs.
        introduced: The same where the layer is fed the checkpoint's own state; None where that was not measured.
    """

    name: str
    distance: float
    introduced: float | None = None


class Diagnosis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a graph failed, by what its answers are nearest to.

    Attributes:
        cause: The kind of fault; None where no hypothesis reproduces the graph.
        statement: One sentence for people, with the margin to the runner-up.
        hypotheses: All of them, nearest first.
        runs: Runs on which the cause was found; mutants are compared on up to 24 of all lengths, those that were made
            for one place on up to 6 short ones that differ.
        layers: From the first to the last; empty where the graph's states could not be had.
        ways: Other ways of running the graph in which it is wrong too, such as `without rewrites`.
    """

    cause: Cause | None
    statement: str
    hypotheses: tuple[Hypothesis, ...]
    runs: int
    layers: tuple[Layer, ...] = ()
    ways: tuple[str, ...] = ()
