"""Stops, hangs, bugs and closing: every caller gets one outcome."""

import threading
from typing import Any

import numpy as np
import pytest
from steps import PATIENCE_S, Bug, Step, ends_with, number_of, stopped

from vela.graphs import errors
from vela.serve.lane import Bounds, Lane


def submit_until_refused(lane: Lane) -> None:
    while True:
        lane.submit([Step(0, [], seconds=0.0)])


def test_a_shared_run_is_ended_only_when_nobody_waits_for_it(lane: Lane, held) -> None:
    blocker, log = held
    steps = [Step(number, log, key="a", most=3, held=True) for number in range(1, 4)]
    first, second, third = (lane.submit([step])[0] for step in steps)
    blocker.release.set()
    assert steps[0].started.wait(PATIENCE_S)

    first.stop(stopped("deadline_exceeded"))
    second.stop(stopped("deadline_exceeded"))
    steps[0].release.set()

    assert isinstance(ends_with(first), errors.ItemError)
    assert number_of(third) == 3


def test_a_shared_run_that_nobody_waits_for_is_ended(lane: Lane, held) -> None:
    blocker, log = held
    steps = [Step(number, log, key="a", most=2, held=True) for number in range(1, 3)]
    jobs = [lane.submit([step])[0] for step in steps]
    blocker.release.set()
    assert steps[0].started.wait(PATIENCE_S)

    for job in jobs:
        job.stop(stopped("deadline_exceeded"))

    assert ends_with(lane.submit([Step(5, log)])[0]) is None
    assert log == [[1, 2], 5]


def test_a_run_that_hangs_fails_every_caller_and_the_lane_says_so() -> None:
    died = threading.Event()
    bounds = Bounds(pulse_s=0.01, hang_s=0.02, hang_factor=0.0)
    lane = Lane("cpu", bounds, on_death=died.set)
    stuck = threading.Event()

    class Stuck(Step):
        def run_with(self, mates, run_options: Any = None):
            stuck.wait(PATIENCE_S)  # whatever it is told
            return [np.float32([0])]

    jobs = [*lane.submit([Stuck(0, [])]), *lane.submit([Step(1, [])])]

    assert died.wait(PATIENCE_S)
    assert all(isinstance(ends_with(job), errors.NotReady) for job in jobs)
    assert lane.death.startswith("a run of 1 rows has not ended after")
    lane.close()
    stuck.set()


def test_a_run_is_given_the_time_that_is_expected_of_it() -> None:
    lane = Lane("cpu", Bounds(pulse_s=0.005, hang_s=0.0, hang_factor=20.0))
    slow = Step(0, [], seconds=10.0, held=True)
    job = lane.submit([slow])[0]
    assert slow.started.wait(PATIENCE_S)
    watched = threading.Event()
    watched.wait(0.05)

    assert lane.death is None
    slow.release.set()
    assert ends_with(job) is None
    lane.close()


def test_a_thousand_requests_that_are_given_up_leave_no_trace(lane: Lane, held) -> None:
    blocker, log = held
    for number in range(1000):
        lane.submit([Step(number, log, seconds=0.01)])[0].stop(stopped("unavailable"))
    assert (lane.waiting_tokens, lane.waiting_s) == (0, 0.0)

    blocker.release.set()
    jobs = [lane.submit([Step(number, log, seconds=0.001)])[0] for number in range(20)]

    assert [ends_with(job) for job in jobs] == [None] * 20
    assert log == list(range(20))


def test_a_stopped_job_that_waits_never_runs_and_frees_its_place(lane: Lane) -> None:
    log: list[int] = []
    blocker = Step(0, log, held=True)
    lane.submit([blocker])
    assert blocker.started.wait(PATIENCE_S)
    waiting = lane.submit([Step(1, log, seconds=10)])[0]

    waiting.stop(stopped("deadline_exceeded"))
    follower = lane.submit([Step(2, log, seconds=10)])[0]
    blocker.release.set()

    assert ends_with(follower) is None
    assert isinstance(ends_with(waiting), errors.ItemError)
    assert log == [0, 2]


def test_a_running_job_is_ended_and_the_next_one_runs(lane: Lane) -> None:
    log: list[int] = []
    endless = Step(0, log, held=True)
    job = lane.submit([endless])[0]
    assert endless.started.wait(PATIENCE_S)

    reason = stopped("deadline_exceeded")
    job.stop(reason)

    assert ends_with(job) is reason
    assert ends_with(lane.submit([Step(1, log)])[0]) is None


def test_an_input_that_fails_does_not_harm_the_lane(lane: Lane) -> None:
    failing = Step(0, [], held=True)
    job = lane.submit([failing])[0]
    assert failing.started.wait(PATIENCE_S)
    job.stop(stopped("unavailable"))

    assert ends_with(lane.submit([Step(1, [])])[0]) is None
    assert lane.death is None


def test_a_bug_fails_every_caller_and_the_lane_says_so() -> None:
    died = threading.Event()
    lane = Lane("cpu", on_death=died.set)
    blocker = Step(0, [], held=True)
    lane.submit([blocker])
    assert blocker.started.wait(PATIENCE_S)
    jobs = lane.submit([Bug(), Step(1, [])])

    blocker.release.set()

    assert died.wait(PATIENCE_S)
    assert all(isinstance(ends_with(job), errors.NotReady) for job in jobs)
    assert lane.death == "RuntimeError: a bug"
    with pytest.raises(errors.NotReady):
        lane.submit([Step(2, [])])


def test_closing_fails_what_waits_and_refuses_what_comes() -> None:
    lane = Lane("cpu")
    blocker = Step(0, [], held=True)
    running = lane.submit([blocker])[0]
    assert blocker.started.wait(PATIENCE_S)
    waiting = lane.submit([Step(1, [])])[0]
    closer = threading.Thread(target=lane.close)
    closer.start()

    with pytest.raises(errors.NotReady):
        submit_until_refused(lane)
    assert isinstance(ends_with(waiting), errors.NotReady)  # and not only when the run has ended
    blocker.release.set()
    closer.join(PATIENCE_S)

    assert ends_with(running) is None


def test_a_stop_races_with_the_end_and_resolves_once(lane: Lane) -> None:
    for number in range(300):
        job = lane.submit([Step(number, [])])[0]
        job.stop(stopped("deadline_exceeded"))
        assert isinstance(ends_with(job), errors.ItemError | None)
