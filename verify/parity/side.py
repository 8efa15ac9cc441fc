"""A side of a comparison: a system that is asked, and what its answers become in a file.

Sides differ in who computes: PyTorch, a bundle's graphs, a server, somebody else's graph. What is asked, how an answer
is written, and which of a side's models a job means are settled here, once for all of them.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from vela.graphs import digests, errors, heads, model_table
from vela.serve import answers, policy
from vela.serve.decode import rerank
from vela.serve.http import schema
from vela.serve.reading import Item
from vela.verify.parity import inputs, jobs, lines

Answered = Sequence[answers.Answer | answers.FailedAnswer]
Clock = Callable[[], int]
default_clock: Clock = time.perf_counter_ns


@dataclass(frozen=True, slots=True)
class Reply:
    """One input's answer as a file states it; exactly one of the two is there.

    Attributes:
        result: The native surface's answer.
        error: Why there is none.
    """

    result: Any = None
    error: lines.Problem | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """An input that was asked.

    Attributes:
        latency_ns: From the question to the whole answer; reading the answer takes time of its own.
        read: Makes of the answer what is written.
        is_answered: Whether it is one, and no error, as far as that is seen without reading it.
    """

    latency_ns: int
    read: Callable[[], Reply]
    is_answered: bool = True


class Answerer(Protocol):
    """A model that answers one job's inputs, several callers at once."""

    def ask(self, given: inputs.Given) -> Call:
        """Ask one input; EngineError where there is nobody to ask any more."""
        ...


class Side(Protocol):
    """A system, before and while it is asked."""

    @property
    def name(self) -> str:
        """What a file calls it."""
        ...

    @property
    def context(self) -> dict[str, str]:
        """Facts for people; of the models too, once jobs were stated."""
        ...

    def state(self, job: jobs.Job) -> jobs.Job:
        """Give a job with the labels, thresholds and revision of the model that answers it; nothing is asked yet."""
        ...

    def open(self, job: jobs.Job) -> Answerer:
        """Load what answers a job; the model of the job before may be given up for it."""
        ...

    def close(self) -> None:
        """Give up what is held."""
        ...


@dataclass(frozen=True, slots=True)
class LocalAnswerer:
    """A model in this process; callers wait for each other, as engines take one at a time.

    Attributes:
        job: What is asked.
        answer: Answers items.
        lock: Held while it does.
        clock: Nanoseconds.
    """

    job: jobs.Job
    answer: Callable[[Sequence[Item]], Answered]
    lock: threading.Lock
    clock: Clock = default_clock

    def ask(self, given: inputs.Given) -> Call:
        """Ask one input; see `Answerer.ask`. The time that a caller waits for others is part of its latency."""
        items = given.items(self.job.mode)
        begun = self.clock()
        with self.lock:
            found = self.answer(items)
        latency_ns = self.clock() - begun
        is_answered = not any(isinstance(one, answers.FailedAnswer) for one in found)
        return Call(latency_ns, lambda: reply_of(found), is_answered)


def reply_of(found: Answered) -> Reply:
    """Put a model's answer to one input into the surface's shape; one of a query has several parts."""
    failed = next((one for one in found if isinstance(one, answers.FailedAnswer)), None)
    if failed is not None:
        return Reply(error=lines.Problem(failed.error.code, failed.error.message))
    match found:
        case [answers.EmbeddingAnswer() as one]:
            numbers: list[float] = one.embedding.tolist()
            return Reply(schema.EmbeddingData("embedding", one.index, numbers, one.input))
        case [answers.SequenceAnswer() | answers.ScoresAnswer() | answers.TokenAnswer() as one]:
            return Reply(one)
    ranked = [one for one in found if isinstance(one, answers.RerankAnswer)]
    if not ranked or len(ranked) < len(found):
        raise ValueError(f"{len(found)} answers to one input")
    results = [
        schema.RerankResult(one.index, one.relevance_score, one.logit, one.input)
        for one in (ranked[place] for place in rerank.order_documents([one.logit for one in ranked]))
    ]
    return Reply({"results": results})


def options_of(job: jobs.Job) -> policy.Options:
    """Give the options with which a job asks; an operating point brings its own, and every token's row is wanted."""
    if job.mode == "operating_point":
        return policy.Options()
    window = None if job.options.window is None else heads.Window(*job.options.window)
    return policy.Options(job.options.overflow, job.options.max_tokens, window, return_tokens=job.kind == "token")


def state_head(job: jobs.Job, head: heads.Head, revision: str) -> jobs.Job:
    """Give a job with what a model's head says of itself.

    Raises:
        VerificationError: the head is of another kind than the job asks, or has other labels than the job states.
    """
    if head.kind != job.kind or (head.inputs == "grounded") != (job.mode == "grounded"):
        raise _no_model(job, f"a {head.kind} head over {head.inputs}", f"one that is asked in the mode {job.mode}")
    point = head.decoder.operating_point if isinstance(head.decoder, heads.ScoresDecoder) else None
    if job.mode == "operating_point" and point is None:
        raise _no_model(job, "scores without an operating point", "a model that brings one")
    return state_labels(job, heads.labels_of(head.decoder), point.thresholds if point else (), revision)


UNSTATED = "unstated"  # by the system that was asked; what the jobs file means may be another


def state_labels(job: jobs.Job, labels: Sequence[str], thresholds: Sequence[float], revision: str) -> jobs.Job:
    """Give a job with a model's labels and thresholds.

    Raises:
        VerificationError: the job states other labels.
    """
    if job.labels and labels and tuple(labels) != job.labels:
        raise _no_model(job, f"the labels {', '.join(labels)}", ", ".join(job.labels))
    known = tuple(labels) or job.labels
    points = tuple(thresholds) if len(thresholds) == len(known) else ()
    return msgspec.structs.replace(job, labels=known, thresholds=points, revision=revision or UNSTATED)


def find_entry(table: model_table.ModelTable, name: str) -> model_table.ModelEntry | None:
    """Find a model by any of its names."""
    return next((entry for entry in table.models if name.casefold() in entry.aliases), None)


def names_of(job: jobs.Job, table: model_table.ModelTable) -> tuple[str, ...]:
    """List what a job's model may be called where it is kept, likeliest first."""
    tail = job.model.rpartition("/")[2]
    entry = find_entry(table, job.model)
    own = (entry.name, *sorted(entry.aliases)) if entry else ()
    return tuple(dict.fromkeys(name for one in (*own, tail, job.model) for name in (one.lower(), one)))


def choose(job: jobs.Job, table: model_table.ModelTable, known: Iterable[str], where: str) -> str:
    """Give the name under which a place has a job's model.

    Raises:
        VerificationError: it has none of its names.
    """
    present = {name.casefold(): name for name in known}
    wanted = names_of(job, table)
    for name in wanted:
        if name.casefold() in present:
            return present[name.casefold()]
    shown = ", ".join(sorted(present.values())) or "nothing"
    raise errors.VerificationError(
        shown,
        expected=f"{job.model} as one of {', '.join(dict.fromkeys(name.lower() for name in wanted))}",
        where=where,
        fix="Put the model there under one of these names, or choose other jobs with --jobs-only.",
    )


def revision_of(files: Mapping[str, str], entry: model_table.ModelEntry | None) -> str:
    """Name the commit that has exactly a model's pinned files, else the digest of what lies there instead."""
    if entry is not None and entry.files.items() <= files.items():
        return entry.revision
    return f"unpinned, files {digests.digest_of_listing(files)[:12]}"


def _no_model(job: jobs.Job, found: str, expected: str) -> errors.VerificationError:
    return errors.VerificationError(
        found,
        expected=expected,
        where=f"the model of job {job.job}",
        fix="This is another model than the jobs file means: correct the place it is taken from, or the jobs file.",
    )
