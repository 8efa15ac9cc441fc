"""What a bundle must prove before it is loaded, and which graph runs."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from vela.graphs import bundle as bundles
from vela.graphs import contract, errors, record
from vela.serve import buckets, policy, providers, question
from vela.serve import device as devices
from vela.serve.deployment import Deployment
from vela.serve.model import ServedModel


@pytest.fixture
def folder(bags: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(bags["mood"], tmp_path / "mood"))


def change_record(folder: Path, **changes: object) -> None:
    path = folder / record.record_file("model", "cpu")
    found = msgspec.json.decode(path.read_bytes(), type=record.Record)
    path.write_bytes(record.encode_record(msgspec.structs.replace(found, **changes)))


def load(folder: Path, **options: object) -> ServedModel:
    return ServedModel.open(bundles.Bundle.open(folder), **options)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "config.json"])
def test_a_changed_file_is_refused_before_use(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)

    with pytest.raises(errors.DigestMismatch, match=name):
        load(folder)


def test_a_graph_without_a_record_is_refused(folder: Path) -> None:
    shutil.rmtree(folder / contract.RECORDS_FOLDER)

    with pytest.raises(errors.NotVerified, match="no record"):
        load(folder)


def test_a_graph_without_a_record_is_loaded_where_nothing_is_demanded(folder: Path) -> None:
    shutil.rmtree(folder / contract.RECORDS_FOLDER)

    assert load(folder, demand="nothing").name == "mood"


def test_a_failed_verdict_is_refused(folder: Path) -> None:
    change_record(folder, verdict="failed", cause="other weights")

    with pytest.raises(errors.NotVerified, match="other weights"):
        load(folder)


def test_a_verdict_of_another_runtime_version_is_refused_unless_accepted(folder: Path) -> None:
    path = folder / record.record_file("model", "cpu")
    engine = msgspec.json.decode(path.read_bytes(), type=record.Record).engine
    assert engine is not None
    change_record(folder, engine=msgspec.structs.replace(engine, version="1.0.0"))

    with pytest.raises(errors.NotVerified):
        load(folder)
    assert load(folder, demand="any_engine").demand == "any_engine"


def test_a_verdict_for_another_manifest_is_refused(folder: Path) -> None:
    change_record(folder, manifest_sha256="0" * 64)

    with pytest.raises(errors.NotVerified):
        load(folder, demand="any_engine")


def test_a_device_without_graphs_of_its_target_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "require_provider", lambda _: None)

    with pytest.raises(errors.ManifestInvalid, match="no graph that gives logits on migraphx:0"):
        load(folder, deployment=Deployment(devices.Device("migraphx")), demand="nothing")


def test_a_device_that_nothing_runs_on_is_refused_before_a_file_is_read(folder: Path) -> None:
    (folder / "model.onnx").unlink()

    with pytest.raises(errors.ProviderUnavailable, match="MIGraphXExecutionProvider"):
        load(folder, deployment=Deployment(devices.Device("migraphx")), demand="nothing")


def test_warming_up_runs_every_graph(served: dict[str, ServedModel]) -> None:
    for model in served.values():
        runs = list(model.warm_up_runs())

        assert {forward.graph_id for forward in runs} == set(model.loaded)
        assert {forward.output for forward in runs} >= set(model.ladders)
        assert all(np.isfinite(forward.run()).all() for forward in runs)


def test_the_shallowest_graph_of_an_exit_runs(served: dict[str, ServedModel]) -> None:
    model = served["vectors"]
    asked = question.embed(model, policy.Options(), question.Exit(layer=2))
    reading = model.read(["abc"], asked.rules)[0]
    assert not isinstance(reading, errors.ItemError)

    forward = model.forwards(reading, asked.output)[0]

    assert forward.session.graph.id == "model-l2"


@pytest.mark.parametrize(
    ("layer", "dimension", "field"), [(3, None, "layer"), (None, 5, "dimensions"), (0, None, "layer")]
)
def test_an_exit_that_the_model_has_not_is_refused(
    served: dict[str, ServedModel], layer: int | None, dimension: int | None, field: str
) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        question.embed(served["vectors"], policy.Options(), question.Exit(layer, dimension))

    assert caught.value.where == field


def test_a_surface_that_the_model_has_not_is_refused(served: dict[str, ServedModel]) -> None:
    options, whole = policy.Options(), question.Exit()

    for ask in (
        lambda: question.classify(served["vectors"], options),
        lambda: question.embed(served["mood"], options, whole),
        lambda: question.rank(served["mood"], options, whole),
    ):
        with pytest.raises(errors.UnsupportedSurface):
            ask()


def fixed(served: dict[str, ServedModel], batch: int, sequence: int) -> object:
    graph = served["mood"].bundle.graph("model")
    return msgspec.structs.replace(
        graph,
        id=f"b{batch}-s{sequence}",
        file=f"b{batch}-s{sequence}.onnx",
        inputs=contract.graph_inputs(batch, sequence),
        target="portable",
    )


def test_fixed_engines_take_the_smallest_graph_that_holds_the_row(served: dict[str, ServedModel]) -> None:
    content = served["mood"].bundle.manifest
    shapes = [(4, 64), (1, 128), (1, 64), (1, 16)]
    graphs = tuple(fixed(served, *shape) for shape in shapes)
    content = msgspec.structs.replace(content, graphs=graphs)

    ladder = buckets.build_ladder(content, content.head(), contract.LOGITS, devices.Device("rocm"))

    assert [ladder.choose(tokens).id for tokens in (1, 16, 17, 64, 65, 128)] == [
        "b1-s16", "b1-s16", "b1-s64", "b1-s64", "b1-s128", "b1-s128",
    ]  # fmt: skip
    assert ladder.choose(20, rows=3).id == "b4-s64"
    assert ladder.longest(1000) == 128
    with pytest.raises(ValueError, match="no graph"):
        ladder.choose(129)


def test_rows_of_a_text_answer_alike_alone_and_repeated(
    make_bundle: Callable[..., Path], served: dict[str, ServedModel]
) -> None:
    asked = question.classify(served["mood"], policy.Options())

    found = question.answer(asked, ["same", "other text", "same"])

    assert msgspec.structs.replace(found[2], index=0) == found[0]
    assert np.isfinite(found[1].probabilities).all()  # type: ignore[union-attr]
