"""The floor under an engine on ONNX Runtime: the model's matrix products alone, at ONNX Runtime's own speed.

Norms, softmax, GELU, rotary embedding and every move of data between products count nothing, so an engine on these
kernels can come near the floor and not below it. The products are measured, not computed from a peak rate:

- linear: the four products of every layer, each layer with weights of its own, so that they come from memory as the
  model's do;
- local: for every sliding layer the two products of blocked attention, 64 queries against the keys that they see;
- global: for every full layer the two products of attention, whole (all heads, T x T scores) or by one head and
  CHUNK_QUERIES queries at a time, so that scores stay in the cache; whichever is faster at this length.

A product's result is read by a Shape node alone, which touches no data, and is freed there, as in the model.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vela.serve.runtime import onnxruntime
from vela.verify.architecture import modernbert

BLOCK_QUERIES = 64
CHUNK_QUERIES = 256
# Beyond this many tokens linear and local products are measured on this many and scaled: they are linear in tokens.
MEASURED_TOKENS = 8192
WHOLE_SCORES_BYTES = 1 << 30  # all heads' scores of one layer; larger ones would only measure the memory
CHUNKS_ABOVE_TOKENS = 2 * CHUNK_QUERIES
OPSET_VERSION = 18
IR_VERSION = 10

Arrays = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the products' sizes depend on.

    Attributes:
        hidden_size: H.
        intermediate_size: Width of the gated feed-forward layer.
        attention_heads: A.
        half_window: A sliding layer's query i sees keys j with |i - j| <= half_window.
        local_layers: Sliding layers.
        global_layers: Full layers.
    """

    hidden_size: int
    intermediate_size: int
    attention_heads: int
    half_window: int
    local_layers: int
    global_layers: int

    @classmethod
    def from_architecture(cls, architecture: object) -> Self:
        """Take the sizes of a checkpoint of the ModernBERT family.

        Raises:
            ValueError: it is of another family, whose products are others.
        """
        if not isinstance(architecture, modernbert.ModernBert):
            raise ValueError(f"the floor is known for ModernBERT, not for {type(architecture).__name__}")
        local = architecture.layer_types.count("sliding_attention")
        return cls(
            hidden_size=architecture.hidden_size,
            intermediate_size=architecture.intermediate_size,
            attention_heads=architecture.attention_heads,
            half_window=architecture.half_window,
            local_layers=local,
            global_layers=architecture.layers - local,
        )

    @property
    def head_width(self) -> int:
        """D."""
        return self.hidden_size // self.attention_heads

    @property
    def linear(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of a layer's products: queries, keys and values; attention's output; gate and input; output."""
        hidden, inner = self.hidden_size, self.intermediate_size
        return (hidden, 3 * hidden), (hidden, hidden), (hidden, 2 * inner), (inner, hidden)

    def blocks(self, tokens: int) -> tuple[int, int, int]:
        """Cut a sequence for a sliding layer: the number of blocks, queries of a block, keys that it is given."""
        count = math.ceil(tokens / BLOCK_QUERIES)
        queries = math.ceil(tokens / count)
        return count, queries, min(tokens, queries + 2 * self.half_window)

    def flops(self, tokens: int) -> dict[str, float]:
        """Count the operations of all layers by kind; a multiplication and an addition are two."""
        count, queries, keys = self.blocks(tokens)
        layers = self.local_layers + self.global_layers
        return {
            "linear": 2.0 * tokens * layers * sum(rows * columns for rows, columns in self.linear),
            "local": 4.0 * self.hidden_size * count * queries * keys * self.local_layers,
            "global": 4.0 * self.hidden_size * tokens * tokens * self.global_layers,
        }


class Products:
    """The products of one model, ready to be timed at any length."""

    def __init__(self, shape: Shape, threads: int) -> None:
        self._shape = shape
        self._linear = _open(_linear_graph(shape), threads)
        self._local = _open(_attention_graph(shape.local_layers, rank=5), threads)
        self._global = _open(_attention_graph(shape.global_layers, rank=4), threads)
        self._is_chunked: dict[int, bool] = {}

    def measure(self, tokens: int) -> dict[str, float]:
        """Time the products of all layers for one sequence.

        Returns:
            Seconds by kind: `linear`, `local` and `global`.
        """
        shape = self._shape
        measured = min(tokens, MEASURED_TOKENS)
        count, queries, keys = shape.blocks(measured)
        rows = {"hidden": (1, measured, shape.hidden_size), "inner": (1, measured, shape.intermediate_size)}
        blocked = _attention_inputs((1, shape.attention_heads, count), queries, keys, shape.head_width)
        scale = tokens / measured
        return {
            "linear": scale * _seconds(self._linear, {name: _draw(size) for name, size in rows.items()}),
            "local": scale * _seconds(self._local, blocked) if shape.local_layers else 0.0,
            "global": self._measure_global(tokens) if shape.global_layers else 0.0,
        }

    def _measure_global(self, tokens: int) -> float:
        """Time the faster form, which the first call at a length finds out."""
        if tokens not in self._is_chunked:
            chunks = self._chunks_s(tokens) if tokens > CHUNKS_ABOVE_TOKENS else math.inf
            fits = self._shape.attention_heads * tokens * tokens * 4 <= WHOLE_SCORES_BYTES
            whole = min(self._whole_s(tokens), self._whole_s(tokens)) if fits else math.inf
            self._is_chunked[tokens] = chunks < whole
        return self._chunks_s(tokens) if self._is_chunked[tokens] else self._whole_s(tokens)

    def _whole_s(self, tokens: int) -> float:
        lead = (1, self._shape.attention_heads)
        return _seconds(self._global, _attention_inputs(lead, tokens, tokens, self._shape.head_width))

    def _chunks_s(self, tokens: int) -> float:
        """Time one chunk of queries for every head, and scale to all of them."""
        lead = (1, 1)
        heads = [
            _attention_inputs(lead, CHUNK_QUERIES, tokens, self._shape.head_width)
            for _ in range(self._shape.attention_heads)
        ]
        return tokens / CHUNK_QUERIES * sum(_seconds(self._global, inputs) for inputs in heads)


def _seconds(session: onnxruntime.InferenceSession, inputs: Mapping[str, NDArray[np.float32]]) -> float:
    started = time.perf_counter()
    session.run(None, dict(inputs))
    return time.perf_counter() - started


def _draw(size: tuple[int, ...]) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(size, dtype=np.float32)


def _attention_inputs(lead: tuple[int, ...], queries: int, keys: int, head_width: int) -> Arrays:
    """Give (..., m, D) queries, (..., D, k) keys and (..., k, D) values."""
    return {
        "query": _draw((*lead, queries, head_width)),
        "key": _draw((*lead, head_width, keys)),
        "value": _draw((*lead, keys, head_width)),
    }


def _linear_graph(shape: Shape) -> ir.Model:
    """Write every layer's four products, each with weights of its own."""
    random = np.random.default_rng(0)
    hidden, inner = _input("hidden", 3), _input("inner", 3)
    tape, sizes = ir.tape.Tape(), []
    for layer in range(shape.local_layers + shape.global_layers):
        for index, (rows, columns) in enumerate(shape.linear):
            weight = ir.tensor(random.standard_normal((rows, columns), dtype=np.float32), name=f"w{layer}_{index}")
            source = inner if index == len(shape.linear) - 1 else hidden
            product = tape.op("MatMul", [source, tape.initializer(weight)])
            sizes.append(tape.op("Shape", [product], {"start": 1, "end": 2}))
    return _model(tape, [hidden, inner], sizes)


def _attention_graph(layers: int, rank: int) -> ir.Model:
    """Write scores and their product with the values, once for each layer, on the same inputs."""
    inputs = [_input(name, rank) for name in ("query", "key", "value")]
    query, key, value = inputs
    tape, sizes = ir.tape.Tape(), []
    for _ in range(max(layers, 1)):
        mixed = tape.op("MatMul", [tape.op("MatMul", [query, key]), value])
        sizes.append(tape.op("Shape", [mixed], {"start": rank - 2, "end": rank - 1}))
    return _model(tape, inputs, sizes)


def _input(name: str, rank: int) -> ir.Value:
    shape = ir.Shape([f"{name}_{axis}" for axis in range(rank)])
    return ir.Value(name=name, shape=shape, type=ir.TensorType(ir.DataType.FLOAT))


def _model(tape: ir.tape.Tape, inputs: list[ir.Value], sizes: list[ir.Value]) -> ir.Model:
    output = tape.op("Concat", sizes, {"axis": 0})
    output.name, output.type = "sizes", ir.TensorType(ir.DataType.INT64)
    graph = ir.Graph(
        inputs,
        [output],
        nodes=tape.nodes,
        initializers=tape.initializers,
        opset_imports={"": OPSET_VERSION},
        name="products",
    )
    return ir.Model(graph, ir_version=IR_VERSION)


def _open(model: ir.Model, threads: int) -> onnxruntime.InferenceSession:
    """Open a session that waits like Vela's; without rewrites, which would merge products of the same inputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    content = ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
