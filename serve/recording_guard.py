"""Keep the process from asking a GPU for anything while a run is recorded on it.

CUDA records a graph's run for each thread that runs it, and whatever another thread asks of any device meanwhile breaks
the recording, or fails itself. So loading and replaying go on side by side, and a recording waits for them and they
for it.
Source: measured with ONNX Runtime 1.31.1 on an H200: two threads whose first runs met failed with CUDA's errors 900
and 901; CUDA's capture mode is global.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator


class RecordingGuard:
    """Held by many that only use a device, or by one that records."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users = 0
        self._is_recording = False
        self._recorders = 0  # that wait; users wait behind them, so that they get their turn
        self.waiting = 0  # threads

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Hold it with others that use a device."""
        with self._changed:
            self._wait_for(lambda: not self._is_recording and not self._recorders)
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Hold it alone; not for a thread that holds it already."""
        with self._changed:
            self._recorders += 1
            self._wait_for(lambda: not self._is_recording and not self._users)
            self._recorders -= 1
            self._is_recording = True
        try:
            yield
        finally:
            with self._changed:
                self._is_recording = False
                self._changed.notify_all()

    def _wait_for(self, is_free: Callable[[], bool]) -> None:
        self.waiting += 1
        self._changed.wait_for(is_free)
        self.waiting -= 1


GUARD = RecordingGuard()  # of this process: its threads share every device
