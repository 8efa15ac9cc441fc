"""The meter: how much of a plan is done, for whoever waits, and how much of the time went into forwards."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vela.verify import plan

SAY_EVERY_S = 15.0


class Meter:
    """Counts expected seconds as work is done, and says at intervals how far it is.

    Attributes:
        forward_s: Seconds that forwards took, of the reference and of graphs.
    """

    def __init__(self, progress: Callable[[str], None], expected_s: float) -> None:
        self._progress = progress
        self._expected_s = expected_s
        self._done_s = 0.0
        self._started = self._said = time.monotonic()
        self.forward_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the plan was made."""
        return time.monotonic() - self._started

    @property
    def left_s(self) -> float:
        """Seconds that are left at the pace so far; those expected before anything was done."""
        pace = self.elapsed_s / self._done_s if self._done_s > 0 else 1.0
        return max(0.0, self._expected_s - self._done_s) * pace

    def say(self, text: str) -> None:
        """Tell whoever waits what no plan foresaw."""
        self._progress(f"  {text}")

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Count the time within as a forward's."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.forward_s += time.perf_counter() - started

    def skip(self, expected_s: float) -> None:
        """Leave out work that an earlier run did."""
        self._expected_s = max(0.0, self._expected_s - expected_s)

    def did(self, what: str, expected_s: float) -> None:
        """Count work that was expected to take so long."""
        self._done_s += expected_s
        now = time.monotonic()
        if now - self._said < SAY_EVERY_S:
            return
        self._said = now
        share = min(1.0, self._done_s / self._expected_s) if self._expected_s > 0 else 1.0
        self._progress(f"  {share:.0%}, {plan.say_seconds(self.left_s)} left: {what}")

    def summary(self) -> str:
        """Say how long it took beside how long it was to take, without what an earlier run did."""
        took = self.elapsed_s
        share = self.forward_s / took if took > 0 else 0.0
        said, spent = plan.say_seconds(self._expected_s), plan.say_seconds(took)
        return f"the plan said {said}; it took {spent}, {share:.0%} in forwards"
