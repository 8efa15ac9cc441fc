"""One label per text: softmax, the maximum over windows, the first arg-max."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vela.serve import windows
from vela.serve.decode import activation


def decode_windows(logits: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float64]]:
    """Give each window's probabilities, (C,); a text read in one piece is one window.

    Args:
        logits: (C,) for each window, in natural-log units.
    """
    return [activation.softmax(row) for row in logits]


def reduce_windows(probabilities: Sequence[NDArray[np.float64]]) -> tuple[int, NDArray[np.float64]]:
    """Give the winning label's index, the first one on ties, and each label's maximum over windows, (C,)."""
    merged = windows.merge_maximum(probabilities)
    return int(np.argmax(merged)), merged
