"""Order: does a reranker's graph put the documents of a query in the reference's order?

A pair alone decides nothing; what a caller sees is which document stands before which. So every two runs of one
query are compared: where the graph turns the reference's order round, both runs disagree, and how far apart the
reference had the two says whether that was a near tie. Pure functions over the differences of one graph.
"""

import dataclasses
from collections.abc import Sequence

from vela.verify import compare

Ordered = Sequence[compare.Difference]


def place_in_order(differences: Ordered) -> tuple[compare.Difference, ...]:
    """Give the same differences, with what their places among their query's documents decide.

    Args:
        differences: Of a reranker's runs; each is of one document, and carries its scores.

    Returns:
        In the same order. Where a run's document changes places with another one's, `agrees` is false, and `margin`
        is the reference's distance between the two, in logit units; the widest where there are several.
    """
    placed = list(differences)
    by_query: dict[str, list[int]] = {}
    for index, difference in enumerate(differences):
        by_query.setdefault(difference.case.query, []).append(index)
    for indices in by_query.values():
        for position, first in enumerate(indices):
            for second in indices[position + 1 :]:
                _compare_places(placed, first, second)
    return tuple(placed)


def _compare_places(placed: list[compare.Difference], first: int, second: int) -> None:
    """Mark two runs of one query where any output puts their documents the other way round."""
    one, other = placed[first], placed[second]
    if one.case.id == other.case.id:
        return
    for mine, theirs in zip(one.scores, other.scores, strict=True):
        wanted, found = mine.expected - theirs.expected, mine.actual - theirs.actual
        if wanted * found > 0 or wanted == found == 0:
            continue
        for index in (first, second):
            if placed[index].agrees or placed[index].margin < abs(wanted):
                placed[index] = dataclasses.replace(
                    placed[index],
                    agrees=False,
                    margin=abs(wanted),
                    actual=f"{mine.output}: {_say(one, other, found)}",
                    expected=f"{mine.output}: {_say(one, other, wanted)}",
                )


def _say(one: compare.Difference, other: compare.Difference, distance: float) -> str:
    if distance == 0:
        return f"{one.case.id} level with {other.case.id}"
    before, after = (one, other) if distance > 0 else (other, one)
    return f"{before.case.id} before {after.case.id}"
