"""Rotary positions of a graph: the frequencies and scalings by which it turns, followed from each Cos and Sin.

A scaling is one number among the graph's scalars, and two layer types may have tables that are each right for the
other; so it is not enough that every table of the graph is some table of the config. Here each cosine and sine is
followed back to its frequencies and on to the factor on it, and together they must be exactly what config.json says,
recomputed by our own code. No name is trusted.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vela.graphs import causes, errors
from vela.verify import architecture, graph_file
from vela.verify.architecture import rope
from vela.verify.static import angles
from vela.verify.static.graph_tensor import ROUNDINGS

# Operators through which a factor on a cosine can be seen: they move numbers and change none.
MOVING = frozenset("Cast Concat Expand Gather Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split())
FLOAT_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)
LARGEST_STORED_ELSEWHERE = 4096  # numbers of external data that may be frequencies; weights are not read for that


@dataclass(frozen=True, slots=True)
class Turn:
    """One cosine or sine of a graph.

    Attributes:
        function: `Cos` or `Sin`.
        frequencies: (D / 2,) float32, radians per position.
        scaling: Factor on it.
        dtype: Element type that the frequencies were stored in.
        start: Position of the first token.
    """

    function: str
    frequencies: NDArray[np.float32]
    scaling: float
    dtype: str = "float32"
    start: float = 0.0

    def is_of(self, used: rope.Rope, width: int) -> bool:
        """Say whether it is this rope's."""
        _, relative, floor = ROUNDINGS[self.dtype]
        is_its_table = rope.has_frequencies(self.frequencies, used, width, relative=relative, floor=floor)
        return self.start == 0.0 and is_its_table and rope.has_scaling(self.scaling, used)

    def __str__(self) -> str:
        said = f"{self.function} of {rope.describe_frequencies(self.frequencies)}, scaled by {self.scaling:.6g}"
        return said if self.start == 0.0 else f"{said}, of positions from {self.start:g} on"


def check_rotary(
    graph: graph_file.GraphFile, reading: architecture.Architecture, exit_layer: int, ahead: Sequence[Turn] = ()
) -> str:
    """Check that a graph turns by the rotary positions of the config, and by no others.

    Args:
        graph: The parsed graph.
        reading: The checkpoint's architecture.
        exit_layer: Layers that the graph runs.
        ahead: Cosines and sines that the graph holds as tables.

    Raises:
        GraphError: rotary positions are missing or foreign; the message says what was found for what.
    """
    ropes = reading.rotations(exit_layer)
    turns = [*find_turns(graph, reading.head_width), *ahead]
    lacking_kinds = _missing(turns, ropes, reading.head_width)
    missing = [f"{kind} {ropes[kind]}" for kind in lacking_kinds]
    foreign = [turn for turn in turns if not any(turn.is_of(used, reading.head_width) for used in ropes.values())]
    if missing or foreign:
        described = "; ".join(sorted({str(turn) for turn in foreign}))
        lacking = f", of which it lacks {'; '.join(missing)}" if missing else ""
        raise errors.GraphError(
            f"other rotary positions: {described}" if foreign else "too few rotary positions",
            expected=f"exactly those of config.json{lacking}",
            where=graph.path.name,
            fix="The graph was exported with another RoPE or with its scaling dropped: export again.",
            cause=_cause(lacking_kinds, foreign, ropes, reading.head_width),
        )
    return f"{len(turns)} cosines and sines turn by {len(ropes)} tables of config.json"


def find_turns(graph: graph_file.GraphFile, width: int) -> list[Turn]:
    """Find the cosines and sines of a graph, with their frequencies and factors.

    Args:
        graph: The parsed graph.
        width: D, of an attention head.

    Raises:
        GraphError: one has no table of frequencies, several, or factors that differ from use to use.
    """
    waves = [node for node in graph.model.graph.all_nodes() if node.op_type in ("Cos", "Sin") and not node.domain]
    found = []
    for node in waves:
        tables, factors = _tables_before(node), _factors_after(node.outputs[0])
        if len(tables) != 1 or len(factors) != 1:
            raise graph_file.invalid_graph(
                graph.path, f"{node.outputs[0].name} of {len(tables)} tables, scaled by {sorted(factors)}"
            )
        table, source = tables[0], node.inputs[0] if node.inputs else None
        motion = motion_of(None if source is None else angles.compute_angles(graph.model, source), width)
        if motion is None:
            of_table = frequencies_of_angles(table, width)
            motion = table.astype(np.float32).ravel() if of_table is None else of_table, 0.0
        found.append(Turn(node.op_type, motion[0], factors.pop(), table.dtype.name, motion[1]))
    return found


def motion_of(rows: NDArray[np.float64] | None, width: int) -> tuple[NDArray[np.float32], float] | None:
    """Give the frequencies of computed angles, and the position of the first token.

    Args:
        rows: (T, D / 2), or (T, D) where both halves are alike.
        width: D.

    Returns:
        (D / 2,) float32 and a position; None where the rows do not grow by the same from each token to the next, so
        that they are no such angles, or lie otherwise.
    """
    half = width // 2
    if rows is None or len(rows) < 2 or rows.shape[1] not in (half, width):
        return None
    if rows.shape[1] == width and not np.array_equal(rows[:, :half], rows[:, half:]):
        return None
    frequencies = rows[1, :half] - rows[0, :half]
    expected = rows[0, :half] + np.arange(len(rows))[:, None] * frequencies
    if not np.allclose(rows[:, :half], expected, rtol=rope.FREQUENCY_TOLERANCE, atol=0.0):
        return None
    fastest = int(np.argmax(np.abs(frequencies)))
    first = float(rows[0, fastest])
    start = 0.0 if first == 0.0 else first / float(frequencies[fastest]) if frequencies[fastest] else math.nan
    return frequencies.astype(np.float32), start


def frequencies_of_angles(table: NDArray[np.floating], width: int) -> NDArray[np.float32] | None:
    """Give the frequencies of a table of angles, which a graph of one length may hold; None where it is no such table.

    Args:
        table: (T, D / 2), or (T, D) where both halves are alike; 1s before.
        width: D.
    """
    half, last = width // 2, table.shape[-1] if table.ndim else 0
    if last not in (half, 2 * half) or table.size < 2 * last:
        return None
    rows = table.astype(np.float32).reshape(-1, last)
    frequencies = rows[1, :half]
    angles = np.arange(len(rows), dtype=np.float32)[:, None] * frequencies
    halves = [rows[:, :half], rows[:, half:]] if last == 2 * half else [rows]
    is_angles = all(np.allclose(part, angles, rtol=rope.FREQUENCY_TOLERANCE, atol=0.0) for part in halves)
    return frequencies if is_angles else None


def _missing(turns: list[Turn], ropes: Mapping[str, rope.Rope], width: int) -> list[str]:
    """Give the kinds of layers by whose rope no cosine, or no sine, turns."""
    return [
        kind
        for kind, used in ropes.items()
        if {turn.function for turn in turns if turn.is_of(used, width)} != {"Cos", "Sin"}
    ]


def _cause(
    missing: Sequence[str], foreign: Sequence[Turn], ropes: Mapping[str, rope.Rope], width: int
) -> causes.Cause | None:
    """Name the mistake; None where tables alone do not tell which layers have it."""
    if any(turn.start != 0.0 or (turn.frequencies < 0.0).any() for turn in foreign):
        return "other computation"  # no theta and no scaling moves the first position, or turns back
    for turn, used in itertools.product(foreign, ropes.values()):
        unscaled = rope.unscaled_frequencies(used.theta, width)
        if turn.frequencies.shape == unscaled.shape:
            ratios = turn.frequencies / unscaled
            if ratios[0] > 0 and np.allclose(ratios, ratios[0], rtol=rope.FREQUENCY_TOLERANCE):
                return "RoPE scaling"  # its theta, but for what multiplies positions or cosines
    kinds: dict[str, causes.Cause] = {"sliding_attention": "local theta", "full_attention": "global theta"}
    return kinds.get(missing[0]) if len(missing) == 1 else None


def _tables_before(node: ir.Node) -> list[NDArray[np.floating]]:
    """Give the float tensors that a node's input is computed from, without positions 0 to T-1 and single numbers."""
    tables, seen, waiting = [], set(), list(node.inputs)
    while waiting:
        value = waiting.pop()
        if value is None or id(value) in seen:
            continue
        seen.add(id(value))
        content = _float_constant(value)
        if content is not None and content.size > 1 and not np.array_equal(content.ravel(), np.arange(content.size)):
            tables.append(content)
        elif content is None and (producer := value.producer()) is not None:
            waiting += producer.inputs
    return tables


def _factors_after(value: ir.Value) -> set[float]:
    """Give the products of the single numbers by which a value is multiplied, one for each of its uses."""
    factors, waiting = set(), [(value, 1.0)]
    while waiting:
        current, factor = waiting.pop()
        for user in current.consumers():
            if user.op_type in MOVING and not user.domain:
                waiting += [(output, factor) for output in user.outputs]
            elif (number := _single_factor(user, current)) is not None:
                waiting.append((user.outputs[0], factor * number))
            else:
                factors.add(factor)
    return factors


def _single_factor(node: ir.Node, value: ir.Value) -> float | None:
    """Give the number by which a node multiplies a value; None where it does anything else."""
    if node.op_type != "Mul" or node.domain:
        return None
    for other in node.inputs:
        content = None if other is None or other is value else _float_constant(other)
        if content is not None and content.size == 1:
            return float(content.ravel()[0])
    return None


def _float_constant(value: ir.Value) -> NDArray[np.floating] | None:
    """Give a constant's numbers; None for what is computed, fed, no float, or stored elsewhere and large."""
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.dtype not in FLOAT_TYPES:
        return None
    if isinstance(tensor, ir.ExternalTensor) and math.prod(map(int, tensor.shape)) > LARGEST_STORED_ELSEWHERE:
        return None
    content: NDArray[np.floating] = tensor.numpy()
    return content
