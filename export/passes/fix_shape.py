"""Fix a dynamic graph to one (batch, sequence) bucket.

Exact: only dimensions of inputs are set; every value's shape is inferred again from them and shape arithmetic
becomes constant. Weights are not touched, so all buckets share one file.
"""

import onnx_ir as ir

from vela.graphs import contract


def fix_inputs(model: ir.Model, batch: int, sequence: int) -> None:
    """Fix the data inputs in place to (batch, sequence)."""
    for value in model.graph.inputs:
        if value.name in (contract.INPUT_IDS, contract.ATTENTION_MASK):
            value.shape = ir.Shape([batch, sequence])


def clear_shapes(model: ir.Model) -> None:
    """Forget every inferred shape, so that no stale one survives a change of inputs."""
    for node in model.graph.all_nodes():
        for value in node.outputs:
            value.shape = None
