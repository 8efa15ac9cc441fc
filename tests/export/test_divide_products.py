"""Parts of a split product become products of their own, with the same numbers; anything else is left alone."""

import numpy as np
import onnx_ir as ir
import pytest

from vela.export.passes import divide_products, graph_writer

ROWS, HIDDEN, OUT = 5, 8, 12
NOISE = 1e-5  # one product of 8 factors in FP32


def split_product(
    parts: int = 3, *, axis: int = 2, is_weight: bool = True, perm: tuple[int, int] = (1, 0), is_shared: bool = False
) -> ir.Model:
    """Split(x @ W.T): outputs p0, p1, … and, where the product is shared, the whole."""
    inputs = [ir.val("x", ir.DataType.FLOAT, ["b", ROWS, HIDDEN]), ir.val("w", ir.DataType.FLOAT, [OUT, HIDDEN])]
    if perm == (0, 1):
        inputs[1] = ir.val("w", ir.DataType.FLOAT, [HIDDEN, OUT])
    graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": 18}, name="g")
    relay = ir.node("Identity", [inputs[0]])
    graph.append(relay)
    writer = graph_writer.Writer(graph, relay)
    weight = inputs[1] if is_weight else writer.op("Neg", [inputs[1]])
    product = writer.op("MatMul", [inputs[0], writer.op("Transpose", [weight], perm=list(perm))])
    outputs = [*writer.ops("Split", [product], parts, axis=axis, num_outputs=parts), *([product] if is_shared else [])]
    for index, value in enumerate(outputs):
        end = ir.node("Identity", [value])
        end.outputs[0].name, end.outputs[0].type = f"p{index}", ir.TensorType(ir.DataType.FLOAT)
        graph.append(end)
        graph.outputs.append(end.outputs[0])
    graph.remove(relay)
    return ir.Model(graph, ir_version=10)


def kinds(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph if node.op_type not in ("Constant", "Identity")]


@pytest.fixture
def feeds():
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(2, ROWS, HIDDEN)).astype(np.float32), "w": rng.normal(size=(OUT, HIDDEN)).astype("f")}


def divided_feeds(feeds, parts: dict[str, divide_products.Rows]):
    """Give each part the rows that it names."""
    rows = {name: feeds["w"][part.first : part.first + part.count] for name, part in parts.items()}
    return {"x": feeds["x"], **rows}


@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize("axis", [2, -1])
def test_each_part_is_the_part_of_the_product(feeds, run_model, parts, axis):
    model = split_product(parts, axis=axis)
    whole = feeds["x"].astype(np.float64) @ feeds["w"].astype(np.float64).T

    found = divide_products.divide_products(model)

    assert kinds(model).count("MatMul") == parts
    assert "Split" not in kinds(model)
    assert [value.name for value in model.graph.inputs] == ["x", *found]
    assert [(rows.weight, rows.first, rows.count) for rows in found.values()] == [
        ("w", part * OUT // parts, OUT // parts) for part in range(parts)
    ]
    for answer, expected in zip(
        run_model(model, divided_feeds(feeds, found)), np.split(whole, parts, axis=2), strict=True
    ):
        assert np.abs(answer - expected).max() < NOISE


def test_parts_in_another_order_would_be_seen(feeds, run_model):
    model = split_product(2)
    found = divide_products.divide_products(model)
    first, second = np.split(feeds["x"] @ feeds["w"].T, 2, axis=2)

    answer = run_model(model, divided_feeds(feeds, found))[0]

    assert np.abs(answer - second).max() > 1000 * NOISE
    assert np.abs(answer - first).max() < NOISE


@pytest.mark.parametrize(
    "change",
    [{"axis": 1, "parts": 5}, {"is_weight": False}, {"perm": (0, 1)}, {"is_shared": True}, {"parts": 5}],
    ids=["another axis", "no weight", "not turned", "the whole is used too", "parts of unequal size"],
)
def test_what_is_nearly_a_split_product_is_left_alone(change):
    model = split_product(**change)
    before = kinds(model)

    assert divide_products.divide_products(model) == {}

    assert kinds(model) == before
