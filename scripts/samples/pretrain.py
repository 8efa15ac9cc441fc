"""The encoder that every sample starts from: masked tokens and intents, learned on all training texts.

The held-out intents, templates and words take no part in it.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import corpora
import numpy as np
import torch
from architecture import VOCAB_SIZE, sample_config
from data.grounded import GroundedWriter
from data.guard import GuardWriter
from data.pii import PiiWriter, texts_without_names
from fit import Schedule, fit
from packed import Batch, PackedExamples
from tokenizers import Tokenizer
from transformers import ModernBertForMaskedLM
from workspace import Workspace

from vela.export.standins.tokenizer import SPECIAL_TOKENS, build_tokenizer, write_tokenizer

SEED = 20
_STEPS = 3500
_MASKED_SHARE = 0.25
_MASK_ID = SPECIAL_TOKENS.index("<mask>")
# One batch in three also learns intents.
_INTENT_EVERY = 3


def training_texts(data: Path) -> list[str]:
    """Collect every text that any sample trains on, generated ones included."""
    intents = [
        row.text for row in corpora.read_both_intent_sets(data, "train") if not corpora.is_held_out_intent(row.label)
    ]
    passages = corpora.read_passages(data, "train")
    multilabel = [str(row["text"]) for row in corpora.read_rows(data, "nlupp_multilabel.train")]
    pii_rows = [str(row["text"]) for row in corpora.read_rows(data, "pii_presidio.train")]
    pii, plain = PiiWriter(SEED, held_out=False), texts_without_names(intents)
    personal = [pii.text().text for _ in range(12000)] + [pii.document(5, plain).text for _ in range(2000)]
    guard = GuardWriter(SEED, intents, held_out=False)
    prompts = [guard.example()[0] for _ in range(8000)]
    grounded = GroundedWriter(SEED, passages, held_out=False)
    pairs = [grounded.fact_example() for _ in range(6000)]
    facts = [f"{pair.context} {pair.answer.text}" for pair in pairs]
    return intents + passages + multilabel + pii_rows + personal + prompts + facts


def write_tokenizer_of(data: Path, out: Path) -> Tokenizer:
    """Train the tokenizer and write it beside the base encoder."""
    tokenizer = build_tokenizer(training_texts(data), VOCAB_SIZE)
    (out / "base").mkdir(parents=True, exist_ok=True)
    write_tokenizer(tokenizer, out / "base")
    return tokenizer


class _Pretraining(torch.nn.Module):
    """The masked language model with a linear classifier of intents on its mean."""

    def __init__(self, intent_count: int) -> None:
        super().__init__()
        dropouts = {"embedding_dropout": 0.05, "mlp_dropout": 0.05}
        self.language = ModernBertForMaskedLM(sample_config(**dropouts))
        self.intents = torch.nn.Linear(self.language.config.hidden_size, intent_count)

    def masked_loss(self, batch: Batch) -> torch.Tensor:
        """Return the loss of guessing masked tokens."""
        ids = batch.input_ids
        candidates = (ids >= len(SPECIAL_TOKENS)) & (torch.rand(ids.shape, device=ids.device) < _MASKED_SHARE)
        kept = torch.rand(ids.shape, device=ids.device) < 0.1
        shown = torch.where(candidates & ~kept, _MASK_ID, ids)
        hidden = self.language.model(input_ids=shown, attention_mask=batch.attention_mask).last_hidden_state
        logits = self.language.decoder(self.language.head(hidden[candidates]))
        return torch.nn.functional.cross_entropy(logits, ids[candidates])

    def intent_loss(self, batch: Batch, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of naming intents."""
        hidden = self.language.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
        mask = batch.attention_mask[..., None].float()
        mean = self.language.head((hidden * mask).sum(1) / mask.sum(1))
        return torch.nn.functional.cross_entropy(self.intents(mean), targets[batch.index], label_smoothing=0.05)


def pretrain(workspace: Workspace) -> None:
    """Train the base encoder and write its weights."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    rng = np.random.default_rng(SEED)
    both = corpora.read_both_intent_sets(workspace.data, "train")
    intents = [row for row in both if not corpora.is_held_out_intent(row.label)]
    names = sorted({row.label for row in intents})
    targets = torch.tensor([names.index(row.label) for row in intents], device=workspace.device)
    texts = [ids[:384] for ids in workspace.encode(training_texts(workspace.data))]
    plain = PackedExamples(texts, workspace.device).epochs(rng)
    labelled = PackedExamples(workspace.encode([row.text for row in intents]), workspace.device).epochs(rng)
    model = _Pretraining(len(names)).to(workspace.device)
    turn = iter(_turns())

    def loss_of(current: _Pretraining, batch: Batch) -> torch.Tensor:
        loss = current.masked_loss(batch)
        return loss + current.intent_loss(next(labelled), targets) if next(turn) == 0 else loss

    trained = fit(model, plain, loss_of, Schedule(workspace.steps(_STEPS), 2e-3), "base")
    workspace.write_checkpoint("base", trained.language, trained.language.config)


def _turns() -> Iterator[int]:
    while True:
        yield from range(_INTENT_EVERY)
