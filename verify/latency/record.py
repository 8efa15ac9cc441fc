"""What was measured, as it is written: `vela-latency-run/1` of one system, `vela-latency-rounds/1` of several.

Every latency is in a record, so that other figures can be had from it. Answers are there once, as they were given
alone; of those under load only the ones that differ.
"""

from typing import Any, Literal

import msgspec

from vela.graphs import record
from vela.verify.latency import answers, corpus, intervals

RUN: Literal["vela-latency-run/1"] = "vela-latency-run/1"
ROUNDS: Literal["vela-latency-rounds/1"] = "vela-latency-rounds/1"
Outcome = Literal["slower", "tolerated", "within_noise", "faster", ""]
Figure = Literal["p50", "p95", "p99", "mean"]
FIGURES: tuple[Figure, ...] = ("p50", "p95", "p99", "mean")


class Quantiles(msgspec.Struct, frozen=True):
    """Nearest-rank percentiles and the mean of the answered requests' latencies."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    mean_ms: float

    def of(self, figure: Figure) -> float:
        """Give one of them."""
        return {"p50": self.p50_ms, "p95": self.p95_ms, "p99": self.p99_ms, "mean": self.mean_ms}[figure]


class Phase(msgspec.Struct, frozen=True):
    """The whole corpus, asked by so many callers.

    Attributes:
        concurrency: Closed-loop callers.
        requests: Sent, in all.
        answered: With an answer; only these are timed.
        refused: Whose inputs the server would not answer, by error code.
        failures: Without an answer, by reason.
        seconds: From the first request to the last answer.
        per_s: Answers a second.
        quantiles: Of the answered; None where none was.
        stages_ms: The server's own account, from Server-Timing: the median of each stage.
        client_ms: Processor time that the client took for each request.
        connections: Opened; more than callers where some were not kept alive.
        latency_ns: One for each request of the corpus, in order; None where it was not answered.
    """

    concurrency: int
    requests: int
    answered: int
    refused: dict[str, int]
    failures: dict[str, int]
    seconds: float
    per_s: float
    quantiles: Quantiles | None
    stages_ms: dict[str, float]
    client_ms: float
    connections: int
    latency_ns: tuple[int | None, ...]


class Differing(msgspec.Struct, frozen=True):
    """An answer that is not the one that was given alone.

    Attributes:
        id: The request.
        concurrency: Of the phase.
        actual_sha256: Of this answer.
        expected_sha256: Of the one alone.
        max_abs: Largest |Δ| of a number; None where another label, span, order or refusal was given.
    """

    id: str
    concurrency: int
    actual_sha256: str
    expected_sha256: str
    max_abs: float | None


class Identity(msgspec.Struct, frozen=True):
    """Who answers.

    Attributes:
        models: Facts of each model's card in GET /v1/models, by its id; empty where there is no such route.
        started_s: When the process began, from GET /metrics; None where it does not say.
        process: Number and start of the listening process, where it runs on this machine and can be seen.
    """

    models: dict[str, dict[str, str]]
    started_s: float | None
    process: tuple[int, int] | None


class Load(msgspec.Struct, frozen=True):
    """One-minute load averages: the machine's, and what of it is our own doing."""

    before: float | None
    own_before: float
    after: float | None
    own_after: float


class Turn(msgspec.Struct, frozen=True):
    """One side, asked once in every phase.

    Attributes:
        side: Its name.
        identity: Before the first request.
        restarts: What changed of it until after the last.
        warm_up_failures: Of the requests before the first phase, by reason.
        phases: In the order in which they were run.
        differing: Answers that are not those given alone, in this side's first turn.
    """

    side: str
    identity: Identity
    restarts: tuple[str, ...]
    warm_up_failures: dict[str, int]
    phases: tuple[Phase, ...]
    differing: tuple[Differing, ...]


class SideFacts(msgspec.Struct, frozen=True):
    """How a side is asked."""

    name: str
    url: str
    command: str
    options: dict[str, Any]


class CorpusFacts(msgspec.Struct, frozen=True):
    """What was asked: its digest, how it was made, and the ids in order."""

    sha256: str
    made: str
    ids: tuple[str, ...]

    @classmethod
    def from_corpus(cls, asked: corpus.Corpus) -> "CorpusFacts":
        """Describe a corpus."""
        return cls(asked.sha256, asked.made, tuple(request.id for request in asked.requests))


class Round(msgspec.Struct, frozen=True):
    """One turn of every side.

    Attributes:
        order: Sides in the order in which they were asked.
        load: Before the first turn and after the last.
        discarded: Why it does not count; empty where it does.
        turns: In that order; empty where the round was not begun.
    """

    order: tuple[str, ...]
    load: Load
    discarded: str
    turns: tuple[Turn, ...]


class Comparison(msgspec.Struct, frozen=True):
    """A figure of a side against the first side's, paired by rounds.

    Attributes:
        side: Whose.
        concurrency: Of the phase.
        figure: Which.
        actual_ms: Median over the rounds that count.
        expected_ms: The first side's.
        difference_ms: Mean of the paired differences, with its 95 % interval; above 0 is slower.
        ratio: Geometric mean of the paired ratios, with its own.
        verdict: `slower` beyond noise and tolerance, `tolerated` where beyond noise only, `faster`, or `within_noise`:
            these rounds do not tell; empty for figures that are shown and not judged.
    """

    side: str
    concurrency: int
    figure: Figure
    actual_ms: float
    expected_ms: float
    difference_ms: intervals.Interval
    ratio: intervals.Interval
    verdict: Outcome


class Between(msgspec.Struct, frozen=True):
    """A side's answers alone against the first side's.

    Attributes:
        side: Whose.
        compared: Requests that both answered.
        equal: With equal decisions and numbers.
        differing: Beyond the tolerance; `concurrency` is 1.
        max_abs: Largest |Δ| among those that decide alike.
        one_sided: Ids of those that one side answered and the other did not.
    """

    side: str
    compared: int
    equal: int
    differing: tuple[Differing, ...]
    max_abs: float
    one_sided: tuple[str, ...]


class Limits(msgspec.Struct, frozen=True):
    """What was asked of the sides.

    Attributes:
        slower: How much slower than the first side another may be, as a share of its figure.
        answers: Largest |Δ| that a number of an answer may have.
        is_same: Whether the sides must answer alike.
        load: Of others' load in a round; None where none was discarded.
    """

    slower: float = 0.0
    answers: float = 0.0
    is_same: bool = False
    load: float | None = None


class RunRecord(msgspec.Struct, frozen=True, tag_field="format", tag=RUN):
    """One system, measured once; `answers` are those given alone, None where none was."""

    created: str
    machine: dict[str, str]
    corpus: CorpusFacts
    side: SideFacts
    limits: Limits
    load: Load
    turn: Turn
    answers: tuple[answers.Answer | None, ...]
    verdict: record.Verdict
    reasons: tuple[str, ...]


class RoundsRecord(msgspec.Struct, frozen=True, tag_field="format", tag=ROUNDS):
    """Several systems, measured in turns; `answers` are those given alone in a side's first turn."""

    created: str
    machine: dict[str, str]
    corpus: CorpusFacts
    sides: tuple[SideFacts, ...]
    limits: Limits
    rounds: tuple[Round, ...]
    comparisons: tuple[Comparison, ...]
    between: tuple[Between, ...]
    answers: dict[str, tuple[answers.Answer | None, ...]]
    verdict: record.Verdict
    reasons: tuple[str, ...]

    @property
    def good(self) -> list[Round]:
        """Rounds that count."""
        return [one for one in self.rounds if not one.discarded]


Record = RunRecord | RoundsRecord
