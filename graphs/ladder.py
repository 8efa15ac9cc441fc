"""The ladder: the token lengths of a bundle's fixed graphs. The default one, and the cheapest one for given requests.

Export takes the defaults from here, `vela plan-buckets` plans. A request runs in the smallest bucket that holds it, so
a ladder's cost over observed lengths is the sum, over its buckets, of requests times the cost of that bucket's run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vela.graphs import costs as run_costs
from vela.graphs import errors
from vela.graphs import lengths as observed

# Source: graphs.md, one ladder for all; each doubles, so no input is padded to more than twice its length.
DEFAULT_BUCKETS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
DEFAULT_BATCHES = (1,)
GRANULARITY = 16  # finer steps save at most 15 tokens a request; tiles of matrix kernels are no smaller
SHORTEST_BUCKET = 2  # a text has special tokens around it


@dataclass(frozen=True, slots=True)
class Rule:
    """Which ladders may be chosen.

    Attributes:
        bucket_count: At most so many buckets.
        maximum: Always the last bucket, whether or not a request was so long; None ends at the longest request.
        granularity: Every other bucket is a multiple of this.
    """

    bucket_count: int = len(DEFAULT_BUCKETS)
    maximum: int | None = None
    granularity: int = GRANULARITY

    def __post_init__(self) -> None:
        sizes = (self.granularity, self.granularity if self.maximum is None else self.maximum)
        if self.bucket_count < 1 or min(sizes) < SHORTEST_BUCKET:
            raise ValueError(f"a ladder has buckets, and they start at {SHORTEST_BUCKET} tokens: {self}")

    def last_bucket(self, lengths: observed.Lengths) -> int:
        """Give the bucket that every ladder for these requests ends with."""
        return self.maximum or self._rounded(lengths.counts[-1][0])

    def candidates(self, lengths: observed.Lengths) -> list[int]:
        """List the buckets worth a graph, ascending: a multiple that no request rounds up to only costs more."""
        last = self.last_bucket(lengths)
        return sorted({last, *(min(self._rounded(tokens), last) for tokens, _ in lengths.counts)})

    def _rounded(self, tokens: int) -> int:
        return -(-tokens // self.granularity) * self.granularity


@dataclass(frozen=True, slots=True)
class Use:
    """What a ladder does with requests.

    Attributes:
        ladder: Token lengths, ascending.
        requests: Requests that each bucket takes.
        padding: Padded tokens for each real token, by bucket; 1.0 is no padding, and 0.0 is a bucket without requests.
        total_padding: The same over all buckets.
        cost: Of all requests, in the unit of the costs.
    """

    ladder: tuple[int, ...]
    requests: tuple[int, ...]
    padding: tuple[float, ...]
    total_padding: float
    cost: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The cheapest ladder beside the two that need no planning.

    Attributes:
        chosen: The cheapest one.
        default: The default ladder, cut or extended to the same last bucket.
        single: One bucket for everything.
        above: Requests above the last bucket, which none of the three counts.
    """

    chosen: Use
    default: Use
    single: Use
    above: int


def plan_buckets(lengths: observed.Lengths, costs: run_costs.Costs, rule: Rule) -> Plan:
    """Choose the cheapest ladder for the requests up to the rule's maximum, and compare it.

    Raises:
        PlanError: no request is left, or a cost is not known.
    """
    last = rule.last_bucket(lengths)
    held = lengths.between(0, last)
    if not held.counts:
        raise errors.PlanError(
            f"no request up to {last:,} tokens; the shortest has {lengths.counts[0][0]:,}",
            expected="at least one",
            where="--lengths and --max-tokens",
            fix="Raise --max-tokens to what the model takes.",
        )
    chosen = choose_ladder(held, costs, rule)
    default = (*(size for size in DEFAULT_BUCKETS if size < last), last)
    return Plan(
        chosen=measure_use(chosen, held, costs),
        default=measure_use(default, held, costs),
        single=measure_use((last,), held, costs),
        above=lengths.requests - held.requests,
    )


def measure_use(ladder: Sequence[int], lengths: observed.Lengths, costs: run_costs.Costs) -> Use:
    """Count what each bucket takes; no request may be longer than the last."""
    if not ladder or lengths.counts[-1][0] > ladder[-1]:
        raise ValueError(f"the ladder {ladder} does not hold {lengths.counts[-1][0]} tokens")
    taken = [lengths.between(below, size) for below, size in zip((0, *ladder), ladder, strict=False)]
    requests = [part.requests for part in taken]
    padded = [size * count for size, count in zip(ladder, requests, strict=True)]
    return Use(
        tuple(ladder),
        tuple(requests),
        tuple(tokens / max(part.tokens, 1) for tokens, part in zip(padded, taken, strict=True)),
        sum(padded) / lengths.tokens,
        sum(count * costs.cost_of(size) for size, count in zip(ladder, requests, strict=True)),
    )


def choose_ladder(lengths: observed.Lengths, costs: run_costs.Costs, rule: Rule) -> tuple[int, ...]:
    """Find the ladder of least cost; among equals the one with fewest buckets, then the one that starts smallest.

    Exact, by a dynamic programme over the candidates: `rest[p]` is the least cost of the requests above the first p
    candidates with so many further buckets.

    Args:
        lengths: Requests, none above the rule's maximum.
        costs: Of a run, non-decreasing.
        rule: What may be chosen.
    """
    sizes = rule.candidates(lengths)
    prices = [costs.cost_of(size) for size in sizes]
    if prices != sorted(prices) or lengths.counts[-1][0] > sizes[-1]:
        raise ValueError("costs never fall with length, and no request is above the maximum")
    below = [0, *lengths.requests_up_to(sizes)]
    end = len(sizes)
    rest, steps = [(below[end] - start) * prices[-1] for start in below[:end]], [[end] * end]
    totals = [rest[0]]
    for bucket_count in range(2, min(rule.bucket_count, end) + 1):
        rest, step = _put_bucket_before(rest[: end - bucket_count + 2], below, prices)
        steps.append(step)
        totals.append(rest[0])
    ladder, position = [], 0
    for step in reversed(steps[: totals.index(min(totals)) + 1]):
        position = step[position]
        ladder.append(sizes[position - 1])
    return tuple(ladder)


def _put_bucket_before(rest: list[int], below: list[int], prices: list[int]) -> tuple[list[int], list[int]]:
    """Give, for every start, the least cost with one more bucket, and where that bucket ends (the first of equals).

    Divide and conquer, n log n steps, because a later start never has an earlier best end: of starts a < b and ends
    c < d, the buckets a to c and b to d together cost no more than a to d and b to c. The difference is
    (below[b] - below[a]) × (price of d - price of c), and neither factor is negative.
    """
    last = len(rest) - 2  # the last start from which a bucket leaves requests for the buckets after it
    best, step = [0] * (last + 1), [0] * (last + 1)
    pending = [(0, last, 1, last + 1)]
    while pending:
        low, high, first, final = pending.pop()
        if low > high:
            continue
        start = (low + high) // 2
        ends = range(max(first, start + 1), final + 1)
        best[start], step[start] = min(((below[end] - below[start]) * prices[end - 1] + rest[end], end) for end in ends)
        pending += [(low, start - 1, first, step[start]), (start + 1, high, step[start], final)]
    return best, step
