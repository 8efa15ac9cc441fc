"""Relevance logits to scores and an order."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vela.serve.decode import activation


def relevance_scores(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Give each document's relevance between 0 and 1, (D,) for (D,) logits."""
    return activation.sigmoid(logits)


def order_documents(logits: Sequence[float]) -> list[int]:
    """Give the documents' indices, most relevant first; equal logits keep the request's order.

    Logits decide and not scores: far from zero, different logits have the same score.
    """
    return sorted(range(len(logits)), key=lambda index: -logits[index])
