"""The lane: order, bounds, stops and death. Work is held by events, never by sleeping."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vela.graphs import errors
from vela.serve.lane import Job, Lane

PATIENCE_S = 10.0


class Step:
    """Work that waits until it is released, and remembers that it ran."""

    def __init__(self, number: int, log: list[int], *, tokens: int = 1, held: bool = False) -> None:
        self.number = number
        self.tokens = tokens
        self.started = threading.Event()
        self.release = threading.Event()
        self._log = log
        if not held:
            self.release.set()

    def run(self, run_options: Any = None) -> NDArray[np.float32]:
        self._log.append(self.number)
        self.started.set()
        while not self.release.wait(0.001):
            if run_options.terminate:
                raise stopped("unavailable")
        return np.float32([self.number])


class Bug:
    tokens = 1

    def run(self, run_options: Any = None) -> NDArray[np.float32]:
        raise RuntimeError("a bug")


def stopped(code: str) -> errors.ItemError:
    return errors.ItemError(code, "a stop", expected="an end", where="test", fix="None.")


def ends_with(job: Job) -> BaseException | None:
    return job.future.exception(PATIENCE_S)


def submit_until_refused(lane: Lane) -> None:
    while True:
        lane.submit([Step(0, [])])


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane("cpu", limit_tokens=10)
    yield made
    made.close()


def test_work_runs_in_the_order_in_which_it_came(lane: Lane) -> None:
    log: list[int] = []

    jobs = [job for number in range(8) for job in lane.submit([Step(number, log)])]

    assert [job.future.result(PATIENCE_S).item() for job in jobs] == list(range(8))
    assert log == list(range(8))


def test_a_job_knows_when_it_was_queued_started_and_finished(lane: Lane) -> None:
    job = lane.submit([Step(0, [])])[0]
    job.future.result(PATIENCE_S)

    assert job.queued_s <= job.started_s <= job.finished_s


def test_a_full_queue_refuses_and_queues_nothing(lane: Lane) -> None:
    log: list[int] = []
    blocker = Step(0, log, held=True)
    first = lane.submit([blocker])
    assert blocker.started.wait(PATIENCE_S)
    waiting = lane.submit([Step(1, log, tokens=8)])

    with pytest.raises(errors.Overloaded):
        lane.submit([Step(2, log, tokens=2), Step(3, log, tokens=1)])

    assert lane.waiting_tokens == 8
    blocker.release.set()
    assert [ends_with(job) for job in (*first, *waiting)] == [None, None]
    assert log == [0, 1]


def test_a_request_larger_than_the_bound_runs_when_nothing_waits(lane: Lane) -> None:
    job = lane.submit([Step(0, [], tokens=1000)])[0]

    assert ends_with(job) is None


def test_a_stopped_job_that_waits_never_runs_and_frees_its_place(lane: Lane) -> None:
    log: list[int] = []
    blocker = Step(0, log, held=True)
    lane.submit([blocker])
    assert blocker.started.wait(PATIENCE_S)
    waiting = lane.submit([Step(1, log, tokens=10)])[0]

    waiting.stop(stopped("deadline_exceeded"))
    follower = lane.submit([Step(2, log, tokens=10)])[0]
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
    blocker.release.set()
    closer.join(PATIENCE_S)

    assert ends_with(running) is None
    assert isinstance(ends_with(waiting), errors.NotReady)


def test_a_stop_races_with_the_end_and_resolves_once(lane: Lane) -> None:
    for number in range(300):
        job = lane.submit([Step(number, [])])[0]
        job.stop(stopped("deadline_exceeded"))
        outcome: Future[NDArray[np.float32]] = job.future
        assert outcome.exception(PATIENCE_S) is None or isinstance(outcome.exception(), errors.ItemError)
