"""Answers: what one input of a request gets back, in the shape that the HTTP surface sends.

They are msgspec structs so that the server encodes them as they are, and the OpenAPI document and the compatible
surfaces are made from the same definitions. Optional fields that are absent are left out of the JSON.
"""

from dataclasses import dataclass
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors


class InputReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much of an input was read; nothing is cut without saying so.

    Attributes:
        tokens: Length of the whole input with its special tokens, or what it has at least.
        processed_tokens: Length of what the model read, with special tokens, windows counted once.
        truncated: Whether something was cut.
        windows: Number of windows; absent where the input was read in one piece.
        tokens_lower_bound: Whether the input may be longer than `tokens` says, because its end was not read.
    """

    tokens: int
    processed_tokens: int
    truncated: bool
    windows: int | None = None
    tokens_lower_bound: bool = False


class Span(msgspec.Struct, frozen=True):
    """A labelled piece of a text.

    Attributes:
        label: Its type.
        start: First code point.
        end: Behind its last code point.
        text: The slice.
        probability: Between 0 and 1; how it is reduced over tokens is the form's rule.
    """

    label: str
    start: int
    end: int
    text: str
    probability: float


class TokenRow(msgspec.Struct, frozen=True):
    """One token's probabilities, in label order, with its place in code points."""

    start: int
    end: int
    probabilities: list[float]


class ProbabilityWindow(msgspec.Struct, frozen=True):
    """What one window said; `start` and `end` count content tokens."""

    start: int
    end: int
    probabilities: list[float]


class ScoreWindow(msgspec.Struct, frozen=True):
    """What one window said; `start` and `end` count content tokens."""

    start: int
    end: int
    scores: list[float]


class SequenceAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One label for a text. With windows, each label's maximum over them, so they need not sum to 1."""

    index: int
    label: str
    probabilities: list[float]
    input: InputReport
    windows: list[ProbabilityWindow] | None = None


class ScoresAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Independent scores; `selected` are the labels that pass the operating point, absent where there is none."""

    index: int
    scores: list[float]
    input: InputReport
    selected: list[str] | None = None
    windows: list[ScoreWindow] | None = None


class TokenAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Spans of a text, in its order."""

    index: int
    spans: list[Span]
    input: InputReport
    tokens: list[TokenRow] | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingAnswer:
    """A unit vector, (D,) float32; which JSON it becomes is the request's choice."""

    index: int
    embedding: NDArray[np.float32]
    input: InputReport


class RerankAnswer(msgspec.Struct, frozen=True):
    """How relevant a document is to a query."""

    index: int
    relevance_score: float
    logit: float
    input: InputReport


class Problem(msgspec.Struct, frozen=True):
    """What went wrong: a code for programs, a message for people."""

    code: str
    message: str


class FailedAnswer(msgspec.Struct, frozen=True):
    """An input that got no answer; its neighbours got theirs."""

    index: int
    error: Problem

    @classmethod
    def from_error(cls, index: int, error: errors.ItemError) -> Self:
        """Say in an answer's place why there is none."""
        return cls(index, Problem(error.code, str(error)))


Classified = SequenceAnswer | ScoresAnswer | TokenAnswer
Answer = Classified | EmbeddingAnswer | RerankAnswer
