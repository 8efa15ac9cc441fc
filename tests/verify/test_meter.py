"""What a meter says: how much is left at the pace so far, and how long it took beside the plan."""

import pytest

from vela.verify import meter


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(meter, "time", made)
    return made


def test_what_is_left_follows_the_pace_so_far(clock):
    said: list[str] = []
    gauge = meter.Meter(said.append, 100.0)
    clock.now += 40.0

    gauge.did("first", 20.0)

    assert gauge.left_s == pytest.approx(160.0)
    assert said == ["  20%, 3 min left: first"]


def test_nothing_is_said_more_often_than_people_read(clock):
    said: list[str] = []
    gauge = meter.Meter(said.append, 1000.0)
    for _ in range(40):
        clock.now += 1.0
        gauge.did("run", 1.0)

    assert said == ["  2%, 16 min left: run", "  3%, 16 min left: run"]


def test_what_an_earlier_run_did_counts_neither_as_planned_nor_as_done(clock):
    gauge = meter.Meter(print, 100.0)
    gauge.skip(70.0)
    with gauge.forward():
        clock.now += 27.0
    clock.now += 3.0

    gauge.did("the rest", 30.0)

    assert gauge.left_s == 0.0
    assert gauge.summary() == "the plan said 30 s; it took 30 s, 90% in forwards"


def test_before_anything_was_done_the_plan_holds(clock):
    gauge = meter.Meter(print, 50.0)
    clock.now += 30.0

    assert gauge.left_s == 50.0


def test_what_no_plan_foresaw_is_told_at_once() -> None:
    told: list[str] = []

    meter.Meter(told.append, 10.0).say("comparing layers")

    assert told == ["  comparing layers"]
