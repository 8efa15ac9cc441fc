"""The project's own verification texts, and a user's: rows of text before any tokenizer has seen them.

The corpus is package data, so an installed wheel judges by the same texts as a source tree. Long documents are made
here from its rows, in an order that depends on nothing but the rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from vela.graphs import digests, errors

CORPUS_FOLDER = Path(__file__).parent / "corpus"
TEXT_FILES = ("prompts.jsonl", "pii.jsonl", "attacks.jsonl", "edges.jsonl")
ROW_LIMIT_BYTES = 64 << 20  # a user's corpus is untrusted input too
Row = TypeVar("Row", bound=msgspec.Struct)


class TextRow(msgspec.Struct, frozen=True):
    """One text. Other fields of a row, such as its language, are for people."""

    id: str
    text: str


class GroundedRow(msgspec.Struct, frozen=True):
    """A context, a question about it, and an answer to judge."""

    id: str
    context: str
    question: str
    answer: str


class PairRow(msgspec.Struct, frozen=True):
    """A query and documents of graded relevance."""

    id: str
    query: str
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """What cases are made from.

    Attributes:
        texts: Single texts.
        grounded: Grounded triples.
        pairs: Queries with documents.
        sha256: Digest over the files that they came from.
    """

    texts: tuple[TextRow, ...]
    grounded: tuple[GroundedRow, ...]
    pairs: tuple[PairRow, ...]
    sha256: str


def read_corpus(extra: Path | None = None) -> Corpus:
    """Read the project's corpus, and a user's JSON lines of {"id", "text"} after it.

    Raises:
        VerificationError: a row does not parse, or two rows share an id.
        NothingCompared: the user's file has no row.
    """
    files = [CORPUS_FOLDER / name for name in (*TEXT_FILES, "grounded.jsonl", "pairs.jsonl")]
    texts = [row for path in files[: len(TEXT_FILES)] for row in _read_lines(path, TextRow)]
    if extra is not None:
        texts += _user_rows(extra)
        files.append(extra)
    listing = {path.name: digests.sha256_of_file(path) for path in files}
    ids = [row.id for row in texts]
    repeated = sorted({row_id for row_id in ids if ids.count(row_id) > 1})
    if repeated:
        raise _unusable(extra or CORPUS_FOLDER, f"the id {repeated[0]!r} twice")
    return Corpus(
        tuple(texts),
        tuple(_read_lines(files[len(TEXT_FILES)], GroundedRow)),
        tuple(_read_lines(files[len(TEXT_FILES) + 1], PairRow)),
        digests.digest_of_listing(listing),
    )


def _user_rows(path: Path) -> list[TextRow]:
    found = _read_lines(path, TextRow)
    if not found:
        raise errors.NothingCompared(
            "a corpus without a row",
            expected='JSON lines of {"id": ..., "text": ...}',
            where=path.name,
            fix="Give it texts, or leave --corpus out; an empty corpus compares nothing.",
        )
    return found


def long_text(texts: Sequence[TextRow], start: int, characters: int) -> str:
    """Join rows, from row `start` on and round again, until the text has at least `characters` code points."""
    pieces: list[str] = []
    length = 0
    while length < characters:
        text = texts[(start + len(pieces)) % len(texts)].text
        pieces.append(text)
        length += len(text) + 1
    return "\n".join(pieces)


def _read_lines(path: Path, kind: type[Row]) -> list[Row]:
    if not path.is_file() or path.stat().st_size > ROW_LIMIT_BYTES:
        raise _unusable(path, "no file of a sane size")
    rows = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            rows.append(msgspec.json.decode(line, type=kind))
        except (msgspec.MsgspecError, RecursionError) as cause:
            raise _unusable(path, f"line {number} that does not parse ({cause})") from cause
    return rows


def _lines(path: Path) -> Iterable[bytes]:
    return (line for line in path.read_bytes().split(b"\n") if line.strip())


def _unusable(path: Path, found: str) -> errors.VerificationError:
    return errors.VerificationError(
        found,
        expected='JSON lines of {"id": ..., "text": ...} with unique ids',
        where=str(path.name),
        fix="Mend the file; nothing was compared.",
    )
