"""The profile `max_speed`: copies that passed here, the fastest of each graph, and the FP32 graph where none did."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from vela.graphs import bundle as bundles
from vela.graphs import contract, digests, errors, golden, manifest, record, verdicts
from vela.serve import buckets, engine, max_speed, policy, registry, runtime
from vela.serve import device as devices
from vela.serve.deployment import Deployment
from vela.serve.http import cards
from vela.serve.max_speed import Copies
from vela.serve.model import ServedModel

MODEL, TEXT = "mood", "a text"
QUICK, CUDA = Deployment(profile="max_speed"), devices.Device("cuda")
Plant = Callable[..., record.Record]


@pytest.fixture
def folder(bags, tmp_path) -> Path:
    """A bundle whose graph has copies in both types; what they hold is another model's, so that answers tell them."""
    made = Path(shutil.copytree(bags[MODEL], tmp_path / MODEL))
    content = bundles.Bundle.open(made).manifest
    (graph,) = content.graphs
    copies = []
    for kind in ("fp16", "bf16"):
        path = made / f"model-{kind}.onnx"
        shutil.copy(bags["topics"] / "model.onnx", path)
        copies.append(
            msgspec.structs.replace(
                graph,
                id=path.stem,
                file=path.name,
                sha256=digests.sha256_of_file(path),
                size_bytes=path.stat().st_size,
                precision=kind,
            )
        )
    sealed = msgspec.structs.replace(content, graphs=(graph, *copies)).sealed()
    (made / contract.MANIFEST_FILE).write_bytes(manifest.encode_manifest(sealed))
    rewrite(made, "model")
    return made


def rewrite(folder: Path, graph_id: str, **changes) -> record.Record:
    """Write a graph's record anew, for the manifest as it is now."""
    opened = bundles.Bundle.open(folder)
    stored = msgspec.json.decode((folder / record.record_file("model", "cpu")).read_bytes(), type=record.Record)
    graph = opened.graph(graph_id)
    facts = {"graph_id": graph.id, "graph_sha256": graph.sha256, "manifest_sha256": opened.manifest_sha256}
    found = msgspec.structs.replace(stored, **facts, **changes)
    (folder / record.record_file(graph_id, "cpu")).write_bytes(record.encode_record(found))
    return found


def copied(folder: Path, kind: str, ratio: float, **changes) -> record.Record:
    checks = [record.Check(name, "passed", "", 0.0) for name in sorted(verdicts.COPY_CHECKS)]
    facts = {
        "precision": kind,
        "bar": "reduced",
        "bars": (record.BarResult("reduced", "passed", ()),),
        "checks": tuple(checks),
        "speed": record.Speed(16, ratio, 1.0, ratio),
        "statistics": (further(0.2),),
    }
    return rewrite(folder, f"model-{kind}", **(facts | changes))


def proven(folder: Path, device: devices.Device) -> Copies:
    return Copies.proven(bundles.Bundle.open(folder), device, runtime.installed_build()[1])


def open_quick(folder: Path, **options) -> ServedModel:
    return ServedModel.open(bundles.Bundle.open(folder), QUICK, **options)


def graph_of(model: ServedModel, profile: policy.Profile) -> str:
    (reading,) = model.read([TEXT], model.settle(policy.Options(profile=profile), model.default_output))
    (work,) = model.works(reading, model.default_output, profile)
    return work.graph_id


def test_the_fastest_copy_answers_those_who_ask_and_exact_stays_exact(folder) -> None:
    copied(folder, "fp16", 0.6)
    copied(folder, "bf16", 0.4)

    model = open_quick(folder)

    assert model.profiles == ("exact", "max_speed")
    assert (graph_of(model, "exact"), graph_of(model, "max_speed")) == ("model", "model-bf16")
    assert set(model.loaded) == {"model", "model-bf16"}, "the slower copy takes no memory"


def test_a_copy_that_failed_answers_nobody(folder) -> None:
    copied(folder, "fp16", 0.6)
    copied(folder, "bf16", 0.4, verdict="failed", cause="engine.faster: slow")

    assert graph_of(open_quick(folder), "max_speed") == "model-fp16"


def test_without_a_copy_that_passed_the_model_is_refused_with_the_figures(folder) -> None:
    copied(folder, "fp16", 1.2, verdict="failed", cause="engine.faster: 1.200 of the FP32 graph's time")

    with pytest.raises(errors.NotVerified, match=r"model-fp16 failed on cpu .*: engine.faster: 1.200 of") as refused:
        proven(folder, CUDA)

    assert refused.value.where == "mood, profile max_speed"


def test_without_any_record_the_model_is_refused(folder) -> None:
    with pytest.raises(errors.NotVerified, match="2 16-bit copies, none of them with a record"):
        proven(folder, CUDA)


def test_a_bundle_without_copies_is_refused_under_the_profile_and_on_the_cpu_its_graph_answers(bags) -> None:
    opened = bundles.Bundle.open(bags[MODEL])

    with pytest.raises(errors.NotVerified, match="0 16-bit copies"):
        Copies.proven(opened, CUDA, "1.0")
    assert ServedModel.open(opened).profiles == ("exact",)
    assert graph_of(ServedModel.open(opened, QUICK), "max_speed") == "model"


def test_a_pass_by_another_version_counts_only_where_that_is_accepted(folder) -> None:
    stored = copied(folder, "fp16", 0.6)
    older = msgspec.structs.replace(stored.engine, version="0.1")
    copied(folder, "fp16", 0.6, engine=older)

    assert graph_of(open_quick(folder), "max_speed") == "model"
    assert graph_of(open_quick(folder, demand="any_engine"), "max_speed") == "model-fp16"
    written = folder / record.record_file("model-fp16", "cpu")
    written.rename(written.with_name("model-fp16.older.json"))
    copied(folder, "fp16", 1.1, verdict="failed", cause="slow")
    assert graph_of(open_quick(folder, demand="any_engine"), "max_speed") == "model", "it failed here"


def test_a_failure_on_another_device_takes_nothing_back_here(folder) -> None:
    stored = copied(folder, "fp16", 0.6)
    written = folder / record.record_file("model-fp16", "cpu")
    written.rename(written.with_name("model-fp16.kept.json"))
    elsewhere = msgspec.structs.replace(stored.engine, provider=CUDA.provider, device="cuda:0")
    copied(folder, "fp16", 1.1, verdict="failed", cause="slow", engine=elsewhere)

    assert proven(folder, devices.CPU).of["model"].id == "model-fp16"
    with pytest.raises(errors.NotVerified, match="slow"):
        proven(folder, CUDA)


def test_a_pass_on_another_device_proves_nothing_here(folder) -> None:
    copied(folder, "fp16", 0.6)

    with pytest.raises(errors.NotVerified):
        proven(folder, CUDA)
    assert proven(folder, devices.CPU).of["model"].id == "model-fp16"


def test_a_length_without_a_copy_keeps_its_fp32_graph(folder) -> None:
    copied(folder, "fp16", 0.6)
    opened = bundles.Bundle.open(folder)
    copies = proven(folder, devices.CPU)
    other = msgspec.structs.replace(opened.graph("model"), id="longer")

    found = copies.quicken(buckets.Ladder("logits", (opened.graph("model"), other)))

    assert [graph.id for graph in found.graphs] == ["model-fp16", "longer"]
    assert copies.bounds == {"model-fp16": pytest.approx(0.4)}


def test_golden_answers_are_never_so_far_away_that_they_prove_nothing(folder) -> None:
    copied(folder, "fp16", 0.6, statistics=(further(1e9),))

    assert proven(folder, devices.CPU).bounds == {"model-fp16": 0.5}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"checks": (record.Check("parity", "passed", "", 0.0),)}, "no engine.faster, exact.verified, graph.reduction"),
        ({"speed": None}, "no figures"),
        ({"statistics": ()}, "no figures"),
        ({"precision": "bf16"}, "precision bf16 of a graph in fp16"),
    ],
)
def test_a_pass_without_what_a_copy_needs_is_no_pass(folder, change, said) -> None:
    copied(folder, "fp16", 0.6, **change)

    with pytest.raises(errors.NotVerified, match=said):
        open_quick(folder)


def test_an_fp32_graph_is_not_passed_by_the_bar_of_reduced_weights(folder) -> None:
    rewrite(folder, "model", bar="reduced", bars=(record.BarResult("reduced", "passed", ()),))

    with pytest.raises(errors.NotVerified, match="the bar of reduced weights for a graph in fp32"):
        ServedModel.open(bundles.Bundle.open(folder))


def test_a_profile_without_a_copy_of_what_is_loaded_is_refused_but_on_the_cpu(folder) -> None:
    copied(folder, "fp16", 0.6)
    opened = bundles.Bundle.open(folder)
    other = {"logits": buckets.Ladder("logits", (msgspec.structs.replace(opened.graph("model"), id="shorter"),))}
    copies = proven(folder, devices.CPU)

    assert copies.quicken_all(other, opened, devices.CPU) == other
    with pytest.raises(errors.NotVerified, match="no copy of the graphs that are loaded, but of model"):
        copies.quicken_all(other, opened, CUDA)


@pytest.mark.parametrize(("factor", "is_served"), [(1.05, True), (0.95, False)])
def test_golden_answers_may_be_twice_as_far_from_a_copy_as_its_verdict_says(
    folder, monkeypatch, factor, is_served
) -> None:
    monkeypatch.setattr(max_speed, "GOLDEN_WIDEST", np.inf)  # these two models are far apart
    copied(folder, "fp16", 0.6)
    opened, ids = bundles.Bundle.open(folder), (2, 3, 4, 5)
    model = ServedModel.open(opened, QUICK)
    exact, near = (answer(model.loaded[name].session, ids) for name in ("model", "model-fp16"))
    probe = golden.Probe("c", ids, {"logits": golden.Values(exact.shape, tuple(map(float, exact)))})
    made = golden.Golden(1, opened.manifest_sha256, "0" * 64, "it", "test", {}, {"cpu": 2e-5, "gpu": 4e-3}, (probe,))
    golden.write(opened, made)
    copied(folder, "fp16", 0.6, statistics=(further(factor * np.abs(exact - near).max() / 2),))

    if is_served:
        assert open_quick(folder).golden_count == 2
    else:
        with pytest.raises(errors.GoldenMismatch, match="model-fp16"):
            open_quick(folder)


def answer(session: engine.Session, ids: tuple[int, ...]) -> np.ndarray:
    return session.run(engine.pad_rows([ids], session.graph, 0))["logits"][0]


def further(largest: float) -> record.ClassStatistics:
    return record.ClassStatistics(
        "1-64", "none", 1, 1, 0.1, 0.1, 0.1, float(largest), float(largest), 1, 0, (1, *([0] * len(record.DECADES)))
    )


def test_a_card_says_what_is_loaded(folder, source_of) -> None:
    copied(folder, "fp16", 0.6)
    quick = registry.Registry(registry.Plan((source_of(MODEL, folder),), profile="max_speed"))
    plain = registry.Registry(registry.Plan((source_of(MODEL, folder),)))
    for loaded in (quick, plain):
        assert loaded.load() == []

    (card,), (other,) = (cards.models_response(loaded, 1).data for loaded in (quick, plain))

    assert (card.dtype, card.profiles) == ("fp16,fp32", ["exact", "max_speed"])
    assert (other.dtype, other.profiles) == ("fp32", ["exact"])


def test_publishing_takes_copies_with_or_without_a_pass(folder, tmp_path, vela) -> None:
    copied(folder, "bf16", 1.2, verdict="failed", cause="slow")
    copied(folder, "fp16", 0.6)

    code, out, _ = vela("publish", str(folder), "--store", str(tmp_path / "store"))

    lines = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert code == 0
    assert "cpu (CPUExecutionProvider" in lines["model-fp16"]
    assert lines["model-bf16"].endswith("no pass: never served")
