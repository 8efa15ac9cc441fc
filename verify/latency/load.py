"""Load of this machine, and how much of it is not our own doing.

A round that something else disturbed says nothing of two servers. Linux' one-minute load average tells of such
things, but the client and a server on this machine are in it as well. So their part is reckoned, just as the kernel
averages it, from how long their threads ran or waited for a core, and taken off. What is left is others' load.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vela.verify.latency import processes

AVERAGED_S = 60.0  # the first of the three averages. Source: proc_loadavg(5)
LOAD_FILE = Path("/proc/loadavg")


@dataclass(frozen=True, slots=True)
class Load:
    """Load at one moment.

    Attributes:
        one_minute: The load average of the machine; None where it is not to be had.
        own: What the client and the servers under test that run here are of it, as far as they can be seen.
    """

    one_minute: float | None
    own: float

    @property
    def others(self) -> float:
        """What is not our own doing; 0 where no load is to be had."""
        return max(0.0, (self.one_minute or 0.0) - self.own)


@dataclass(slots=True)
class Meter:
    """Follows our own part of the load over time.

    Attributes:
        read_load: Gives the one-minute average, or None.
        read_runnable_s: Gives seconds of the processes that are ours, from any beginning on.
        clock: Seconds.
    """

    read_load: Callable[[], float | None]
    read_runnable_s: Callable[[Sequence[processes.Process]], float]
    clock: Callable[[], float] = time.monotonic
    _own: float = 0.0
    _then: float | None = None
    _ours: frozenset[processes.Process] = frozenset()
    _runnable_s: float = 0.0

    @classmethod
    def of_this_machine(cls) -> "Meter":
        """Measure this machine."""
        return cls(one_minute_load, processes.runnable_s)

    def measure(self, servers: Iterable[processes.Process]) -> Load:
        """Measure now.

        Args:
            servers: Under test and on this machine; the client is counted besides.
        """
        now = self.clock()
        client = processes.Process.from_pid(os.getpid())
        ours = frozenset({*servers, *([client] if client else [])})
        runnable_s = self.read_runnable_s(sorted(ours, key=lambda one: one.pid))
        if self._then is not None and now > self._then:
            # How long a process that is new ran before is not known: too little is taken off then, and never too much.
            ran_s = max(0.0, runnable_s - self._runnable_s) if ours == self._ours else 0.0
            kept = math.exp(-(now - self._then) / AVERAGED_S)
            self._own = self._own * kept + ran_s / (now - self._then) * (1.0 - kept)
        self._then, self._ours, self._runnable_s = now, ours, runnable_s
        return Load(self.read_load(), self._own)


def one_minute_load() -> float | None:
    """Give the machine's one-minute load average; None where the system does not say."""
    try:
        return float(LOAD_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
