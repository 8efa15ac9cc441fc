"""What runs next, and with whom."""

from steps import Step, ends_with, number_of

from vela.serve.lane import Lane


def test_work_runs_in_the_order_in_which_it_came(lane: Lane) -> None:
    log: list[int] = []

    jobs = [job for number in range(8) for job in lane.submit([Step(number, log)])]

    assert [number_of(job) for job in jobs] == list(range(8))
    assert log == list(range(8))


def test_a_job_knows_when_it_was_queued_started_and_finished(lane: Lane) -> None:
    job = lane.submit([Step(0, [])])[0]
    assert ends_with(job) is None

    assert job.queued_s <= job.started_s <= job.finished_s


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
