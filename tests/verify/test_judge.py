import numpy as np
import pytest

from vela.graphs import heads, record
from vela.verify import bars, cases, compare, judge

HEAD = heads.Head("default", "text", heads.SequenceDecoder(("no", "yes")), 64, "reject")
TOKENS = heads.Head("default", "text", heads.BioDecoder(("O", "B-X", "I-X")), 64, "reject")
EMBEDDER = heads.Head("default", "text", heads.EmbeddingDecoder((4,), (2,)), 64, "reject")


def difference(
    probability: float = 0.0,
    logit: float = 0.0,
    *,
    agrees: bool = True,
    margin: float = float("inf"),
    tokens: int = 20,
    cosine: float = 1.0,
) -> compare.Difference:
    case = cases.Case(f"c{tokens}", tuple(range(tokens)), "text", 1, ())
    return compare.Difference(
        case, "none", np.array([probability]), np.array([logit]), agrees, margin, "yes", "no", cosine
    )


def judged(
    differences: list, bar: bars.Bar = bars.STRICT, head: heads.Head = HEAD, planned: int | None = None
) -> record.BarResult:
    count = len(differences) if planned is None else planned
    runs = tuple(map(judge.describe_run, differences))
    finite = [found for found in differences if np.isfinite([*found.probability, *found.logit]).all()]
    return judge.judge(judge.Evidence(head.kind, runs, judge.statistics(finite), count, noise=1e-6), bar)


def test_rounding_passes_every_bar():
    differences = [difference(1e-6, 5e-6) for _ in range(50)]

    assert {judged(differences, bar).verdict for bar in bars.BARS.values()} == {"passed"}


def test_nothing_compared_is_never_a_pass():
    assert judged([]).verdict == "not_compared"
    assert judged([], planned=0).verdict == "not_compared"


def test_fewer_runs_than_planned_are_not_a_pass():
    assert judged([difference()] * 9, planned=10).verdict == "not_compared"


@pytest.mark.parametrize("probability", [6e-4, 0.81, float("nan")])
def test_one_input_beyond_the_bound_fails_however_many_are_right(probability):
    found = judged([difference()] * 999 + [difference(probability, tokens=99)])

    assert found.verdict == "failed"
    assert "c99" in found.reasons[0] or np.isnan(probability)


@pytest.mark.parametrize("bar", bars.BARS.values(), ids=lambda bar: bar.name)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_nan_fails_every_bar_wherever_it_stands(bar, place):
    differences = [difference(1e-6, 1e-6) for _ in range(3)]
    differences[place] = difference(float("nan"), float("nan"))

    assert judged(differences, bar).verdict == "failed"


def test_a_tail_below_the_maximum_fails_by_the_99th_percentile_of_its_class():
    tail = [difference(2e-4, tokens=300)] * 5

    assert judged([difference()] * 500 + tail).verdict == "failed"
    assert judged([difference()] * 500 + tail, bars.CPU).verdict == "passed"


def test_logits_fail_where_probabilities_are_saturated():
    found = judged([difference(1e-9, 1e-3)])

    assert found.verdict == "failed"
    assert "Δlogit" in found.reasons[0]
    assert judged([difference(1e-9, 1e-3)], bars.CPU).verdict == "passed"


def test_the_logit_bound_follows_the_reference_noise_and_never_falls_below_its_floor():
    assert bars.STRICT.logit_bound(0.0) == 2e-5
    assert bars.STRICT.logit_bound(1e-5) == pytest.approx(8e-5)
    assert bars.CPU.logit_bound(1e-5) is None


def test_a_near_tie_counts_as_agreed_but_still_obeys_the_probability_bound():
    tie = difference(4e-4, agrees=False, margin=5e-4)

    assert judged([difference()] * 999 + [tie]).verdict == "passed"
    assert judged([tie]).verdict == "failed"  # the 99th percentile of a class of one
    assert judge.is_agreed(judge.describe_run(tie), HEAD.kind, bars.STRICT)
    assert judged([tie], bars.CPU).verdict == "passed"
    assert judged([difference(2e-3, agrees=False, margin=5e-4)], bars.CPU).verdict == "failed"


def test_a_flip_with_a_clear_margin_fails():
    found = judged([difference()] * 999 + [difference(1e-6, agrees=False, margin=0.5)])

    assert found.verdict == "failed"
    assert "1 of 1000 decisions differ where 0 may" in found.reasons[0]


def test_rates_become_integer_budgets_at_the_actual_n():
    assert judge.allowed_disagreements(1.0, 547) == 0
    assert judge.allowed_disagreements(0.995, 547) == 2
    assert judge.allowed_disagreements(0.995, 100) == 0
    assert judge.allowed_disagreements(0.98, 50) == 1


def test_span_rates_apply_to_token_heads_and_upstream_excuses_no_span_tie():
    lost = difference(1e-6, agrees=False, margin=1e-4)

    assert judged([difference()] * 199 + [lost], bars.CPU, TOKENS).verdict == "passed"  # 99.5 %
    assert judged([difference()] * 99 + [lost], bars.CPU, TOKENS).verdict == "failed"
    assert judged([difference()] * 99 + [lost], bars.STRICT, TOKENS).verdict == "passed"  # a near tie


def test_the_published_shield_graph_fails_both_upstream_bars():
    flipped = [difference(0.81, 3.0, agrees=False, margin=0.6)] * 12
    shifted = [difference(0.026, 0.2)] * 327
    differences = [*flipped, *shifted, *[difference(1e-4, 1e-3)] * 206]  # 545 compared, 97.80 %

    for bar in (bars.CPU, bars.GPU, bars.STRICT):
        found = judged(differences, bar)
        assert found.verdict == "failed"
        assert any("0.81" in reason for reason in found.reasons)
        assert any("12 of 545" in reason for reason in found.reasons)


def test_embedders_are_judged_by_unit_vectors_and_cosine():
    assert judged([difference(5e-6, 1e-6)], head=EMBEDDER).verdict == "passed"
    assert judged([difference(2e-5, 1e-6)], head=EMBEDDER).verdict == "failed"
    assert judged([difference(0.0, 0.0, cosine=0.99)], bars.GPU, EMBEDDER).verdict == "failed"


@pytest.mark.parametrize("place", [0, 1])
def test_a_cosine_that_is_nan_fails_wherever_it_stands(place):
    differences = [difference(), difference()]
    differences[place] = difference(cosine=float("nan"))

    assert judged(differences, bars.GPU, EMBEDDER).verdict == "failed"


def test_statistics_name_each_class_in_order_of_length():
    found = judge.statistics([difference(2e-3, 1.0, tokens=70), difference(tokens=3)])

    assert [(group.length_class, group.cases) for group in found] == [("1-16", 1), ("65-128", 1)]
    assert found[1].max_abs_logit == 1.0
    assert [group.decades.index(1) for group in found] == [0, record.DECADES.index(1e-3) + 1]


def test_the_worst_input_comes_first():
    found = judge.worst_inputs([difference(logit=1.0, tokens=3), difference(logit=2.0, tokens=4)])

    assert [worst.case_id for worst in found] == ["c4", "c3"]


def test_an_input_that_is_far_apart_in_several_runs_is_listed_once():
    runs = [difference(logit=1.0, tokens=3), difference(logit=2.0, tokens=3), difference(logit=0.5, tokens=4)]

    found = judge.worst_inputs(runs)

    assert [(worst.case_id, worst.max_abs_logit) for worst in found] == [("c3", 2.0), ("c4", 0.5)]
