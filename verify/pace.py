"""Pace: how long a run will take, from a few that were timed on this machine and the arithmetic that a length needs.

The gate says before it starts how long it will take, and a budget must hold, so what is timed is what will run: the
reference itself, and one graph of each kind. Between the lengths that were timed, and beyond, time follows arithmetic.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from vela.graphs import costs

TIMED_TOKENS = (16, 128, 512, 2048)  # a run of 2,048 tokens of the 307M shape takes 5 to 10 s on 2 cores
# An operation of attention takes as long as two of a product: its products are small and exponentials come with it.
# Source: the 307M shape on 2 cores, dynamic graphs, 4.9 s at 2,048 tokens and 37.3 s at 8,192.
GRAPH_ATTENTION_WEIGHT = 2.0
# PyTorch's SDPA is dense in local layers too, and keeps its pace: 8.6 s at 2,048 tokens and 74.8 s at 8,192.
REFERENCE_ATTENTION_WEIGHT = 1.0


@dataclass(frozen=True, slots=True)
class Work:
    """What a run of a length costs in operations, relative to other lengths.

    Attributes:
        shape: The model's sizes.
        is_dense: Whether local layers compute every pair.
        attention_weight: Of an operation of attention, beside one of a product.
    """

    shape: costs.ModelCosts
    is_dense: bool
    attention_weight: float

    @classmethod
    def of_reference(cls, shape: costs.ModelCosts) -> Self:
        """Describe PyTorch's work."""
        return cls(shape, is_dense=True, attention_weight=REFERENCE_ATTENTION_WEIGHT)

    @classmethod
    def of_graphs(cls, shape: costs.ModelCosts) -> Self:
        """Describe a graph's work."""
        return cls(shape, is_dense=False, attention_weight=GRAPH_ATTENTION_WEIGHT)

    def operations(self, tokens: int) -> float:
        """Give the weighted floating-point operations of one row."""
        shape = self.shape
        products = 4 * shape.hidden_size + shape.feed_forward_products * shape.intermediate_size
        linear = 2.0 * shape.hidden_size * products * tokens * shape.layers
        keys = tokens if self.is_dense else min(tokens, costs.BLOCK_TOKENS + 2 * shape.half_window)
        seen = (shape.layers - shape.local_layers) * tokens + shape.local_layers * keys
        return linear + self.attention_weight * 4.0 * shape.hidden_size * tokens * seen


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a run by its padded tokens.

    Attributes:
        work: How arithmetic grows with length.
        points: Tokens and seconds that were timed, ascending.
    """

    work: Work
    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if not self.points or any(one[0] >= other[0] for one, other in pairwise(self.points)):
            raise ValueError(f"points ascend in tokens and there is one at least, got {self.points}")

    @classmethod
    def timed(cls, work: Work, run: Callable[[int], None], lengths: Sequence[int]) -> Self:
        """Time runs: each length once after one that warms up.

        Args:
            work: How arithmetic grows.
            run: Makes one run of so many tokens.
            lengths: What to time, ascending.
        """
        run(lengths[0])
        points = []
        for tokens in lengths:
            started = time.perf_counter()
            run(tokens)
            points.append((tokens, time.perf_counter() - started))
        return cls(work, tuple(points))

    def seconds(self, tokens: int, rows: int = 1) -> float:
        """Give the expected duration of a run of `rows` rows."""
        operations = self.work.operations(tokens)
        return rows * operations * self._seconds_per_operation(tokens)

    def _seconds_per_operation(self, tokens: int) -> float:
        """Interpolate between timed lengths in the logarithm of length; beyond them the nearest holds."""
        rates = [(length, seconds / self.work.operations(length)) for length, seconds in self.points]
        if tokens <= rates[0][0]:
            # a short run costs its operators, whatever its length
            return self.points[0][1] / self.work.operations(tokens)
        for (left, left_rate), (right, right_rate) in pairwise(rates):
            if tokens <= right:
                share = math.log(tokens / left) / math.log(right / left)
                return left_rate + (right_rate - left_rate) * share
        return rates[-1][1]


def lengths_up_to(limit: int) -> tuple[int, ...]:
    """Give the lengths worth timing where rows have up to `limit` tokens."""
    return tuple(size for size in TIMED_TOKENS if size <= limit) or (limit,)
