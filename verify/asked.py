"""What the gate asks: a graph that is loaded somewhere, whoever wrote it.

A bundle's graph is served as it is; a foreign one stands behind an adapter that feeds and reads it. To what runs and
compares both are the same.
"""

from collections.abc import Mapping
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from vela.graphs import heads, manifest, record
from vela.serve import device as devices
from vela.serve import engine

# What an output of a foreign graph is: logits, a last hidden state that the gate pools, a pooled vector, a score.
Role = Literal["logits", "hidden", "pooled", "score"]


class Session(Protocol):
    """A loaded graph that keeps Vela's contract; `engine.Session` is one."""

    @property
    def graph(self) -> manifest.Graph:
        """What it takes and gives."""
        ...

    @property
    def facts(self) -> record.EngineFacts:
        """The engine, as the record names it."""
        ...

    def run(self, inputs: Mapping[str, NDArray[np.int64]]) -> engine.Outputs:
        """Run one padded batch; see `engine.Session.run`."""
        ...


class Asked(Protocol):
    """A graph and where it is asked."""

    @property
    def graph(self) -> manifest.Graph:
        """The graph as the gate sees it."""
        ...

    @property
    def head(self) -> heads.Head:
        """Its head, from the reference checkpoint."""
        ...

    @property
    def device(self) -> devices.Device:
        """Where."""
        ...

    @property
    def pad_id(self) -> int:
        """What rows are padded with."""
        ...

    def open(self, options: engine.SessionOptions | None = None) -> Session:
        """Load the graph as serve does, with other options than its own where they are given.

        Raises:
            EngineError: that fails.
        """
        ...
