"""What a 16-bit copy must show beside its answers: a proven FP32 graph, and that it is faster."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import onnx_ir as ir
import pytest

from vela.export import verification
from vela.graphs import attestation, contract, errors, record, verdicts
from vela.graphs import bundle as bundles
from vela.serve import device as devices
from vela.serve import engine
from vela.verify import answering, bars, checkpoint, copies, rejudge
from vela.verify.cases import Case
from vela.verify.options import GateOptions
from vela.verify.report import reading
from vela.verify.runs import Run

SAMPLE = "tiny-intent"
COPY, EXACT = "portable-fp16-b1-s16", "portable-b1-s16"


class Clock:
    """Time that passes only while a session runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed:
    """A session whose runs take what is said."""

    def __init__(self, graph, clock: Clock, durations: Iterator[float]) -> None:
        self.graph = graph
        self._clock = clock
        self._durations = durations
        self.runs = 0

    def run(self, inputs):
        assert inputs[contract.INPUT_IDS].shape == (1, self.graph.sequence)
        self.runs += 1
        self._clock.now += next(self._durations)


def always(seconds: float) -> Iterator[float]:
    while True:
        yield seconds


@pytest.fixture
def asked(copies_bundle):
    source = checkpoint.Checkpoint.read(copies_bundle.folder)
    return answering.Asked(
        copies_bundle, copies_bundle.graph(COPY), source.head, devices.CPU, engine.SessionOptions(threads=1)
    )


@pytest.fixture
def copies_bundle(request, tmp_path) -> bundles.Bundle:
    made = request.getfixturevalue("copies")
    return bundles.Bundle.open(Path(shutil.copytree(made.folder, tmp_path / SAMPLE)))


RUNS = [Run(Case(f"c{tokens}", tuple(range(5, 5 + tokens)), "", 0, ())) for tokens in (4, 12, 7)]


@pytest.mark.parametrize(
    ("seconds", "ratio", "status"), [(0.0048, 0.4, "passed"), (0.01152, 0.96, "failed"), (0.024, 2.0, "failed")]
)
def test_a_copy_must_be_faster_by_more_than_noise(asked, monkeypatch, seconds, ratio, status) -> None:
    clock, exact = Clock(), replace(asked, graph=asked.opened.graph(EXACT))
    sessions = {COPY: Timed(asked.graph, clock, always(seconds)), EXACT: Timed(exact.graph, clock, always(0.012))}
    monkeypatch.setattr(answering.Asked, "open", lambda self, options=None: sessions[self.graph.id])

    check, speed = copies.check_speed(asked, exact, RUNS, clock)

    assert (check.name, check.status) == ("engine.faster", status)
    assert speed is not None
    assert speed.ratio == pytest.approx(ratio)
    assert (speed.tokens, speed.exact_seconds) == (16, pytest.approx(0.012))
    assert f"{ratio:.3f} of the FP32 graph's time" in check.detail
    assert sessions[EXACT].runs == 4 + 9 * 4


def test_slow_rounds_of_the_machine_meet_both(asked) -> None:
    clock = Clock()
    # every other run of either takes ten times as long; within a round the median and between rounds the ratio hold
    noisy = [Timed(asked.graph, clock, _noisy(seconds)) for seconds in (0.005, 0.01)]

    found = copies.time_alternately(*noisy, RUNS[0], 0, clock)

    assert found.ratio == pytest.approx(0.5, rel=0.1)


def _noisy(seconds: float) -> Iterator[float]:
    rng = np.random.default_rng(3)
    while True:
        yield seconds * (10 if rng.random() < 0.2 else 1)


def test_a_copy_that_cannot_be_timed_gains_nothing(asked, monkeypatch) -> None:
    def refuse(self, options=None):
        raise errors.EngineError("no memory", expected="room", where="cuda:0", fix="Free some.")

    monkeypatch.setattr(answering.Asked, "open", refuse)

    check, speed = copies.check_speed(asked, asked, RUNS)

    assert (check.status, speed) == ("not_run", None)
    assert "no memory" in check.detail


@pytest.fixture
def judge(checkpoints, copies_bundle):
    """Judge some graphs of the bundle, or those that its device is asked about."""

    def run(*graph_ids: str, is_fail_fast: bool = False) -> list[record.Record]:
        options = GateOptions(max_tokens=64, graph_ids=graph_ids, is_fail_fast=is_fail_fast)
        return verification.verify_folder(copies_bundle.folder, checkpoints[SAMPLE], options, lambda _: None)

    return run


def statuses(found: record.Record) -> dict[str, str]:
    return {check.name: check.status for check in found.checks}


def test_a_copy_is_judged_by_the_reduced_bar_after_its_fp32_graph(judge, monkeypatch) -> None:
    monkeypatch.setattr(copies, "LEAST_GAIN", -100.0)  # here, where no kernel computes in 16 bits, it is slower

    exact, reduced = judge(EXACT, COPY)

    assert (exact.verdict, exact.bar, exact.precision, exact.speed) == ("passed", "strict", "fp32", None)
    assert (reduced.verdict, reduced.bar, reduced.precision) == ("passed", "reduced", "fp16")
    assert reduced.speed is not None
    assert statuses(reduced)["exact.verified"] == statuses(reduced)["graph.reduction"] == "passed"
    assert "engine.rewrites" not in statuses(reduced)
    assert statuses(reduced)["laws.poison"] == "passed", "what a mask hides changes no bit of a copy either"
    assert 1e-4 < max(group.max_abs_logit for group in reduced.statistics) < 0.1
    assert [result.bar for result in reduced.bars] == ["reduced"]
    again = rejudge.rejudge_record(reduced, "auto")
    assert (again.verdict, again.bar) == ("passed", "reduced")
    assert msgspec.json.decode(record.encode_record(reduced), type=record.Record) == reduced


def test_a_copy_that_gains_nothing_fails_and_says_by_how_much(judge, monkeypatch) -> None:
    monkeypatch.setattr(copies, "LEAST_GAIN", 1.0)

    _, found = judge(EXACT, COPY)

    assert (found.verdict, found.named) == ("failed", "no gain")
    assert "of the FP32 graph's time" in found.cause


def test_a_copy_without_a_verdict_on_its_fp32_graph_is_not_compared(judge, monkeypatch) -> None:
    monkeypatch.setattr(copies, "LEAST_GAIN", -100.0)

    (found,) = judge(COPY)

    assert found.verdict == "not_compared"
    assert statuses(found)["exact.verified"] == "not_run"
    assert EXACT in found.cause


@pytest.mark.parametrize("change", [{"verdict": "failed"}, {"version": "1.0"}])
def test_a_verdict_that_is_no_pass_on_this_engine_proves_no_copy(judge, copies_bundle, asked, change) -> None:
    (found,) = judge(EXACT)
    made_on = found.engine
    if "version" in change:
        found = msgspec.structs.replace(found, engine=msgspec.structs.replace(made_on, **change))
    else:
        found = msgspec.structs.replace(found, **change)
    (copies_bundle.folder / record.record_file(EXACT, "cpu")).write_bytes(record.encode_record(found))

    check = copies.check_exact(replace(asked, graph=asked.opened.graph(EXACT)), made_on)

    assert check.status == "not_run"


@pytest.mark.parametrize("is_fail_fast", [False, True])
def test_another_computation_that_says_it_is_a_copy_fails_and_is_not_laid_to_its_type(
    judge, copies_bundle, is_fail_fast
) -> None:
    model = ir.load(copies_bundle.path(f"{COPY}.onnx"))
    softmax = next(node for node in model.graph if node.op_type == "Softmax")
    added = ir.node("Neg", [softmax.inputs[0]])
    model.graph.insert_before(softmax, added)
    softmax.replace_input_with(0, added.outputs[0])
    path = copies_bundle.path(f"{COPY}.onnx")
    path.write_bytes(ir.to_proto(model).SerializeToString())

    (found,) = judge(COPY, is_fail_fast=is_fail_fast)

    assert found.verdict == "failed"
    assert {"graph.digest", "graph.reduction"} <= {
        name for name, status in statuses(found).items() if status == "failed"
    }
    assert found.named == "other computation"
    assert "arithmetic" not in found.cause


def test_a_copy_of_other_numbers_is_laid_to_its_type(judge, monkeypatch) -> None:
    monkeypatch.setattr(bars, "REDUCED", replace(bars.REDUCED, logit_floor=1e-6))

    _, found = judge(EXACT, COPY)

    assert (found.verdict, found.named) == ("failed", "precision")
    assert "precision: the FP32 graph in fp16 arithmetic, and nothing else" in found.cause


def test_a_copy_that_fails_on_the_cpu_takes_no_golden_answers_back(judge, copies_bundle, monkeypatch) -> None:
    monkeypatch.setattr(copies, "LEAST_GAIN", 1.0)
    judge()

    _, found = judge(EXACT, COPY)

    assert found.verdict == "failed"
    assert (copies_bundle.folder / contract.GOLDEN_FILE).is_file()
    stated = json.loads(attestation.write(copies_bundle).read_bytes())["predicate"]
    assert stated["warnedTests"] == [f"{COPY} reduced failed"]
    assert len(stated["passedTests"]) == len(copies_bundle.exact_graphs())


def test_the_cpu_is_asked_about_fp32_graphs_alone_and_publishing_about_no_others(judge, copies_bundle) -> None:
    ids = [graph.id for graph in copies_bundle.exact_graphs()]
    records = judge()

    assert [found.graph_id for found in records] == ids
    assert (copies_bundle.folder / contract.GOLDEN_FILE).is_file()
    verdicts.check_publishable(copies_bundle, verdicts.read_all_evidence(copies_bundle))
    assert reading.Collected.from_bundle(copies_bundle.folder).unjudged == ()


def test_a_copy_of_nothing_says_so(copies_bundle) -> None:
    graph = copies_bundle.graph(COPY)
    alone = msgspec.structs.replace(graph, outputs=(contract.TensorSpec("other", "float32", (1, 3)),))

    with pytest.raises(errors.ManifestInvalid, match="no FP32 graph"):
        copies_bundle.exact_of(alone)
    assert copies_bundle.exact_of(graph).id == EXACT
    assert bars.choose_bar("auto", "cuda", "bf16") is bars.REDUCED
