"""A whole release: the ledger that an earlier run left, the workers, and the ledger after every step."""

import importlib.metadata
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from vela.graphs import durable, errors, lock
from vela.scripts.release import ledger, page, plan, workers

LOCK_FILE = ".release.lock"
LEDGER_EVERY_S = 1.0  # at most so often, but for steps that end: a line changes with every graph
MEMORY_SHARE = 0.8  # of what is free: the rest is the system's
Progress = Callable[[str], None]


def free_memory_bytes() -> int:
    """Give what a release may take of this machine's memory, or this container's, unless it is told."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    try:
        most, taken = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        available = available if most == "max" else min(available, int(most) - int(taken))
    except (OSError, ValueError):
        pass  # no such limit is stated here
    return int(MEMORY_SHARE * max(0, available))


def release(asked: plan.ReleasePlan, crew: workers.Crew, progress: Progress) -> ledger.Ledger:
    """Release every model of a plan, going on from what an earlier run of the same work folder left.

    Args:
        asked: The plan.
        crew: Who does it.
        progress: Told what is being done.

    Returns:
        The ledger, which is also in the work folder, after every step.

    Raises:
        StoreError: another release is at work there, or its ledger cannot be used.
        ExportError: a model does not fit into memory.
    """
    try:
        durable.make_folders(asked.work)
    except OSError as cause:
        raise ledger.cannot_write(asked.work, cause) from cause
    try:
        with lock.hold(asked.work / LOCK_FILE, 0.0):
            book = _Book.open(asked)
            before = {line.name: line for line in book.before}
            try:
                workers.release_side_by_side(asked, crew, before, book.note, progress)
            finally:
                written = book.write()
                page.write(asked.work, written)
            return written
    except errors.StoreError as problem:
        if problem.where.endswith(LOCK_FILE):
            raise _at_work(asked.work) from problem
        raise


class _Book:
    """The ledger while it is written."""

    def __init__(self, asked: plan.ReleasePlan, earlier: ledger.Ledger | None) -> None:
        self._asked = asked
        self._started, self._began = ledger.now(), time.monotonic()
        self._runs = earlier.runs + 1 if earlier else 1
        self.before = earlier.models if earlier else ()
        kept = {line.name: line for line in self.before}
        # What an earlier run proved stands until this one says otherwise: a kill right now must not lose it. But this
        # run, which may ask for more, has not come to it.
        waiting = {name: msgspec.structs.replace(line, outcome="waiting", reason="") for name, line in kept.items()}
        self._lines = {wanted.name: waiting.get(wanted.name, ledger.ModelLine(wanted.name)) for wanted in asked.models}
        self._others = [line for line in self.before if line.name not in self._lines]
        self._written = 0.0

    @classmethod
    def open(cls, asked: plan.ReleasePlan) -> "_Book":
        return cls(asked, ledger.read_ledger(asked.work))

    def note(self, line: ledger.ModelLine) -> None:
        """Keep a model's line; what an earlier run proved is kept beside it until this run comes to it."""
        before = self._lines[line.name]
        self._lines[line.name] = line if line.outcome == "published" else _over(before, line)
        is_end = line.outcome != "running" or (line.steps and line.steps[-1].state != "running")
        if is_end or time.monotonic() - self._written > LEDGER_EVERY_S:
            self.write()

    def current(self) -> ledger.Ledger:
        """Give the ledger as it is now."""
        return ledger.Ledger(
            format=ledger.FORMAT,
            started=self._started,
            updated=ledger.now(),
            seconds=round(time.monotonic() - self._began, 1),
            runs=self._runs,
            devices=tuple(map(str, self._asked.devices)),
            table=self._asked.table.source,
            tools={"vela-onnx": importlib.metadata.version("vela-onnx"), "python": sys.version.split()[0]},
            models=(*self._others, *self._lines.values()),
        )

    def write(self) -> ledger.Ledger:
        """Write it into the work folder, and give what was written."""
        current = self.current()
        ledger.write_ledger(self._asked.work, current)
        self._written = time.monotonic()
        return current


def _over(before: ledger.ModelLine, line: ledger.ModelLine) -> ledger.ModelLine:
    """Lay a running model's line over an earlier one: steps and verdicts that it has not come to yet stay."""
    names = {step.name for step in line.steps}
    steps = (*line.steps, *(step for step in before.steps if step.name not in names))
    graphs = tuple(_with_earlier(graph, before) for graph in line.graphs) or before.graphs
    published = line.published or before.published
    return msgspec.structs.replace(line, steps=steps, graphs=graphs, published=published)


def _with_earlier(graph: ledger.GraphLine, before: ledger.ModelLine) -> ledger.GraphLine:
    """Keep what was proven of the same file on devices that this run has not come to."""
    same = [other.verdicts for other in before.graphs if (other.id, other.sha256) == (graph.id, graph.sha256)]
    return msgspec.structs.replace(graph, verdicts={**same[0], **graph.verdicts}) if same else graph


def _at_work(work: Path) -> errors.StoreError:
    return errors.StoreError(
        "another release at work in this folder",
        expected="one at a time",
        where=str(work),
        fix="Wait for it, end it, or name another --work folder.",
    )
