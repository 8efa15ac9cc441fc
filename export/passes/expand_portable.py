"""Replace symbolic attention by plain operators at one fixed shape, for MIGraphX and any engine.

Exact, rotation: x*cos + (-b, a)*sin for x = (a, b) is x*cos + (b, a)*(-sin, sin), so the halves are exchanged by one
Gather and the sign lies in the table. Queries, keys and values of one product are rotated at once, with 1 and 0 for
the values' cos and sin, which leaves them as they are to the bit: four operators for the layer.

Exact, local layers: queries of block i (m of them) see only keys from i*m-w to i*m+m-1+w, w being the half-window; the
block is given the m+2w keys from min(max(i*m-w, 0), T-m-2w) on, which hold them all. Which of those a query sees is
decided by a bias, as in dense attention: the smallest finite number, so its weight is exactly 0, and not -inf, so that
a row whose whole window is padding stays finite.

Exact, global layers: a query's answer depends on no other query, so long sequences go through in chunks of queries
whose scores stay below SCORES_BYTES.
Source: measured; scripts/bench/README.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from vela.export import attention
from vela.export.passes import graph_writer, recognise_attention

# Added to the scores of unseen keys: far below every score, so their weight is exactly 0; far above the smallest
# number, so that no engine overflows to infinity and a row that sees nothing stays finite.
UNSEEN = -1e30
FLOAT_BYTES = 4
DENSE_TOKENS = 256  # up to this length local layers are dense: one block would be as wide as the sequence
BLOCK_TOKENS = 64
SCORES_BYTES = 1 << 29  # of one chunk: 512 MiB; all of one layer at 2,048 tokens fit


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How local layers cut a sequence: n blocks of `size` queries see `width` keys, from `starts` on."""

    size: int
    width: int
    starts: tuple[int, ...]


def expand_portable(model: ir.Model, rows: int, tokens: int) -> None:
    """Replace every symbolic attention node in place.

    Args:
        model: A fresh symbolic trace; its inputs are fixed to the shape already or will be.
        rows: B.
        tokens: T.
    """
    graph = model.graph
    layers = recognise_attention.find_attention(graph)
    expansion = _Expansion(graph, layers, rows, tokens)
    outputs = [expansion.expand(layer) for layer in layers]
    for layer, output in zip(layers, outputs, strict=True):
        graph_writer.replace(graph, layer.node, output)
    model.opset_imports.pop(attention.SYMBOLIC_DOMAIN, None)


def plan_blocks(tokens: int, half_window: int) -> _Blocks | None:
    """Say how to cut; None where dense attention is as good or the length is no multiple of a block."""
    width = BLOCK_TOKENS + 2 * half_window
    if tokens <= max(DENSE_TOKENS, width) or tokens % BLOCK_TOKENS:
        return None
    starts = (min(max(first - half_window, 0), tokens - width) for first in range(0, tokens, BLOCK_TOKENS))
    return _Blocks(BLOCK_TOKENS, width, tuple(starts))


class _Expansion:
    """What the layers of one graph share: tables and biases."""

    def __init__(
        self, graph: ir.Graph, layers: Sequence[recognise_attention.Attention], rows: int, tokens: int
    ) -> None:
        self._graph = graph
        self._rows = rows
        self._tokens = tokens
        self._shared = graph_writer.Writer(graph, layers[0].node)
        self._seen = layers[0].seen
        self._tables: dict[recognise_attention.Rotary, tuple[ir.Value, ir.Value]] = {}
        self._biases: dict[int | None, ir.Value] = {}
        self._keys: dict[int, ir.Value] = {}

    def expand(self, layer: recognise_attention.Attention) -> ir.Value:
        """Write one layer, and give its output (B, T, A, D)."""
        writer = graph_writer.Writer(self._graph, layer.node)
        query, key, value = self._projections(writer, layer)
        if layer.half_window is None:
            mixed = self._global(writer, layer, query, key, value)
        else:
            mixed = self._local(writer, layer, query, key, value)
        return writer.op("Transpose", [mixed], perm=[0, 2, 1, 3])

    def _projections(
        self, writer: graph_writer.Writer, layer: recognise_attention.Attention
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Give queries, keys and values, each (B, A, T, D)."""
        shape = [self._rows, self._tokens, layer.heads, layer.width]
        if layer.packed is None:
            query, key, value = (
                writer.op("Transpose", [writer.reshape(part, shape)], perm=[0, 2, 1, 3]) for part in layer.parts
            )
            return query, key, value
        cos, sin = self._tables_of(layer.packed.rotary, layer.width)
        whole = writer.reshape(layer.packed.projected, [*shape[:2], 3, *shape[2:]])
        exchanged = writer.op("Gather", [whole, writer.constant(_exchange(layer.width))], axis=4)
        rotated = writer.op("Add", [writer.op("Mul", [whole, cos]), writer.op("Mul", [exchanged, sin])])
        laid = writer.op("Transpose", [rotated], perm=[2, 0, 3, 1, 4])
        parts = writer.ops("Split", [laid], 3, axis=0, num_outputs=3)
        query, key, value = (writer.op("Squeeze", [part, writer.constant([0])]) for part in parts)
        return query, key, value

    def _tables_of(self, rotary: recognise_attention.Rotary, width: int) -> tuple[ir.Value, ir.Value]:
        """Give cos and signed sin for queries, keys and values: (1, T, 3, 1, D) each."""
        if rotary not in self._tables:
            writer = self._shared
            lower, upper = (writer.unsqueeze(self._cut(rotary.sin, *limits), 2) for limits in _halves(width))
            sin = writer.op("Concat", [writer.op("Neg", [lower]), upper], axis=3)
            cos = writer.unsqueeze(rotary.cos, 2)
            nothing = writer.op("Mul", [writer.unsqueeze(rotary.angles, 2), writer.constant(0.0)])
            one = writer.op("Add", [nothing, writer.constant(1.0)])
            placed = ((cos, one), (sin, nothing))
            three = (writer.op("Concat", [table, table, idle], axis=2) for table, idle in placed)
            made = tuple(writer.unsqueeze(table, 3) for table in three)
            self._tables[rotary] = (made[0], made[1])
        return self._tables[rotary]

    def _cut(self, value: ir.Value, first: int, end: int) -> ir.Value:
        """Cut along the last of three axes."""
        return self._shared.op("Slice", [value, *(self._shared.constant([number]) for number in (first, end, 2))])

    def _global(
        self,
        writer: graph_writer.Writer,
        layer: recognise_attention.Attention,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
    ) -> ir.Value:
        turned = writer.op("Transpose", [key], perm=[0, 1, 3, 2])
        bias = self._bias_of(None)
        chunk = self._chunk_tokens(layer.heads)
        if chunk >= self._tokens:
            return _attend(writer, layer, (query, turned, value), bias)
        outputs = []
        for first in range(0, self._tokens, chunk):
            limits = (writer.constant([number]) for number in (first, min(first + chunk, self._tokens), 2))
            outputs.append(_attend(writer, layer, (writer.op("Slice", [query, *limits]), turned, value), bias))
        return writer.op("Concat", outputs, axis=2)

    def _chunk_tokens(self, heads: int) -> int:
        """Give how many queries' scores fit, in whole blocks."""
        fitting = SCORES_BYTES // (self._rows * heads * self._tokens * FLOAT_BYTES)
        return max(BLOCK_TOKENS, fitting - fitting % BLOCK_TOKENS)

    def _local(
        self,
        writer: graph_writer.Writer,
        layer: recognise_attention.Attention,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
    ) -> ir.Value:
        half_window = layer.half_window or 0
        blocks = plan_blocks(self._tokens, half_window)
        bias = self._bias_of(half_window)
        if blocks is None:
            turned = writer.op("Transpose", [key], perm=[0, 1, 3, 2])
            return _attend(writer, layer, (query, turned, value), bias)
        query = writer.reshape(query, [0, 0, len(blocks.starts), blocks.size, layer.width])
        positions = self._positions(half_window, blocks)
        key, value = (writer.op("Gather", [part, positions], axis=2) for part in (key, value))
        turned = writer.op("Transpose", [key], perm=[0, 1, 2, 4, 3])
        mixed = _attend(writer, layer, (query, turned, value), bias)
        return writer.reshape(mixed, [0, 0, self._tokens, layer.width])

    def _positions(self, half_window: int, blocks: _Blocks) -> ir.Value:
        """Give the keys' positions, (n, kw) int64; their sum is left to the engine, so that no table is stored."""
        if half_window not in self._keys:
            writer = self._shared
            starts = writer.constant([[start] for start in blocks.starts])
            self._keys[half_window] = writer.op("Add", [starts, writer.constant(list(range(blocks.width)))])
        return self._keys[half_window]

    def _bias_of(self, half_window: int | None) -> ir.Value:
        """Give what is added to scores.

        Returns:
            (B, 1, 1, T) for global layers, (B, 1, T, T) for local ones, (B, 1, n, m, kw) for blocks.
        """
        if half_window not in self._biases:
            writer = self._shared
            smallest = writer.constant(UNSEEN)
            padding = writer.op("Where", [self._seen, writer.constant(0.0), smallest])
            blocks = None if half_window is None else plan_blocks(self._tokens, half_window)
            if half_window is None:
                bias = writer.unsqueeze(padding, 1, 2)
            elif blocks is None:
                places = writer.constant(list(range(self._tokens)))
                near = self._near(writer.unsqueeze(places, 1), writer.unsqueeze(places, 0), half_window)
                bias = writer.op("Where", [near, writer.unsqueeze(padding, 1, 2), smallest])
            else:
                keys = self._positions(half_window, blocks)
                size, count = blocks.size, len(blocks.starts)
                queries = writer.reshape(writer.constant(list(range(self._tokens))), [count, size, 1])
                near = self._near(queries, writer.unsqueeze(keys, 1), half_window)
                there = writer.unsqueeze(writer.op("Gather", [padding, keys], axis=1), 1, 3)
                bias = writer.op("Where", [near, there, smallest])
            self._biases[half_window] = bias
        return self._biases[half_window]

    def _near(self, queries: ir.Value, keys: ir.Value, half_window: int) -> ir.Value:
        distance = self._shared.op("Abs", [self._shared.op("Sub", [queries, keys])])
        return self._shared.op("LessOrEqual", [distance, self._shared.constant(half_window)])


def _attend(
    writer: graph_writer.Writer,
    layer: recognise_attention.Attention,
    parts: tuple[ir.Value, ir.Value, ir.Value],
    bias: ir.Value,
) -> ir.Value:
    """Attend with queries (…, m, D), keys (…, D, k) and values (…, k, D)."""
    query, turned, value = parts
    scores = writer.op("Mul", [writer.op("MatMul", [query, turned]), writer.constant(layer.scale)])
    weights = writer.op("Softmax", [writer.op("Add", [scores, bias])], axis=-1)
    return writer.op("MatMul", [weights, value])


def _halves(width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (0, width // 2), (width // 2, width)


def _exchange(width: int) -> list[int]:
    """Give the order that puts the second half of a head first."""
    return [*range(width // 2, width), *range(width // 2)]
