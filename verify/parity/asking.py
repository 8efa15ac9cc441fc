"""Record a side's answers: every input twice and in order, then several callers at once, line by line into a file.

The first answer is the one that is compared; the second tells how long an answer takes. Nothing but one answer is held
at a time. A run that is stopped, or whose server dies, is taken up again by the same command.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vela.graphs import errors
from vela.verify.latency import machine
from vela.verify.parity import draft, inputs, jobs, lines, side

CALLERS = 4  # Source: upstream's records, which state a concurrency of 4
PROGRESS_S = 5.0  # between two lines of progress
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What came of one job.

    Attributes:
        job: Its name.
        answered: Inputs with an answer.
        rejected: Inputs without one.
        resumed: Those of both that an earlier run had recorded.
    """

    job: str
    answered: int
    rejected: int
    resumed: int

    def __str__(self) -> str:
        resumed = f", {self.resumed} of them before" if self.resumed else ""
        return f"{self.job}: {self.answered} answered, {self.rejected} rejected{resumed}"


@dataclass(frozen=True, slots=True)
class Asking:
    """A recording that is to be made.

    Attributes:
        asked: What is asked.
        system: Who is.
        load_s: How long several callers ask for each job; 0 for not at all.
        progress: Told what is being done.
    """

    asked: inputs.Asked
    system: side.Side
    load_s: float
    progress: Progress

    def record(self, out: Path) -> list[Recorded]:
        """Record all jobs into a file, or what an earlier run left of them.

        Raises:
            VerificationError: the file cannot be written, or the side has no model of a job.
            EngineError: a model does not load, or a server died; the message says how much is recorded.
            VelaError: a model cannot be opened or is not asked in that way.
        """
        draft.require_free(out)  # before gigabytes are hashed
        stated = tuple(map(self.system.state, self.asked.plan.jobs))
        plan = jobs.Plan(stated, self.asked.plan.inputs_sha256)
        header = lines.header_line(plan, self.system.name, machine.describe() | self.system.context)
        with draft.Draft.open(out, header) as kept:
            try:
                found = [self._record_job(job, kept) for job in plan.jobs]
            except errors.EngineError as cause:
                raise self._stopped(cause, kept) from cause
            finally:
                self.system.close()
            kept.finish()
        return found

    def _record_job(self, job: jobs.Job, kept: draft.Draft) -> Recorded:
        given = self.asked.given[job.job]
        left = [one for one in given if (job.job, one.id) not in kept.answered]
        is_loaded = not self.load_s or job.job in kept.loads
        if left or not is_loaded:
            answerer = self.system.open(job)
            self._ask_all(job, answerer, left, kept)
            answered = [one for one in given if kept.answered[job.job, one.id]]
            if answered and not is_loaded:  # a load of rejections would tell how fast nothing is done
                self.progress(f"{job.job}: {CALLERS} callers for {self.load_s:g} s")
                kept.append(msgspec.json.encode(measure_load(job, answerer, answered, self.load_s)) + b"\n")
        count = sum(kept.answered[job.job, one.id] for one in given)
        return Recorded(job.job, count, len(given) - count, len(given) - len(left))

    def _ask_all(self, job: jobs.Job, answerer: side.Answerer, left: Sequence[inputs.Given], kept: draft.Draft) -> None:
        told = time.monotonic()
        for number, given in enumerate(left, start=1):
            first, second = answerer.ask(given), answerer.ask(given)
            if first.is_answered != second.is_answered:  # failing is quick, and the second is the one that is timed
                raise _fails_again(job, given, second if first.is_answered else first)
            reply = first.read()
            line = lines.Line(job.job, given.id, reply.result, reply.error, (first.latency_ns, second.latency_ns))
            kept.append(lines.answer_line(line))
            kept.answered[job.job, given.id] = reply.error is None
            if number == len(left) or time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                self.progress(f"{job.job}: {number} of {len(left)} asked")

    def _stopped(self, cause: errors.EngineError, kept: draft.Draft) -> errors.EngineError:
        total = sum(len(job.inputs) for job in self.asked.plan.jobs)
        fix = f"{cause.fix} {len(kept.answered)} of {total} answers are recorded; the same command goes on from there."
        return errors.EngineError(cause.found, expected=cause.expected, where=cause.where, fix=fix)


def measure_load(
    job: jobs.Job,
    answerer: side.Answerer,
    answered: Sequence[inputs.Given],
    load_s: float,
    clock: side.Clock = side.default_clock,
) -> lines.Load:
    """Let several callers ask in a closed loop, each its own share of the inputs, again and again.

    Args:
        job: What is asked.
        answerer: Who is.
        answered: Inputs that have an answer.
        load_s: How long; a question that was begun is waited for.
        clock: Nanoseconds.

    Raises:
        EngineError: the server died, or does not answer what it answered to one caller.
    """
    begun = clock()
    end = begun + int(load_s * 1e9)

    def call(caller: int) -> list[int]:
        latencies: list[int] = []
        place = caller
        while clock() < end:
            given = answered[place % len(answered)]
            found = answerer.ask(given)
            if not found.is_answered:  # failing is quick, and would pass for speed
                raise _fails_under_load(job, given, found)
            latencies.append(found.latency_ns)
            place += CALLERS
        return latencies

    with ThreadPoolExecutor(CALLERS) as pool:
        every = tuple(latency for latencies in pool.map(call, range(CALLERS)) for latency in latencies)
    return lines.Load(job.job, CALLERS, len(every), (clock() - begun) / 1e9, every)


def _fails_again(job: jobs.Job, given: inputs.Given, found: side.Call) -> errors.EngineError:
    problem = found.read().error
    return errors.EngineError(
        f"{problem.code if problem else 'no answer'} to {given.id} once, and an answer the other time",
        expected="the same both times",
        where=f"job {job.job}",
        fix="Look at the server's log: it answers the same question in two ways.",
    )


def _fails_under_load(job: jobs.Job, given: inputs.Given, found: side.Call) -> errors.EngineError:
    problem = found.read().error
    said = f"{problem.code}: {problem.message}" if problem else "no answer"
    return errors.EngineError(
        f"{said} to {given.id} from one of {CALLERS} callers",
        expected="the answers that one caller got",
        where=f"job {job.job} under load",
        fix="Look at the server's log; --load-seconds 0 records answers without load.",
    )
