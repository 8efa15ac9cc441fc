"""Decode token answers into spans by the family's rules, for the held-out measures.

Upstream's rules: B-X opens; I-X goes on with an open X and else opens one; anything else closes. Personal data is
trimmed of white space, unsupported spans are not; here both are, since the marks to compare with carry none.
"""

import numpy as np
from data.fill import Span
from numpy.typing import NDArray


def trimmed(text: str, label: str, start: int, end: int) -> Span | None:
    """Strip white space from a span; return none when nothing stays."""
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    end -= len(piece) - len(piece.rstrip())
    return Span(label, start, end) if start < end else None


def bio_spans(text: str, offsets: list[tuple[int, int]], tags: list[str]) -> list[Span]:
    """Join tagged tokens into spans."""
    opened: list[tuple[str, int, int]] = []
    current: str | None = None
    for (start, end), tag in zip(offsets, tags, strict=True):
        if start == end:
            continue
        prefix, _, kind = tag.partition("-")
        if prefix == "I" and current == kind:
            opened[-1] = (kind, opened[-1][1], end)
        elif prefix in ("B", "I"):
            opened.append((kind, start, end))
        current = kind or None
    spans = (trimmed(text, kind, start, end) for kind, start, end in opened)
    return [span for span in spans if span]


def score_spans(
    text: str, offsets: list[tuple[int, int]], scores: NDArray[np.float32], label: str, threshold: float
) -> list[Span]:
    """Join tokens whose score (T,) is above the threshold; tokens without width neither join nor part."""
    opened: list[tuple[int, int]] = []
    running = False
    for (start, end), score in zip(offsets, scores, strict=True):
        if start == end:
            continue
        if score > threshold and running:
            opened[-1] = (opened[-1][0], end)
        elif score > threshold:
            opened.append((start, end))
        running = bool(score > threshold)
    spans = (trimmed(text, label, start, end) for start, end in opened)
    return [span for span in spans if span]
