"""tiny-guard: benign or jailbreak, read from the first token, with one rotary base in all layers as in mmBERT."""

import corpora
import numpy as np
import torch
from architecture import GLOBAL_THETA, sample_config
from data.guard import GuardWriter
from fit import Schedule, fit
from packed import Batch, PackedExamples
from tasks.intent import drop_tokens
from transformers import ModernBertForSequenceClassification
from workspace import Workspace

NAME = "tiny-guard"
SEED = 2
LABELS = ["benign", "jailbreak"]
_STEPS = 4000
_EXAMPLES = 60000


def real_texts(workspace: Workspace, split: str) -> list[str]:
    """Read harmless user texts of one split."""
    texts = [row.text for row in corpora.read_both_intent_sets(workspace.data, split)]
    return texts + [str(row["text"]) for row in corpora.read_rows(workspace.data, f"nlupp_multilabel.{split}")]


def train(workspace: Workspace) -> None:
    """Train and write the checkpoint."""
    torch.manual_seed(SEED)
    writer = GuardWriter(SEED, real_texts(workspace, "train"), held_out=False)
    rows = [writer.example() for _ in range(_EXAMPLES)]
    targets = torch.tensor([label for _, label in rows], device=workspace.device)
    packed = PackedExamples(workspace.encode([text for text, _ in rows]), workspace.device)
    dropouts = {"embedding_dropout": 0.1, "mlp_dropout": 0.1, "classifier_dropout": 0.1}
    config = sample_config(
        labels=LABELS,
        local_theta=GLOBAL_THETA,
        classifier_pooling="cls",
        problem_type="single_label_classification",
        **dropouts,
    )
    model = ModernBertForSequenceClassification(config).to(workspace.device)
    workspace.load_encoder(model)

    def loss_of(current: torch.nn.Module, batch: Batch) -> torch.Tensor:
        logits = current(input_ids=drop_tokens(batch, 0.1), attention_mask=batch.attention_mask).logits
        return torch.nn.functional.cross_entropy(logits, targets[batch.index], label_smoothing=0.05)

    batches = packed.epochs(np.random.default_rng(SEED))
    schedule = Schedule(workspace.steps(_STEPS), 1e-3, weight_decay=0.05)
    workspace.write_checkpoint(NAME, fit(model, batches, loss_of, schedule, NAME), config, legacy=True)
