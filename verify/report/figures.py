"""A record's plots as inline SVG: differences by decade, and every run by its length.

Drawn by matplotlib, then made part of the page: colours become the page's variables, so that a plot follows light and
dark; text takes the page's font; ids go, because a page holds many plots. No text of a record enters a plot. Equal
records give equal bytes: nothing here depends on a clock, a user's matplotlib style or a random id.
"""

import contextlib
import io
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.transforms import IdentityTransform
from numpy.typing import NDArray

from vela.graphs import mutation, record
from vela.verify.report import visible

# Colours that nobody would choose stand for the page's own, which replace them in the drawn SVG.
INK, FAINT, BARS, BROKEN, BOUND = "#010101", "#010102", "#010103", "#010104", "#010105"
PADDING_COLOURS = {"none": "#010106", "some": "#010107", "window": "#010108"}
VARIABLES = {
    INK: "var(--muted)",
    FAINT: "var(--line)",
    BARS: "var(--bars)",
    BROKEN: "var(--failed)",
    BOUND: "var(--bound)",
    **{colour: f"var(--padding-{name})" for name, colour in PADDING_COLOURS.items()},
}
SIZE_INCHES = (6.4, 2.7)
AREA = (0.105, 0.13, 0.875, 0.84)  # left, bottom, width, height of the plotting area
# Differences outside are drawn at the edge: below is rounding of rounding (bit-equal runs are 0), above is anything.
SMALLEST, LARGEST = 1e-9, 1e3
LONGEST = 1 << 20  # tokens
STEPS_PER_POINT = 2  # runs that fall on the same half point of the plot are drawn once
MARKER_SIZE = 4.6
RING_SIZE = 9.0
Points = NDArray[np.float64]
Field = Literal["max_abs_logit", "max_abs_probability"]
BOUND_LINE: dict[str, Any] = {"color": BOUND, "linewidth": 1.4, "linestyle": (0, (4, 3)), "clip_on": False}
_LABEL: dict[str, Any] = {"textcoords": "offset points", "color": INK, "annotation_clip": False}
LABEL_BELOW = _LABEL | {"ha": "center", "va": "top"}
LABEL_LEFT = _LABEL | {"ha": "right", "va": "center"}
LABEL_OF_BOUND = _LABEL | {"ha": "right", "va": "bottom", "color": BOUND}


@contextlib.contextmanager
def plain_style() -> Iterator[None]:
    """Draw by matplotlib's own defaults, whatever the user's are; plots are drawn inside."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rc("svg", fonttype="none", hashsalt="vela")
        mpl.rc("path", simplify=False)
        mpl.rc("font", size=9)
        yield


def draw_decades(decades: Sequence[int], bound: float | None, unit: str) -> Markup:
    """Draw how many differences lie in each decade, counts on a logarithmic scale, with the bound as a line.

    Args:
        decades: As in `ClassStatistics`, of one class or summed over several.
        bound: The largest difference that the bar allows; None where it bounds none.
        unit: What a difference is called.
    """
    figure, axes = make_axes((0.0, len(decades)), (0.0, 1.26 * (1.0 + math.log10(max(10, *decades)))))
    # Decade i of the record lies between i and i + 1, so 1e-8, the first edge, is at 1.
    place = len(decades) if bound is None else 9.0 + math.log10(min(max(bound, SMALLEST), LARGEST))
    for index, count in enumerate(decades):
        if count > 0:
            height = 1.0 + math.log10(count)
            axes.bar(index + 0.5, height, width=0.86, color=BROKEN if index >= place else BARS, clip_on=False)
            axes.text(index + 0.5, height + 0.12, f"{count:,}", ha="center", color=INK)
    for index, edge in enumerate(record.DECADES, 1):
        axes.annotate(f"{edge:.0e}", (index, 0.0), (0, -6), **LABEL_BELOW)
    if bound is not None:
        place = min(place, len(decades) - 0.02)
        axes.plot([place, place], axes.get_ylim(), **BOUND_LINE)
        axes.text(place - 0.08, axes.get_ylim()[1], _name_bound(bound), ha="right", va="top", color=BOUND)
    said = ", ".join(f"{count:,} {name}" for count, name in zip(decades, _decade_names(), strict=True) if count)
    return as_inline(figure, f"{unit} by decade: {said}")


def draw_runs(
    runs: Sequence[record.Run], field: Field, bound: float | None, lost: Sequence[record.Run], name: str
) -> Markup:
    """Draw every run's largest difference against its length, shaped and coloured by padding class.

    Args:
        runs: All runs of a record.
        field: What is drawn of a run.
        bound: The largest that the bar allows; None where it bounds none.
        lost: Runs whose decision differs; they get a ring.
        name: What the field is called.
    """
    places = _places(runs, field)
    heights = [*places[:, 1], *([_log10(bound)] if bound is not None else [])]
    figure, axes = make_axes(
        (float(np.min(places[:, 0])) - 0.15, float(np.max(places[:, 0])) + 0.15),
        (min(heights) - 0.2, max(heights) + 0.45),
    )
    _draw_grid(axes)
    for padding in PADDING_COLOURS:
        # A class that nobody knows is drawn as padded somehow.
        known = [run.padding_class if run.padding_class in PADDING_COLOURS else "some" for run in runs]
        draw_markers(axes, padding, places[[one == padding for one in known]])
    _draw_rings(axes, _places(lost, field))
    if bound is not None:
        axes.plot(axes.get_xlim(), [_log10(bound)] * 2, **BOUND_LINE)
        axes.annotate(_name_bound(bound), (axes.get_xlim()[1], _log10(bound)), (0, 4), **LABEL_OF_BOUND)
    beyond = sum(bound is not None and getattr(run, field) > bound for run in runs)
    said = f", {beyond:,} of them beyond the bound" if bound is not None else ""
    return as_inline(figure, f"{name} of {len(runs):,} runs by tokens{said}")


def draw_layers(layers: Sequence[mutation.Layer], floor: float) -> Markup:
    """Draw how far states are apart after each layer, on a logarithmic scale, with the floor as a line.

    Args:
        layers: In order.
        floor: From which a layer's states are others.
    """
    places = np.array([(number, _log10(layer.distance)) for number, layer in enumerate(layers, 1)])
    alone = np.array([(n, _log10(one.introduced)) for n, one in enumerate(layers, 1) if one.introduced is not None])
    heights = [*places[:, 1], *(alone[:, 1] if alone.size else ()), _log10(floor)]
    figure, axes = make_axes((0.5, len(layers) + 0.5), (min(heights) - 0.4, max(heights) + 0.5))
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    for number in range(1, len(layers) + 1, 1 + len(layers) // 12):
        axes.annotate(f"{number}", (number, low), (0, -6), **LABEL_BELOW)
    decades = range(math.ceil(low), math.floor(high) + 1)
    for decade in decades[:: 1 + len(decades) // 7]:
        axes.plot([left, right], [decade, decade], color=FAINT, linewidth=0.6, clip_on=False)
        axes.annotate(f"{10.0**decade:.0e}", (left, decade), (-5, 0), **LABEL_LEFT)
    if alone.size:
        axes.plot(alone[:, 0], alone[:, 1], color=BARS, linewidth=1.0, linestyle=(0, (3, 2)), clip_on=False)
    axes.plot(places[:, 0], places[:, 1], color=BARS, linewidth=1.4, clip_on=False)
    draw_markers(axes, "none", places)
    axes.plot([left, right], [_log10(floor)] * 2, **BOUND_LINE)
    axes.annotate(f"differs from {visible.small_number(floor)}", (right, _log10(floor)), (0, 4), **LABEL_OF_BOUND)
    first = next((layer.name for layer in layers if layer.distance > floor), "none")
    return as_inline(figure, f"distance of states after {len(layers)} layers; the first that differs: {first}")


def make_axes(width: tuple[float, float], height: tuple[float, float]) -> tuple[Figure, Axes]:
    """Make axes without ticks of their own: matplotlib's cost ten times what the labels here do."""
    figure = Figure(figsize=SIZE_INCHES, dpi=72)
    FigureCanvasSVG(figure)
    figure.patch.set_visible(False)
    axes = figure.add_axes(AREA)
    axes.set_axis_off()
    axes.set_autoscale_on(False)
    axes.set_xlim(*width)
    axes.set_ylim(*height)
    axes.plot(width, [height[0]] * 2, color=FAINT, linewidth=1.0, clip_on=False)
    return figure, axes


def _draw_grid(axes: Axes) -> None:
    """Label lengths at the edges of classes, and differences at decades with a line each."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    powers = [float(power) for power in range(math.ceil(left), math.floor(right) + 1)]
    for power in powers or [(left + right) / 2]:
        axes.annotate(f"{2**power:.0f}", (power, low), (0, -6), **LABEL_BELOW)
    decades = range(math.ceil(low), math.floor(high) + 1)
    for decade in decades[:: 1 + len(decades) // 7]:
        axes.plot([left, right], [decade, decade], color=FAINT, linewidth=0.6, clip_on=False)
        axes.annotate(f"{10.0**decade:.0e}", (left, decade), (-5, 0), **LABEL_LEFT)


def _log10(value: float) -> float:
    return math.log10(min(max(value, SMALLEST), LARGEST))


def _places(runs: Sequence[record.Run], field: Field) -> Points:
    """Give the places of runs, (N, 2): binary logarithm of tokens, decimal one of the difference."""
    found = [(math.log2(min(max(run.tokens, 1), LONGEST)), _log10(getattr(run, field))) for run in runs]
    return np.array(found, dtype=np.float64).reshape(-1, 2)


def _on_paper(axes: Axes, places: Points) -> Points:
    """Give places in points of the figure, (N, 2), each place once."""
    moved = axes.transData.transform(places)
    return np.unique(np.round(moved * STEPS_PER_POINT), axis=0) / STEPS_PER_POINT


def draw_markers(axes: Axes, padding: str, places: Points) -> None:
    """Draw one path for all markers of a class: circles and squares as caps of lines without length, triangles."""
    if not len(places):
        return
    places, colour = _on_paper(axes, places), PADDING_COLOURS[padding]
    if padding == "window":
        corners = np.array([[-0.6, -0.45], [0.6, -0.45], [0.0, 0.6], [0.0, 0.0]]) * MARKER_SIZE
        vertices = (places[:, None] + corners).reshape(-1, 2)
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(places)
        look: dict[str, Any] = {"facecolor": colour, "linewidth": 0}
    else:
        vertices = np.repeat(places, 2, axis=0)
        codes = [Path.MOVETO, Path.LINETO] * len(places)
        cap = "round" if padding == "none" else "projecting"
        look = {"fill": False, "edgecolor": colour, "linewidth": MARKER_SIZE, "capstyle": cap}
    path = Path(np.round(vertices, 1), codes)
    axes.add_artist(PathPatch(path, transform=IdentityTransform(), clip_on=False, **look))


def _draw_rings(axes: Axes, places: Points) -> None:
    if not len(places):
        return
    places, half = _on_paper(axes, places), RING_SIZE / 2
    corners = np.array([[-half, 0], [0, half], [half, 0], [0, -half], [0, 0]])
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(places)
    path = Path((places[:, None] + corners).reshape(-1, 2), codes)
    look: dict[str, Any] = {"fill": False, "edgecolor": BROKEN, "linewidth": 1.2}
    axes.add_artist(PathPatch(path, transform=IdentityTransform(), clip_on=False, **look))


def _name_bound(bound: float) -> str:
    return f"bound {visible.small_number(bound)}"


def _decade_names() -> list[str]:
    edges = [f"{edge:.0e}" for edge in record.DECADES]
    between = [f"from {low} to {high}" for low, high in itertools.pairwise(edges)]
    return [f"below {edges[0]}", *between, f"from {edges[-1]}"]


def as_inline(figure: Figure, label: str) -> Markup:
    """Turn a figure into an element of the page; the label is for readers who do not see it."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    drawn = stream.getvalue()
    body = drawn[drawn.index(">", drawn.index("<svg")) + 1 :]
    body = re.sub(r"<(metadata|defs)>.*?</\1>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r' (id="[^"]*"|xlink:href="[^"]*")', "", body)
    body = re.sub(r"font(-[a-z]+)?: [^;\"]*(; )?", "", body)
    body = re.sub(r"\bM (\S+) (\S+) \nL \1 \2 \n?", r"M\1 \2h0", body)
    body = re.sub(r"\s*\n\s*", " ", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, variable)
    width, height = (72 * size for size in SIZE_INCHES)
    opening = Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        f"{width:g}", f"{height:g}", label
    )
    return opening + Markup(body)
