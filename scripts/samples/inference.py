"""Run written checkpoints on the processor, row by row padded in small batches, for the held-out measures."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from packed import PackedExamples
from tokenizers import Tokenizer
from transformers import ModernBertForSequenceClassification, ModernBertForTokenClassification

_ROWS = 32


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A sample on disk, with its tokenizer."""

    folder: Path
    tokenizer: Tokenizer

    @classmethod
    def from_folder(cls, folder: Path) -> "Checkpoint":
        """Open a sample."""
        return cls(folder, Tokenizer.from_file(str(folder / "tokenizer.json")))

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Tokenise texts with their frame."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]


def in_batches(rows: list[list[int]]) -> list[tuple[NDArray[np.int64], torch.Tensor, torch.Tensor]]:
    """Cut rows into padded batches of similar length: index, input_ids, attention_mask."""
    packed = PackedExamples(rows, "cpu")
    order = np.argsort(packed.lengths, kind="stable")
    cut = []
    for start in range(0, len(order), _ROWS):
        batch = packed.batch(order[start : start + _ROWS])
        cut.append((order[start : start + _ROWS], batch.input_ids, batch.attention_mask))
    return cut


def sequence_logits(checkpoint: Checkpoint, texts: list[str]) -> NDArray[np.float32]:
    """Classify texts: logits (N, C) float32."""
    model = ModernBertForSequenceClassification.from_pretrained(checkpoint.folder).eval()
    result = np.zeros((len(texts), model.config.num_labels), dtype=np.float32)
    with torch.no_grad():
        for index, input_ids, attention_mask in in_batches(checkpoint.encode(texts)):
            result[index] = model(input_ids=input_ids, attention_mask=attention_mask).logits.numpy()
    return result


def token_logits(checkpoint: Checkpoint, rows: list[list[int]]) -> list[NDArray[np.float32]]:
    """Classify the tokens of framed rows: one (T, C) float32 array for each row, without its padding."""
    model = ModernBertForTokenClassification.from_pretrained(checkpoint.folder).eval()
    result: list[NDArray[np.float32]] = [np.zeros((0, 0), dtype=np.float32)] * len(rows)
    with torch.no_grad():
        for index, input_ids, attention_mask in in_batches(rows):
            logits = model(input_ids=input_ids, attention_mask=attention_mask).logits.numpy()
            for place, row in enumerate(index):
                result[row] = logits[place, : len(rows[row])]
    return result
