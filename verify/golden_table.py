"""Checks of golden answers as tables for a terminal: one row a graph or a model, and below it why some did not pass."""

from collections.abc import Iterator, Sequence
from typing import Literal

from vela.serve.golden_asking import GraphCheck
from vela.verify.upstream_check import ModelCheck

GRAPHS = ("MODEL", "GRAPH", "VERDICT", "PROBES", "MAX |Δ|", "BOUND", "WORST")
MODELS = ("MODEL", "REVISION", "VERDICT", "INPUTS", "MAX |Δ|", "BOUND", "WORST")
REVISION_SHOWN = 12

Line = tuple[str, str]  # with the verdict that colours it
Colour = Literal["passed", "failed", "not_compared"]


def graph_lines(found: Sequence[GraphCheck]) -> Iterator[Line]:
    """Give the lines of a check by a bundle's own golden answers."""
    passed = sum(one.verdict == "passed" for one in found)
    where = f" on {found[0].device}" if found else ""
    yield f"{passed} of {len(found)} graphs gave their golden answers{where}", _overall([one.verdict for one in found])
    rows = [
        (one.model, one.graph or "-", _word(one.verdict), *_figures(one.probes, one.furthest, one.bound), one.worst)
        for one in found
    ]
    yield from _table(GRAPHS, rows, [one.verdict for one in found])
    for one in found:
        if one.reason:
            yield f"  {one.name}: {one.reason}", one.verdict


def model_lines(found: Sequence[ModelCheck]) -> Iterator[Line]:
    """Give the lines of a check by upstream's."""
    compared = [one for one in found if one.verdict != "not_compared"]
    passed = sum(one.verdict == "passed" for one in found)
    left = f"; {len(found) - len(compared)} not compared" if len(compared) < len(found) else ""
    overall = _overall([_colour(one.verdict) for one in compared])
    yield f"{passed} of {len(compared)} models answered as upstream's golden answers do{left}", overall
    rows = [
        (
            one.model,
            one.revision[:REVISION_SHOWN],
            _word(one.verdict),
            *_figures(one.inputs, one.furthest, one.bound),
            one.worst,
        )
        for one in found
    ]
    yield from _table(MODELS, rows, [_colour(one.verdict) for one in found])
    said: dict[tuple[str, Colour], list[str]] = {}  # what several models have in common is said once
    for one in found:
        for reason in (*one.reasons, *one.notes):
            said.setdefault((reason, _colour(one.verdict)), []).append(one.model)
    for (reason, colour), models in said.items():
        yield f"  {', '.join(models)}: {reason}", colour


def _figures(asked: int, furthest: float | None, bound: float | None) -> tuple[str, str, str]:
    return str(asked), _number(furthest), _number(bound)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], verdicts: Sequence[str]) -> Iterator[Line]:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row, verdict in zip([headings, *rows], ["", *verdicts], strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row[:3], widths[:3], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(row[3:6], widths[3:6], strict=True)]
        yield ("  " + "  ".join([*cells, row[6]])).rstrip(), verdict


def _word(verdict: str) -> str:
    return verdict.replace("_", " ")


def _colour(verdict: str) -> Colour:
    return "failed" if verdict in ("failed", "refused") else "passed" if verdict == "passed" else "not_compared"


def _overall(verdicts: Sequence[str]) -> Colour:
    if "failed" in verdicts:
        return "failed"
    return "passed" if verdicts and set(verdicts) == {"passed"} else "not_compared"
