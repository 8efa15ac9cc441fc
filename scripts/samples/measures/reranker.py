"""Held-out ranking of tiny-reranker: test texts of known intents, and intents that training never saw."""

from typing import Any

import baselines
import corpora
import numpy as np
import torch
from exits import PairScorers
from inference import Checkpoint, in_batches
from numpy.typing import NDArray
from safetensors.torch import load_file
from scores import report, rounded
from tasks.reranker import GROUP_SIZE, SEED, query_groups
from transformers import ModernBertModel
from workspace import Workspace

_QUERIES = 1000


def score(checkpoint: Checkpoint, pairs: list[tuple[str, str]]) -> dict[tuple[int, int], NDArray[np.float32]]:
    """Score pairs: (N,) float32 logits for each exit and dimension."""
    model = ModernBertModel.from_pretrained(checkpoint.folder).eval()
    scorers = PairScorers()
    scorers.load_state_dict(load_file(checkpoint.folder / "classification_heads.safetensors"))
    rows = [encoding.ids for encoding in checkpoint.tokenizer.encode_batch(pairs)]
    result: dict[tuple[int, int], NDArray[np.float32]] = {}
    with torch.no_grad():
        for index, input_ids, attention_mask in in_batches(rows):
            for key, logits in scorers(model, input_ids, attention_mask).items():
                result.setdefault(key, np.zeros(len(rows), dtype=np.float32))[index] = logits.numpy()
    return result


def ranking(scores: NDArray[np.float32]) -> dict[str, float]:
    """Measure scores (Q, documents), the first document being right: pairs in order, and mean reciprocal rank."""
    right, wrong = scores[:, :1], scores[:, 1:]
    ranks = 1 + (wrong >= right).sum(1)
    ties = 0.5 * (wrong == right)
    return {"pair_accuracy": rounded(((right > wrong) + ties).mean()), "mrr": rounded((1 / ranks).mean())}


def _measure_set(
    workspace: Workspace, checkpoint: Checkpoint, *, held_out: bool
) -> tuple[dict[str, Any], dict[str, float]]:
    both = corpora.read_both_intent_sets(workspace.data, "test")
    rows = [row for row in both if corpora.is_held_out_intent(row.label) == held_out]
    groups = query_groups(rows, _QUERIES, SEED + 100)
    pairs = [pair for group in groups for pair in group]
    shape = (len(groups), GROUP_SIZE)
    results = {
        f"layer_{layer}_dim_{d}": ranking(values.reshape(shape))
        for (layer, d), values in score(checkpoint, pairs).items()
    }
    bm25 = baselines.Bm25([row.text for row in rows])
    base = ranking(np.array([bm25.score(*pair) for pair in pairs], dtype=np.float32).reshape(shape))
    return results, base


def measure(workspace: Workspace, checkpoint: Checkpoint) -> dict[str, Any]:
    """Rank one document of the query's intent against others, most of which share its words."""
    unseen, unseen_base = _measure_set(workspace, checkpoint, held_out=True)
    seen, seen_base = _measure_set(workspace, checkpoint, held_out=False)
    return report(
        "accuracy of pairs and mean reciprocal rank",
        {"held_out_intents": unseen, "known_intents": seen},
        {"bm25": {"held_out_intents": unseen_base, "known_intents": seen_base}},
        n=_QUERIES,
        data="clinc150 and banking77 test texts: one document of the intent, three of others, most sharing words",
    )
