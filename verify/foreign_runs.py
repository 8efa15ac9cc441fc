"""What a foreign graph is asked: the runs that its fixed dimensions allow, timed as those of a bundle's graphs are.

Such a file may be fixed in one dimension and free in the other, take no mask, or give vectors of unit length; a
bundle's graphs are none of that, so it is settled here.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors, heads, manifest
from vela.serve import device as devices
from vela.serve import engine
from vela.verify import (
    cases,
    checkpoint,
    engine_checks,
    foreign,
    foreign_session,
    mutants,
    pace,
    reference,
    rows,
    runs,
    schedule,
)
from vela.verify import ground as grounds
from vela.verify.asked import Arrays
from vela.verify.foreign_session import ForeignSession
from vela.verify.options import GateOptions

UNIT_TOLERANCE = 1e-3  # of a vector's length; FP16 rounds to 5e-4
UNIT_PROBES = 4


@dataclass(frozen=True, slots=True)
class Asked:
    """A foreign graph and where it is asked; see `answering.Asked`.

    Attributes:
        interface: How it is fed and read.
        head: Of the checkpoint.
        pad_id: What rows are padded with.
        device: Where.
        options: Of the session.
    """

    interface: foreign.Foreign
    head: heads.Head
    pad_id: int
    device: devices.Device
    options: engine.SessionOptions

    @property
    def graph(self) -> manifest.Graph:
        """The graph as the gate sees it."""
        return self.interface.presented

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return self.interface.path

    @property
    def native(self) -> manifest.Graph:
        """The graph as its file has it."""
        return self.interface.entry

    def feed(self, inputs: Mapping[str, NDArray[np.int64]]) -> Arrays:
        """Give what the file takes."""
        return foreign_session.feed(self.interface, inputs)

    def load(self, content: bytes, described: manifest.Graph) -> engine.Session:
        """Load an altered copy from memory; EngineError where that fails."""
        return engine.Session.from_bytes(content, self.path.parent, described, self.device, self.options)

    def on_cpu(self) -> Self:
        """Give the same graph, asked on the CPU."""
        return replace(self, device=devices.CPU)

    def open(self, options: engine.SessionOptions | None = None) -> ForeignSession:
        """Load the graph as serve does; EngineError where that fails."""
        return ForeignSession.open(self.interface, self.device, options or self.options)


def prepare(
    asked: Asked, source: checkpoint.Checkpoint, references: grounds.References, options: GateOptions
) -> schedule.Preparation:
    """Make cases, list the runs that the graph's fixed dimensions allow, and time what will run.

    Raises:
        NothingCompared: no case fits.
    """
    graph, shape = asked.graph, source.architecture.run_costs
    made = grounds.make_cases(source, rows.read_corpus(options.corpus), graph.sequence or options.max_tokens)
    half_window = source.architecture.half_window
    listed = fit_shape(graph, runs.plan_runs(graph, [graph], made, half_window, source.max_positions))
    if not listed.all:
        raise errors.NothingCompared(
            f"no case of exactly {graph.sequence} tokens",
            expected="cases that fill the graph's fixed shape, because it takes no mask",
            where=graph.file,
            fix="Give such texts with --corpus, or judge a graph that takes attention_mask.",
        )
    longest_of = {"exact": max(case.tokens for case in made), "wide": schedule.WIDE_TIMED_TOKENS}
    paces = grounds.time_references(references, pace.Work.of_reference(shape), made, longest_of)
    kind, load_s = schedule.kind_of(graph), 0.0
    try:
        timed, load_s = _time(asked, pace.Work.of_graphs(shape), [run.case for run in listed.all])
        paces[kind] = timed
    except errors.VelaError:
        paces[kind] = paces["exact"]  # it fails again, with its reason, when it is judged
    noise_cases = grounds.pick_noise_cases(made, options.max_tokens)
    planned = {graph.id: (graph, listed)}
    return schedule.Preparation(
        planned=planned,
        noise_cases=noise_cases,
        pool=schedule.choose_pool(planned, made, half_window, references, paces["exact"], options),
        references=references,
        paces=paces,
        load_s={kind: load_s},
        together=grounds.time_together(references, made),
        options=options,
        processes=schedule.FRESH_PROCESSES,
    )


def fit_shape(graph: manifest.Graph, listed: runs.Planned) -> runs.Planned:
    """Leave out what a graph's fixed dimensions have no room for: companions, and rows that it could not mask."""
    required = _fitting(graph, listed.required)
    return runs.Planned(required, tuple(run for run in _fitting(graph, listed.corpus) if run not in {*required}))


def _fitting(graph: manifest.Graph, planned: Sequence[runs.Run]) -> tuple[runs.Run, ...]:
    found = list(planned)
    if graph.batch is not None:
        room = graph.batch - 1
        found = [replace(run, companions=run.companions[:room], row=min(run.row, room)) for run in found]
    if graph.sequence is not None and not graph.takes_mask:
        found = [run for run in found if {*map(len, run.rows)} == {graph.sequence}]
    return tuple(dict.fromkeys(found))


def _time(asked: Asked, work: pace.Work, made: Sequence[cases.Case]) -> tuple[pace.Pace, float]:
    """Time a load and runs: a dynamic graph's at several lengths, a fixed one's at its own."""
    started = time.perf_counter()
    session = asked.open()
    load_s = time.perf_counter() - started
    longest = max(made, key=lambda case: case.tokens).ids
    lengths = (asked.graph.sequence,) if asked.graph.sequence else pace.lengths_up_to(len(longest))

    def run(tokens: int) -> None:
        session.run(engine.pad_rows([longest[:tokens]], asked.graph, asked.pad_id))

    timed = pace.Pace.timed(work, run, lengths)
    rows_at_once = asked.graph.batch or 1
    return pace.Pace(work, tuple((size, seconds / rows_at_once) for size, seconds in timed.points)), load_s


def gives_unit_vectors(asked: Asked, planned: Sequence[runs.Run]) -> bool:
    """Say whether a graph that pools also normalises, which its shape does not tell."""
    if asked.interface.roles != ("pooled",):
        return False
    try:
        session = asked.open()
        answers = [engine_checks.answer(session, run, asked.pad_id) for run in planned[:UNIT_PROBES]]
    except errors.VelaError:
        return False  # it fails again, with its reason, when it is judged
    lengths = [float(np.linalg.norm(vector)) for answer in answers for vector in answer.values()]
    return all(abs(length - 1.0) < UNIT_TOLERANCE for length in lengths)


def of_unit_length(ground: grounds.Ground) -> grounds.Ground:
    """Normalise the reference's vectors; its noise becomes that of the shortest of them."""
    lengths = [float(np.linalg.norm(vector)) for answer in ground.answers.values() for vector in answer.values()]
    answers = _unit_answers(ground.answers)
    return replace(ground, answers=answers, noise=ground.noise / min(lengths), mutants=_unit_mutants(ground.mutants))


def _unit_mutants(found: mutants.Mutants | None) -> mutants.Mutants | None:
    """Normalise what mutants answered, as the graph does."""
    if found is None:
        return None
    measured = [replace(one, answers=_unit_answers(one.answers)) for one in found.measured]
    return replace(found, measured=tuple(measured))


def _unit_answers(answers: Mapping[str, reference.Answer]) -> dict[str, reference.Answer]:
    return {
        case_id: {name: vector / np.linalg.norm(vector) for name, vector in answer.items()}
        for case_id, answer in answers.items()
    }
