"""Costs: the reckoned ones against the design's figures, the measured ones by hand, and files that are no table."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vela.graphs import costs, errors, record

ENGINE = record.EngineFacts("onnxruntime", "1.32.0", "onnxruntime", "CPUExecutionProvider", "cpu", "avx2", {})
FILE = {
    "schema_version": 1,
    "model": "m",
    "target": "ort",
    "engine": msgspec.to_builtins(ENGINE),
    "machine": "x86_64, 2 cores",
    "tools": {},
    "runs": 3,
    "points": [{"tokens": 64, "median_ms": 2.0}, {"tokens": 128, "median_ms": 3.0}],
}


def table(*points):
    pairs = tuple(costs.CostPoint(tokens, median_ms) for tokens, median_ms in points)
    return costs.CostTable(1, "m", "ort", ENGINE, "x86_64, 2 cores", {}, 3, pairs)


def test_the_307m_shape_costs_what_the_design_says():
    layers, linear = 22, 10.0e6

    floor = costs.LAUNCH_FLOP_PER_LAYER * layers
    for tokens in (512, 8192):
        expected = layers * linear * tokens + 8 * 3072 * tokens**2 + 14 * 0.6e6 * tokens
        assert costs.ModelCosts().cost_of(tokens) - floor == pytest.approx(expected, rel=0.005)


def test_local_layers_are_dense_up_to_one_block_with_its_window():
    local, dense = costs.ModelCosts(), costs.ModelCosts(local_layers=0)

    assert local.cost_of(192) == dense.cost_of(192)
    assert dense.cost_of(193) - local.cost_of(193) == 14 * 4 * 768 * 193 * (193 - 192)


def test_reckoned_costs_follow_the_times_measured_on_a_gpu():
    measured_ms = {16: 2.60, 64: 2.81, 128: 3.48, 512: 6.96, 2048: 29.9}

    factors = [costs.ModelCosts().cost_of(tokens) / ms for tokens, ms in measured_ms.items()]

    assert max(factors) / min(factors) < 1.25


def test_measured_costs_are_a_line_between_points_and_level_below_the_first():
    measured = table((64, 2.0), (128, 3.0), (256, 9.0))

    assert [measured.cost_of(tokens) for tokens in (1, 64, 96, 128, 192, 256)] == [
        *(2_000_000, 2_000_000, 2_500_000, 3_000_000, 6_000_000, 9_000_000)
    ]


def test_a_point_faster_than_a_shorter_one_costs_as_much_as_that_one():
    measured = table((64, 5.0), (128, 3.0), (256, 9.0))

    assert [measured.cost_of(tokens) for tokens in (64, 100, 128, 192)] == [5_000_000, 5_000_000, 5_000_000, 7_000_000]


@given(st.dictionaries(st.integers(1, 200), st.floats(1e-6, 1e3), min_size=1, max_size=8))
def test_measured_costs_never_fall_and_hit_rising_points(points):
    measured = table(*sorted(points.items()))

    values = [measured.cost_of(tokens) for tokens in range(1, max(points) + 1)]
    assert all(left <= right for left, right in itertools.pairwise(values))
    assert values[-1] == round(max(points.values()) * 1_000_000)


def test_nothing_is_said_above_the_last_point():
    with pytest.raises(errors.PlanError, match=r"measured up to 128 tokens; expected a measurement at 129 tokens"):
        table((64, 2.0), (128, 3.0)).cost_of(129)


def test_a_table_is_read_back(tmp_path):
    path = tmp_path / "costs.json"
    path.write_bytes(msgspec.json.encode(FILE))

    found = costs.read_costs(path)

    assert found == table((64, 2.0), (128, 3.0))
    assert found.origin == "measured with m on cpu (x86_64, 2 cores)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema version 2, expected 1"),
        ({"points": []}, "length >= 1"),
        ({"points": FILE["points"][::-1]}, "points ascend"),
        ({"points": [FILE["points"][0]] * 2}, "points ascend"),
        ({"points": [{"tokens": 64, "median_ms": 0}]}, "median_ms"),
        ({"points": [{"tokens": 64, "median_ms": 1e-7}]}, "median_ms"),  # no whole nanosecond
        ({"points": [{"tokens": 64, "median_ms": None}]}, "median_ms"),
        ({"points": [{"tokens": 0, "median_ms": 1}]}, "tokens"),
        ({"target": "cuda"}, "target"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_table_that_does_not_validate_is_refused_with_the_reason(tmp_path, change, message):
    path = tmp_path / "costs.json"
    path.write_bytes(msgspec.json.encode(FILE | change))

    with pytest.raises(errors.PlanError, match=message) as refused:
        costs.read_costs(path)

    assert refused.value.where == str(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"[" * 200_000, b"\xff", b" " * (costs.COSTS_LIMIT_BYTES + 1)],
    ids=["empty", "nested", "binary", "large"],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "costs.json"
    path.write_bytes(content)

    with pytest.raises(errors.PlanError, match="does not validate"):
        costs.read_costs(path)
