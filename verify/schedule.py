"""The schedule: cases, runs and paces of a bundle's graphs, made into a plan.

Reading texts, loading sessions and timing them happen here; `plan.py` only counts.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from vela.graphs import bundle, errors, manifest
from vela.serve import engine
from vela.verify import cases, checkpoint, engine_checks, mutants, pace, plan, repeats, rows, runs
from vela.verify import ground as grounds
from vela.verify.options import GateOptions

FRESH_PROCESSES = 3
PROCESS_START_S = 0.7  # until a fresh process has imported ONNX Runtime
MUTANTS_SHARE = 0.2  # of a budget; their pool shrinks to it
WIDE_TIMED_TOKENS = 512  # FP64 takes twice as long, and its pace is known from short rows


@dataclass(frozen=True, slots=True)
class Preparation:
    """All that a plan is made of.

    Attributes:
        planned: Graph and all its runs, by graph id.
        noise_cases: What the FP64 reference is asked.
        pool: What mutants are asked.
        references: The reference.
        paces: By `exact` and `wide` of the reference, and by `kind_of` a graph.
        load_s: Seconds that a session takes to load, by `kind_of` a graph.
        together: What one of several rows of one length costs the reference, beside a row alone.
        options: The gate's.
        processes: Fresh processes that each graph is asked in.
    """

    planned: Mapping[str, tuple[manifest.Graph, runs.Planned]]
    noise_cases: Sequence[cases.Case]
    pool: mutants.Pool
    references: grounds.References
    paces: Mapping[str, pace.Pace]
    load_s: Mapping[str, float]
    together: Mapping[int, float]
    options: GateOptions
    processes: int

    @classmethod
    def make(
        cls,
        opened: bundle.Bundle,
        source: checkpoint.Checkpoint,
        graphs: Sequence[manifest.Graph],
        references: grounds.References,
        options: GateOptions,
    ) -> Self:
        """Make cases, list runs, and time what will run.

        Raises:
            NothingCompared: there is no case.
        """
        longest = max(graph.sequence or options.max_tokens for graph in graphs)
        made = grounds.make_cases(source, rows.read_corpus(options.corpus), longest)
        noise_cases = grounds.pick_noise_cases(made, options.max_tokens)
        planned = {graph.id: (graph, _plan_graph(opened, source, graph, made, options)) for graph in graphs}
        shape = source.architecture.run_costs
        longest_of = {"exact": max(case.tokens for case in made), "wide": WIDE_TIMED_TOKENS}
        paces = grounds.time_references(references, pace.Work.of_reference(shape), made, longest_of)
        load_s = {}
        for kind, group in _by_kind(graphs).items():
            timed = _time_graphs(opened, group, pace.Work.of_graphs(shape), made, options)
            # a graph that does not load fails later, with its reason; till then it costs what the reference costs
            paces[kind], load_s[kind] = timed or (paces["exact"], 0.0)
        together = grounds.time_together(references, made)
        pool = choose_pool(planned, made, source.architecture.half_window, references, paces["exact"], options)
        return cls(planned, noise_cases, pool, references, paces, load_s, together, options, FRESH_PROCESSES)

    def make_plan(self, kept: Mapping[str, int] | None = None) -> plan.Plan:
        """Make the plan, or make again the one whose counts of kept runs an interrupted run left."""
        if kept is not None and kept.keys() == self.planned.keys() and all(map(self._is_enough, kept.items())):
            return plan.make_plan_of_counts(self.planned, self.durations(), kept, self.options.budget_s)
        return plan.make_plan(self.planned, self.durations(), self.options.budget_s)

    def _is_enough(self, kept: tuple[str, int]) -> bool:
        """Say whether a count leaves a graph out, or keeps its probes and laws at least."""
        graph_id, count = kept
        return count == 0 or count >= len(self.planned[graph_id][1].required)

    def durations(self) -> plan.Durations:
        """Give the expected seconds of everything."""
        seconds = self.seconds_of_case
        noise_s = sum(map(seconds["wide"], self.noise_cases))
        mutants_s = mutants.seconds_of(self.references.mutants, self.pool, seconds["exact"])
        return plan.Durations(seconds["exact"], self.seconds_of_run, self._of_graph, noise_s, mutants_s)

    @property
    def seconds_of_case(self) -> Mapping[str, Callable[[cases.Case], float]]:
        """Give the expected seconds of an answer of the reference, by `exact` and `wide`."""
        exact, wide = self.paces["exact"], self.paces["wide"]
        return {
            "exact": lambda case: exact.seconds(case.tokens) * self.together.get(case.tokens, 1.0),
            "wide": lambda case: wide.seconds(case.tokens),
        }

    def seconds_of_run(self, graph: manifest.Graph, run: runs.Run) -> float:
        """Give the expected seconds of one run."""
        return self.paces[kind_of(graph)].seconds(run.width(graph), graph.batch or len(run.rows))

    def _of_graph(self, graph: manifest.Graph, kept: Sequence[runs.Run]) -> float:
        return self.seconds_of_fresh(graph, kept) + self.seconds_of_checks(graph, kept) if kept else 0.0

    def seconds_of_fresh(self, graph: manifest.Graph, kept: Sequence[runs.Run]) -> float:
        """Give the expected seconds of fresh processes: starts, loads, and the run that is made in each."""
        nearest = engine_checks.Chosen.from_plan(graph, kept).nearest
        once = self.load_s[kind_of(graph)] + sum(self.seconds_of_run(graph, run) for run in nearest)
        return self.processes * (once + PROCESS_START_S / len(self.planned))

    def seconds_of_checks(self, graph: manifest.Graph, kept: Sequence[runs.Run]) -> float:
        """Give the expected seconds of loading with and without rewrites, and of runs that are made again."""
        chosen = engine_checks.Chosen.from_plan(graph, kept)
        again = sum(self.seconds_of_run(graph, run) for run in chosen.nearest)
        can_race = repeats.can_race(self.options.session.threads, str(self.options.device))
        often = repeats.list_repeats(chosen.repeated, graph, can_race=can_race)
        again += sum(each.expected_s(self.seconds_of_run(graph, run)) for run, each in often)
        return again + 2 * self.load_s[kind_of(graph)]


def choose_pool(
    planned: Mapping[str, tuple[manifest.Graph, runs.Planned]],
    made: Sequence[cases.Case],
    half_window: int,
    references: grounds.References,
    exact: pace.Pace,
    options: GateOptions,
) -> mutants.Pool:
    """Choose what mutants are asked, as many inputs as the budget has room for."""
    listed = [runs_of for _, runs_of in planned.values()]
    count = mutants.POOL_CASES
    while True:
        pool = mutants.choose_pool(listed, made, half_window, count)
        seconds = mutants.seconds_of(references.mutants, pool, lambda case: exact.seconds(case.tokens))
        if options.budget_s is None or seconds <= MUTANTS_SHARE * options.budget_s or count == mutants.FEWEST_CASES:
            return pool
        count = max(mutants.FEWEST_CASES, count * 2 // 3)


def kind_of(graph: manifest.Graph) -> str:
    """Name the graphs that share a pace."""
    return f"{graph.target} {graph.precision} {'dynamic' if graph.sequence is None else 'fixed'}"


def _by_kind(graphs: Sequence[manifest.Graph]) -> dict[str, list[manifest.Graph]]:
    found: dict[str, list[manifest.Graph]] = {}
    for graph in graphs:
        found.setdefault(kind_of(graph), []).append(graph)
    return found


def _plan_graph(
    opened: bundle.Bundle,
    source: checkpoint.Checkpoint,
    graph: manifest.Graph,
    made: Sequence[cases.Case],
    options: GateOptions,
) -> runs.Planned:
    fitting = [case for case in made if graph.sequence or case.tokens <= options.max_tokens]
    return runs.plan_runs(graph, opened.manifest.graphs, fitting, source.architecture.half_window, source.max_positions)


def _time_graphs(
    opened: bundle.Bundle,
    group: Sequence[manifest.Graph],
    work: pace.Work,
    made: Sequence[cases.Case],
    options: GateOptions,
) -> tuple[pace.Pace, float] | None:
    """Time graphs of one kind: a dynamic one at several lengths, fixed ones each at their own.

    Returns:
        Their pace and the median seconds of a load; None where none could be run.
    """
    longest = max(made, key=lambda case: case.tokens).ids
    pad_id = opened.manifest.tokenizer.pad_id
    points: dict[int, float] = {}
    loads: list[float] = []
    for graph, lengths in _timed(group, min(len(longest), options.max_tokens)):
        try:
            started = time.perf_counter()
            session = engine.Session.open(opened.path(graph.file), graph, options.device, options.session)
            loads.append(time.perf_counter() - started)
            run = functools.partial(_run_cut, session, longest, pad_id)
            points.update(pace.Pace.timed(work, run, lengths).points)
        except errors.VelaError:
            continue
    per_row = {size: seconds / (group[0].batch or 1) for size, seconds in points.items()}
    return (pace.Pace(work, tuple(sorted(per_row.items()))), sorted(loads)[len(loads) // 2]) if points else None


def _timed(group: Sequence[manifest.Graph], longest: int) -> Iterator[tuple[manifest.Graph, Sequence[int]]]:
    if group[0].sequence is None:
        yield group[0], pace.lengths_up_to(longest)
        return
    by_size = {graph.sequence: graph for graph in group if graph.sequence is not None}
    wanted = {min(by_size, key=lambda size: abs(size - length)) for length in pace.TIMED_TOKENS}
    for size in sorted(wanted):
        if size <= pace.TIMED_TOKENS[-1] or size == min(by_size):
            yield by_size[size], (size,)


def _run_cut(session: engine.Session, ids: tuple[int, ...], pad_id: int, tokens: int) -> None:
    session.run(engine.pad_rows([ids[:tokens]], session.graph, pad_id))
