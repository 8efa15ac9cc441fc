"""Take the mask input out of a graph for rows without padding.

Exact: such rows have a mask of ones, so a head that pools by the mask gets ones of the shape of the ids.
"""

import numpy as np
import onnx_ir as ir

from vela.graphs import contract


def drop_mask(model: ir.Model) -> None:
    """Replace `attention_mask` by ones in place; the encoder does not look at it any more."""
    graph = model.graph
    inputs = {value.name: value for value in graph.inputs}
    mask = inputs[contract.ATTENTION_MASK]
    one = ir.tensor(np.ones(1, dtype=np.int64))
    shape = ir.node("Shape", [inputs[contract.INPUT_IDS]])
    ones = ir.node("ConstantOfShape", shape.outputs, {"value": one})
    graph.insert_before(graph[0], (shape, ones))
    ir.convenience.replace_all_uses_with(mask, ones.outputs[0])
    graph.inputs.remove(mask)
