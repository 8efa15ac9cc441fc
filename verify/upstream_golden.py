"""Upstream's golden answers: their file of a few inputs with what each pinned model answered in FP32, read and checked.

    {"source": "…",
     "inputs": {"text": ["…", "…"], "grounded": {"context", "question", "answer"},
                "rerank": {"query": "…", "documents": ["…", "…"]}},
     "cpu": {"Domain":   {"revision": "…", "probabilities": [[…], […]]},    one list for each text
             "Hazard":   {"revision": "…", "scores": [[…], […]]},
             "PII":      {"revision": "…", "spans": [[["PERSON", 0, 4, 0.99]], []]},
             "Halu":     {"revision": "…", "spans": [["hallucinated", 27, 32, 0.96]]},   of the grounded input
             "Reranker": {"revision": "…", "logit": [5.8, -4.7]}}}           one for each document

They were made by other code on another machine, so they vouch for a checkpoint, and for whatever answers in its place,
independently of this project: a graph of a sibling model differs from them on the first text. An embedder's
`embeddings`, one vector for each text, are read too. What else a newer file holds is passed over, and said where
nothing of a model is left to compare. The file is somebody else's: bounded, and without numbers that are not finite.
Source: reference/vela-family.md §1.4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec

from vela.graphs import errors, model_table
from vela.serve.reading import Grounded, Item, Pair

LIMIT_BYTES = 4 << 20  # eleven models' answers to two texts are 8 kB
MOST_INPUTS = 64  # of a kind; these are a few sentences, not a corpus
MOST_CHARACTERS = 1 << 20
MOST_VALUES = 65_536
REVISION_DIGITS = model_table.REVISION_DIGITS

Text = Annotated[str, msgspec.Meta(max_length=MOST_CHARACTERS)]
Texts = Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_INPUTS)]
Place = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Numbers = Annotated[tuple[float, ...], msgspec.Meta(min_length=1, max_length=MOST_VALUES)]
Rows = tuple[Numbers, ...]


class GroundedInput(msgspec.Struct, frozen=True):
    """An answer, and what it must be supported by."""

    context: Text
    question: Text
    answer: Text


class RerankInput(msgspec.Struct, frozen=True):
    """A query and its documents."""

    query: Text
    documents: Texts


class Inputs(msgspec.Struct, frozen=True):
    """What all models were asked."""

    text: Texts = ()
    grounded: GroundedInput | None = None
    rerank: RerankInput | None = None


class Span(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A labelled piece of a text, in code points, end exclusive."""

    label: str
    start: Place
    end: Place
    probability: Share

    def __post_init__(self) -> None:
        if not self.label.isprintable():
            raise ValueError(f"the label {self.label!r} holds control characters, which a terminal would obey")


Spans = tuple[Span, ...]


class Answers(msgspec.Struct, frozen=True):
    """One model's answers; each field of them holds one entry for each input.

    Attributes:
        revision: The commit of the model that answered.
        probabilities: Of each text, in label order.
        scores: Of each text, in label order.
        spans: Of each text a list of spans, or the spans of the grounded input.
        logit: Of each document.
        embeddings: Of each text, the whole model's unit vector.
    """

    revision: Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{{REVISION_DIGITS}}}$")]
    probabilities: Rows | None = None
    scores: Rows | None = None
    spans: tuple[Any, ...] | None = None
    logit: Numbers | None = None
    embeddings: Rows | None = None

    @property
    def spans_of_texts(self) -> tuple[Spans, ...] | None:
        """The spans of each text; None where they are the grounded input's, or there are none."""
        if self.spans is None or self._is_flat:
            return None
        return msgspec.convert(self.spans, tuple[Spans, ...])

    @property
    def spans_of_grounded(self) -> Spans | None:
        """The spans of the grounded input; None where they are the texts', or there are none."""
        if self.spans is None or not self._is_flat:
            return None
        return msgspec.convert(self.spans, Spans)

    @property
    def _is_flat(self) -> bool:
        """Whether spans stand where lists of spans of each text would; without any entry they are no text's."""
        first = next((one for one in self.spans or () if one != []), None)
        return not self.spans or (isinstance(first, list) and isinstance(first[0], str))


class UpstreamGolden(msgspec.Struct, frozen=True):
    """The content of the file.

    Attributes:
        source: Where it was found, for people.
        inputs: What was asked.
        cpu: The FP32 answers by model.
    """

    source: str
    inputs: Inputs
    cpu: dict[str, Answers]

    def __post_init__(self) -> None:
        for name, found in self.cpu.items():
            if not name.isprintable():
                raise ValueError(f"the model name {name!r} holds control characters, which a terminal would obey")
            for field, entries, inputs in _sized(found, self.inputs):
                if entries != inputs:
                    raise ValueError(f"{name}: {field} of {entries} inputs, and there are {inputs}")

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            VerificationError: it is too large, is not of the format, or holds a number that is not finite.
        """
        with path.open("rb") as stream:
            content = stream.read(LIMIT_BYTES + 1)
        if len(content) > LIMIT_BYTES:
            raise _unusable(f"more than {LIMIT_BYTES:,} bytes", path)
        try:
            return msgspec.json.decode(content, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
            raise _unusable(f"content that is not of the format ({cause})", path) from cause

    def questions(self, name: str) -> list["Question"]:
        """List what a model was asked and answered, field by field."""
        found, texts = self.cpu[name], self.inputs.text
        questions = [
            Question(field, _named("text", texts), texts, entries)
            for field, entries in {
                "probabilities": found.probabilities,
                "scores": found.scores,
                "spans": found.spans_of_texts,
                "embeddings": found.embeddings,
            }.items()
            if entries is not None
        ]
        grounded, ranked = self.inputs.grounded, self.inputs.rerank
        if found.spans_of_grounded is not None and grounded is not None:
            item = Grounded(grounded.context, grounded.question, grounded.answer)
            questions.append(Question("spans", ("the grounded answer",), (item,), (found.spans_of_grounded,)))
        if found.logit is not None and ranked is not None:
            pairs = [Pair(ranked.query, document) for document in ranked.documents]
            questions.append(Question("logit", _named("document", pairs), tuple(pairs), found.logit))
        return questions


@dataclass(frozen=True, slots=True)
class Question:
    """One field of a model's answers, with the inputs that it is about.

    Attributes:
        field: Its name in the file.
        names: Of the inputs, for people; their texts are not shown.
        items: The inputs.
        expected: What the model answered, one entry for each.
    """

    field: str
    names: tuple[str, ...]
    items: tuple[Item, ...]
    expected: Sequence[Any]


def _named(kind: str, inputs: Sequence[object]) -> tuple[str, ...]:
    return tuple(f"{kind} {number}" for number in range(1, len(inputs) + 1))


def _sized(found: Answers, inputs: Inputs) -> list[tuple[str, int, int]]:
    """List the fields of a model's answers, each with how many inputs it answers and how many there are."""
    texts = len(inputs.text)
    documents = len(inputs.rerank.documents) if inputs.rerank else 0
    rows: Mapping[str, Sequence[object] | None] = {
        "probabilities": found.probabilities,
        "scores": found.scores,
        "spans": found.spans_of_texts,
        "embeddings": found.embeddings,
    }
    sized = [(field, len(entries), texts) for field, entries in rows.items() if entries is not None]
    if found.spans_of_grounded is not None:
        sized.append(("spans", 1, int(inputs.grounded is not None)))
    if found.logit is not None:
        sized.append(("logit", len(found.logit), documents))
    return sized


def _unusable(found: str, path: Path) -> errors.VerificationError:
    return errors.VerificationError(
        found,
        expected=f"upstream's golden answers, at most {LIMIT_BYTES:,} bytes",
        where=path.name,
        fix="docs/golden.md shows the format; nothing was compared.",
    )
