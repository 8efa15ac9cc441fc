"""What a forward is expected to take: learnt by length, scaled where nothing of that length ran yet."""

import pytest

from vela.serve.costs import GROWTH, WEIGHT, Costs


def test_nothing_is_expected_of_a_graph_that_never_ran() -> None:
    assert Costs().seconds(100) == 0.0


def test_what_ran_is_expected_again_in_proportion_within_its_class() -> None:
    costs = Costs()
    costs.learn(64, 0.064)

    assert costs.seconds(64) == pytest.approx(0.064)
    assert costs.seconds(100) == pytest.approx(0.1)


def test_a_longer_run_costs_more_per_token_and_a_shorter_one_no_more() -> None:
    costs = Costs()
    costs.learn(64, 0.064)

    assert costs.seconds(256) == pytest.approx(0.256 * GROWTH**2)
    assert costs.seconds(8) == pytest.approx(0.008)


def test_a_run_moves_the_estimate_a_little() -> None:
    costs = Costs()
    costs.learn(64, 0.064)
    costs.learn(64, 0.064)
    costs.learn(64, 0.128)

    assert costs.seconds(64) == pytest.approx(0.064 * (1 + WEIGHT))


def test_the_first_run_of_a_class_is_forgotten_after_the_second() -> None:
    """It paid for what the second found made."""
    costs = Costs()
    costs.learn(64, 6.4)
    costs.learn(64, 0.064)

    assert costs.seconds(64) == pytest.approx(0.064)


def test_classes_are_learnt_apart() -> None:
    costs = Costs()
    costs.learn(64, 0.064)
    costs.learn(512, 1.024)

    assert costs.seconds(64) == pytest.approx(0.064)
    assert costs.seconds(512) == pytest.approx(1.024)
