"""What a record's figures are held against: the bounds of its bar, for its kind of head and its reference's noise.

A record names its bar and keeps no bounds, so they are looked up in the one table that has them. A bar that the table
does not know has none: figures are then shown without a judgement, never with a guessed one.
"""

from dataclasses import dataclass
from typing import Self

from vela.graphs import record
from vela.verify import bars, judge

# What is decided, by the kind of head; a label or a set of labels else.
DECISIONS = {"token": "span sets", "rerank": "places in an order"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure and the bound that holds for it.

    Attributes:
        name: Such as `Max |Δlogit|`.
        value: The figure.
        bound: The largest that is allowed.
    """

    name: str
    value: float
    bound: float

    @property
    def share(self) -> float:
        """Give the figure as a share of its bound; above 1 it is broken."""
        return self.value / self.bound if self.bound > 0.0 else float("inf") if self.value > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds for one record.

    Attributes:
        bar: The bar that decided; None where the table has none of that name.
        unit: What a difference in probability is called for this head.
        maximum: Largest difference allowed; None where it is not bounded, as the next two.
        percentile: Largest 99th percentile of it in a class.
        logit: Largest |Δlogit|.
    """

    bar: bars.Bar | None
    unit: str
    maximum: float | None
    percentile: float | None
    logit: float | None

    @classmethod
    def from_record(cls, found: record.Record) -> Self:
        """Look up the bounds for a record."""
        is_embedding = found.form == "embedding"
        unit = "|Δ| of unit vectors" if is_embedding else "|Δp|"
        bar = next((known for known in bars.BARS.values() if known.name == found.bar), None)
        if bar is None:
            return cls(None, unit, None, None, None)
        maximum = bar.embedding_difference if is_embedding else bar.max_probability
        return cls(
            bar,
            unit,
            None if maximum == float("inf") else maximum,
            None if is_embedding else bar.p99_probability,
            bar.logit_bound(found.reference_noise),
        )

    def measure(self, group: record.ClassStatistics) -> tuple[Measured, ...]:
        """Put the figures of one class of inputs beside their bounds, where they have one."""
        figures = (
            (f"Max {self.unit}", group.max_abs_probability, self.maximum),
            (f"p99 {self.unit}", group.p99_abs_probability, self.percentile),
            ("Max |Δlogit|", group.max_abs_logit, self.logit),
        )
        return tuple(Measured(name, value, bound) for name, value, bound in figures if bound is not None)

    def is_lost(self, run: record.Run, found: record.Record) -> bool:
        """Say whether a run's decision differs and no near tie excuses it."""
        return not run.agrees and (self.bar is None or not judge.is_agreed(run, found.form, self.bar))


def bar_facts(found: record.Record, bounds: Limits) -> list[tuple[str, str]]:
    """List what a record's bar asks of its kind of head, each with its bound in words."""
    bar, facts = bounds.bar, list[tuple[str, str]]()
    if bar is None:
        return facts
    if bounds.maximum is not None:
        facts.append((f"max {bounds.unit}", f"≤ {bounds.maximum:g}"))
    if bounds.percentile is not None:
        facts.append((f"99th percentile of {bounds.unit} in each class", f"≤ {bounds.percentile:g}"))
    if bounds.logit is not None:
        rule = f"the larger of {bar.logit_floor:g} and {bar.noise_factor:g} × the reference's own noise"
        facts.append(("max |Δlogit|", f"≤ {bounds.logit:.3g}, {rule}"))
    if found.form == "embedding":
        facts.append(("cosine", f"≥ {bar.embedding_cosine:g}"))
    else:
        what = DECISIONS.get(found.form, "decisions")
        facts.append((f"{what} that agree", _rate(bar.rate_of(found.form), bar.margin_of(found.form))))
    return facts


def _rate(rate: float, tie_margin: float) -> str:
    ties = f"a margin of the reference below {tie_margin:g} is a near tie and agrees" if tie_margin else "no tie agrees"
    return f"≥ {rate * 100:g} %; {ties}"
