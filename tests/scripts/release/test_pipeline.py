"""One model through the pipeline, going on from what lies there: the samples that this run of the tests released."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vela.export import bundle_writer, trace, verification
from vela.export.shapes import Shapes
from vela.graphs import errors, model_table, store
from vela.scripts.release import ledger, pipeline, plan, standing
from vela.serve.device import CPU, Device
from vela.verify.options import GateOptions

NAME = "tiny-guard"
BUCKETS = (64, 128)
MAX_TOKENS = 192
Run = Callable[..., tuple[ledger.ModelLine, list[str]]]


class Made(Exception):
    """Something was about to be made again."""


@pytest.fixture
def work(tmp_path: Path, released: Path) -> Path:
    """A work folder in which the sample lies exported and verified, its weights a copy."""
    shutil.copytree(released / "bundles" / NAME, tmp_path / "bundles" / NAME)
    return tmp_path


@pytest.fixture
def before(released: Path) -> ledger.ModelLine:
    lines = msgspec.json.decode((released / "lines.json").read_bytes(), type=list[ledger.ModelLine])
    return next(line for line in lines if line.name == NAME)


@pytest.fixture
def asked(work: Path, checkpoints: dict[str, Path]) -> plan.ReleasePlan:
    return plan.ReleasePlan(
        models=(plan.Wanted.from_folder(checkpoints[NAME]),),
        shapes=Shapes(buckets=BUCKETS),
        devices=(CPU,),
        gate=GateOptions(max_tokens=MAX_TOKENS),
        work=work,
        store=work / "store",
        table=model_table.load_table(),
    )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the one model; exporting and judging are named where they happen, and only done where asked for."""

    def run(asked: plan.ReleasePlan, before: ledger.ModelLine | None) -> tuple[ledger.ModelLine, list[str]]:
        made: list[str] = []

        def export(*arguments: Any) -> Any:
            made.append("export")
            raise Made

        def judge(*arguments: Any) -> Any:
            made.append("verify")
            return []

        monkeypatch.setattr(bundle_writer, "export_bundle", export)
        monkeypatch.setattr(verification, "verify_folder", judge)
        line = ledger.ModelLine(NAME)
        try:
            told: list[ledger.ModelLine] = []
            line = pipeline.Pipeline(asked, trace.TraceCache(), lambda message: None).run(
                asked.models[0], before, told.append
            )
        except Made:
            line = told[-1]
        return line, made

    return run


def test_what_an_earlier_run_did_is_kept_and_published(
    asked: plan.ReleasePlan, before: ledger.ModelLine, run: Run
) -> None:
    line, made = run(asked, before)

    assert made == []
    assert line.outcome == "published"
    assert [(step.name, step.state) for step in line.steps] == [
        ("source", "done"),
        ("export", "kept"),
        ("verify cpu", "kept"),
        ("publish", "done"),  # this store had nothing yet
    ]
    assert run(asked, line)[0].step("publish").state == "kept"
    assert line.published == before.published
    assert line.step("verify cpu").seconds == before.step("verify cpu").seconds
    assert store.Store.open(asked.store).models()[NAME].digest == before.published
    assert {found.verdict for graph in line.graphs for found in graph.verdicts.values()} == {"passed"}


def test_the_first_run_named_every_graph_with_its_verdict(before: ledger.ModelLine) -> None:
    assert [graph.id for graph in before.graphs] == [
        *("model", "model-unpadded", "portable-b1-s64", "portable-b1-s128"),
    ]
    for graph in before.graphs:
        (found,) = graph.verdicts.values()
        assert found.verdict == "passed"
        assert found.compared > 0
        assert found.record == f"verification/{graph.id}.cpu.json"


@pytest.mark.parametrize(
    "change",
    [
        lambda asked: dataclasses.replace(asked, gate=dataclasses.replace(asked.gate, max_tokens=128)),
        lambda asked: dataclasses.replace(asked, gate=dataclasses.replace(asked.gate, bar="upstream")),
        lambda asked: dataclasses.replace(asked, gate=dataclasses.replace(asked.gate, budget_s=60.0)),
    ],
)
def test_verdicts_that_were_judged_otherwise_are_made_again(
    asked: plan.ReleasePlan, before: ledger.ModelLine, run: Run, change: Callable[..., plan.ReleasePlan]
) -> None:
    assert run(change(asked), before)[1] == ["verify"]


def test_verdicts_of_which_no_ledger_tells_are_made_again(asked: plan.ReleasePlan, run: Run) -> None:
    assert run(asked, None)[1] == ["verify"]


def test_a_step_that_did_not_end_is_done_again(asked: plan.ReleasePlan, before: ledger.ModelLine, run: Run) -> None:
    for state in ("running", "failed", "not_compared"):
        steps = tuple(
            msgspec.structs.replace(step, state=state) if step.name == "verify cpu" else step for step in before.steps
        )

        assert run(asked, msgspec.structs.replace(before, steps=steps))[1] == ["verify"]


def test_a_verdict_that_is_no_pass_is_never_kept(
    asked: plan.ReleasePlan, before: ledger.ModelLine, run: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = standing.read_verdicts

    def as_of_a_copy(*arguments: Any) -> dict[str, ledger.GraphVerdict]:
        found = read(*arguments)
        return found | {"model": msgspec.structs.replace(found["model"], verdict="failed")}

    monkeypatch.setattr(standing, "read_verdicts", as_of_a_copy)
    (first, *others) = before.graphs
    failed = msgspec.structs.replace(first.verdicts["cpu"], verdict="failed")
    stored = msgspec.structs.replace(before, graphs=(msgspec.structs.replace(first, verdicts={"cpu": failed}), *others))

    assert run(asked, stored)[1] == ["verify"]


def test_a_record_that_was_edited_is_judged_again(
    asked: plan.ReleasePlan, before: ledger.ModelLine, run: Run, work: Path
) -> None:
    path = work / "bundles" / NAME / "verification" / "model.cpu.json"
    stored = json.loads(path.read_bytes())
    path.unlink()
    path.write_text(json.dumps(stored | {"duration_s": 0.5}))

    assert run(asked, before)[1] == ["verify"]


def test_a_graph_without_its_record_is_judged_again(
    asked: plan.ReleasePlan, before: ledger.ModelLine, run: Run, work: Path
) -> None:
    (work / "bundles" / NAME / "verification" / "model.cpu.json").unlink()

    line, made = run(asked, before)

    assert made == ["verify"]
    assert line.outcome == "failed"  # the gate of this test writes none either, and nothing is taken for granted
    assert "model.cpu.json" in line.reason


@pytest.mark.parametrize(
    "change",
    [
        lambda asked: dataclasses.replace(asked, shapes=Shapes(buckets=(64,))),
        lambda asked: dataclasses.replace(asked, shapes=Shapes(buckets=BUCKETS, forms=("cpu", "portable", "cuda"))),
        lambda asked: dataclasses.replace(asked, shapes=Shapes(buckets=BUCKETS, storage="embedded")),
    ],
)
def test_a_bundle_of_other_shapes_is_made_again(
    asked: plan.ReleasePlan, before: ledger.ModelLine, run: Run, change: Callable[..., plan.ReleasePlan]
) -> None:
    assert run(change(asked), before)[1] == ["export"]


@pytest.mark.parametrize("name", ["model.onnx", "config.json", "model.safetensors", "manifest.json"])
def test_a_bundle_with_a_damaged_file_is_made_again(
    asked: plan.ReleasePlan, before: ledger.ModelLine, run: Run, work: Path, name: str
) -> None:
    path = work / "bundles" / NAME / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.unlink()
    path.write_bytes(content)

    assert run(asked, before)[1] == ["export"]


def test_a_bundle_of_another_checkpoint_is_made_again(
    asked: plan.ReleasePlan, before: ledger.ModelLine, run: Run, tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    other = Path(shutil.copytree(checkpoints[NAME], tmp_path / "other" / NAME))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"initializer_range": 0.5}))
    changed = dataclasses.replace(asked, models=(plan.Wanted.from_folder(other),))

    assert run(changed, before)[1] == ["export"]


def test_a_failed_graph_is_not_published_and_the_first_cause_is_the_reason(
    asked: plan.ReleasePlan, before: ledger.ModelLine, run: Run, work: Path
) -> None:
    path = work / "bundles" / NAME / "verification" / "model.cpu.json"
    stored = json.loads(path.read_bytes())
    path.unlink()
    path.write_text(json.dumps(stored | {"verdict": "failed", "cause": "weights.identity: other weights"}))

    line, _ = run(asked, None)

    assert line.outcome == "failed"
    assert "weights.identity: other weights" in line.reason
    assert "model (1 of 4 graphs)" in line.reason
    assert line.step("verify cpu").state == "failed"  # so that it is judged again, and not kept
    assert line.step("publish") is None
    assert not asked.store.exists()


def test_a_graph_that_was_not_compared_is_no_failure_and_not_published(
    asked: plan.ReleasePlan, run: Run, work: Path
) -> None:
    path = work / "bundles" / NAME / "verification" / "model.cpu.json"
    stored = json.loads(path.read_bytes())
    path.unlink()
    path.write_text(json.dumps(stored | {"verdict": "not_compared", "cause": "nothing fits the budget"}))

    line, _ = run(asked, None)

    assert line.outcome == "not_compared"
    assert line.step("verify cpu").state == "not_compared"
    assert not asked.store.exists()


def test_a_checkpoint_that_is_not_there_fails_its_model_only(asked: plan.ReleasePlan, tmp_path: Path) -> None:
    missing = plan.Wanted("gone", tmp_path / "gone", is_pinned=False, weight_bytes=0)
    both = dataclasses.replace(asked, models=(missing, dataclasses.replace(missing, name="too")))

    lines = pipeline.release_all(both, lambda message: None)

    assert [line.outcome for line in lines] == ["failed", "failed"]
    assert "no such folder" in lines[0].reason


def test_a_folder_that_bears_a_pinned_name_has_to_have_the_pinned_bytes(
    asked: plan.ReleasePlan, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    other = Path(shutil.copytree(checkpoints[NAME], tmp_path / "shield"))
    chosen = dataclasses.replace(asked, models=plan.choose_models([str(other)], asked.table, None))

    (line,) = pipeline.release_all(chosen, lambda message: None)

    assert line.outcome == "failed"
    assert "as pinned for vllm-sr/Vela-1.0-Encoder-307M-Shield" in line.reason
    assert not asked.store.exists()


def test_a_plan_names_each_model_once_and_begins_on_the_cpu(asked: plan.ReleasePlan) -> None:
    with pytest.raises(errors.ExportError, match="the models tiny-guard more than once"):
        dataclasses.replace(asked, models=asked.models * 2)
    with pytest.raises(errors.ExportError, match="more than once"):
        dataclasses.replace(asked, models=(*asked.models, dataclasses.replace(asked.models[0], name="Tiny-Guard")))
    with pytest.raises(errors.ExportError, match="found no model"):
        dataclasses.replace(asked, models=())
    with pytest.raises(ValueError, match="devices start with the CPU"):
        dataclasses.replace(asked, devices=(Device.parse("cuda:0"),))


def test_models_are_chosen_from_the_table_or_by_folder(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    table = model_table.load_table()

    chosen = plan.choose_models(["Shield", str(checkpoints[NAME])], table, tmp_path)

    assert [(wanted.name, wanted.is_pinned) for wanted in chosen] == [("shield", True), (NAME, False)]
    assert chosen[0].folder == tmp_path / "shield"
    assert chosen[0].weight_bytes == 4 * table.find("shield").parameters
    assert len(plan.choose_models([], table, None)) == 12
    other = Path(shutil.copytree(checkpoints[NAME], tmp_path / "Shield"))
    (bearing,) = plan.choose_models([str(other)], table, None)
    assert (bearing.name, bearing.is_pinned, bearing.folder) == ("shield", True, other)
    with pytest.raises(errors.CheckpointError, match="the model name 'sheild'"):
        plan.choose_models(["sheild"], table, None)
