"""What a graph is judged against, as the gate sees it: token ids in, outputs out, and an identity.

`export/reference.py` implements it with PyTorch; the gate itself holds no torch, so that it can also judge against
recorded answers, a server, or another graph.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# One input's outputs by name, without the batch dimension, float64 so that nothing is rounded on the way:
# logits (C,) natural-log units before softmax, or (T, C) for token models; embeddings (H,) not normalised;
# a pair's scores (), relevance logits.
Answer = Mapping[str, NDArray[np.float64]]
# Hidden states of each row after each layer, (T, H) float64, the last after the final norm; where projections (H, S)
# are given, those of the states, (T, S).
States = Callable[[Sequence[tuple[int, ...]], NDArray[np.float32] | None], list[list[NDArray[np.float64]]]]


@dataclass(frozen=True, slots=True)
class ReferenceFacts:
    """What a record says of a reference.

    Attributes:
        description: Libraries, versions, attention and precision.
    """

    description: str


class Reference(Protocol):
    """Something that answers like the checkpoint."""

    facts: ReferenceFacts

    def answer(self, rows: Sequence[tuple[int, ...]]) -> list[Answer]:
        """Answer each row of token ids, unpadded, in the order given."""
        ...
