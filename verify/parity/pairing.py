"""Pair the two sides' answers: which inputs can be compared, which only one side answered, which neither did."""

from dataclasses import dataclass
from typing import Self

from vela.verify.parity import figures, jobs, measure, recording

# Codes of the surface that say that a system failed, and not that it refused an input: two that fail alike agree in
# nothing, such as two graphs that both give NaN.
FAULTS = frozenset({"invalid_model_output", "unavailable", "internal_error", "deadline_exceeded", "overloaded"})


@dataclass(frozen=True, slots=True)
class Pairing:
    """One job's inputs, sorted.

    Attributes:
        job: The job.
        differences: Of each input that both sides answered, in order.
        blocks: Of inputs that one side did not answer, by id.
        both_rejected: How many both sides rejected; they are no disagreement, and nothing was compared.
        latency_ns: Of the baseline and of the candidate, to inputs that both answered.
    """

    job: jobs.Job
    differences: tuple[figures.Difference, ...]
    blocks: tuple[tuple[str, figures.Blocked], ...]
    both_rejected: int
    latency_ns: tuple[tuple[int, ...], tuple[int, ...]]

    @classmethod
    def from_recordings(cls, job: jobs.Job, actual: recording.Recording, expected: recording.Recording) -> Self:
        """Pair the answers to one job's inputs, and measure each pair."""
        differences: list[figures.Difference] = []
        blocks: list[tuple[str, figures.Blocked]] = []
        timed: tuple[list[int], list[int]] = ([], [])
        both_rejected = 0
        for item_id in job.inputs:
            found, wanted = (side.answers.get((job.job, item_id)) for side in (actual, expected))
            if found is None or wanted is None:
                blocks.append((item_id, _missing(found, wanted)))
                continue
            if found.result is not None and wanted.result is not None:
                for answer, latencies in zip((wanted, found), timed, strict=True):
                    latencies += _timed(answer.latency_ns)  # rejecting is quick, and would pass for speed
                differences.append(measure.measure(job, item_id, found.result, wanted.result))
            elif found.result is None and wanted.result is None and not _fault(found, wanted):
                both_rejected += 1
            else:
                blocks.append((item_id, _rejected(found, wanted)))
        return cls(job, tuple(differences), tuple(blocks), both_rejected, (tuple(timed[0]), tuple(timed[1])))

    @property
    def compared(self) -> int:
        """How many inputs both sides answered."""
        return len(self.differences)

    def all_blocks(self) -> list[tuple[str, figures.Blocked]]:
        """List what fails the job by itself, in the order of the inputs."""
        found = [*self.blocks, *((each.id, block) for each in self.differences for block in each.blocks)]
        places = {item_id: place for place, item_id in enumerate(self.job.inputs)}
        return sorted(found, key=lambda pair: places[pair[0]])


def _timed(latency_ns: tuple[int, ...]) -> tuple[int, ...]:
    """Leave the first call out where there are more: it is the one that is compared, and warms up."""
    return latency_ns[1:] or latency_ns


def _missing(found: recording.Answer | None, wanted: recording.Answer | None) -> figures.Blocked:
    sides = [name for name, answer in (("baseline", wanted), ("candidate", found)) if answer is None]
    return figures.Blocked("missing", f"no answer of the {' and the '.join(sides)}")


def _fault(found: recording.Answer, wanted: recording.Answer) -> str:
    """Give an error of either side that is none of its input."""
    return next((one.error for one in (found, wanted) if one.error.partition(":")[0] in FAULTS), "")


def _rejected(found: recording.Answer, wanted: recording.Answer) -> figures.Blocked:
    if found.error and wanted.error:
        detail = f"neither side answers, and not for what it is asked: {_fault(found, wanted)}"
        return figures.Blocked("error", detail, expected=wanted.error, actual=found.error)
    side, error = ("candidate", found.error) if found.error else ("baseline", wanted.error)
    return figures.Blocked(
        "error", f"only the {side} rejects it: {error}", expected=wanted.error or None, actual=found.error or None
    )
