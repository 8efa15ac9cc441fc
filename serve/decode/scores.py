"""Independent labels: a sigmoid each, the maximum over windows, and the operating point that selects."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vela.graphs import heads
from vela.serve import windows
from vela.serve.decode import activation


def decode_windows(logits: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float64]]:
    """Give each window's scores, (C,); a text read in one piece is one window.

    Args:
        logits: (C,) for each window, in natural-log units.
    """
    return [activation.sigmoid(row) for row in logits]


def reduce_windows(scores: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Give each label's maximum over windows, (C,)."""
    return windows.merge_maximum(scores)


def select_labels(scores: NDArray[np.float64], labels: Sequence[str], point: heads.OperatingPoint) -> list[str]:
    """Give the labels whose score passes their threshold, in label order.

    Args:
        scores: (C,), reduced over windows.
        labels: C labels.
        point: Thresholds in label order, and whether equality passes.
    """
    thresholds = np.asarray(point.thresholds, dtype=np.float64)
    passes = scores >= thresholds if point.comparison == "score >= threshold" else scores > thresholds
    return [label for label, passed in zip(labels, passes.tolist(), strict=True) if passed]
