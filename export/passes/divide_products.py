"""Give each part of a split product a product of its own, for the CPU.

Exact: the columns of x @ W.T are independent sums, so the parts of the product are the products with the parts of W.
What is saved is the copy that Split makes of every part. The weights are cut in the graph, from the tensor as it is
stored, and ONNX Runtime folds that when it loads.
Source: measured, 1 to 2 % of a run up to 512 tokens and 5 to 7 % at 2,048; scripts/bench/README.md.
"""

import onnx_ir as ir

from vela.export.passes import graph_writer

LAST_AXES = (-1, 2)


def divide_products(model: ir.Model) -> None:
    """Divide in place; a Split of anything else is left alone.

    Args:
        model: Its weights are graph inputs still.
    """
    graph = model.graph
    for split in list(graph):
        weight = _split_weight(split)
        if weight is None or weight.shape is None:
            continue
        product = split.inputs[0].producer()
        writer = graph_writer.Writer(graph, split)
        rows = weight.shape[0] // len(split.outputs)
        for index, output in enumerate(split.outputs):
            limits = (writer.constant([number]) for number in (index * rows, (index + 1) * rows, 0))
            part = writer.op("Transpose", [writer.op("Slice", [weight, *limits])], perm=[1, 0])
            divided = writer.op("MatMul", [product.inputs[0], part])
            divided.shape, divided.type = output.shape, output.type
            ir.convenience.replace_all_uses_with(output, divided)
        graph.remove(split, safe=True)


def _split_weight(split: ir.Node) -> ir.Value | None:
    """Give the (out, in) weight whose product, used by nothing else, is split into equal parts along the last axis."""
    if split.op_type != "Split" or split.attributes["axis"].as_int() not in LAST_AXES or len(split.inputs) > 1:
        return None
    product = split.inputs[0].producer() if split.inputs[0] is not None else None
    if product is None or product.op_type != "MatMul" or len(product.outputs[0].uses()) != 1:
        return None
    turned = product.inputs[1].producer() if product.inputs[1] is not None else None
    if turned is None or turned.op_type != "Transpose" or tuple(turned.attributes["perm"].as_ints()) != (1, 0):
        return None
    weight = turned.inputs[0]
    if weight is None or not weight.is_graph_input() or weight.shape is None or not isinstance(weight.shape[0], int):
        return None
    return weight if weight.shape[0] % len(split.outputs) == 0 else None
