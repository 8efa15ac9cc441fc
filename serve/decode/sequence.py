"""One label per text: softmax, the maximum over windows, the first arg-max."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vela.serve import windows
from vela.serve.decode import activation


def decode_windows(logits: Sequence[NDArray[np.float32]]) -> list[list[float]]:
    """Give each window's C probabilities; a text read in one piece is one window.

    Args:
        logits: (C,) for each window, in natural-log units.
    """
    return [activation.softmax(row.tolist()) for row in logits]


def reduce_windows(probabilities: Sequence[list[float]]) -> tuple[int, list[float]]:
    """Give the winning label's index, the first one on ties, and each label's maximum over windows."""
    merged = windows.merge_maximum(probabilities)
    return merged.index(max(merged)), merged
