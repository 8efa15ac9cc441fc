"""Upstream's view, clause by clause, by hand."""

from typing import Any

import pytest

from vela.verify.parity import comparison


def label(*probabilities: Any, **fields: Any) -> dict[str, Any]:
    return {"index": 0, "probabilities": list(probabilities), **fields}


def scores(*values: Any, **fields: Any) -> dict[str, Any]:
    return {"index": 0, "scores": list(values), **fields}


def spans(*found: tuple[str, int, int, Any]) -> dict[str, Any]:
    names = ("label", "start", "end", "probability")
    return {"index": 0, "spans": [{**dict(zip(names, span, strict=True)), "text": "x"} for span in found]}


def windows(*plan: tuple[int, int], values: list[float]) -> list[dict[str, Any]]:
    return [{"start": start, "end": end, "probabilities": values} for start, end in plan]


CLEAR = label(0.9, 0.1)
REJECTED = {"error": {"code": "max_length_exceeded", "message": "9,000 tokens"}}


def test_equal_answers_pass_with_full_agreement(recorded):
    found = recorded.compare("sequence", [CLEAR] * 3, [CLEAR] * 3)

    (job,) = found.jobs
    assert (job.inputs, job.compared, job.both_rejected, job.agreement) == (3, 3, 0, 1.0)
    assert (job.near_ties, job.max_abs_delta, job.disagreements) == (0, 0.0, ())
    assert found.passed


def test_the_label_is_the_first_of_the_largest(recorded):
    level = label(0.4, 0.4, 0.2)
    found = recorded.compare("sequence", [label(0.6, 0.3, 0.1)], [level], device_class="reduced")
    flipped = recorded.compare("sequence", [label(0.3, 0.6, 0.1)], [level], device_class="reduced")

    assert (found.jobs[0].agreement, flipped.jobs[0].agreement) == (1.0, 0.0)


def test_a_flip_fails_the_label_bar_of_the_cpu(recorded):
    found = recorded.compare(
        "sequence", [CLEAR] * 999 + [label(0.5006, 0.4994)], [CLEAR] * 999 + [label(0.4999, 0.5001)]
    )

    (job,) = found.jobs
    assert (job.agreement, job.near_ties, job.passed) == (0.999, 0, False)
    assert [each.reason for each in job.disagreements] == ["label"]
    assert job.disagreements[0].near_tie is False


def test_a_near_tie_of_the_baseline_counts_as_agreed_and_is_counted(recorded):
    found = recorded.compare("sequence", [CLEAR, label(0.5002, 0.4998)], [CLEAR, label(0.4998, 0.5002)])

    (job,) = found.jobs
    assert (job.agreement, job.near_ties, job.passed) == (1.0, 1, True)
    assert [(each.reason, each.near_tie) for each in job.disagreements] == [("label", True)]


def test_near_ties_are_counted_where_the_labels_agree_as_well(recorded):
    tied = label(0.5002, 0.4998)

    assert recorded.compare("sequence", [tied], [tied]).jobs[0].near_ties == 1


def test_a_margin_of_exactly_the_bound_is_no_near_tie(recorded):
    found = recorded.compare("sequence", [label(0.001, 0.0)], [label(0.0, 0.001)])
    closer = recorded.compare("sequence", [label(0.000999, 0.0)], [label(0.0, 0.000999)])

    assert (found.jobs[0].near_ties, found.jobs[0].agreement) == (0, 0.0)
    assert (closer.jobs[0].near_ties, closer.jobs[0].agreement) == (1, 1.0)


def test_a_probability_of_exactly_the_bound_passes(recorded):
    assert recorded.compare("sequence", [label(0.001, 0.0)], [label(0.0, 0.0)]).passed


def test_a_near_tie_of_the_candidate_alone_excuses_nothing(recorded):
    found = recorded.compare("sequence", [CLEAR], [label(0.4999, 0.5001)], device_class="rocm")

    assert (found.jobs[0].near_ties, found.jobs[0].agreement) == (0, 0.0)


def test_a_near_tie_does_not_excuse_the_probability(recorded):
    found = recorded.compare("sequence", [label(0.5002, 0.4998)], [label(0.49, 0.51)])

    (job,) = found.jobs
    assert (job.agreement, job.passed) == (1.0, False)
    assert job.max_abs_delta == pytest.approx(0.0102)
    assert [each.reason for each in job.disagreements] == ["label", "probability"]


def test_a_probability_beyond_the_bound_fails_and_does_not_lower_the_rate(recorded):
    within = recorded.compare("sequence", [CLEAR], [label(0.9009, 0.0991)])
    beyond = recorded.compare("sequence", [CLEAR], [label(0.9011, 0.0989)])

    assert (within.passed, beyond.passed) == (True, False)
    assert beyond.jobs[0].agreement == 1.0
    assert "|Δp| 0.0011 > 0.001 on p0000" in beyond.vela.jobs[0].verdicts["upstream"].reasons[0]


def test_scores_are_compared_by_probability_only(recorded):
    crossing = recorded.compare("operating_point", [scores(0.5004, 0.2)], [scores(0.4996, 0.2)])
    far = recorded.compare("operating_point", [scores(0.5004, 0.2)], [scores(0.4904, 0.2)])

    assert (crossing.passed, crossing.jobs[0].agreement) == (True, 1.0)
    assert (far.passed, far.jobs[0].agreement) == (False, 1.0)
    assert [each.reason for each in far.jobs[0].disagreements] == ["probability"]


def test_upstream_does_not_look_at_selected_labels(recorded):
    one, other = scores(0.6, selected=["a"]), scores(0.6, selected=[])

    assert recorded.compare("operating_point", [one], [other]).passed


def test_span_sets_are_compared_by_label_in_capitals_start_and_end(recorded):
    found = recorded.compare("tokens", [spans(("Person", 0, 4, 0.9))], [spans(("PERSON", 0, 4, 0.9005))])

    assert (found.passed, found.jobs[0].agreement) == (True, 1.0)
    assert found.jobs[0].max_abs_delta == pytest.approx(5e-4)


@pytest.mark.parametrize("other", [("AGE", 0, 4, 0.9), ("PERSON", 1, 4, 0.9), ("PERSON", 0, 5, 0.9)])
def test_a_span_with_another_label_or_edge_is_another_span(recorded, other):
    found = recorded.compare("token_windows", [spans(("PERSON", 0, 4, 0.9))], [spans(other)])

    (job,) = found.jobs
    assert (job.agreement, job.passed) == (0.0, False)
    assert job.disagreements[0].legacy_only == (("PERSON", 0, 4),)
    assert job.disagreements[0].runtime_only == (other[:3],)


def test_the_order_of_spans_is_no_difference(recorded):
    one, other = ("PERSON", 0, 4, 0.9), ("AGE", 6, 8, 0.8)

    assert recorded.compare("tokens", [spans(one, other)], [spans(other, one)]).passed


def test_span_probabilities_count_only_where_the_sets_are_equal(recorded):
    equal = spans(("PERSON", 0, 4, 0.9))
    baseline = [equal] * 199 + [spans(("PERSON", 0, 4, 0.9), ("AGE", 6, 8, 0.9))]
    candidate = [equal] * 199 + [spans(("PERSON", 0, 4, 0.1))]

    found = recorded.compare("tokens", baseline, candidate)

    assert (found.jobs[0].agreement, found.jobs[0].max_abs_delta, found.passed) == (0.995, 0.0, True)


def test_span_probabilities_beyond_the_bound_fail_although_all_sets_agree(recorded):
    found = recorded.compare("tokens", [spans(("PERSON", 0, 4, 0.9))], [spans(("PERSON", 0, 4, 0.8))])

    assert (found.jobs[0].agreement, found.passed) == (1.0, False)


def test_grounded_spans_have_one_label_whatever_it_is_called(recorded):
    found = recorded.compare("grounded", [spans(("unsupported", 27, 32, 0.9))], [spans(("hallucinated", 27, 32, 0.9))])

    assert found.passed


@pytest.mark.parametrize(("lost", "passes"), [(1, True), (2, False)])
def test_span_sets_have_an_integer_budget_at_the_actual_number(recorded, lost, passes):
    found = [spans(("AGE", 0, 2, 0.9))]

    result = recorded.compare("tokens", found * 200, found * (200 - lost) + [spans()] * lost)  # 99.5 % of 200

    assert result.passed is passes


@pytest.mark.parametrize(("count", "passes"), [(200, True), (199, False)])
def test_labels_on_a_gpu_have_an_integer_budget_as_well(recorded, count, passes):
    flip = [label(0.505, 0.495)], [label(0.495, 0.505)]

    found = recorded.compare("sequence", [CLEAR] * (count - 1) + flip[0], [CLEAR] * (count - 1) + flip[1], "rocm")

    assert found.passed is passes


def test_an_input_that_both_reject_is_left_out_and_counted(recorded):
    found = recorded.compare("sequence", [CLEAR, REJECTED], [CLEAR, REJECTED])

    (job,) = found.jobs
    assert (job.inputs, job.compared, job.both_rejected, job.agreement, job.passed) == (2, 1, 1, 1.0, True)


@pytest.mark.parametrize("swapped", [False, True])
def test_an_input_that_one_side_rejects_fails_the_job(recorded, swapped):
    sides = [CLEAR] * 1000, [CLEAR] * 999 + [REJECTED]

    found = recorded.compare("sequence", *(reversed(sides) if swapped else sides))

    (job,) = found.jobs
    assert (job.compared, job.both_rejected, job.agreement, job.passed) == (999, 0, 1.0, False)
    (entry,) = job.disagreements
    assert (entry.id, entry.reason) == ("p0999", "error")
    assert (entry.legacy, entry.runtime)[not swapped] == "max_length_exceeded: 9,000 tokens"
    assert (entry.legacy, entry.runtime)[swapped] is None


def test_a_rejection_inside_the_result_is_one_as_well(recorded):
    inside = {"index": 0, "error": {"code": "max_length_exceeded", "message": "9,000 tokens"}}

    found = recorded.compare("sequence", [CLEAR, inside], [CLEAR, {"error": "too long"}])

    assert (found.jobs[0].both_rejected, found.passed) == (1, True)


@pytest.mark.parametrize("sides", [([CLEAR, None], [CLEAR] * 2), ([CLEAR] * 2, [CLEAR, None]), ([CLEAR, None],) * 2])
def test_an_id_that_a_side_does_not_have_fails_the_job(recorded, sides):
    found = recorded.compare("sequence", *sides)

    (job,) = found.jobs
    assert (job.inputs, job.compared, job.passed) == (2, 1, False)
    assert [(each.id, each.reason) for each in job.disagreements] == [("p0001", "missing")]


def test_another_plan_of_windows_fails_the_job_although_all_else_agrees(recorded):
    one = label(0.9, 0.1, windows=windows((0, 510), (255, 600), values=[0.9, 0.1]))
    other = label(0.9, 0.1, windows=windows((0, 510), (254, 600), values=[0.9, 0.1]))

    assert recorded.compare("sequence_windows", [one], [one]).passed
    found = recorded.compare("sequence_windows", [one] * 1000, [one] * 999 + [other])
    (job,) = found.jobs
    assert (job.agreement, job.passed) == (1.0, False)
    assert [(each.id, each.reason) for each in job.disagreements] == [("p0999", "windows")]
    assert job.disagreements[0].legacy == [(0, 510), (255, 600)]


def test_windows_are_not_compared_where_the_baseline_lists_none_and_are_where_the_candidate_does(recorded):
    listed = label(0.9, 0.1, windows=windows((0, 510), values=[0.9, 0.1]))

    assert recorded.compare("sequence_windows", [CLEAR], [listed]).passed
    assert not recorded.compare("sequence_windows", [listed], [CLEAR]).passed


def test_scores_read_in_one_piece_by_one_side_and_in_windows_by_the_other_fail(recorded):
    listed = scores(0.9, windows=[{"start": 0, "end": 2046, "scores": [0.9]}])

    assert not recorded.compare("operating_point", [scores(0.9)], [listed]).passed
    assert not recorded.compare("operating_point", [listed], [scores(0.9)]).passed
    assert recorded.compare("operating_point", [listed], [listed]).passed


def test_answers_with_another_number_of_values_fail(recorded):
    assert not recorded.compare("sequence", [CLEAR], [label(0.9, 0.05, 0.05)]).passed
    assert not recorded.compare("sequence", [label()], [label()]).passed
    assert not recorded.compare("sequence", [CLEAR], [CLEAR], labels=["a", "b", "c"]).passed
    assert recorded.compare("sequence", [CLEAR], [CLEAR], labels=["a", "b"]).passed


def test_a_reduced_copy_has_no_bound_on_probabilities_and_99_percent_of_labels(recorded):
    moved = label(0.6, 0.4)
    flip = label(0.4, 0.6)

    passed = recorded.compare("sequence", [CLEAR] * 100, [moved] * 99 + [flip], "reduced")
    failed = recorded.compare("sequence", [CLEAR] * 100, [moved] * 98 + [flip] * 2, "reduced")
    tied = recorded.compare("sequence", [label(0.5, 0.5)], [flip], "reduced")

    assert (passed.passed, failed.passed, tied.passed) == (True, False, False)
    assert (passed.baseline, passed.device_class, passed.jobs[0].max_abs_delta) == ("runtime", "reduced", 0.5)


def test_percentiles_are_nearest_rank_rounded_up_over_the_calls_that_are_not_compared():
    latencies = [milliseconds * 1_000_000 for milliseconds in range(20, 0, -1)]

    assert [comparison.percentile_ms(latencies, rank) for rank in (0.5, 0.95)] == [10.0, 19.0]
    assert [comparison.percentile_ms(latencies[:3], rank) for rank in (0.5, 0.95)] == [19.0, 20.0]
    assert comparison.percentile_ms([7_000_000], 0.5) == 7.0
    assert comparison.percentile_ms([], 0.5) is None


def test_nothing_compared_is_not_compared_and_never_a_pass(recorded):
    found = recorded.compare("sequence", [REJECTED] * 2, [REJECTED] * 2)

    assert (found.passed, found.jobs[0].compared, found.jobs[0].both_rejected) == (False, 0, 2)
    assert found.jobs[0].agreement == 0.0
    assert found.vela.verdicts == {"upstream": "not_compared", "strict": "not_compared"}
