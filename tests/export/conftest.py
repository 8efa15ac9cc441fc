"""Symbolic attention planted in a graph of its own, as a trace leaves it, and the numbers that it must give.

A planted graph costs milliseconds, so expansions are compared with dense attention in FP64 at every length around
their blocks. Fixtures hand out the classes: test files cannot import one another.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray

from vela.export import attention
from vela.export.passes import graph_writer
from vela.graphs import contract

Feeds = dict[str, NDArray]
Expansion = Callable[[ir.Model], None]
# What may be planted otherwise than ModernBERT has it; recognition must then leave the layer alone.
Change = Literal[
    "", "slice_bounds", "swapped_parts", "other_cos", "unequal_halves", "other_perm", "swapped_halves", "uneven_factor"
]
HEADS, WIDTH = 2, 8
THETA = 100.0  # small, so that a short sequence turns every pair of dimensions far
END = np.iinfo(np.int64).max  # how a trace writes an open end
FLOAT, INT64, BOOL = (ir.TensorType(kind) for kind in (ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL))


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's attention.

    Attributes:
        half_window: Of a local layer; None for a global one.
        is_packed: Whether it projects by one product and rotates, as ModernBERT, or is given q, k and v, as BERT.
        scale: Factor on the scores; no power of two.
        theta: Base of the rotation.
        change: What is planted otherwise.
    """

    half_window: int | None
    is_packed: bool = False
    scale: float = 0.35
    theta: float = THETA
    change: Change = ""


@dataclass(frozen=True, slots=True)
class Planted:
    """Layers side by side in one graph, and a batch for them.

    Attributes:
        layers: Layer i reads `projected<i>`, or `q<i>`, `k<i>` and `v<i>`, and gives `y<i>`.
        seen: (B, T) bool, true at tokens.
        seed: Of the inputs.
    """

    layers: tuple[Layer, ...]
    seen: NDArray[np.bool_]
    seed: int = 0

    @classmethod
    def from_lengths(cls, layers: Layer | Sequence[Layer], lengths: Sequence[int], pad_to: int) -> "Planted":
        """Pad rows of tokens at their right."""
        chosen = (layers,) if isinstance(layers, Layer) else tuple(layers)
        return cls(chosen, np.arange(pad_to)[None] < np.array(lengths)[:, None])

    def feeds(self) -> Feeds:
        """Give the inputs of every layer."""
        rng, (rows, tokens) = np.random.default_rng(self.seed), self.seen.shape
        feeds: Feeds = {"input_ids": np.ones((rows, tokens), np.int64), "seen": self.seen}
        for index, layer in enumerate(self.layers):
            if layer.is_packed:
                shape = (rows, tokens, 3 * HEADS * WIDTH)
                feeds[f"projected{index}"] = rng.normal(0, 1.5, shape).astype(np.float32)
                feeds[f"inv_freq{index}"] = inverse_frequencies(layer.theta)
            else:
                shape = (rows, HEADS, tokens, WIDTH)
                feeds |= {f"{part}{index}": rng.normal(0, 1.5, shape).astype(np.float32) for part in "qkv"}
        return feeds

    def model(self) -> ir.Model:
        """Plant the graph, dynamic in both dimensions."""
        return _Planting(self).model

    def expected(self) -> list[NDArray[np.float64]]:
        """Give each layer's answer (B, T, A, D): dense, FP64, and rotated by the formula; nothing is planted."""
        return _expected(self.layers, self.seed, self.seen.shape, self.seen.tobytes())

    def expected_as_planted(self) -> NDArray[np.float64]:
        """Give the first layer's answer for the q, k and v that its graph makes, whatever was planted otherwise."""
        model = self.model()
        node = next(node for node in model.graph if node.domain == attention.SYMBOLIC_DOMAIN)
        made = list(node.inputs[:3])
        model.graph.outputs.clear()
        for name, value in zip("qkv", made, strict=True):
            relay = ir.node("Identity", [value])
            relay.outputs[0].name, relay.outputs[0].type = name, FLOAT
            model.graph.append(relay)
            model.graph.outputs.append(relay.outputs[0])
        for other in list(model.graph):
            if other.domain == attention.SYMBOLIC_DOMAIN:
                model.graph.remove([*(user for user, _ in other.outputs[0].uses()), other], safe=True)
        model.opset_imports.pop(attention.SYMBOLIC_DOMAIN)
        parts = [part.astype(np.float64) for part in run(model, self.feeds())]
        return dense(self.layers[0], self.seen, *parts)

    def answers(self, expand: Expansion) -> list[NDArray[np.float32]]:
        """Expand a fresh graph and run it."""
        model = self.model()
        expand(model)
        return run(model, self.feeds())

    def difference(self, expand: Expansion) -> float:
        """Give the largest difference at tokens, over all layers; every number must be finite, at pads too."""
        return max(self.differences(expand))

    def differences(self, expand: Expansion) -> list[float]:
        """Give the largest difference at tokens of each layer; every number must be finite, at pads too."""
        actual = self.answers(expand)
        assert all(np.isfinite(found).all() for found in actual)
        return [
            float(np.abs(found - expected)[self.seen].max())
            for found, expected in zip(actual, self.expected(), strict=True)
        ]

    def with_change(self, change: Change) -> "Planted":
        """Plant the first layer otherwise."""
        return replace(self, layers=(replace(self.layers[0], change=change), *self.layers[1:]))


@functools.lru_cache(maxsize=64)
def _expected(
    layers: tuple[Layer, ...], seed: int, shape: tuple[int, int], seen_bytes: bytes
) -> list[NDArray[np.float64]]:
    """Compute what many expansions are compared with, once."""
    seen = np.frombuffer(seen_bytes, bool).reshape(shape)
    feeds = Planted(layers, seen, seed).feeds()
    return [
        dense(layer, seen, *(rotated(layer, feeds, index) if layer.is_packed else separate(feeds, index)))
        for index, layer in enumerate(layers)
    ]


@dataclass(slots=True)
class _Planting:
    """Write the graph of some layers."""

    planted: Planted
    model: ir.Model = field(init=False)

    def __post_init__(self) -> None:
        inputs = [_input("input_ids", INT64, "batch", "sequence"), _input("seen", BOOL, "batch", "sequence")]
        graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": contract.OPSET_VERSION}, name="planted")
        for index, layer in enumerate(self.planted.layers):
            self._plant(graph, index, layer)
        graph.opset_imports[attention.SYMBOLIC_DOMAIN] = 1
        self.model = ir.Model(graph, ir_version=10)

    def _plant(self, graph: ir.Graph, index: int, layer: Layer) -> None:
        """Write one layer before its own output."""
        relay = ir.node("Identity", [None])
        relay.metadata_props["scope"] = f"layer{index}"
        relay.outputs[0].name, relay.outputs[0].type = f"y{index}", FLOAT
        graph.append(relay)
        graph.outputs.append(relay.outputs[0])
        writer = graph_writer.Writer(graph, relay)
        if layer.is_packed:
            parts = _packed(graph, writer, index, layer)
        else:
            parts = [_input(f"{name}{index}", FLOAT, "batch", HEADS, "sequence", WIDTH) for name in "qkv"]
            graph.inputs.extend(parts)
        attributes = {"scale": layer.scale, "heads": HEADS, "width": WIDTH}
        kind = attention.GLOBAL
        if layer.half_window is not None:
            kind, attributes = attention.LOCAL, attributes | {"half_window": layer.half_window}
        inputs = [*parts, graph.inputs[1]]
        relay.replace_input_with(0, writer.op(kind, inputs, attention.SYMBOLIC_DOMAIN, **attributes))


def _packed(graph: ir.Graph, writer: graph_writer.Writer, index: int, layer: Layer) -> list[ir.Value]:
    """Write Reshape, Slice, Squeeze, Transpose and rotation, operator for operator as a ModernBERT trace has them."""
    op, constant = writer.op, writer.constant
    projected = _input(f"projected{index}", FLOAT, "batch", "sequence", 3 * HEADS * WIDTH)
    frequencies = _input(f"inv_freq{index}", FLOAT, WIDTH // 2)
    graph.inputs.extend([projected, frequencies])
    rows = op("Shape", [graph.inputs[0]], start=0, end=1)
    tokens = op("Shape", [graph.inputs[0]], start=1, end=2)
    shape = op("Concat", [rows, tokens, constant([3]), constant([-1]), constant([WIDTH])], axis=0)
    view = op("Reshape", [projected, shape], allowzero=1)
    turned = []
    for part in (1, 0, 2) if layer.change == "swapped_parts" else range(3):
        cut = op("Slice", [view, constant([part]), constant([part + 1]), constant([-3])])
        turned.append(op("Transpose", [op("Squeeze", [cut, constant([-3])])], perm=[0, 2, 1, 3]))
    if layer.change == "other_perm":  # a view of (B, A, T, D) twice turned: the same numbers by another way
        again = op("Transpose", [turned[2]], perm=[0, 2, 3, 1])
        turned[2] = op("Transpose", [again], perm=[0, 3, 1, 2])
    for value in turned:
        value.shape, value.type = ir.Shape(["batch", HEADS, "sequence", WIDTH]), FLOAT
    cos, sin = _tables(writer, tokens, frequencies, layer)
    key_cos = op("Mul", [cos, constant(1.5)]) if layer.change == "other_cos" else cos
    return [_rotated(writer, turned[0], cos, sin, layer), _rotated(writer, turned[1], key_cos, sin, layer), turned[2]]


def _tables(
    writer: graph_writer.Writer, tokens: ir.Value, frequencies: ir.Value, layer: Layer
) -> tuple[ir.Value, ir.Value]:
    op, constant = writer.op, writer.constant
    places = writer.unsqueeze(writer.unsqueeze(writer.range(tokens), 0), 2)
    wave = op("Mul", [op("Cast", [places], to=ir.DataType.FLOAT), frequencies])
    other = op("Mul", [wave, constant(2.0)]) if layer.change == "unequal_halves" else wave
    angles = op("Concat", [wave, other], axis=-1)
    cos, sin = op("Cos", [angles]), op("Sin", [angles])
    if layer.change == "uneven_factor":
        cos = op("Mul", [cos, constant(np.linspace(0.5, 1.5, WIDTH))])
    return writer.unsqueeze(cos, 1), writer.unsqueeze(sin, 1)


def _rotated(writer: graph_writer.Writer, source: ir.Value, cos: ir.Value, sin: ir.Value, layer: Layer) -> ir.Value:
    op, constant = writer.op, writer.constant
    middle = WIDTH // 2
    bounds = [(0, middle), (middle, END)]
    if layer.change == "slice_bounds":  # the parts 0-3 and 4-8 of 8, as numbers from the end
        bounds = [(0, -middle), (-middle, END)]
    if layer.change == "swapped_halves":
        bounds.reverse()
    lower, upper = (
        op("Slice", [source, constant([start]), constant([end]), constant([3]), constant([1])]) for start, end in bounds
    )
    joined = op("Concat", [op("Neg", [upper]), lower], axis=-1)
    return op("Add", [op("Mul", [source, cos]), op("Mul", [joined, sin])])


def _input(name: str, kind: ir.TensorType, *shape: int | str) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=kind)


def inverse_frequencies(theta: float) -> NDArray[np.float32]:
    """Give how far each pair of dimensions turns for a position: (D/2,) radians."""
    return (theta ** -(np.arange(0, WIDTH, 2) / WIDTH)).astype(np.float32)


def separate(feeds: Feeds, index: int) -> list[NDArray[np.float64]]:
    """Give q, k and v as they were fed, each (B, A, T, D)."""
    return [feeds[f"{part}{index}"].astype(np.float64) for part in "qkv"]


def rotated(layer: Layer, feeds: Feeds, index: int) -> list[NDArray[np.float64]]:
    """Give q and k rotated and v as it is, each (B, A, T, D): pair (i, i + D/2) turns as a complex number."""
    projected = feeds[f"projected{index}"].astype(np.float64)
    rows, tokens, _ = projected.shape
    parts = projected.reshape(rows, tokens, 3, HEADS, WIDTH).transpose(2, 0, 3, 1, 4)
    angles = np.outer(np.arange(tokens, dtype=np.float32), inverse_frequencies(layer.theta))  # FP32, as the table's
    pairs = (parts[:2, ..., : WIDTH // 2] + 1j * parts[:2, ..., WIDTH // 2 :]) * np.exp(1j * angles.astype(np.float64))
    return [*np.concatenate([pairs.real, pairs.imag], axis=-1), parts[2]]


def dense(
    layer: Layer,
    seen: NDArray[np.bool_],
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    value: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Attend densely: every (query, key) pair is looked at, unseen ones weigh nothing."""
    places = np.arange(seen.shape[1])
    is_seen = seen[:, None, None, :]
    if layer.half_window is not None:
        is_seen = is_seen & (np.abs(places[:, None] - places[None, :]) <= layer.half_window)
    scores = np.where(is_seen, query @ key.swapaxes(2, 3) * layer.scale, -np.inf)
    with np.errstate(invalid="ignore"):  # pads whose whole window is pads: nobody reads them
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True) @ value).swapaxes(1, 2)


def run(model: ir.Model, feeds: Feeds, *, optimises: bool = True) -> list[NDArray[np.float32]]:
    """Run a graph on the CPU; inputs that it does not have are left out."""
    options = onnxruntime.SessionOptions()
    if not optimises:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    proto = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    return session.run(None, {name: value for name, value in feeds.items() if name in names})


@pytest.fixture(scope="session")
def layer() -> type[Layer]:
    """What a planted layer is made with."""
    return Layer


@pytest.fixture(scope="session")
def plant() -> type[Planted]:
    """What a planted graph is made with."""
    return Planted


@pytest.fixture(scope="session")
def run_model() -> Callable[..., list[NDArray[np.float32]]]:
    """Run a graph on the CPU."""
    return run
