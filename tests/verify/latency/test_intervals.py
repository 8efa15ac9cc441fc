"""Percentiles and t intervals against figures worked out by hand, and against the printed table of t."""

import math

import pytest

from vela.verify.latency import intervals


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (9, 2.2622), (10, 2.2281), (30, 2.0423)],
)
def test_t_is_that_of_the_printed_table(degrees, expected):
    assert intervals.t_quantile(degrees) == pytest.approx(expected, abs=5e-5)


def test_t_holds_at_other_shares_and_goes_to_the_normal_distribution():
    assert intervals.t_quantile(4, 0.99) == pytest.approx(4.6041, abs=5e-5)
    assert intervals.t_quantile(1, 0.5) == pytest.approx(1.0, abs=1e-12)
    assert intervals.t_quantile(100_001) == pytest.approx(1.95996, abs=5e-5)


def test_an_interval_is_the_one_worked_out_by_hand():
    # Mean 4, deviations -2, 0, 2: standard deviation 2, of the mean 2 / sqrt(3); t with 2 degrees is 4.3027.
    found = intervals.Interval.from_values([2.0, 4.0, 6.0])

    assert found.mean == 4.0
    assert found.high - found.mean == pytest.approx(4.30265 * 2 / math.sqrt(3), abs=1e-4)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


def test_pairing_takes_out_what_both_sides_have_of_a_round():
    slow_rounds = [10.0, 50.0, 20.0]

    paired = intervals.Interval.of_differences([value + 1.0 for value in slow_rounds], slow_rounds)
    shuffled = intervals.Interval.of_differences([51.0, 21.0, 11.0], slow_rounds)

    assert (paired.low, paired.mean, paired.high) == (1.0, 1.0, 1.0)
    assert shuffled.mean == pytest.approx(1.0)
    assert shuffled.low < 0.0 < shuffled.high


def test_the_ratio_is_the_geometric_mean():
    found = intervals.Interval.of_ratios([2.0, 8.0], [1.0, 1.0])

    assert found.mean == pytest.approx(4.0)
    assert found.low * found.high == pytest.approx(16.0)


def test_pairs_that_do_not_pair_up_are_refused():
    with pytest.raises(ValueError, match="zip"):
        intervals.Interval.of_differences([1.0, 2.0], [1.0])


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [1.0, math.inf]])
def test_no_interval_is_made_of_too_little_or_of_what_is_no_number(values):
    with pytest.raises(ValueError, match="two finite values"):
        intervals.Interval.from_values(values)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2), (0.95, 4), (0.25, 1), (0.26, 2), (0.0, 1), (1.0, 4)])
def test_nearest_rank_is_a_value_that_was_measured(share, expected):
    assert intervals.nearest_rank([4, 1, 3, 2], share) == expected


def test_a_share_that_floats_cannot_hold_is_no_rank_more():
    assert intervals.nearest_rank(range(1, 101), 0.07) == 7  # 0.07 x 100 is 7.000000000000001
    assert intervals.nearest_rank(range(1, 401), 0.99) == 396
