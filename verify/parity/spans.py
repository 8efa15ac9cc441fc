"""Spans of two answers: their sets as upstream compares them, and their probabilities also where the sets differ.

A span is the same on both sides if label (in capitals), start and end are. Spans that are not are matched from left
to right with an overlapping one of the same label, so that an edge that moved by a token does not hide a probability
that moved by a half. An answer may name one place twice: tokens that are bytes of one character share its place. The
first is then compared with the other side's first; upstream compares sets of places, whatever their count.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from vela.verify.parity import figures, lines

Numbered = tuple[str, int, int, int]  # a span, and which it is of those of its label and place
Key = TypeVar("Key", figures.SpanKey, Numbered)
# Grounded answers have one kind of span, which systems call by different names.
GROUNDED_LABEL = "HALLUCINATED"


def compare_spans(
    item_id: str, actual: lines.TokenResult, expected: lines.TokenResult, *, is_grounded: bool
) -> figures.Difference:
    """Measure two answers whose numbers are finite and whose token rows, if both have them, are of one shape."""
    mine, theirs = (_numbered(side.spans, is_grounded=is_grounded) for side in (actual, expected))
    is_one_set = {key[:3] for key in mine} == {key[:3] for key in theirs}
    agrees = mine.keys() == theirs.keys()
    common = [abs(value - theirs[key]) for key, value in mine.items() if key in theirs]
    alone = sorted(mine.keys() - theirs.keys()), sorted(theirs.keys() - mine.keys())
    matched = [abs(mine[one] - theirs[other]) for one, other in match_overlapping(*alone)]
    rows, margins = _compare_tokens(actual.tokens, expected.tokens)
    # Every token that differs must have been close: the widest margin counts; without tokens nothing excuses.
    margin = float(np.max(margins)) if margins.size else figures.INFINITE
    return figures.Difference(
        item_id,
        upstream=figures.Figures(
            np.array(common if is_one_set else ()), figures.flips(figures.INFINITE, differs=not is_one_set)
        ),
        strict=figures.Figures(np.concatenate([common, matched, rows]), figures.flips(margin, differs=not agrees)),
        tokens=expected.input.tokens,
        expected_only=tuple(key[:3] for key in alone[1]),
        actual_only=tuple(key[:3] for key in alone[0]),
    )


def match_overlapping(left: Sequence[Key], right: Sequence[Key]) -> Iterator[tuple[Key, Key]]:
    """Match spans of one label that overlap, each at most once, from left to right."""
    others = _by_label(right)
    for label, mine in _by_label(left).items():
        theirs = others.get(label, [])
        first = second = 0
        while first < len(mine) and second < len(theirs):
            (start, end), (other_start, other_end) = mine[first][1:3], theirs[second][1:3]
            overlaps = start < other_end and other_start < end
            if overlaps:
                yield mine[first], theirs[second]
            first += overlaps or end <= other_end
            second += overlaps or end > other_end


def _numbered(spans: Iterable[lines.Span], *, is_grounded: bool) -> dict[Numbered, float]:
    """Give the probability of each span; those of one label and place, such as bytes of one character, are counted."""
    seen: Counter[figures.SpanKey] = Counter()
    found = {}
    for span in spans:
        key = (GROUNDED_LABEL if is_grounded else span.label.upper(), span.start, span.end)
        found[*key, seen[key]] = float(span.probability or 0.0)
        seen[key] += 1
    return found


def _by_label(spans: Iterable[Key]) -> dict[str, list[Key]]:
    groups: dict[str, list[Key]] = defaultdict(list)
    for span in sorted(spans):
        groups[span[0]].append(span)
    return groups


def _compare_tokens(
    actual: Sequence[lines.Token] | None, expected: Sequence[lines.Token] | None
) -> tuple[figures.Values, figures.Values]:
    """Give |Δp| of every token's row, and the baseline's margin of every token whose winner differs."""
    if not actual or not expected:
        return np.zeros(0), np.zeros(0)
    found, wanted = (np.array([token.probabilities for token in side], np.float64) for side in (actual, expected))
    differing = np.argmax(found, axis=1) != np.argmax(wanted, axis=1)
    top = np.sort(wanted[differing], axis=1)
    return np.abs(found - wanted).ravel(), top[:, -1] - top[:, -2] if top.shape[1] > 1 else np.zeros(0)
