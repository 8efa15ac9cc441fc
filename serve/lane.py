"""A lane: the one thread that runs forwards on a device, in the order in which they came.

One thread, because sessions are fastest alone: several of them share the device's cores or queue and slow each other
down. Callers hand in a request's forwards together and get a Job for each. A job whose caller is gone or out of time
is dropped, or stopped if it runs. If the thread dies, every caller gets an error at once and the lane says so.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors
from vela.serve.runtime import onnxruntime

logger = logging.getLogger(__name__)

# Tokens that may wait, padding included: two of the longest documents. A request that finds nothing waiting is always
# taken, however large it is.
WAITING_LIMIT_TOKENS = 65_536
CLOSING_S = 5.0  # a forward that nobody waits for any more; a device that hangs must not keep the process


class Work(Protocol):
    """What a lane runs: a Forward, or a stand-in in tests."""

    @property
    def tokens(self) -> int:
        """Cost, in tokens that the graph computes."""

    def run(self, run_options: Any = None) -> NDArray[np.float32]:
        """Run it; `run_options.terminate` set from another thread ends it early with an ItemError."""


class Job:
    """One forward in a lane.

    Attributes:
        future: Resolved once, with the output or an error, by the lane or by `stop`.
        queued_s: When it was handed in, on the monotonic clock.
        started_s: When it began to run; 0 before that.
        finished_s: When it ended; 0 before that.
    """

    def __init__(self, work: Work, on_drop: Callable[["Job"], None]) -> None:
        self.work = work
        self.future: Future[NDArray[np.float32]] = Future()
        self.queued_s = time.monotonic()
        self.started_s = 0.0
        self.finished_s = 0.0
        self._on_drop = on_drop
        self._guard = threading.Lock()
        self._run_options: Any = None

    def stop(self, reason: errors.VelaError) -> None:
        """Give up on the job: its future gets `reason` now, and a run that is under way is ended."""
        with self._guard:
            if self.future.done():
                return
            self.future.set_exception(reason)
            if self._run_options is None:
                self._on_drop(self)
            else:
                self._run_options.terminate = True

    def run(self) -> None:
        """Run the work in the lane's thread; an exception that is no VelaError is a bug and passes through."""
        with self._guard:
            if self.future.done():
                return
            self._run_options = onnxruntime.RunOptions()
        self.started_s = time.monotonic()
        output, error = None, None
        try:
            output = self.work.run(self._run_options)
        except errors.VelaError as raised:
            error = raised
        self.finished_s = time.monotonic()
        with self._guard:
            if self.future.done():
                return
            if output is None:
                self.future.set_exception(error)
            else:
                self.future.set_result(output)


class Lane:
    """A device's thread and its queue.

    Args:
        name: The device's name, for messages.
        limit_tokens: How much may wait.
        on_death: Called in the dying thread, after its callers got their errors.
    """

    def __init__(
        self,
        name: str,
        limit_tokens: int = WAITING_LIMIT_TOKENS,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._limit_tokens = limit_tokens
        self._on_death = on_death
        self._waiting: deque[Job] = deque()
        self._waiting_tokens = 0
        self._running: Job | None = None
        self._closing = False
        self._death: str | None = None
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=f"lane-{name}", daemon=True)
        self._thread.start()

    @property
    def death(self) -> str | None:
        """Why the lane no longer works; None while it does."""
        return self._death

    @property
    def waiting_tokens(self) -> int:
        """Tokens of the forwards that wait."""
        return self._waiting_tokens

    def submit(self, works: Sequence[Work]) -> list[Job]:
        """Queue a request's forwards, all or none.

        Raises:
            Overloaded: too much is waiting already.
            NotReady: the lane died or is closing.
        """
        tokens = sum(work.tokens for work in works)
        with self._wake:
            if self._death is not None or self._closing:
                raise self._gone()
            if self._waiting and self._waiting_tokens + tokens > self._limit_tokens:
                raise errors.Overloaded(
                    f"{self._waiting_tokens} tokens waiting and {tokens} more",
                    expected=f"at most {self._limit_tokens} waiting tokens",
                    where=self.name,
                    fix="Try again after the time that Retry-After gives, or send smaller requests.",
                )
            jobs = [Job(work, self._drop) for work in works]
            self._waiting.extend(jobs)
            self._waiting_tokens += tokens
            self._wake.notify()
        return jobs

    def close(self) -> None:
        """Refuse what comes, fail what waits, and give what runs a moment to end; the process does not wait longer."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(CLOSING_S)

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._running = job
                job.run()
                self._running = None
        except BaseException as bug:
            logger.exception("the lane of %s died", self.name)
            self._death = f"{type(bug).__name__}: {bug}"
        finally:
            self._fail_everything()
        if self._death is not None:
            self._on_death()

    def _next(self) -> Job | None:
        with self._wake:
            while not self._waiting and not self._closing:
                self._wake.wait()
            if self._closing:
                return None
            job = self._waiting.popleft()
            self._waiting_tokens -= job.work.tokens
            return job

    def _drop(self, job: Job) -> None:
        """Forget a job that waits; one that the thread has just taken is left to it, and found resolved."""
        with self._wake:
            try:
                self._waiting.remove(job)
            except ValueError:
                return
            self._waiting_tokens -= job.work.tokens

    def _fail_everything(self) -> None:
        with self._wake:
            self._closing = True
            jobs = [*([self._running] if self._running else []), *self._waiting]
        for job in jobs:
            job.stop(self._gone())

    def _gone(self) -> errors.NotReady:
        return errors.NotReady(
            f"a lane that {f'died ({self._death})' if self._death else 'is closing'}",
            expected="a lane at work",
            where=self.name,
            fix="The server is stopping; send the request to another one.",
        )
