"""A recording is alone on the GPU; everything else goes on side by side."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from vela.serve.recording_guard import RecordingGuard

PATIENCE_S = 10.0


class Holder:
    """A thread that holds a guard until it is let go."""

    def __init__(self, hold: Callable[[], AbstractContextManager[None]]) -> None:
        self.inside, self._release = threading.Event(), threading.Event()
        self._hold = hold
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        with self._hold():
            self.inside.set()
            self._release.wait(PATIENCE_S)

    def let_go(self) -> None:
        self._release.set()
        self._thread.join(PATIENCE_S)


@pytest.fixture
def guard() -> RecordingGuard:
    return RecordingGuard()


@pytest.fixture
def holding() -> Iterator[Callable[..., Holder]]:
    with ExitStack() as stack:

        def make(hold: Callable[[], AbstractContextManager[None]]) -> Holder:
            holder = Holder(hold)
            stack.callback(holder.let_go)
            return holder

        yield make


def wait_until_one_waits(guard: RecordingGuard) -> None:
    done, turn = PATIENCE_S, threading.Event()
    while guard.waiting < 1 and done > 0:
        turn.wait(0.001)
        done -= 0.001
    assert guard.waiting == 1


def test_users_hold_it_together(guard: RecordingGuard, holding) -> None:
    holders = [holding(guard.use) for _ in range(3)]

    assert all(holder.inside.wait(PATIENCE_S) for holder in holders)


@pytest.mark.parametrize("other", ["use", "record"])
def test_nothing_goes_on_beside_a_recording(guard: RecordingGuard, holding, other: str) -> None:
    recording = holding(guard.record)
    assert recording.inside.wait(PATIENCE_S)

    second = holding(getattr(guard, other))
    wait_until_one_waits(guard)
    assert not second.inside.is_set()

    recording.let_go()
    assert second.inside.wait(PATIENCE_S)


def test_a_recording_waits_for_who_uses_the_device_and_goes_before_who_comes_later(
    guard: RecordingGuard, holding
) -> None:
    user = holding(guard.use)
    assert user.inside.wait(PATIENCE_S)
    recording = holding(guard.record)
    wait_until_one_waits(guard)
    later = threading.Thread(target=lambda: guard.use().__enter__())
    later.start()

    user.let_go()

    assert recording.inside.wait(PATIENCE_S)
    assert later.is_alive()
    recording.let_go()
    later.join(PATIENCE_S)
    assert not later.is_alive()


def test_an_error_lets_go_of_it(guard: RecordingGuard) -> None:
    for hold in (guard.use, guard.record):
        with pytest.raises(RuntimeError), hold():
            raise RuntimeError("a device error")

    with guard.record():
        pass
