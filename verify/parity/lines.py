"""The format of recorded answers, `vela-answers/1`: JSON lines, one system's answers to a plan of jobs.

The first line is a `Header`, which says what was asked and by whom it was answered. Then one `Line` for each job and
input: `{job, id, result | error, latency_ns}`, where `result` is what the native surface answers for that input, as
it is (`results[0]` of `/v1/classify`, `data[0]` of `/v1/embeddings`, the body of `/v1/rerank`). Upstream's recorded
lines are the same without a header. A `Load` line, at most one a job, is what several callers at once got.
Whoever records writes through `header_line` and `answer_line`; verify/parity/recording.py reads.

Fields that are not compared are ignored. A number is None where the file has `null` in its place: that, NaN and
infinity are compared, and fail.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from vela.graphs import digests
from vela.verify.parity.jobs import Job, Plan

FORMAT: Literal["vela-answers/1"] = "vela-answers/1"
MAX_DOCUMENTS = 1_024  # of a query, as the surface allows; pairs of them are compared

Number = float | None
Numbers = tuple[Number, ...]
Named = Iterator[tuple[str, Sequence[Number]]]
_Place = Annotated[int, msgspec.Meta(ge=0)]
_Nanoseconds = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line.

    Attributes:
        format: This format.
        side: Who answered, such as `torch 2.13.0` or `http://localhost:8080`.
        inputs_sha256: Digest of what was asked (`digest_of_inputs` in verify/parity/jobs.py).
        jobs: What was asked.
        context: Facts for people: versions, device, threads, commit.
    """

    format: Literal["vela-answers/1"]
    side: str
    inputs_sha256: str
    jobs: tuple[Job, ...]
    context: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not digests.is_sha256(self.inputs_sha256):
            raise ValueError(f"inputs_sha256 {self.inputs_sha256!r} is no SHA-256")
        if not self.side.isprintable():
            raise ValueError(f"side {self.side!r} holds control characters")
        Plan(self.jobs, self.inputs_sha256)  # refuses jobs that repeat

    @property
    def plan(self) -> Plan:
        """What was asked."""
        return Plan(self.jobs, self.inputs_sha256)


class Problem(msgspec.Struct, frozen=True):
    """Why an input was rejected."""

    code: str
    message: str = ""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input's answer as it stands in the file.

    Attributes:
        job: The job's name.
        id: The input's.
        result: The native surface's answer; one that holds an `error` is a rejection.
        error: Why there is none.
        latency_ns: Of each time it was asked; the first answer is compared, later ones are timed.
    """

    job: str
    id: str
    result: Any = None
    error: str | Problem | None = None
    latency_ns: _Nanoseconds = ()


class Load(msgspec.Struct, frozen=True):
    """What callers that asked at once got.

    Attributes:
        job: The job's name.
        concurrency: Callers.
        calls: Answers.
        seconds: For how long they asked.
        latency_ns: Of each call.
    """

    job: str
    concurrency: Annotated[int, msgspec.Meta(ge=1)]
    calls: Annotated[int, msgspec.Meta(ge=0)]
    seconds: Annotated[float, msgspec.Meta(gt=0)]
    latency_ns: _Nanoseconds = ()


class Read(msgspec.Struct, frozen=True):
    """How much of an input was read, and in how many windows, where that was recorded."""

    tokens: _Place | None = None
    processed_tokens: _Place | None = None
    windows: _Place | None = None


class ValueWindow(msgspec.Struct, frozen=True):
    """One window of a document, in content tokens, and what it said, where that was recorded."""

    start: _Place
    end: _Place
    probabilities: Numbers = ()
    scores: Numbers = ()


class SequenceResult(msgspec.Struct, frozen=True):
    """One label for a text.

    Attributes:
        probabilities: In label order; of windows, each label's maximum.
        label: The winner, where it was recorded.
        logits: In label order, where they were recorded.
        windows: The plan, where the text was read in windows.
        input: How much was read.
    """

    probabilities: Numbers
    label: str | None = None
    logits: Numbers = ()
    windows: tuple[ValueWindow, ...] | None = None
    input: Read = Read()

    @property
    def values(self) -> Numbers:
        """What is compared."""
        return self.probabilities

    def numbers(self) -> Named:
        """List all numbers, with names for a reader."""
        yield "probabilities", self.probabilities
        yield "logits", self.logits
        for index, window in enumerate(self.windows or ()):
            yield f"windows[{index}].probabilities", window.probabilities


class ScoresResult(msgspec.Struct, frozen=True):
    """Independent scores for a text; `selected` are the labels that pass the operating point, where there is one."""

    scores: Numbers
    selected: tuple[str, ...] | None = None
    logits: Numbers = ()
    windows: tuple[ValueWindow, ...] | None = None
    input: Read = Read()

    @property
    def values(self) -> Numbers:
        """What is compared."""
        return self.scores

    def numbers(self) -> Named:
        """List all numbers, with names for a reader."""
        yield "scores", self.scores
        yield "logits", self.logits
        for index, window in enumerate(self.windows or ()):
            yield f"windows[{index}].scores", window.scores


class Span(msgspec.Struct, frozen=True):
    """A labelled piece of a text, in code points, end exclusive."""

    label: str
    start: _Place
    end: _Place
    probability: Number


class Token(msgspec.Struct, frozen=True):
    """One token's place and its probabilities in label order."""

    start: _Place
    end: _Place
    probabilities: Numbers


class TokenResult(msgspec.Struct, frozen=True):
    """Spans of a text; `tokens` where they were recorded."""

    spans: tuple[Span, ...]
    tokens: tuple[Token, ...] | None = None
    windows: tuple[ValueWindow, ...] | None = None
    input: Read = Read()

    def numbers(self) -> Named:
        """List all numbers, with names for a reader."""
        yield "spans.probability", [span.probability for span in self.spans]
        for index, token in enumerate(self.tokens or ()):
            yield f"tokens[{index}].probabilities", token.probabilities


class EmbeddingResult(msgspec.Struct, frozen=True):
    """A vector for a text, as numbers and not as base64."""

    embedding: Numbers
    input: Read = Read()

    def numbers(self) -> Named:
        """List all numbers, with names for a reader."""
        yield "embedding", self.embedding


class Ranked(msgspec.Struct, frozen=True):
    """How relevant a document is: its place in the request, and the sigmoid of its logit."""

    index: _Place
    relevance_score: Number
    logit: Number | msgspec.UnsetType = msgspec.UNSET


class RerankResult(msgspec.Struct, frozen=True):
    """A query's documents, in any order."""

    results: Annotated[tuple[Ranked, ...], msgspec.Meta(max_length=MAX_DOCUMENTS)]
    input: Read = Read()

    def numbers(self) -> Named:
        """List all numbers, with names for a reader."""
        yield "relevance_score", [found.relevance_score for found in self.results]
        yield "logit", [found.logit for found in self.results if not isinstance(found.logit, msgspec.UnsetType)]


Result = SequenceResult | ScoresResult | TokenResult | EmbeddingResult | RerankResult

RESULTS: dict[str, type[Result]] = {
    "sequence": SequenceResult,
    "scores": ScoresResult,
    "token": TokenResult,
    "embedding": EmbeddingResult,
    "rerank": RerankResult,
}


def header_line(plan: Plan, side: str, context: dict[str, str]) -> bytes:
    """Give the first line of a file."""
    return msgspec.json.encode(Header(FORMAT, side, plan.inputs_sha256, plan.jobs, context)) + b"\n"


def answer_line(line: Line) -> bytes:
    """Give one input's line.

    Raises:
        ValueError: it has neither a result nor an error, or both; no reader would take it.
    """
    if (line.result is None) == (line.error is None):
        raise ValueError(f"a line of {line.job} {line.id} with both or neither of result and error")
    return msgspec.json.encode(line) + b"\n"
