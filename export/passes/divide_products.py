"""Give each part of a split product a product of its own, for the CPU.

Exact: the columns of x @ W.T are independent sums, so the parts of the product are the products with the rows of W.
What is saved is the copy that Split makes of every part. Rows of a stored tensor lie together, so a part is a
reference into the middle of it and costs no memory; cut in the graph it stayed resident beside the whole.
Source: measured, scripts/bench/README.md.
"""

from dataclasses import dataclass

import onnx_ir as ir

from vela.export.passes import graph_writer

LAST_AXES = (-1, 2)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows `first` to `first + count` of the (out, in) weight called `weight`."""

    weight: str
    first: int
    count: int

    @property
    def name(self) -> str:
        """What the initializer is called."""
        return f"{self.weight}[{self.first}:{self.first + self.count}]"


def divide_products(model: ir.Model) -> dict[str, Rows]:
    """Divide in place; a Split of anything else is left alone.

    Args:
        model: Its weights are graph inputs still.

    Returns:
        By name the graph inputs that took the place of whole weights.
    """
    graph = model.graph
    parts: dict[str, Rows] = {}
    for split in list(graph):
        weight = _split_weight(split)
        if weight is None or weight.shape is None:
            continue
        product = split.inputs[0].producer()
        writer = graph_writer.Writer(graph, split)
        count = int(weight.shape[0]) // len(split.outputs)
        for index, output in enumerate(split.outputs):
            rows = Rows(str(weight.name), index * count, count)
            part = ir.val(rows.name, weight.dtype, [count, weight.shape[1]])
            graph.inputs.append(part)
            parts[rows.name] = rows
            divided = writer.op("MatMul", [product.inputs[0], writer.op("Transpose", [part], perm=[1, 0])])
            divided.shape, divided.type = output.shape, output.type
            ir.convenience.replace_all_uses_with(output, divided)
        graph.remove([split, product, product.inputs[1].producer()], safe=True)
        graph.inputs.remove(weight)
    return parts


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
    if len(weight.uses()) != 1 or len(turned.outputs[0].uses()) != 1:
        return None
    return weight if weight.shape[0] % len(split.outputs) == 0 else None
