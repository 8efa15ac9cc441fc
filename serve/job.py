"""One row's way through a lane: its outcome, when it ran, and how it is given up.

Rows of several callers may share one run. A caller that leaves gets its error at once; the run itself is ended only
when nobody waits for it any more, because its other rows are somebody's answer.
"""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors
from vela.serve.runtime import onnxruntime

Output = NDArray[np.float32]


class Work(Protocol):
    """What a lane runs: a Forward, or a stand-in in tests."""

    @property
    def tokens(self) -> int:
        """Tokens that the graph computes for it."""

    @property
    def seconds(self) -> float:
        """How long it is expected to take alone."""

    @property
    def key(self) -> Hashable:
        """Works of equal keys may share a run."""

    @property
    def most_rows(self) -> int:
        """How many may, itself included."""

    def run_with(self, mates: Sequence[Self], run_options: Any = None) -> list[Output | errors.ItemError]:
        """Run it with others of its key: one output or error for each, its own first.

        `run_options.terminate`, set from another thread, ends the run early.
        """


class Run:
    """One run on the device, and the jobs that share it.

    Attributes:
        jobs: The rows, in their order.
        started_s: When it began, on the monotonic clock.
    """

    def __init__(self, jobs: "Sequence[Job]") -> None:
        self.jobs = tuple(jobs)
        self.started_s = time.monotonic()
        self._options = onnxruntime.RunOptions()

    @property
    def seconds(self) -> float:
        """How long it is expected to take."""
        return sum(job.seconds for job in self.jobs)

    def execute(self) -> None:
        """Run in this thread, and resolve each job; an exception that is no VelaError is a bug and passes through."""
        first, *mates = (job.work for job in self.jobs)
        outcomes: Sequence[Output | errors.VelaError]
        try:
            outcomes = first.run_with(mates, self._options)
        except errors.VelaError as raised:
            outcomes = [raised] * len(self.jobs)
        finished_s = time.monotonic()
        for job, outcome in zip(self.jobs, outcomes, strict=True):
            job.resolve(outcome, self.started_s, finished_s)

    def leave(self) -> None:
        """End the run where none of its jobs is waited for any more."""
        if all(job.outcome.done() for job in self.jobs):
            self._options.terminate = True


class Outcome:
    """What a job came to: set once, from whichever thread, and then told to one listener.

    It is `concurrent.futures.Future` without what a lane does not need, because its locks and lists are met with cold
    caches after every forward.
    """

    __slots__ = ("_listener", "_value")

    def __init__(self) -> None:
        self._value: Output | errors.VelaError | None = None
        self._listener: Callable[[], None] | None = None

    def done(self) -> bool:
        """Say whether it is set."""
        return self._value is not None

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when it is set, or at once; one that comes while it is being set may be called twice."""
        self._listener = listener
        if self._value is not None:
            listener()

    def set(self, value: Output | errors.VelaError) -> None:
        """Set it; its job sees to it that this happens once."""
        self._value = value
        if self._listener is not None:
            self._listener()

    def result(self) -> Output:
        """Give the output, or raise the error; it must be set."""
        if self._value is None:
            raise ValueError("a job that has not ended")
        if isinstance(self._value, errors.VelaError):
            raise self._value
        return self._value


class Job:
    """One row in a lane.

    Attributes:
        work: What is run.
        seconds: How long it is expected to take alone, as was thought when it was handed in.
        tokens: Tokens that the graph computes for it.
        key: Works of equal keys may share a run.
        outcome: Set once, to the output or an error.
        queued_s: When it was handed in, on the monotonic clock.
        started_s: When its run began; 0 before that.
        finished_s: When its run ended; 0 before that.
    """

    __slots__ = (
        "_guard",
        "_on_drop",
        "_run",
        "finished_s",
        "key",
        "outcome",
        "queued_s",
        "seconds",
        "started_s",
        "tokens",
        "work",
    )

    def __init__(self, work: Work, on_drop: Callable[["Job"], None]) -> None:
        self.work = work
        self.seconds = work.seconds
        self.tokens = work.tokens
        self.key = work.key
        self.outcome = Outcome()
        self.queued_s = time.monotonic()
        self.started_s = 0.0
        self.finished_s = 0.0
        self._on_drop = on_drop
        self._guard = threading.Lock()
        self._run: Run | None = None

    def stop(self, reason: errors.VelaError) -> None:
        """Give up on the job: its outcome is `reason` now, and a run that nobody else waits for is ended."""
        with self._guard:
            if self.outcome.done():
                return
            self.outcome.set(reason)
            run = self._run
        if run is None:
            self._on_drop(self)
        else:
            run.leave()

    def begin(self, run: Run) -> None:
        """Note that a run has begun."""
        with self._guard:
            self._run = run
        if self.outcome.done():  # it was given up between the queue and here
            run.leave()

    def resolve(self, outcome: Output | errors.VelaError, started_s: float, finished_s: float) -> None:
        """Give the job what its run came to, unless it was given up before."""
        with self._guard:
            if not self.outcome.done():
                self.started_s, self.finished_s = started_s, finished_s
                self.outcome.set(outcome)
