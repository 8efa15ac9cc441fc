"""What a report says before any figure: passed or not, on what, why, and how close to the bounds.

Pure functions over records. Nothing is judged again here: a verdict is the record's own, except that a record that
contradicts itself proves nothing and is shown as not compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from vela.graphs import record, verdicts
from vela.verify.report import limits, matrix, reading

WORDS: dict[record.Verdict, str] = {"passed": "Passed", "failed": "Failed", "not_compared": "Not compared"}
# Rows of a list that a page shows; the record has the rest.
ROW_LIMIT = 64
DISAGREEMENT_LIMIT = 24


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A run whose decision differs from the reference's.

    Attributes:
        run: The run.
        is_lost: False for a near tie of the reference, which the bar counts as agreed.
    """

    run: record.Run
    is_lost: bool


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """One record as the report states it.

    Attributes:
        anchor: Its place in the page.
        stored: The record.
        verdict: The record's own, unless it contradicts itself.
        cause: Why it did not pass; empty on a pass.
        bounds: What its figures are held against.
    """

    anchor: str
    stored: record.Record
    verdict: record.Verdict
    cause: str
    bounds: limits.Limits

    @classmethod
    def from_record(cls, found: record.Record, number: int) -> Self:
        """State a record as the `number`th of a page."""
        verdict, cause = _stated(found)
        return cls(f"graph-{number}", found, verdict, cause, limits.Limits.from_record(found))

    @property
    def engine(self) -> str:
        """Name the engine in a few words."""
        facts = self.stored.engine
        return f"{facts.runtime} {facts.version} {facts.device}" if facts else ""

    @property
    def placed(self) -> tuple["Placed", ...]:
        """Give every bounded figure with the class of inputs that it is about."""
        groups = self.stored.statistics
        return tuple(
            Placed(measured, self, matrix.Column.of(group))
            for group in groups
            for measured in self.bounds.measure(group)
        )

    @property
    def worst(self) -> limits.Measured | None:
        """Give the figure that is closest to its bound over all classes of inputs."""
        return max((one.measured for one in self.placed), key=lambda found: found.share, default=None)

    @property
    def lost(self) -> int:
        """Count the runs whose decision differs and that no near tie excuses."""
        return sum(self.bounds.is_lost(run, self.stored) for run in self.stored.runs)

    @property
    def max_probability(self) -> float | None:
        """Give the largest difference; None where nothing was compared."""
        return max((group.max_abs_probability for group in self.stored.statistics), default=None)

    @property
    def max_logit(self) -> float | None:
        """Give the largest |Δlogit|."""
        return max((group.max_abs_logit for group in self.stored.statistics), default=None)

    @property
    def agreed(self) -> int:
        """Count the runs whose decision agreed, near ties included."""
        return sum(group.agreed for group in self.stored.statistics)

    @property
    def near_ties(self) -> int:
        """Count the near ties among them."""
        return sum(group.near_ties for group in self.stored.statistics)

    @property
    def decades(self) -> tuple[int, ...]:
        """Count all |Δp| by decade, over all classes of inputs."""
        return tuple(map(sum, zip(*(group.decades for group in self.stored.statistics), strict=True)))

    @property
    def other_bars(self) -> tuple[record.BarResult, ...]:
        """Give what bars say that did not decide."""
        return tuple(result for result in self.stored.bars if result.bar != self.stored.bar)

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """List the runs whose decision differs: those that no tie excuses first, then by margin."""
        found = [Disagreement(run, self.bounds.is_lost(run, self.stored)) for run in self.stored.runs if not run.agrees]
        return tuple(sorted(found, key=lambda one: (not one.is_lost, -(one.run.margin or 0.0))))


@dataclass(frozen=True, slots=True)
class Placed:
    """A bounded figure, and which graph and class of inputs it is about."""

    measured: limits.Measured
    graph: GraphSummary
    column: matrix.Column


@dataclass(frozen=True, slots=True)
class Headline:
    """How the graphs of one engine did under one bar.

    Attributes:
        verdict: Passed only where every graph did.
        passed: Graphs that did.
        judged: Graphs with a record.
        bar: The bar that decided.
        engine: Runtime, version and device; empty where none was reached.
    """

    verdict: record.Verdict
    passed: int
    judged: int
    bar: str
    engine: str

    def __str__(self) -> str:
        where = f"on {self.engine}" if self.engine else "and reached no engine"
        return f"{self.passed} of {self.judged} graphs passed the {self.bar} bar {where}"


@dataclass(frozen=True, slots=True)
class Cause:
    """A finding, said once for all graphs that share it."""

    verdict: record.Verdict
    text: str
    graphs: tuple[GraphSummary, ...]
    named: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """All that a page is rendered from.

    Attributes:
        collected: The records, and what is missing beside them.
        graphs: One for each record.
        headlines: One for each engine and bar.
        causes: Why graphs did not pass, failures first.
        matrix: Graphs by classes of inputs.
    """

    collected: reading.Collected
    graphs: tuple[GraphSummary, ...]
    headlines: tuple[Headline, ...]
    causes: tuple[Cause, ...]
    matrix: matrix.Matrix

    @classmethod
    def from_collected(cls, collected: reading.Collected) -> Self:
        """Sum up records."""
        graphs = tuple(GraphSummary.from_record(found, place) for place, found in enumerate(collected.records, 1))
        return cls(
            collected,
            graphs,
            _headlines(graphs),
            _causes(graphs),
            matrix.Matrix.from_records(collected.records, [graph.bounds for graph in graphs]),
        )

    @property
    def verdict(self) -> record.Verdict:
        """Say how the bundle did: passed only where every graph of it has a record and every record passed."""
        found = {graph.verdict for graph in self.graphs}
        if "failed" in found:
            return "failed"
        is_whole = not self.collected.unjudged and not self.collected.left_out
        return "passed" if found == {"passed"} and is_whole else "not_compared"

    @property
    def closest(self) -> tuple[Placed, ...]:
        """Give, for each bounded figure, where it is closest to its bound or furthest beyond."""
        worst: dict[str, Placed] = {}
        for one in (placed for graph in self.graphs for placed in graph.placed):
            name = one.measured.name
            if name not in worst or one.measured.share > worst[name].measured.share:
                worst[name] = one
        return tuple(worst.values())

    @property
    def engines(self) -> tuple[str, ...]:
        """Name the engines that were reached."""
        return tuple(sorted({graph.engine for graph in self.graphs if graph.engine}))

    @property
    def created(self) -> tuple[str, str]:
        """Give when the first and the last record were made."""
        times = sorted(graph.stored.created for graph in self.graphs)
        return (times[0], times[-1]) if times else ("", "")


def _stated(found: record.Record) -> tuple[record.Verdict, str]:
    contradiction = verdicts.contradiction(found) if found.verdict == "passed" else None
    if contradiction:
        return "not_compared", f"The record says passed with {contradiction}; it proves nothing."
    return found.verdict, found.cause


def overall(found: Sequence[GraphSummary]) -> record.Verdict:
    """Sum up verdicts: one failure fails, and what was not compared never passes."""
    states = {graph.verdict for graph in found}
    return "failed" if "failed" in states else "passed" if states == {"passed"} else "not_compared"


def _headlines(graphs: Sequence[GraphSummary]) -> tuple[Headline, ...]:
    """Count by engine and bar; a record that reached no engine is counted with the engine that its bar was for."""
    groups: dict[tuple[str, str], list[GraphSummary]] = {}
    for graph in sorted(graphs, key=lambda graph: not graph.engine):
        same_bar = [key for key in groups if key[0] == graph.stored.bar]
        key = (graph.stored.bar, graph.engine)
        if not graph.engine and len(same_bar) == 1:
            (key,) = same_bar
        groups.setdefault(key, []).append(graph)
    return tuple(
        Headline(overall(found), sum(graph.verdict == "passed" for graph in found), len(found), bar, engine)
        for (bar, engine), found in groups.items()
    )


def _causes(graphs: Sequence[GraphSummary]) -> tuple[Cause, ...]:
    groups: dict[tuple[record.Verdict, str, str], list[GraphSummary]] = {}
    for graph in graphs:
        if graph.verdict != "passed":
            # Checks name the graph's own file first, which would keep equal findings apart.
            text = graph.cause.replace(f": {graph.stored.graph_id}.onnx: ", ": ", 1)
            groups.setdefault((graph.verdict, text, graph.stored.named or ""), []).append(graph)
    found = [Cause(verdict, text, tuple(group), named) for (verdict, text, named), group in groups.items()]
    return tuple(sorted(found, key=lambda cause: cause.verdict != "failed"))
