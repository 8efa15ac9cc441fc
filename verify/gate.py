"""The gate: does each graph of a bundle, on this engine, answer like this checkpoint?

Cheapest checks first: the bundle's files and facts, each graph's static checks, then its answers through serve's own
engine against the reference on identical token ids. One record for each graph and engine; a record says `passed`
only if every check ran and passed. Nothing here knows torch.
"""

import datetime
import importlib.metadata
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from vela.graphs import bundle, digests, errors, manifest, record
from vela.serve import device as devices
from vela.serve import engine, tokenization
from vela.verify import answering, bars, cases, checkpoint, judge, reference, rows, static_checks

Progress = Callable[[str], None]
# Longest case by default: 2,048 tokens cross every window of the family many times, and cost 15 s a run on 2 cores
# for a 307M model; fixed graphs are always judged up to their own length.
DEFAULT_MAX_TOKENS = 2048
NOISE_CASES = 24
# Which failed check names the cause best, where several failed; others follow in the order in which they ran.
TELLING = (
    *("graph.rotary", "weights.identity", "sources.identity", "manifest.facts"),
    *("graph.contract", "graph.types", "graph.lint"),
)
TOOLS = ("vela-onnx", "numpy", "onnx", "onnx-ir", "tokenizers")


@dataclass(frozen=True, slots=True)
class GateOptions:
    """How to judge.

    Attributes:
        device: Where graphs run.
        bar: Name of the deciding bar.
        max_tokens: Longest case on dynamic graphs.
        corpus: A user's texts, judged as well.
        session: Threads and optimisation.
        graph_ids: Graphs to judge; all where empty.
        is_fail_fast: Skip inference on a graph whose static checks failed.
    """

    device: devices.Device = devices.CPU
    bar: str = "strict"
    max_tokens: int = DEFAULT_MAX_TOKENS
    corpus: Path | None = None
    session: engine.SessionOptions = field(default_factory=engine.SessionOptions)
    graph_ids: tuple[str, ...] = ()
    is_fail_fast: bool = False


@dataclass(frozen=True, slots=True)
class References:
    """The checkpoint's own answers.

    Attributes:
        exact: FP32, what graphs are judged against.
        wide: The same in FP64, from which the FP32 noise is measured.
    """

    exact: reference.Reference
    wide: reference.Reference


@dataclass(frozen=True, slots=True)
class _Ground:
    """What graphs of a bundle are judged on: cases, the reference's answers and its noise."""

    cases: Sequence[cases.Case]
    answers: Mapping[str, reference.Answer]
    noise: float
    description: str

    @classmethod
    def nothing(cls) -> Self:
        """Say that no graph got as far as inference, so the reference was not asked."""
        return cls((), {}, 0.0, "not asked: static checks failed first")


@dataclass(frozen=True, slots=True)
class _Subject:
    """A bundle under judgement."""

    opened: bundle.Bundle
    source: checkpoint.Checkpoint
    checkpoint_sha256: str
    options: GateOptions


def verify_bundle(
    opened: bundle.Bundle,
    source: checkpoint.Checkpoint,
    make_references: Callable[[], References],
    options: GateOptions,
    progress: Progress,
) -> list[record.Record]:
    """Judge every graph of a bundle.

    Args:
        opened: The bundle; its files need not be trustworthy.
        source: The reference checkpoint, named apart from the bundle.
        make_references: Loads the reference; not called where no graph gets as far as inference.
        options: How to judge.
        progress: Told what is being done.

    Returns:
        One record for each graph, in the manifest's order. They are also written into the bundle.

    Raises:
        VelaError: nothing could be judged at all.
    """
    started = time.monotonic()
    bars.choose_bar(options.bar, options.device.kind)
    name = opened.manifest.model.name
    subject = _Subject(opened, source, digests.digest_of_listing(source.listing()), options)
    graphs = _chosen_graphs(opened, options)
    progress(f"{name}: static checks of {len(graphs)} graphs")
    static = static_checks.StaticChecks.prepare(opened, source)
    shared = static.check_bundle()
    checks = {graph.id: (*shared, *static.check_graph(graph)) for graph in graphs}
    going_on = [graph for graph in graphs if not (options.is_fail_fast and _has_failed(checks[graph.id]))]
    ground = _prepare_ground(subject, going_on, make_references, progress) if going_on else _Ground.nothing()
    records = []
    for graph in graphs:
        progress(f"{name}: {graph.id}")
        found = _judge_graph(subject, ground, graph, checks[graph.id], is_skipped=graph not in going_on)
        _write_record(opened, found, options.device)
        records.append(found)
    progress(f"{name}: judged {len(records)} graphs in {time.monotonic() - started:.1f} s")
    return records


def _chosen_graphs(opened: bundle.Bundle, options: GateOptions) -> list[manifest.Graph]:
    if options.graph_ids:
        return [opened.graph(graph_id) for graph_id in options.graph_ids]
    return list(opened.manifest.graphs)


def _has_failed(checks: Sequence[record.Check]) -> bool:
    return any(check.status == "failed" for check in checks)


def _prepare_ground(
    subject: _Subject,
    graphs: Sequence[manifest.Graph],
    make_references: Callable[[], References],
    progress: Progress,
) -> _Ground:
    """Make cases with the reference checkpoint's own tokenizer and head, and let the reference answer them."""
    source, options = subject.source, subject.options
    pad_id = int(source.config["pad_token_id"])
    tokenizer = tokenization.Tokenizer.from_file(source.folder / "tokenizer.json", pad_id=pad_id)
    longest = max(graph.sequence or options.max_tokens for graph in graphs)
    made = cases.make_cases(
        source.head,
        tokenizer,
        rows.read_corpus(options.corpus),
        source.architecture.half_window,
        min(longest, source.head.max_tokens),
    )
    references = make_references()
    progress(f"{subject.opened.manifest.model.name}: reference answers {len(made)} cases")
    answers = references.exact.answer([case.ids for case in made])
    by_id = {case.id: answer for case, answer in zip(made, answers, strict=True)}
    probes = cases.pick_probes([case for case in made if case.tokens <= options.max_tokens], NOISE_CASES)
    wide = references.wide.answer([case.ids for case in probes])
    noise = answering.noise_of([by_id[case.id] for case in probes], wide)
    return _Ground(made, by_id, noise, references.exact.facts.description)


def _judge_graph(
    subject: _Subject, ground: _Ground, graph: manifest.Graph, static: Sequence[record.Check], *, is_skipped: bool
) -> record.Record:
    started = time.monotonic()
    opened, source, options = subject.opened, subject.source, subject.options
    fitting = [case for case in ground.cases if graph.sequence or case.tokens <= options.max_tokens]
    answered, runs = answering.Answered.nothing(), []
    if not is_skipped:
        half_window = source.architecture.half_window
        runs = cases.plan_runs(graph, opened.manifest.graphs, fitting, half_window, source.max_positions)
        answered = answering.answer_runs(
            opened, graph, source.head, runs, ground.answers, options.device, options.session
        )
    evidence = judge.Evidence.from_differences(source.head.kind, answered.differences, len(runs), ground.noise)
    chosen = bars.choose_bar(options.bar, options.device.kind)
    results = [judge.judge(evidence, bar) for bar in _bars_to_state(chosen, options.device.kind)]
    checks = (*static, *answered.checks, _parity_check(results[0]))
    return record.Record(
        schema_version=record.SCHEMA_VERSION,
        verdict=_verdict(checks, results[0]),
        cause=_cause(checks),
        graph_id=graph.id,
        graph_sha256=_digest_now(opened, graph.file),
        manifest_sha256=opened.manifest_sha256,
        checkpoint_sha256=subject.checkpoint_sha256,
        reference=ground.description,
        reference_noise=ground.noise,
        engine=answered.engine,
        corpus_sha256=cases.digest_of_runs(runs),
        planned=len(runs),
        compared=len(answered.differences),
        bar=chosen.name,
        bars=tuple(results),
        checks=checks,
        form=evidence.kind,
        estimate=record.Estimate(0.0, len(runs), len(runs), 0),
        runs=tuple(evidence.runs),
        statistics=judge.count_ties(evidence, chosen),
        worst=judge.worst_inputs(answered.differences),
        tools={name: importlib.metadata.version(name) for name in TOOLS},
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - started, 3),
    )


def _bars_to_state(chosen: bars.Bar, device_kind: str) -> list[bars.Bar]:
    """The deciding bar first, then upstream's, so that every record can be compared with theirs."""
    upstream = bars.choose_bar("upstream", device_kind)
    return [chosen] if upstream == chosen else [chosen, upstream]


def _parity_check(result: record.BarResult) -> record.Check:
    status: record.CheckStatus = "failed" if result.verdict == "failed" else "passed"
    if result.verdict == "not_compared":
        status = "not_run"
    return record.Check(f"parity.{result.bar}", status, "; ".join(result.reasons) or "within every bound", 0.0)


def _verdict(checks: Sequence[record.Check], deciding: record.BarResult) -> record.Verdict:
    if any(check.status == "failed" for check in checks):
        return "failed"
    if deciding.verdict != "passed" or any(check.status != "passed" for check in checks):
        return "not_compared"
    return "passed"


def _cause(checks: Sequence[record.Check]) -> str:
    """Name the most telling check that did not pass: what differs before that something differs."""
    open_checks = [check for check in checks if check.status != "passed"]
    telling = {name: position for position, name in enumerate(TELLING)}
    first = min(open_checks, key=lambda check: telling.get(check.name, len(telling)), default=None)
    return "" if first is None else f"{first.name}: {first.detail}"


def _digest_now(opened: bundle.Bundle, file: str) -> str:
    path = opened.path(file)
    return digests.sha256_of_file(path) if path.is_file() else ""


def _write_record(opened: bundle.Bundle, found: record.Record, device: devices.Device) -> None:
    """Replace the graph's record for this device; a failed run never leaves an older pass behind."""
    path = opened.folder / record.record_file(found.graph_id, str(device))
    path.parent.mkdir(exist_ok=True)
    staging = path.with_suffix(".partial")
    staging.write_bytes(record.encode_record(found))
    staging.replace(path)


def require_passed(records: Sequence[record.Record]) -> None:
    """Refuse unless every record passed.

    Raises:
        NothingCompared: there is no record, or one could not be compared.
        VerificationFailed: one failed; the first cause is the message.
    """
    failed = [found for found in records if found.verdict == "failed"]
    pending = [found for found in records if found.verdict == "not_compared"]
    if failed:
        raise errors.VerificationFailed(
            failed[0].cause,
            expected=f"{len(records)} graphs that answer like their checkpoint",
            where=f"{failed[0].graph_id} ({len(failed)} of {len(records)} graphs failed)",
            fix="Read the record in verification/ for figures and inputs; do not publish this bundle.",
        )
    if pending or not records:
        raise errors.NothingCompared(
            pending[0].cause if pending else "no graph",
            expected="every graph compared",
            where=pending[0].graph_id if pending else "bundle",
            fix="A graph that was not compared is not verified: mend what stopped it and run again.",
        )
