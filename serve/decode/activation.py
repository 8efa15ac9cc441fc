"""Logits to probabilities, in float64 so that the conversion adds nothing to what is compared.

The few labels of one text are taken one by one: NumPy's machinery, met with the caches that a forward left cold, takes
five times as long for them. Rows of many tokens go through NumPy.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def softmax(logits: Sequence[float]) -> list[float]:
    """Give probabilities that sum to 1. Shifted by the maximum: no overflow."""
    largest = max(logits)
    powers = [math.exp(logit - largest) for logit in logits]
    total = math.fsum(powers)
    return [power / total for power in powers]


def sigmoid(logit: float) -> float:
    """Give a probability. Both tails are exact: e^-|x| cannot overflow."""
    power = math.exp(-abs(logit))
    return (1.0 if logit >= 0 else power) / (1.0 + power)


def softmax_rows(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Give each row's probabilities, which sum to 1: (N, C) for (N, C). Shifted by the maximum: no overflow."""
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    probabilities: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return probabilities
