"""What a server answered, as far as two answers are compared: a digest, what was decided, and the numbers.

A response also says how long it took and which graph ran; that differs each time and is left out. Two answers are
equal if their digests are. Where they are not, their numbers tell how far apart they are, if both decided alike:
labels, spans, selected sets, the order of documents.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from vela.graphs import digests
from vela.verify.latency import callers

# What holds the answers, on the native surface and on OpenAI's; the rest of a body names the model and counts tokens.
RESULTS = ("results", "data")
BESIDE = frozenset({"meta", "model", "usage", "created", "id"})
# Numbers that an engine computes. Everything else, such as a label or a span's edges, is a decision.
NUMBERS = frozenset({"probabilities", "probability", "scores", "score", "relevance_score", "logit", "embedding"})
INPUT = "input"  # how much of it was read: other tokenizers count otherwise, so it decides nothing between systems
# Of a whole request that was refused for what it asks; others are the server's failures.
REFUSALS = (400, 413, 422)
OK = 200
SHOWN = 80

Outcome = Literal["answered", "refused", "failed"]


class Answer(msgspec.Struct, frozen=True):
    """One answer.

    Attributes:
        sha256: Digest of all that is compared for equality.
        decision: Digest of what was decided.
        numbers: In the order of the body.
    """

    sha256: str
    decision: str
    numbers: tuple[float, ...]

    def distance(self, expected: "Answer") -> float | None:
        """Give the largest |Δ| between numbers; None where the two decide otherwise, and 0 between equal ones."""
        if self.sha256 == expected.sha256:
            return 0.0
        if self.decision != expected.decision or len(self.numbers) != len(expected.numbers):
            return None
        return max((abs(one - other) for one, other in zip(self.numbers, expected.numbers, strict=True)), default=0.0)


class Reading(msgspec.Struct, frozen=True):
    """What an exchange came to.

    Attributes:
        outcome: Refused are inputs that the server reads and will not answer, such as too long ones.
        reason: Why there is no answer.
        answer: Of an outcome that is not a failure: a refusal is an answer too, and has to stay the same.
    """

    outcome: Outcome
    reason: str = ""
    answer: Answer | None = None


def read(exchange: callers.Exchange) -> Reading:
    """Read what came of a request."""
    found = exchange.response
    if found is None:
        return Reading("failed", exchange.failure)
    try:
        body = msgspec.json.decode(found.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Reading("failed", f"status {found.status} without JSON")
    if found.status in REFUSALS:
        return Reading("refused", _code(body) or f"status {found.status}", _answer(_code(body)))
    if found.status != OK:
        return Reading("failed", f"status {found.status} {_code(body)}".rstrip())
    return _read_results(body)


def _read_results(body: Any) -> Reading:
    if not isinstance(body, dict):
        return Reading("failed", "an answer that is no JSON object")
    named = [body[name] for name in RESULTS if name in body]
    results = named[0] if named else {name: value for name, value in body.items() if name not in BESIDE}
    if not results:
        return Reading("failed", "an answer without results")
    # A body may hold several inputs; one that is refused makes the request's time another one, so it does not count.
    codes = [_code(result) for result in results if _code(result)] if isinstance(results, list) else []
    if codes:
        return Reading("refused", codes[0], _answer(codes))
    answer = _answer(results)
    # JSON has no other numbers that are not finite than null; a server that says null says nothing.
    if answer is None or not all(map(math.isfinite, answer.numbers)):
        return Reading("failed", "an answer with null or a text where a number belongs")
    return Reading("answered", "", answer)


def _code(value: Any) -> str:
    """Give the code of an error in the shapes that servers use; empty where there is none."""
    error = value.get("error") if isinstance(value, Mapping) else None
    said = error.get("code") if isinstance(error, Mapping) else error
    return "".join(one if one.isprintable() else " " for one in str(said)[:SHOWN]) if said else ""


def _answer(results: Any) -> Answer | None:
    numbers: list[float] = []
    try:
        decided = list(_walk(results, numbers))
        exact = msgspec.json.encode(results, order="sorted")
    except (TypeError, OverflowError, RecursionError):
        return None
    return Answer(digests.sha256_of_bytes(exact), digests.sha256_of_bytes(msgspec.json.encode(decided)), tuple(numbers))


def _walk(value: Any, numbers: list[float], name: str = "") -> Iterator[Any]:
    """Give what was decided, in a fixed order, and put numbers aside."""
    if isinstance(value, dict):
        for key in sorted(value):
            if key != INPUT:
                yield key
                yield from _walk(value[key], numbers, key)
    elif isinstance(value, list):
        yield len(value)
        for item in value:
            yield from _walk(item, numbers, name)
    elif name in NUMBERS and not (name == "embedding" and isinstance(value, str)):  # a vector in base64 has no numbers
        numbers.append(_number(value))
    else:
        yield value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} where a number belongs")
    return float(value)
