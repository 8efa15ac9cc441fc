"""Fused and reordered operators give the numbers of the graph they were, and near misses are left alone."""

import math

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common
import pytest

from vela.export.passes import fuse_operators, graph_writer, order_gelu, order_products

HIDDEN = 16
NOISE = 2e-6  # one layer norm or GELU in FP32, of values near 1
SQRT_2 = math.sqrt(2)


@pytest.fixture
def feeds():
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(0, 2, (2, 5, HIDDEN)).astype(np.float32) for name in "xy"}
    return feeds | {"gain": rng.normal(1, 0.3, HIDDEN).astype(np.float32)}


class Graph:
    """A graph that is written operator by operator; what `end` is given becomes an output."""

    def __init__(self, *shapes: tuple[str, list[int | str]]) -> None:
        inputs = [ir.val(name, ir.DataType.FLOAT, shape) for name, shape in shapes]
        graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": 18}, name="g")
        self.model = ir.Model(graph, ir_version=10)
        self.inputs = {value.name: value for value in inputs}
        self._relay = ir.node("Identity", [None])
        graph.append(self._relay)
        self.writer = graph_writer.Writer(graph, self._relay)

    def end(self, *values: ir.Value) -> ir.Model:
        for index, value in enumerate(values):
            relay = ir.node("Identity", [value])
            relay.outputs[0].name, relay.outputs[0].type = f"out{index}", ir.TensorType(ir.DataType.FLOAT)
            self.model.graph.append(relay)
            self.model.graph.outputs.append(relay.outputs[0])
        self.model.graph.remove(self._relay)
        return self.model


def fuse(model: ir.Model) -> None:
    fuse_operators.fuse_gelu(model)
    fuse_operators.fuse_residuals(model)


def kinds(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph if node.op_type not in ("Constant", "Identity")]


def gelu(
    half: float = 0.5, one: float = 1.0, root: float = SQRT_2, *, wave_of: str = "x", kind: str = "Div"
) -> ir.Model:
    """x * (0.5 * (1 + erf(x / sqrt(2)))), as the exporter writes it."""
    graph = Graph(("x", ["b", "t", HIDDEN]), ("y", ["b", "t", HIDDEN]))
    op, constant = graph.writer.op, graph.writer.constant
    wave = op("Erf", [op(kind, [graph.inputs[wave_of], constant(root)])])
    factor = op("Mul", [constant(half), op("Add", [wave, constant(one)])])
    return graph.end(op("Mul", [graph.inputs["x"], factor]))


def residual(axis: int = -1, side: list[int | str] | None = None) -> ir.Model:
    """LayerNormalization(x + y), and x + y for the next residual."""
    shape: list[int | str] = ["b", "t", HIDDEN]
    gain: list[int | str] = [HIDDEN] if axis in (-1, 2) else [5, HIDDEN]
    graph = Graph(("x", shape), ("y", shape if side is None else side), ("gain", gain))
    added = graph.writer.op("Add", [graph.inputs["x"], graph.inputs["y"]])
    normed = graph.writer.op("LayerNormalization", [added, graph.inputs["gain"]], axis=axis, epsilon=1e-3)
    return graph.end(normed, added)


GELU_KINDS = ["Div", "Erf", "Add", "Mul", "Mul"]
PASSES = {"fuse": fuse_operators.fuse_gelu, "order": order_gelu.order_gelu}
GELU_MISSES = {
    "0.4 for a half": {"half": 0.4},
    "1.1 for one": {"one": 1.1},
    "root of 2.01": {"root": math.sqrt(2.01)},
    "root as of a tanh form": {"root": 1.4142},
    "another argument": {"wave_of": "y"},
    "a product for the quotient": {"kind": "Mul"},
}


def live(model: ir.Model) -> ir.Model:
    """Drop what passes leave unused."""
    common.RemoveUnusedNodesPass()(model)
    return model


def test_gelu_becomes_one_operator_with_the_same_numbers(feeds, run_model):
    expected = run_model(gelu(), feeds)[0]
    model = gelu()

    fuse(model)

    assert kinds(live(model)) == ["Gelu"]
    assert np.abs(run_model(model, feeds)[0] - expected).max() < NOISE
    assert np.abs(run_model(gelu(half=0.4), feeds)[0] - expected).max() > 1000 * NOISE


def test_an_ordered_gelu_has_the_factor_last_and_the_same_bits(feeds, run_model):
    expected = run_model(gelu(), feeds, optimises=False)[0]
    model = gelu()

    order_gelu.order_gelu(model)

    assert kinds(live(model)) == GELU_KINDS
    last = model.graph.outputs[0].producer().inputs[0].producer()
    assert float(ir.convenience.get_const_tensor(last.inputs[1]).numpy()) == 0.5
    assert (run_model(model, feeds, optimises=False)[0] == expected).all()


@pytest.mark.parametrize("rewrite", PASSES.values(), ids=PASSES)
@pytest.mark.parametrize("change", GELU_MISSES.values(), ids=GELU_MISSES)
def test_what_is_nearly_gelu_is_left_alone(feeds, run_model, rewrite, change):
    expected, model = run_model(gelu(**change), feeds)[0], gelu(**change)
    before = [id(node) for node in model.graph]

    rewrite(model)

    assert [id(node) for node in model.graph] == before
    assert (run_model(model, feeds)[0] == expected).all()


def test_a_residual_norm_becomes_one_operator_that_gives_the_sum_too(feeds, run_model):
    expected = run_model(residual(), feeds)
    model = residual()

    fuse(model)

    assert kinds(model) == ["SkipLayerNormalization"]
    for actual, wanted in zip(run_model(model, feeds), expected, strict=True):
        assert np.abs(actual - wanted).max() < NOISE


def test_a_fused_norm_with_another_epsilon_is_seen(feeds, run_model):
    small = {name: value * np.float32(0.01) if name in "xy" else value for name, value in feeds.items()}
    expected, model = run_model(residual(), small), residual()
    fuse(model)
    assert np.abs(run_model(model, small)[0] - expected[0]).max() < NOISE

    (node,) = (node for node in model.graph if node.op_type == "SkipLayerNormalization")
    node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 1e-5)

    assert np.abs(run_model(model, small)[0] - expected[0]).max() > 1000 * NOISE


@pytest.mark.parametrize(
    "change",
    [{"axis": 1}, {"side": [HIDDEN]}, {"side": ["b", 1, HIDDEN]}, {"side": [1, "t", HIDDEN]}],
    ids=["another axis", "a bias", "one for every position", "one for every row"],
)
def test_what_is_nearly_a_residual_norm_is_left_alone(feeds, run_model, change):
    shape = {"b": 2, "t": 5}
    side = [shape.get(size, size) for size in change.get("side", ["b", "t", HIDDEN])]
    feeds = feeds | {"y": np.ones(side, np.float32)}
    if "axis" in change:
        feeds["gain"] = np.ones((5, HIDDEN), np.float32)
    expected, model = run_model(residual(**change), feeds), residual(**change)

    fuse(model)

    assert kinds(model) == ["Add", "LayerNormalization"]
    assert all((a == e).all() for a, e in zip(run_model(model, feeds), expected, strict=True))


def product(shape: tuple[int, int], *, is_weight: bool = True) -> ir.Model:
    """x @ W.T for a weight (out, in)."""
    graph = Graph(("x", ["b", "t", shape[1]]), ("w", list(shape)))
    weight = graph.inputs["w"] if is_weight else graph.writer.op("Neg", [graph.inputs["w"]])
    turned = graph.writer.op("Transpose", [weight], perm=[1, 0])
    model = graph.end(graph.writer.op("MatMul", [graph.inputs["x"], turned]))
    model.opset_imports[order_products.MICROSOFT] = 1  # as the passes before this one leave it
    return model


LISTED = [(rows, shape) for rows, shapes in order_products.STORED_ORDER.items() for shape in sorted(shapes)]
NOT_LISTED = [
    *((rows, shape) for rows in (31, 33, 64) for shape in (order_products.PROJECTION, order_products.OUTPUT)),
    (32, order_products.OUTPUT),
    (128, order_products.PROJECTION),
    (512, order_products.PROJECTION[::-1]),
    (512, (768, 768)),
]


@pytest.mark.parametrize(("rows", "shape"), LISTED)
def test_listed_products_read_their_weights_as_stored_and_give_the_same_numbers(run_model, rows, shape):
    rng = np.random.default_rng(1)
    feeds = {"x": rng.normal(0, 1, (1, 3, shape[1])), "w": rng.normal(0, 0.03, shape)}
    feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
    expected, model = feeds["x"].astype(np.float64) @ feeds["w"].astype(np.float64).T, product(shape)

    order_products.order_products(model, rows)

    assert kinds(live(model)) == ["FusedMatMul"]
    assert np.abs(run_model(model, feeds)[0] - expected).max() < 10 * NOISE


@pytest.mark.parametrize(("rows", "shape"), NOT_LISTED)
def test_products_that_were_not_measured_are_left_alone(rows, shape):
    model = product(shape)

    order_products.order_products(model, rows)

    assert kinds(model) == ["Transpose", "MatMul"]


def test_a_turned_factor_that_is_no_weight_is_left_alone():
    model = product(order_products.OUTPUT, is_weight=False)

    order_products.order_products(model, 512)

    assert kinds(model) == ["Neg", "Transpose", "MatMul"]
