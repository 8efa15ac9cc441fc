"""The record of a comparison, in upstream's shape `vela1-legacy-parity/1`, so that both projects' records read alike.

Upstream's fields hold upstream's verdict, whichever bar decides; what Vela adds is under the one key `vela`. As in
upstream's records, `legacy` is the baseline and `runtime` the candidate, and a bound that is infinite or a percentile
of nothing is null.
"""

import os
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec

from vela.graphs import durable, errors, record
from vela.verify.parity import figures, jobs

FORMAT: Literal["vela1-legacy-parity/1"] = "vela1-legacy-parity/1"

DeviceClass = Literal["cpu", "rocm", "reduced"]
Reason = Literal[figures.Block, "label", "probability", "spans", "order"]
Kind = TypeVar("Kind")


class Sides(msgspec.Struct, Generic[Kind], frozen=True):
    """Something of both sides."""

    legacy: Kind
    runtime: Kind


class Quantiles(msgspec.Struct, frozen=True):
    """Nearest-rank percentiles in milliseconds."""

    p50: float | None
    p95: float | None


class Throughput(msgspec.Struct, frozen=True):
    """What callers that asked at once got."""

    concurrency: int
    calls_per_s: float
    p50_ms: float | None
    p95_ms: float | None


class Thresholds(msgspec.Struct, frozen=True):
    """Upstream's bounds; of probabilities null where a reduced copy's are only reported."""

    probability: float | None
    near_tie: float
    label: float
    spans: float


class Disagreement(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input on which the sides differ; which fields it has depends on the reason. `detail` is ours."""

    id: str
    reason: Reason
    near_tie: bool | None = None
    delta: float | None = None
    legacy: Any = None
    runtime: Any = None
    legacy_only: tuple[figures.SpanKey, ...] = ()
    runtime_only: tuple[figures.SpanKey, ...] = ()
    detail: str = ""


class Options(msgspec.Struct, frozen=True):
    """How inputs were read."""

    max_tokens: int | None
    overflow: str | None
    window: tuple[int, int] | None


class JobRecord(msgspec.Struct, frozen=True):
    """One job in upstream's view.

    Attributes:
        job: Its name.
        model: The model that was asked.
        revision: Which one of it.
        mode: How it was asked.
        options: How inputs were read.
        inputs: Inputs asked.
        compared: Inputs that both sides answered.
        both_rejected: Inputs that both rejected.
        agreement: Share of decisions that agree, near ties included.
        near_ties: Inputs whose baseline was nearly tied, whether or not the sides agree.
        max_abs_delta: Largest |Δp|; of spans only where both sets are equal.
        passed: Whether upstream's bar is met.
        disagreements: In the order of the inputs.
        latency_ms: The first call of each input left out where there are more.
        throughput: None where no load was recorded.
    """

    job: str
    model: str
    revision: str
    mode: jobs.Mode
    options: Options
    inputs: int
    compared: int
    both_rejected: int
    agreement: float
    near_ties: int
    max_abs_delta: float
    passed: bool
    disagreements: tuple[Disagreement, ...]
    latency_ms: Sides[Quantiles]
    throughput: Sides[Throughput | None]


class LengthRecord(msgspec.Struct, frozen=True):
    """One class of lengths in Vela's view."""

    length_class: str
    compared: int
    agreed: int
    max_abs_delta: float
    p99_abs_delta: float


class JobExtras(msgspec.Struct, frozen=True):
    """What Vela says of a job beyond upstream.

    Attributes:
        job: Its name.
        revisions: Which model each side says that it asked; empty where a file has no header.
        verdicts: Of upstream's bar and of Vela's, with reasons.
        agreement: Share of decisions that agree, stated labels and selected sets included.
        excused: Decisions that differ and are near ties of the baseline.
        max_abs_delta: Largest |Δp|; of spans also where the sets differ, and of tokens where they were recorded.
        p99_abs_delta: Its nearest-rank 99th percentile.
        max_abs_logit: Largest |Δlogit|; None where logits were not recorded.
        min_cosine: Of embeddings; None for other answers.
        selected_compared: Inputs whose selected labels were compared.
        selected_differ: Those that differ.
        lengths: One for each class of lengths.
    """

    job: str
    revisions: Sides[str]
    verdicts: dict[Literal["upstream", "strict"], record.BarResult]
    agreement: float
    excused: int
    max_abs_delta: float
    p99_abs_delta: float
    max_abs_logit: float | None
    min_cosine: float | None
    selected_compared: int
    selected_differ: int
    lengths: tuple[LengthRecord, ...]


class Extras(msgspec.Struct, frozen=True):
    """What Vela adds.

    Attributes:
        sides: Who answered: the baseline and the candidate.
        verdicts: Of all jobs together, of upstream's bar and of Vela's.
        bars: Their names in Vela's table.
        jobs: One for each job, in order.
    """

    sides: Sides[str]
    verdicts: dict[Literal["upstream", "strict"], record.Verdict]
    bars: dict[Literal["upstream", "strict"], str]
    jobs: tuple[JobExtras, ...]


class ParityRecord(msgspec.Struct, frozen=True):
    """The whole content of a record.

    Attributes:
        format: This format.
        baseline: `runtime` where a reduced copy is compared with the copy that it was made from, else `legacy`.
        device_class: Whose bounds hold.
        thresholds: These bounds.
        inputs_sha256: Digest of what was asked.
        context: What each side's header says for people.
        jobs: In upstream's view.
        passed: Whether every job meets upstream's bar.
        vela: Ours.
    """

    format: Literal["vela1-legacy-parity/1"]
    baseline: Literal["legacy", "runtime"]
    device_class: DeviceClass
    thresholds: Thresholds
    inputs_sha256: str
    context: dict[str, dict[str, str]]
    jobs: tuple[JobRecord, ...]
    passed: bool
    vela: Extras


def encode_record(found: ParityRecord) -> bytes:
    """Give the bytes that are written: indented JSON."""
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


def write_record(found: ParityRecord, path: Path) -> None:
    """Write a record in one step: a reader sees the old file or the new one, never half of either.

    Raises:
        VerificationError: there is no such folder.
    """
    if not path.parent.is_dir():
        raise errors.VerificationError(
            f"no folder {path.parent}", expected="a folder to write the record to", where="--out", fix="Make it first."
        )
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    durable.write_file(draft, encode_record(found))
    durable.rename(draft, path)
