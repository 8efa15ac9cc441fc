"""Remove what the outputs do not depend on: later layers of an early exit, and their weights.

Exact: nodes without an effect on an output are removed, nothing else changes.
"""

import onnx_ir as ir
import onnx_ir.passes.common as common

from vela.graphs import contract


def remove_unused(model: ir.Model) -> None:
    """Drop unused nodes, initializers and weight inputs in place; the data inputs stay."""
    common.RemoveUnusedNodesPass()(model)
    needed = [
        value
        for value in model.graph.inputs
        if value.uses() or value.name in (contract.INPUT_IDS, contract.ATTENTION_MASK)
    ]
    model.graph.inputs.clear()
    model.graph.inputs.extend(needed)
