"""tiny-reranker: does a document say what a query says? One scorer of the first token for each depth and dimension."""

import random
from collections.abc import Iterator

import numpy as np
import torch
from architecture import sample_config
from corpora import IntentText
from exits import DIMENSIONS, EXIT_LAYERS, PairScorers
from fit import Schedule, fit
from packed import Batch, PackedExamples
from safetensors.torch import save_file
from tasks.embedding import group_by_intent, known_intents, lengthen_some
from transformers import ModernBertModel
from workspace import Workspace

from vela.export.standins.tokenizer import write_json

NAME = "tiny-reranker"
SEED = 7
_STEPS = 4500
_QUERIES = 40000
# Documents of one query: the first has its intent, the others do not.
GROUP_SIZE = 4
_HARD_SHARE = 0.6


class _Reranker(torch.nn.Module):
    """The encoder and its scorers, trained together."""

    def __init__(self, encoder: ModernBertModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.scorers = PairScorers()


def similar_texts(rows: list[IntentText]) -> list[list[int]]:
    """List, for each row, rows of other intents that share many of its words; they make hard negatives."""
    words = [frozenset(row.text.lower().split()) for row in rows]
    holders: dict[str, list[int]] = {}
    for index, bag in enumerate(words):
        for word in bag:
            holders.setdefault(word, []).append(index)
    rng, result = random.Random(SEED), []
    for index, bag in enumerate(words):
        overlap: dict[int, float] = {}
        for word in bag:
            for other in rng.sample(holders[word], k=min(20, len(holders[word]))):
                overlap[other] = overlap.get(other, 0.0) + 1 / np.log(2 + len(holders[word]))
        ranked = sorted(overlap, key=overlap.__getitem__, reverse=True)
        result.append([other for other in ranked if rows[other].label != rows[index].label][:10])
    return result


def query_groups(rows: list[IntentText], count: int, seed: int) -> list[list[tuple[str, str]]]:
    """Build groups of pairs: a query with one document of its intent, then with others."""
    rng = random.Random(seed)
    of_label = {rows[group[0]].label: group for group in group_by_intent(rows)}
    similar = similar_texts(rows)
    groups = []
    for _ in range(count):
        query = rng.randrange(len(rows))
        documents = [rng.choice(of_label[rows[query].label])]
        while len(documents) < GROUP_SIZE:
            hard = similar[query] and rng.random() < _HARD_SHARE
            other = rng.choice(similar[query]) if hard else rng.randrange(len(rows))
            if rows[other].label != rows[query].label:
                documents.append(other)
        groups.append([(rows[query].text, rows[document].text) for document in documents])
    return groups


def _batches(packed: PackedExamples, rng: np.random.Generator, groups_per_batch: int) -> Iterator[Batch]:
    """Yield whole groups, of similar length, shuffled."""
    widths = packed.lengths.reshape(-1, GROUP_SIZE).max(axis=1)
    while True:
        order = np.argsort(widths * rng.uniform(0.8, 1.2, size=len(widths)), kind="stable")
        starts = np.arange(0, len(order), groups_per_batch)
        for start in rng.permutation(starts):
            chosen = order[start : start + groups_per_batch]
            yield packed.batch((chosen[:, None] * GROUP_SIZE + np.arange(GROUP_SIZE)).reshape(-1))


def _loss(logits: torch.Tensor) -> torch.Tensor:
    """Return the loss of ranking the right document first, and of its sign."""
    grouped = logits.view(-1, GROUP_SIZE)
    target = torch.zeros(len(grouped), dtype=torch.long, device=logits.device)
    truth = torch.nn.functional.one_hot(target, GROUP_SIZE).float()
    ranking = torch.nn.functional.cross_entropy(grouped, target)
    return ranking + torch.nn.functional.binary_cross_entropy_with_logits(grouped, truth)


def train(workspace: Workspace) -> None:
    """Train and write the checkpoint with its scorers."""
    torch.manual_seed(SEED)
    groups = query_groups(lengthen_some(known_intents(workspace), SEED), _QUERIES, SEED)
    encodings = workspace.tokenizer.encode_batch([pair for group in groups for pair in group])
    packed = PackedExamples([encoding.ids[:512] for encoding in encodings], workspace.device)
    config = sample_config(embedding_dropout=0.05, mlp_dropout=0.05)
    encoder = ModernBertModel(config)
    workspace.load_encoder(encoder)
    model = _Reranker(encoder).to(workspace.device)

    def loss_of(current: _Reranker, batch: Batch) -> torch.Tensor:
        logits = current.scorers(current.encoder, batch.input_ids, batch.attention_mask)
        return torch.stack([_loss(values) for values in logits.values()]).mean()

    batches = _batches(packed, np.random.default_rng(SEED), groups_per_batch=32)
    trained = fit(model, batches, loss_of, Schedule(workspace.steps(_STEPS), 1e-3), NAME)
    folder = workspace.write_checkpoint(NAME, trained.encoder, config)
    heads = {key: value.cpu().contiguous() for key, value in trained.scorers.state_dict().items()}
    save_file(heads, folder / "classification_heads.safetensors", metadata={"format": "pt"})
    declared = {"exit_layers": list(EXIT_LAYERS), "dimensions": list(DIMENSIONS)}
    write_json(folder / "matryoshka_config.json", declared)
