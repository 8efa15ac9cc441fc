"""A side's turn: what is timed, what counts as a failure, which answers are others under load, and restarts."""

import pytest
from answering_server import Clock, Reply, answer, refusal

from vela.verify.latency import subject


def phases_of(turn):
    return {phase.concurrency: phase for phase in turn.phases}


def test_a_turn_asks_everything_in_each_phase_after_the_warm_up(make_subject, server):
    turn = make_subject(server, warm_up=2).take_turn()

    assert [asked.text for asked in server.asked[:4]] == ["text 0", "text 1", "text 0", "text 1"]
    assert len(server.asked) == 2 + 6 + 6
    assert [(phase.concurrency, phase.answered, phase.requests) for phase in turn.phases] == [(1, 6, 6), (4, 6, 6)]
    assert turn.restarts == ()
    assert turn.differing == ()


def test_figures_are_those_of_the_clock(make_subject, server):
    clock = Clock()
    times = {f"text {number}": ms for number, ms in enumerate([4.0, 1.0, 2.0, 9.0, 3.0, 5.0])}

    def script(asked):
        clock.pass_ms(times[asked.text])
        return answer()

    server.script = script
    (phase,) = make_subject(server, concurrency=(1,), clock=clock).take_turn().phases

    assert phase.latency_ns == tuple(int(ms * 1e6) for ms in times.values())
    assert phase.quantiles is not None
    assert (phase.quantiles.p50_ms, phase.quantiles.p95_ms, phase.quantiles.mean_ms) == (3.0, 9.0, 4.0)
    assert phase.seconds == pytest.approx(0.024)
    assert phase.per_s == pytest.approx(250.0)


def test_refused_and_failed_requests_are_counted_and_not_timed(make_subject, server):
    replies = {"text 0": refusal(), "text 1": Reply(b"oops", 500), "text 2": Reply(None, drops=True)}
    server.script = lambda asked: replies.get(asked.text, answer())

    (phase,) = make_subject(server, concurrency=(1,)).take_turn().phases

    assert phase.refused == {"max_length_exceeded": 1}
    assert phase.failures == {"status 500 without JSON": 1, "connection dropped": 1}
    assert phase.latency_ns[:3] == (None, None, None)
    assert phase.answered == 3


def test_an_answer_under_load_that_is_another_is_listed_with_its_distance(make_subject, server):
    def script(asked):
        moved = asked.text == "text 3" and asked.times == 2  # in company
        return answer(probabilities=[0.7500001, 0.25]) if moved else answer()

    server.script = script
    (found,) = make_subject(server).take_turn().differing

    assert (found.id, found.concurrency) == ("c3", 4)
    assert found.max_abs == pytest.approx(1e-7)
    assert found.actual_sha256 != found.expected_sha256


def test_another_label_under_load_has_no_distance(make_subject, server):
    server.script = lambda asked: answer(label="b" if asked.times == 2 and asked.text == "text 0" else "a")

    (found,) = make_subject(server).take_turn().differing

    assert found.max_abs is None


def test_a_refusal_under_load_of_what_was_answered_alone_differs(make_subject, server):
    server.script = lambda asked: refusal() if asked.times == 2 and asked.text == "text 0" else answer()

    turn = make_subject(server).take_turn()

    assert [(one.id, one.max_abs) for one in turn.differing] == [("c0", None)]


def test_later_turns_are_held_against_the_first_answers_alone(make_subject, server):
    server.script = lambda asked: answer(probabilities=[0.75, 0.25] if asked.times <= 2 else [0.5, 0.5])
    one = make_subject(server)

    first, second = one.take_turn(), one.take_turn()

    assert first.differing == ()
    assert {found.max_abs for found in second.differing} == {0.25}
    assert len(second.differing) == 12
    assert [found.numbers for found in one.given_alone if found] == [(0.75, 0.25)] * 6


def test_the_servers_own_account_is_its_median(make_subject, server):
    times = iter([1.0, 9.0, 2.0, 3.0, 4.0, 5.0])

    def script(asked):
        timing = f"parse;dur=0.5, forward;desc=x;dur={next(times)}, cache, bad;dur=nan, worse;dur=x"
        return Reply(answer().body, headers={"Server-Timing": timing})

    server.script = script
    (phase,) = make_subject(server, concurrency=(1,)).take_turn().phases

    assert phase.stages_ms == {"parse": 0.5, "forward": 3.5}


def test_who_answers_is_recorded(make_subject, server):
    turn = make_subject(server).take_turn()

    assert turn.identity.models == {"m": {"model_sha256": "f" * 64, "engine": "e 1", "device": "cpu"}}
    assert turn.identity.started_s == 1000.0
    assert turn.identity.process is not None


def test_a_server_that_says_nothing_of_itself_is_measured_all_the_same(make_subject, server):
    server.card = server.started_s = None

    turn = make_subject(server).take_turn()

    assert (turn.identity.models, turn.identity.started_s, turn.restarts) == ({}, None, ())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"started_s": 1060.0}, "the server began 60 s later than the one before"),
        ({"card": {"id": "m", "model_sha256": "0" * 64, "engine": "e 1", "device": "cpu"}}, "model m changed"),
        ({"card": {"id": "n"}}, "model m changed"),
        ({"card": None}, "lists no models any more"),
    ],
)
def test_a_change_during_a_turn_is_said(make_subject, server, change, said):
    def script(asked):
        for name, value in change.items():
            setattr(server, name, value)
        return answer()

    server.script = script
    turn = make_subject(server).take_turn()

    assert any(said in restart for restart in turn.restarts)


def test_a_change_between_turns_is_said(make_subject, server):
    one = make_subject(server)
    first = one.take_turn()
    server.started_s = 2000.0

    assert first.restarts == ()
    assert one.take_turn().restarts == ("the server began 1000 s later than the one before",)


def test_a_server_that_dies_fails_every_later_request(make_subject, server):
    server.close()

    turn = make_subject(server).take_turn()

    assert [phase.answered for phase in turn.phases] == [0, 0]
    assert phases_of(turn)[1].quantiles is None


def test_the_first_phase_is_one_caller_alone():
    with pytest.raises(ValueError, match="one caller alone"):
        subject.Method((4, 16))
