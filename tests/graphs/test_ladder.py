"""The cheapest ladder is compared with every possible one; what a ladder costs is counted by hand."""

import dataclasses
import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vela.graphs import costs, errors, ladder
from vela.graphs.lengths import Lengths


@dataclasses.dataclass(frozen=True)
class Listed:
    """Costs that a test lists: one number for each token count, from 0."""

    values: tuple[int, ...]
    origin: str = "a test"

    def cost_of(self, tokens: int) -> int:
        return self.values[tokens]


PER_TOKEN = Listed(tuple(range(1000)))


def every_ladder(rule, last):
    """List all ladders that a rule allows, also those with buckets that no request uses."""
    steps = range(rule.granularity, last, rule.granularity)
    for count in range(min(rule.bucket_count, len(steps) + 1)):
        for inner in itertools.combinations(steps, count):
            yield (*inner, last)


def cost_by_hand(sizes, lengths, prices):
    return sum(count * prices.cost_of(min(size for size in sizes if size >= n)) for n, count in lengths.counts)


@st.composite
def problems(draw):
    last = draw(st.integers(2, 24))
    granularity = draw(st.integers(2, 5))
    pairs = draw(st.lists(st.tuples(st.integers(1, last), st.integers(1, 4)), min_size=1, max_size=8))
    steps = draw(st.lists(st.integers(0, 3), min_size=40, max_size=40))  # many zeros: equal costs make ties
    maximum = draw(st.sampled_from([None, last]))
    rule = ladder.Rule(draw(st.integers(1, 5)), maximum, granularity)
    return Lengths.from_counts(pairs), Listed(tuple(itertools.accumulate(steps))), rule


@given(problems())
@example((Lengths(((2, 1), (4, 1), (6, 1))), Listed((1,) * 40), ladder.Rule(3, None, 2)))  # all costs equal
@example((Lengths(((2, 1), (4, 1), (6, 1))), PER_TOKEN, ladder.Rule(2, None, 2)))  # 2,6 and 4,6 cost the same
def test_no_ladder_is_cheaper_and_of_equals_the_smallest_is_taken(problem):
    lengths, prices, rule = problem

    chosen = ladder.choose_ladder(lengths, prices, rule)

    ladders = every_ladder(rule, rule.last_bucket(lengths))
    assert chosen == min(ladders, key=lambda sizes: (cost_by_hand(sizes, lengths, prices), len(sizes), sizes))
    assert ladder.measure_use(chosen, lengths, prices).cost == cost_by_hand(chosen, lengths, prices)


def test_sixteen_buckets_of_2048_candidates_take_n_log_n_steps():
    multiplied = 0

    class Price(int):
        def __rmul__(self, requests):
            nonlocal multiplied
            multiplied += 1
            return requests * int(self)

    lengths = Lengths(tuple((tokens, 1 + 32_768 // tokens) for tokens in range(1, 32_769)))
    prices = Listed(tuple(Price(costs.ModelCosts().cost_of(tokens)) for tokens in range(32_769)))

    chosen = ladder.choose_ladder(lengths, prices, ladder.Rule(16))

    assert (len(chosen), chosen[-1]) == (16, 32_768)
    assert 16 * 2048 < multiplied < 16 * 2048 * 22  # all pairs would be 31 million


def test_the_maximum_is_the_last_bucket_even_where_no_request_is_so_long_and_it_is_no_multiple():
    lengths = Lengths(((10, 5), (30, 5)))

    assert ladder.choose_ladder(lengths, PER_TOKEN, ladder.Rule(3, 100)) == (16, 32, 100)
    assert ladder.choose_ladder(lengths, PER_TOKEN, ladder.Rule(3, 30)) == (16, 30)
    assert ladder.choose_ladder(lengths, PER_TOKEN, ladder.Rule(3)) == (16, 32)


def test_a_plan_counts_shares_padding_and_costs_and_what_is_above_the_maximum():
    lengths = Lengths(((8, 6), (40, 3), (90, 1), (120, 7)))

    plan = ladder.plan_buckets(lengths, PER_TOKEN, ladder.Rule(2, 100))

    assert plan.chosen == ladder.Use((16, 100), (6, 4), (96 / 48, 400 / 210), 496 / 258, cost=496)
    assert plan.default == ladder.Use((64, 100), (9, 1), (576 / 168, 100 / 90), 676 / 258, cost=676)
    assert plan.single == ladder.Use((100,), (10,), (1000 / 258,), 1000 / 258, cost=1000)
    assert plan.above == 7


def test_requests_that_are_all_above_the_maximum_cannot_be_planned():
    with pytest.raises(errors.PlanError, match="no request up to 64 tokens; the shortest has 65"):
        ladder.plan_buckets(Lengths(((65, 2),)), PER_TOKEN, ladder.Rule(2, 64))


@pytest.mark.parametrize(
    "rule", [{"bucket_count": 0}, {"maximum": 1}, {"maximum": 0}, {"granularity": 1}], ids=lambda rule: next(iter(rule))
)
def test_a_rule_that_allows_no_ladder_is_our_callers_misuse(rule):
    with pytest.raises(ValueError, match="start at 2 tokens"):
        ladder.Rule(**rule)


def test_falling_costs_and_requests_that_no_bucket_holds_are_our_callers_misuse():
    falling = Listed(tuple(range(100, 0, -1)))

    with pytest.raises(ValueError, match="never fall"):
        ladder.choose_ladder(Lengths(((10, 1), (30, 1))), falling, ladder.Rule(2))
    with pytest.raises(ValueError, match="above the maximum"):
        ladder.choose_ladder(Lengths(((65, 1),)), PER_TOKEN, ladder.Rule(2, 64))
    with pytest.raises(ValueError, match="does not hold 65"):
        ladder.measure_use((64,), Lengths(((65, 1),)), PER_TOKEN)
