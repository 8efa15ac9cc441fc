"""Relevance logits to scores and an order."""

from collections.abc import Sequence

from vela.serve.decode import activation


def relevance_score(logit: float) -> float:
    """Give a document's relevance between 0 and 1."""
    return activation.sigmoid(logit)


def order_documents(logits: Sequence[float]) -> list[int]:
    """Give the documents' indices, most relevant first; equal logits keep the request's order.

    Logits decide and not scores: far from zero, different logits have the same score.
    """
    return sorted(range(len(logits)), key=lambda index: -logits[index])
