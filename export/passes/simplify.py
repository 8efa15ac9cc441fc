"""Fold shape arithmetic and drop what nothing uses.

Exact: constants are folded with the operators' own reference semantics, and only integers and small tables; weights
are graph inputs at this point, so no product of theirs can be folded. The size limit keeps masks and RoPE tables
computed in the graph, where a fixed 8,192-token graph would otherwise hold a 256 MB constant.
"""

import onnx_ir as ir
import onnx_ir.passes.common as common
from onnxscript import optimizer, rewriter

FOLD_LIMIT_ELEMENTS = 1024


def simplify(model: ir.Model, *, positions: int = 0) -> None:
    """Simplify a graph in place.

    Args:
        model: Dynamic or fixed.
        positions: Tokens of a fixed graph; its table of positions may be folded, so that no Range is left.
    """
    limit = max(FOLD_LIMIT_ELEMENTS, positions)
    common.InlinePass()(model)
    for _ in range(2):
        optimizer.fold_constants(
            model, onnx_shape_inference=True, input_size_limit=limit, output_size_limit=limit
        )
        rewriter.rewrite(model)
        common.RemoveUnusedNodesPass()(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.DeduplicateInitializersPass()(model)
    common.CommonSubexpressionEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    common.RemoveUnusedFunctionsPass()(model)
    common.RemoveUnusedOpsetsPass()(model)
    common.OutputFixPass()(model)
    common.NameFixPass()(model)
    common.TopologicalSortPass()(model)
