"""What a request waits for once its forwards are queued: their ends, its client, its deadline."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

from vela.graphs import errors

GONE = "unavailable"
# A client that leaves sooner saves nobody much, and to begin and end a watch costs every request; most end before it.
WATCH_AFTER_S = 0.05


class Waiting:
    """Until every job of a request has ended, its client has gone or its time is up, whichever is first.

    One future for all of it, made before the jobs are handed in: what the loop does when they end keeps the client from
    its answer.
    """

    def __init__(self, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = count
        self._guard = threading.Lock()
        self._future: asyncio.Future[errors.ItemError | None] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        self._watching: asyncio.Task[None] | None = None

    def watch(self, left_s: float | None, watch: Callable[[], "asyncio.Task[None]"]) -> None:
        """Watch the clock, and the client before long."""
        self._timers.append(self._loop.call_later(WATCH_AFTER_S, self._watch, watch))
        if left_s is not None:
            self._timers.append(self._loop.call_later(left_s, self._end, deadline_passed()))

    def _watch(self, watch: Callable[[], "asyncio.Task[None]"]) -> None:
        self._watching = watch()
        self._watching.add_done_callback(lambda _: self._end(client_gone()))

    def job_ended(self) -> None:
        """Count a job, in whichever thread it ended."""
        with self._guard:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            with contextlib.suppress(RuntimeError):  # a loop that has closed meanwhile: nobody waits any more
                self._loop.call_soon_threadsafe(self._end, None)

    def _end(self, reason: errors.ItemError | None) -> None:
        if not self._future.done():
            self._future.set_result(reason)

    async def reason(self) -> errors.ItemError | None:
        """Wait; give why the jobs must be given up, or None where they have ended."""
        return await self._future

    def close(self) -> None:
        """Watch neither the client nor the clock any longer."""
        for timer in self._timers:
            timer.cancel()
        if self._watching is not None:
            self._watching.cancel()


def deadline_passed() -> errors.ItemError:
    """Make the error of an input for which there is no time left."""
    return errors.ItemError(
        "deadline_exceeded",
        "an input still waiting or running",
        expected="an answer within options.deadline_ms",
        where="options.deadline_ms",
        fix="Give it more time, or send less.",
    )


def client_gone() -> errors.ItemError:
    """Make the error that the jobs of a client that left end with; nobody reads it."""
    return errors.ItemError(
        GONE, "a client that went away", expected="one that waits", where="connection", fix="Send it again."
    )
