"""The ledger on a terminal: a line for each model, every graph with its verdicts, and why a model is not published."""

from collections.abc import Iterator, Sequence

from vela.scripts.release import ledger

HEADINGS = (
    "MODEL",
    "OUTCOME",
    "GRAPHS",
    "PASSED",
    "COMPARED",
    "MAX |Δp|",
    "MUTANTS",
    "SECONDS",
    "PEAK GB",
    "PUBLISHED",
)
GRAPH_HEADINGS = ("GRAPH", "DEVICE", "VERDICT", "COMPARED", "MAX |Δp|", "MAX |Δlogit|", "MUTANTS", "SECONDS")
COLOURS = {"published": "passed", "passed": "passed", "failed": "failed"}
DIGITS = 12
GB = 1e9


def release_table(lines: Sequence[ledger.ModelLine], *, with_graphs: bool = False) -> Iterator[tuple[str, str]]:
    """Give the lines of the table, each with the verdict that colours it."""
    published = sum(line.outcome == "published" for line in lines)
    graphs = sum(len(line.graphs) for line in lines)
    yield f"{published} of {len(lines)} models published, {graphs} graphs", _colour(ledger.worst_of(lines))
    yield from _aligned([HEADINGS, *map(_row, lines)], [_colour(line.outcome) for line in lines], 2)
    for line in lines:
        if with_graphs:
            rows = [row for graph in line.graphs for row in _graph_rows(graph)]
            yield line.name, ""
            yield from _aligned([GRAPH_HEADINGS, *rows], [_colour(row[2]) for row in rows], 3)
        if line.reason:
            yield f"  {line.name}: {line.reason}", "failed" if line.outcome != "not_compared" else "not_compared"


def _colour(word: str) -> str:
    return COLOURS.get(word, "not_compared")


def _row(line: ledger.ModelLine) -> tuple[str, ...]:
    verdicts = [verdict for graph in line.graphs for verdict in graph.verdicts.values()]
    largest = [found.max_abs_probability for found in verdicts if found.max_abs_probability is not None]
    scores = [tuple(map(int, found.mutants.split(" of "))) for found in verdicts if " of " in found.mutants]
    return (
        line.name,
        line.outcome.replace("_", " "),
        str(len(line.graphs)),
        f"{sum(found.verdict == 'passed' for found in verdicts)}/{len(verdicts)}",
        f"{sum(found.compared for found in verdicts):,}",
        f"{max(largest):.1e}" if largest else "-",
        f"{sum(score[0] for score in scores)}/{sum(score[1] for score in scores)}" if scores else "-",
        f"{sum(step.seconds for step in line.steps):.1f}",
        f"{line.peak_bytes / GB:.2f}" if line.peak_bytes else "-",
        line.published[:DIGITS] or "-",
    )


def _graph_rows(graph: ledger.GraphLine) -> list[tuple[str, ...]]:
    if not graph.verdicts:
        return [(graph.id, "-", "not judged", "-", "-", "-", "-", "-")]
    return [
        (
            graph.id,
            device,
            found.verdict.replace("_", " "),
            f"{found.compared:,}",
            "-" if found.max_abs_probability is None else f"{found.max_abs_probability:.1e}",
            "-" if found.max_abs_logit is None else f"{found.max_abs_logit:.1e}",
            found.mutants.replace(" of ", "/") or "-",
            f"{found.seconds:.1f}",
        )
        for device, found in graph.verdicts.items()
    ]


def _aligned(rows: Sequence[tuple[str, ...]], colours: Sequence[str], names: int) -> Iterator[tuple[str, str]]:
    """Align columns: the first ones to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, colour in zip(rows, ["", *colours], strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row[:names], widths[:names], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(row[names:], widths[names:], strict=True)]
        yield ("  " + "  ".join(cells)).rstrip(), colour
