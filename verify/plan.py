"""The plan: what the gate will run, how long that will take, and what a budget leaves of it.

The rule for a budget: every graph keeps its probes and laws, and of the corpus every graph keeps the same share, taken
evenly over all lengths. Where not even probes and laws fit, the graphs that cost most are not compared, and the
record says so. Pure: durations come from `pace.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vela.graphs import errors, manifest, record
from vela.verify import runs
from vela.verify.cases import Case

SHARES = 1000  # a share of the corpus is a number of thousandths


@dataclass(frozen=True, slots=True)
class Durations:
    """Expected seconds of everything that the gate does.

    Attributes:
        of_case: The reference's answer to a case.
        of_run: One run of a graph.
        of_graph: What a graph costs apart from its runs: loading, repeats, fresh processes.
        of_noise: The reference in FP64, once.
        of_mutants: All mutants on their pool, once.
    """

    of_case: Callable[[Case], float]
    of_run: Callable[[manifest.Graph, runs.Run], float]
    of_graph: Callable[[manifest.Graph, Sequence[runs.Run]], float]
    of_noise: float
    of_mutants: float = 0.0


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """One graph's part.

    Attributes:
        graph: The graph.
        kept: Runs that will be made; none where the budget has no room for the graph.
        whole: Runs of a plan without a budget.
        minimum: Probes and laws among them.
        seconds: Expected duration.
        lowest_s: Expected duration of probes and laws alone.
    """

    graph: manifest.Graph
    kept: tuple[runs.Run, ...]
    whole: int
    minimum: int
    seconds: float
    lowest_s: float

    @property
    def estimate(self) -> record.Estimate:
        """Give what the record keeps."""
        return record.Estimate(round(self.seconds, 3), len(self.kept), self.whole, self.minimum)


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole.

    Attributes:
        graphs: In the manifest's order.
        cases: What the reference is asked, each once.
        reference_s: Expected seconds of that.
        noise_s: Expected seconds of the FP64 reference.
        mutants_s: Expected seconds of all mutants.
        budget_s: What was asked for; None for no limit.
    """

    graphs: tuple[GraphPlan, ...]
    cases: tuple[Case, ...]
    reference_s: float
    noise_s: float
    mutants_s: float
    budget_s: float | None

    @property
    def seconds(self) -> float:
        """Expected seconds in all."""
        return self.reference_s + self.noise_s + self.mutants_s + sum(part.seconds for part in self.graphs)

    def lines(self) -> list[str]:
        """Say the plan for people, longest graphs first."""
        kept, whole = (
            sum(counts) for counts in zip(*((len(part.kept), part.whole) for part in self.graphs), strict=True)
        )
        budget = "" if self.budget_s is None else f" of a budget of {say_seconds(self.budget_s)}"
        found = [
            f"plan: {kept} of {whole} runs on {len(self.graphs)} graphs in about {say_seconds(self.seconds)}{budget}: "
            f"reference {say_seconds(self.reference_s)} for {len(self.cases)} cases, its noise "
            f"{say_seconds(self.noise_s)}, its mutants {say_seconds(self.mutants_s)}"
        ]
        for part in sorted(self.graphs, key=lambda part: -part.seconds):
            room = "" if part.kept else " (no room in the budget: not compared)"
            found.append(
                f"  {part.graph.id}: {len(part.kept)} of {part.whole} runs, about {say_seconds(part.seconds)}{room}"
            )
        return found


def make_plan(
    planned: Mapping[str, tuple[manifest.Graph, runs.Planned]], durations: Durations, budget_s: float | None
) -> Plan:
    """Plan all graphs.

    Args:
        planned: Graph and runs by graph id, in order.
        durations: Expected seconds.
        budget_s: Seconds that the whole may take; None for no limit.

    Raises:
        VerificationError: the budget is not positive.
    """
    if budget_s is None:
        return _plan_share(planned, durations, frozenset(), SHARES, None)
    if budget_s <= 0:
        raise errors.VerificationError(
            f"a budget of {budget_s:g} s", expected="a positive one", where="--budget", fix="Give minutes above 0."
        )
    dropped: frozenset[str] = frozenset()
    while (lowest := _plan_share(planned, durations, dropped, 0, budget_s)).seconds > budget_s:
        remaining = [part for part in lowest.graphs if part.kept]
        if not remaining:
            return lowest
        dropped |= {max(remaining, key=lambda part: part.seconds).graph.id}
    low, high = 0, SHARES
    while low < high:
        share = (low + high + 1) // 2
        if _plan_share(planned, durations, dropped, share, budget_s).seconds <= budget_s:
            low = share
        else:
            high = share - 1
    return _plan_share(planned, durations, dropped, low, budget_s)


def make_plan_of_counts(
    planned: Mapping[str, tuple[manifest.Graph, runs.Planned]],
    durations: Durations,
    counts: Mapping[str, int],
    budget_s: float | None,
) -> Plan:
    """Make again a plan of which the number of kept runs of each graph is known."""
    kept = {graph_id: listed.all[: counts[graph_id]] for graph_id, (_, listed) in planned.items()}
    parts = tuple(_part(graph, listed, kept[graph_id], durations) for graph_id, (graph, listed) in planned.items())
    cases = tuple({run.case.id: run.case for part in parts for run in part.kept}.values())
    noise_s, mutants_s = (durations.of_noise, durations.of_mutants) if cases else (0.0, 0.0)
    return Plan(parts, cases, sum(map(durations.of_case, cases)), noise_s, mutants_s, budget_s)


def _plan_share(
    planned: Mapping[str, tuple[manifest.Graph, runs.Planned]],
    durations: Durations,
    dropped: frozenset[str],
    share: int,
    budget_s: float | None,
) -> Plan:
    """Plan with so many thousandths of the corpus."""
    counts = {
        graph_id: 0 if graph_id in dropped else len(keep_share(listed, share))
        for graph_id, (_, listed) in planned.items()
    }
    return make_plan_of_counts(planned, durations, counts, budget_s)


def _part(graph: manifest.Graph, listed: runs.Planned, kept: tuple[runs.Run, ...], durations: Durations) -> GraphPlan:
    seconds, lowest_s = (
        sum(durations.of_run(graph, run) for run in chosen) + durations.of_graph(graph, chosen)
        for chosen in (kept, listed.required)
    )
    return GraphPlan(graph, kept, len(listed.all), len(listed.required), seconds, lowest_s)


def keep_share(listed: runs.Planned, share: int) -> tuple[runs.Run, ...]:
    """Keep probes and laws, and so many thousandths of the corpus."""
    return listed.required + listed.corpus[: len(listed.corpus) * share // SHARES]


def say_seconds(seconds: float) -> str:
    """Say a duration in the unit that people would use."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
