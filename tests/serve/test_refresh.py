"""A newer bundle is served when it can be; one that cannot leaves the older at work, and says why."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from steps import PATIENCE_S, Step, ends_with

from vela.graphs import bundle as bundles
from vela.graphs import errors, store
from vela.serve import forward, registry
from vela.serve.lane import Bounds, Lane


class Published:
    """A model's pointer in a store, moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = store.PublishedBundle("mood", folder, "first")

    def find(self) -> store.PublishedBundle:
        return self.now


@pytest.fixture
def published(bags: dict[str, Path]) -> Published:
    return Published(bags["mood"])


@pytest.fixture
def serving(published: Published) -> Iterator[registry.Registry]:
    made = registry.Registry(registry.Plan((registry.Source("mood", published.find),)))
    assert made.load() == []
    yield made
    made.close()


@pytest.fixture
def newer(bags: dict[str, Path], make_bundle) -> store.PublishedBundle:
    head = bundles.Bundle.open(bags["mood"]).manifest.head()
    return store.PublishedBundle("mood", make_bundle("mood", head, np.ones((259, 3), np.float32)), "second")


def test_nothing_new_changes_nothing(serving: registry.Registry) -> None:
    before = serving.entries["mood"]

    assert serving.refresh() == []
    assert serving.entries["mood"] is before


def test_a_newer_bundle_takes_over(serving: registry.Registry, published: Published, newer) -> None:
    before = serving.find("mood")
    published.now = newer

    (entry,) = serving.refresh()

    assert (entry.status, entry.digest) == ("ready", "second")
    assert serving.find("mood") is entry.model is not before
    assert serving.refresh() == []


def test_one_that_cannot_be_served_leaves_the_older_at_work_and_is_tried_once(
    serving: registry.Registry, published: Published, tmp_path: Path
) -> None:
    before = serving.find("mood")
    published.now = store.PublishedBundle("mood", tmp_path, "broken")

    (entry,) = serving.refresh()

    assert entry.status == "degraded"
    assert "cannot be served" in entry.reason
    assert serving.find("mood") is before
    assert serving.problems() == {}
    assert serving.refresh() == []


def test_when_it_is_taken_back_the_model_is_ready_again(
    serving: registry.Registry, published: Published, tmp_path: Path
) -> None:
    good = published.now
    published.now = store.PublishedBundle("mood", tmp_path, "broken")
    serving.refresh()
    published.now = good

    (entry,) = serving.refresh()

    assert (entry.status, entry.reason) == ("ready", "")
    assert serving.refresh() == []


def test_after_one_that_cannot_a_better_one_is_served(
    serving: registry.Registry, published: Published, newer, tmp_path: Path
) -> None:
    published.now = store.PublishedBundle("mood", tmp_path, "broken")
    serving.refresh()
    published.now = newer

    (entry,) = serving.refresh()

    assert (entry.status, entry.digest, entry.refused) == ("ready", "second", "")


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads that ran forwards since."""
    found: list[str] = []
    run_together = forward.run_together

    def noted(*arguments):
        found.append(threading.current_thread().name)
        return run_together(*arguments)

    monkeypatch.setattr(forward, "run_together", noted)
    return found


def test_the_first_runs_are_made_by_the_thread_that_callers_forwards_run_in(
    serving: registry.Registry, published: Published, newer, threads: list[str]
) -> None:
    """CUDA records a graph's run for each thread: the first caller would pay for that."""
    published.now = newer

    serving.refresh()

    graphs = len(serving.find("mood").loaded)
    assert threads.count("lane-cpu") >= graphs > 0


@pytest.fixture
def busy(serving: registry.Registry) -> Iterator[tuple[Lane, Step]]:
    """Put a lane that is at work, and whose queue is full with one token more, under a registry."""
    lane, blocker = Lane("cpu", Bounds(tokens=10)), Step(0, [], held=True)
    serving.lanes = dict.fromkeys(serving.lanes, lane)
    lane.submit([blocker])
    assert blocker.started.wait(PATIENCE_S)
    yield lane, blocker
    blocker.release.set()
    lane.close()


def stop_during(work: threading.Thread, made: registry.Registry, blocker: Step) -> None:
    """Stop a registry; what it was at must end before the run that holds its lane does."""
    stopping = threading.Thread(target=made.close)
    stopping.start()
    work.join(PATIENCE_S)
    assert not work.is_alive()
    blocker.release.set()
    stopping.join(PATIENCE_S)


def wait_for_more_than(lane: Lane, tokens: int) -> None:
    turns = 10_000
    while lane.waiting_tokens <= tokens and turns:
        threading.Event().wait(PATIENCE_S / 10_000)
        turns -= 1
    assert lane.waiting_tokens > tokens


def test_a_newer_bundle_waits_for_its_turn_behind_a_full_queue_and_takes_over(
    serving: registry.Registry, published: Published, newer, busy: tuple[Lane, Step]
) -> None:
    lane, blocker = busy
    waiting = lane.submit([Step(1, [], seconds=10.0)])
    with pytest.raises(errors.Overloaded):
        lane.submit([Step(2, [])])
    published.now = newer
    refreshing = threading.Thread(target=serving.refresh)
    refreshing.start()

    wait_for_more_than(lane, 10)
    assert serving.entries["mood"].digest == "first"
    blocker.release.set()
    refreshing.join(PATIENCE_S)

    assert ends_with(waiting[0]) is None
    assert serving.entries["mood"].digest == "second"


def test_a_stop_while_a_newer_bundle_warms_up_is_no_failure_of_it(
    serving: registry.Registry, published: Published, newer, busy: tuple[Lane, Step]
) -> None:
    lane, blocker = busy
    published.now = newer
    changed: list[registry.Entry] = []
    refreshing = threading.Thread(target=lambda: changed.extend(serving.refresh()))
    refreshing.start()
    wait_for_more_than(lane, 0)

    stop_during(refreshing, serving, blocker)

    assert changed == []
    assert serving.entries["mood"].status == "ready"


def test_a_stop_while_a_model_loads_is_no_failure_of_it(published: Published) -> None:
    made = registry.Registry(registry.Plan((registry.Source("mood", published.find),)))
    (lane,) = made.lanes.values()
    blocker = Step(0, [], held=True)
    lane.submit([blocker])
    assert blocker.started.wait(PATIENCE_S)
    failed: list[registry.Entry] = []
    loading = threading.Thread(target=lambda: failed.extend(made.load()))
    loading.start()
    wait_for_more_than(lane, 0)

    stop_during(loading, made, blocker)

    assert failed == []
