"""Probes and golden answers of samples: chosen to separate mutants, written on a pass, enough to catch a fault."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from vela.export import verification
from vela.graphs import bundle as bundles
from vela.graphs import errors, golden, record
from vela.serve import device as devices
from vela.serve import engine, golden_check
from vela.serve.model import ServedModel
from vela.verify import cases, checkpoint, ground, mutants, probes, rows, runs, scoring
from vela.verify.options import GateOptions

SAMPLE = "tiny-intent"
LOAD_S = 1.0  # what golden answers may cost at load, on a sample of this size


@pytest.fixture(scope="module")
def measured(checkpoints) -> tuple[mutants.Mutants, dict]:
    """A sample's mutants with their answers to a pool, and the checkpoint's."""
    source = checkpoint.Checkpoint.read(checkpoints[SAMPLE])
    references = verification.make_references(source)
    made = ground.make_cases(source, rows.read_corpus(None), 160)
    pool = mutants.choose_pool([], made, source.architecture.half_window, 24)
    ids = [case.ids for case in pool.cases]
    names = [case.id for case in pool.cases]
    found = tuple(
        mutants.Measured(
            one.facts,
            {} if one.facts.equal_because else dict(zip(names, one.answer(ids, pads=pool.pads), strict=True)),
        )
        for one in references.mutants
    )
    answers = dict(zip(names, references.exact.answer(ids), strict=True))
    return mutants.Mutants(pool, found, references.mutants), answers


def strength(found: mutants.Mutants, answers: dict, chosen: list[cases.Case]) -> list[float]:
    """Give for each mutant the share of its largest effect on the pool that some cases reach."""
    shares = []
    for one in found.measured:
        if one.answers:
            effects = {key: probes.effect(one.answers[key], answers[key]) for key in one.answers}
            shares.append(max(effects[case.id] for case in chosen) / max(effects.values()))
    return shares


def test_few_probes_show_nearly_what_the_whole_pool_shows(measured) -> None:
    found, answers = measured

    chosen = probes.choose_probes(found, answers)

    assert probes.FEWEST <= len(chosen) <= golden.MOST_PROBES
    assert len({case.id for case in chosen}) == len(chosen)
    assert min(strength(found, answers, chosen)) > 0.9
    assert min(strength(found, answers, chosen[:1])) < 0.9


PLAN = runs.plan_runs


def eight_short(graph, graphs, made, *arguments) -> runs.Planned:
    """Plan eight short sentences, whatever the corpus is."""
    short = [case for case in made if 2 < case.tokens < 12][:8]
    return runs.Planned(PLAN(graph, graphs, short, *arguments).required, ())


def test_eight_short_sentences_leave_mutants_alive_and_block_the_pass(copied, checkpoints, monkeypatch) -> None:
    monkeypatch.setattr(runs, "plan_runs", eight_short)
    monkeypatch.setattr(scoring.Yardstick, "separate", lambda *_: ())
    options = GateOptions(max_tokens=64, graph_ids=("model",))

    (found,) = verification.verify_folder(copied[SAMPLE], checkpoints[SAMPLE], options, lambda _: None)

    fates = {mutant.statement: mutant.fate for mutant in found.mutants.mutants}
    assert {fate for statement, fate in fates.items() if "window" in statement} == {"alive"}
    assert found.verdict == "not_compared"
    assert found.cause.startswith("probes.mutants")
    assert "a half-window of 15 instead of 16" in found.cause


def test_probes_that_separate_are_added_where_eight_short_sentences_do_not(copied, checkpoints, monkeypatch) -> None:
    monkeypatch.setattr(runs, "plan_runs", eight_short)
    options = GateOptions(max_tokens=64, graph_ids=("model", "portable-b1-s64"))

    records = verification.verify_folder(copied[SAMPLE], checkpoints[SAMPLE], options, lambda _: None)

    for found in records:
        assert found.verdict == "passed", found.cause
        assert not found.mutants.of_fate("alive")
        assert max(run.tokens for run in found.runs) > 16  # a window further than any of the eight is long


def test_every_sample_has_its_killable_mutants_killed_and_the_others_listed_with_a_reason(bundles) -> None:
    for name, folder in bundles.items():
        for path in sorted((folder / "verification").glob("*.cpu.json")):
            stored = msgspec.json.decode(path.read_bytes(), type=record.Record)
            assert stored.mutants is not None, (name, path)
            assert not stored.mutants.of_fate("alive"), (name, path, stored.mutants.of_fate("alive"))
            assert len(stored.mutants.of_fate("killed")) >= 5
            assert all(mutant.reason for mutant in stored.mutants.mutants)


def test_a_pass_leaves_golden_answers_that_load_gives_within_a_second(bundles) -> None:
    for folder in bundles.values():
        opened = _opened(folder)
        expected = golden.read(opened)
        assert expected is not None
        assert len(expected.probes) <= golden.MOST_PROBES

        without = _load_s(opened, monkeyed=True)
        with_golden = _load_s(opened, monkeyed=False)

        assert with_golden - without < LOAD_S


@pytest.fixture
def stale(copied, swapped_thetas, export, tmp_path, reseal) -> Callable[[str], bundles.Bundle]:
    """Put a graph of another checkpoint of the same weights into the bundle, with digests that all agree."""
    folder, other = copied[SAMPLE], export(swapped_thetas, tmp_path / "stale")

    def put(name: str) -> bundles.Bundle:
        kept = golden.read(_opened(folder))
        shutil.copyfile(other / name, folder / name)
        theirs = json.loads((other / "manifest.json").read_bytes())
        reseal(folder, lambda content: _take_inline(content, theirs, name))
        manifest_sha256 = _opened(folder).manifest_sha256
        golden.write(_opened(folder), msgspec.structs.replace(kept, manifest_sha256=manifest_sha256))
        return _opened(folder)

    return put


def test_a_stale_graph_is_caught_at_load_however_consistent_its_digests(stale) -> None:
    with pytest.raises(errors.GoldenMismatch, match="model-unpadded on cpu"):
        ServedModel.open(stale("model-unpadded.onnx"), demand="nothing")


def test_a_stale_bucket_is_caught_and_its_neighbours_are_not(stale) -> None:
    opened = stale("portable-b1-s64.onnx")
    expected, pad_id = golden.read(opened), opened.manifest.tokenizer.pad_id

    def count(graph_id: str) -> int:
        graph = opened.graph(graph_id)
        session = engine.Session.open(opened.path(graph.file), graph, devices.CPU)
        return golden_check.check_golden(expected, {graph_id: session}, devices.CPU, pad_id)

    assert count("portable-b1-s128") == golden_check.FIXED_PROBES
    with pytest.raises(errors.GoldenMismatch, match="portable-b1-s64 on cpu"):
        count("portable-b1-s64")


def _take_inline(content: dict, theirs: dict, name: str) -> None:
    own = next(graph for graph in content["graphs"] if graph["file"] == name)
    own |= {
        key: next(graph for graph in theirs["graphs"] if graph["file"] == name)[key] for key in ("inline", "external")
    }


def _opened(folder: Path) -> bundles.Bundle:
    return bundles.Bundle.open(folder)


def _load_s(opened: bundles.Bundle, *, monkeyed: bool) -> float:
    with pytest.MonkeyPatch.context() as patch:
        if monkeyed:
            patch.setattr(golden, "read", lambda _: None)
        started = time.perf_counter()
        ServedModel.open(opened)
        return time.perf_counter() - started


def test_a_failed_graph_takes_the_golden_answers_back(copied, checkpoints) -> None:
    folder = copied[SAMPLE]
    path = folder / "portable-b1-s64.onnx"
    path.write_bytes(path.read_bytes() + b"\x00")

    verification.verify_folder(folder, checkpoints[SAMPLE], GateOptions(max_tokens=64), lambda _: None)

    assert golden.read(_opened(folder)) is None
