"""Rotary positions of a graph are computed: positions that are divided, moved or turned round are seen."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from vela.graphs import errors
from vela.verify import graph_file
from vela.verify.architecture import rope
from vela.verify.static import angles, rotary

WIDTH, THETA = 4, 10_000.0
FREQUENCIES = [float(value) for value in rope.unscaled_frequencies(THETA, WIDTH)]
POSITIONS = """
    shape = Shape <start = 1, end = 2> (input_ids)
    length = Squeeze (shape)
    counted = Range (zero, length, one)
    positions = Cast <to = 1> (counted)
"""
PLAIN = "moved = Identity (positions)"
WAVES = "cosine = Cos (angles) sine = Sin (angles)"


class Reading:
    """An architecture of one rope."""

    head_width = WIDTH

    def rotations(self, layers: int) -> dict[str, rope.Rope]:
        return {"full_attention": rope.PlainRope(THETA)}


@pytest.fixture
def parse(tmp_path: Path):
    def run(moved: str = PLAIN, waves: str = WAVES, positions: str = POSITIONS) -> graph_file.GraphFile:
        constants = (
            f"<int64 zero = {{0}}, int64 one = {{1}}, int64[1] axis = {{1}}, float two = {{2}}, float step = {{1}},"
            f" float[{WIDTH // 2}] table = {{{', '.join(map(repr, FREQUENCIES))}}}>"
        )
        rest = f"column = Unsqueeze (moved, axis) angles = Mul (column, table) {waves}"
        rest += " first = Neg (cosine) second = Neg (sine)"
        given = f"float[T,{WIDTH // 2}]"
        text = (
            f'<ir_version: 9, opset_import: ["" : 17]> g (int64[1,T] input_ids) => ({given} first, {given} second) '
            f"{constants} {{ {positions} {moved} {rest} }}"
        )
        path = tmp_path / "graph.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        return graph_file.GraphFile.read(path)

    return run


def refused(graph: graph_file.GraphFile) -> errors.GraphError:
    with pytest.raises(errors.GraphError) as caught:
        rotary.check_rotary(graph, Reading(), 2)
    return caught.value


def test_positions_from_nought_on_by_the_table_of_the_config_pass(parse) -> None:
    assert "2 cosines and sines turn by 1 tables" in rotary.check_rotary(parse(), Reading(), 2)


def test_positions_that_are_divided_are_a_scaling(parse) -> None:
    found = refused(parse("moved = Div (positions, two)"))

    assert found.cause == "RoPE scaling"
    assert "Cos of linear scaling by 2 of theta 10,000" in found.found


def test_positions_that_begin_elsewhere_are_said(parse) -> None:
    found = refused(parse("moved = Add (positions, step)"))

    assert found.cause == "other computation"
    assert "of positions from 1 on" in found.found


def test_a_sine_that_turns_back_is_another_computation(parse) -> None:
    found = refused(parse(waves="back = Neg (angles) cosine = Cos (angles) sine = Sin (back)"))

    assert found.cause == "other computation"
    assert "Cos of" not in found.found


def test_what_is_no_arithmetic_of_positions_is_followed_by_its_table(parse) -> None:
    random = "positions = Cast <to = 1> (input_ids) none = RandomNormal <shape = [1]> () moved = Add (positions, none)"
    graph = parse(random, positions="")

    assert computed(graph) is None
    assert rotary.check_rotary(graph, Reading(), 2)


def test_angles_of_fewer_bits_are_followed_by_their_table(parse) -> None:
    narrow = "half = Cast <to = 10> (positions) moved = Cast <to = 1> (half)"

    assert computed(parse(narrow)) is None


def test_a_length_that_nobody_needs_is_not_counted_to(parse) -> None:
    endless = "most = Constant <value_int = 1000000000000> () counted = Range (zero, most, one) "
    graph = parse(positions=endless + "positions = Cast <to = 1> (counted)")

    assert computed(graph) is None


def test_a_cosine_of_nothing_is_no_crash(tmp_path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]> g (int64[1,T] input_ids) => (float[1] first)
    { cosine = Cos () first = Neg (cosine) }"""
    path = tmp_path / "graph.onnx"
    onnx.save(onnx.parser.parse_model(text), path)

    assert "of 0 tables" in refused(graph_file.GraphFile.read(path)).found


def computed(graph: graph_file.GraphFile):
    """What is computed of the angles under the cosine."""
    value = next(node.inputs[0] for node in graph.model.graph if node.op_type == "Cos")
    return angles.compute_angles(graph.model, value)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0, 0], [1, 0.5], [2, 1]], ([1, 0.5], 0.0)),
        ([[0, 0, 0, 0], [1, 0.5, 1, 0.5]], ([1, 0.5], 0.0)),
        ([[0, 0, 0, 0], [1, 0.5, 1, 0.25]], None),
        ([[0, 0]], None),
        ([[0, 0], [1, 0.5], [4, 2]], None),
        ([[0, 0, 0], [1, 1, 1]], None),
        (None, None),
    ],
)
def test_frequencies_are_read_off_rows_that_are_angles(rows, expected) -> None:
    found = rotary.motion_of(None if rows is None else np.array(rows, np.float64), WIDTH)

    assert (found if found is None else ([*found[0]], found[1])) == expected
