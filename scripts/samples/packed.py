"""Tokenised examples packed on the device, and batches of similar length cut from them.

A batch gathers its rows by index arithmetic, so that the processor has nothing to collate: these models are so small
that collating would take longer than the step.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

# Rows of one batch and tokens of one batch, padding included; whichever is reached first.
MAX_ROWS = 128
MAX_TOKENS = 16384
IGNORED = -100


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows padded to one length; `index` says which examples they are.

    `token_targets` is empty where the task has no target for each token.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    token_targets: torch.Tensor
    index: torch.Tensor


class PackedExamples:
    """Token ids of many examples in one flat tensor."""

    def __init__(self, rows: list[list[int]], device: str, token_targets: list[list[int]] | None = None) -> None:
        """Pack rows, with one target for each token where the task has those."""
        self.lengths = np.array([len(row) for row in rows])
        self._lengths = torch.tensor(self.lengths, device=device)
        self._starts = torch.tensor(np.cumsum(self.lengths) - self.lengths, device=device)
        self._flat = torch.tensor([token for row in rows for token in row], device=device)
        targets = [target for row in token_targets or [] for target in row]
        self._targets = torch.tensor(targets, device=device)
        self._device = device

    def batch(self, index: np.ndarray, width: int | None = None) -> Batch:
        """Gather examples into one batch, padded to `width` or to the longest."""
        at = torch.from_numpy(index).to(self._device)
        width = width or int(self.lengths[index].max())
        column = torch.arange(width, device=self._device)
        mask = column < self._lengths[at, None]
        place = (self._starts[at, None] + column).clamp(max=len(self._flat) - 1)
        input_ids = torch.where(mask, self._flat[place], 0)
        targets = torch.where(mask, self._targets[place], IGNORED) if len(self._targets) else self._targets
        return Batch(input_ids, mask.long(), targets, at)

    def epochs(self, rng: np.random.Generator, max_rows: int = MAX_ROWS) -> Iterator[Batch]:
        """Yield shuffled batches for ever, each of rows of similar length with a little random padding."""
        while True:
            order = rng.permutation(len(self.lengths))
            # A little noise keeps neighbours in length from always meeting in one batch.
            noisy = self.lengths[order] * rng.uniform(0.9, 1.1, size=len(order))
            order = order[np.argsort(noisy, kind="stable")]
            groups = list(self._groups(order, max_rows))
            for group in rng.permutation(len(groups)):
                rows = groups[group]
                spare = int(rng.integers(0, 9)) if rng.random() < 0.5 else 0
                width = -(-int(self.lengths[rows].max()) // 8) * 8 + spare
                yield self.batch(rows, width)

    def _groups(self, order: np.ndarray, max_rows: int) -> Iterator[np.ndarray]:
        start = 0
        while start < len(order):
            count, widest = 0, 0
            while start + count < len(order) and count < max_rows:
                widest = max(widest, int(self.lengths[order[start + count]]))
                if count and widest * (count + 1) > MAX_TOKENS:
                    break
                count += 1
            yield order[start : start + count]
            start += count
