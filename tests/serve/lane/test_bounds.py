"""What a lane refuses, and for how long others may hold a request up."""

import threading
from collections.abc import Iterator

import pytest
from steps import PATIENCE_S, Step, ends_with, stopped

from vela.graphs import errors
from vela.serve.job import Job
from vela.serve.lane import Bounds, Lane


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


class Impatient:
    """A lane where a request may wait 5 s behind others, by a clock that tests move, while 2 s of others wait."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.lane = Lane("cpu", Bounds(wait_s=10.0, certainty=0.8, patience=0.5), clock=lambda: self.now_s)
        self.log: list = []
        self.blocker = Step(0, self.log, held=True)
        self.lane.submit([self.blocker])
        assert self.blocker.started.wait(PATIENCE_S)

    def submit(self, *numbers: int, seconds: float) -> list[Job]:
        return self.lane.submit([Step(number, self.log, seconds=seconds) for number in numbers])

    def go_on(self) -> None:
        """Let it run what waits, all of which is overdue by now."""
        self.now_s += 6.0
        self.blocker.release.set()


@pytest.fixture
def impatient() -> Iterator[Impatient]:
    made = Impatient()
    yield made
    made.blocker.release.set()
    made.lane.close()


def test_what_waited_too_long_is_refused_after_all_while_others_would_be_late_too(impatient: Impatient) -> None:
    """Seven times 1 s wait: the first found nothing waiting; of the others those go that more than 2 s wait behind."""
    jobs = [impatient.submit(number, seconds=1.0)[0] for number in range(1, 8)]

    impatient.go_on()

    ended = [ends_with(job) for job in jobs]
    assert [type(error) for error in ended] == [type(None), *[errors.Overloaded] * 3, *[type(None)] * 3]
    assert ended[1].retry_after_s >= 1.0
    assert impatient.log == [0, 1, 5, 6, 7]


def test_what_waited_too_long_behind_one_long_run_is_answered_late(impatient: Impatient) -> None:
    """Nobody else would be late because of it."""
    jobs = [impatient.submit(number, seconds=0.1)[0] for number in range(1, 8)]

    impatient.go_on()

    assert [ends_with(job) for job in jobs] == [None] * 7
    assert impatient.log == list(range(8))


def test_what_waits_alone_is_answered_however_late_and_long_it_is(impatient: Impatient) -> None:
    held = Step(1, impatient.log, held=True)
    impatient.lane.submit([held])
    alone = impatient.submit(2, seconds=5.0)[0]
    impatient.blocker.release.set()
    assert held.started.wait(PATIENCE_S)
    impatient.now_s += 6.0

    held.release.set()

    assert ends_with(alone) is None


def test_a_request_that_has_begun_is_not_given_up(impatient: Impatient) -> None:
    impatient.submit(1, seconds=1.0)
    second = Step(3, impatient.log, held=True)
    begun = impatient.lane.submit([Step(2, impatient.log), second, Step(4, impatient.log)])
    impatient.blocker.release.set()
    assert second.started.wait(PATIENCE_S)
    impatient.submit(5, seconds=3.0)
    impatient.now_s += 6.0

    second.release.set()

    assert [ends_with(job) for job in begun] == [None] * 3


def test_a_request_is_given_up_whole(impatient: Impatient) -> None:
    impatient.submit(1, seconds=1.0)
    late = impatient.submit(2, 3, seconds=1.0)
    follower = impatient.submit(4, seconds=3.0)

    impatient.go_on()

    assert [type(ends_with(job)) for job in late] == [errors.Overloaded] * 2
    assert ends_with(follower[0]) is None
    assert impatient.log == [0, 1, 4]


def test_a_patient_request_is_neither_refused_nor_given_up(impatient: Impatient) -> None:
    impatient.submit(1, seconds=9.0)
    patient = impatient.lane.submit([Step(2, impatient.log, seconds=100.0)], is_patient=True)
    others = [impatient.submit(number, seconds=1.0)[0] for number in (3, 4, 5)]

    impatient.go_on()

    assert ends_with(patient[0]) is None
    assert all(isinstance(ends_with(job), errors.Overloaded | None) for job in others)


def test_nothing_is_called_hung_of_which_nothing_is_known_yet() -> None:
    """A graph's first run may take long: it is recorded, or kernels are looked for."""
    lane = Lane("cpu", Bounds(pulse_s=0.002, hang_s=0.0, hang_factor=0.0, first_s=100.0))
    first, second = Step(0, [], seconds=0.0, held=True), Step(1, [], seconds=1e-6, held=True)
    job = lane.submit([first])[0]
    assert first.started.wait(PATIENCE_S)
    assert lane._allowed_s(lane._run) == 100.0
    first.release.set()
    assert ends_with(job) is None

    assert isinstance(ends_with(lane.submit([second])[0]), errors.NotReady)
    second.release.set()
    lane.close()
