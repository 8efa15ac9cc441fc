"""What of a response is an answer, when two are equal, and how far apart they are."""

import json

import pytest

from vela.verify.latency import answers, callers, response


def read(body, status=200):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answers.read(callers.Exchange(1, response.Response(status, {}, content, True)))


def answer(**fields):
    return read({"results": [{"index": 0, "label": "a", "probabilities": [0.75, 0.25]} | fields]})


def test_what_differs_each_time_is_no_part_of_an_answer():
    one = read({"results": [{"label": "a"}], "meta": {"timing_ms": 1}, "model": "x", "usage": {"input_tokens": 3}})
    other = read({"meta": {"timing_ms": 2}, "model": "y", "results": [{"label": "a"}]})

    assert one.outcome == "answered"
    assert one == other


def test_equal_answers_are_no_distance_apart():
    assert answer().answer.distance(answer().answer) == 0.0


def test_numbers_that_moved_are_as_far_as_the_largest():
    assert answer(probabilities=[0.5, 0.5]).answer.distance(answer().answer) == 0.25
    moved = answer(probabilities=[0.7499999, 0.25])
    assert moved.answer.sha256 != answer().answer.sha256
    assert moved.answer.distance(answer().answer) == pytest.approx(1e-7)


@pytest.mark.parametrize(
    "other",
    [
        {"label": "b"},
        {"probabilities": [0.75, 0.25, 0.0]},
        {"selected": ["a"]},
        {"spans": [{"label": "X", "start": 1, "end": 2, "text": "x", "probability": 0.5}]},
    ],
)
def test_another_decision_has_no_distance(other):
    assert answer(**other).answer.distance(answer().answer) is None


def test_documents_in_another_order_are_another_decision():
    ranked = [{"index": 0, "relevance_score": 0.9, "logit": 2.0}, {"index": 1, "relevance_score": 0.1, "logit": -2.0}]
    one, other = read({"results": ranked}), read({"results": ranked[::-1]})

    assert one.answer.distance(other.answer) is None
    assert one.answer.numbers == (2.0, 0.9, -2.0, 0.1)


def test_how_much_was_read_is_compared_for_equality_and_decides_nothing():
    one, other = answer(input={"tokens": 5}), answer(input={"tokens": 6})

    assert one.answer.sha256 != other.answer.sha256
    assert one.answer.distance(other.answer) == 0.0


def test_vectors_are_numbers_whichever_way_a_whole_number_is_spelled():
    one = read(b'{"data": [{"embedding": [1, 0.0]}]}')
    other = read(b'{"data": [{"embedding": [1.0, 0]}]}')

    assert one.answer.numbers == (1.0, 0.0)
    assert one.answer.distance(other.answer) == 0.0


def test_a_surface_of_another_kind_is_compared_as_it_is():
    assert read({"score": 0.5, "decision": "x", "id": "7"}) == read({"score": 0.5, "decision": "x", "id": "8"})


@pytest.mark.parametrize("value", ["null", "true", '"0.5"', "1e999", "NaN"])
def test_a_number_that_is_none_is_a_failure_and_no_answer(value):
    found = read(b'{"results": [{"label": "a", "probabilities": [0.5, %s]}]}' % value.encode())

    assert found.outcome == "failed"
    assert found.answer is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"results": []}', b'{"results": null}', b"\xff"])
def test_a_body_without_results_is_a_failure(body):
    assert read(body).outcome == "failed"


@pytest.mark.parametrize(
    "deep", [b'{"results": ' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"results": [%s]}' % (b"9" * 400)]
)
def test_a_hostile_body_is_read_to_an_outcome(deep):
    assert read(deep).outcome in ("failed", "answered")


def test_an_input_that_the_server_will_not_answer_is_refused_and_not_failed():
    found = read({"results": [{"index": 0, "error": {"code": "max_length_exceeded", "message": "9,000"}}]})

    assert (found.outcome, found.reason) == ("refused", "max_length_exceeded")
    assert found.answer is not None


@pytest.mark.parametrize(
    ("status", "outcome"), [(400, "refused"), (413, "refused"), (404, "failed"), (429, "failed"), (500, "failed")]
)
def test_a_status_says_whether_the_request_or_the_server_is_at_fault(status, outcome):
    found = read({"error": {"code": "some_code", "message": "x"}}, status)

    assert found.outcome == outcome
    assert "some_code" in found.reason


def test_a_status_without_json_is_said():
    assert read(b"Bad gateway", 502).reason == "status 502 without JSON"


def test_what_never_came_failed_for_its_reason():
    assert answers.read(callers.Exchange(failure="timeout")).reason == "timeout"
