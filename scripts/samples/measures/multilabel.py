"""Held-out F1 of tiny-multilabel at its own thresholds."""

from typing import Any

import baselines
import numpy as np
from inference import Checkpoint, sequence_logits
from scores import micro_f1, report, rounded
from tasks.multilabel import read_rows
from workspace import Workspace, read_json


def measure(workspace: Workspace, checkpoint: Checkpoint) -> dict[str, Any]:
    """Label the test texts."""
    train, test = read_rows(workspace, "train"), read_rows(workspace, "test")
    thresholds = np.array(read_json(checkpoint.folder / "operating_point.json")["thresholds"], dtype=np.float32)
    scores = 1 / (1 + np.exp(-sequence_logits(checkpoint, test.texts)))
    truth = test.truth > 0
    svm = baselines.svm_multilabel(train.texts, train.truth, test.texts)
    results = {
        "micro_f1": rounded(micro_f1(scores >= thresholds, truth)),
        "micro_f1_at_one_half": rounded(micro_f1(scores >= 0.5, truth)),
    }
    return report(
        "micro F1",
        results,
        {"tfidf_one_vs_rest_svm_micro_f1": rounded(micro_f1(svm, truth))},
        n=len(test.texts),
        n_train=len(train.texts),
        data="NLU++ test split; thresholds from training rows that the model choosing them had not seen",
    )
