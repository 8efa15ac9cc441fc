"""Run a foreign graph through serve's engine, and give its answers as the gate expects those of any graph.

The session is serve's own, with its placement and shape checks. Around it stands only what a client of such a graph
does: token types of zero, positions from 0 on, the types that the graph takes, and the mean over the mask where the
graph gives a hidden state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import contract, manifest, record
from vela.serve import device as devices
from vela.serve import engine
from vela.verify import foreign

Arrays = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class ForeignSession:
    """A foreign graph loaded on a device; to its caller it is a graph that keeps Vela's contract.

    Attributes:
        inner: Serve's session.
        interface: How the graph is fed and read.
    """

    inner: engine.Session
    interface: foreign.Foreign

    @classmethod
    def open(cls, interface: foreign.Foreign, device: devices.Device, options: engine.SessionOptions) -> Self:
        """Load a graph as serve does.

        Raises:
            EngineError: as `engine.Session.open`.
        """
        return cls(engine.Session.open(interface.path, interface.entry, device, options), interface)

    @property
    def graph(self) -> manifest.Graph:
        """What the caller sees."""
        return self.interface.presented

    @property
    def facts(self) -> record.EngineFacts:
        """The engine, as the record names it."""
        return self.inner.facts

    def run(self, inputs: Arrays) -> engine.Outputs:
        """Run one padded batch; see `engine.Session.run`.

        Args:
            inputs: `input_ids` and `attention_mask`, (B, T) int64.

        Returns:
            The contract's outputs by name, float32.
        """
        mask = inputs[contract.ATTENTION_MASK]
        given = self.inner.run(feed(self.interface, inputs))
        found = {}
        for own, spec, role in zip(self.interface.entry.outputs, self.graph.outputs, self.interface.roles, strict=True):
            values = given[own.name].astype(np.float32)
            found[spec.name] = mean_over_mask(values, mask) if role == "hidden" else values
        return found


def feed(interface: foreign.Foreign, inputs: Arrays) -> Arrays:
    """Give what a graph takes: token types of zero, positions from 0 on, in its own types.

    Args:
        interface: How the graph is fed.
        inputs: `input_ids` and `attention_mask`, (B, T) int64.
    """
    ids = inputs[contract.INPUT_IDS]
    everything = {
        contract.INPUT_IDS: ids,
        contract.ATTENTION_MASK: inputs[contract.ATTENTION_MASK],
        foreign.TOKEN_TYPE_IDS: np.zeros_like(ids),
        foreign.POSITION_IDS: np.broadcast_to(np.arange(ids.shape[1], dtype=np.int64), ids.shape),
    }
    return {spec.name: everything[spec.name].astype(spec.dtype) for spec in interface.entry.inputs}


def mean_over_mask(hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """Pool as clients do, (B, H) of (B, T, H): pads are multiplied by zero, so a nan in one is a nan in the mean."""
    weights = mask[:, :, None].astype(np.float64)
    with np.errstate(invalid="ignore"):
        pooled: NDArray[np.float32] = ((hidden * weights).sum(axis=1) / weights.sum(axis=1)).astype(np.float32)
    return pooled
