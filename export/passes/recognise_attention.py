"""Find the attention of a symbolic trace, and read off how its queries, keys and values were made.

A trace keeps one symbolic node for each layer's attention (export/attention.py). ModernBERT projects queries, keys
and values by one product and rotates the first two; in that form the passes that expand attention need a third of
the operators. Whatever does not match to the letter is left as it is: queries, keys and values as they stand.
"""

from dataclasses import dataclass

import onnx_ir as ir

from vela.export import attention
from vela.export.passes import graph_writer

PARTS = 3  # queries, keys, values
TOKENS_FIRST = (0, 2, 1, 3)
LAST_AXIS = 3


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotation tables of a layer type, (1, T, D) float32, both halves equal.

    Attributes:
        cos: Of the angles, times whatever factor the config has.
        sin: Likewise.
        angles: Radians.
    """

    cos: ir.Value
    sin: ir.Value
    angles: ir.Value


@dataclass(frozen=True, slots=True)
class Packed:
    """Projections by one product: (B, T, 3*A*D), queries, keys and values after one another, not rotated yet."""

    projected: ir.Value
    rotary: Rotary


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's attention.

    Attributes:
        node: The symbolic node: (B, T, A, D) out.
        heads: A.
        width: D.
        scale: Factor on the scores.
        half_window: Of a local layer; None on global ones.
        seen: (B, T) bool, true at tokens.
        packed: Where the layer projects and rotates as ModernBERT does.
        parts: Else queries, keys and values, each (B, T, A*D) and ready to be compared.
    """

    node: ir.Node
    heads: int
    width: int
    scale: float
    half_window: int | None
    seen: ir.Value
    packed: Packed | None
    parts: tuple[ir.Value, ...]


def find_attention(graph: ir.Graph) -> list[Attention]:
    """List the symbolic attention nodes in graph order; writes nothing but a layout where one is missing."""
    return [_read(graph, node) for node in list(graph) if node.domain == attention.SYMBOLIC_DOMAIN]


def _read(graph: ir.Graph, node: ir.Node) -> Attention:
    heads, width = node.attributes["heads"].as_int(), node.attributes["width"].as_int()
    window = node.attributes["half_window"].as_int() if node.op_type == attention.LOCAL else None
    query, key, value, seen = (tensor for tensor in node.inputs if tensor is not None)
    packed = _packed(query, key, value)
    parts = () if packed else tuple(_tokens_first(graph, node, tensor, heads * width) for tensor in (query, key, value))
    return Attention(node, heads, width, node.attributes["scale"].as_float(), window, seen, packed, parts)


def _packed(query: ir.Value, key: ir.Value, value: ir.Value) -> Packed | None:
    rotated = [_rotated(query), _rotated(key)]
    if rotated[0] is None or rotated[1] is None or rotated[0][1:] != rotated[1][1:]:
        return None
    views = [_part_of(tensor) for tensor in (rotated[0][0], rotated[1][0], value)]
    if any(view is None for view in views) or [view[1] for view in views if view] != list(range(PARTS)):
        return None
    whole = {view[0] for view in views if view}
    view = _made_by(whole.pop(), "Reshape") if len(whole) == 1 else None
    rotary = _rotary(*rotated[0][1:])
    if view is None or view.inputs[0] is None or rotary is None:
        return None
    return Packed(view.inputs[0], rotary)


def _rotated(value: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """Match x*cos + (-b, a)*sin for x = (a, b), and give x (B, A, T, D), cos and sin (1, 1, T, D)."""
    added = _made_by(value, "Add")
    plain, turned = (_made_by(term, "Mul") for term in _inputs(added, 2))
    joined = _made_by(_inputs(turned, 2)[0], "Concat")
    negative, lower = (_inputs(joined, 2)[0], _made_by(_inputs(joined, 2)[1], "Slice"))
    upper = _made_by(_inputs(_made_by(negative, "Neg"), 1)[0], "Slice")
    if plain is None or turned is None or lower is None or upper is None:
        return None
    source = plain.inputs[0]
    is_whole = source is not None and source.shape is not None and source is lower.inputs[0] is upper.inputs[0]
    if not is_whole or joined is None or joined.attributes["axis"].as_int() not in (-1, LAST_AXIS):
        return None
    width = source.shape[LAST_AXIS]
    if not isinstance(width, int) or (_cut(lower), _cut(upper, width)) != ((0, width // 2), (width // 2, width)):
        return None
    return source, plain.inputs[1], turned.inputs[1]


def _cut(node: ir.Node, width: int | None = None) -> tuple[int, int] | None:
    """Give where a Slice along the last axis in steps of one starts and ends."""
    numbers = [_number(value) for value in node.inputs[1:]]
    if len(numbers) < 3:
        return None
    start, end, axis, *step = [*numbers, 1]
    if start is None or end is None or axis not in (-1, LAST_AXIS) or step[0] != 1:
        return None
    return start, end if width is None else min(end, width)


def _part_of(value: ir.Value) -> tuple[ir.Value, int] | None:
    """Match part i of a (B, T, 3, A, D) view, laid out (B, A, T, D), and give the view and i."""
    turned = _made_by(value, "Transpose")
    squeezed = _made_by(_inputs(turned, 1)[0], "Squeeze")
    cut = _made_by(_inputs(squeezed, 1)[0], "Slice")
    if turned is None or squeezed is None or cut is None or cut.inputs[0] is None:
        return None
    if len(cut.inputs) < 4 or len(squeezed.inputs) < 2:
        return None
    start, end, axis = (_number(number) for number in cut.inputs[1:4])
    is_part = axis in (-PARTS, 2) and start is not None and end == start + 1 and _number(squeezed.inputs[1]) == axis
    if not is_part or tuple(turned.attributes["perm"].as_ints()) != TOKENS_FIRST:
        return None
    return cut.inputs[0], start  # type: ignore[return-value]


def _rotary(cos: ir.Value, sin: ir.Value) -> Rotary | None:
    """Match the cosine and sine of one row of angles whose halves are equal, each (1, 1, T, D)."""
    found = [_wave(value, kind) for value, kind in ((cos, "Cos"), (sin, "Sin"))]
    if found[0] is None or found[1] is None or found[0][1] is not found[1][1]:
        return None
    return Rotary(found[0][0], found[1][0], found[0][1])


def _wave(value: ir.Value, kind: str) -> tuple[ir.Value, ir.Value] | None:
    """Match a (1, T, D) table under a (1, 1, T, D) one, and give the table and its angles."""
    table = _inputs(_made_by(value, "Unsqueeze"), 1)[0]
    wave = table
    while (product := _made_by(wave, "Mul")) is not None:  # attention scaling, one number for the whole table
        factors = [factor for factor in product.inputs if factor is not None and _is_single(factor)]
        others = [factor for factor in product.inputs if factor not in factors]
        if len(others) != 1:
            return None
        wave = others[0]
    angles = _inputs(_made_by(wave, kind), 1)[0]
    joined = _made_by(angles, "Concat")
    if table is None or angles is None or joined is None or len(joined.inputs) != 2:
        return None
    return (table, angles) if joined.inputs[0] is joined.inputs[1] else None


def _tokens_first(graph: ir.Graph, before: ir.Node, value: ir.Value, hidden: int) -> ir.Value:
    """Give (B, A, T, D) queries, keys or values as (B, T, A*D); a transposition that made them is taken back."""
    writer = graph_writer.Writer(graph, before)
    turned = _made_by(value, "Transpose")
    if turned is not None and tuple(turned.attributes["perm"].as_ints()) == TOKENS_FIRST:
        source = turned.inputs[0]
    else:
        source = writer.op("Transpose", [value], perm=list(TOKENS_FIRST))
    return writer.reshape(source, [0, 0, hidden])


def _made_by(value: ir.Value | None, kind: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == kind and node.domain == "" else None


def _inputs(node: ir.Node | None, count: int) -> tuple[ir.Value | None, ...]:
    return tuple(node.inputs[:count]) if node is not None and len(node.inputs) >= count else (None,) * count


def _is_single(value: ir.Value) -> bool:
    tensor = ir.convenience.get_const_tensor(value)
    return tensor is not None and tensor.size == 1


def _number(value: ir.Value | None) -> int | None:
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return int(tensor.numpy().item()) if tensor is not None and tensor.size == 1 else None
