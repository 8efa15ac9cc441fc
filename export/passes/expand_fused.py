"""Replace symbolic attention by operators of ONNX Runtime, for its CPU and CUDA providers.

Exact, rotation: com.microsoft's RotaryEmbedding turns (a, b) into (a*cos - b*sin, b*cos + a*sin). Where launches cost
more than bytes, queries, keys and values of one product are seen as three positions of one token, with tables that hold
cos, sin for the first two and 1, 0 for the third, which leaves values as they are to the bit: one operator for all.

Exact, local layers: queries i*m to i*m+m-1 of block i see only keys from i*m-w to i*m+m-1+w, w being the half-window.
So block i is given kw = min(T, m+2w) keys from start = min(max(i*m-w, 0), T-kw) on, which hold all of those: the
start is never later than the first of them, and the end is either m+2w keys on or the last token. Which of the kw keys
a query sees is then decided as everywhere, by |q-k| <= w and the padding; an unseen key has the smallest finite number
added, so its weight is exactly 0. Positions are clipped to T-1, so no key is invented; the queries that fill the last
block repeat the last token and are cut off. Sizes are computed in the graph: one block (dense attention) up to
`dense_tokens`, else n = ceil(T / block_tokens) blocks of m = ceil(T / n) queries, so at most n-1 are wasted. Blocks are
rows of a batch to MultiHeadAttention, so a block's scores stay in the processor's cache. On the CPU its keys and values
are gathered head by head, into the order in which that operator works: else it would copy all of them once more.

Exact, global layers: MultiHeadAttention is bounded in memory only without a mask, so the mask becomes one more column
of the heads: q' = [q, 1], k' = [k, b] with b = 0 at tokens and UNSEEN at pads, so q'k' = qk + b. At tokens that is qk
to the bit; at pads the weight is exp of less than -1e28 relative to any token's, exactly 0. Where a (T, T) bias is
small, it is the bias instead.
Source: measured; scripts/bench/README.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from vela.export import attention
from vela.export.passes import graph_writer, recognise_attention, split_heads
from vela.graphs import contract

MICROSOFT = "com.microsoft"
UNSEEN = -1e30  # times any scale still far below every score, and no overflow when a score is added


@dataclass(frozen=True, slots=True)
class Policy:
    """What differs between the graphs of this target.

    Attributes:
        takes_mask: Whether padding is looked at; without it the graph answers rows without padding only.
        tokens: T of a fixed graph; None where it is dynamic.
        dense_tokens: Up to this length local layers are one block.
        block_tokens: Queries of a block beyond that.
        bias_tokens: Up to this length a fixed graph's global layers take padding as a bias; 0 for never.
        column_width: By how much the mask column widens heads; some kernels want a multiple of 8.
        rotates_whole: Whether queries, keys and values are rotated by one operator (fewer launches) or queries and
            keys by one each (fewer bytes).
        gathers_heads: Whether keys and values of blocks are gathered head by head, or token by token.
    """

    takes_mask: bool
    tokens: int | None = None
    dense_tokens: int = 256
    block_tokens: int = 64
    bias_tokens: int = 0
    column_width: int = 1
    rotates_whole: bool = False
    gathers_heads: bool = False


def expand_fused(model: ir.Model, policy: Policy) -> None:
    """Replace every symbolic attention node in place.

    Args:
        model: A fresh symbolic trace, its inputs fixed to a shape where the policy is.
        policy: For which graph.
    """
    graph = model.graph
    layers = recognise_attention.find_attention(graph)
    expansion = _Expansion(graph, layers, policy)
    outputs = [expansion.expand(layer) for layer in layers]
    for layer, (output, is_joined) in zip(layers, outputs, strict=True):
        put = split_heads.split_heads(graph, layer.node, output) if is_joined else output
        graph_writer.replace(graph, layer.node, put)
    model.opset_imports.pop(attention.SYMBOLIC_DOMAIN, None)
    model.opset_imports[MICROSOFT] = 1


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How local layers of one half-window cut a sequence.

    Attributes:
        queries: (n, m) int64, positions; None where there is one block.
        keys: (n, kw) int64, positions.
        key_rows: (n, A, kw) int64, places of the keys' heads among T*A; None where whole tokens are gathered.
        query_count: (1,) int64, m.
        key_count: (1,) int64, kw.
        bias: (B*n, 1, m, kw) float32, 0 where the query sees the key; (1, 1, T, T) of one block without padding.
    """

    queries: ir.Value | None
    keys: ir.Value | None
    key_rows: ir.Value | None
    query_count: ir.Value | None
    key_count: ir.Value | None
    bias: ir.Value


class _Expansion:
    """What the layers of one graph share: sizes, rotation tables, blocks and biases."""

    def __init__(self, graph: ir.Graph, layers: Sequence[recognise_attention.Attention], policy: Policy) -> None:
        self._graph = graph
        self._policy = policy
        self._shared = writer = graph_writer.Writer(graph, layers[0].node)
        input_ids = next(value for value in graph.inputs if value.name == contract.INPUT_IDS)
        self._rows = writer.op("Shape", [input_ids], start=0, end=1)
        self._tokens = writer.op("Shape", [input_ids], start=1, end=2)
        self._seen = layers[0].seen if policy.takes_mask else None
        self._tables: dict[recognise_attention.Rotary, tuple[ir.Value, ir.Value]] = {}
        self._blocks: dict[tuple[int, int], _Blocks] = {}
        self._columns: tuple[ir.Value, ...] = ()
        self._bias: ir.Value | None = None

    def expand(self, layer: recognise_attention.Attention) -> tuple[ir.Value, bool]:
        """Write one layer; give its output, and whether that is (B, T, A*D) and not (B, T, A, D)."""
        writer = graph_writer.Writer(self._graph, layer.node)
        if layer.half_window is None:
            return self._global(writer, layer)
        return self._local(writer, layer, self._blocks_of(layer.half_window, layer.heads)), True

    def _global(self, writer: graph_writer.Writer, layer: recognise_attention.Attention) -> tuple[ir.Value, bool]:
        policy = self._policy
        if self._seen is None:
            mixed = _attend(writer, layer, self._projections(writer, layer))
        elif policy.tokens is not None and policy.tokens <= policy.bias_tokens:
            mixed = _attend(writer, layer, self._projections(writer, layer), self._global_bias())
        else:
            mixed = _attend(writer, layer, self._with_column(writer, layer))
            wide = writer.reshape(mixed, [0, 0, layer.heads, layer.width + policy.column_width])
            limits = (writer.constant([number]) for number in (0, layer.width, 3))
            return writer.op("Slice", [wide, *limits]), False
        return mixed, True

    def _local(self, writer: graph_writer.Writer, layer: recognise_attention.Attention, blocks: _Blocks) -> ir.Value:
        query, key, value = self._projections(writer, layer)
        hidden = layer.heads * layer.width
        if blocks.queries is None or blocks.keys is None:
            return _attend(writer, layer, (query, key, value), blocks.bias)
        query = writer.op("Gather", [query, blocks.queries], axis=1)
        query = writer.reshape_to(query, -1, blocks.query_count, hidden)
        places, shape = blocks.keys, [blocks.key_count, hidden]
        if blocks.key_rows is not None:
            places, shape = blocks.key_rows, [layer.heads, blocks.key_count, layer.width]
            key, value = (writer.reshape(part, [0, -1, layer.width]) for part in (key, value))
        gathered = (writer.op("Gather", [part, places], axis=1) for part in (key, value))
        key, value = (writer.reshape_to(part, -1, *shape) for part in gathered)
        mixed = writer.reshape_to(_attend(writer, layer, (query, key, value), blocks.bias), self._rows, -1, hidden)
        if self._policy.tokens is not None and self._policy.tokens % self._policy.block_tokens == 0:
            return mixed
        return writer.op("Slice", [mixed, writer.constant([0]), self._tokens, writer.constant([1])])

    def _projections(self, writer: graph_writer.Writer, layer: recognise_attention.Attention) -> tuple[ir.Value, ...]:
        """Give queries, keys and values, each (B, T, A*D), rotated."""
        if layer.packed is None:
            return layer.parts
        hidden = layer.heads * layer.width
        if self._policy.rotates_whole:
            flat = writer.reshape(layer.packed.projected, [0, -1, hidden])
            rotated = _rotate(writer, layer, flat, self._tables_of(layer.packed.rotary, layer.width))
            whole = writer.reshape(rotated, [0, -1, 3 * hidden])
            return tuple(writer.ops("Split", [whole], 3, axis=2, num_outputs=3))
        tables = self._tables_of(layer.packed.rotary, layer.width)
        query, key, value = writer.ops("Split", [layer.packed.projected], 3, axis=2, num_outputs=3)
        return _rotate(writer, layer, query, tables), _rotate(writer, layer, key, tables), value

    def _tables_of(self, rotary: recognise_attention.Rotary, width: int) -> tuple[ir.Value, ir.Value]:
        """Give the halves of the tables, (T, D/2), or of three positions for each token, (3T, D/2)."""
        if rotary not in self._tables:
            halves = [self._half(table, width) for table in (rotary.cos, rotary.sin, rotary.angles)]
            if self._policy.rotates_whole:
                writer = self._shared
                cos, sin, angles = (writer.reshape(half, [-1, 1, width // 2]) for half in halves)
                nothing = writer.op("Mul", [angles, writer.constant(0.0)])
                one = writer.op("Add", [nothing, writer.constant(1.0)])
                placed = ((cos, one), (sin, nothing))
                three = (writer.op("Concat", [table, table, idle], axis=1) for table, idle in placed)
                halves = [writer.reshape(table, [-1, width // 2]) for table in three]
            self._tables[rotary] = (halves[0], halves[1])
        return self._tables[rotary]

    def _half(self, table: ir.Value, width: int) -> ir.Value:
        """Cut a (1, T, D) table to the (T, D/2) that both of its halves are."""
        writer = self._shared
        limits = [writer.constant([number]) for number in (0, width // 2, 2)]
        return writer.reshape(writer.op("Slice", [table, *limits]), [-1, width // 2])

    def _with_column(self, writer: graph_writer.Writer, layer: recognise_attention.Attention) -> tuple[ir.Value, ...]:
        """Give queries, keys and values with the mask as one more column, each (B, T, A*(D+w))."""
        if not self._columns:
            self._columns = self._mask_columns(layer.heads)
        wide = []
        for part, column in zip(self._projections(writer, layer), self._columns, strict=True):
            heads = writer.reshape(part, [0, 0, layer.heads, layer.width])
            joined = writer.op("Concat", [heads, column], axis=3)
            wide.append(writer.reshape(joined, [0, 0, layer.heads * (layer.width + self._policy.column_width)]))
        return tuple(wide)

    def _mask_columns(self, heads: int) -> tuple[ir.Value, ...]:
        """Give what is appended to queries, keys and values: (B, T, A, w) float32, of which one column counts."""
        writer = self._shared
        bias = writer.op("Where", [self._seen, writer.constant(0.0), writer.constant(UNSEEN)])
        keys = writer.unsqueeze(bias, 2, 3)
        nothing = writer.op("Mul", [keys, writer.constant(0.0)])
        one = writer.op("Add", [nothing, writer.constant(1.0)])
        return tuple(self._widened(column, heads) for column in (one, keys, nothing))

    def _widened(self, column: ir.Value, heads: int) -> ir.Value:
        """Give every head its column, (B, T, A, w), from (B, T, 1, 1)."""
        writer, extra = self._shared, self._policy.column_width - 1
        each = writer.op("Expand", [column, writer.constant([1, 1, heads, 1])])
        return writer.op("Pad", [each, writer.constant([0] * 7 + [extra])]) if extra else each

    def _global_bias(self) -> ir.Value:
        """Give the padding as a bias for every query: (B, 1, T, T) float32."""
        if self._bias is None:
            writer = self._shared
            bias = writer.op("Where", [self._seen, writer.constant(0.0), writer.constant(UNSEEN)])
            one = writer.constant([1])
            shape = writer.op("Concat", [self._rows, one, self._tokens, one], axis=0)
            self._bias = writer.op("Expand", [writer.unsqueeze(bias, 1, 2), shape])
        return self._bias

    def _blocks_of(self, half_window: int, heads: int) -> _Blocks:
        if (half_window, heads) not in self._blocks:
            is_dense = self._policy.tokens is not None and self._policy.tokens <= self._policy.dense_tokens
            blocks = self._one_block(half_window) if is_dense else self._plan_blocks(half_window, heads)
            self._blocks[half_window, heads] = blocks
        return self._blocks[half_window, heads]

    def _one_block(self, half_window: int) -> _Blocks:
        writer, tokens = self._shared, self._policy.tokens
        if self._seen is not None and tokens is not None and tokens <= half_window + 1:
            return _Blocks(None, None, None, None, None, self._global_bias())  # every token lies in every window
        positions = writer.range(self._tokens)
        near = self._near(writer.unsqueeze(positions, 0), writer.unsqueeze(positions, 0), half_window)
        if self._seen is not None:
            near = writer.op("And", [near, writer.unsqueeze(self._seen, 1)])
        bias = writer.op("Where", [near, writer.constant(0.0), writer.constant(UNSEEN)])
        return _Blocks(None, None, None, None, None, writer.unsqueeze(bias, 1))

    def _near(self, queries: ir.Value, keys: ir.Value, half_window: int) -> ir.Value:
        """Say which keys lie in a query's window: (n, m, kw) bool for positions (n, m) and (n, kw)."""
        writer = self._shared
        distance = writer.op("Sub", [writer.unsqueeze(queries, 2), writer.unsqueeze(keys, 1)])
        return writer.op("LessOrEqual", [writer.op("Abs", [distance]), writer.constant([half_window])])

    def _plan_blocks(self, half_window: int, heads: int) -> _Blocks:
        writer, tokens = self._shared, self._tokens
        op, constant = writer.op, writer.constant
        one, window, block = constant([1]), constant([half_window]), self._policy.block_tokens
        many = op("Div", [op("Add", [tokens, constant([block - 1])]), constant([block])])
        is_dense = op("LessOrEqual", [tokens, constant([self._policy.dense_tokens])])
        count = op("Where", [is_dense, one, many])
        size = op("Div", [op("Sub", [op("Add", [tokens, count]), one]), count])
        width = op("Min", [tokens, op("Add", [size, constant([2 * half_window])])])
        starts = op("Mul", [writer.range(count), size])
        last = op("Sub", [tokens, one])
        queries = op("Min", [op("Add", [writer.unsqueeze(starts, 1), writer.range(size)]), last])
        first = op("Max", [op("Sub", [starts, window]), constant([0])])
        first = op("Min", [first, op("Sub", [tokens, width])])
        keys = op("Add", [writer.unsqueeze(first, 1), writer.range(width)])
        near = writer.unsqueeze(self._near(queries, keys, half_window), 0)
        if self._seen is not None:
            near = op("And", [near, writer.unsqueeze(op("Gather", [self._seen, keys], axis=1), 2)])
        bias = op("Where", [near, constant(0.0), constant(UNSEEN)])
        if self._seen is None:  # one row's blocks serve every row
            bias = op("Expand", [bias, op("Concat", [self._rows, one, one, one], axis=0)])
        rows = self._rows_of(keys, heads) if self._policy.gathers_heads else None
        return _Blocks(queries, keys, rows, size, width, writer.reshape_to(bias, -1, 1, size, width))

    def _rows_of(self, keys: ir.Value, heads: int) -> ir.Value:
        """Give where each head of each key lies where a token is A rows: (n, A, kw) int64 for positions (n, kw)."""
        writer = self._shared
        first = writer.op("Mul", [writer.unsqueeze(keys, 1), writer.constant([heads])])
        return writer.op("Add", [first, writer.constant([[number] for number in range(heads)])])


def _rotate(
    writer: graph_writer.Writer,
    layer: recognise_attention.Attention,
    part: ir.Value,
    tables: tuple[ir.Value, ir.Value],
) -> ir.Value:
    """Rotate (B, positions, A*D) by tables of (positions, D/2)."""
    return writer.op("RotaryEmbedding", [part, writer.constant([0]), *tables], MICROSOFT, num_heads=layer.heads)


def _attend(
    writer: graph_writer.Writer,
    layer: recognise_attention.Attention,
    parts: Sequence[ir.Value],
    bias: ir.Value | None = None,
) -> ir.Value:
    """Write MultiHeadAttention over queries (rows, m, A*D), keys and values (rows, kw, A*D) or (rows, A, kw, D)."""
    inputs = [*parts, None, None, bias] if bias is not None else list(parts)
    return writer.op("MultiHeadAttention", inputs, MICROSOFT, num_heads=layer.heads, scale=layer.scale)
