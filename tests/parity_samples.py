"""The samples as pinned models, with limits so short that every mode of a comparison cuts, windows and rejects."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from vela.graphs import digests, heads, model_table

# The model of the family that each sample stands for, and how it is asked here.
SAMPLES = {
    "tiny-intent": ("Domain", "truncate", 48, None),
    "tiny-guard": ("Guard", "window", 512, (48, 23)),
    "tiny-multilabel": ("Hazard", "window", 4096, (64, 31)),
    "tiny-pii": ("PII", "window", 512, (48, 23)),
    "tiny-grounded": ("Halu", "truncate", 128, None),
    "tiny-embedding": ("Embedding", "reject", 96, None),
    "tiny-reranker": ("Reranker", "reject", 160, None),
}


def sample_table(checkpoints: Mapping[str, Path]) -> model_table.ModelTable:
    """Pin the samples, each under its own name."""
    entries = tuple(_entry(name, checkpoints[name]) for name in SAMPLES)
    return model_table.ModelTable(model_table.SCHEMA_VERSION, "these tests", entries)


def _entry(name: str, folder: Path) -> model_table.ModelEntry:
    like, overflow, max_tokens, window = SAMPLES[name]
    pinned = [path for path in folder.iterdir() if path.is_file() and path.name != "eval.json"]
    return msgspec.structs.replace(
        model_table.find_model(like),
        name=name,
        repository=f"samples/Vela-{name}",
        policy=model_table.Policy(overflow, max_tokens, heads.Window(*window) if window else None, None),
        files={path.name: digests.sha256_of_file(path) for path in pinned},
    )
