"""Independent labels: a sigmoid each, the maximum over windows, and the operating point that selects."""

import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vela.graphs import heads
from vela.serve import windows
from vela.serve.decode import activation


def decode_windows(logits: Sequence[NDArray[np.float32]]) -> list[list[float]]:
    """Give each window's C scores; a text read in one piece is one window.

    Args:
        logits: (C,) for each window, in natural-log units.
    """
    return [[activation.sigmoid(logit) for logit in row.tolist()] for row in logits]


def reduce_windows(scores: Sequence[list[float]]) -> list[float]:
    """Give each label's maximum over windows."""
    return windows.merge_maximum(scores)


def select_labels(scores: Sequence[float], labels: Sequence[str], point: heads.OperatingPoint) -> list[str]:
    """Give the labels whose score passes their threshold, in label order.

    Args:
        scores: C scores, reduced over windows.
        labels: C labels.
        point: Thresholds in label order, and whether equality passes.
    """
    passes = operator.ge if point.comparison == "score >= threshold" else operator.gt
    judged = zip(labels, scores, point.thresholds, strict=True)
    return [label for label, score, threshold in judged if passes(score, threshold)]
