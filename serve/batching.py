"""Rows of several lengths in one run, for requests that ask for the profile `batching`.

Short runs are limited by reading the weights, so rows that wait are joined even where they must be padded to a common
length. Then a graph that takes a mask runs them, and an answer may differ from `exact` in its last digits, by no more
than the gate's laws allow padded rows of a batch. Nothing waits for company: a row that has none runs as in `exact`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors
from vela.serve import buckets, joining
from vela.serve.forward import Forward, Loaded, run_together

# Rows whose lengths lie in one step may go together: at most so many tokens of padding for each.
STEP = 16


@dataclass(frozen=True, slots=True)
class Padding:
    """The graphs of one output that take padded rows, and how many of them.

    Attributes:
        ladder: The graphs.
        loaded: By id.
    """

    ladder: buckets.Ladder
    loaded: Mapping[str, Loaded]

    def width(self, tokens: int) -> int:
        """Give the most tokens of a row that may go with one of so many."""
        graph = self.ladder.choose(tokens)
        return graph.sequence or -(-tokens // STEP) * STEP

    def most_rows(self, width: int) -> int:
        """Give how many rows of up to a width may go together."""
        batches = [graph.batch or 1 for graph in self.ladder.graphs if graph.sequence == width]
        return max(batches) if batches else joining.rows_that_may_share(joining.MOST_ROWS, width)

    def choose(self, rows: int, tokens: int) -> Loaded:
        """Give the smallest graph that holds so many rows of so many tokens."""
        return self.loaded[self.ladder.choose(tokens, rows).id]


@dataclass(slots=True, eq=False)
class BatchedForward:
    """A row that may go with others of about its length; see `job.Work`.

    Attributes:
        alone: How it runs without company.
        padding: Where it runs with company.
        graph_id: The graph that ran it, or would if it ran now.
        pads: Tokens of padding that it was given.
        width: Most tokens of a row that may go with it.
    """

    alone: Forward
    padding: Padding
    graph_id: str
    pads: int
    width: int

    @classmethod
    def of(cls, alone: Forward, padding: Padding) -> Self:
        """Let a row have company."""
        return cls(alone, padding, alone.graph_id, alone.pads, padding.width(len(alone.framed.ids)))

    @property
    def tokens(self) -> int:
        """Tokens that the graph computes for it alone."""
        return self.alone.tokens

    @property
    def seconds(self) -> float:
        """How long it is expected to take alone."""
        return self.alone.seconds

    @property
    def key(self) -> Hashable:
        """Rows for one output whose lengths lie in one step may share a run."""
        return id(self.padding), self.alone.output, self.width

    @property
    def most_rows(self) -> int:
        """How many may."""
        return self.padding.most_rows(self.width)

    def run_with(self, mates: Sequence[Self], run_options: Any = None) -> list[NDArray[np.float32] | errors.ItemError]:
        """Run the row, and others of its key, at once; see `Forward.run_with`."""
        together = [self, *mates]
        rows = [one.alone for one in together]
        lengths = {len(row.framed.ids) for row in rows}
        if len(rows) == 1 or (len(lengths) == 1 and len(rows) <= self.alone.most_rows):
            return self.alone.run_with(rows[1:], run_options)
        loaded = self.padding.choose(len(rows), max(lengths))
        for one in together:
            one.graph_id = loaded.session.graph.id
            one.pads = (loaded.session.graph.sequence or max(lengths)) - len(one.alone.framed.ids)
        return run_together(loaded, rows, run_options)
