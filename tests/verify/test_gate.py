"""The gate as a whole: a budget, an interruption, another bar for stored evidence, and what never becomes a pass."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from vela.export import verification
from vela.graphs import bundle, errors, record, verdicts
from vela.serve import engine
from vela.verify import cases, checkpoint, gate, ground, plan, reference, rejudge, verdict
from vela.verify.options import GateOptions

SAMPLE = "tiny-intent"
GRAPHS = ("model", "portable-b1-s64")
OPTIONS = GateOptions(max_tokens=64, graph_ids=GRAPHS)


class Counting:
    """The reference, and how many rows it was asked."""

    def __init__(self, inner: reference.Reference) -> None:
        self._inner = inner
        self.facts = inner.facts
        self.rows = 0

    def answer(self, rows: list[tuple[int, ...]]) -> list[reference.Answer]:
        self.rows += len(rows)
        return self._inner.answer(rows)


@pytest.fixture(scope="module")
def references(checkpoints: dict[str, Path]) -> ground.References:
    return verification.make_references(checkpoint.Checkpoint.read(checkpoints[SAMPLE]))


@pytest.fixture
def run(checkpoints: dict[str, Path], references: ground.References) -> Callable[..., list[record.Record]]:
    """Judge a folder, with the loaded reference or another, and a progress that may interrupt."""

    def judge(
        folder: Path,
        options: GateOptions = OPTIONS,
        progress: Callable[[str], None] = lambda _: None,
        asked: ground.References | None = None,
    ) -> list[record.Record]:
        source = checkpoint.Checkpoint.read(checkpoints[SAMPLE])
        return gate.verify_bundle(bundle.Bundle.open(folder), source, lambda: asked or references, options, progress)

    return judge


@dataclass(frozen=True)
class Passed:
    """A bundle that passed, and what it said; read only."""

    folder: Path
    records: list[record.Record]
    said: list[str]


@pytest.fixture(scope="module")
def passed(tmp_path_factory, bundles, checkpoints, references) -> Passed:
    folder = Path(shutil.copytree(bundles[SAMPLE], tmp_path_factory.mktemp("passed") / SAMPLE))
    source, said = checkpoint.Checkpoint.read(checkpoints[SAMPLE]), list[str]()
    records = gate.verify_bundle(bundle.Bundle.open(folder), source, lambda: references, OPTIONS, said.append)
    return Passed(folder, records, said)


def statuses(found: record.Record) -> dict[str, str]:
    return {check.name: check.status for check in found.checks}


def test_a_pass_has_made_every_check_and_kept_every_figure(passed) -> None:
    dynamic, fixed = passed.records

    for found in (dynamic, fixed):
        assert found.verdict == "passed", found.cause
        assert len(found.runs) == found.planned == found.estimate.kept == found.estimate.whole
        assert found.estimate.seconds > 0
        assert {"laws.poison", "engine.repeatable", "engine.rewrites", "engine.processes"} <= statuses(found).keys()
        assert sum(sum(group.decades) for group in found.statistics) == sum(group.values for group in found.statistics)
    assert {run.padding_class for run in dynamic.runs} >= {"none", "some"}


def test_the_plan_is_said_before_anything_runs_and_the_time_after(passed) -> None:
    said = passed.said

    planned = next(index for index, line in enumerate(said) if line.startswith("plan: "))
    assert "on 2 graphs in about" in said[planned]
    assert {line.split(":")[0].strip() for line in said[planned + 1 : planned + 3]} == set(GRAPHS)
    assert any(line.startswith("the plan said") and line.endswith("in forwards") for line in said[planned:])


def test_an_interrupted_run_repeats_no_finished_part(copied, run, references) -> None:
    folder = copied[SAMPLE]
    first, second = Counting(references.exact), Counting(references.exact)

    stop = pytest.MonkeyPatch()
    written: list[str] = []
    original = verdict.write_record

    def write_then_stop(opened, found, device) -> None:
        original(opened, found, device)
        written.append(found.graph_id)
        raise KeyboardInterrupt

    stop.setattr(verdict, "write_record", write_then_stop)
    with pytest.raises(KeyboardInterrupt):
        run(folder, asked=ground.References(first, references.wide))
    stop.undo()
    before = (folder / record.record_file("model", "cpu")).read_bytes()
    said: list[str] = []

    records = run(folder, progress=said.append, asked=ground.References(second, references.wide))

    assert written == ["model"]
    assert "resumed: 1 of 2 graphs were judged before the interruption" in said
    assert (folder / record.record_file("model", "cpu")).read_bytes() == before
    assert [found.verdict for found in records] == ["passed", "passed"]
    assert first.rows > 100
    assert second.rows < 30  # timing only
    assert not list(folder.parent.glob(".*partial"))


def test_an_interrupted_run_starts_anew_where_a_file_changed_since(copied, run) -> None:
    folder = copied[SAMPLE]
    original = verdict.write_record

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdict, "write_record", stop)
        with pytest.raises(KeyboardInterrupt):
            run(folder)
    path = folder / "portable-b1-s64.onnx"
    path.write_bytes(path.read_bytes() + b"\x00")
    said: list[str] = []

    records = run(folder, progress=said.append)

    assert verdict.write_record is original
    assert not any(line.startswith("resumed") for line in said)
    assert records[1].verdict == "failed"


def test_a_budget_leaves_probes_and_laws_and_still_passes(copied, passed, run, monkeypatch) -> None:
    real = plan.make_plan

    def tight(planned, durations, budget_s) -> plan.Plan:
        return real(planned, durations, 0.93 * real(planned, durations, None).seconds)

    monkeypatch.setattr(plan, "make_plan", tight)

    one_thread = engine.SessionOptions(threads=1)  # no race: what is repeated for its sake is no part of the corpus
    options = GateOptions(max_tokens=64, graph_ids=GRAPHS, budget_s=999.0, session=one_thread)

    records = run(copied[SAMPLE], options)

    assert [found.verdict for found in records] == ["passed", "passed"]
    for found, full in zip(records, passed.records, strict=True):
        assert found.estimate.minimum <= found.planned < full.planned
        assert found.estimate.whole == full.planned


def test_a_graph_for_which_a_budget_has_no_room_is_not_compared(copied, run, tmp_path) -> None:
    records = run(copied[SAMPLE], GateOptions(max_tokens=64, graph_ids=GRAPHS, budget_s=1e-6))

    assert [found.verdict for found in records] == ["not_compared", "not_compared"]
    assert all("no room in the budget" in found.cause for found in records)
    assert all(found.compared == 0 for found in records)
    with pytest.raises(errors.NothingCompared):
        verdict.require_passed(records)


def test_fewer_runs_than_the_least_are_no_proof(passed) -> None:
    found = passed.records[0]
    short = record.msgspec.structs.replace(
        found, planned=3, compared=3, runs=found.runs[:3], estimate=record.Estimate(1.0, 3, 500, 40)
    )
    opened = bundle.Bundle.open(passed.folder)

    with pytest.raises(errors.NotVerified, match="40 are the least"):
        verdicts.check_agreement(opened, verdicts.Evidence(opened.folder, "r.json", "0" * 64, short))


def test_stored_evidence_is_judged_as_the_run_was(copied, passed, run) -> None:
    fresh = run(copied[SAMPLE], GateOptions(max_tokens=64, graph_ids=GRAPHS, bar="upstream"))

    again = rejudge.rejudge_bundle(bundle.Bundle.open(passed.folder), "upstream", "cpu", GRAPHS)

    for found, expected in zip(again, fresh, strict=True):
        assert (found.verdict, found.bar, found.bars) == (expected.verdict, "cpu", expected.bars)
        assert [check.name for check in found.checks] == [check.name for check in expected.checks]
    stored = json.loads((passed.folder / record.record_file("model", "cpu")).read_bytes())
    assert stored["bar"] == "strict"  # nothing was written


def test_evidence_beyond_a_bar_fails_when_it_is_judged_again(passed) -> None:
    found = passed.records[0]
    runs = (record.msgspec.structs.replace(found.runs[0], max_abs_probability=7e-4), *found.runs[1:])
    moved = record.msgspec.structs.replace(found, runs=runs)

    assert rejudge.rejudge_record(moved, "upstream").verdict == "passed"
    assert rejudge.rejudge_record(moved, "strict").verdict == "failed"
    assert (
        "7e-04" in rejudge.rejudge_record(moved, "strict").cause
        or "0.0007" in rejudge.rejudge_record(moved, "strict").cause
    )


def test_a_check_that_failed_stays_failed_under_any_bar(passed) -> None:
    found = passed.records[0]
    checks = (record.Check("weights.identity", "failed", "41 tensors", 0.0), *found.checks[1:])
    failed = record.msgspec.structs.replace(found, verdict="failed", checks=checks)

    assert rejudge.rejudge_record(failed, "upstream").verdict == "failed"


def test_nothing_stored_is_nothing_compared(bundles, tmp_path, copied) -> None:
    opened = bundle.Bundle.open(copied[SAMPLE])
    for path in (opened.folder / "verification").glob("model.*"):
        path.unlink()

    with pytest.raises(errors.NothingCompared, match="no record of model on cpu"):
        rejudge.rejudge_bundle(opened, "upstream", "cpu")


class Broken:
    """A reference that answers nan."""

    def __init__(self, inner: reference.Reference) -> None:
        self._inner, self.facts = inner, inner.facts

    def answer(self, rows: list[tuple[int, ...]]) -> list[reference.Answer]:
        return [{name: value * np.nan for name, value in found.items()} for found in self._inner.answer(rows)]


def test_a_reference_that_answers_nan_is_never_a_pass(copied, run, references) -> None:
    broken = ground.References(Broken(references.exact), references.wide)

    records = run(copied[SAMPLE], asked=broken)

    assert {found.verdict for found in records} == {"failed"}


def test_an_empty_corpus_of_a_user_is_nothing_compared(copied, run, tmp_path) -> None:
    empty = tmp_path / "mine.jsonl"
    empty.write_text("\n\n")

    with pytest.raises(errors.NothingCompared, match=r"mine\.jsonl"):
        run(copied[SAMPLE], GateOptions(max_tokens=64, graph_ids=GRAPHS, corpus=empty))


def test_cases_of_one_length_are_asked_together_and_each_once() -> None:
    made = [cases.Case(str(index), (1,) * (2 + index % 3), "", 0, ()) for index in range(40)]

    groups = ground.group_by_length(made)

    assert sorted(case.id for group in groups for case in group) == sorted(case.id for case in made)
    assert all(len({case.tokens for case in group}) == 1 for group in groups)
    assert max(map(len, groups)) == ground.ROWS_AT_ONCE


class Crowd:
    """A reference that takes as long for a batch as a list says, by its rows."""

    def __init__(self, seconds: dict[int, float], clock: list[float]) -> None:
        self._seconds, self._clock = seconds, clock

    def answer(self, asked: list[tuple[int, ...]]) -> list[reference.Answer]:
        self._clock[0] += self._seconds[len(asked)]
        return []


@pytest.mark.parametrize(
    ("batch_s", "expected"), [(8.0, {5: 1.0, 9: 1.0}), (1.0, {5: 1 / 8, 9: 1 / 2}), (20.0, {5: 1.0, 9: 1.0})]
)
def test_rows_of_one_length_cost_what_they_cost_together(monkeypatch, batch_s, expected) -> None:
    clock = [0.0]
    monkeypatch.setattr(ground.time, "perf_counter", lambda: clock[0])
    crowd = Crowd({1: 1.0, 8: batch_s}, clock)
    lengths = [5] * 8 + [9] * 2 + [11]
    made = [cases.Case(str(index), (1,) * tokens, "", 0, ()) for index, tokens in enumerate(lengths)]

    assert ground.time_together(ground.References(crowd, crowd), made) == pytest.approx(expected)
