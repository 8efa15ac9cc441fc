"""Copies of a graph that give its hidden states; they are loaded from memory and never written.

Graphs of Vela keep the trace's names for these states; in others they are found by their residual additions. One copy
gives the state after every layer as the graph leaves it. In another each layer is fed what the checkpoint's own layers
before it left, so that a layer that brings in a difference is told from one that passes it on. States that are too long
are given as a sketch: a few fixed random projections of each token's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vela.graphs import contract, manifest
from vela.serve import engine
from vela.verify import architecture, graph_file, residuals
from vela.verify import asked as asking

HIDDEN_STATE = re.compile(r"hidden_l([1-9][0-9]*)")
SKETCH_WIDTH = 8  # numbers that a sketch keeps of a token's H
SKETCH_SEED = 20

Sketch = NDArray[np.float32]


def make_sketch(hidden_size: int) -> Sketch:
    """Make the projections, (H, 8) float32, under which a vector keeps its length on average."""
    drawn = np.random.default_rng(SKETCH_SEED).standard_normal((hidden_size, SKETCH_WIDTH))
    projections: Sketch = (drawn / np.sqrt(SKETCH_WIDTH)).astype(np.float32)
    return projections


@dataclass(frozen=True, slots=True)
class Tapped:
    """A loaded copy.

    Attributes:
        session: Runs it.
        layers: Those whose states it gives, from 1 on.
        is_fed: Whether each layer is fed the checkpoint's own state.
    """

    session: engine.Session
    layers: tuple[int, ...]
    is_fed: bool

    @classmethod
    def open(
        cls, asked: asking.Asked, reading: architecture.Architecture, *, is_fed: bool, sketch: Sketch | None = None
    ) -> Self | None:
        """Load a copy of a graph.

        Args:
            asked: The graph and where it is asked.
            reading: Its checkpoint's architecture.
            is_fed: Whether each layer is to be fed.
            sketch: Projections of the states; None for the states themselves.

        Returns:
            None where the graph's states are not found.

        Raises:
            VelaError: the copy does not load, such as where a layer takes another type than float32.
        """
        model = graph_file.GraphFile.read(asked.path).model
        states = find_states(model.graph, reading.layers)
        if not states:
            return None
        for layer, state in states.items():
            if is_fed and layer + 1 in states:
                _feed(model.graph, state, layer, reading.hidden_size)
            _give(model.graph, state, layer, sketch)
        content = ir.serde.serialize_model(model).SerializeToString()
        width = reading.hidden_size if sketch is None else SKETCH_WIDTH
        described = _describe(asked.native, tuple(states), width, reading.hidden_size if is_fed else 0)
        return cls(asked.load(content, described), tuple(states), is_fed)

    def run(self, feeds: asking.Arrays, own: Mapping[int, NDArray[np.float32]]) -> dict[int, NDArray[np.float32]]:
        """Give the state, or its sketch, after each layer.

        Args:
            feeds: What the graph itself takes.
            own: (B, T, H) float32, the checkpoint's state after each layer, where layers are fed.
        """
        fed = {_input_of(layer): own[layer] for layer in self.layers[:-1]} if self.is_fed else {}
        outputs = self.session.run({**feeds, **fed})
        return {layer: outputs[_output_of(layer)] for layer in self.layers}


def find_states(graph: ir.Graph, layers: int) -> dict[int, ir.Value]:
    """Give the state after each layer, by name where the graph has the names, else by residual additions."""
    named = {
        int(match[1]): value
        for node in graph
        for value in node.outputs
        if (match := HIDDEN_STATE.fullmatch(value.name or ""))
    }
    return dict(sorted(named.items())) or residuals.find_states(graph, layers)


def _feed(graph: ir.Graph, state: ir.Value, layer: int, hidden_size: int) -> None:
    """Let whatever reads a state read an input instead; the state itself is still computed."""
    shape = ir.Shape([contract.BATCH, contract.SEQUENCE, hidden_size])
    given = ir.Value(name=_input_of(layer), type=ir.TensorType(ir.DataType.FLOAT), shape=shape)
    graph.inputs.append(given)
    for node, place in tuple(state.uses()):
        node.replace_input_with(place, given)


def _give(graph: ir.Graph, state: ir.Value, layer: int, sketch: Sketch | None) -> None:
    """Give a state, or its sketch, as float32."""
    cast = ir.Node("", "Cast", [state], [ir.AttrInt64("to", ir.DataType.FLOAT.value)])
    nodes = [cast]
    if sketch is not None:
        projections = ir.Value(name=f"sketch_l{layer}", const_value=ir.tensor(sketch, name=f"sketch_l{layer}"))
        graph.register_initializer(projections)
        nodes.append(ir.Node("", "MatMul", [cast.outputs[0], projections]))
    (output,) = nodes[-1].outputs
    output.name, output.type = _output_of(layer), ir.TensorType(ir.DataType.FLOAT)
    for node in nodes:
        graph.append(node)
    graph.outputs.append(output)


def _describe(native: manifest.Graph, layers: Sequence[int], width: int, fed_width: int) -> manifest.Graph:
    """Say what the copy takes and gives, so that its shapes are checked; a fed width of 0 is none."""
    shape: tuple[int | str, ...] = native.inputs[0].shape
    given = tuple(contract.TensorSpec(_output_of(layer), "float32", (*shape, width)) for layer in layers)
    fed_layers = layers[:-1] if fed_width else ()
    fed = [contract.TensorSpec(_input_of(layer), "float32", (*shape, fed_width)) for layer in fed_layers]
    inputs = (*native.inputs, *fed)
    described: manifest.Graph = msgspec.structs.replace(native, inputs=inputs, outputs=given)
    return described


def _input_of(layer: int) -> str:
    return f"expected_l{layer}"


def _output_of(layer: int) -> str:
    return f"state_l{layer}"
