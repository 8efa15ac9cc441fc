"""Held-out retrieval of tiny-embedding: intents that training never saw, at every depth and dimension."""

from typing import Any

import baselines
import corpora
import numpy as np
import torch
from corpora import IntentText
from exits import mean_embeddings
from inference import Checkpoint, in_batches
from numpy.typing import NDArray
from scores import report, rounded
from transformers import ModernBertModel
from workspace import Workspace

_NEIGHBOURS = 5


def embed(checkpoint: Checkpoint, texts: list[str]) -> dict[tuple[int, int], NDArray[np.float32]]:
    """Embed texts: (N, D) float32 for each exit and dimension."""
    model = ModernBertModel.from_pretrained(checkpoint.folder).eval()
    rows: dict[tuple[int, int], NDArray[np.float32]] = {}
    with torch.no_grad():
        for index, input_ids, attention_mask in in_batches(checkpoint.encode(texts)):
            for key, vectors in mean_embeddings(model, input_ids, attention_mask).items():
                rows.setdefault(key, np.zeros((len(texts), key[1]), dtype=np.float32))[index] = vectors.numpy()
    return rows


def neighbour_accuracy(similarity: NDArray[np.float64], queries: NDArray[np.int64], known: NDArray[np.int64]) -> float:
    """Return how often the vote of the nearest documents names the query's intent."""
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :_NEIGHBOURS]
    votes = np.zeros((len(queries), int(known.max()) + 1))
    for rank in range(_NEIGHBOURS):
        at = nearest[:, rank]
        votes[np.arange(len(queries)), known[at]] += similarity[np.arange(len(queries)), at] + 1
    return rounded((votes.argmax(1) == queries).mean())


def _rows(workspace: Workspace, split: str, *, held_out: bool) -> list[IntentText]:
    rows = corpora.read_both_intent_sets(workspace.data, split)
    return [row for row in rows if corpora.is_held_out_intent(row.label) == held_out]


def _measure_set(
    workspace: Workspace, checkpoint: Checkpoint, *, held_out: bool
) -> tuple[dict[str, float], float, int]:
    documents = _rows(workspace, "train", held_out=held_out)
    queries = _rows(workspace, "test", held_out=held_out)
    names = sorted({row.label for row in documents})
    known = np.array([names.index(row.label) for row in documents])
    asked = np.array([names.index(row.label) for row in queries])
    document_texts, query_texts = [row.text for row in documents], [row.text for row in queries]
    near, far = embed(checkpoint, query_texts), embed(checkpoint, document_texts)
    results = {
        f"layer_{layer}_dim_{d}": neighbour_accuracy(near[layer, d] @ far[layer, d].T, asked, known)
        for layer, d in near
    }
    tfidf = baselines.tfidf_similarities(document_texts, query_texts, document_texts)
    return results, neighbour_accuracy(tfidf, asked, known), len(queries)


def measure(workspace: Workspace, checkpoint: Checkpoint) -> dict[str, Any]:
    """Find the intents of test texts among training texts."""
    unseen, unseen_base, unseen_count = _measure_set(workspace, checkpoint, held_out=True)
    seen, seen_base, seen_count = _measure_set(workspace, checkpoint, held_out=False)
    return report(
        "accuracy of the vote of the 5 nearest texts",
        {"held_out_intents": unseen, "known_intents": seen},
        {"tfidf_cosine": {"held_out_intents": unseen_base, "known_intents": seen_base}},
        n=unseen_count,
        n_known=seen_count,
        data="clinc150 and banking77: test texts search training texts of the same intents; one intent in six unseen",
    )
