"""Spans of an answer that its context does not support: runs of tokens above a threshold.

Unlike BIO spans they keep white space, and their probability is the maximum: the family's recorded answers have a
span " Rome" with its space.
Source: the router's model runtime, heads/grounded.py.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vela.serve import answers
from vela.serve.tokenization import Offsets


def decode_spans(
    answer: str, offsets: Offsets, probabilities: Sequence[float] | NDArray[np.float64], threshold: float, label: str
) -> list[answers.Span]:
    """Decode one answer's tokens.

    Args:
        answer: What the offsets point into.
        offsets: N pairs in code points.
        probabilities: (N,), of the label that makes a span.
        threshold: A token belongs to a span when its probability is strictly greater.
        label: The name that spans get.
    """
    return [
        answers.Span(label, start, end, answer[start:end], probability)
        for start, end, probability in _runs(offsets, [float(value) for value in probabilities], threshold)
    ]


def _runs(offsets: Offsets, probabilities: Sequence[float], threshold: float) -> Iterator[tuple[int, int, float]]:
    current: tuple[int, int, float] | None = None
    for (start, end), probability in zip(offsets, probabilities, strict=True):
        if end <= start:
            continue  # a token without width neither extends nor breaks a run
        if probability > threshold:
            first, last, highest = current or (start, end, probability)
            current = (first, max(last, end), max(highest, probability))
        elif current is not None:
            yield current
            current = None
    if current is not None:
        yield current
