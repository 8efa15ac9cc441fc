"""Residual additions: an Add of a value and of what a matrix product made of it, and no other Add."""

import onnx_ir as ir
import pytest

from vela.verify import residuals


def make(text: str) -> ir.Graph:
    return ir.from_onnx_text(
        f'<ir_version: 9, opset_import: ["" : 18]>\ng (float[2, 4] x) => (float[2, 4] y) {text}'
    ).graph


WEIGHT = "w = Constant <value = float[4, 4] {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> ()\n"


def skips(text: str) -> list[str]:
    return [skip.name for _, skip in residuals.find_additions(make("{" + WEIGHT + text + "}"))]


@pytest.mark.parametrize("sides", ["h, p", "p, h"])
def test_a_sum_of_a_value_and_its_product_is_one_whichever_comes_first(sides) -> None:
    assert skips(f"h = Relu(x)\n p = MatMul(h, w)\n y = Add({sides})") == ["h"]


def test_a_bias_is_none() -> None:
    assert skips("b = Constant <value = float[4] {1,2,3,4}> ()\n h = Relu(x)\n p = MatMul(h, w)\n y = Add(p, b)") == []


def test_a_polynomial_of_an_activation_is_none() -> None:
    assert skips("h = Relu(x)\n c = Mul(h, h)\n y = Add(h, c)") == []


def test_a_product_of_something_else_is_none() -> None:
    assert skips("h = Relu(x)\n k = Neg(x)\n p = MatMul(k, w)\n y = Add(h, p)") == []


def test_a_mask_that_scores_depend_on_from_earlier_on_is_none() -> None:
    text = """h = Relu(x)
 mask = Neg(x)
 s = MatMul(h, w)
 m = Add(s, mask)
 p = MatMul(m, w)
 h1 = Add(h, p)
 s1 = MatMul(h1, w)
 m1 = Add(s1, mask)
 p1 = MatMul(m1, w)
 y = Add(h1, p1)"""

    assert skips(text) == ["h", "h1"]


LAYER = """
 a{0} = Relu(h{0})
 p{0} = MatMul(a{0}, w)
 m{0} = Add(h{0}, p{0})
 q{0} = MatMul(m{0}, w)
 h{1} = Add(m{0}, q{0})
"""


def test_the_state_after_a_layer_is_what_the_next_layers_first_addition_adds_to() -> None:
    body = "h0 = Neg(x)" + LAYER.format(0, 1) + LAYER.format(1, 2) + LAYER.format(2, 3) + " y = Neg(h3)"
    graph = make("{" + WEIGHT + body + "}")

    found = residuals.find_states(graph, 3)

    assert {layer: value.name for layer, value in found.items()} == {1: "h1", 2: "h2"}
    assert residuals.find_states(graph, 4) == {}
