"""One row through one graph: the unit that lanes queue, join, stop and count.

Whatever the engine gives back is checked before anyone decodes it: a value that is not finite is an error of that
input, never a null in an answer.
"""

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors
from vela.serve import engine, joining
from vela.serve.costs import Costs
from vela.serve.tokenization import Framed


@dataclass(frozen=True, slots=True)
class Loaded:
    """A graph that is ready to run.

    Attributes:
        session: One caller at a time; a device's lane sees to that.
        costs: How long its runs take.
        proven_rows: How many rows of one length may share a run.
    """

    session: engine.Session
    costs: Costs
    proven_rows: int = 1


class Forward(msgspec.Struct, frozen=True):
    """A row, the graph that runs it, and the output that is wanted.

    Attributes:
        loaded: The graph.
        framed: The row.
        output: Name of the output.
        pad_id: Fills the row up to a fixed graph's length.
    """

    loaded: Loaded
    framed: Framed
    output: str
    pad_id: int

    @property
    def session(self) -> engine.Session:
        """The graph's session."""
        return self.loaded.session

    @property
    def tokens(self) -> int:
        """Tokens that the graph computes, padding included."""
        return self.session.graph.sequence or len(self.framed.ids)

    @property
    def seconds(self) -> float:
        """How long it is expected to take alone."""
        return self.loaded.costs.seconds(self.tokens)

    @property
    def graph_id(self) -> str:
        """The graph that runs it."""
        return self.session.graph.id

    @property
    def pads(self) -> int:
        """Tokens of padding that the graph needs."""
        return self.tokens - len(self.framed.ids)

    @property
    def key(self) -> Hashable:
        """Rows of one length on one graph may share a run."""
        return id(self.session), len(self.framed.ids)

    @property
    def most_rows(self) -> int:
        """How many may."""
        return joining.rows_that_may_share(self.loaded.proven_rows, self.tokens)

    def run(self) -> NDArray[np.float32]:
        """Run the row alone; see `run_with`, whose error it raises."""
        (outcome,) = self.run_with([])
        if isinstance(outcome, errors.ItemError):
            raise outcome
        return outcome

    def run_with(self, mates: Sequence[Self], run_options: Any = None) -> list[NDArray[np.float32] | errors.ItemError]:
        """Run the row, and others of its key, at once.

        Args:
            mates: The others.
            run_options: ONNX Runtime's RunOptions, through which another thread can stop the run.

        Returns:
            For each row, its own first, its output: (C,) or (H,) float32; (count, C) float32 of the content tokens for
            token graphs; () float32 for a pair's score. An ItemError where the run failed (`unavailable`) or the
            output is not usable (`invalid_model_output`).
        """
        return run_together(self.loaded, [self, *mates], run_options)

    def own_part(self, values: NDArray[np.float32]) -> NDArray[np.float32] | errors.ItemError:
        """Cut out of a row's output what is its content's, and check it."""
        if values.ndim == 2:
            values = values[self.framed.first : self.framed.first + self.framed.count]
        if np.isfinite(values).all():
            return values
        return errors.ItemError(
            "invalid_model_output",
            f"{self.output} with values that are not finite",
            expected="finite values",
            where=self.session.graph.id,
            fix="Report it with the input; run `vela verify-graph` on this device.",
        )


def run_together(
    loaded: Loaded, together: Sequence[Forward], run_options: Any = None
) -> list[NDArray[np.float32] | errors.ItemError]:
    """Run rows at once on a graph that takes them, padded to the longest; see `Forward.run_with`."""
    graph, rows = loaded.session.graph, [one.framed.ids for one in together]
    feeds = engine.pad_rows(rows, graph, together[0].pad_id)
    started = time.monotonic()
    try:
        outputs = loaded.session.run(feeds, run_options)
    except errors.EngineError as cause:
        return [item_error("unavailable", cause)] * len(together)
    except errors.ShapeMismatch as cause:
        return [item_error("invalid_model_output", cause)] * len(together)
    width = graph.sequence or max(map(len, rows))
    loaded.costs.learn(width * len(together), time.monotonic() - started)
    return [one.own_part(outputs[one.output][row]) for row, one in enumerate(together)]


def item_error(code: str, cause: errors.VelaError) -> errors.ItemError:
    """Turn an engine's error into one of the input that met it."""
    return errors.ItemError(code, cause.found, expected=cause.expected, where=cause.where, fix=cause.fix)
