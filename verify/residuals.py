"""Find the hidden states of a graph that names none: they run from one residual addition to the next.

A transformer's layer adds what attention computed from a state to that state, and then what its feed-forward part
computed from the sum. So a residual addition is an Add of which one input is computed from the other by way of a
matrix product, and the state after layer k is what the addition after the first 2k adds to. That holds for norms before
a sublayer (ModernBERT) and after it (BERT), written in one operator or in several, and for weights of any type; where
an optimiser has fused additions into norms, nothing is found.
"""

from collections.abc import Iterator

import onnx_ir as ir

PRODUCTS = frozenset({"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "Attention", "MultiHeadAttention", "Einsum"})
ADDITIONS_OF_LAYER = 2  # one for attention, one for the feed-forward part


def find_states(graph: ir.Graph, layers: int) -> dict[int, ir.Value]:
    """Give the state after each layer but the last, by layer from 1 on.

    The last layer's is what no addition adds to, and whether a norm follows it is the architecture's own matter.

    Args:
        graph: The graph, its nodes in topological order.
        layers: That its checkpoint has.

    Returns:
        Nothing where the graph has not just two residual additions for each layer.
    """
    skips = [skip for _, skip in find_additions(graph)]
    if len(skips) != ADDITIONS_OF_LAYER * layers:
        return {}
    return {layer: skips[ADDITIONS_OF_LAYER * layer] for layer in range(1, layers)}


def find_additions(graph: ir.Graph) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Give each residual addition in order, with the input that goes by its sublayer.

    That input is what the addition before gave, or a norm of it: a mask is added to scores too, and the scores of later
    layers do depend on it by way of products.
    """
    places = {id(node): place for place, node in enumerate(graph)}
    last: ir.Node | None = None
    for node in graph:
        if node.op_type != "Add" or node.domain or len(node.inputs) != 2 or None in node.inputs:
            continue
        first, second = (value for value in node.inputs if value is not None)
        for skip, branch in ((first, second), (second, first)):
            origin = skip.producer()
            is_next = last is None or origin is last or _is_between(skip, last.outputs[0], places, with_product=False)
            if origin is not None and is_next and _is_between(branch, skip, places, with_product=True):
                yield node, skip
                last = node
                break


def _is_between(value: ir.Value, source: ir.Value, places: dict[int, int], *, with_product: bool) -> bool:
    """Say whether a value is computed from another, with a matrix product between them or with none."""
    origin = source.producer()
    if origin is None or value is source:
        return False
    earliest = places.get(id(origin), 0)
    seen, waiting, is_reached, has_product = set[int](), [value.producer()], False, False
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen or places.get(id(node), -1) <= earliest:
            continue
        seen.add(id(node))
        if node.op_type in PRODUCTS:
            has_product = True
            if not with_product:
                continue
        is_reached = is_reached or any(given is source for given in node.inputs)
        waiting += [given.producer() for given in node.inputs if given is not None]
    return is_reached and (has_product or not with_product)
