"""Fold shape arithmetic and drop what nothing uses.

Exact: constants are folded with the operators' own reference semantics, and only integers and small tables; weights
are graph inputs at this point, so no product of theirs can be folded. The size limit keeps masks and RoPE tables
computed in the graph, where a fixed 8,192-token graph would otherwise hold a 256 MB constant.
"""

import onnx_ir as ir
import onnx_ir.passes.common as common
from onnxscript import optimizer, rewriter

FOLD_LIMIT_ELEMENTS = 1024


def simplify_trace(model: ir.Model) -> None:
    """Simplify a fresh trace in place: inline functions, apply onnxscript's rewrite rules, fold."""
    common.InlinePass()(model)
    for _ in range(2):
        _fold(model, FOLD_LIMIT_ELEMENTS)
        rewriter.rewrite(model)
    fold_shapes(model, 0)


def fold_shapes(model: ir.Model, positions: int) -> None:
    """Fold what fixed dimensions made constant, in place.

    The rewrite rules are not tried again: they had their turn on the trace, and cost ten times as much as folding.

    Args:
        model: Simplified, and perhaps fixed to a shape.
        positions: Tokens of a fixed graph; its table of positions may be folded, so that no Range is left.
    """
    for _ in range(2):
        _fold(model, max(FOLD_LIMIT_ELEMENTS, positions))
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.DeduplicateInitializersPass()(model)
    common.CommonSubexpressionEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    common.RemoveUnusedFunctionsPass()(model)
    common.RemoveUnusedOpsetsPass()(model)
    common.OutputFixPass()(model)
    common.NameFixPass()(model)
    common.TopologicalSortPass()(model)


def _fold(model: ir.Model, limit: int) -> None:
    optimizer.fold_constants(model, onnx_shape_inference=True, input_size_limit=limit, output_size_limit=limit)
    common.RemoveUnusedNodesPass()(model)
