"""Bars: every tolerance of the gate, as values with a name and a reason, in one table.

`strict` is Vela's own default for FP32; `cpu` and `gpu` are upstream's, so that a verdict can be compared with the
records that the router's team keeps. No bound scales with the size of a corpus.
Source: upstream's legacy_parity thresholds and design section 17 (reference/vela-family.md §3); strict bounds from
the defect-injection measurements in reference/verification.md §4.
"""

from dataclasses import dataclass
from typing import Literal

from vela.graphs import contract, errors, heads

BarName = Literal["strict", "strict-gpu", "cpu", "gpu", "reduced"]


@dataclass(frozen=True, slots=True)
class Bar:
    """Bounds for one class of engines.

    Attributes:
        name: As on the command line.
        reason: Why the bounds are what they are.
        max_probability: Largest |Δp| allowed, near ties included.
        p99_probability: Largest 99th percentile of |Δp|; None where the bar has none.
        decision_rate: Share of cases whose label or selected set must agree.
        span_rate: Share of cases whose span set must agree.
        order_rate: Share of pairs that must keep their place among their query's documents.
        tie_margin: A label or selected set that differs counts as agreed where the reference's margin is below this.
        span_tie_margin: The same for the tokens that make a span set differ; upstream excuses none.
        embedding_difference: Largest |Δ| between unit vectors.
        embedding_cosine: Smallest cosine.
        logit_floor: |Δlogit| that is always allowed; None where the bar does not bound logits.
        noise_factor: |Δlogit| allowed as a multiple of the reference's own FP32 noise.
        order_tie_margin: Two documents in another order count as agreed where the reference's logits are closer.
    """

    name: BarName
    reason: str
    max_probability: float
    p99_probability: float | None
    decision_rate: float
    span_rate: float
    order_rate: float
    tie_margin: float
    span_tie_margin: float
    embedding_difference: float
    embedding_cosine: float
    logit_floor: float | None
    noise_factor: float
    order_tie_margin: float = 1e-3

    def margin_of(self, kind: heads.SurfaceKind) -> float:
        """Give the margin below which a decision of this kind that differs counts as agreed."""
        margins: dict[heads.SurfaceKind, float] = {"token": self.span_tie_margin, "rerank": self.order_tie_margin}
        return margins.get(kind, self.tie_margin)

    def rate_of(self, kind: heads.SurfaceKind) -> float:
        """Give the share of decisions of this kind that must agree."""
        rates: dict[heads.SurfaceKind, float] = {"token": self.span_rate, "rerank": self.order_rate}
        return rates.get(kind, self.decision_rate)

    def logit_bound(self, noise: float) -> float | None:
        """Give the largest |Δlogit| allowed where the reference's own noise is `noise`."""
        return None if self.logit_floor is None else max(self.logit_floor, self.noise_factor * noise)


# The FP32 floor of real checkpoints is 1e-6 to 1.5e-4 in |Δp|; wrong graphs start at 9e-3 on long inputs. tanh GELU
# and bf16-rounded weights stay below any sane |Δp|, so logits are bounded by the reference's own noise as well.
STRICT = Bar(
    name="strict",
    reason="FP32 on the CPU differs from the checkpoint by rounding only",
    max_probability=5e-4,
    p99_probability=1e-4,
    decision_rate=1.0,
    span_rate=1.0,
    order_rate=1.0,
    tie_margin=1e-3,
    span_tie_margin=1e-3,
    embedding_difference=1e-5,
    embedding_cosine=0.99999,
    logit_floor=2e-5,
    noise_factor=8.0,
)
STRICT_GPU = Bar(
    name="strict-gpu",
    reason="FP32 on a GPU with TF32 and fast math off: other summation orders, no other arithmetic",
    max_probability=2e-3,
    p99_probability=None,
    decision_rate=1.0,
    span_rate=0.995,
    order_rate=1.0,
    tie_margin=4e-3,
    span_tie_margin=4e-3,
    embedding_difference=1e-4,
    embedding_cosine=0.9995,
    logit_floor=None,
    noise_factor=0.0,
    order_tie_margin=4e-3,
)
CPU = Bar(
    name="cpu",
    reason="upstream's release bar for CPUs",
    max_probability=1e-3,
    p99_probability=None,
    decision_rate=1.0,
    span_rate=0.995,
    order_rate=1.0,
    tie_margin=1e-3,
    span_tie_margin=0.0,
    embedding_difference=1e-4,
    embedding_cosine=0.99999,
    logit_floor=None,
    noise_factor=0.0,
)
GPU = Bar(
    name="gpu",
    reason="upstream's release bar for GPUs, which it calls rocm",
    max_probability=0.02,
    p99_probability=None,
    decision_rate=0.995,
    span_rate=0.98,
    order_rate=1.0,
    tie_margin=1e-3,
    span_tie_margin=0.0,
    embedding_difference=float("inf"),
    embedding_cosine=0.9995,
    logit_floor=None,
    noise_factor=0.0,
)
# Rounded weights move every probability a little, so only what a caller sees is bounded: decisions, spans, order and
# the direction of an embedding. The same bounds hold whether the copy is Vela's, beside the FP32 graph that was
# verified, or somebody else's, which has none beside it and is judged against the checkpoint itself.
# Source: the router's own rule for reduced copies (reference/vela-family.md §3), which excuses no tie.
REDUCED = Bar(
    name="reduced",
    reason="weights rounded to 16 or 8 bits: decisions stay, probabilities move and are reported",
    max_probability=float("inf"),
    p99_probability=None,
    decision_rate=0.99,
    span_rate=0.99,
    order_rate=0.99,
    tie_margin=0.0,
    span_tie_margin=0.0,
    embedding_difference=float("inf"),
    embedding_cosine=0.999,
    logit_floor=None,
    noise_factor=0.0,
)
BARS = {bar.name: bar for bar in (STRICT, STRICT_GPU, CPU, GPU, REDUCED)}


# How far two runs of one graph on one session may be apart. On the CPU sums are taken in one order. On a GPU they are
# not: products that are split along their sums add up in the order in which parts arrive. Source: H200, CUDA 13, graphs
# of 512 and 2,048 tokens, which differed from themselves; the same floor as strict's for logits.
REPEATS_ON_GPU = 2e-5


def repeat_bound(device_kind: str) -> float:
    """Give the largest difference between two runs of the same input, in the units of the output."""
    return 0.0 if device_kind == "cpu" else REPEATS_ON_GPU


def rewrite_bound(noise: float) -> float:
    """Give the largest difference between a graph as it is and as ONNX Runtime rewrites it, in the output's units.

    A rewrite changes the order of sums, as one implementation differs from another: strict's bound on logits.
    """
    return max(REPEATS_ON_GPU, STRICT.noise_factor * noise)


def choose_bar(name: str, device_kind: str, precision: contract.WeightPrecision = "fp32") -> Bar:
    """Give the bar for a name on a device; `strict` and `upstream` depend on the kind of device.

    Args:
        name: `auto` is `strict` for FP32 weights and `reduced` for any others.
        device_kind: Where the graph runs.
        precision: What its weights were rounded to.

    Raises:
        VerificationError: no bar is called that, or the reduced one is asked for a graph that was not reduced.
    """
    on_cpu = device_kind == "cpu"
    strict = STRICT if on_cpu else STRICT_GPU
    automatic = strict if precision == "fp32" else REDUCED
    aliases = {"strict": strict, "upstream": CPU if on_cpu else GPU, "auto": automatic}
    found = aliases.get(name) or {bar.name: bar for bar in BARS.values()}.get(name)  # type: ignore[call-overload]
    if found is None:
        names = "auto, strict, upstream, cpu, gpu or reduced"
        raise errors.VerificationError(f"the bar {name!r}", expected=names, where="--bar", fix="Name one of these.")
    if found is REDUCED and precision == "fp32":
        raise errors.VerificationError(
            "the bar 'reduced' for FP32 weights",
            expected="a graph whose weights were rounded",
            where="--bar",
            fix="FP32 graphs differ from their checkpoint by rounding only: judge them by the strict bar.",
        )
    return found
