"""Requests from the project's own corpus, with lengths as real traffic has them.

Lengths matter more than words: a forward of 512 tokens takes ten times one of 16, so a corpus of another mix measures
another thing. Texts are rows of the corpus where one of about the wanted length is left, and pieces of several rows
where none is. Equal arguments give equal requests; nothing is drawn at random.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vela.graphs import errors
from vela.verify import rows
from vela.verify.latency import corpus

Kind = Literal["classify", "embed", "rerank", "grounded"]
DEFAULT_TEXTS = 400

# Share of requests that are no longer, and characters; between them lengths grow evenly on a logarithmic scale.
# Source: the router's 527 test prompts, 2 to 1,336 characters, median 56, 95th percentile 456
# (reference/vela-family.md §6). The last half percent is not theirs:
# documents of up to 2,000 tokens, which real traffic has too.
LENGTHS = ((0.0, 2), (0.5, 56), (0.95, 456), (0.99, 1_336), (0.995, 2_000), (1.0, 8_000))
NEAR = 0.15  # how far a row's length may be from what is wanted, as a share of it
SEPARATOR = "\n"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a corpus is made for.

    Attributes:
        kind: What is asked.
        texts: How many requests.
        model: Named in each body; left out where empty, for servers of one model.
        corpus: A user's texts, asked as they are in place of the project's.
    """

    kind: Kind = "classify"
    texts: int = DEFAULT_TEXTS
    model: str = ""
    corpus: Path | None = None


def make_corpus(wanted: Wanted) -> corpus.Corpus:
    """Make the requests.

    Raises:
        VerificationError: a user's file cannot be used, or is given for a kind that has no single texts.
        NothingCompared: a user's file has no text.
    """
    found = rows.read_corpus(wanted.corpus)
    if wanted.corpus is not None and wanted.kind in ("rerank", "grounded"):
        raise errors.VerificationError(
            "a corpus of single texts",
            expected="none: these requests are made from the project's own rows",
            where=f"--corpus with --kind {wanted.kind}",
            fix='Leave it out, or write the requests yourself: JSON lines of {"id", "path", "body"}.',
        )
    model = {"model": wanted.model} if wanted.model else {}
    requests = [
        corpus.Request(f"{wanted.kind[0]}{number:05d}", path, model | body)
        for number, (path, body) in enumerate(_bodies(wanted, found))
    ]
    source = wanted.corpus.name if wanted.corpus else f"the project's corpus {found.sha256[:12]}"
    return corpus.Corpus(tuple(requests), f"{len(requests)} {wanted.kind} requests from {source}")


def length_at(share: float) -> int:
    """Give the characters that so large a share of texts does not exceed."""
    for (low, shorter), (high, longer) in itertools.pairwise(LENGTHS):
        if share <= high:
            grown = (share - low) / (high - low)
            return round(math.exp(math.log(shorter) + grown * (math.log(longer) - math.log(shorter))))
    return LENGTHS[-1][1]


def make_texts(source: Sequence[rows.TextRow], count: int) -> list[str]:
    """Make so many texts, no two alike, with the lengths of real traffic, mixed as evenly as can be."""
    made = _Texts(source)
    # Whole turns of the golden section put short and long ones beside each other, at any count, without a dice.
    places = sorted(range(count), key=lambda number: (number * (math.sqrt(5) - 1) / 2) % 1)
    texts = [""] * count
    for rank, place in enumerate(places):
        texts[place] = made.take(length_at((rank + 0.5) / count))
    return texts


class _Texts:
    """Hands out texts of wanted lengths, each at most once."""

    def __init__(self, source: Sequence[rows.TextRow]) -> None:
        self._rows = [row for row in source if row.text.strip()]
        self._left = dict.fromkeys(row.text for row in self._rows)
        self._given: set[str] = set()
        self._start = 0

    def take(self, characters: int) -> str:
        nearest = min(self._left, key=lambda text: abs(len(text) - characters), default="")
        if nearest and abs(len(nearest) - characters) <= max(1.0, NEAR * characters):
            del self._left[nearest]
            self._given.add(nearest)
            return nearest
        return self._compose(characters)

    def _compose(self, characters: int) -> str:
        """Cut a piece of so many characters from rows that follow each other; longer if all such pieces are given."""
        for attempt in range(2 * len(self._rows)):
            self._start = (self._start + 1) % len(self._rows)
            wanted = characters + attempt // len(self._rows)
            text = rows.long_text(self._rows, self._start, wanted)[:wanted]
            if text.strip() and text not in self._given:
                self._given.add(text)
                return text
        return self._compose(characters + 2)


def _bodies(wanted: Wanted, found: rows.Corpus) -> Iterator[tuple[str, dict[str, Any]]]:
    match wanted.kind:
        case "classify":
            yield from (("/v1/classify", {"input": text}) for text in _texts(wanted, found))
        case "embed":
            yield from (("/v1/embeddings", {"input": text}) for text in _texts(wanted, found))
        case "rerank":
            yield from (("/v1/rerank", _pair(found.pairs, number)) for number in range(wanted.texts))
        case "grounded":
            yield from (("/v1/classify", _triple(found.grounded, number)) for number in range(wanted.texts))


def _texts(wanted: Wanted, found: rows.Corpus) -> list[str]:
    if wanted.corpus is None:
        return make_texts(found.texts, wanted.texts)
    own = len(rows.read_corpus().texts)
    texts = [row.text for row in found.texts[own:]]
    count = min(wanted.texts, len(texts))
    return [texts[number * len(texts) // count] for number in range(count)]


def _pair(pairs: Sequence[rows.PairRow], number: int) -> dict[str, Any]:
    """Ask for a query's documents; in later rounds some of another query's stand before them."""
    turn, place = divmod(number, len(pairs))
    others = pairs[(place + turn) % len(pairs)].documents[: 1 + (turn - 1) % 8] if turn else ()
    return {"query": pairs[place].query, "documents": [*others, *pairs[place].documents]}


def _triple(triples: Sequence[rows.GroundedRow], number: int) -> dict[str, Any]:
    """Ask about an answer; in later rounds the contexts of so many other questions stand before its own."""
    turn, place = divmod(number, len(triples))
    others = [triples[(place + step) % len(triples)].context for step in range(1, turn + 1)]
    row = triples[place]
    context = SEPARATOR.join([*others, row.context])
    return {"input": [{"context": context, "question": row.question, "answer": row.answer}]}
