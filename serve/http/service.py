"""A request's way through the server, once its body is decoded: read, queue, run, finish.

The event loop does what takes microseconds; longer tokenising and decoding go to a small pool, forwards to the lane.
While long texts are read and forwards wait or run, the client and the deadline are watched: whoever is gone or too late
costs nothing more.
"""

import asyncio
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors
from vela.serve import answers
from vela.serve.batching import BatchedForward
from vela.serve.forward import Forward
from vela.serve.http.exchange import Exchange
from vela.serve.http.metrics import Metrics
from vela.serve.http.waiting import GONE, Waiting, client_gone, deadline_passed
from vela.serve.job import Job
from vela.serve.model import ServedModel
from vela.serve.question import AnyAnswer, Question
from vela.serve.reading import Grounded, Item, Pair, Reading
from vela.serve.registry import Registry

Result = TypeVar("Result")
Readings = Sequence[Reading | errors.ItemError]

# Work of more characters or tokens than this leaves the event loop: 4,096 characters tokenise in about a millisecond,
# and a thread and back costs a tenth of that.
OFFLOAD_ABOVE = 4_096
# Characters that are read at a time for one request, but for one longer text: what is given up, or not yet due, waits
# for no more than these.
READ_AT_ONCE = 1 << 16
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
        readings = await self._read(question, items, exchange, deadline_ms)
        exchange.mark("tokenize")
        planned = [_plan(question, reading) for reading in readings]
        forwards = list(itertools.chain.from_iterable(planned))
        describe = functools.partial(_describe, exchange, forwards, readings)
        jobs = await self._run(model, forwards, exchange, deadline_ms, describe)
        exchange.mark_jobs(jobs)
        if question.rules.profile == "batching":  # who went together, and so where, was not known before
            describe()
        queue = iter(jobs)
        ended = [list(itertools.islice(queue, len(rows))) for rows in planned]
        tokens = sum([job.tokens for job in jobs])
        if tokens <= OFFLOAD_ABOVE:
            results = _finish(question, readings, ended)
        else:
            results = await self._in_pool(functools.partial(_finish, question, readings, ended))
        exchange.mark("post")
        exchange.when_sent.append(functools.partial(self.metrics.count, model, exchange, forwards, readings, results))
        return results

    async def _read(
        self, question: Question[AnyAnswer], items: Sequence[Item], exchange: Exchange, deadline_ms: float | None
    ) -> Readings:
        """Read the inputs; those for which there is no time left afterwards are late.

        Raises:
            ClientGone: the client did not wait.
        """
        left_s = exchange.left_s(deadline_ms)
        if left_s == 0.0:
            return [deadline_passed()] * len(items)
        if sum(map(_length, items)) <= OFFLOAD_ABOVE:
            readings: Readings = question.model.read(items, question.rules)
        else:
            try:
                async with asyncio.timeout(left_s):
                    readings = await self._read_by_groups(question, items, exchange)
            except TimeoutError:
                return [deadline_passed()] * len(items)
        if left_s is not None and exchange.left_s(deadline_ms) == 0.0:
            return [one if isinstance(one, errors.ItemError) else deadline_passed() for one in readings]
        return readings

    async def _read_by_groups(
        self, question: Question[AnyAnswer], items: Sequence[Item], exchange: Exchange
    ) -> list[Reading | errors.ItemError]:
        """Read many texts some at a time: others get their turn between, and nothing more is read for who has gone."""
        readings: list[Reading | errors.ItemError] = []
        watching = exchange.watch_client()
        try:
            for group in _groups(items):
                readings += await self._in_pool(functools.partial(question.model.read, group, question.rules))
                if watching.done():
                    raise ClientGone
        finally:
            watching.cancel()
        return readings

    async def _run(
        self,
        model: ServedModel,
        forwards: Sequence[Forward | BatchedForward],
        exchange: Exchange,
        deadline_ms: float | None,
        meanwhile: Callable[[], None],
    ) -> list[Job]:
        """Hand in forwards and wait until each has ended, or give them up: when time is up, or when the client goes.

        `meanwhile` is called while the lane's thread wakes up, so that it costs no time; and where nothing runs.
        """
        if not forwards:
            meanwhile()
            return []
        waiting = Waiting(len(forwards))
        try:
            jobs = self.registry.lanes[model.device].submit(forwards, waiting.job_ended)
        except errors.VelaError:
            meanwhile()
            raise
        reason: errors.ItemError | None = None
        try:
            waiting.watch(exchange.left_s(deadline_ms), exchange.watch_client)
            meanwhile()
            reason = await waiting.reason()
        except BaseException:  # this task is cancelled, or a bug
            reason = client_gone()
            raise
        finally:
            waiting.close()
            if reason is not None:
                for job in jobs:
                    job.stop(reason)  # does nothing to a job that has ended
        if reason is not None and reason.code == GONE:
            raise ClientGone
        return jobs

    async def _in_pool(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _plan(question: Question[AnyAnswer], reading: Reading | errors.ItemError) -> Sequence[Forward | BatchedForward]:
    if isinstance(reading, errors.ItemError):
        return []
    return question.model.works(reading, question.output, question.rules.profile)


def _groups(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Cut a request's inputs into groups that are read at once, in order; a longer input is one of its own."""
    group: list[Item] = []
    length = 0
    for item in items:
        if group and length + _length(item) > READ_AT_ONCE:
            yield group
            group, length = [], 0
        group.append(item)
        length += _length(item)
    yield group


def _length(item: Item) -> int:
    match item:
        case str():
            return len(item)
        case Pair():
            return len(item.first) + len(item.second)
        case Grounded():
            return len(item.context) + len(item.question) + len(item.answer)


def _describe(exchange: Exchange, forwards: Sequence[Forward | BatchedForward], readings: Readings) -> None:
    exchange.describe_forwards(forwards, truncated=any(map(_was_cut, readings)))


def _was_cut(reading: Reading | errors.ItemError) -> bool:
    return isinstance(reading, Reading) and reading.report.truncated


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
        yield job.outcome.result()  # ended already; raises what the job ended with
