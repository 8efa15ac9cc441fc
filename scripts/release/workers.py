"""Models released side by side: each in a process of its own share of cores, as many as their memory allows.

A process that dies takes its model with it and nothing else: the ledger says so, and the others go on. Processes end
with the one that started them, so that nothing works on in a folder which somebody releases into again.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from vela.graphs import errors
from vela.scripts.release import ledger, plan

GIB = 1 << 30
ENDS_WITHIN_S = 10.0
AT_REST = None  # what a worker says once it is done with a model; all else are lines of the ledger, and progress
Told = Callable[[ledger.ModelLine], None]
Progress = Callable[[str], None]
Life = Callable[[Connection, plan.ReleasePlan, Sequence[int]], None]


@dataclass(frozen=True, slots=True)
class Crew:
    """How many work side by side.

    Attributes:
        count: Processes at most.
        memory_bytes: That all of them together are reckoned to need at most.
        cores: That they share; each has its own.
        life: What a process does: it is given models, and says what becomes of them.
    """

    count: int
    memory_bytes: int
    cores: tuple[int, ...]
    life: Life = field(default_factory=lambda: work)

    def __post_init__(self) -> None:
        if not 1 <= self.count <= len(self.cores):
            raise ValueError(f"{self.count} processes on {len(self.cores)} cores")

    def require_room(self, models: Sequence[plan.Wanted]) -> None:
        """Refuse a model that is reckoned to need more than there is, before anything is begun.

        Raises:
            ExportError: naming it, and both figures.
        """
        largest = max(models, key=lambda wanted: wanted.memory_bytes)
        if largest.memory_bytes > self.memory_bytes:
            raise errors.ExportError(
                f"{largest.name}, reckoned to need {largest.memory_bytes / GIB:.1f} GiB",
                expected=f"models that fit {self.memory_bytes / GIB:.1f} GiB",
                where="--memory",
                fix="Release it on a larger machine, or say --memory GIB if this one has more to give.",
            )

    def cores_of(self, place: int) -> tuple[int, ...]:
        """Give the cores of one process."""
        return self.cores[place :: self.count]


@dataclass(slots=True)
class _Worker:
    """One process and what it is doing."""

    process: BaseProcess
    connection: Connection
    place: int
    wanted: plan.Wanted | None = None


def release_side_by_side(
    asked: plan.ReleasePlan,
    crew: Crew,
    before: Mapping[str, ledger.ModelLine],
    told: Told,
    progress: Progress,
) -> None:
    """Release all models of a plan.

    Args:
        asked: The plan.
        crew: Who does it.
        before: What an earlier run says of each model.
        told: Given a model's line whenever it changes.
        progress: Told what is being done.

    Raises:
        ExportError: a model does not fit into memory.
    """
    crew.require_room(asked.models)
    waiting = list(asked.models)
    workers: list[_Worker] = []
    try:
        while waiting or any(worker.wanted for worker in workers):
            _assign(waiting, workers, asked, crew, before)
            _listen(workers, told, progress)
        for worker in workers:
            worker.connection.close()  # it has nothing more to do, and ends by itself
            worker.process.join(ENDS_WITHIN_S)
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join(ENDS_WITHIN_S)
            worker.process.kill()  # one in the middle of a long forward has not heard of it
            worker.process.join()
            worker.connection.close()


def _assign(
    waiting: list[plan.Wanted],
    workers: list[_Worker],
    asked: plan.ReleasePlan,
    crew: Crew,
    before: Mapping[str, ledger.ModelLine],
) -> None:
    """Give work to whoever has none, as long as its memory is there."""
    while waiting:
        busy = [worker.wanted for worker in workers if worker.wanted is not None]
        free = crew.memory_bytes - sum(wanted.memory_bytes for wanted in busy)
        fitting = next((wanted for wanted in waiting if wanted.memory_bytes <= free), None)
        if fitting is None or len(busy) == crew.count:
            return
        idle = next((worker for worker in workers if worker.wanted is None), None)
        if idle is None:
            idle = _start(asked, crew, {worker.place for worker in workers})
            workers.append(idle)
        try:
            idle.connection.send((fitting, before.get(fitting.name)))
        except OSError:  # it died while it had nothing to do: another takes its place
            workers.remove(idle)
            idle.process.join()
            idle.connection.close()
            continue
        waiting.remove(fitting)
        idle.wanted = fitting


def _listen(workers: list[_Worker], told: Told, progress: Progress) -> None:
    """Wait until somebody says something, and pass it on."""
    ready = wait([worker.connection for worker in workers])
    for worker in [worker for worker in workers if worker.connection in ready]:
        try:
            said = worker.connection.recv()
        except (EOFError, OSError):  # it died, perhaps in the middle of a word
            workers.remove(worker)
            if worker.wanted is not None:
                told(_lost(worker, worker.wanted))
            continue
        if isinstance(said, str):
            progress(said)
        elif isinstance(said, ledger.ModelLine):
            told(said)
        else:
            worker.wanted = None


def _lost(worker: _Worker, wanted: plan.Wanted) -> ledger.ModelLine:
    """Say that a model's process died."""
    worker.process.join()
    worker.connection.close()
    code = worker.process.exitcode or 0
    if code < 0:
        reason = f"its process was killed by signal {-code}; 9 is mostly want of memory: run again, with fewer --jobs"
    else:
        reason = f"its process ended with exit code {code}, a defect of Vela: its traceback stands among the messages"
    return ledger.ModelLine(wanted.name, "failed", reason)


def _start(asked: plan.ReleasePlan, crew: Crew, taken: set[int]) -> _Worker:
    place = next(place for place in range(crew.count) if place not in taken)
    context = multiprocessing.get_context("spawn")  # threads of this process do not survive a fork
    ours, theirs = context.Pipe()
    process = context.Process(target=crew.life, args=(theirs, asked, crew.cores_of(place)), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours, place)


def work(connection: Connection, asked: plan.ReleasePlan, cores: Sequence[int]) -> None:
    """Release the models that come over a connection; a worker's whole life."""
    os.sched_setaffinity(0, cores)  # before anything counts cores
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts all; the one that started this ends it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from vela.export import trace
    from vela.scripts.release import pipeline

    made = pipeline.Pipeline(asked, trace.TraceCache(), connection.send)
    while True:
        try:
            wanted, before = connection.recv()
        except EOFError:
            return
        made.run(wanted, before, connection.send)
        connection.send(AT_REST)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
