"""Give an attention's output head by head, but not to those who would only join its heads again.

Exact: a Reshape of (B, T, A*D) to (B, T, A, D) and one back are the same numbers in the same order. ONNX Runtime drops
neither, and each costs what launching an operator does.
Source: measured; scripts/bench/README.md.
"""

import onnx_ir as ir

from vela.export.passes import graph_writer


def split_heads(graph: ir.Graph, attended: ir.Node, joined: ir.Value) -> ir.Value:
    """Give an output for the users of a symbolic attention node that are left; others get it as it is.

    Args:
        graph: The graph.
        attended: The node, of output (B, T, A, D); its attributes say A and D.
        joined: What stands in its place, (B, T, A*D).

    Returns:
        (B, T, A, D) where anybody wants it so.
    """
    value = attended.outputs[0]
    for node, _ in list(value.uses()):
        if _joins_heads(node, attended):
            ir.convenience.replace_all_uses_with(node.outputs[0], joined, replace_graph_outputs=True)
            graph.remove(node, safe=True)
    if not value.uses():
        return joined
    heads, width = (attended.attributes[name].as_int() for name in ("heads", "width"))
    return graph_writer.Writer(graph, attended).reshape(joined, [0, 0, heads, width])


def _joins_heads(node: ir.Node, attended: ir.Node) -> bool:
    """Say whether a node makes (B, T, A*D) of an attention's (B, T, A, D), as the shapes of the trace say."""
    split, joined = attended.outputs[0].shape, node.outputs[0].shape
    if node.op_type != "Reshape" or node.domain or split is None or joined is None or len(joined) != 3:
        return False
    heads, width = (attended.attributes[name].as_int() for name in ("heads", "width"))
    return joined[:2] == split[:2] and joined[2] == heads * width
