"""Let a product read its weights as they are stored, (out, in), where that is faster on CUDA.

Exact: x @ W.T is the same sums of the same products; only which kernel the library picks differs. Everywhere else the
Transpose stays in the graph, and ONNX Runtime folds it when it loads.
Source: ONNX Runtime 1.31.1 on an H200, FP32 without TF32, both orders of each product, alternating: microseconds in
scripts/bench/README.md.
"""

import onnx_ir as ir

from vela.export.passes import graph_writer

MICROSOFT = "com.microsoft"
PROJECTION, OUTPUT = (2304, 768), (768, 1152)  # of attention and gate alike; of the gated product
# Shapes of weights (out, in) by rows of the other factor. Shapes and lengths that were not measured are left alone.
STORED_ORDER: dict[int, frozenset[tuple[int, int]]] = {
    32: frozenset({PROJECTION}),
    128: frozenset({OUTPUT}),
    512: frozenset({PROJECTION, OUTPUT}),
    1024: frozenset({OUTPUT}),
}


def order_products(model: ir.Model, rows: int) -> None:
    """Reorder in place.

    Args:
        model: Its weights are graph inputs still.
        rows: B * T.
    """
    graph = model.graph
    for node in list(graph):
        turned = node.inputs[1].producer() if node.op_type == "MatMul" and node.inputs[1] is not None else None
        is_turned = (
            turned is not None
            and turned.op_type == "Transpose"
            and tuple(turned.attributes["perm"].as_ints()) == (1, 0)
        )
        weight = turned.inputs[0] if turned is not None and is_turned else None
        if weight is None or not weight.is_graph_input() or weight.shape is None:
            continue
        if tuple(weight.shape.dims) in STORED_ORDER.get(rows, frozenset()):
            writer = graph_writer.Writer(graph, node)
            product = writer.op("FusedMatMul", [node.inputs[0], weight], MICROSOFT, transB=1)
            graph_writer.replace(graph, node, product)
