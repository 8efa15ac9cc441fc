"""The gate for one ONNX file that Vela did not write: does it, on this engine, answer like this checkpoint?

It is the gate of a bundle's graphs with other doors: the interface is read by content, weights are found by content,
and a graph whose weights were rounded is judged by the reduced bar. Beside such a file lies no FP32 graph that was
verified, so it is judged against the checkpoint itself, and the record says so. Nothing is written beside the file.
"""

import datetime
import functools
import importlib.metadata
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from vela.graphs import digests, errors, record
from vela.serve import device as devices
from vela.verify import (
    answering,
    bars,
    checkpoint,
    foreign,
    foreign_checks,
    foreign_runs,
    gate,
    journal,
    judge,
    meter,
    plan,
    runs,
    verdict,
)
from vela.verify import ground as grounds
from vela.verify.options import GateOptions

# Laws that hold to the last bit, or to the noise of FP32, hold for no graph that rounds its activations: their steps
# follow the largest number of a batch, pads included. Such runs are compared with the reference all the same.
LAWS_OF_FP32 = frozenset({"laws.poison", "engine.rewrites"})


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What inference gave, or why there was none.

    Attributes:
        answered: The graph's answers, compared.
        ground: What they were compared with.
        planned: What was to be run; None where static checks ended it.
    """

    answered: answering.Answered
    ground: grounds.Ground
    planned: plan.GraphPlan | None = None

    @property
    def kept(self) -> tuple[runs.Run, ...]:
        """The runs that were to be made."""
        return self.planned.kept if self.planned else ()


def verify_file(
    path: Path,
    source: checkpoint.Checkpoint,
    make_references: Callable[[], grounds.References],
    options: GateOptions,
    progress: gate.Progress,
) -> record.Record:
    """Judge a graph file.

    Args:
        path: The graph.
        source: The reference checkpoint.
        make_references: Loads the reference; not called where the graph does not get as far as inference.
        options: How to judge; graph ids and what an interrupted run left mean nothing for a file.
        progress: Told what is being done.

    Returns:
        Its record; nothing is written.

    Raises:
        VelaError: nothing could be judged at all.
    """
    started = time.monotonic()
    progress(f"{path.name}: static checks")
    found = foreign_checks.check_foreign(path, source)
    chosen = bars.choose_bar(options.bar, options.device.kind, found.precision or "fp32")
    is_over = found.is_decided or (options.is_fail_fast and found.has_failed)
    outcome = _Outcome(answering.Answered.nothing("static checks failed first"), grounds.Ground.nothing())
    if found.interface is not None and not is_over:
        pad_id = int(source.config["pad_token_id"])
        asked = foreign_runs.Asked(found.interface, source.head, pad_id, options.device, options.session)
        outcome = _answer(asked, source, make_references(), options, progress)
    made = _make_record(path, source, found, outcome, chosen, options.device)
    progress(f"{path.name}: judged in {time.monotonic() - started:.1f} s")
    return msgspec.structs.replace(made, duration_s=round(time.monotonic() - started, 3))


def _answer(
    asked: foreign_runs.Asked,
    source: checkpoint.Checkpoint,
    references: grounds.References,
    options: GateOptions,
    progress: gate.Progress,
) -> _Outcome:
    """Plan, ask the reference, and let the graph answer."""
    prepared = foreign_runs.prepare(asked, source, references, options)
    planned = prepared.make_plan()
    for line in planned.lines():
        progress(line)
    gauge = meter.Meter(progress, planned.seconds)
    (part,) = planned.graphs
    if not part.kept:
        needed = plan.say_seconds(part.lowest_s)
        nothing = answering.Answered.nothing(f"no room in the budget: probes and laws alone take about {needed}")
        return _Outcome(nothing, grounds.Ground.nothing(), part)
    asking = grounds.Asking(references, prepared.paces, journal.Journal(None, is_resumed=False), gauge)
    ground = asking.lay(planned.cases, prepared.noise_cases)
    if foreign_runs.gives_unit_vectors(asked, part.kept):
        ground = foreign_runs.of_unit_length(ground)
    expected = answering.Expected(ground.answers, ground.noise)
    seconds = functools.partial(prepared.seconds_of_run, asked.graph)
    answered = answering.answer_runs(asked, part.kept, expected, gauge, seconds)
    progress(gauge.summary(planned.seconds))
    return _Outcome(answered, ground, part)


def _make_record(
    path: Path,
    source: checkpoint.Checkpoint,
    found: foreign_checks.Found,
    outcome: _Outcome,
    chosen: bars.Bar,
    device: devices.Device,
) -> record.Record:
    kind, ground, answered = source.head.kind, outcome.ground, outcome.answered
    evidence = judge.Evidence.from_differences(kind, answered.differences, len(outcome.kept), ground.noise)
    results = [judge.judge(evidence, bar) for bar in verdict.bars_to_state(chosen, device.kind)]
    made = [check for check in answered.checks if chosen is not bars.REDUCED or check.name not in LAWS_OF_FP32]
    checks = (*found.checks, *made, _parity_check(results[0], evidence))
    apart = "; no FP32 graph of this file was verified, so its rounding counts too" if chosen is bars.REDUCED else ""
    return record.Record(
        schema_version=record.SCHEMA_VERSION,
        verdict=verdict.decide_verdict(checks, results[0]),
        cause=verdict.name_cause(checks),
        graph_id=foreign.graph_id_of(path),
        graph_sha256=digests.sha256_of_file(path) if path.is_file() else "",
        manifest_sha256="",
        checkpoint_sha256=digests.digest_of_listing(source.listing()),
        reference=f"{ground.description}{apart}",
        reference_noise=ground.noise,
        engine=answered.engine,
        corpus_sha256=runs.digest_of_runs(outcome.kept),
        planned=len(outcome.kept),
        compared=len(answered.differences),
        bar=chosen.name,
        bars=tuple(results),
        checks=checks,
        form=kind,
        estimate=outcome.planned.estimate if outcome.planned else record.Estimate(0.0, 0, 0, 0),
        runs=tuple(evidence.runs),
        statistics=judge.count_ties(evidence, chosen),
        worst=judge.worst_inputs(answered.differences),
        tools={name: importlib.metadata.version(name) for name in gate.TOOLS},
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        duration_s=0.0,
        precision=found.precision or "unknown",
    )


def _parity_check(result: record.BarResult, evidence: judge.Evidence) -> record.Check:
    """State what the deciding bar says, with the figures that it may not bound."""
    found = verdict.parity_check(result)
    return msgspec.structs.replace(found, detail=f"{found.detail}{say_figures(evidence)}")


def write_record(folder: Path, found: record.Record, device: devices.Device) -> None:
    """Write a record into a folder of the caller's, under the name that a bundle would give it.

    Raises:
        VerificationError: it cannot be written there.
    """
    path = folder / Path(record.record_file(found.graph_id, str(device))).name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = path.with_suffix(".partial")
        staging.write_bytes(record.encode_record(found))
        staging.replace(path)
    except OSError as cause:
        raise errors.VerificationError(
            f"a folder that cannot be written ({cause.strerror})",
            expected="a place for the record",
            where=str(path),
            fix="Name another folder with --out.",
        ) from cause


def say_figures(evidence: judge.Evidence) -> str:
    """Say how far apart the two are, whatever a bar bounds."""
    if not evidence.runs:
        return ""
    if evidence.kind == "embedding":
        cosines = [run.cosine for run in evidence.runs]
        return f" (cosine {min(cosines):.7f} at least, {float(np.median(cosines)):.7f} in the middle)"
    figures = [run.max_abs_probability for run in evidence.runs]
    agreed = sum(run.agrees for run in evidence.runs)
    middle = float(np.median(figures))
    return f" (|Δp| {max(figures):.3g} at most, {middle:.3g} in the middle; {agreed} of {len(figures)} decide alike)"
