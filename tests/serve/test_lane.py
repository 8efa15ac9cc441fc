"""The lane: order, bounds, stops and death. Work is held by events, never by sleeping."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vela.graphs import errors
from vela.serve.job import Job
from vela.serve.lane import Bounds, Lane

PATIENCE_S = 10.0


class Step:
    """Work that waits until it is released, and remembers that it ran and with whom."""

    def __init__(
        self, number: int, log: list, *, seconds: float = 1.0, held: bool = False, key: str = "", most: int = 1
    ) -> None:
        self.number = number
        self.tokens = self.seconds = seconds
        self.key, self.most_rows = key, most
        self.started = threading.Event()
        self.release = threading.Event()
        self._log = log
        if not held:
            self.release.set()

    def run_with(self, mates, run_options: Any = None) -> list[NDArray[np.float32]]:
        together = [self, *mates]
        self._log.append([one.number for one in together] if mates else self.number)
        self.started.set()
        while not self.release.wait(0.001):
            if run_options.terminate:
                raise stopped("unavailable")
        return [np.float32([one.number]) for one in together]


class Bug(Step):
    def __init__(self) -> None:
        super().__init__(0, [])

    def run_with(self, mates, run_options: Any = None) -> list[NDArray[np.float32]]:
        raise RuntimeError("a bug")


def stopped(code: str) -> errors.ItemError:
    return errors.ItemError(code, "a stop", expected="an end", where="test", fix="None.")


def ends_with(job: Job) -> BaseException | None:
    """Wait for a job; give the error that it ended with."""
    ended = threading.Event()
    job.outcome.listen(ended.set)
    assert ended.wait(PATIENCE_S)
    try:
        job.outcome.result()
    except errors.VelaError as error:
        return error
    return None


def number_of(job: Job) -> float:
    """Wait for a job; give what it gave."""
    assert ends_with(job) is None
    return job.outcome.result().item()


def submit_until_refused(lane: Lane) -> None:
    while True:
        lane.submit([Step(0, [])])


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane("cpu", Bounds(wait_s=10.0, certainty=1.0, tokens=100))
    yield made
    made.close()


def test_work_runs_in_the_order_in_which_it_came(lane: Lane) -> None:
    log: list[int] = []

    jobs = [job for number in range(8) for job in lane.submit([Step(number, log)])]

    assert [number_of(job) for job in jobs] == list(range(8))
    assert log == list(range(8))


def test_a_job_knows_when_it_was_queued_started_and_finished(lane: Lane) -> None:
    job = lane.submit([Step(0, [])])[0]
    assert ends_with(job) is None

    assert job.queued_s <= job.started_s <= job.finished_s


@pytest.fixture
def held(lane: Lane) -> Iterator[tuple[Step, list]]:
    """Keep the lane at work, and give the log of what it runs after that."""
    log: list = []
    blocker = Step(0, [], held=True)
    lane.submit([blocker])
    assert blocker.started.wait(PATIENCE_S)
    yield blocker, log
    blocker.release.set()


def test_a_full_queue_refuses_and_queues_nothing(lane: Lane, held) -> None:
    blocker, log = held
    waiting = lane.submit([Step(1, log, seconds=8)])
    lane.submit([Step(2, log, seconds=3)])

    with pytest.raises(errors.Overloaded) as refused:
        lane.submit([Step(3, log, seconds=4), Step(4, log, seconds=4)])

    assert refused.value.retry_after_s == 1.0  # it would wait for 8 and 3 s, where 10 are allowed
    assert lane.waiting_s == 11
    blocker.release.set()
    assert ends_with(waiting[0]) is None


def test_a_short_request_is_taken_where_a_long_one_is_not(lane: Lane, held) -> None:
    lane.submit([Step(number, [], seconds=4) for number in range(10)])

    assert lane.submit([Step(1, [], seconds=1)])
    with pytest.raises(errors.Overloaded):
        lane.submit([Step(1, [], seconds=40)])


def test_more_than_fits_into_memory_is_refused_however_soon_it_would_run(lane: Lane, held) -> None:
    lane.submit([Step(number, [], seconds=10) for number in range(10)])

    with pytest.raises(errors.Overloaded):
        lane.submit([Step(1, [], seconds=1)])


def test_a_request_larger_than_the_bound_runs_when_nothing_waits(lane: Lane) -> None:
    job = lane.submit([Step(0, [], seconds=1000)])[0]

    assert ends_with(job) is None


def test_a_scan_holds_a_short_request_for_one_of_its_windows_at_most(lane: Lane, held) -> None:
    blocker, log = held
    scan = lane.submit([Step(10 + number, log) for number in range(5)])

    short = lane.submit([Step(1, log)])
    blocker.release.set()

    assert [ends_with(job) for job in (*scan, *short)] == [None] * 6
    assert log == [10, 1, 11, 12, 13, 14]


def test_two_scans_share_the_lane(lane: Lane, held) -> None:
    blocker, log = held
    first = lane.submit([Step(10 + number, log) for number in range(3)])
    second = lane.submit([Step(20 + number, log) for number in range(3)])
    blocker.release.set()

    assert [ends_with(job) for job in (*first, *second)] == [None] * 6
    assert log == [10, 20, 11, 21, 12, 22]


def test_rows_of_one_key_that_wait_go_together_up_to_what_was_proven(lane: Lane, held) -> None:
    blocker, log = held
    alike = [lane.submit([Step(number, log, key="a", most=3)])[0] for number in range(1, 6)]
    other = lane.submit([Step(9, log, key="b", most=3)])[0]
    blocker.release.set()

    assert [number_of(job) for job in (*alike, other)] == [1, 2, 3, 4, 5, 9]
    assert log == [[1, 2, 3], [4, 5], 9]


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
    blocker.release.set()
    closer.join(PATIENCE_S)

    assert ends_with(running) is None
    assert isinstance(ends_with(waiting), errors.NotReady)


def test_a_stop_races_with_the_end_and_resolves_once(lane: Lane) -> None:
    for number in range(300):
        job = lane.submit([Step(number, [])])[0]
        job.stop(stopped("deadline_exceeded"))
        assert isinstance(ends_with(job), errors.ItemError | None)


def test_a_lane_that_is_slower_than_expected_takes_less(lane: Lane) -> None:
    """Runs that are said to take a hundredth of a second and take more teach the lane to refuse sooner."""
    for number in range(40):
        held = Step(number, [], seconds=1e-5, held=True)
        job = lane.submit([held])[0]
        assert held.started.wait(PATIENCE_S)
        threading.Event().wait(0.001)
        held.release.set()
        assert ends_with(job) is None
    blocker = Step(0, [], held=True)
    lane.submit([blocker])
    assert blocker.started.wait(PATIENCE_S)
    lane.submit([Step(1, [], seconds=2)])  # of 10 that may wait, if the lane kept to its estimates

    with pytest.raises(errors.Overloaded):
        lane.submit([Step(2, [], seconds=2)])

    blocker.release.set()


def test_what_a_wait_is_expected_to_be_is_not_moved_by_what_is_learnt_meanwhile(lane: Lane, held) -> None:
    """Costs are corrected by every run, between a job's coming and its going."""
    _, log = held
    step, other = Step(1, log, seconds=2.0), Step(2, log, seconds=3.0)
    jobs = [*lane.submit([step]), *lane.submit([other])]
    step.seconds = 50.0

    jobs[0].stop(stopped("unavailable"))

    assert lane.waiting_s == 3.0


def test_a_lane_that_is_never_idle_keeps_no_trace_of_what_it_was_given(lane: Lane, held) -> None:
    blocker, log = held
    jobs = [lane.submit([Step(number, log, seconds=1e-4)])[0] for number in range(2000)]
    blocker.release.set()
    assert [ends_with(job) for job in jobs] == [None] * 2000

    assert ends_with(lane.submit([Step(0, log)])[0]) is None
    assert lane._calls.qsize() <= 1


def test_turns_of_many_requests_are_in_the_order_of_their_coming(lane: Lane, held) -> None:
    blocker, log = held
    jobs = [lane.submit([Step(number, log, seconds=1e-3)])[0] for number in range(500)]
    blocker.release.set()

    assert [ends_with(job) for job in jobs] == [None] * 500
    assert log == list(range(500))
