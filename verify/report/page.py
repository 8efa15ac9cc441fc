"""The page: a summary and its plots through a template, as one file that needs no other and no network.

Whatever a record holds is escaped by the template engine, after it was made visible; only the style sheet and the
plots are trusted, and both are made here. Equal records give an equal page, because a store's digest covers it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import jinja2
from markupsafe import Markup

from vela.graphs import errors, mutation
from vela.verify.report import figures, limits, matrix, reading, summary, visible

TEMPLATES = Path(__file__).parent / "templates"
# A page is one file: nothing is fetched, no script runs, no form is sent, whatever slipped through.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class Plots:
    """The plots of one record.

    Attributes:
        decades: Differences by decade.
        runs: Every run by its length.
        runs_name: What is plotted for a run.
        runs_bound: The largest that the bar allows; None where it bounds none.
        layers: States after each layer, of a graph that failed; None where there are none.
    """

    decades: Markup
    runs: Markup
    runs_name: str
    runs_bound: float | None
    layers: Markup | None = None

    @classmethod
    def from_graph(cls, graph: summary.GraphSummary) -> Self | None:
        """Draw a record; None where nothing was compared."""
        found, bounds = graph.stored, graph.bounds
        if not found.runs or not found.statistics:
            return None
        # Logits see what probabilities do not (a saturated softmax), so they are shown unless only |Δp| has a bound.
        is_logit = bounds.logit is not None or bounds.maximum is None
        field: figures.Field = "max_abs_logit" if is_logit else "max_abs_probability"
        name = "Max |Δlogit|" if is_logit else f"Max {bounds.unit}"
        bound = bounds.logit if is_logit else bounds.maximum
        lost = [run for run in found.runs if bounds.is_lost(run, found)]
        layers = found.diagnosis.layers if found.diagnosis else ()
        return cls(
            figures.draw_decades(graph.decades, bounds.maximum, bounds.unit),
            figures.draw_runs(found.runs, field, bound, lost, name),
            name,
            bound,
            figures.draw_layers(layers, mutation.STATES_DIFFER) if layers else None,
        )


def render(collected: reading.Collected) -> str:
    """Give the page for records."""
    found = summary.Summary.from_collected(collected)
    with figures.plain_style():
        plots = {graph.anchor: Plots.from_graph(graph) for graph in found.graphs}
    return environment().get_template("page.html").render(summary=found, plots=plots, style=style(), policy=POLICY)


def write(path: Path, collected: reading.Collected) -> None:
    """Write the page for records; a reader sees the file that was there or the whole new one.

    Raises:
        VerificationError: it cannot be written there.
    """
    content = render(collected).encode()
    staging = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging.unlink(missing_ok=True)
        with staging.open("xb") as stream:  # made anew: a link that lies there is not followed
            stream.write(content)
        staging.replace(path)
    except OSError as cause:
        raise errors.VerificationError(
            f"a place that cannot be written to ({cause.strerror})",
            expected="a file in a folder that you may write to",
            where=str(path),
            fix="Name another file with --html; the records are untouched.",
        ) from cause


def style() -> Markup:
    """Give the style sheet of all pages."""
    return Markup((TEMPLATES / "style.css").read_text(encoding="utf-8"))


def environment(*folders: Path) -> jinja2.Environment:
    """Give what renders templates: those of the report, and of other pages that look like it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, *folders]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "small": visible.small_number,
        "share": visible.share,
        "seconds": visible.seconds,
        "shorten": visible.shorten,
    }
    environment.globals |= {
        "words": summary.WORDS,
        "smallest": figures.SMALLEST,
        "padding_classes": matrix.PADDING_CLASSES,
        "row_limit": summary.ROW_LIMIT,
        "disagreement_limit": summary.DISAGREEMENT_LIMIT,
        "bar_facts": limits.bar_facts,
    }
    return environment


def _visible(value: object) -> object:
    """Make every text visible on its way into the page; what is markup already was made here."""
    return value if isinstance(value, Markup) else visible.visible(str(value))
