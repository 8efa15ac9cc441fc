"""Vela's own view of the same answers: what upstream does not look at."""

from typing import Any

import pytest

from vela.graphs import record as records
from vela.verify.parity import spans as span_matching

LABELS = ["a", "b"]


def label(*probabilities: float, **fields: Any) -> dict[str, Any]:
    return {"probabilities": list(probabilities), **fields}


def scores(*values: float, **fields: Any) -> dict[str, Any]:
    return {"scores": list(values), **fields}


def spans(*found: tuple[str, int, int, float], **fields: Any) -> dict[str, Any]:
    names = ("label", "start", "end", "probability")
    return {"spans": [dict(zip(names, span, strict=True)) for span in found], **fields}


def tokens(*rows: tuple[float, ...]) -> list[dict[str, Any]]:
    return [{"start": 3 * place, "end": 3 * place + 2, "probabilities": list(row)} for place, row in enumerate(rows)]


def documents(*logits: float) -> dict[str, Any]:
    found = [{"index": index, "relevance_score": 0.5, "logit": logit} for index, logit in enumerate(logits)]
    return {"results": sorted(found, key=lambda each: -each["logit"])}


def strict(found: Any) -> records.BarResult:
    return found.vela.jobs[0].verdicts["strict"]


CLEAR = label(0.9, 0.1)


def test_equal_answers_pass_both_views(recorded):
    found = recorded.compare("sequence", [CLEAR], [CLEAR])

    assert found.vela.verdicts == {"upstream": "passed", "strict": "passed"}
    assert found.vela.bars == {"upstream": "cpu", "strict": "strict"}


@pytest.mark.parametrize(("device_class", "inside", "outside"), [("cpu", 4e-4, 6e-4), ("rocm", 1.9e-3, 2.1e-3)])
def test_the_probability_bound_is_strict_s_own(recorded, device_class, inside, outside):
    many = [CLEAR] * 200  # so that one input does not decide the 99th percentile

    within = recorded.compare("sequence", [*many, CLEAR], [*many, label(0.9 - inside, 0.1 + inside)], device_class)
    beyond = recorded.compare("sequence", [*many, CLEAR], [*many, label(0.9 - outside, 0.1 + outside)], device_class)

    assert strict(within).verdict == "passed"
    assert strict(beyond).verdict == "failed"
    assert beyond.passed  # upstream's bounds are wider


def test_the_99th_percentile_is_bounded_for_each_class_of_lengths(recorded):
    short, long = {"input": {"tokens": 12}}, {"input": {"tokens": 300}}
    baseline = [label(0.9, 0.1, **short)] * 500 + [label(0.9, 0.1, **long)] * 5
    candidate = [label(0.9, 0.1, **short)] * 500 + [label(0.8998, 0.1002, **long)] * 5

    found = recorded.compare("sequence", baseline, candidate)

    assert strict(found).verdict == "failed"
    assert "99th percentile of |Δp| 0.0002 > 0.0001 on 5 inputs of 129-512" in strict(found).reasons[0]
    assert [(each.length_class, each.compared) for each in found.vela.jobs[0].lengths] == [
        ("1-16", 500),
        ("129-512", 5),
    ]
    assert [each.max_abs_delta for each in found.vela.jobs[0].lengths] == pytest.approx([0.0, 2e-4])


def test_lengths_that_were_not_recorded_are_one_class(recorded):
    found = recorded.compare("sequence", [CLEAR], [CLEAR])

    assert [(each.length_class, each.agreed) for each in found.vela.jobs[0].lengths] == [("any length", 1)]


def test_a_near_tie_is_excused_and_a_flip_is_not(recorded):
    tied = recorded.compare("sequence", [label(0.50002, 0.49998)], [label(0.49999, 0.50001)])
    flipped = recorded.compare("sequence", [label(0.51, 0.49)], [label(0.49, 0.51)])

    assert strict(tied).verdict == "passed"
    assert tied.vela.jobs[0].excused == 1
    assert strict(flipped).verdict == "failed"
    assert "1 of 1 labels differ where 0 may: p0000" in strict(flipped).reasons[0]


def test_the_label_that_a_system_says_is_compared_although_its_numbers_agree(recorded):
    found = recorded.compare("sequence", [label(0.9, 0.1, label="safe")], [label(0.9, 0.1, label="unsafe")])

    assert found.vela.verdicts == {"upstream": "passed", "strict": "failed"}


def test_selected_labels_are_compared(recorded):
    one, same, other = (scores(0.6, 0.4, selected=found) for found in (["a"], ["a"], ["a", "b"]))

    equal = recorded.compare("operating_point", [one], [same])
    found = recorded.compare("operating_point", [one], [other])
    absent = recorded.compare("operating_point", [one], [scores(0.6, 0.4)])

    assert strict(equal).verdict == "passed"
    assert found.vela.verdicts == absent.vela.verdicts == {"upstream": "passed", "strict": "failed"}
    assert (found.vela.jobs[0].selected_compared, found.vela.jobs[0].selected_differ) == (1, 1)


def test_a_selection_that_differs_at_the_threshold_is_a_near_tie_where_thresholds_are_known(recorded):
    sides = [scores(0.6, 0.40001, selected=["a", "b"])], [scores(0.6, 0.39999, selected=["a"])]
    far = [scores(0.6, 0.45, selected=["a", "b"])], [scores(0.6, 0.45, selected=["a"])]
    known = {"labels": LABELS, "thresholds": [0.5, 0.4]}

    assert strict(recorded.compare("operating_point", *sides, **known)).verdict == "passed"
    assert strict(recorded.compare("operating_point", *sides)).verdict == "failed"
    assert strict(recorded.compare("operating_point", *far, **known)).verdict == "failed"


def test_span_sets_must_all_agree(recorded):
    one = spans(("AGE", 0, 2, 0.9))

    found = recorded.compare("tokens", [one] * 200, [one] * 199 + [spans()])

    assert found.vela.verdicts == {"upstream": "passed", "strict": "failed"}
    assert "1 of 200 span sets differ where 0 may: p0199" in strict(found).reasons[0]


def test_probabilities_of_spans_are_compared_where_the_sets_differ(recorded):
    same = spans(("AGE", 0, 2, 0.9))
    one, other = spans(("AGE", 0, 2, 0.9), ("PERSON", 5, 9, 0.9)), spans(("AGE", 0, 2, 0.9), ("PERSON", 5, 10, 0.2))

    found = recorded.compare("tokens", [same] * 999 + [one], [same] * 999 + [other], "rocm")

    assert found.vela.verdicts == {"upstream": "passed", "strict": "failed"}
    assert "|Δp| 0.7 > 0.002 on p0999" in strict(found).reasons[0]


def test_inputs_that_were_read_otherwise_fail_the_job(recorded):
    def read(tokens, windows=None):
        return spans(("AGE", 0, 2, 0.9)) | {"input": {"tokens": 900, "processed_tokens": tokens, "windows": windows}}

    same = recorded.compare("token_windows", [read(900, 3)], [read(900, 3)])
    fewer = recorded.compare("token_windows", [read(900, 3)], [read(900, 2)])
    cut = recorded.compare("tokens", [read(512)], [read(510)])

    assert strict(same).verdict == "passed"
    assert fewer.vela.verdicts == cut.vela.verdicts == {"upstream": "failed", "strict": "failed"}
    assert "read otherwise: 900 tokens in 2 windows for 900 tokens in 3 windows" in strict(fewer).reasons[0]


def test_a_side_that_rejects_everything_fails_and_its_quickness_is_no_latency(recorded):
    found = recorded.compare("sequence", [CLEAR] * 2, [{"error": {"code": "max_length_exceeded"}}] * 2)

    assert found.vela.verdicts == {"upstream": "failed", "strict": "failed"}
    assert found.jobs[0].latency_ms.runtime.p50 is None


def test_spans_of_one_label_and_place_are_compared_each_with_its_own(recorded):
    twice = spans(("AGE", 0, 2, 0.9), ("AGE", 0, 2, 0.3))  # two bytes of one character
    other = spans(("AGE", 0, 2, 0.9), ("AGE", 0, 2, 0.5))
    once = spans(("AGE", 0, 2, 0.9))

    same = recorded.compare("tokens", [twice], [twice])
    moved = recorded.compare("tokens", [twice], [other])
    fewer = recorded.compare("tokens", [twice], [once])

    assert same.vela.verdicts == {"upstream": "passed", "strict": "passed"}
    assert same.jobs[0].max_abs_delta == same.vela.jobs[0].max_abs_delta == 0.0
    assert moved.vela.verdicts == {"upstream": "failed", "strict": "failed"}
    assert moved.vela.jobs[0].max_abs_delta == pytest.approx(0.2)
    assert fewer.vela.verdicts == {"upstream": "passed", "strict": "failed"}  # upstream compares sets
    assert "1 of 1 span sets differ where 0 may: p0000" in strict(fewer).reasons[0]


def test_spans_are_matched_from_left_to_right_by_label_and_overlap_each_once():
    left = [("A", 0, 5), ("A", 6, 9), ("B", 0, 3)]
    right = [("A", 4, 7), ("A", 8, 9), ("B", 3, 5), ("C", 0, 9)]

    found = list(span_matching.match_overlapping(left, right))

    assert found == [(("A", 0, 5), ("A", 4, 7)), (("A", 6, 9), ("A", 8, 9))]
    assert next(span_matching.match_overlapping(right, left)) == (("A", 4, 7), ("A", 0, 5))


def test_token_rows_are_compared_where_both_sides_recorded_them(recorded):
    one, other = (spans(tokens=tokens((0.9, 0.1), found)) for found in ((0.9, 0.1), (0.7, 0.3)))

    found = recorded.compare("tokens", [one], [other])

    assert found.vela.verdicts == {"upstream": "passed", "strict": "failed"}
    assert found.vela.jobs[0].max_abs_delta == pytest.approx(0.2)
    assert strict(recorded.compare("tokens", [one], [spans()])).verdict == "passed"


def test_a_span_set_that_differs_at_a_nearly_tied_token_is_excused(recorded):
    tied = spans(("X", 0, 2, 0.50002), tokens=tokens((0.49998, 0.50002))), spans(tokens=tokens((0.50001, 0.49999)))
    clear = spans(("X", 0, 2, 0.6), tokens=tokens((0.4, 0.6))), spans(tokens=tokens((0.6, 0.4)))

    assert strict(recorded.compare("tokens", [tied[0]], [tied[1]])).verdict == "passed"
    assert strict(recorded.compare("tokens", [clear[0]], [clear[1]])).verdict == "failed"


@pytest.mark.parametrize("rows", [[], tokens((1.0,)), tokens((0.9, 0.1), (0.9, 0.1))])
def test_token_rows_of_another_shape_fail(recorded, rows):
    found = recorded.compare("tokens", [spans(tokens=tokens((0.9, 0.1)))], [spans(tokens=rows)])

    assert "shape: " in strict(found).reasons[0]


def test_a_token_s_number_that_is_not_finite_fails_both_views(recorded):
    one, other = (spans(tokens=tokens((0.9, value))) for value in (0.1, float("nan")))

    assert recorded.compare("tokens", [one], [other]).vela.verdicts == {"upstream": "failed", "strict": "failed"}


@pytest.mark.parametrize(("noise", "verdict"), [(None, "passed"), (1e-4, "passed"), (1e-6, "failed")])
def test_logits_are_bounded_by_the_model_s_own_noise_where_it_is_known(recorded, noise, verdict):
    one, other = label(1.0, 0.0, logits=[15.0, -15.0]), label(1.0, 0.0, logits=[15.0005, -15.0])

    found = recorded.compare("sequence", [one], [other], logit_noise=noise)

    assert strict(found).verdict == verdict
    assert found.vela.jobs[0].max_abs_logit == pytest.approx(5e-4)


def test_a_reduced_copy_is_judged_by_the_bar_for_reduced_copies_in_both_views(recorded):
    found = recorded.compare("operating_point", [scores(0.6, selected=["a"])], [scores(0.4, selected=[])], "reduced")

    assert found.vela.bars == {"upstream": "reduced", "strict": "reduced"}
    assert found.vela.verdicts == {"upstream": "passed", "strict": "failed"}


@pytest.mark.parametrize(
    ("vector", "verdict"), [([3.0, 4.0], "passed"), ([3.0, 4.00001], "passed"), ([4.0, 3.0], "failed")]
)
def test_embeddings_are_compared_by_direction(recorded, vector, verdict):
    found = recorded.compare("embedding", [{"embedding": [0.6, 0.8]}], [{"embedding": vector}])

    assert found.vela.verdicts == {"upstream": verdict, "strict": verdict}


def test_a_cosine_below_the_bound_is_named(recorded):
    found = recorded.compare("embedding", [{"embedding": [1.0, 0.0]}], [{"embedding": [0.999, 0.045]}], "rocm")

    assert found.vela.jobs[0].min_cosine == pytest.approx(0.99899, abs=1e-5)
    assert any("cosine 0.99" in reason and "< 0.9995 on p0000" in reason for reason in strict(found).reasons)


@pytest.mark.parametrize("vector", [[0.0, 0.0], [], [1.0], [float("nan"), 1.0]])
def test_a_vector_without_a_direction_or_of_another_width_fails(recorded, vector):
    found = recorded.compare("embedding", [{"embedding": [0.6, 0.8]}], [{"embedding": vector}])

    assert found.vela.verdicts == {"upstream": "failed", "strict": "failed"}


def test_documents_must_keep_their_order_outside_ties(recorded):
    baseline = documents(2.0, 1.0, 1.0005)

    kept = recorded.compare("rerank", [baseline], [documents(2.0, 1.0005, 1.0)])
    turned = recorded.compare("rerank", [baseline], [documents(1.0, 2.0, 2.0005)])

    assert kept.vela.verdicts == {"upstream": "passed", "strict": "passed"}
    assert kept.vela.jobs[0].excused == 1
    assert turned.vela.verdicts == {"upstream": "failed", "strict": "failed"}
    assert "2 of 3 places in an order differ where 0 may" in strict(turned).reasons[0]
    assert turned.jobs[0].disagreements[0].detail == "2 of 3 pairs of documents change places"


def test_documents_that_the_candidate_puts_level_have_lost_their_order_and_level_ones_have_none(recorded):
    level, clear = documents(1.0, 1.0), documents(2.0, 1.0)

    assert recorded.compare("rerank", [clear], [level]).vela.verdicts["upstream"] == "failed"
    assert recorded.compare("rerank", [level], [level]).vela.verdicts["strict"] == "passed"


def test_other_documents_are_no_order_to_compare(recorded):
    baseline, other = documents(2.0, 1.0), documents(2.0)

    assert "shape: " in strict(recorded.compare("rerank", [baseline], [other])).reasons[0]


def test_nothing_compared_is_not_compared_in_this_view_either(recorded):
    rejected = {"error": "too long"}

    found = recorded.compare("sequence", [rejected], [rejected])

    assert strict(found).verdict == "not_compared"
    assert strict(found).reasons == ("none of 1 inputs compared, 1 rejected by both sides",)
