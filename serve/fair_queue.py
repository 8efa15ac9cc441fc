"""Which waiting row runs next: callers share the device's time, and rows of one shape may go together.

Every request is served as if it had its own lane of equal speed: a row's turn is when the rows before it in its own
request would be done there. So one request of a hundred windows does not hold a short one for longer than the run that
is under way, and equal requests are served in the order in which they came. When a row's turn comes, others of its key
that wait already go with it, whosever they are; nothing waits for company.
Source: start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996).
"""

import heapq
import itertools
import math
from collections.abc import Hashable, Sequence

from vela.serve.job import Job


class _Request:
    """What of a request still waits, since when it may wait no longer, and whether any of it has run."""

    __slots__ = ("begun", "jobs", "until_s", "waiting_s")

    def __init__(self, until_s: float) -> None:
        self.jobs: dict[Job, None] = {}
        self.waiting_s = 0.0
        self.until_s = until_s
        self.begun = False


class FairQueue:
    """Waiting jobs; its caller holds a lock around every call."""

    def __init__(self) -> None:
        self._turns: list[tuple[float, int, Job]] = []
        self._requests: dict[Job, _Request] = {}  # of the jobs that wait; those that were dropped are only in turns
        self._waiting: dict[_Request, None] = {}
        self._by_key: dict[Hashable, dict[Job, None]] = {}
        self._numbers = itertools.count()
        self._turn = 0.0  # of the job that ran last
        self.tokens = 0
        self.seconds = 0.0

    def __len__(self) -> int:
        return len(self._requests)

    def push(self, jobs: Sequence[Job], until_s: float = math.inf) -> None:
        """Let a request's jobs wait; `until_s`, on the monotonic clock, is when `take_overdue` may give it up."""
        request, turn = _Request(until_s), self._turn
        if jobs:
            self._waiting[request] = None
        for job in jobs:
            heapq.heappush(self._turns, (turn, next(self._numbers), job))
            turn += job.seconds
            self._requests[job] = request
            request.jobs[job] = None
            self._by_key.setdefault(job.key, {})[job] = None
            request.waiting_s += job.seconds
            self.tokens += job.tokens
            self.seconds += job.seconds

    def pop(self) -> list[Job]:
        """Take the job whose turn it is and those that go with it; the queue must not be empty."""
        while True:
            turn, _, job = heapq.heappop(self._turns)
            if job in self._requests:
                break
        self._turn = turn
        self._begin(job)
        alike = self._by_key.get(job.key)
        if alike is None:
            return [job]
        mates = list(itertools.islice(alike, job.work.most_rows - 1))
        for mate in mates:
            self._begin(mate)
        return [job, *mates]

    def take_overdue(self, now_s: float, least_s: float) -> list[Job]:
        """Take the request that came first of those whose time is up and of which nothing has run.

        Args:
            now_s: On the monotonic clock.
            least_s: Seconds of later requests that must wait, so that they gain by it.

        Returns:
            Its jobs; none where there is no such request.
        """
        behind_s = self.seconds
        for request in self._waiting:
            behind_s -= request.waiting_s
            if behind_s <= least_s:
                break
            if not request.begun and request.until_s <= now_s:
                jobs = list(request.jobs)
                for job in jobs:
                    self.discard(job)
                return jobs
            if not request.begun and request.until_s < math.inf:
                break  # those behind it came later
        return []

    def _begin(self, job: Job) -> None:
        self._requests[job].begun = True
        self.discard(job)

    def discard(self, job: Job) -> None:
        """Forget a job, if it waits."""
        request = self._requests.pop(job, None)
        if request is None:
            return
        request.waiting_s -= job.seconds
        del request.jobs[job]
        if not request.jobs:
            del self._waiting[request]
        self.tokens -= job.tokens
        self.seconds -= job.seconds
        alike = self._by_key[job.key]
        del alike[job]
        if not alike:
            del self._by_key[job.key]
        if not self._requests:  # nothing waits: no rounding errors and no turns of dropped jobs are carried on
            self._turns.clear()
            self.seconds, self._turn = 0.0, 0.0

    def clear(self) -> list[Job]:
        """Take all that waits."""
        jobs = list(self._requests)
        for job in jobs:
            self.discard(job)
        return jobs

    def wait_s(self, seconds: float) -> float:
        """Estimate how long others hold up a request of so many seconds: each by no more than it takes itself."""
        return sum(min(request.waiting_s, seconds) for request in self._waiting)
