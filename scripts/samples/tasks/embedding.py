"""tiny-embedding: texts of one intent lie close together, at three depths and three dimensions."""

import random
from collections.abc import Iterator
from pathlib import Path

import corpora
import numpy as np
import torch
from architecture import HIDDEN_SIZE, sample_config
from corpora import IntentText
from exits import DIMENSIONS, EXIT_LAYERS, mean_embeddings
from fit import Schedule, fit
from packed import Batch, PackedExamples
from tasks.intent import drop_tokens, lengthen
from transformers import ModernBertModel
from workspace import Workspace

from vela.export.standins.tokenizer import MAX_LENGTH, write_json

NAME = "tiny-embedding"
SEED = 6
_STEPS = 2500
# A batch holds two texts of each of so many intents.
_INTENTS_PER_BATCH = 96
_TEMPERATURE = 0.06
_LONG_SHARE = 0.15


def known_intents(workspace: Workspace) -> list[IntentText]:
    """Read the training texts of the intents that are not held out."""
    rows = corpora.read_both_intent_sets(workspace.data, "train")
    return [row for row in rows if not corpora.is_held_out_intent(row.label)]


def group_by_intent(rows: list[IntentText]) -> list[list[int]]:
    """Return the indices of the rows of each intent."""
    groups: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(row.label, []).append(index)
    return list(groups.values())


def lengthen_some(rows: list[IntentText], seed: int) -> list[IntentText]:
    """Add long texts of the same intents."""
    rng, long = random.Random(seed), []
    for group in group_by_intent(rows):
        same = [rows[index].text for index in group]
        for _ in range(int(len(group) * _LONG_SHARE)):
            long.append(IntentText(lengthen(rng.choice(same), same, rng), rows[group[0]].label))
    return rows + long


def _pairs(packed: PackedExamples, groups: list[list[int]], rng: np.random.Generator) -> Iterator[Batch]:
    """Yield batches whose first half are anchors and whose second half are texts of the same intents."""
    while True:
        chosen = rng.permutation(len(groups))[:_INTENTS_PER_BATCH]
        pairs = np.array([rng.choice(groups[group], size=2, replace=False) for group in chosen])
        yield packed.batch(pairs.T.reshape(-1))


def _contrast(vectors: torch.Tensor) -> torch.Tensor:
    """Return the loss of finding each text's partner among the batch, in both directions."""
    first, second = vectors.chunk(2)
    similarity = first @ second.T / _TEMPERATURE
    target = torch.arange(len(first), device=vectors.device)
    cross_entropy = torch.nn.functional.cross_entropy
    return (cross_entropy(similarity, target) + cross_entropy(similarity.T, target)) / 2


def write_layout(folder: Path) -> None:
    """Write the files that name pooling, depths and dimensions."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    write_json(folder / "modules.json", modules)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    pooling = {f"pooling_mode_{mode}": mode == "mean_tokens" for mode in modes}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": HIDDEN_SIZE, **pooling})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": MAX_LENGTH, "do_lower_case": False})
    declared = {"exit_layers": list(EXIT_LAYERS), "dimensions": list(DIMENSIONS)}
    write_json(folder / "matryoshka_config.json", declared)


def train(workspace: Workspace) -> None:
    """Train and write the checkpoint."""
    torch.manual_seed(SEED)
    rows = lengthen_some(known_intents(workspace), SEED)
    packed = PackedExamples([ids[:384] for ids in workspace.encode([row.text for row in rows])], workspace.device)
    config = sample_config(embedding_dropout=0.1, mlp_dropout=0.1)
    model = ModernBertModel(config).to(workspace.device)
    workspace.load_encoder(model)

    def loss_of(current: ModernBertModel, batch: Batch) -> torch.Tensor:
        embedded = mean_embeddings(current, drop_tokens(batch, 0.1), batch.attention_mask)
        return torch.stack([_contrast(vectors) for vectors in embedded.values()]).mean()

    batches = _pairs(packed, group_by_intent(rows), np.random.default_rng(SEED))
    schedule = Schedule(workspace.steps(_STEPS), 1e-3, weight_decay=0.05)
    write_layout(workspace.write_checkpoint(NAME, fit(model, batches, loss_of, schedule, NAME), config))
