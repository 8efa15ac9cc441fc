"""Jobs: what two systems are asked. A job is one model, read in one way, with the inputs that both must answer.

Inputs are recorded once and replayed to both sides; their digest is computed as the router's team does, so that a
record of theirs and one of ours over the same inputs carry the same digest. A jobs file is theirs as well.
Source: upstream's legacy_parity.py (reference/vela-family.md §3).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from vela.graphs import digests, errors, heads

JOBS_LIMIT_BYTES = 64 << 20  # theirs, with 547 inputs for each of eleven jobs, are below 4 MB

# How a model is asked, in upstream's words, and ours for what its comparator does not know.
Mode = Literal[
    "sequence",
    "sequence_windows",
    "scores",
    "operating_point",
    "tokens",
    "token_windows",
    "grounded",
    "embedding",
    "rerank",
]
KINDS: dict[Mode, heads.SurfaceKind] = {
    "sequence": "sequence",
    "sequence_windows": "sequence",
    "scores": "scores",
    "operating_point": "scores",
    "tokens": "token",
    "token_windows": "token",
    "grounded": "token",
    "embedding": "embedding",
    "rerank": "rerank",
}


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How inputs are read; None is the model's default.

    Attributes:
        max_tokens: Longest input, or longest document in windows, with special tokens.
        overflow: What happens to longer ones.
        window: Tokens and overlap of a window.
    """

    max_tokens: int | None = None
    overflow: heads.Overflow | None = None
    window: tuple[int, int] | None = None


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model, read in one way.

    Attributes:
        job: Its name, unique in a file.
        model: The model that is asked.
        revision: Which one of it.
        mode: How it is asked, which also says what an answer holds.
        options: How inputs are read.
        inputs: Ids of the inputs, in order; what they hold is in the digest.
        labels: In the order in which values are listed; empty where they were not recorded.
        thresholds: Of an operating point, in label order; they tell a near tie from a flip. Empty where unknown.
        logit_noise: Largest |Δlogit| of the model against itself in float64; None where it was not measured, and then
            logits are reported and not bounded.
    """

    job: str
    model: str
    revision: str
    mode: Mode
    options: Options
    inputs: tuple[str, ...]
    labels: tuple[str, ...] = ()
    thresholds: tuple[float, ...] = ()
    logit_noise: float | None = None

    def __post_init__(self) -> None:
        if len(set(self.inputs)) != len(self.inputs) or len(set(self.labels)) != len(self.labels):
            raise ValueError(f"job {self.job}: ids or labels repeat")
        if not all(map(str.isprintable, (self.job, self.model, self.revision, *self.inputs, *self.labels))):
            raise ValueError(f"job {self.job!r}: a name or an id holds control characters, which a terminal would obey")
        if self.thresholds and len(self.thresholds) != len(self.labels):
            raise ValueError(f"job {self.job}: {len(self.thresholds)} thresholds for {len(self.labels)} labels")
        if any(window < 0 for window in self.options.window or ()):
            raise ValueError(f"job {self.job}: a window of {self.options.window}")

    @property
    def kind(self) -> heads.SurfaceKind:
        """What an answer decides."""
        return KINDS[self.mode]

    def asks_the_same(self, other: "Job") -> bool:
        """Say whether answers to the two can be compared; model and revision may differ, that is often the point."""
        mine, theirs = ((found.job, found.mode, found.options, found.inputs) for found in (self, other))
        optional = ((self.labels, other.labels), (self.thresholds, other.thresholds))
        return mine == theirs and all(left == right for left, right in optional if left and right)


@dataclass(frozen=True, slots=True)
class Plan:
    """All jobs of a comparison.

    Attributes:
        jobs: In order.
        inputs_sha256: Digest of what is asked, upstream's.
    """

    jobs: tuple[Job, ...]
    inputs_sha256: str

    def __post_init__(self) -> None:
        names = [job.job for job in self.jobs]
        if len(set(names)) != len(names):
            raise ValueError(f"jobs repeat: {names}")

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a jobs file: a JSON list in upstream's spelling, `[{"Job": …, "Mode": …, "Inputs": [{"id": …}]}]`.

        Raises:
            VerificationError: it is too large, does not parse, or two jobs or inputs share a name.
        """
        return cls.from_raw(read_raw(path), path)

    @classmethod
    def from_raw(cls, raw: Any, path: Path) -> Self:
        """Make a plan of what `read_raw` gave.

        Raises:
            VerificationError: it is no list of jobs, or two jobs or inputs share a name.
        """
        try:
            specs = msgspec.convert(raw, tuple[_Spec, ...])
            inputs = [spec["Inputs"] for spec in raw]
            return cls(tuple(spec.job_of_it() for spec in specs), digest_of_inputs(inputs))
        except (msgspec.MsgspecError, ValueError, RecursionError) as cause:
            raise unusable(path, str(cause)) from cause


def read_raw(path: Path) -> Any:
    """Read a jobs file's JSON.

    Raises:
        VerificationError: it is too large, or does not parse.
    """
    with path.open("rb") as stream:
        content = stream.read(JOBS_LIMIT_BYTES + 1)
    if len(content) > JOBS_LIMIT_BYTES:
        raise unusable(path, f"more than {JOBS_LIMIT_BYTES:,} bytes")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as cause:
        raise unusable(path, str(cause)) from cause


class _Input(msgspec.Struct, frozen=True):
    id: str


class _Spec(msgspec.Struct, frozen=True, rename="pascal"):
    """Upstream's spelling of a job. Other fields, such as paths and devices, are about who runs it."""

    job: str
    repo: str
    revision: str
    mode: Mode
    max_tokens: int
    overflow: heads.Overflow
    inputs: tuple[_Input, ...]
    window_size: int = 0
    window_overlap: int = 0
    labels: tuple[str, ...] = ()

    def job_of_it(self) -> Job:
        window = (self.window_size, self.window_overlap) if self.window_size else None
        ids = tuple(found.id for found in self.inputs)
        options = Options(self.max_tokens, self.overflow, window)
        return Job(self.job, self.repo, self.revision, self.mode, options, ids, self.labels)


def digest_of_inputs(inputs: list[list[dict[str, Any]]]) -> str:
    """Give the digest of all inputs, one list for each job, as upstream's records state it."""
    return digests.sha256_of_bytes(json.dumps(inputs, sort_keys=True).encode())


def unusable(path: Path, found: str) -> errors.VerificationError:
    """Make the error of a jobs file that cannot be used."""
    return errors.VerificationError(
        found,
        expected=f"a list of jobs with unique names and input ids, of at most {JOBS_LIMIT_BYTES:,} bytes",
        where=path.name,
        fix="Give the .jobs.json that the answers were recorded with; nothing was compared.",
    )
