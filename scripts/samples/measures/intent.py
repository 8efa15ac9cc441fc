"""Held-out accuracy of tiny-intent."""

import random
from typing import Any

import baselines
import corpora
import numpy as np
from inference import Checkpoint, sequence_logits
from scores import report, rounded
from tasks.intent import SEED, label_names, lengthen
from workspace import Workspace


def measure(workspace: Workspace, checkpoint: Checkpoint) -> dict[str, Any]:
    """Classify the test texts, alone and made long."""
    names = label_names(workspace)
    train, test = (corpora.read_intents(workspace.data, f"banking77.{split}") for split in ("train", "test"))
    truth = np.array([names.index(row.label) for row in test])
    guess = sequence_logits(checkpoint, [row.text for row in test]).argmax(1)
    rng = random.Random(SEED + 100)
    of_label: dict[str, list[str]] = {}
    for row in test:
        of_label.setdefault(row.label, []).append(row.text)
    long = [lengthen(row.text, of_label[row.label], rng) for row in test]
    long_guess = sequence_logits(checkpoint, long).argmax(1)
    svm = baselines.svm_labels(
        [row.text for row in train], [names.index(row.label) for row in train], [row.text for row in test]
    )
    return report(
        "accuracy",
        {"test": rounded((guess == truth).mean()), "test_made_long": rounded((long_guess == truth).mean())},
        {"tfidf_linear_svm": rounded((svm == truth).mean())},
        n=len(test),
        data="banking77 test split; made long: joined with texts of the same intent or with polite sentences",
    )
