"""The gate's record: one JSON file for each graph and engine, the contract between verify, publish and serve.

HTML, JUnit and terminal tables only render it. It holds digests of everything that was judged and every figure that
the verdict rests on, so that stored evidence can be judged again under other bars without running anything.
"""

import math
from typing import Literal

import msgspec

from vela.graphs import causes, contract, heads, mutation

SCHEMA_VERSION = 2
RECORD_LIMIT_BYTES = 16 << 20  # untrusted input is bounded; real ones are tens of kilobytes

Verdict = Literal["passed", "failed", "not_compared"]
CheckStatus = Literal["passed", "failed", "not_run"]
# Upper ends of the decades that |Δp| is counted in; below the first is rounding, above the last anything.
DECADES = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


class EngineFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engine that ran a graph; a verdict holds for it and for no other.

    Attributes:
        runtime: `onnxruntime`.
        version: Its version.
        package: The distribution that provides it.
        provider: The execution provider that every heavy node ran on.
        device: As asked for on the command line, such as `cpu` or `migraphx:0`.
        architecture: Instruction set of a CPU, gfx or compute capability of a GPU.
        options: Session and provider options that can change an answer.
    """

    runtime: str
    version: str
    package: str
    provider: str
    device: str
    architecture: str
    options: dict[str, str]


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One check of the gate.

    Attributes:
        name: Stable name, such as `weights.identity`.
        status: `not_run` is never a pass.
        detail: What was found; for a failure also what was expected and what to do.
        duration_s: Seconds.
        cause: What must be wrong, where a failure of this check can have no other cause.
    """

    name: str
    status: CheckStatus
    detail: str
    duration_s: float
    cause: causes.Cause | None = None


class ClassStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far graph and reference are apart on one class of inputs.

    Attributes:
        length_class: Such as `65-128` tokens.
        padding_class: `none`, `some` or `window` (a run of pads longer than the local window).
        cases: Inputs compared.
        values: Numbers compared.
        max_abs_probability: Largest |Δp|; of scores for multi-label heads, of unit-vector components for embedders.
        p99_abs_probability: Their 99th percentile.
        median_abs_probability: Their median.
        max_abs_logit: Largest |Δlogit|, in natural-log units; for embedders of the raw pooled vector.
        p99_abs_logit: Their 99th percentile.
        agreed: Cases whose decision is the same: label, selected set, span set, or cosine within the bar.
        near_ties: Disagreements whose reference margin is below the bar's tie width; they count as agreed.
        decades: How many |Δp| lie below the first of DECADES, from there to the next, and so on; one more than it has.
    """

    length_class: str
    padding_class: str
    cases: int
    values: int
    max_abs_probability: float
    p99_abs_probability: float
    median_abs_probability: float
    max_abs_logit: float
    p99_abs_logit: float
    agreed: int
    near_ties: int
    decades: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.decades) != len(DECADES) + 1 or sum(self.decades) != self.values:
            raise ValueError(f"{self.decades} do not count the {self.values} values of {self.length_class}")
        figures = (self.max_abs_probability, self.p99_abs_probability, self.median_abs_probability)
        if not all(math.isfinite(figure) for figure in (*figures, self.max_abs_logit, self.p99_abs_logit)):
            raise ValueError(f"statistics of class {self.length_class} are not finite; JSON would write them as null")


class Run(msgspec.Struct, frozen=True, array_like=True):
    """What one run came to: all that a bar needs, so that it can be judged again without the numbers.

    Attributes:
        case_id: The case's id.
        tokens: Its length with special tokens.
        padding_class: `none`, `some` or `window`.
        max_abs_probability: Its largest |Δp|, as in `ClassStatistics`.
        max_abs_logit: Its largest |Δlogit|.
        cosine: Smallest cosine over dimensions; 1.0 for other forms than embedders.
        margin: How clearly the reference decided where the two differ; None where they agree.
        actual: The graph's decision where they differ, else empty.
        expected: The reference's.
    """

    case_id: str
    tokens: int
    padding_class: str
    max_abs_probability: float
    max_abs_logit: float
    cosine: float = 1.0
    margin: float | None = None
    actual: str = ""
    expected: str = ""

    @property
    def agrees(self) -> bool:
        """Say whether the decision was the same."""
        return self.margin is None


class Speed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a 16-bit copy gains, timed in turn with the FP32 graph that it was made from.

    Attributes:
        tokens: Of the row that both ran.
        seconds: Median of the copy's runs.
        exact_seconds: Median of the FP32 graph's.
        ratio: Median of the rounds' own ratios, the copy's time over the FP32 graph's.
    """

    tokens: int
    seconds: float
    exact_seconds: float
    ratio: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(figure) and figure > 0 for figure in (self.seconds, self.exact_seconds, self.ratio)):
            raise ValueError("times are finite and above 0")


class Estimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the plan said before the run.

    Attributes:
        seconds: Expected duration of this graph's runs.
        kept: Runs after the budget was applied.
        whole: Runs of the plan without a budget.
        minimum: Runs below which the graph is not compared.
    """

    seconds: float
    kept: int
    whole: int
    minimum: int


class WorstInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An input on which graph and reference are furthest apart, so that a person can look at it.

    Attributes:
        case_id: The case's id, from the corpus and how it was padded.
        tokens: Its length with special tokens.
        text: Its beginning.
        max_abs_probability: Its largest |Δp|.
        max_abs_logit: Its largest |Δlogit|.
        actual: The graph's decision.
        expected: The reference's decision.
    """

    case_id: str
    tokens: int
    text: str
    max_abs_probability: float
    max_abs_logit: float
    actual: str
    expected: str


class BarResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one bar says of the same evidence.

    Attributes:
        bar: The bar's name.
        verdict: What it says.
        reasons: Each bound that was broken, with figure and bound; empty on a pass.
    """

    bar: str
    verdict: Verdict
    reasons: tuple[str, ...]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole content of one record.

    Attributes:
        schema_version: Of this shape.
        verdict: The gate's answer.
        cause: One sentence for people; empty on a pass.
        graph_id: The graph's id in the manifest.
        graph_sha256: Digest of the graph file.
        manifest_sha256: Digest of the manifest.
        checkpoint_sha256: Digest over the listing of the reference's checkpoint files.
        reference: What it was judged against, such as `torch 2.13.0, transformers 5.24.0, sdpa, float32`.
        reference_noise: Largest |Δlogit| of the reference against itself in float64 on the same inputs.
        engine: What ran the graph; None where no engine was reached.
        corpus_sha256: Digest of the cases that were planned.
        planned: Cases planned.
        compared: Cases compared.
        bar: Name of the bar that decided.
        bars: What each bar says.
        checks: In the order they ran.
        form: Kind of the head.
        estimate: What was planned.
        runs: One entry for each run that was compared, in the plan's order.
        statistics: One entry for each class of inputs.
        worst: The worst inputs, worst first.
        tools: Versions of what judged.
        created: UTC, ISO 8601.
        duration_s: Seconds, reference included.
        precision: What the graph's weights were rounded to, as their content shows, or a copy computes in; unknown
            where they are others.
        mutants: Which mutants of the checkpoint its inputs would have shown; None where none were asked.
        diagnosis: What a graph that failed parity is nearest to.
        named: What is wrong, in one word; None on a pass, and where it is unknown.
        speed: What a 16-bit copy gains; None for other graphs, and where it was not timed.
    """

    schema_version: int
    verdict: Verdict
    cause: str
    graph_id: str
    graph_sha256: str
    manifest_sha256: str
    checkpoint_sha256: str
    reference: str
    reference_noise: float
    engine: EngineFacts | None
    corpus_sha256: str
    planned: int
    compared: int
    bar: str
    bars: tuple[BarResult, ...]
    checks: tuple[Check, ...]
    form: heads.SurfaceKind
    estimate: Estimate
    runs: tuple[Run, ...]
    statistics: tuple[ClassStatistics, ...]
    worst: tuple[WorstInput, ...]
    tools: dict[str, str]
    created: str
    duration_s: float
    precision: contract.WeightPrecision | Literal["unknown"] = "fp32"
    mutants: mutation.Mutation | None = None
    diagnosis: mutation.Diagnosis | None = None
    named: causes.Cause | None = None
    speed: Speed | None = None

    def __post_init__(self) -> None:
        if self.verdict == "passed" and self.compared == 0:
            raise ValueError("a record that compared nothing cannot say passed")
        if self.verdict == "passed" and any(check.status != "passed" for check in self.checks):
            raise ValueError("a record with a check that did not pass cannot say passed")
        if len(self.runs) != self.compared:
            raise ValueError(f"{len(self.runs)} runs where {self.compared} were compared")
        if not all(math.isfinite(value) for run in self.runs for value in _figures(run)):
            raise ValueError("a run's figures are not finite; JSON would write them as null")


def _figures(run: Run) -> tuple[float, ...]:
    return run.max_abs_probability, run.max_abs_logit, run.cosine, 0.0 if run.margin is None else run.margin


def record_file(graph_id: str, device: str) -> str:
    """Name a record's file in the bundle, one for each graph and device."""
    return f"verification/{graph_id}.{device.replace(':', '-')}.json"


def encode_record(record: Record) -> bytes:
    """Give the bytes that are written: indented JSON."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"
