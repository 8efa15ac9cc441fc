"""Quality figures: accuracy, F1 of labels, F1 of spans, and what is written to eval.json."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from data.fill import Span
from numpy.typing import NDArray


def rounded(value: float) -> float:
    """Round a measure to four digits."""
    return round(float(value), 4)


def micro_f1(chosen: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """Return the F1 of all decisions together."""
    hits = float((chosen & truth).sum())
    return 2 * hits / max(1.0, float(chosen.sum() + truth.sum()))


def span_f1(predicted: Iterable[Iterable[Span]], expected: Iterable[Iterable[Span]]) -> dict[str, float]:
    """Return precision, recall and F1 of exact spans."""
    hits = guessed = wanted = 0
    for found, true in zip(predicted, expected, strict=True):
        found_set, true_set = set(found), set(true)
        hits += len(found_set & true_set)
        guessed += len(found_set)
        wanted += len(true_set)
    f1 = 2 * hits / max(1, guessed + wanted)
    return {"precision": rounded(hits / max(1, guessed)), "recall": rounded(hits / max(1, wanted)), "f1": rounded(f1)}


def of_label(spans: Iterable[Iterable[Span]], label: str) -> list[list[Span]]:
    """Keep the spans of one label."""
    return [[span for span in row if span.label == label] for row in spans]


def report(metric: str, results: dict[str, Any], baseline: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """Lay out the content of eval.json."""
    return {"metric": metric, "results": results, "baseline": baseline, **facts}
