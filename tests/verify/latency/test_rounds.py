"""Rounds: who begins, which ones count, and what whole measurements of two scripted servers come to."""

import pytest
from answering_server import Clock, Reply, answer, refusal

from vela.graphs import errors
from vela.verify.latency import judging, measuring, record, rounds

THREE = rounds.Schedule(3, 2.0)
NOTHING_ALLOWED = record.Limits()


def measure(subjects, surroundings, schedule=THREE, limits=NOTHING_ALLOWED):
    """Measure subjects that a test has prepared, as `measure_rounds` does its own."""
    found = rounds.run_rounds(subjects, schedule, surroundings)
    alone = {one.asked.name: one.given_alone for one in subjects}
    return measuring.summarise([one.asked for one in subjects], subjects[0].requests, limits, found, alone)


def taking(clock, *milliseconds):
    """Script a server whose every answer takes so long, by rounds of twelve requests."""
    asked_count = 0

    def script(asked):
        nonlocal asked_count
        clock.pass_ms(milliseconds[min(asked_count // 12, len(milliseconds) - 1)])
        asked_count += 1
        return answer()

    return script


@pytest.fixture
def pair(make_subject, server, other):
    """Two subjects, in one phase of one caller asked twice, whose time is one clock's."""
    clock = Clock()
    subjects = [make_subject(one, name, (1,), clock=clock, warm_up=6) for one, name in ((server, "a"), (other, "b"))]
    return clock, subjects


def test_who_begins_changes_from_round_to_round(pair, surroundings):
    found = rounds.run_rounds(pair[1], rounds.Schedule(4, None), surroundings())

    assert [one.order for one in found] == [("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")]
    assert [[turn.side for turn in one.turns] for one in found] == [list(one.order) for one in found]


def test_a_round_that_others_disturb_at_its_end_is_run_again_in_the_same_order(pair, surroundings):
    # Two looks a round; the second round's last one is too high.
    loads = [0.1, 0.2, 0.3, 2.5, 0.4, 0.5, 0.6, 0.7]

    found = rounds.run_rounds(pair[1], rounds.Schedule(3, 2.0), surroundings(loads))

    assert [one.order for one in found] == [("a", "b"), ("b", "a"), ("b", "a"), ("a", "b")]
    assert [one.discarded for one in found] == ["", "others' load was 2.5 at its end, above 2", "", ""]
    assert [(one.load.before, one.load.after) for one in found][1] == (0.3, 2.5)
    assert len(found[1].turns) == 2


def test_a_load_that_passes_is_waited_for(pair, surroundings):
    lines: list[str] = []

    found = rounds.run_rounds(pair[1], rounds.Schedule(3, 2.0), surroundings([9.0, 5.0, 1.0], lines))

    assert [one.discarded for one in found] == [""] * 3
    assert lines.count("slept 5") == 2
    assert found[0].load.before == 1.0


def test_a_load_that_stays_ends_the_attempts(pair, surroundings, server):
    found = measure(pair[1], surroundings([9.0] * 1000))

    assert [len(one.turns) for one in found.rounds] == [0] * 6
    assert server.asked == []
    assert found.verdict == "not_compared"
    with pytest.raises(errors.NothingCompared, match="0 rounds that count where 3 are needed; the last reason: "):
        judging.require_passed(found.verdict, found.reasons)


def test_without_a_limit_no_load_disturbs(pair, surroundings):
    found = rounds.run_rounds(pair[1], rounds.Schedule(3, None), surroundings([99.0] * 100))

    assert [one.discarded for one in found] == [""] * 3


def test_a_side_that_is_slower_in_every_round_fails(pair, surroundings, server, other):
    clock, subjects = pair
    server.script, other.script = taking(clock, 5.0, 8.0, 6.0), taking(clock, 6.0, 9.0, 7.0)

    found = measure(subjects, surroundings())
    p50 = next(one for one in found.comparisons if one.figure == "p50")

    assert (p50.actual_ms, p50.expected_ms) == (7.0, 6.0)
    assert (p50.difference_ms.low, p50.difference_ms.mean, p50.difference_ms.high) == pytest.approx((1.0, 1.0, 1.0))
    assert found.verdict == "failed"
    assert found.reasons[0].startswith("b is slower alone: p50 7.00 ms where 6.00 is the first side's; +1.00 ms")


def test_what_is_tolerated_does_not_fail(pair, surroundings, server, other):
    clock, subjects = pair
    server.script, other.script = taking(clock, 5.0), taking(clock, 5.2)

    tolerated = measure(subjects, surroundings(), limits=record.Limits(slower=0.05))

    assert tolerated.verdict == "passed"
    assert {one.verdict for one in tolerated.comparisons} == {"tolerated", ""}


def test_a_mean_beyond_the_tolerance_is_not_enough_where_its_interval_is_not(pair, surroundings, server, other):
    clock, subjects = pair
    server.script, other.script = taking(clock, 10.0), taking(clock, 10.5, 10.6, 10.7)  # 0.6, between 0.35 and 0.85

    found = measure(subjects, surroundings(), limits=record.Limits(slower=0.05))

    assert found.verdict == "passed"
    assert {one.verdict for one in found.comparisons} == {"tolerated", ""}


def test_a_difference_within_the_noise_of_rounds_does_not_fail(pair, surroundings, server, other):
    clock, subjects = pair
    server.script, other.script = taking(clock, 5.0, 8.0, 6.0), taking(clock, 6.0, 7.0, 7.0)

    found = measure(subjects, surroundings())

    assert found.verdict == "passed"
    assert {one.verdict for one in found.comparisons} == {"within_noise", ""}


def test_a_faster_side_passes(pair, surroundings, server, other):
    clock, subjects = pair
    server.script, other.script = taking(clock, 5.0), taking(clock, 2.0)

    found = measure(subjects, surroundings())

    assert found.verdict == "passed"
    assert {one.verdict for one in found.comparisons} == {"faster", ""}


def test_one_failure_in_one_round_fails_whatever_the_times(pair, surroundings, other):
    other.script = lambda asked: Reply(b"", 500) if asked.times == 4 and asked.text == "text 1" else answer()

    found = measure(pair[1], surroundings())

    assert found.verdict == "failed"
    assert found.reasons == ("b: 1 of 18 requests failed: 1 status 500 without JSON",)


def test_a_failure_in_a_warm_up_fails_too(pair, surroundings, other):
    other.script = lambda asked: Reply(b"", 500) if asked.times == 3 and asked.text == "text 1" else answer()

    found = measure(pair[1], surroundings())

    assert found.reasons == ("b: 1 requests of the warm-up failed: 1 status 500 without JSON",)


def test_a_failure_in_a_discarded_round_fails_too(pair, surroundings, other):
    other.script = lambda asked: Reply(None, drops=True) if asked.times == 2 and asked.text == "text 1" else answer()

    found = measure(pair[1], surroundings([0.0, 9.0]))

    assert found.rounds[0].discarded
    assert found.verdict == "failed"
    assert "connection dropped" in found.reasons[0]


def test_a_restart_between_rounds_fails(pair, surroundings, other):
    def script(asked):
        other.started_s = 1000.0 if asked.times < 4 else 2000.0
        return answer()

    other.script = script
    found = measure(pair[1], surroundings())

    assert found.reasons[0] == "b is not what it was: the server began 1000 s later than the one before"


def test_a_side_that_dies_ends_the_rounds(pair, surroundings, other):
    other.close()

    found = measure(pair[1], surroundings())

    assert len(found.rounds) == 1
    assert found.verdict == "failed"
    assert "no connection" in found.reasons[0]


def test_sides_that_answer_other_requests_cannot_be_compared(pair, surroundings, other):
    other.script = lambda asked: refusal() if asked.text == "text 2" else answer()

    found = measure(pair[1], surroundings())

    assert found.verdict == "failed"
    assert "1 requests are answered by it or by the first side only: c2" in found.reasons[0]


def test_sides_that_refuse_everything_are_not_compared(pair, surroundings, server, other):
    server.script = other.script = lambda asked: refusal()

    found = measure(pair[1], surroundings())

    assert found.verdict == "not_compared"


def test_other_answers_between_sides_fail_where_that_was_asked(pair, surroundings, other):
    other.script = lambda asked: answer(probabilities=[0.5, 0.5] if asked.text == "text 4" else [0.75, 0.25])

    free = measure(pair[1], surroundings())
    same = measure(pair[1], surroundings(), limits=record.Limits(is_same=True))
    near = measure(pair[1], surroundings(), limits=record.Limits(is_same=True, answers=0.3))

    assert (free.verdict, near.verdict) == ("passed", "passed")
    assert same.reasons == ("b: 1 of 6 answers are not the first side's: c4 alone is 2.5e-01 off",)
    assert (free.between[0].equal, free.between[0].compared, free.between[0].max_abs) == (5, 6, 0.25)


def test_another_label_is_beyond_every_tolerance(pair, surroundings, other):
    other.script = lambda asked: answer(label="b" if asked.text == "text 4" else "a")

    found = measure(pair[1], surroundings(), limits=record.Limits(is_same=True, answers=1.0))

    assert found.reasons == ("b: 1 of 6 answers are not the first side's: c4 alone decides otherwise",)


def test_other_answers_under_load_fail_beyond_the_tolerance(make_subject, server, other, surroundings):
    def script(asked):
        return answer(probabilities=[0.75001, 0.25] if asked.times % 2 == 0 else [0.75, 0.25])

    other.script = script

    def judged(tolerance):
        subjects = [make_subject(server, "a"), make_subject(other, "b")]
        return measure(subjects, surroundings(), limits=record.Limits(answers=tolerance, slower=1e9))

    exact, near = judged(0.0), judged(1e-4)

    assert exact.reasons[0].startswith("b: 18 of 36 answers are not the ones given alone: c0 with 4 callers is 1.0e-05")
    assert near.verdict == "passed"
    assert sum(len(turn.differing) for one in near.rounds for turn in one.turns) == 18


def test_the_same_server_can_be_two_sides_by_its_options(make_subject, server, surroundings):
    subjects = [make_subject(server, "exact"), make_subject(server, "batching", profile="batching")]

    found = measure(subjects, surroundings(), limits=record.Limits(slower=1e9))

    assert found.verdict == "passed"
    assert [one.options for one in found.sides] == [{}, {"profile": "batching"}]
    assert {str(asked.body.get("options")) for asked in server.asked} == {"None", "{'profile': 'batching'}"}


def test_three_sides_are_each_compared_with_the_first(make_subject, server, surroundings):
    subjects = [make_subject(server, name) for name in "abc"]

    found = measure(subjects, surroundings(), limits=record.Limits(slower=1e9))

    assert [one.order[0] for one in found.rounds] == ["a", "b", "c"]
    assert [one.side for one in found.comparisons] == ["b"] * 8 + ["c"] * 8


def test_two_rounds_are_too_few_to_say(pair, surroundings):
    found = measure(pair[1], surroundings(), rounds.Schedule(2, None))

    assert (found.verdict, found.comparisons) == ("not_compared", ())


def test_a_run_is_judged_by_its_failures_restarts_and_answers(make_subject, server):
    clean = judging.judge_run(make_subject(server).take_turn(), 0.0)
    server.script = lambda asked: refusal()
    nothing = judging.judge_run(make_subject(server).take_turn(), 0.0)
    server.script = lambda asked: answer() if asked.text != "text 0" else Reply(b"", 503)
    failing = judging.judge_run(make_subject(server).take_turn(), 0.0)

    assert (clean.verdict, nothing.verdict, failing.verdict) == ("passed", "not_compared", "failed")
    assert nothing.reasons == ("a answered none of 6 requests: 6 max_length_exceeded",)
    assert failing.reasons == ("a: 2 of 12 requests failed: 2 status 503 without JSON",)
