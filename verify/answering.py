"""Let a graph answer its runs through serve's own engine, and compare each answer with the reference's.

What is verified is what is served: the same session factory, the same padding, the same placement check. An answer
that is not finite or of another shape ends in a failed check, never in a smaller number of comparisons.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import bundle, causes, errors, heads, manifest, record
from vela.serve import device as devices
from vela.serve import engine
from vela.verify import asked as asking
from vela.verify import bars, compare, engine_checks, meter, order, reference, runs

Seconds = Callable[[runs.Run], float]


@dataclass(frozen=True, slots=True)
class Asked:
    """A graph and where it is asked.

    Attributes:
        opened: Its bundle.
        graph: Its manifest entry.
        head: Its head, from the reference checkpoint.
        device: Where.
        options: Of the session.
    """

    opened: bundle.Bundle
    graph: manifest.Graph
    head: heads.Head
    device: devices.Device
    options: engine.SessionOptions

    def open(self, options: engine.SessionOptions | None = None) -> engine.Session:
        """Load the graph as serve does; EngineError where that fails."""
        return engine.Session.open(self.path, self.graph, self.device, options or self.options)

    @property
    def pad_id(self) -> int:
        """What rows are padded with."""
        return self.opened.manifest.tokenizer.pad_id

    @property
    def path(self) -> Path:
        """Where the graph's file lies."""
        return self.opened.path(self.graph.file)

    @property
    def native(self) -> manifest.Graph:
        """The graph as its file has it."""
        return self.graph

    def feed(self, inputs: Mapping[str, NDArray[np.int64]]) -> asking.Arrays:
        """Give the inputs as they are: a bundle's graph keeps the contract."""
        return inputs

    def load(self, content: bytes, described: manifest.Graph) -> engine.Session:
        """Load an altered copy from memory; EngineError where that fails."""
        return engine.Session.from_bytes(content, self.opened.folder, described, self.device, self.options)

    def on_cpu(self) -> Self:
        """Give the same graph, asked on the CPU."""
        return replace(self, device=devices.CPU)


@dataclass(frozen=True, slots=True)
class Expected:
    """What answers are compared with.

    Attributes:
        answers: The reference's, by case id.
        noise: Its own FP32 noise, in the units of the output.
        fresh: This graph's answers in fresh processes.
        watched: Ids of the cases whose answers are kept, to find the cause where the graph fails.
    """

    answers: Mapping[str, reference.Answer]
    noise: float
    fresh: Sequence[engine_checks.FreshAnswer] = ()
    watched: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Answered:
    """What running a graph gave.

    Attributes:
        checks: Engine, finiteness and law checks.
        differences: One for each run that could be compared.
        engine: What ran; None where no session could be opened.
        watched: Its answers to the watched cases.
    """

    checks: tuple[record.Check, ...]
    differences: tuple[compare.Difference, ...]
    engine: record.EngineFacts | None
    watched: Mapping[runs.Run, engine_checks.Answer] = field(default_factory=dict)

    @classmethod
    def nothing(cls, reason: str) -> Self:
        """Say that no run was made, and why."""
        return cls((record.Check("engine.placement", "not_run", reason, 0.0),), (), None)


def answer_runs(
    asked: asking.Asked, planned: Sequence[runs.Run], expected: Expected, gauge: meter.Meter, seconds: Seconds
) -> Answered:
    """Run a graph on all its runs, compare, and check its engine.

    Args:
        asked: The graph.
        planned: What to run.
        expected: What to compare with.
        gauge: Told what was done.
        seconds: Expected duration of a run.
    """
    started = time.monotonic()
    try:
        session = asked.open()
    except errors.EngineError as cause:
        failed = engine_checks.check("engine.placement", str(cause), started, cause=cause.cause)
        return Answered((failed,), (), None)
    placed = engine_checks.check("engine.placement", "", started, f"every node on {session.facts.provider}")
    started = time.monotonic()
    chosen = engine_checks.Chosen.from_plan(asked.graph, planned)
    differences, problem = list[compare.Difference](), ""
    named: causes.Cause | None = None
    padded_as: list[str] = []  # runs that could not be compared; `none` for a reason of another kind than numbers
    kept: dict[runs.Run, engine_checks.Answer] = {}
    watched: dict[runs.Run, engine_checks.Answer] = {}
    for run in planned:
        actual: engine_checks.Answer = {}
        try:
            with gauge.forward():
                actual = engine_checks.answer(session, run, asked.pad_id)
            if run in chosen.kept:
                kept[run] = actual
            if run.case.id in expected.watched:
                watched[run] = actual
            padding = run.padding_class(asked.graph)
            wanted = expected.answers[run.case.id]
            differences.append(compare.compare_answers(asked.head, run.case, actual, wanted, padding))
        except (errors.VerificationError, errors.EngineError) as cause:
            is_no_number = not all(np.isfinite(values).all() for values in actual.values())
            padded_as.append(run.padding_class(asked.graph) if is_no_number else "none")
            if not problem:
                problem = str(cause)
                named = "engine refuses" if isinstance(cause, errors.EngineError) else cause.cause
        gauge.did(asked.graph.id, seconds(run))
    is_unpadded_finite = any(difference.padding_class == "none" for difference in differences)
    if problem and is_unpadded_finite and "none" not in padded_as:
        named = "padding mask"  # no number comes of pads alone
    detail = f"{len(differences)} answers, all numbers finite"
    finite = engine_checks.check("outputs.finite", problem, started, detail, named)
    judged = engine_checks.Judged(session, asked.open, kept, asked.pad_id, gauge.forward)
    checks = (placed, finite, *_check_engine(judged, chosen, expected, bars.repeat_bound(asked.device.kind)))
    decided = order.place_in_order(differences) if asked.head.kind == "rerank" else tuple(differences)
    return Answered(checks, decided, session.facts, watched)


def _check_engine(
    judged: engine_checks.Judged, chosen: engine_checks.Chosen, expected: Expected, bound: float
) -> list[record.Check]:
    found = engine_checks.check_poison(judged, chosen, bound)
    found.append(engine_checks.check_repeats(judged, chosen.repeated, bound))
    found.append(engine_checks.check_rewrites(judged, chosen.nearest, expected.noise))
    if expected.fresh:
        found.append(engine_checks.check_processes(judged, expected.fresh, bound))
    return found


def noise_of(exact: Sequence[reference.Answer], wide: Sequence[reference.Answer]) -> float:
    """Give the largest difference between the reference's FP32 and FP64 answers, in logit units."""
    return max(
        float(np.max(np.abs(answer[name] - other[name])))
        for answer, other in zip(exact, wide, strict=True)
        for name in answer
    )
