"""Write GELU as (x * (1 + erf(x / sqrt(2)))) * 0.5, the order that engines fuse into one operator.

Exact: a product by 0.5 is exact in floating point, so where it comes changes nothing short of subnormal numbers.
Source: ONNX Runtime's GeluFusion knows this order and not the exporter's; measured in scripts/bench/README.md.
"""

import onnx_ir as ir

from vela.export.passes import fuse_operators, graph_writer


def order_gelu(model: ir.Model) -> None:
    """Reorder in place; a node that keeps another form is left as it is."""
    graph = model.graph
    for node in list(graph):
        source = fuse_operators.gelu_input(node)
        if source is None:
            continue
        writer = graph_writer.Writer(graph, node)
        wave = writer.op("Erf", [writer.op("Div", [source, writer.constant(fuse_operators.SQRT_2)])])
        whole = writer.op("Mul", [source, writer.op("Add", [wave, writer.constant(1.0)])])
        graph_writer.replace(graph, node, writer.op("Mul", [whole, writer.constant(0.5)]))
