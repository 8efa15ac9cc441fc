"""What a worker of a release does in tests: no model is made, so it takes no time. Processes import it by name."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from vela.export.shapes import Shapes
from vela.graphs import model_table
from vela.scripts.release import ledger, plan, workers
from vela.serve.device import CPU
from vela.verify.options import GateOptions

PATIENCE_S = 20.0
POLL_S = 0.01


def publishes(connection: Connection, asked: plan.ReleasePlan, cores: Sequence[int]) -> None:
    """Publish at once, and say in the reason where and by whom."""
    for wanted, before in _given(connection):
        connection.send(ledger.ModelLine(wanted.name, "running"))
        kept = before.published if before else ""
        reason = f"{os.getpid()} on {list(cores)}, {sorted(os.sched_getaffinity(0))}"
        for _ in range(2):  # a line that ends a model is said more than once, as in the pipeline
            connection.send(ledger.ModelLine(wanted.name, "published", reason, published=kept))


def waits_for_another(connection: Connection, asked: plan.ReleasePlan, cores: Sequence[int]) -> None:
    """Publish once another model has begun too."""
    for wanted, _ in _given(connection):
        connection.send(ledger.ModelLine(wanted.name, "running"))
        (asked.work / f"begun-{wanted.name}").touch()
        met = _wait(lambda: len(list(asked.work.glob("begun-*"))) > 1)
        connection.send(ledger.ModelLine(wanted.name, "published" if met else "failed"))


def is_killed(connection: Connection, asked: plan.ReleasePlan, cores: Sequence[int]) -> None:
    """Be killed by the model `b`, as by a system without memory."""
    for wanted, _ in _given(connection):
        connection.send(ledger.ModelLine(wanted.name, "running"))
        if wanted.name == "b":
            os.kill(os.getpid(), signal.SIGKILL)
        connection.send(ledger.ModelLine(wanted.name, "published"))


def is_cut_short(connection: Connection, asked: plan.ReleasePlan, cores: Sequence[int]) -> None:
    """Be killed while the model `b` is told of: a length is written, and not what it promised."""
    for wanted, _ in _given(connection):
        if wanted.name == "b":
            os.write(connection.fileno(), b"\0\0\1\0half")
            os.kill(os.getpid(), signal.SIGKILL)
        connection.send(ledger.ModelLine(wanted.name, "published"))


def has_a_bug(connection: Connection, asked: plan.ReleasePlan, cores: Sequence[int]) -> None:
    """Raise what nobody expects."""
    connection.recv()
    raise RuntimeError("a bug")


def _given(connection: Connection) -> Iterator[tuple[plan.Wanted, ledger.ModelLine | None]]:
    while True:
        try:
            given = connection.recv()
        except EOFError:
            return
        yield given
        connection.send(workers.AT_REST)


def _wait(condition: Callable[[], bool]) -> bool:
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(POLL_S)
    return True


def plan_of(names: str, work: Path, weight_bytes: int = 0) -> plan.ReleasePlan:
    """Plan models that nobody makes."""
    models = tuple(plan.Wanted(name, None, is_pinned=False, weight_bytes=weight_bytes) for name in names.split())
    store, table = work / "store", model_table.load_table()
    return plan.ReleasePlan(models, Shapes(), (CPU,), GateOptions(), work, store, table)
