"""What one run of a padded row costs, by its tokens: measured on a device, or reckoned from a model's size.

The planner compares ladders by these costs. They are whole numbers, nanoseconds or floating-point operations, so that
sums are exact and ties are ties; and they never fall with length, because a bucket can always run a shorter row.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from vela.graphs import contract, errors, record

SCHEMA_VERSION = 1
COSTS_LIMIT_BYTES = 1 << 20  # a table of a whole ladder is two kilobytes
POINTS_LIMIT = 1024
NANOSECONDS_PER_MS = 1_000_000

# Local layers work on blocks of this many queries, each against its own keys and a half-window on either side.
# Source: export/passes/expand_fused.py; measured in scripts/bench/README.md.
BLOCK_TOKENS = 64
# What launching a layer's kernels costs, in operations that the device could have done meanwhile: 22 layers with this
# floor reckon what the portable graphs took on one H200 in FP32 from 16 to 2,048 tokens to within 10 %.
# Source: the figures 2.60 / 2.81 / 3.48 / 6.96 / 29.9 ms at 16 / 64 / 128 / 512 / 2,048 tokens, batch 1.
LAUNCH_FLOP_PER_LAYER = 2_300_000_000


class Costs(Protocol):
    """Costs of runs by tokens, in one unit, non-decreasing."""

    @property
    def origin(self) -> str:
        """Where the costs come from, for the report."""
        ...

    def cost_of(self, tokens: int) -> int:
        """Give the cost of one run of `tokens` padded tokens."""
        ...


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Costs reckoned from a model's size, in floating-point operations of a forward pass over one row.

    The defaults are the 307M shape. Local layers are taken to work on blocks, as in graphs of target `ort`.

    Attributes:
        hidden_size: H.
        intermediate_size: Width of the feed-forward layer.
        layers: L.
        local_layers: How many of them see a window only.
        half_window: Of those.
        feed_forward_products: Matrices of a feed-forward layer: 3 where it is gated, else 2.

    Source: per layer of the 307M shape 10.0 MFLOP × T for the linear products, 3,072 × T² for dense attention and
    0.6 MFLOP × T for attention in blocks; all three follow from the widths, as below.
    """

    hidden_size: int = 768
    intermediate_size: int = 1152
    layers: int = 22
    local_layers: int = 14
    half_window: int = 64
    feed_forward_products: int = 3

    @property
    def origin(self) -> str:
        """See `Costs.origin`."""
        return f"reckoned for {self.layers} layers of {self.hidden_size}, {self.local_layers} of them local"

    def cost_of(self, tokens: int) -> int:
        """See `Costs.cost_of`: a launch floor, linear products, and attention."""
        hidden, inner = self.hidden_size, self.intermediate_size
        linear = (
            2 * hidden * (4 * hidden + self.feed_forward_products * inner) * tokens
        )  # Q, K, V, output; feed-forward
        keys = min(tokens, BLOCK_TOKENS + 2 * self.half_window)
        attention = 4 * hidden * tokens * ((self.layers - self.local_layers) * tokens + self.local_layers * keys)
        return self.layers * (LAUNCH_FLOP_PER_LAYER + linear) + attention


class CostPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The median time of one run at one length, at least a nanosecond."""

    tokens: Annotated[int, msgspec.Meta(ge=1)]
    median_ms: Annotated[float, msgspec.Meta(ge=1e-6, le=1e9)]


class CostTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Costs measured on one device, in nanoseconds: what scripts/bench/costs.py writes.

    Between two points the cost is a straight line. Below the first it is the first's, and a point that was measured
    faster than a shorter one costs as much as that one. Above the last nothing is known, and nothing is said.

    Attributes:
        schema_version: Of this shape.
        model: Name of the model that was measured.
        target: Of its graphs.
        engine: The engine and its device.
        machine: Where it ran, for people.
        tools: Versions of what measured.
        runs: Timed runs behind each median; each of one row.
        points: By tokens, ascending.
    """

    schema_version: int
    model: str
    target: contract.Target
    engine: record.EngineFacts
    machine: str
    tools: dict[str, str]
    runs: Annotated[int, msgspec.Meta(ge=1)]
    points: Annotated[tuple[CostPoint, ...], msgspec.Meta(min_length=1, max_length=POINTS_LIMIT)]

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema version {self.schema_version}, expected {SCHEMA_VERSION}")
        if any(left.tokens >= right.tokens for left, right in pairwise(self.points)):
            raise ValueError("points ascend in tokens")

    @property
    def origin(self) -> str:
        """See `Costs.origin`."""
        return f"measured with {self.model} on {self.engine.device} ({self.machine})"

    def cost_of(self, tokens: int) -> int:
        """See `Costs.cost_of`.

        Raises:
            PlanError: `tokens` is above the last point.
        """
        left_tokens, left_ns = 0, 0
        for point in self.points:
            right_ns = max(left_ns, round(point.median_ms * NANOSECONDS_PER_MS))
            if tokens <= point.tokens:
                start = left_ns if left_tokens else right_ns
                return start + (right_ns - start) * (tokens - left_tokens) // (point.tokens - left_tokens)
            left_tokens, left_ns = point.tokens, right_ns
        raise errors.PlanError(
            f"costs measured up to {left_tokens:,} tokens",
            expected=f"a measurement at {tokens:,} tokens or more",
            where="the cost table",
            fix="Measure longer buckets too, or plan with a lower --max-tokens.",
        )


def read_costs(path: Path) -> CostTable:
    """Read a cost table.

    Raises:
        PlanError: it is too large or malformed, or of another schema version.
    """
    with path.open("rb") as stream:
        content = stream.read(COSTS_LIMIT_BYTES + 1)
    try:
        if len(content) > COSTS_LIMIT_BYTES:
            raise ValueError(f"more than {COSTS_LIMIT_BYTES:,} bytes")
        return msgspec.json.decode(content, type=CostTable)
    except (msgspec.MsgspecError, ValueError, RecursionError) as cause:
        raise errors.PlanError(
            f"content that does not validate ({cause})",
            expected=f"a cost table of schema version {SCHEMA_VERSION}",
            where=str(path),
            fix="Write one with scripts/bench/costs.py, or leave --costs out.",
        ) from cause
