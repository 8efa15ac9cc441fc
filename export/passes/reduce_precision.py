"""Let a fixed graph compute in a 16-bit type, by casts alone: its weights stay the checkpoint's own.

What depends on the words is rounded: products, norms, attention, and what only moves or combines their results. What
depends on positions or on the mask is computed as it was, in float32, and rounded where the words meet it; sums over
tokens, of which a product with the mask is one, are float32 too, since they may leave a 16-bit type's range. Outputs
are float32, as the contract says.

Not exact, and judged as such: but without its casts the graph is the one that it was made from, node by node, which the
gate checks (verify/static/reduction.py). One number differs: a score added to hide a token is one that the type holds,
and that stays finite with any score added. Minus infinity in every key of a row of padding gives nan.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from vela.graphs import contract, precision
from vela.verify.static.reduction import TYPES

MICROSOFT = "com.microsoft"

# Operators that are worth rounding, where words reach them, and those of their inputs that are no numbers.
COMPUTING: Mapping[tuple[str, str], frozenset[int]] = {
    ("", "Gemm"): frozenset(),
    ("", "LayerNormalization"): frozenset(),
    ("", "MatMul"): frozenset(),
    (MICROSOFT, "FusedMatMul"): frozenset(),
    (MICROSOFT, "Gelu"): frozenset(),
    (MICROSOFT, "MultiHeadAttention"): frozenset({4}),
    (MICROSOFT, "RotaryEmbedding"): frozenset({1}),
    (MICROSOFT, "SkipLayerNormalization"): frozenset(),
}
PRODUCTS = frozenset({"FusedMatMul", "Gemm", "MatMul"})
# Operators that go with what they are given: those that combine numbers, and those that move their first input's.
COMBINING = frozenset("Add Concat Div Erf Mul Neg Softmax Sub Tanh".split())
MOVING = frozenset("Expand Flatten Gather Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split())


def reduce_precision(model: ir.Model, reduced: contract.Precision) -> None:
    """Reduce in place.

    Args:
        model: A graph of fixed shape with its weights, that computes in float32.
        reduced: `fp16` or `bf16`.

    Raises:
        ValueError: it is neither.
    """
    if reduced == "fp32":
        raise ValueError("fp32 is no reduced precision")
    _Reduction(model.graph, reduced).reduce()


class _Reduction:
    """What is known of one graph's values on the way through its nodes."""

    def __init__(self, graph: ir.Graph, reduced: contract.Precision) -> None:
        self._graph = graph
        self._reduced = reduced
        self._low: set[ir.Value] = set()
        self._fed: set[ir.Value] = set(graph.inputs)  # depends on an input
        self._worded: set[ir.Value] = {value for value in graph.inputs if value.name == contract.INPUT_IDS}
        self._casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def reduce(self) -> None:
        """Round node by node, in their order."""
        self._bound_constants()
        for node in list(self._graph):
            for reached in (self._fed, self._worded):
                if any(value in reached for value in node.inputs):
                    reached.update(node.outputs)
            places = set(self._numbers_of(node))
            is_low = bool(places)
            for place, value in enumerate(node.inputs):
                if value is not None and (place in places if is_low else value in self._low):
                    node.replace_input_with(place, self._cast(value, node, is_low=is_low))
            if is_low:
                self._low.update(node.outputs)
            for value in node.outputs:
                value.type = None  # of another type now, or of one that follows
        self._widen_outputs()

    def _numbers_of(self, node: ir.Node) -> Iterator[int]:
        """Give the inputs that a node takes rounded; none where it goes on in float32."""
        known = COMPUTING.get((node.domain, node.op_type))
        if known is not None and any(value in self._worded for value in node.inputs):
            if node.op_type in PRODUCTS and any(self._is_masking(value) for value in node.inputs):
                return
            yield from (place for place in range(len(node.inputs)) if place not in known)
        elif node.domain == "" and node.op_type in COMBINING and any(value in self._low for value in node.inputs):
            yield from range(len(node.inputs))
        elif node.domain == "" and node.op_type in MOVING and node.inputs[0] in self._low:
            yield 0

    def _is_masking(self, value: ir.Value | None) -> bool:
        return value in self._fed and value not in self._worded

    def _cast(self, value: ir.Value, before: ir.Node, *, is_low: bool) -> ir.Value:
        """Give a value in the type that is wanted, by one cast for all who want it."""
        if (value in self._low) == is_low:
            return value
        wanted = TYPES[self._reduced] if is_low else ir.DataType.FLOAT
        if (value, wanted) not in self._casts:
            cast = self._write_cast(value, wanted, before)
            self._casts[value, wanted] = cast
            self._low.update({cast} if is_low else ())
        return self._casts[value, wanted]

    def _write_cast(self, value: ir.Value, wanted: ir.DataType, before: ir.Node | None) -> ir.Value:
        node = ir.node("Cast", [value], {"to": int(wanted)})
        node.outputs[0].name = f"{value.name}_{wanted.name.lower()}"
        if before is None:
            self._graph.append(node)
        else:
            node.metadata_props.update(before.metadata_props)
            self._graph.insert_before(before, node)
        return node.outputs[0]

    def _widen_outputs(self) -> None:
        for place, value in enumerate(self._graph.outputs):
            if value in self._low:
                name = value.name
                value.name = f"{name}_{TYPES[self._reduced].name.lower()}"
                wide = self._write_cast(value, ir.DataType.FLOAT, None)
                wide.name = name
                self._graph.outputs[place] = wide

    def _bound_constants(self) -> None:
        for value in self._graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor) or tensor is None or tensor.dtype != ir.DataType.FLOAT:
                continue
            bounded = precision.bound_hidden(tensor.numpy(), self._reduced)
            if not np.array_equal(bounded, tensor.numpy()):
                value.const_value = ir.Tensor(bounded, name=value.name)
