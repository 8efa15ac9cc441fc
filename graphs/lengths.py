"""Observed request lengths: how many requests had how many tokens, read from a file that an operator collected.

`vela plan-buckets` plans a ladder for them. The file comes from somebody's logs, so it is bounded and read strictly.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Self

import msgspec

from vela.graphs import errors

LENGTHS_LIMIT_BYTES = 64 << 20  # some ten million requests, one a line; more belong into counts
TOKENS_LIMIT = 10_000_000  # no encoder comes near; a larger number is a time stamp or an id
REQUESTS_LIMIT = 10**12

_Tokens = Annotated[int, msgspec.Meta(ge=1, le=TOKENS_LIMIT)]


class _Counted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: _Tokens
    count: Annotated[int, msgspec.Meta(ge=1, le=REQUESTS_LIMIT)]


@dataclass(frozen=True, slots=True)
class Lengths:
    """A histogram of request lengths.

    Attributes:
        counts: (tokens, requests) pairs, each positive, tokens ascending; special tokens are part of a length.
    """

    counts: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        sizes = [tokens for tokens, _ in self.counts]
        if sizes != sorted(set(sizes)) or any(min(pair) < 1 for pair in self.counts):
            raise ValueError("lengths are positive, counted at least once, and ascend")

    @classmethod
    def from_counts(cls, counts: Iterable[tuple[int, int]]) -> Self:
        """Add up (tokens, requests) pairs in any order."""
        total: Counter[int] = Counter()
        for tokens, requests in counts:
            total[tokens] += requests
        return cls(tuple(sorted(total.items())))

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a file of lines that are each a number of tokens or {"tokens": n, "count": c}; blank ones are skipped.

        Raises:
            PlanError: it is too large, a line is neither, or no line is left; the message names the line.
        """
        with path.open("rb") as stream:
            content = stream.read(LENGTHS_LIMIT_BYTES + 1)
        if len(content) > LENGTHS_LIMIT_BYTES:
            raise _unusable(f"more than {LENGTHS_LIMIT_BYTES:,} bytes", f"at most {LENGTHS_LIMIT_BYTES:,}", str(path))
        counts: Counter[int] = Counter()
        decoder = msgspec.json.Decoder(_Tokens | _Counted)
        for number, line in enumerate(content.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                length = decoder.decode(line)
            except (msgspec.MsgspecError, RecursionError) as cause:
                expected = f'a number of tokens from 1 to {TOKENS_LIMIT:,}, or {{"tokens": n, "count": c}}'
                raise _unusable(f"a line that is no length ({cause})", expected, f"{path}, line {number}") from cause
            if isinstance(length, int):
                counts[length] += 1
            else:
                counts[length.tokens] += length.count
        if not counts:
            raise _unusable("no length", "at least one", str(path))
        return cls.from_counts(counts.items())

    @property
    def requests(self) -> int:
        """Number of requests."""
        return sum(requests for _, requests in self.counts)

    @property
    def tokens(self) -> int:
        """Number of tokens of all requests together."""
        return sum(tokens * requests for tokens, requests in self.counts)

    def requests_up_to(self, sizes: Sequence[int]) -> list[int]:
        """Count, for each size, the requests of at most so many tokens."""
        tokens = [tokens for tokens, _ in self.counts]
        running = [0, *accumulate(requests for _, requests in self.counts)]
        return [running[bisect_right(tokens, size)] for size in sizes]

    def between(self, above: int, up_to: int) -> "Lengths":
        """Give the requests of more than `above` and at most `up_to` tokens."""
        return Lengths(tuple(pair for pair in self.counts if above < pair[0] <= up_to))


def _unusable(found: str, expected: str, where: str) -> errors.PlanError:
    fix = 'Write one length a line, or count them: {"tokens": n, "count": c}, one object a line.'
    return errors.PlanError(found, expected=expected, where=where, fix=fix)
