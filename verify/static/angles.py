"""The angles that a graph's cosines and sines are taken of, computed from the graph itself.

A table of frequencies may be right and what it is multiplied by wrong: positions that are divided, counted from one, or
turned round. So the few nodes before each cosine are run by ONNX's own reference evaluator, which needs no engine and
no weights.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

TOKENS = 6  # positions of a graph that takes any number of them
MOST_NODES = 64  # before all cosines together; more is no arithmetic of positions
# What exporters make positions and angles with; nothing else is run here.
ARITHMETIC = frozenset(
    "Add Cast Concat Constant ConstantOfShape CumSum Div Einsum Equal Expand Flatten Gather Identity MatMul Mul Neg "
    "Pow Range Reciprocal Reshape Shape Slice Squeeze Sub Transpose Unsqueeze Where".split()
)


def compute_angles(model: ir.Model, values: Sequence[ir.Value]) -> Mapping[str, NDArray[np.float64]]:
    """Compute what a graph takes cosines and sines of, for one row of tokens and no pads.

    Args:
        model: The graph.
        values: What they are taken of.

    Returns:
        (T, D / 2) or (T, D) float64 by name, radians, a row for each position; nothing where they come from more than
        arithmetic of positions, or are rounded to fewer bits than float32.
    """
    wanted = {value.name: value for value in values if value.name is not None}
    inputs = model.graph.inputs
    try:
        part = ir.convenience.extract(model.graph, inputs, list(wanted.values()))
        if len(part) > MOST_NODES or any(node.op_type not in ARITHMETIC or node.domain for node in part):
            return {}
        proto = ir.serde.serialize_model(ir.Model(part, ir_version=model.ir_version))
        feeds = {value.name or "": _ones(value) for value in part.inputs}
        found = ReferenceEvaluator(proto).run(None, feeds)
    except Exception:  # the evaluator raises whatever numpy does; what it cannot run is followed by the tables alone
        return {}
    return {
        name: one.astype(np.float64).reshape(-1, one.shape[-1])
        for name, one in zip(wanted, found, strict=True)
        if isinstance(one, np.ndarray) and one.ndim and one.dtype in (np.float32, np.float64)
    }


def _ones(value: ir.Value) -> NDArray[np.int64]:
    """Give ids or a mask of one row, or of as many as the graph takes."""
    shape = list(value.shape or ())
    sizes = [size if isinstance(size, int) else (1, TOKENS)[bool(place)] for place, size in enumerate(shape)]
    return np.ones(sizes, np.int64)
