"""The angles that a graph's cosines and sines are taken of, computed from the graph itself.

A table of frequencies may be right and what it is multiplied by wrong: positions that are divided, counted from one, or
turned round. So the few nodes before each cosine are run by ONNX's own reference evaluator, which needs no engine and
no weights.
"""

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

TOKENS = 6  # positions of a graph that takes any number of them
MOST_NODES = 64  # before one cosine; more is no arithmetic of positions
LARGEST_INTEGER = 1 << 20  # among constants and sizes: a length that nobody needs is not counted to
# What exporters make positions and angles with; nothing else is run here.
ARITHMETIC = frozenset(
    "Add Cast Concat Constant ConstantOfShape CumSum Div Einsum Equal Expand Flatten Gather Identity MatMul Mul Neg "
    "Pow Range Reciprocal Reshape Shape Slice Squeeze Sub Transpose Unsqueeze Where".split()
)
WIDE_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def compute_angles(model: ir.Model, value: ir.Value) -> NDArray[np.float64] | None:
    """Compute what a cosine or sine is taken of, for rows without pads.

    Args:
        model: The graph.
        value: What it is taken of.

    Returns:
        (T, D / 2) or (T, D) radians, a row for each position; None where they come from more than arithmetic of
        positions, are rounded to fewer bits than float32 on the way, or differ between rows of a batch.
    """
    try:
        part = ir.convenience.extract(model.graph, model.graph.inputs, [value])
        if len(part) > MOST_NODES or not all(map(_is_arithmetic, part)) or not _is_small(part):
            return None
        proto = ir.serde.serialize_model(ir.Model(part, ir_version=model.ir_version))
        (found,) = ReferenceEvaluator(proto).run(None, {given.name or "": _ones(given) for given in part.inputs})
    except Exception:  # the evaluator raises whatever numpy does; what it cannot run is followed by its table alone
        return None
    if not isinstance(found, np.ndarray) or found.ndim < 2 or not found.size or found.dtype.kind != "f":
        return None
    rows = found.astype(np.float64).reshape(-1, *found.shape[-2:])
    first: NDArray[np.float64] = rows[0]
    return first if (rows == first).all() else None


def _is_arithmetic(node: ir.Node) -> bool:
    """Say whether a node is one that is run, and keeps the bits of a float32."""
    kind = ir.DataType(node.attributes["to"].as_int()) if node.op_type == "Cast" else ir.DataType.FLOAT
    return node.op_type in ARITHMETIC and not node.domain and (not kind.is_floating_point() or kind in WIDE_FLOATS)


def _is_small(part: ir.Graph) -> bool:
    """Say whether a part holds no narrow float and no size beyond reason."""
    tensors = [tensor for value in part.initializers.values() if (tensor := value.const_value) is not None]
    tensors += [tensor for node in part if (tensor := ir.convenience.get_const_tensor(node.outputs[0])) is not None]
    for tensor in tensors:
        if tensor.dtype.is_floating_point() and tensor.dtype not in WIDE_FLOATS:
            return False
        if tensor.dtype.is_integer() and tensor.size and int(np.abs(tensor.numpy()).max()) > LARGEST_INTEGER:
            return False
    sizes = [size for value in part.inputs for size in value.shape or () if isinstance(size, int)]
    return all(size <= LARGEST_INTEGER for size in sizes)


def _ones(value: ir.Value) -> NDArray[np.int64]:
    """Give ids or a mask of one row, or of as many as the graph takes."""
    shape = list(value.shape or ())
    sizes = [size if isinstance(size, int) else (1, TOKENS)[bool(place)] for place, size in enumerate(shape)]
    return np.ones(sizes, np.int64)
