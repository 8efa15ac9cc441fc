"""Held-out accuracy of tiny-guard: unseen templates, and real texts that nobody wrote for it."""

from typing import Any

import baselines
import numpy as np
from data.guard import GuardWriter
from inference import Checkpoint, sequence_logits
from scores import micro_f1, report, rounded
from tasks.guard import SEED, real_texts
from workspace import Workspace

_COUNT = 3000
_LONG_CHARACTERS = 200


def measure(workspace: Workspace, checkpoint: Checkpoint) -> dict[str, Any]:
    """Classify prompts of held-out templates among test texts."""
    learned = GuardWriter(SEED, real_texts(workspace, "train"), held_out=False)
    train = [learned.example() for _ in range(20000)]
    real = real_texts(workspace, "test")
    writer = GuardWriter(SEED + 100, real, held_out=True)
    test = [writer.example() for _ in range(_COUNT)]
    texts, truth = [text for text, _ in test], np.array([label for _, label in test])
    guess = sequence_logits(checkpoint, texts).argmax(1)
    svm = baselines.svm_labels([text for text, _ in train], [label for _, label in train], texts)
    long = np.array([len(text) > _LONG_CHARACTERS for text in texts])
    near = [writer.prompt(0) for _ in range(1000)]
    alarms = sequence_logits(checkpoint, near).argmax(1).mean()
    real_alarms = sequence_logits(checkpoint, real).argmax(1).mean()
    results = {
        "accuracy": rounded((guess == truth).mean()),
        "jailbreak_f1": rounded(micro_f1(guess == 1, truth == 1)),
        "accuracy_short": rounded((guess == truth)[~long].mean()),
        "accuracy_long": rounded((guess == truth)[long].mean()),
        "false_alarms_on_unseen_harmless_templates": rounded(alarms),
        "false_alarms_on_real_texts": rounded(real_alarms),
    }
    baseline = {
        "tfidf_linear_svm_accuracy": rounded((svm == truth).mean()),
        "tfidf_linear_svm_jailbreak_f1": rounded(micro_f1(svm == 1, truth == 1)),
    }
    data = "held-out project templates, alone or inside test texts of banking77, clinc150 and NLU++"
    return report("accuracy and F1", results, baseline, n=_COUNT, data=data)
