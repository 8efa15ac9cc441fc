"""tiny-multilabel: the 62 labels of NLU++, any number of them for each text, with a threshold for each."""

import random
from dataclasses import dataclass
from pathlib import Path

import corpora
import numpy as np
import torch
from architecture import sample_config
from fit import Schedule, fit
from numpy.typing import NDArray
from packed import Batch, PackedExamples
from tasks.intent import drop_tokens
from transformers import ModernBertConfig, ModernBertForSequenceClassification
from workspace import Workspace

from vela.export.standins.tokenizer import write_json

NAME = "tiny-multilabel"
SEED = 3
_STEPS = 2500
# One training row in eight chooses the thresholds.
_VALIDATION_EVERY = 8
_JOINED = 6000
WINDOW_TOKENS = 128
WINDOW_OVERLAP = 63
_MAX_DOCUMENT_TOKENS = 4096
# Thresholds are pulled to the one that is best for all labels together, as if this many rows had been seen of it.
_PRIOR_ROWS = 20.0


@dataclass(frozen=True, slots=True)
class Rows:
    """Texts and their labels: (N, C) float32, one or zero."""

    texts: list[str]
    truth: NDArray[np.float32]


def label_names(workspace: Workspace) -> list[str]:
    """Return the labels in the order of their index."""
    rows = corpora.read_rows(workspace.data, "nlupp_multilabel.train")
    return sorted({str(label) for row in rows for label in row["labels"]})  # type: ignore[attr-defined]


def read_rows(workspace: Workspace, split: str) -> Rows:
    """Read one split."""
    names = label_names(workspace)
    rows = corpora.read_rows(workspace.data, f"nlupp_multilabel.{split}")
    truth = np.zeros((len(rows), len(names)), dtype=np.float32)
    for index, row in enumerate(rows):
        for label in row["labels"]:  # type: ignore[attr-defined]
            truth[index, names.index(label)] = 1
    return Rows([str(row["text"]) for row in rows], truth)


def split_validation(rows: Rows) -> tuple[Rows, Rows]:
    """Part the training rows into those to learn from while thresholds are chosen, and those to choose them on."""
    kept = np.arange(len(rows.texts)) % _VALIDATION_EVERY == 0
    return tuple(  # type: ignore[return-value]
        Rows([text for text, inside in zip(rows.texts, part, strict=True) if inside], rows.truth[part])
        for part in (~kept, kept)
    )


def with_joined_texts(rows: Rows) -> Rows:
    """Add texts that join several others and carry the union of their labels."""
    rng = random.Random(SEED)
    texts, truth = list(rows.texts), [rows.truth]
    for _ in range(_JOINED):
        chosen = rng.sample(range(len(rows.texts)), k=rng.choice((2, 2, 2, 3, 3, 6, 12)))
        texts.append(rng.choice((" ", "\n", ". ")).join(rows.texts[index] for index in chosen))
        truth.append(rows.truth[chosen].max(axis=0, keepdims=True))
    return Rows(texts, np.concatenate(truth))


def best_threshold(scores: NDArray[np.float32], truth: NDArray[np.float32], prior: float | None) -> float:
    """Choose the threshold of best F1; with `prior`, few positive rows leave it near the prior."""
    grid = np.linspace(0.1, 0.9, 81)
    f1 = [_f1(scores >= threshold, truth) for threshold in grid]
    best = float(np.mean(grid[np.isclose(f1, max(f1))]))
    if prior is None:
        return best
    weight = truth.sum() / (truth.sum() + _PRIOR_ROWS)
    return float(weight * best + (1 - weight) * prior)


def _f1(chosen: NDArray[np.bool_], truth: NDArray[np.float32]) -> float:
    hits = float((chosen & (truth > 0)).sum())
    return 2 * hits / max(1.0, float(chosen.sum() + truth.sum()))


def write_operating_point(folder: Path, names: list[str], thresholds: list[float]) -> None:
    """Write the thresholds and the way to read long inputs."""
    point = {
        "schema_version": 2,
        "score_type": "independent_sigmoid",
        "comparison": "score >= threshold",
        "labels": names,
        "thresholds": [round(value, 4) for value in thresholds],
        "input_policy": {
            "strategy": "overlapping_content_windows",
            "window_tokens_including_special_tokens": WINDOW_TOKENS,
            "overlap_content_tokens": WINDOW_OVERLAP,
            "max_document_tokens_including_special_tokens": _MAX_DOCUMENT_TOKENS,
        },
    }
    write_json(folder / "operating_point.json", point)


def _fit(workspace: Workspace, rows: Rows, config: ModernBertConfig) -> torch.nn.Module:
    torch.manual_seed(SEED)
    joined = with_joined_texts(rows)
    truth = torch.tensor(joined.truth, device=workspace.device)
    packed = PackedExamples([ids[:384] for ids in workspace.encode(joined.texts)], workspace.device)
    model = ModernBertForSequenceClassification(config).to(workspace.device)
    workspace.load_encoder(model)

    def loss_of(current: torch.nn.Module, batch: Batch) -> torch.Tensor:
        logits = current(input_ids=drop_tokens(batch, 0.1), attention_mask=batch.attention_mask).logits
        targets = truth[batch.index] * 0.96 + 0.02
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1).mean()

    batches = packed.epochs(np.random.default_rng(SEED), max_rows=64)
    return fit(model, batches, loss_of, Schedule(workspace.steps(_STEPS), 8e-4, weight_decay=0.05), NAME)


def _choose_thresholds(workspace: Workspace, model: torch.nn.Module, validation: Rows) -> list[float]:
    held = PackedExamples(workspace.encode(validation.texts), workspace.device)
    batch = held.batch(np.arange(len(validation.texts)))
    with torch.no_grad():
        logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    scores = logits.sigmoid().cpu().numpy()
    common = best_threshold(scores, validation.truth, None)
    columns = range(scores.shape[1])
    return [best_threshold(scores[:, i], validation.truth[:, i], common) for i in columns]


def train(workspace: Workspace) -> None:
    """Choose thresholds with a model that did not see the validation rows, then train on all and write that one."""
    rows = read_rows(workspace, "train")
    learned, validation = split_validation(rows)
    names = label_names(workspace)
    dropouts = {"embedding_dropout": 0.1, "mlp_dropout": 0.1, "classifier_dropout": 0.2}
    config = sample_config(
        labels=names, classifier_pooling="mean", problem_type="multi_label_classification", **dropouts
    )
    thresholds = _choose_thresholds(workspace, _fit(workspace, learned, config), validation)
    folder = workspace.write_checkpoint(NAME, _fit(workspace, rows, config), config)
    write_operating_point(folder, names, thresholds)
