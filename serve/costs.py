"""How long a forward of so many tokens takes here: measured when a graph is loaded, corrected by every run after it.

Admission, fairness and the search for hung runs need no more than this: within a factor of two it is good enough, and
a table from another machine, or under another load, would not be.
"""

import threading

WEIGHT = 0.2  # of the newest run
FORGOTTEN = 1  # runs of a class, as soon as there is another
GROWTH = 1.3  # of seconds per token from one class to the next: attention grows faster than lengths do


class Costs:
    """Seconds per token of one loaded graph, by classes of lengths that double; safe to use from several threads."""

    def __init__(self) -> None:
        self._rates: dict[int, float] = {}
        self._runs: dict[int, int] = {}
        self._guard = threading.Lock()

    def learn(self, tokens: int, seconds: float) -> None:
        """Take note of a run of so many tokens; a class's first pays for what later ones find made: it is forgotten."""
        length_class, rate = tokens.bit_length(), seconds / tokens
        with self._guard:
            runs = self._runs[length_class] = self._runs.get(length_class, 0) + 1
            known = self._rates.get(length_class, rate)
            self._rates[length_class] = known + (WEIGHT if runs > FORGOTTEN + 1 else 1.0) * (rate - known)

    def seconds(self, tokens: int) -> float:
        """Estimate a run of so many tokens; 0 while nothing is known.

        Between lengths that ran, the nearest shorter one is scaled up, or the nearest longer one taken as it is.
        """
        length_class = tokens.bit_length()
        with self._guard:
            if not self._rates:
                return 0.0
            shorter = [known for known in self._rates if known <= length_class]
            nearest = max(shorter) if shorter else min(self._rates)
            rate = self._rates[nearest]
        return tokens * rate * GROWTH ** max(0, length_class - nearest)
