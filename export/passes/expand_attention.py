"""Replace the symbolic attention nodes of a `vela_ort` trace by operators of ONNX Runtime.

Exact, local layers: queries i*m to i*m+m-1 of block i see only keys from i*m-w to i*m+m-1+w, w being the half-window.
So block i is given kw = min(T, m+2w) keys from start = min(max(i*m-w, 0), T-kw) on, which hold all of those: the
start is never later than the first of them, and the end is either m+2w keys on or the last token. Which of the kw keys
a query sees is then decided as everywhere, by |q-k| <= w and the padding; an unseen key has the smallest finite number
added, so its weight is exactly 0. Positions are clipped to T-1, so no key is invented; the queries that fill the last
block repeat the last token and are cut off. Sizes are computed in the graph: one block (dense attention) up to
DENSE_TOKENS, else n = ceil(T / BLOCK_TOKENS) blocks of m = ceil(T / n) queries, so at most n-1 are wasted.

Exact, global layers: ONNX Runtime's MultiHeadAttention is bounded in memory only without a mask, so the mask becomes
one more column of the heads: q' = [q, 1], k' = [k, b] with b = 0 at tokens and UNSEEN at pads, so q'k' = qk + b. At
tokens that is qk to the bit; at pads the weight is exp of less than -1e28 relative to any token's, exactly 0.
Source: measured; scripts/bench/README.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from vela.export import attention
from vela.graphs import contract

BLOCK_TOKENS = 64
DENSE_TOKENS = 256
UNSEEN = -1e30  # times any scale still far below every score, and no overflow when a score is added
MICROSOFT = "com.microsoft"


def expand_attention(model: ir.Model, *, takes_mask: bool) -> None:
    """Replace every symbolic attention node in place.

    Args:
        model: A fresh `vela_ort` trace.
        takes_mask: Whether padding is looked at; without it the graph answers rows without padding only.
    """
    graph = model.graph
    nodes = [node for node in graph if node.domain == attention.SYMBOLIC_DOMAIN]
    shared = _Writer(graph, nodes[0])
    input_ids = next(value for value in graph.inputs if value.name == contract.INPUT_IDS)
    tokens = shared.op("Shape", [input_ids], start=1, end=2)
    seen = nodes[0].inputs[3] if takes_mask else None
    column = None if seen is None else _mask_column(shared, seen)
    windows = {node.attributes["half_window"].as_int() for node in nodes if node.op_type == attention.LOCAL}
    blocks = {window: _plan_blocks(shared, tokens, seen, window) for window in sorted(windows)}
    for node in nodes:
        writer = _Writer(graph, node)
        if node.op_type == attention.LOCAL:
            output = _local(writer, node, blocks[node.attributes["half_window"].as_int()])
        else:
            output = _global(writer, node, column)
        _replace(graph, node, output)
    model.opset_imports.pop(attention.SYMBOLIC_DOMAIN, None)
    model.opset_imports[MICROSOFT] = 1


def _replace(graph: ir.Graph, node: ir.Node, output: ir.Value) -> None:
    """Put an output in the place of a symbolic node's, and of the Cast to its own type that moved it off the CPU."""
    moved = [user for user in node.outputs[0].consumers() if user.op_type == "Cast"]
    for old in (*moved, node):
        ir.convenience.replace_all_uses_with(old.outputs[0], output)
        graph.remove(old, safe=True)


class _Writer:
    """Writes operators before a node, under its scope names."""

    def __init__(self, graph: ir.Graph, before: ir.Node) -> None:
        self._graph = graph
        self._before = before

    def op(self, kind: str, inputs: Sequence[ir.Value], domain: str = "", **attributes: Any) -> ir.Value:
        """Write one operator with one output."""
        node = ir.node(kind, inputs, attributes, domain=domain)
        node.metadata_props.update(self._before.metadata_props)
        self._graph.insert_before(self._before, node)
        return node.outputs[0]

    def constant(self, value: int | float | bool | list[int]) -> ir.Value:
        """Write a constant: int64 or float32, () or (count,)."""
        kind = np.float32 if isinstance(value, float) else np.int64
        return self.op("Constant", [], value=ir.tensor(np.array(value, dtype=kind)))

    def reshape(self, value: ir.Value, shape: list[int]) -> ir.Value:
        """Reshape to fixed sizes; 0 keeps a size and -1 is inferred."""
        return self.op("Reshape", [value, self.constant(shape)])


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How local layers of one half-window cut a sequence.

    Attributes:
        tokens: (1,) int64, T.
        queries: (n, m) int64, positions.
        keys: (n, kw) int64, positions.
        bias: (1 or B, 1, n, m, kw) float32, 0 where the query sees the key.
    """

    tokens: ir.Value
    queries: ir.Value
    keys: ir.Value
    bias: ir.Value


def _plan_blocks(writer: _Writer, tokens: ir.Value, seen: ir.Value | None, half_window: int) -> _Blocks:
    op, constant = writer.op, writer.constant
    one, window = constant([1]), constant([half_window])
    many = op("Div", [op("Add", [tokens, constant([BLOCK_TOKENS - 1])]), constant([BLOCK_TOKENS])])
    count = op("Where", [op("LessOrEqual", [tokens, constant([DENSE_TOKENS])]), one, many])
    size = op("Div", [op("Sub", [op("Add", [tokens, count]), one]), count])
    width = op("Min", [tokens, op("Add", [size, constant([2 * half_window])])])
    starts = op("Mul", [_range(writer, count), size])
    last = op("Sub", [tokens, one])
    queries = op("Min", [op("Add", [_column(writer, starts), _range(writer, size)]), last])
    first = op("Max", [op("Sub", [starts, window]), constant([0])])
    first = op("Min", [first, op("Sub", [tokens, width])])
    keys = op("Add", [_column(writer, first), _range(writer, width)])
    distance = op("Sub", [op("Unsqueeze", [queries, constant([2])]), op("Unsqueeze", [keys, one])])
    near = op("LessOrEqual", [op("Abs", [distance]), window])
    if seen is not None:
        padding = op("Gather", [seen, keys], axis=1)
        near = op("And", [near, op("Unsqueeze", [padding, constant([1, 3])])])
    bias = op("Where", [near, constant(0.0), constant(float(np.finfo(np.float32).min))])
    return _Blocks(tokens, queries, keys, bias)


def _range(writer: _Writer, count: ir.Value) -> ir.Value:
    """Count from 0: (count,) int64 for a (1,) count."""
    limit = writer.op("Squeeze", [count, writer.constant([0])])
    return writer.op("Range", [writer.constant(0), limit, writer.constant(1)])


def _column(writer: _Writer, values: ir.Value) -> ir.Value:
    return writer.op("Unsqueeze", [values, writer.constant([1])])


def _local(writer: _Writer, node: ir.Node, blocks: _Blocks) -> ir.Value:
    """Attend on blocks: (B, A, T, D) queries, keys and values to (B, T, A, D)."""
    op = writer.op
    heads, head_width = node.attributes["heads"].as_int(), node.attributes["width"].as_int()
    query, key, value = node.inputs[:3]
    query = op("Gather", [query, blocks.queries], axis=2)
    key, value = (op("Gather", [tensor, blocks.keys], axis=2) for tensor in (key, value))
    scale = node.attributes["scale"].as_float()
    scores = op("FusedMatMul", [query, key], MICROSOFT, transB=1, alpha=scale)
    weights = op("Softmax", [op("Add", [scores, blocks.bias])], axis=-1)
    mixed = op("Transpose", [op("MatMul", [weights, value])], perm=[0, 2, 3, 1, 4])
    whole = writer.reshape(mixed, [0, -1, heads, head_width])
    return op("Slice", [whole, writer.constant([0]), blocks.tokens, writer.constant([1])])


def _mask_column(writer: _Writer, seen: ir.Value) -> ir.Value:
    """Turn the padding (B, T) into the column of the keys, (B, 1, T, 1) float32."""
    bias = writer.op("Where", [seen, writer.constant(0.0), writer.constant(UNSEEN)])
    return writer.op("Unsqueeze", [bias, writer.constant([1, 3])])


def _global(writer: _Writer, node: ir.Node, column: ir.Value | None) -> ir.Value:
    """Attend everywhere: (B, A, T, D) queries, keys and values to (B, T, A, D)."""
    op, constant = writer.op, writer.constant
    heads, head_width = node.attributes["heads"].as_int(), node.attributes["width"].as_int()
    query, key, value = node.inputs[:3]
    width = head_width
    if column is not None:
        width += 1
        one_more = constant([0, 0, 0, 0, 0, 0, 0, 1])
        query = op("Pad", [query, one_more, constant(1.0)])
        key = op("Concat", [key, op("Expand", [column, constant([1, heads, 1, 1])])], axis=3)
        value = op("Pad", [value, one_more, constant(0.0)])  # the operator wants keys and values of one width
    query = writer.reshape(op("Transpose", [query], perm=[0, 2, 1, 3]), [0, 0, heads * width])
    scale = node.attributes["scale"].as_float()
    mixed = op("MultiHeadAttention", [query, key, value], MICROSOFT, num_heads=heads, scale=scale)
    mixed = writer.reshape(mixed, [0, 0, heads, width])
    return mixed if column is None else op("Slice", [mixed, constant([0]), constant([head_width]), constant([3])])
