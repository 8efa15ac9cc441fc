"""Cut a graph with several exits to one output.

Exact: nodes that the kept output does not depend on are removed, nothing else changes.
"""

from collections.abc import Collection

import onnx_ir as ir
import onnx_ir.passes.common as common

from vela.graphs import contract


def select_outputs(model: ir.Model, names: Collection[str]) -> None:
    """Keep the named outputs in place, and drop nodes, initializers and weight inputs that only others needed."""
    kept = [value for value in model.graph.outputs if value.name in names]
    if len(kept) != len(set(names)):
        raise ValueError(f"the graph has {[value.name for value in model.graph.outputs]}, not all of {sorted(names)}")
    model.graph.outputs.clear()
    model.graph.outputs.extend(kept)
    common.RemoveUnusedNodesPass()(model)
    needed = [
        value
        for value in model.graph.inputs
        if value.uses() or value.name in (contract.INPUT_IDS, contract.ATTENTION_MASK)
    ]
    model.graph.inputs.clear()
    model.graph.inputs.extend(needed)
