"""Bars: every tolerance of the gate, as values with a name and a reason, in one table.

`strict` is Vela's own default for FP32; `cpu` and `gpu` are upstream's, so that a verdict can be compared with the
records that the router's team keeps. No bound scales with the size of a corpus.
Source: upstream's legacy_parity thresholds and design section 17 (reference/vela-family.md §3); strict bounds from
the defect-injection measurements in reference/verification.md §4.
"""

from dataclasses import dataclass
from typing import Literal

from vela.graphs import errors

BarName = Literal["strict", "strict-gpu", "cpu", "gpu"]


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
        tie_margin: A label or selected set that differs counts as agreed where the reference's margin is below this,
            and an order where its two logits are closer than this.
        span_tie_margin: The same for the tokens that make a span set differ; upstream excuses none.
        embedding_difference: Largest |Δ| between unit vectors.
        embedding_cosine: Smallest cosine.
        logit_floor: |Δlogit| that is always allowed; None where the bar does not bound logits.
        noise_factor: |Δlogit| allowed as a multiple of the reference's own FP32 noise.
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
BARS = {bar.name: bar for bar in (STRICT, STRICT_GPU, CPU, GPU)}


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


def choose_bar(name: str, device_kind: str) -> Bar:
    """Give the bar for a name on a device; `strict` and `upstream` depend on the kind of device.

    Raises:
        VerificationError: no bar is called that.
    """
    on_cpu = device_kind == "cpu"
    aliases = {"strict": STRICT if on_cpu else STRICT_GPU, "upstream": CPU if on_cpu else GPU}
    found = aliases.get(name) or {bar.name: bar for bar in BARS.values()}.get(name)  # type: ignore[call-overload]
    if found is None:
        raise errors.VerificationError(
            f"the bar {name!r}", expected="strict, upstream, cpu or gpu", where="--bar", fix="Name one of these."
        )
    return found
