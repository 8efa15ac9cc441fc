"""A side under test: asked in one turn after another, with its answers under load held against those alone."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vela.verify.latency import answers, callers, corpus, identity, intervals, processes, record, side

WARM_UP_REQUESTS = 20
ALONE = 1
STAGE_LIMIT = 32  # of one Server-Timing header


@dataclass(frozen=True, slots=True)
class Method:
    """How a side is asked in a turn.

    Attributes:
        concurrency: Callers of each phase; the first is one alone, whose answers are what the others are held against.
        warm_up: Requests before the first phase, which are not timed.
        timeout_s: After which a request has failed.
    """

    concurrency: tuple[int, ...] = (ALONE, 4, 16)
    warm_up: int = WARM_UP_REQUESTS
    timeout_s: float = callers.TIMEOUT_S

    def __post_init__(self) -> None:
        if not self.concurrency or self.concurrency[0] != ALONE or min(self.concurrency) < ALONE:
            raise ValueError(f"phases {self.concurrency}; expected one caller alone first")


@dataclass(slots=True)
class Subject:
    """One side over all its turns.

    Attributes:
        asked: The side.
        requests: What it is asked.
        method: How.
        clock: Nanoseconds, of latencies.
    """

    asked: side.Side
    requests: corpus.Corpus
    method: Method
    clock: callers.Clock = callers.default_clock
    _messages: list[bytes] = field(init=False)
    _alone: dict[str, answers.Reading] = field(default_factory=dict)
    _first: record.Identity | None = None

    def __post_init__(self) -> None:
        self._messages = self.asked.messages(self.requests)

    @property
    def given_alone(self) -> tuple[answers.Answer | None, ...]:
        """What was answered alone, by request; None where nothing was."""
        found = [self._alone.get(request.id) for request in self.requests.requests]
        return tuple(one.answer if one is not None and one.outcome == "answered" else None for one in found)

    def processes(self) -> list[processes.Process]:
        """The process of this server, where it runs here and can be seen."""
        found = self._first.process if self._first else None
        return [processes.Process(*found)] if found else []

    def identify(self) -> record.Identity:
        """Ask who answers, before anything is measured."""
        found = identity.identify(self.asked)
        self._first = self._first or found
        return found

    def take_turn(self) -> record.Turn:
        """Warm up, ask the whole corpus in every phase, and say what came of it."""
        before = self.identify()
        warm_up = self._replay(self._messages[: self.method.warm_up], ALONE)
        phases: list[record.Phase] = []
        differing: list[record.Differing] = []
        for concurrency in self.method.concurrency:
            replay = self._replay(self._messages, concurrency)
            readings = [answers.read(exchange) for exchange in replay.exchanges]
            phases.append(phase_from_replay(concurrency, replay, readings))
            differing += self._compare(readings, concurrency)
        after = identity.identify(self.asked)
        changed = [*identity.changes(before, self._first or before), *identity.changes(after, before)]
        return record.Turn(
            side=self.asked.name,
            identity=before,
            restarts=tuple(dict.fromkeys(changed)),
            warm_up_failures=_reasons([answers.read(exchange) for exchange in warm_up.exchanges], "failed"),
            phases=tuple(phases),
            differing=tuple(differing),
        )

    def _replay(self, messages: Sequence[bytes], concurrency: int) -> callers.Replay:
        return callers.replay(
            self.asked.address, messages, concurrency, clock=self.clock, timeout_s=self.method.timeout_s
        )

    def _compare(self, readings: Sequence[answers.Reading], concurrency: int) -> Iterator[record.Differing]:
        """Hold answers against the first ones that were given alone, which this keeps."""
        for request, found in zip(self.requests.requests, readings, strict=True):
            if found.answer is None:
                continue
            wanted = self._alone.setdefault(request.id, found) if concurrency == ALONE else self._alone.get(request.id)
            if wanted is None or wanted.answer is None or found.answer.sha256 == wanted.answer.sha256:
                continue
            distance = found.answer.distance(wanted.answer) if found.outcome == wanted.outcome else None
            yield record.Differing(request.id, concurrency, found.answer.sha256, wanted.answer.sha256, distance)


def phase_from_replay(concurrency: int, replay: callers.Replay, readings: Sequence[answers.Reading]) -> record.Phase:
    """Sum up a phase; only answered requests are timed, because a refusal runs no forward."""
    pairs = list(zip(replay.exchanges, readings, strict=True))
    timed = [one.latency_ns if reading.outcome == "answered" else None for one, reading in pairs]
    latencies = [latency for latency in timed if latency is not None]
    return record.Phase(
        concurrency=concurrency,
        requests=len(pairs),
        answered=len(latencies),
        refused=_reasons(readings, "refused"),
        failures=_reasons(readings, "failed"),
        seconds=replay.seconds,
        per_s=len(latencies) / replay.seconds if replay.seconds > 0 else 0.0,
        quantiles=quantiles(latencies) if latencies else None,
        stages_ms=_stages_ms([one.response.headers for one, reading in pairs if one.response and reading.answer]),
        client_ms=1000 * replay.client_s / len(pairs),
        connections=replay.connections,
        latency_ns=tuple(timed),
    )


def quantiles(latencies_ns: Sequence[int]) -> record.Quantiles:
    """Give the figures of at least one latency."""
    p50, p95, p99 = (intervals.nearest_rank(latencies_ns, share) / 1e6 for share in (0.50, 0.95, 0.99))
    return record.Quantiles(p50, p95, p99, statistics.fmean(latencies_ns) / 1e6)


def _reasons(readings: Sequence[answers.Reading], outcome: answers.Outcome) -> dict[str, int]:
    return dict(Counter(one.reason for one in readings if one.outcome == outcome))


def _stages_ms(headers: Sequence[dict[str, str]]) -> dict[str, float]:
    """Give the median of each stage that Server-Timing names."""
    found: dict[str, list[float]] = {}
    for one in headers:
        for name, duration_ms in _read_timing(one.get("server-timing", "")):
            found.setdefault(name, []).append(duration_ms)
    return {name: statistics.median(values) for name, values in found.items()}


def _read_timing(header: str) -> Iterator[tuple[str, float]]:
    for entry in header.split(",")[:STAGE_LIMIT]:
        name, *parameters = (part.strip() for part in entry.split(";"))
        stated = next((part[len("dur=") :] for part in parameters if part.lower().startswith("dur=")), "")
        try:
            duration_ms = float(stated)
        except ValueError:
            continue
        if name and name.isprintable() and math.isfinite(duration_ms):
            yield name, duration_ms
