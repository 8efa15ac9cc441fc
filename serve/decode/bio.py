"""Token labels to spans, by the rules of the router's token classifier.

Each token takes its first arg-max label. `B-X` opens a span; `I-X` continues an open X, else opens one, because models
need not emit `B-`; anything else closes. A span's probability is the running mean of its tokens' winning
probabilities, and white space at its edges is trimmed.
Source: the router's model runtime, heads/token.py, which the older Rust decoder is not equal to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vela.serve import answers
from vela.serve.tokenization import Offsets

# Unicode's White_Space property, which Rust's `char::is_whitespace` follows. Python's `str.isspace` also takes
# U+001C to U+001F, which are separators of data and stay in a span.
WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


@dataclass(slots=True)
class _Open:
    kind: str
    start: int
    end: int
    probability: float
    tokens: int = 1

    def extend(self, end: int, probability: float) -> None:
        self.end = end
        self.tokens += 1
        self.probability += (probability - self.probability) / self.tokens


def decode_spans(
    text: str, offsets: Offsets, probabilities: NDArray[np.float64], labels: Sequence[str]
) -> list[answers.Span]:
    """Decode one text's tokens.

    Args:
        text: What the offsets point into.
        offsets: N pairs in code points; tokens without a place in the text are to be left out before.
        probabilities: (N, C), softmax over labels.
        labels: C labels: `O`, and `B-` and `I-` for each type.
    """
    spans = []
    for found in _runs(offsets, probabilities, labels):
        start, end = trim(text, found.start, found.end)
        if end > start:
            spans.append(answers.Span(found.kind, start, end, text[start:end], found.probability))
    return spans


def _runs(offsets: Offsets, probabilities: NDArray[np.float64], labels: Sequence[str]) -> Iterator[_Open]:
    winners = np.argmax(probabilities, axis=1)
    tops = probabilities[np.arange(len(winners)), winners]
    current: _Open | None = None
    for (start, end), winner, probability in zip(offsets, winners.tolist(), tops.tolist(), strict=True):
        tag, kind = labels[winner][:2], labels[winner][2:]
        if tag == "I-" and current is not None and current.kind == kind:
            current.extend(end, probability)
            continue
        if current is not None:
            yield current
        current = _Open(kind, start, end, probability) if tag in ("B-", "I-") else None
    if current is not None:
        yield current


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Move the edges of a slice past white space; a slice of nothing else stays as it is."""
    piece = text[start:end]
    kept = piece.lstrip(WHITE_SPACE)
    if not kept:
        return start, end
    lead = len(piece) - len(kept)
    return start + lead, start + lead + len(kept.rstrip(WHITE_SPACE))
