"""What upstream's comparator lets through: NaN, infinity and null, in one place or everywhere, fail on every bar."""

from typing import Any

import pytest

NAN = float("nan")
INFINITY = float("inf")


def label(*probabilities: Any, **fields: Any) -> dict[str, Any]:
    return {"probabilities": list(probabilities), **fields}


def scores(*values: Any) -> dict[str, Any]:
    return {"scores": list(values)}


def spans(*found: tuple[str, int, int, Any]) -> dict[str, Any]:
    return {"spans": [dict(zip(("label", "start", "end", "probability"), span, strict=True)) for span in found]}


def windows(*plan: tuple[int, int], values: list[float]) -> list[dict[str, Any]]:
    return [{"start": start, "end": end, "probabilities": values} for start, end in plan]


CLEAR = label(0.9, 0.1)


@pytest.mark.parametrize("wrong", [NAN, INFINITY, -INFINITY, None, 1e39])
@pytest.mark.parametrize("device_class", ["cpu", "rocm", "reduced"])
@pytest.mark.parametrize("place", [0, 1])
def test_one_number_that_is_not_finite_fails_wherever_it_stands(recorded, wrong, device_class, place):
    values = [0.9, 0.1]
    values[place] = wrong

    found = recorded.compare("sequence", [CLEAR] * 200, [CLEAR] * 199 + [label(*values)], device_class)

    assert not found.passed
    assert found.jobs[0].compared == 200
    reasons = found.vela.jobs[0].verdicts["upstream"].reasons
    assert reasons[0].startswith(f"non-finite: probabilities[{place}] of the candidate is ")


@pytest.mark.parametrize("wrong", [NAN, INFINITY, None])
def test_a_number_of_the_baseline_that_is_not_finite_fails_too(recorded, wrong):
    found = recorded.compare("sequence", [label(wrong, 0.1)], [CLEAR])

    assert found.vela.verdicts == {"upstream": "failed", "strict": "failed"}
    assert "probabilities[0] of the baseline is" in found.vela.jobs[0].verdicts["upstream"].reasons[0]


def test_both_sides_not_finite_alike_is_no_agreement(recorded):
    found = recorded.compare("sequence", [label(NAN, NAN)], [label(NAN, NAN)])

    assert (found.passed, found.jobs[0].agreement) == (False, 0.0)


def test_a_hazard_graph_that_answers_nan_everywhere_fails(recorded):
    found = recorded.compare("operating_point", [scores(0.1, 0.8)] * 5, [scores(NAN, NAN)] * 5)

    assert (found.passed, found.jobs[0].agreement) == (False, 0.0)
    assert [each.reason for each in found.jobs[0].disagreements] == ["non-finite"] * 5


def test_a_sequence_graph_that_answers_nan_everywhere_does_not_agree_at_the_first_label(recorded):
    found = recorded.compare("sequence", [CLEAR] * 5, [label(NAN, NAN)] * 5)

    assert (found.passed, found.jobs[0].agreement) == (False, 0.0)


@pytest.mark.parametrize("wrong", [NAN, INFINITY, None])
def test_a_span_s_probability_that_is_not_finite_fails(recorded, wrong):
    found = recorded.compare("tokens", [spans(("AGE", 0, 2, 0.9))], [spans(("AGE", 0, 2, wrong))])

    assert not found.passed


def test_a_window_s_number_that_is_not_finite_fails_although_the_maximum_hides_it(recorded):
    one = label(0.9, 0.1, windows=windows((0, 510), values=[0.9, 0.1]))
    other = label(0.9, 0.1, windows=windows((0, 510), values=[0.9, NAN]))

    assert not recorded.compare("sequence_windows", [one], [other]).passed


@pytest.mark.parametrize("code", ["invalid_model_output", "unavailable", "internal_error"])
def test_two_systems_that_fail_alike_agree_in_nothing(recorded, code):
    wrong = {"error": {"code": code, "message": "logits with values that are not finite"}}

    found = recorded.compare("sequence", [CLEAR, wrong], [CLEAR, wrong])

    assert found.vela.verdicts == {"upstream": "failed", "strict": "failed"}
    assert found.jobs[0].both_rejected == 0
    assert "neither side answers, and not for what it is asked" in found.vela.jobs[0].verdicts["upstream"].reasons[0]


def test_two_systems_that_refuse_an_input_alike_are_still_compared_without_it(recorded):
    refused = {"error": {"code": "max_length_exceeded", "message": "unavailable"}}

    found = recorded.compare("sequence", [CLEAR, refused], [CLEAR, {"error": "too long"}])

    assert (found.passed, found.jobs[0].both_rejected) == (True, 1)
