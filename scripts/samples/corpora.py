"""The real corpora, read from JSON lines that stay outside the repository, and the split of their intents."""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path

# Every sixth intent of clinc150 and banking77 is unknown to the embedding and reranker samples.
HELD_OUT_INTENT_EVERY = 6


@dataclass(frozen=True, slots=True)
class IntentText:
    """A user text and what it asks for."""

    text: str
    label: str


def read_rows(folder: Path, name: str) -> list[dict[str, object]]:
    """Read one corpus file."""
    with (folder / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_intents(folder: Path, name: str) -> list[IntentText]:
    """Read texts with one intent each; clinc150's out-of-scope class is left out."""
    rows = read_rows(folder, name)
    return [IntentText(str(row["text"]), str(row["label"])) for row in rows if row["label"] != "oos"]


def read_both_intent_sets(folder: Path, split: str) -> list[IntentText]:
    """Read clinc150 and banking77 as one set; the names of the labels keep them apart."""
    sets = [(name, read_intents(folder, f"{name}.{split}")) for name in ("clinc150", "banking77")]
    return [IntentText(row.text, f"{name}/{row.label}") for name, rows in sets for row in rows]


def is_held_out_intent(label: str) -> bool:
    """Tell whether an intent is kept from the embedding and reranker samples."""
    return zlib.crc32(label.encode()) % HELD_OUT_INTENT_EVERY == 0


def read_passages(folder: Path, split: str) -> list[str]:
    """Read the encyclopedia passages of BEGIN; its other parts have other terms and are not used."""
    rows = read_rows(folder, f"begin_grounded.{split}")
    texts = {str(row["context"]).strip() for row in rows if row["source"] == "wow"}
    return sorted(text for text in texts if len(text) > 20)
