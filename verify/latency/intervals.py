"""Percentiles by nearest rank, and 95 % intervals of a mean by Student's t, without a statistics library. Pure.

The quantiles of t are computed from its exact distribution for whole degrees of freedom, which is a finite sum, so no
table ends anywhere and nothing is approximated.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

CONFIDENCE = 0.95
MIN_ROUNDS = 3  # two rounds give an interval of twelve standard errors, which says nothing either way
HALVINGS = 60  # of an angle below 2: the rest is below a float's precision


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval.

    Attributes:
        mean: Of the rounds.
        low: Lower end.
        high: Upper end.
    """

    mean: float
    low: float
    high: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Self:
        """Give the interval of the mean of independent values, at least two and finite."""
        if len(values) < 2 or not all(math.isfinite(value) for value in values):
            raise ValueError(f"an interval needs two finite values or more, not {list(values)}")
        mean = statistics.fmean(values)
        half = t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
        return cls(mean, mean - half, mean + half)

    @classmethod
    def of_differences(cls, actual: Sequence[float], expected: Sequence[float]) -> Self:
        """Give the mean of what the pairs differ by; what both have of a round in common falls out."""
        return cls.from_values([one - other for one, other in zip(actual, expected, strict=True)])

    @classmethod
    def of_ratios(cls, actual: Sequence[float], expected: Sequence[float]) -> Self:
        """Give the geometric mean of the pairs' ratios, whose interval is computed on logarithms; all above 0."""
        logs = cls.from_values([math.log(one / other) for one, other in zip(actual, expected, strict=True)])
        return cls(math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high))


def nearest_rank(values: Sequence[float], share: float) -> float:
    """Give the smallest value that so large a share of all does not exceed; there is at least one value."""
    ordered = sorted(values)
    # The share is rounded before the rank: 0.07 x 100 is 7.000000000000001 in floats, and no rank 8.
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]


def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Give t between whose negative and itself that share of Student's distribution lies."""
    if degrees < 1 or not 0.0 < confidence < 1.0:
        raise ValueError(f"no t for {degrees} degrees of freedom and {confidence}")
    low, high = 0.0, math.pi / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, degrees) < confidence else (low, middle)
    return math.tan((low + high) / 2) * math.sqrt(degrees)


def _share_within(angle: float, degrees: int) -> float:
    """Give the share of the distribution between -t and t, where t is tan(angle) x sqrt(degrees).

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for step in range(2 + is_odd, degrees + 1, 2):
        total += term
        term *= cosine * cosine * (step - 1) / step
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
