"""A lane: the one thread that runs forwards on a device, and a second one that sees whether it still does.

One thread, because sessions are fastest alone: several of them share the device's cores or queue and slow each other
down. Callers hand in a request's forwards together and get a Job for each. If the thread dies, or a run does not end in
many times the time that it should take, every caller gets an error at once and the lane says so: a device that hangs
does not come back by itself.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from vela.graphs import errors
from vela.serve.fair_queue import FairQueue
from vela.serve.job import Job, Run, Work

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a lane takes and tolerates.

    Attributes:
        wait_s: Longest wait behind others; what is expected to wait for longer is refused. A request that finds nothing
            waiting is always taken, however large it is, and never given up.
        certainty: Share of that wait that may be expected: under load, estimates were seen to be short by a sixth, and
            once by two fifths.
        patience: Share of that wait after which a request of which nothing has run is refused after all, where others
            would be late because of it; the rest is for its own run.
        tokens: Tokens that may wait, padding included: each holds memory until its run.
        pulse_s: How often the lane is looked at.
        hang_s: What a run may take beyond what is expected of it.
        hang_factor: How many times what is expected it may take besides.
        first_s: What a run may take of which nothing is known yet, such as a graph's first.
    """

    wait_s: float = 10.0  # sixteen callers with 512 tokens each wait five on two cores
    certainty: float = 0.8
    patience: float = 0.95
    tokens: int = 1 << 20  # thirty-two of the longest documents
    pulse_s: float = 0.5
    hang_s: float = 10.0
    hang_factor: float = 20.0
    first_s: float = 120.0


DEFAULT_BOUNDS = Bounds()
PACE_WEIGHT, PACE_LIMIT = 0.1, 10.0  # of the newest run; what no run counts for more or less than
CLOSING_S = 5.0  # a forward that nobody waits for any more; a device that hangs must not keep the process


class Lane:
    """A device's thread and its queue.

    Args:
        name: The device's name, for messages.
        bounds: What it takes and tolerates.
        on_death: Called once, after the lane's callers got their errors.
        clock: Seconds, by which waits are measured.
    """

    def __init__(
        self,
        name: str,
        bounds: Bounds = DEFAULT_BOUNDS,
        on_death: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.bounds = bounds
        self._on_death = on_death
        self._clock = clock
        self._queue = FairQueue()
        self._run: Run | None = None
        self._pace = 1.0
        self._closing = False
        self._death: str | None = None
        self._guard = threading.Lock()
        self._calls: SimpleQueue[None] = SimpleQueue()  # one for each submit; a thread wakes from it sooner than else
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"lane-{name}", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True).start()

    @property
    def death(self) -> str | None:
        """Why the lane no longer works; None while it does."""
        return self._death

    @property
    def waiting_tokens(self) -> int:
        """Tokens of the forwards that wait."""
        return self._queue.tokens

    @property
    def waiting_s(self) -> float:
        """Seconds that the forwards that wait are expected to take."""
        return self._queue.seconds

    def submit(
        self, works: Sequence[Work], on_end: Callable[[], None] | None = None, *, is_patient: bool = False
    ) -> list[Job]:
        """Queue a request's forwards, all or none.

        Args:
            works: The forwards.
            on_end: Called for each when it has ended or was given up, in whichever thread that happens.
            is_patient: Whether it waits however long that takes, as a model does that is not served yet.

        Raises:
            Overloaded: too much is waiting already.
            NotReady: the lane died or is closing.
        """
        jobs = [Job(work, self._drop) for work in works]
        seconds, tokens = sum([job.seconds for job in jobs]), sum([job.tokens for job in jobs])
        if on_end is not None:
            for job in jobs:
                job.outcome.listen(on_end)
        with self._guard:
            if self._death is not None or self._closing:
                raise self._gone()
            until_s = math.inf
            if len(self._queue) and not is_patient:
                self._require_room(seconds, tokens)
                until_s = self._clock() + self.bounds.patience * self.bounds.wait_s
            self._queue.push(jobs, until_s)
        self._calls.put(None)
        return jobs

    def close(self) -> None:
        """Refuse what comes, fail what waits, and give what runs a moment to end; the process does not wait longer."""
        with self._guard:
            self._closing = True
            waiting = self._queue.clear()
        for job in waiting:
            job.stop(self._gone())
        self._calls.put(None)
        self._ended.set()
        self._thread.join(0.0 if self._death else CLOSING_S)

    def _require_room(self, seconds: float, tokens: int) -> None:
        wait_s = self._pace * self._queue.wait_s(seconds)
        waiting, longest_s = self._queue.tokens, self.bounds.certainty * self.bounds.wait_s
        if wait_s <= longest_s and waiting + tokens <= self.bounds.tokens:
            return
        raise errors.Overloaded(
            f"{waiting} tokens waiting, which would hold up this request of {tokens} for about {wait_s:.1f} s",
            expected=f"at most {longest_s:g} s, and at most {self.bounds.tokens} waiting tokens",
            where=self.name,
            fix="Try again after the time that Retry-After gives, or send smaller requests.",
            retry_after_s=max(1.0, wait_s - longest_s),
        )

    def _work(self) -> None:
        try:
            ended_s = 0.0
            while (run := self._next()) is not None:
                began_s = ended_s or run.started_s
                run.execute()
                self._run = None
                ended_s = self._note_pace(run, began_s)
        except BaseException as bug:
            logger.exception("the lane of %s died", self.name)
            self._die(f"{type(bug).__name__}: {bug}")
        finally:
            self._fail_everything()

    def _note_pace(self, run: Run, began_s: float) -> float:
        """Learn how much sooner or later than expected runs follow each other; give when this one ended.

        Rows that share a run make it sooner, and whatever else the machine does makes it later.

        Returns:
            0.0 where nothing waits: what comes next then begins when it comes.
        """
        now = time.monotonic()
        if run.seconds > 0.0:
            ratio = min(max((now - began_s) / run.seconds, 1 / PACE_LIMIT), PACE_LIMIT)
            self._pace += PACE_WEIGHT * (ratio - self._pace)
        return now if len(self._queue) else 0.0

    def _next(self) -> Run | None:
        while True:
            self._forget_calls()
            with self._guard:
                if self._closing:
                    return None
                late = self._take_late()
                run = self._run = Run(self._queue.pop()) if len(self._queue) else None
            for job in late:
                job.stop(self._waited_in_vain())
            if run is not None:
                break
            self._calls.get()
        for job in run.jobs:
            job.begin(run)
        return run

    def _take_late(self) -> list[Job]:
        """Give up requests that waited too long, for as long as so much waits that others would be late too.

        The wait that a request is taken with is an estimate, and a machine may become slower after it was made. Where
        little waits any more, as after one long run, late answers are better than none.
        """
        late: list[Job] = []
        slack_s = (1.0 - self.bounds.certainty) * self.bounds.wait_s
        while jobs := self._queue.take_overdue(self._clock(), slack_s / self._pace):
            late += jobs
        return late

    def _waited_in_vain(self) -> errors.Overloaded:
        longest_s = self.bounds.patience * self.bounds.wait_s
        return errors.Overloaded(
            f"a request that waited for more than {longest_s:g} s behind others",
            expected=f"a wait of at most {longest_s:g} s",
            where=self.name,
            fix="Try again after the time that Retry-After gives, or send smaller requests.",
            retry_after_s=max(1.0, self._pace * self._queue.seconds - longest_s),
        )

    def _forget_calls(self) -> None:
        """Take the calls of what has been pushed already: under load there would be one more for every request."""
        while not self._calls.empty():  # nobody else takes them
            self._calls.get()

    def _watch(self) -> None:
        """Find a run that does not end: it can be neither stopped nor waited for."""
        while not self._ended.wait(self.bounds.pulse_s):
            run = self._run
            if run is None:
                continue
            took = time.monotonic() - run.started_s
            if took > self._allowed_s(run):
                logger.error("the lane of %s hangs", self.name)
                self._die(f"a run of {len(run.jobs)} rows has not ended after {took:.1f} s")

    def _allowed_s(self, run: Run) -> float:
        if run.seconds == 0.0:
            return self.bounds.first_s
        return self.bounds.hang_s + self.bounds.hang_factor * run.seconds

    def _die(self, reason: str) -> None:
        with self._guard:
            if self._death is not None or self._closing:
                return
            self._death = reason
        self._ended.set()
        self._fail_everything()
        self._on_death()

    def _drop(self, job: Job) -> None:
        """Forget a job that waits; one that the thread has just taken is left to it, and found resolved."""
        with self._guard:
            self._queue.discard(job)

    def _fail_everything(self) -> None:
        with self._guard:
            self._closing = True
            run = self._run
            jobs = [*(run.jobs if run else ()), *self._queue.clear()]
        for job in jobs:
            job.stop(self._gone())

    def _gone(self) -> errors.NotReady:
        return errors.NotReady(
            f"a lane that {f'died ({self._death})' if self._death else 'is closing'}",
            expected="a lane at work",
            where=self.name,
            fix="The server is stopping; send the request to another one.",
        )
