"""One row through one graph: the unit that lanes queue, stop and count.

Whatever the engine gives back is checked before anyone decodes it: a value that is not finite is an error of that
input, never a null in an answer.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors
from vela.serve import engine
from vela.serve.tokenization import Framed


@dataclass(frozen=True, slots=True)
class Forward:
    """A row, the graph that runs it, and the output that is wanted.

    Attributes:
        session: One caller at a time; a device's lane sees to that.
        framed: The row.
        output: Name of the output.
        pad_id: Fills the row up to a fixed graph's length.
    """

    session: engine.Session
    framed: Framed
    output: str
    pad_id: int

    @property
    def tokens(self) -> int:
        """Tokens that the graph computes, padding included: what a forward costs."""
        return self.session.graph.sequence or len(self.framed.ids)

    def run(self, run_options: Any = None) -> NDArray[np.float32]:
        """Run the row alone.

        Args:
            run_options: ONNX Runtime's RunOptions, through which another thread can stop the run.

        Returns:
            The output of this row: (C,) or (H,) float32; (count, C) float32 of the content tokens for token graphs;
            () float32 for a pair's score.

        Raises:
            ItemError: the run failed (`unavailable`), or its output is not usable (`invalid_model_output`).
        """
        feeds = engine.pad_rows([self.framed.ids], self.session.graph, self.pad_id)
        try:
            values: NDArray[np.float32] = self.session.run(feeds, run_options)[self.output][0]
        except errors.EngineError as cause:
            raise item_error("unavailable", cause) from cause
        except errors.ShapeMismatch as cause:
            raise item_error("invalid_model_output", cause) from cause
        if values.ndim == 2:
            values = values[self.framed.first : self.framed.first + self.framed.count]
        if not np.isfinite(values).all():
            raise errors.ItemError(
                "invalid_model_output",
                f"{self.output} with values that are not finite",
                expected="finite values",
                where=self.session.graph.id,
                fix="Report it with the input; run `vela verify-graph` on this device.",
            )
        return values


def item_error(code: str, cause: errors.VelaError) -> errors.ItemError:
    """Turn an engine's error into one of the input that met it."""
    return errors.ItemError(code, cause.found, expected=cause.expected, where=cause.where, fix=cause.fix)
