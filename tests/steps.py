"""Work for a lane: held by events, never by sleeping."""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors
from vela.serve.job import Job

PATIENCE_S = 10.0


class Step:
    """Work that waits until it is released, and remembers that it ran and with whom."""

    def __init__(
        self, number: int, log: list, *, seconds: float = 1.0, held: bool = False, key: str = "", most: int = 1
    ) -> None:
        self.number = number
        self.tokens = self.seconds = seconds
        self.key, self.most_rows = key, most
        self.started = threading.Event()
        self.release = threading.Event()
        self._log = log
        if not held:
            self.release.set()

    def run_with(self, mates, run_options: Any = None) -> list[NDArray[np.float32]]:
        together = [self, *mates]
        self._log.append([one.number for one in together] if mates else self.number)
        self.started.set()
        while not self.release.wait(0.001):
            if run_options.terminate:
                raise stopped("unavailable")
        return [np.float32([one.number]) for one in together]


class Bug(Step):
    def __init__(self) -> None:
        super().__init__(0, [])

    def run_with(self, mates, run_options: Any = None) -> list[NDArray[np.float32]]:
        raise RuntimeError("a bug")


def stopped(code: str) -> errors.ItemError:
    return errors.ItemError(code, "a stop", expected="an end", where="test", fix="None.")


def ends_with(job: Job) -> BaseException | None:
    """Wait for a job; give the error that it ended with."""
    ended = threading.Event()
    job.outcome.listen(ended.set)
    assert ended.wait(PATIENCE_S)
    try:
        job.outcome.result()
    except errors.VelaError as error:
        return error
    return None


def number_of(job: Job) -> float:
    """Wait for a job; give what it gave."""
    assert ends_with(job) is None
    return job.outcome.result().item()
