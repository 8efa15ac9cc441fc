"""Expected durations follow what was timed, and between and beyond that the arithmetic."""

import pytest

from vela.graphs import costs
from vela.verify import pace

SHAPE = costs.ModelCosts()
WORK = pace.Work.of_graphs(SHAPE)


def test_timed_lengths_cost_what_they_took() -> None:
    found = pace.Pace(WORK, ((16, 0.07), (512, 1.0), (2048, 5.0)))

    assert [found.seconds(tokens) for tokens in (16, 512, 2048)] == pytest.approx([0.07, 1.0, 5.0])
    assert found.seconds(512, rows=3) == pytest.approx(3.0)


def test_a_shorter_run_costs_as_much_as_the_shortest_timed() -> None:
    assert pace.Pace(WORK, ((16, 0.07), (512, 1.0))).seconds(2) == pytest.approx(0.07)


def test_between_timed_lengths_time_grows_with_length() -> None:
    found = pace.Pace(WORK, ((16, 0.07), (128, 0.25), (512, 1.0), (2048, 5.0)))
    seconds = [found.seconds(tokens) for tokens in range(16, 2049, 16)]

    assert seconds == sorted(seconds)


def test_beyond_what_was_timed_the_arithmetic_tells() -> None:
    """4.9 s at 2,048 tokens and 37.3 s at 8,192 were measured for graphs, 8.6 s and 74.8 s for PyTorch."""
    graphs = pace.Pace(WORK, ((2048, 4.9),))
    reference = pace.Pace(pace.Work.of_reference(SHAPE), ((2048, 8.6),))

    assert graphs.seconds(8192) == pytest.approx(37.3, rel=0.1)
    assert reference.seconds(8192) == pytest.approx(74.8, rel=0.1)


def test_a_run_is_timed_once_after_one_that_warms_up() -> None:
    asked: list[int] = []

    found = pace.Pace.timed(WORK, asked.append, (16, 128))

    assert asked == [16, 16, 128]
    assert [tokens for tokens, _ in found.points] == [16, 128]


@pytest.mark.parametrize("points", [(), ((16, 1.0), (16, 2.0)), ((32, 1.0), (16, 2.0))])
def test_points_that_do_not_ascend_are_refused(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        pace.Pace(WORK, points)


@pytest.mark.parametrize(
    ("limit", "lengths"), [(8192, (16, 128, 512, 2048)), (2048, (16, 128, 512, 2048)), (100, (16,)), (9, (9,))]
)
def test_no_length_is_timed_beyond_the_limit(limit: int, lengths: tuple[int, ...]) -> None:
    assert pace.lengths_up_to(limit) == lengths
