"""The gate for one ONNX file that Vela did not write: does it, on this engine, answer like this checkpoint?

It is the gate of a bundle's graphs with other doors: the interface is read by content, weights are found by content,
and a graph whose weights were rounded is judged by the reduced bar. Beside such a file lies no FP32 graph that was
verified, so it is judged against the checkpoint itself, and the record says so. Nothing is written beside the file.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vela.graphs import digests, errors, record
from vela.serve import device as devices
from vela.verify import (
    answering,
    bars,
    checkpoint,
    engine_checks,
    explaining,
    foreign,
    foreign_checks,
    foreign_runs,
    fresh_process,
    gate,
    journal,
    meter,
    plan,
    recording,
    runs,
    schedule,
    scoring,
)
from vela.verify import ground as grounds
from vela.verify.options import GateOptions

# Laws that hold to the last bit, or to the noise of FP32, hold for no graph that rounds its activations: their steps
# follow the largest number of a batch, pads included. Such runs are compared with the reference all the same.
LAWS_OF_FP32 = frozenset({"laws.poison", "engine.rewrites"})
APART = "; no FP32 graph of this file was verified, so its rounding counts too"


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
    outcome = recording.Outcome.nothing("static checks failed first")
    if found.interface is not None and not is_over:
        pad_id = int(source.config["pad_token_id"])
        asked = foreign_runs.Asked(found.interface, source.head, pad_id, options.device, options.session)
        references = make_references()
        outcome = _answer(asked, source, references, options, progress, chosen)
        outcome = explaining.explain(outcome, asked, chosen)
        outcome = explaining.lay_to_rounding(outcome, found.precision)
        outcome = explaining.locate(outcome, asked, references, source.architecture, progress)
        outcome = explaining.eliminate(outcome, asked, found.checks)
    about = recording.About(
        graph_id=foreign.graph_id_of(path),
        graph_sha256=digests.sha256_of_file(path) if path.is_file() else "",
        manifest_sha256="",
        checkpoint_sha256=digests.digest_of_listing(source.listing()),
        kind=source.head.kind,
        precision=found.precision,
    )
    is_reduced = chosen is bars.REDUCED
    if is_reduced:
        outcome = replace(outcome, ground=replace(outcome.ground, description=f"{outcome.ground.description}{APART}"))
    took = time.monotonic() - started
    progress(f"{path.name}: judged in {took:.1f} s")
    left_out = LAWS_OF_FP32 if is_reduced else frozenset[str]()
    return recording.make_record(about, found.checks, outcome, chosen, options.device.kind, took, left_out=left_out)


def _answer(
    asked: foreign_runs.Asked,
    source: checkpoint.Checkpoint,
    references: grounds.References,
    options: GateOptions,
    progress: gate.Progress,
    chosen: bars.Bar,
) -> recording.Outcome:
    """Plan, ask the reference, and let the graph answer."""
    prepared = foreign_runs.prepare(asked, source, references, options)
    planned = prepared.make_plan()
    for line in planned.lines():
        progress(line)
    gauge = meter.Meter(progress, planned.seconds)
    (part,) = planned.graphs
    if not part.kept:
        needed = plan.say_seconds(part.lowest_s)
        return recording.Outcome.nothing(f"no room in the budget: probes and laws alone take about {needed}", part)
    asking = grounds.Asking(references, prepared.seconds_of_case, journal.Journal(None, is_resumed=False), gauge)
    ground = asking.lay(planned.cases, prepared.noise_cases, prepared.pool)
    if foreign_runs.gives_unit_vectors(asked, part.kept):
        ground = foreign_runs.of_unit_length(ground)
    if ground.mutants is not None:
        yardstick = scoring.Yardstick(ground.mutants, source.head, ground.answers, ground.noise, chosen)
        added = yardstick.separate(asked.graph, part.kept)
        fitting = foreign_runs.fit_shape(asked.graph, runs.Planned(added, ())).required
        part = replace(part, kept=(*part.kept, *fitting), whole=part.whole + len(fitting))
    expected = answering.Expected(
        ground.answers, ground.noise, _ask_fresh(asked, part, prepared, gauge), ground.watched
    )
    seconds = functools.partial(prepared.seconds_of_run, asked.graph)
    answered = answering.answer_runs(asked, part.kept, expected, gauge, seconds)
    gauge.did(f"{asked.graph.id} asked again", prepared.seconds_of_checks(asked.graph, part.kept))
    progress(gauge.summary())
    return recording.Outcome(answered, ground, part)


def _ask_fresh(
    asked: foreign_runs.Asked, part: plan.GraphPlan, prepared: schedule.Preparation, gauge: meter.Meter
) -> list[engine_checks.FreshAnswer]:
    """Ask fresh processes for one run."""
    interface, graph_id = asked.interface, asked.graph.id
    subject = fresh_process.Single(str(interface.path.resolve()), interface.entry, interface.presented, interface.roles)
    chosen = {graph_id: engine_checks.Chosen.from_plan(asked.graph, part.kept).nearest[0]}
    request = fresh_process.Request.about(subject, asked.pad_id, asked.device, asked.options, chosen)
    with gauge.forward():
        answers = fresh_process.ask_fresh(request, chosen, prepared.processes)
    gauge.did("fresh processes", prepared.seconds_of_fresh(asked.graph, part.kept))
    return answers[graph_id]


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
