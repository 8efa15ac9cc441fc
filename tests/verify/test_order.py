"""The order of a query's documents: who stands before whom, by hand."""

import numpy as np
import pytest

from vela.graphs import heads
from vela.verify import bars, cases, compare, judge, order

HEAD = heads.Head("default", "pair", heads.RerankDecoder((4,), (8, 4)), 64, "reject")


def document(name: str, actual: float, expected: float, query: str = "q", other: float = 0.0) -> compare.Difference:
    """One run with two outputs; the second gives `other` on both sides."""
    case = cases.Case(name, (2, 5, 1, 6, 1), "text", 3, ((0, 4),), query)
    found = {"score_l4_d8": np.array(actual), "score_l4_d4": np.array(other)}
    wanted = {"score_l4_d8": np.array(expected), "score_l4_d4": np.array(other)}
    return compare.compare_answers(HEAD, case, found, wanted, "none")


def test_the_same_order_agrees_whatever_the_distances() -> None:
    runs = [document("a", 3.0, 1.0), document("b", 0.1, 0.9), document("c", -5.0, 0.0)]

    assert all(found.agrees for found in order.place_in_order(runs))


def test_two_documents_that_change_places_disagree_by_the_reference_s_distance() -> None:
    runs = [document("a", 1.0, 2.0), document("b", 1.5, 0.5), document("c", 9.0, 9.0)]

    first, second, third = order.place_in_order(runs)

    assert (first.agrees, second.agrees, third.agrees) == (False, False, True)
    assert first.margin == second.margin == pytest.approx(1.5)
    assert (first.actual, first.expected) == ("score_l4_d8: b before a", "score_l4_d8: a before b")


def test_the_widest_distance_counts_where_a_document_passes_several() -> None:
    runs = [document("a", 0.0, 3.0), document("b", 1.0, 2.5), document("c", 2.0, 1.0)]

    assert [found.margin for found in order.place_in_order(runs)] == pytest.approx([2.0, 1.5, 2.0])


def test_documents_of_different_queries_have_no_order() -> None:
    runs = [document("a", 1.0, 2.0, query="p"), document("b", 1.5, 0.5, query="q")]

    assert all(found.agrees for found in order.place_in_order(runs))


def test_two_runs_of_one_document_have_no_order() -> None:
    runs = [document("a", 1.0, 1.1), document("a", 1.1, 1.1)]

    assert all(found.agrees for found in order.place_in_order(runs))


def test_a_second_output_that_turns_the_order_round_is_seen() -> None:
    case = cases.Case("b", (2, 1), "", 0, (), "q")
    scores = {"score_l4_d8": np.array(0.0), "score_l4_d4": np.array(1.0)}
    turned = compare.compare_answers(HEAD, case, scores, scores | {"score_l4_d4": np.array(-1.0)}, "none")

    first, _ = order.place_in_order([document("a", 5.0, 5.0), turned])

    assert not first.agrees
    assert first.expected == "score_l4_d4: a before b"


def test_equal_logits_where_the_reference_has_an_order_disagree_and_equal_on_both_sides_agree() -> None:
    level = order.place_in_order([document("a", 1.0, 1.0), document("b", 1.0, 0.0)])
    same = order.place_in_order([document("a", 1.0, 1.0), document("b", 1.0, 1.0)])

    assert [found.agrees for found in (*level, *same)] == [False, False, True, True]
    assert level[0].actual == "score_l4_d8: a level with b"


def judged(runs: list[compare.Difference], bar: bars.Bar) -> str:
    placed = order.place_in_order(runs)
    return judge.judge(judge.Evidence.from_differences(HEAD.kind, placed, len(placed), noise=1e-6), bar).verdict


@pytest.mark.parametrize("bar", bars.BARS.values(), ids=lambda bar: bar.name)
def test_a_near_tie_may_change_places_and_a_clear_order_may_not(bar: bars.Bar) -> None:
    calm = [document(f"x{index}", index, index, query="x") for index in range(100)]
    step = 1e-6
    tied = [document("a", 0.0, step), document("b", step, 0.0)]
    clear = [document("a", 0.0, 2 * bar.order_tie_margin), document("b", 2 * bar.order_tie_margin, 0.0)]

    assert judged(calm[:20] + tied, bar) == "passed"
    assert judged(calm + clear, bar) == "failed"


def test_a_pair_that_changed_places_is_named_with_what_was_expected() -> None:
    placed = order.place_in_order([document("a", 0.0, 0.01), document("b", 0.01, 0.0)])

    found = judge.judge(judge.Evidence.from_differences(HEAD.kind, placed, 2, noise=1e-6), bars.GPU)

    assert "2 of 2 places in an order differ where 0 may: a gives 'score_l4_d8: b before a'" in found.reasons[0]
