"""A request's way through the server, once its body is decoded: read, queue, run, finish.

The event loop does what takes microseconds; longer tokenising and decoding go to a small pool, forwards to the lane.
While forwards wait or run, the client and the deadline are watched: whoever is gone or too late costs nothing more.
"""

import asyncio
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors
from vela.serve import answers
from vela.serve.forward import Forward
from vela.serve.http.exchange import Exchange
from vela.serve.http.metrics import Metrics
from vela.serve.job import Job
from vela.serve.question import AnyAnswer, Question
from vela.serve.reading import Grounded, Item, Pair, Reading
from vela.serve.registry import Registry

Result = TypeVar("Result")
Readings = Sequence[Reading | errors.ItemError]

# Work of more characters or tokens than this leaves the event loop: 4,096 characters tokenise in about a millisecond,
# and a thread and back costs a tenth of that.
OFFLOAD_ABOVE = 4_096
POOL_THREADS = 2


class ClientGone(Exception):
    """The client closed the connection before its answer was ready."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the surface behaves.

    Attributes:
        max_request_bytes: Largest body that is read.
        api_key: What callers of /v1 must send; None asks for none.
    """

    max_request_bytes: int = 16 << 20  # 2,048 inputs of 8 KB; one document of 32K tokens is under 1 MB
    api_key: str | None = field(default=None, repr=False)


class Service:
    """What the routes share: models, metrics and the pool."""

    def __init__(self, registry: Registry, settings: Settings) -> None:
        self.registry = registry
        self.settings = settings
        self.metrics = Metrics()
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="text")

    def close(self) -> None:
        """Let the pool's threads go."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def answer(
        self, question: Question[AnyAnswer], items: Sequence[Item], exchange: Exchange, deadline_ms: float | None
    ) -> list[AnyAnswer | answers.FailedAnswer]:
        """Answer a settled request: one answer for each item, in order.

        Args:
            question: What is asked, of whom.
            items: The inputs.
            exchange: Takes the stages' times and watches the client.
            deadline_ms: Time that the client gives, from the request's arrival.

        Raises:
            Overloaded: the lane's queue is full.
            NotReady: the lane died.
            ClientGone: the client did not wait.
        """
        model = question.model
        exchange.describe_model(model)
        length = sum(map(_length, items))
        readings = await self._offload(length, functools.partial(model.read, items, question.rules))
        exchange.mark("tokenize")
        planned = [_plan(question, reading) for reading in readings]
        forwards = list(itertools.chain.from_iterable(planned))
        exchange.describe_forwards(forwards, truncated=any(map(_was_cut, readings)))
        jobs = self.registry.lane.submit(forwards) if forwards else []
        if jobs:
            await _settle(jobs, exchange, deadline_ms)
        exchange.mark_jobs(jobs)
        queue = iter(jobs)
        ended = [list(itertools.islice(queue, len(rows))) for rows in planned]
        tokens = sum(forward.tokens for forward in forwards)
        results = await self._offload(tokens, functools.partial(_finish, question, readings, ended))
        exchange.mark("post")
        self.metrics.count(model, exchange.timing_ms(), forwards, readings, results)
        return results

    async def _offload(self, size: int, work: Callable[[], Result]) -> Result:
        if size <= OFFLOAD_ABOVE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _plan(question: Question[AnyAnswer], reading: Reading | errors.ItemError) -> list[Forward]:
    return [] if isinstance(reading, errors.ItemError) else question.model.forwards(reading, question.output)


def _length(item: Item) -> int:
    match item:
        case str():
            return len(item)
        case Pair():
            return len(item.first) + len(item.second)
        case Grounded():
            return len(item.context) + len(item.question) + len(item.answer)


def _was_cut(reading: Reading | errors.ItemError) -> bool:
    return isinstance(reading, Reading) and reading.report.truncated


async def _settle(jobs: Sequence[Job], exchange: Exchange, deadline_ms: float | None) -> None:
    """Wait until every job has ended, or stop them: when the deadline passes, or when the client goes."""
    ended = asyncio.gather(*(asyncio.wrap_future(job.future) for job in jobs), return_exceptions=True)
    watch = exchange.watch_client()
    try:
        waited: tuple[asyncio.Future[Any], ...] = (ended, watch)
        await asyncio.wait(waited, timeout=exchange.left_s(deadline_ms), return_when=asyncio.FIRST_COMPLETED)
    finally:
        client_left = watch.done() and not ended.done()
        watch.cancel()
        if not ended.done():
            reason = _client_gone() if client_left else _deadline_passed()
            for job in jobs:
                job.stop(reason)  # does nothing to a job that has ended
    await ended
    if client_left:
        raise ClientGone


def _finish(
    question: Question[AnyAnswer], readings: Readings, ended: Sequence[Sequence[Job]]
) -> list[AnyAnswer | answers.FailedAnswer]:
    results: list[AnyAnswer | answers.FailedAnswer] = []
    for index, (reading, jobs) in enumerate(zip(readings, ended, strict=True)):
        try:
            if isinstance(reading, errors.ItemError):
                raise reading
            results.append(question.finish(index, reading, list(_outputs(jobs))))
        except errors.ItemError as error:
            results.append(answers.FailedAnswer.from_error(index, error))
    return results


def _outputs(jobs: Sequence[Job]) -> Iterator[NDArray[np.float32]]:
    for job in jobs:
        yield job.future.result(timeout=0)  # ended already; raises what the job ended with


def _deadline_passed() -> errors.ItemError:
    return errors.ItemError(
        "deadline_exceeded",
        "an input still waiting or running",
        expected="an answer within options.deadline_ms",
        where="options.deadline_ms",
        fix="Give it more time, or send less.",
    )


def _client_gone() -> errors.ItemError:
    return errors.ItemError(
        "unavailable", "a client that went away", expected="one that waits", where="connection", fix="Send it again."
    )
