"""tiny-intent: the 77 intents of banking77, one of them for each text."""

import random

import corpora
import numpy as np
import torch
from architecture import sample_config
from fit import Schedule, fit
from packed import Batch, PackedExamples
from transformers import ModernBertForSequenceClassification
from workspace import Workspace

NAME = "tiny-intent"
SEED = 1
_STEPS = 5000
# One training text in four is long: several texts of one intent, or a text among polite sentences.
_LONG_EVERY = 4
POLITE = (
    "Hello, I hope you are well.",
    "Good morning, I have been a customer for several years.",
    "Thank you for your patience with all of my questions.",
    "I am writing from my phone, so please excuse the typing mistakes.",
    "I could not find an answer on the help pages.",
    "My colleague said that your team answers quickly.",
    "Please write in simple words, I am not an expert.",
    "It is raining here and I have some time, so I thought I would ask.",
    "I would be glad to hear from you today.",
    "Many thanks in advance and kind regards.",
    "That is all for now, have a nice day.",
    "Sorry for the long message, I wanted to be clear.",
)


def lengthen(text: str, same: list[str], rng: random.Random) -> str:
    """Make a long text of the same intent."""
    if rng.random() < 0.5:
        return " ".join([text, *rng.choices(same, k=rng.choice((1, 2, 4, 8, 16)))])
    parts = rng.choices(POLITE, k=rng.choice((1, 2, 4, 8, 16)))
    parts.insert(rng.randint(0, len(parts)), text)
    return " ".join(parts)


def label_names(workspace: Workspace) -> list[str]:
    """Return the intents in the order of their index."""
    return sorted({row.label for row in corpora.read_intents(workspace.data, "banking77.train")})


def examples(workspace: Workspace) -> tuple[list[str], list[int]]:
    """Build the training texts and their label indices."""
    rng = random.Random(SEED)
    rows = corpora.read_intents(workspace.data, "banking77.train")
    names = label_names(workspace)
    of_label: dict[str, list[str]] = {name: [] for name in names}
    for row in rows:
        of_label[row.label].append(row.text)
    texts, targets = [row.text for row in rows], [names.index(row.label) for row in rows]
    for row in rows[:: _LONG_EVERY - 1]:
        texts.append(lengthen(row.text, of_label[row.label], rng))
        targets.append(names.index(row.label))
    return texts, targets


def drop_tokens(batch: Batch, share: float) -> torch.Tensor:
    """Hide a share of the tokens behind the mask token."""
    ids = batch.input_ids
    hidden = (torch.rand(ids.shape, device=ids.device) < share) & (ids > 4)
    return torch.where(hidden, 4, ids)


def train(workspace: Workspace) -> None:
    """Train and write the checkpoint."""
    torch.manual_seed(SEED)
    texts, labels = examples(workspace)
    targets = torch.tensor(labels, device=workspace.device)
    packed = PackedExamples(workspace.encode(texts), workspace.device)
    dropouts = {"embedding_dropout": 0.1, "mlp_dropout": 0.1, "classifier_dropout": 0.2}
    config = sample_config(
        labels=label_names(workspace),
        classifier_pooling="mean",
        problem_type="single_label_classification",
        **dropouts,
    )
    model = ModernBertForSequenceClassification(config).to(workspace.device)
    workspace.load_encoder(model)

    def loss_of(current: torch.nn.Module, batch: Batch) -> torch.Tensor:
        logits = current(input_ids=drop_tokens(batch, 0.1), attention_mask=batch.attention_mask).logits
        return torch.nn.functional.cross_entropy(logits, targets[batch.index], label_smoothing=0.1)

    batches = packed.epochs(np.random.default_rng(SEED), max_rows=64)
    schedule = Schedule(workspace.steps(_STEPS), 1.5e-3, weight_decay=0.05)
    workspace.write_checkpoint(NAME, fit(model, batches, loss_of, schedule, NAME), config, legacy=True)
