"""Logits to probabilities, in float64 so that the conversion adds nothing to what is compared."""

import numpy as np
from numpy.typing import NDArray


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Give probabilities that sum to 1 over the last axis; shape is kept. Shifted by the maximum: no overflow."""
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    probabilities: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return probabilities


def sigmoid(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Give one probability for each logit; shape is kept. Both tails are exact: e^-|x| cannot overflow."""
    wide = logits.astype(np.float64)
    power = np.exp(-np.abs(wide))
    scores: NDArray[np.float64] = np.where(wide >= 0, 1.0, power) / (1.0 + power)
    return scores
