"""A measurement's plots as inline SVG: each side's latency in each round, and how far sides are apart.

They are drawn as the verification report's are (verify/report/figures.py). No text of a record enters a plot: sides
are told apart by shape and colour, which the page names beside them.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from vela.verify.latency import record
from vela.verify.report import figures

# Markers of the page, in the order of sides; sides beyond them use the last one.
MARKERS = ("none", "some", "window")
STEPS = (1.0, 2.0, 5.0)
LINES_AT_MOST = 6
HEADROOM = 1.08
SLOWEST = 3.0  # ratios beyond are drawn at the edge: such a difference needs no plot


def marker_of(place: int) -> str:
    """Name the page's marker of a side."""
    return MARKERS[min(place, len(MARKERS) - 1)]


def draw_rounds(sides: Sequence[Sequence[record.Quantiles | None]], name: str) -> Markup:
    """Draw each side's median in every round that counts, from it a whisker to its 95th percentile.

    Args:
        sides: One row for each side, in order; None in a round in which it answered nothing.
        name: What is drawn, for readers who do not see it.
    """
    count = len(sides[0])
    highest = max((one.p95_ms for row in sides for one in row if one), default=1.0)
    figure, axes = figures.make_axes((0.5, count + 0.5), (0.0, highest * HEADROOM))
    _draw_milliseconds(axes)
    for number in range(1, count + 1, 1 + count // 16):
        axes.annotate(f"{number}", (number, 0.0), (0, -6), **figures.LABEL_BELOW)
    for place, row in enumerate(sides):
        # Beside each other within a round, so that no side hides another.
        shift = 0.5 * ((place + 1) / (len(sides) + 1) - 0.5)
        found = [(number + shift, one.p50_ms, one.p95_ms) for number, one in enumerate(row, 1) if one]
        _draw_side(axes, marker_of(place), found)
    return figures.as_inline(figure, name)


def draw_ratios(comparisons: Sequence[record.Comparison], tolerance: float, name: str) -> Markup:
    """Draw the ratio of each figure to the first side's with its 95 % interval, from the left in the order given.

    Args:
        comparisons: Of one side.
        tolerance: How much slower it may be.
        name: What is drawn.
    """
    shown = [1.02 + tolerance, *(end for one in comparisons for end in (one.ratio.low, one.ratio.high))]
    reach = min(math.log(SLOWEST), 1.15 * max(abs(math.log(value)) for value in shown))
    figure, axes = figures.make_axes((0.4, len(comparisons) + 0.6), (-reach, reach))
    (left, right), bound = axes.get_xlim(), math.log1p(tolerance)
    for share in _shares(reach):
        height = math.log1p(share)
        axes.plot([left, right], [height, height], color=figures.FAINT, linewidth=0.6, clip_on=False)
        axes.annotate(f"{share:+.0%}" if share else "same", (left, height), (-5, 0), **figures.LABEL_LEFT)
    axes.plot([left, right], [bound, bound], **figures.BOUND_LINE)
    for number, one in enumerate(comparisons, 1):
        low, middle, high = (
            _within(math.log(value), reach) for value in (one.ratio.low, one.ratio.mean, one.ratio.high)
        )
        colour = figures.BROKEN if one.verdict == "slower" else figures.BARS
        axes.plot([number, number], [low, high], color=colour, linewidth=2.0, clip_on=False)
        axes.plot([number - 0.12, number + 0.12], [middle, middle], color=colour, linewidth=2.0, clip_on=False)
        axes.annotate(one.figure, (number, -reach), (0, -4), **figures.LABEL_BELOW)
        axes.annotate(f"{one.concurrency}", (number, -reach), (0, -14), **figures.LABEL_BELOW)
    return figures.as_inline(figure, name)


def _draw_side(axes: Axes, marker: str, found: Sequence[tuple[float, float, float]]) -> None:
    colour = figures.PADDING_COLOURS[marker]
    look: dict[str, Any] = {"color": colour, "clip_on": False}
    for place, median, high in found:
        axes.plot([place, place], [median, high], linewidth=1.2, **look)
        axes.plot([place - 0.04, place + 0.04], [high, high], linewidth=1.2, **look)
    medians = np.array([one[:2] for one in found]).reshape(-1, 2)
    axes.plot(medians[:, 0], medians[:, 1], linewidth=0.8, linestyle=(0, (2, 2)), **look)
    figures.draw_markers(axes, marker, medians)


def _draw_milliseconds(axes: Axes) -> None:
    (left, right), (_, high) = axes.get_xlim(), axes.get_ylim()
    step = _step(high)
    for height in np.arange(0.0, high, step):
        axes.plot([left, right], [height, height], color=figures.FAINT, linewidth=0.6, clip_on=False)
        axes.annotate(f"{height:g} ms", (left, height), (-5, 0), **figures.LABEL_LEFT)


def _step(high: float) -> float:
    """Give the smallest round step that takes few lines up to `high`."""
    power = 10.0 ** math.floor(math.log10(high / LINES_AT_MOST))
    return next(power * step for step in (*STEPS, 10.0) if high / (power * step) <= LINES_AT_MOST)


def _shares(reach: float) -> list[float]:
    """Give round shares above and below 0 that lie within reach."""
    highest = math.expm1(reach)
    step = _step(2 * highest)
    found = [step * number for number in range(-LINES_AT_MOST, LINES_AT_MOST + 1)]
    return [share for share in found if share > -1.0 and abs(math.log1p(share)) <= reach]


def _within(value: float, reach: float) -> float:
    return min(max(value, -reach), reach)
