"""tiny-pii: BIO tags of seventeen types of personal data."""

import numpy as np
import torch
from architecture import sample_config
from corpora import read_both_intent_sets, read_rows
from data.fill import Labelled, Span
from data.pii import TYPES, PiiWriter, texts_without_names
from fit import Schedule, fit
from packed import IGNORED, Batch, PackedExamples
from tasks.intent import drop_tokens
from tokenizers import Encoding
from transformers import ModernBertForTokenClassification
from workspace import Workspace

NAME = "tiny-pii"
SEED = 4
LABELS = ["O", *(f"{prefix}-{kind}" for kind in TYPES for prefix in "BI")]
_STEPS = 9000
_TEXTS, _DOCUMENTS, _INSERTED, _PLAIN = 80000, 14000, 40000, 10000
_PRESIDIO_COPIES = 6
_MAX_TOKENS = 512


def read_presidio(workspace: Workspace, split: str) -> list[Labelled]:
    """Read the texts made from the templates of presidio-research."""
    rows = read_rows(workspace.data, f"pii_presidio.{split}")
    return [
        Labelled(str(row["text"]), tuple(sorted((_span(s) for s in row["spans"]), key=lambda s: s.start)))  # type: ignore[attr-defined]
        for row in rows
    ]


def _span(raw: dict[str, object]) -> Span:
    return Span(str(raw["label"]), int(str(raw["start"])), int(str(raw["end"])))


def tags(encoding: Encoding, labelled: Labelled) -> list[int]:
    """Give each token its tag; a token's leading space is no part of it, and the frame has none."""
    result = []
    for (start, end), framed in zip(encoding.offsets, encoding.special_tokens_mask, strict=True):
        result.append(IGNORED if framed else _tag(labelled, start, end))
    return result


def _tag(labelled: Labelled, start: int, end: int) -> int:
    piece = labelled.text[start:end]
    # White space of its own belongs to the span it stands in; otherwise only the visible part of a token counts.
    if piece.strip():
        start += len(piece) - len(piece.lstrip())
    elif any(span.start < start and end < span.end for span in labelled.spans):
        start = end - 1
    else:
        return 0
    for span in labelled.spans:
        if start < span.end and end > span.start and start < end:
            return LABELS.index(f"{'B' if start <= span.start else 'I'}-{span.label}")
    return 0


def plain_texts(workspace: Workspace, split: str) -> list[str]:
    """Read real texts without names, numbers or places."""
    return texts_without_names([row.text for row in read_both_intent_sets(workspace.data, split)])


def examples(workspace: Workspace) -> list[Labelled]:
    """Write the training texts."""
    writer, plain = PiiWriter(SEED, held_out=False), plain_texts(workspace, "train")
    short = [writer.text() for _ in range(_TEXTS)]
    long = [writer.document(2 + index % 11, plain) for index in range(_DOCUMENTS)]
    inserted = [writer.inserted(plain) for _ in range(_INSERTED)]
    empty = [writer.plain(plain) for _ in range(_PLAIN)]
    return short + long + inserted + empty + read_presidio(workspace, "train") * _PRESIDIO_COPIES


def pack(workspace: Workspace, labelled: list[Labelled]) -> PackedExamples:
    """Tokenise and tag texts, cut to the longest training length."""
    encodings = workspace.tokenizer.encode_batch([row.text for row in labelled])
    targets = [tags(encoding, row)[:_MAX_TOKENS] for encoding, row in zip(encodings, labelled, strict=True)]
    return PackedExamples([encoding.ids[:_MAX_TOKENS] for encoding in encodings], workspace.device, targets)


def train(workspace: Workspace) -> None:
    """Train and write the checkpoint."""
    torch.manual_seed(SEED)
    packed = pack(workspace, examples(workspace))
    dropouts = {"embedding_dropout": 0.1, "mlp_dropout": 0.1, "classifier_dropout": 0.1}
    config = sample_config(labels=LABELS, **dropouts)
    model = ModernBertForTokenClassification(config).to(workspace.device)
    workspace.load_encoder(model)

    def loss_of(current: torch.nn.Module, batch: Batch) -> torch.Tensor:
        logits = current(input_ids=drop_tokens(batch, 0.04), attention_mask=batch.attention_mask).logits
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch.token_targets.flatten(), label_smoothing=0.02
        )

    batches = packed.epochs(np.random.default_rng(SEED))
    schedule = Schedule(workspace.steps(_STEPS), 2e-3)
    workspace.write_checkpoint(NAME, fit(model, batches, loss_of, schedule, NAME), config)
