"""The ledger of a release: each model, what was done for it, and every graph with its verdict on every device.

It is the one place that says what is released, so it names what is missing as well, and it is what an interrupted
release goes on from. A step that is kept from an earlier run was done for these very bytes: its key is over all that
it depends on.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from vela.graphs import durable, errors, record

FORMAT: Literal["vela-release/1"] = "vela-release/1"
LEDGER_FILE = "ledger.json"
LIMIT_BYTES = 64 << 20

State = Literal["waiting", "running", "done", "kept", "failed", "not_compared"]
Outcome = Literal["waiting", "running", "published", "failed", "not_compared"]
ENDED: tuple[State, ...] = ("done", "kept")


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of one model.

    Attributes:
        name: `source`, `export`, `verify <device>` or `publish`.
        state: How far it is; `kept` was done by an earlier run.
        seconds: How long it took, in the run that did it.
        key: Digest over all that it depends on; empty where it is done in every run.
        detail: What came of it, in one sentence.
    """

    name: str
    state: State
    seconds: float = 0.0
    key: str = ""
    detail: str = ""


class GraphVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the gate said of a graph on a device.

    Attributes:
        verdict: The verdict.
        cause: Why it did not pass; empty on a pass.
        compared: Runs compared.
        max_abs_probability: Largest |Δp|; None where nothing was compared.
        max_abs_logit: Largest |Δlogit|.
        mutants: The score, such as `19 of 19`; empty where none were asked.
        seconds: How long it took.
        record: The record's file in the bundle.
        record_sha256: Its digest.
    """

    verdict: record.Verdict
    cause: str
    compared: int
    max_abs_probability: float | None
    max_abs_logit: float | None
    mutants: str
    seconds: float
    record: str
    record_sha256: str


class GraphLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One graph.

    Attributes:
        id: In the bundle.
        target: Which rules its operators follow.
        precision: What it computes in.
        batch: Rows; None where any number goes.
        sequence: Tokens; None where any length goes.
        size_bytes: Of its file.
        sha256: Of its file.
        verdicts: By device; one that it is not meant for has none.
    """

    id: str
    target: str
    precision: str
    batch: int | None
    sequence: int | None
    size_bytes: int
    sha256: str
    verdicts: dict[str, GraphVerdict] = {}

    @property
    def is_copy(self) -> bool:
        """Whether it is a 16-bit copy, which may be refused without its bundle."""
        return self.precision != "fp32"


class ModelLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model.

    Attributes:
        name: What it is served as.
        outcome: What became of it.
        reason: Why it is not published, in one line; empty where it is.
        repository: On the Hub; empty where nothing is pinned.
        revision: Its commit.
        steps: In order.
        graphs: In the manifest's order; empty before export.
        published: Digest in the store; empty before.
        peak_bytes: Most memory that the process which made it had held; 0 where nothing was done.
    """

    name: str
    outcome: Outcome = "waiting"
    reason: str = ""
    repository: str = ""
    revision: str = ""
    steps: tuple[Step, ...] = ()
    graphs: tuple[GraphLine, ...] = ()
    published: str = ""
    peak_bytes: int = 0

    def step(self, name: str) -> Step | None:
        """Find a step by name."""
        return next((step for step in self.steps if step.name == name), None)

    @property
    def refused_copies(self) -> tuple[str, ...]:
        """16-bit copies without a pass on a device that they were judged on; they are never served there."""
        return tuple(
            graph.id
            for graph in self.graphs
            if graph.is_copy and any(found.verdict != "passed" for found in graph.verdicts.values())
        )

    @property
    def is_whole(self) -> bool:
        """Whether everything of it passed."""
        return self.outcome == "published" and not self.refused_copies


class Ledger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole content of ledger.json.

    Attributes:
        format: This format.
        started: When this run began, UTC.
        updated: When this was written.
        seconds: How long this run has taken so far.
        runs: Which run of this work folder it is, from 1.
        devices: Where graphs are proven.
        table: Where the pins come from.
        tools: Versions.
        models: In order.
    """

    format: Literal["vela-release/1"]
    started: str
    updated: str
    seconds: float
    runs: int
    devices: tuple[str, ...]
    table: str
    tools: dict[str, str]
    models: tuple[ModelLine, ...]

    def line(self, name: str) -> ModelLine | None:
        """Find a model by name."""
        return next((line for line in self.models if line.name == name), None)


def worst_of(lines: Sequence[ModelLine]) -> Outcome:
    """Give what became of models together: the worst of their parts. A refused copy is a part that did not pass."""
    found = ["failed" if line.refused_copies else line.outcome for line in lines]
    order: tuple[Outcome, ...] = ("failed", "not_compared", "running", "waiting")
    return next((outcome for outcome in order if outcome in found), "published" if found else "waiting")


def now() -> str:
    """Give the time as the ledger writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_ledger(work: Path) -> Ledger | None:
    """Read what an earlier run left; None where there was none.

    Raises:
        StoreError: it is damaged, or of another version.
    """
    path = work / LEDGER_FILE
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > LIMIT_BYTES:
            raise ValueError(f"more than {LIMIT_BYTES:,} bytes")
        return msgspec.json.decode(path.read_bytes(), type=Ledger)
    except (msgspec.MsgspecError, ValueError, RecursionError) as cause:
        raise errors.StoreError(
            f"a ledger that cannot be used ({cause})",
            expected=f"one of format {FORMAT}",
            where=str(path),
            fix="Move it away; bundles that lie beside it are verified again, and what is right is not made again.",
        ) from cause


def write_ledger(work: Path, ledger: Ledger) -> Path:
    """Replace the ledger; a reader sees the old one or the new one."""
    return replace_file(work / LEDGER_FILE, msgspec.json.format(msgspec.json.encode(ledger), indent=1) + b"\n")


def replace_file(target: Path, content: bytes) -> Path:
    """Replace a file in one step.

    Raises:
        StoreError: it cannot be written.
    """
    staging = target.with_name(f".{target.name}.partial")
    try:
        staging.unlink(missing_ok=True)
        durable.write_file(staging, content)
        durable.rename(staging, target)
    except OSError as cause:
        raise cannot_write(target, cause) from cause
    return target


def cannot_write(path: Path, cause: OSError) -> errors.StoreError:
    """Say that a place cannot be written to."""
    return errors.StoreError(
        f"a place that cannot be written to ({cause.strerror})",
        expected="a folder that you may write to, with room",
        where=str(path),
        fix="Make room or grant permission, or name another --work folder; what was proven stays.",
    )
