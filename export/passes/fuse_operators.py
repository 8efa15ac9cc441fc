"""Write GELU and residual norms as one operator each, for ONNX Runtime.

Exact: com.microsoft's Gelu is x/2 * (1 + erf(x / sqrt(2))), the expression that it replaces. SkipLayerNormalization
normalises x + y and gives x + y too, which the next residual needs. Only roundings differ. ONNX Runtime fuses neither
by itself: the exporter's GELU has another order of factors, and a sum with two users is left alone.
Source: measured; scripts/bench/README.md.
"""

from collections.abc import Iterator

import onnx_ir as ir

MICROSOFT = "com.microsoft"
SQRT_2 = 1.4142135
RELATIVE = 1e-6  # of constants: float32 has seven digits


def fuse_gelu(model: ir.Model) -> None:
    """Fuse every GELU in place; a node that keeps another form is left as it is."""
    graph = model.graph
    for node in list(graph):
        if (source := gelu_input(node)) is not None:
            _replace(graph, node, ir.node("Gelu", [source], domain=MICROSOFT), node.outputs[0])
    model.opset_imports[MICROSOFT] = 1


def fuse_residuals(model: ir.Model) -> None:
    """Fuse every norm of a sum in place. It is for CUDA: on the CPU the operator is slower than the two it replaces."""
    graph = model.graph
    for node in list(graph):
        if (added := _residual(node)) is not None:
            _fuse_norm(graph, node, added)
    model.opset_imports[MICROSOFT] = 1


def gelu_input(node: ir.Node) -> ir.Value | None:
    """Match x * (0.5 * (1 + erf(x / sqrt(2)))) at its last product, and give x."""
    for source, half in _orders(node, "Mul"):
        for factor, one_more in _orders(half.producer(), "Mul"):
            for wave, one in _orders(one_more.producer(), "Add"):
                erf = wave.producer()
                if erf is None or erf.op_type != "Erf" or not (_is(factor, 0.5) and _is(one, 1.0)):
                    continue
                divided = erf.inputs[0].producer() if erf.inputs[0] is not None else None
                if divided is not None and divided.op_type == "Div" and _is(divided.inputs[1], SQRT_2):
                    return source if divided.inputs[0] is source else None
    return None


def _residual(node: ir.Node) -> ir.Node | None:
    """Give the sum that a layer norm over the last axis normalises."""
    axis = node.attributes.get("axis")
    if node.op_type != "LayerNormalization" or node.domain != "" or (axis is not None and axis.as_int() != -1):
        return None
    added = node.inputs[0].producer() if node.inputs[0] is not None else None
    if added is None or added.op_type != "Add" or any(value is None for value in added.inputs):
        return None
    shapes = [value.shape for value in added.inputs if value is not None]
    is_residual = shapes[0] is not None and shapes[0] == shapes[1] and len(shapes[0]) == 3
    return added if is_residual else None


def _fuse_norm(graph: ir.Graph, norm: ir.Node, added: ir.Node) -> None:
    sides = list(added.inputs)
    fused = ir.node(
        "SkipLayerNormalization",
        [*sides, *norm.inputs[1:]],
        {"epsilon": norm.attributes["epsilon"].as_float()},
        domain=MICROSOFT,
        num_outputs=4,
    )
    total = added.outputs[0]
    fused.outputs[3].name, fused.outputs[3].shape, fused.outputs[3].type = total.name, total.shape, total.type
    for value in fused.outputs[1:3]:
        value.name = ""
    _replace(graph, norm, fused, norm.outputs[0])
    ir.convenience.replace_all_uses_with(total, fused.outputs[3], replace_graph_outputs=True)
    graph.remove(added, safe=True)


def _replace(graph: ir.Graph, old: ir.Node, new: ir.Node, output: ir.Value) -> None:
    new.metadata_props.update(old.metadata_props)
    new.outputs[0].name, new.outputs[0].shape, new.outputs[0].type = output.name, output.shape, output.type
    graph.insert_before(old, new)
    ir.convenience.replace_all_uses_with(output, new.outputs[0], replace_graph_outputs=True)
    graph.remove(old, safe=True)


def _orders(node: ir.Node | None, kind: str) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Give the two inputs of a commutative operator, in both orders."""
    if node is None or node.op_type != kind or node.domain != "" or None in node.inputs:
        return
    first, second = node.inputs
    yield first, second
    yield second, first


def _is(value: ir.Value | None, expected: float) -> bool:
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return tensor is not None and tensor.size == 1 and abs(float(tensor.numpy().item()) / expected - 1) < RELATIVE
