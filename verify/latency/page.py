"""A measurement in rounds as one HTML page, in the look of the verification reports; it needs no other file.

What a record holds is escaped and made visible by the report's templates; only plots and the style sheet are trusted.
"""

from pathlib import Path

from markupsafe import Markup

from vela.verify.latency import corpus, figures, record, table
from vela.verify.report import figures as styles
from vela.verify.report import page

TEMPLATES = Path(__file__).parent / "templates"
SHOWN = 50  # answers that differ; the record has all of them


def render(found: record.RoundsRecord) -> str:
    """Give the page for a record; equal records give an equal page."""
    with styles.plain_style():
        phases = [_phase(found, concurrency) for concurrency in _concurrency(found)]
        ratios = {name: _ratios(found, name) for name in dict.fromkeys(one.side for one in found.comparisons)}
    return (
        page.environment(TEMPLATES)
        .get_template("rounds.html")
        .render(
            found=found,
            good=found.good,
            phases=phases,
            ratios=ratios,
            markers={side.name: figures.marker_of(place) for place, side in enumerate(found.sides)},
            differing=[(turn.side, one) for each in found.good for turn in each.turns for one in turn.differing],
            shown=SHOWN,
            summaries=_summaries(found),
            headings=table.SIDE_HEADINGS,
            verdict_words=table.WORDS,
            verdict_states={"slower": "failed", "faster": "passed"},
            milliseconds=table.milliseconds,
            style=page.style(),
            policy=page.POLICY,
        )
    )


def write(path: Path, found: record.RoundsRecord) -> None:
    """Write the page; a reader sees the old one or the new one.

    Raises:
        VerificationError: it cannot be written there.
    """
    corpus.write_in_one_step(path, render(found).encode())


def _concurrency(found: record.RoundsRecord) -> list[int]:
    turns = [turn for one in found.good for turn in one.turns]
    return list(dict.fromkeys(phase.concurrency for turn in turns for phase in turn.phases))


def _phase(found: record.RoundsRecord, concurrency: int) -> tuple[int, Markup]:
    """Draw one phase of all sides."""
    rows = [[_quantiles(one, side.name, concurrency) for one in found.good] for side in found.sides]
    return concurrency, figures.draw_rounds(rows, f"median and 95th percentile by round, with {concurrency} callers")


def _quantiles(one: record.Round, side: str, concurrency: int) -> record.Quantiles | None:
    phases = [phase for turn in one.turns if turn.side == side for phase in turn.phases]
    return next((phase.quantiles for phase in phases if phase.concurrency == concurrency), None)


def _ratios(found: record.RoundsRecord, side: str) -> Markup:
    judged = [one for one in found.comparisons if one.side == side and one.verdict]
    return figures.draw_ratios(judged, found.limits.slower, f"ratios of {len(judged)} figures, with intervals")


def _summaries(found: record.RoundsRecord) -> list[tuple[str, ...]]:
    return [row for side in found.sides for row in table.side_rows(side.name, found.good)]
