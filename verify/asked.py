"""What the gate asks: a graph that is loaded somewhere, whoever wrote it.

A bundle's graph is served as it is; a foreign one stands behind an adapter that feeds and reads it. To what runs and
compares both are the same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import heads, manifest, record
from vela.serve import device as devices
from vela.serve import engine

# What an output of a foreign graph is: logits, a last hidden state that the gate pools, a pooled vector, a score.
Role = Literal["logits", "hidden", "pooled", "score"]
Arrays = Mapping[str, NDArray[Any]]


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
    def options(self) -> engine.SessionOptions:
        """Of its session."""
        ...

    @property
    def pad_id(self) -> int:
        """What rows are padded with."""
        ...

    @property
    def path(self) -> Path:
        """Where its file lies."""
        ...

    @property
    def native(self) -> manifest.Graph:
        """The graph as its file has it."""
        ...

    def feed(self, inputs: Mapping[str, NDArray[np.int64]]) -> Arrays:
        """Turn a batch of the contract's inputs into those that the file takes."""
        ...

    def load(self, content: bytes, described: manifest.Graph) -> engine.Session:
        """Load an altered copy of the graph from memory, beside its own weights.

        Args:
            content: The copy.
            described: What it takes and gives.

        Raises:
            EngineError: that fails.
        """
        ...

    def on_cpu(self) -> Self:
        """Give the same graph, asked on the CPU."""
        ...

    def open(self, options: engine.SessionOptions | None = None) -> Session:
        """Load the graph as serve does, with other options than its own where they are given.

        Raises:
            EngineError: that fails.
        """
        ...
