"""How often a run is made again to see whether it answers alike.

Threads that race seldom meet: races that were planted changed one to five of a hundred runs, so sixteen repeats met
them in one of three gates. Short runs cost next to nothing, so where threads can race they are repeated for some time.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vela.graphs import manifest
from vela.verify import runs

SHORT_TOKENS = 64  # of all rows of a run that counts as short
SHORT_REPEATS = 16  # of a short run, at least
FEWEST_LONG = 2  # of a long run whose answer is in doubt
RACING_SECONDS = 1.5  # for all short runs of a graph together


@dataclass(frozen=True, slots=True)
class Repeats:
    """Repeats of one run.

    Attributes:
        fewest: As many at least.
        seconds: And on until these have passed.
    """

    fewest: int
    seconds: float

    def numbered(self) -> Iterator[int]:
        """Count repeats until they are enough."""
        until = time.monotonic() + self.seconds
        for number in itertools.count():
            if number >= self.fewest and time.monotonic() >= until:
                return
            yield number

    def expected_s(self, run_s: float) -> float:
        """Give the seconds that they take, where one takes `run_s`."""
        return max(self.fewest * run_s, self.seconds)


def list_repeats(
    planned: Sequence[runs.Run], graph: manifest.Graph, *, can_race: bool
) -> Sequence[tuple[runs.Run, Repeats]]:
    """Say how often each run is made again: long ones once, short ones often."""
    short = [run for run in planned if run.width(graph) * len(run.rows) <= SHORT_TOKENS]
    often = Repeats(SHORT_REPEATS, RACING_SECONDS / len(short) if can_race and short else 0.0)
    return [(run, often if run in short else Repeats(1, 0.0)) for run in planned]


def how_often(run: runs.Run, graph: manifest.Graph, *, can_race: bool) -> Repeats:
    """Say how often a run is made again that answered otherwise, to tell a race from another cause."""
    ((_, often),) = list_repeats([run], graph, can_race=can_race)
    return often if often.fewest > 1 else Repeats(FEWEST_LONG, RACING_SECONDS if can_race else 0.0)


def can_race(threads: int, device: str) -> bool:
    """Say whether an engine computes one answer on several threads, which may meet in another order each time.

    Args:
        threads: Of the session.
        device: Such as `cpu` or `cuda:0`.
    """
    return threads > 1 or device != "cpu"
