"""What the inputs of jobs hold: a jobs file's texts, checked against their jobs before anybody is asked.

They are recorded once, in the jobs file, so that every side answers the same bytes; an answer file names only their
ids and the digest of all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from vela.graphs import errors
from vela.serve.reading import Grounded, Item, Pair
from vela.verify.parity import jobs, lines


class Given(msgspec.Struct, frozen=True):
    """One input: a text, a grounded triple, or a query with documents.

    Attributes:
        id: Its name in its job.
        text: Of jobs that read texts.
        context: Of a grounded answer.
        question: Of a grounded answer.
        answer: The answer that is judged.
        query: Of jobs that rank documents.
        documents: What is ranked.
    """

    id: str
    text: str | None = None
    context: str | None = None
    question: str | None = None
    answer: str | None = None
    query: str | None = None
    documents: tuple[str, ...] | None = None

    def items(self, mode: jobs.Mode) -> tuple[Item, ...]:
        """What a model reads: one item, or one for each document."""
        match mode, self:
            case "rerank", Given(query=str(query), documents=tuple(documents)):
                return tuple(Pair(query, document) for document in documents)
            case "grounded", Given(context=str(context), question=str(question), answer=str(answer)):
                return (Grounded(context, question, answer),)
            case _, Given(text=str(text)):
                return (text,)
        raise ValueError(f"input {self.id} has not the parts of a {mode} job")  # refused when the file was read

    @property
    def strings(self) -> tuple[str, ...]:
        """All that is read, as it stands."""
        found = (self.text, self.context, self.question, self.answer, self.query, *(self.documents or ()))
        return tuple(text for text in found if text is not None)


@dataclass(frozen=True, slots=True)
class Asked:
    """Jobs with their inputs.

    Attributes:
        plan: The jobs.
        given: The inputs of each job, by its name, in order.
    """

    plan: jobs.Plan
    given: Mapping[str, tuple[Given, ...]]

    @classmethod
    def from_file(cls, path: Path, only: Sequence[str] = ()) -> Self:
        """Read a jobs file with its inputs.

        Args:
            path: The jobs file.
            only: Names of the jobs that are asked; all where none is given. The digest is of their inputs alone.

        Raises:
            VerificationError: the file cannot be used, has no job of a name, or a job has an input that it cannot read.
        """
        raw = jobs.read_raw(path)
        whole = jobs.Plan.from_raw(raw, path)
        unknown = [name for name in only if name not in {job.job for job in whole.jobs}]
        if unknown or not whole.jobs:
            raise errors.VerificationError(
                f"no job {', '.join(map(repr, unknown)) or 'at all'}",
                expected=f"one of {', '.join(job.job for job in whole.jobs)}" if unknown else "jobs",
                where=path.name,
                fix="Name jobs of the file with --jobs-only, or make another with `vela parity corpus`.",
            )
        kept = [spec for spec in raw if not only or spec["Job"] in only]
        plan = whole if len(kept) == len(raw) else jobs.Plan.from_raw(kept, path)
        given = {job.job: _inputs(path, job, spec["Inputs"]) for job, spec in zip(plan.jobs, kept, strict=True)}
        return cls(plan, given)


def _inputs(path: Path, job: jobs.Job, raw: Any) -> tuple[Given, ...]:
    try:
        found = msgspec.convert(raw, tuple[Given, ...])
    except msgspec.MsgspecError as cause:
        raise jobs.unusable(path, f"inputs of job {job.job} that are none ({cause})") from cause
    for one in found:
        if problem := _problem(job, one):
            raise jobs.unusable(path, f"input {one.id} of job {job.job} with {problem}")
    if job.kind == "rerank" and job.options.overflow not in (None, "reject"):
        raise jobs.unusable(path, f"job {job.job} with overflow {job.options.overflow!r}, where pairs are read whole")
    return found


def _problem(job: jobs.Job, given: Given) -> str:
    """Say why a job cannot read an input; empty where it can."""
    match job.mode:
        case "grounded":
            lacks = None in (given.context, given.question, given.answer)
            wanted = "context, question and answer"
        case "rerank":
            lacks = given.query is None or not given.documents or len(given.documents) > lines.MAX_DOCUMENTS
            wanted = f"a query and 1 to {lines.MAX_DOCUMENTS:,} documents"
        case _:
            lacks, wanted = given.text is None, "a text"
    if lacks:
        return f"other parts than {wanted}"
    try:
        "".join(given.strings).encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair, which no request can hold"
    return ""
