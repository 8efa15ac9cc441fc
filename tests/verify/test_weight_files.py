"""Checkpoints in shards, from their index to served answers, and the weight files that are refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from starlette.testclient import TestClient

from vela.export import verification
from vela.graphs import bundle, errors, record
from vela.graphs import store as stores
from vela.serve import registry
from vela.serve.http.app import build_app
from vela.verify import checkpoint, graph_file
from vela.verify.options import GateOptions

SAMPLE = "tiny-intent"
INDEX = "model.safetensors.index.json"
SHARDS = tuple(f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))
Damage = Callable[[Path], None]


def shard(folder: Path) -> Path:
    """Split a checkpoint's weights as save_pretrained does, into three files and an index."""
    tensors = load_file(folder / "model.safetensors")
    weight_map = {name: SHARDS[index * len(SHARDS) // len(tensors)] for index, name in enumerate(sorted(tensors))}
    for file in SHARDS:
        held = {name: tensors[name] for name in weight_map if weight_map[name] == file}
        save_file(held, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


@pytest.fixture
def sharded(shortened: Callable[[str], Path]) -> Path:
    return shard(shortened(SAMPLE))


def judge(folder: Path, source: Path, *, with_inference: bool = False) -> list[record.Record]:
    options = GateOptions(max_tokens=64, is_fail_fast=not with_inference)
    return verification.verify_folder(folder, source, options, lambda _: None)


def edit_index(folder: Path, change: Callable[[dict[str, str]], None]) -> None:
    index = json.loads((folder / INDEX).read_bytes())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def test_a_sharded_checkpoint_is_exported_verified_published_and_served(tmp_path, sharded, export):
    folder = export(sharded, tmp_path / "bundle")
    opened = bundle.Bundle.open(folder)

    records = judge(folder, sharded, with_inference=True)
    stores.Store.create_or_open(tmp_path / "store").publish(folder)
    loaded = registry.Registry(registry.Plan(registry.sources_from_store(tmp_path / "store")))
    assert loaded.load() == []
    with TestClient(build_app(loaded)) as client:
        response = client.post("/v1/classify", json={"model": SAMPLE, "input": ["Where is my card?"]})
    loaded.close()

    assert [found.verdict for found in records] == ["passed"] * 3
    for graph in opened.manifest.graphs:
        parsed = graph_file.GraphFile.read(opened.path(graph.file))
        assert {tensor.location for tensor in parsed.external.values()} == set(SHARDS)
    assert {tensor.file for tensor in opened.manifest.weights} == set(SHARDS)
    assert {*SHARDS, INDEX} < set(opened.manifest.sources)
    assert (folder / SHARDS[0]).stat().st_ino == (sharded / SHARDS[0]).stat().st_ino
    assert response.status_code == 200, response.text
    assert len(response.json()["results"][0]["probabilities"]) == 77


def test_a_shard_of_another_checkpoint_fails(tmp_path, sharded, export):
    folder = export(sharded, tmp_path / "bundle")
    other = {name: value + 0.01 for name, value in load_file(sharded / SHARDS[1]).items()}
    (folder / SHARDS[1]).unlink()
    save_file(other, folder / SHARDS[1], metadata={"format": "pt"})

    failed = {check.name: check.detail for check in judge(folder, sharded)[0].checks if check.status == "failed"}

    assert SHARDS[1] in failed["sources.identity"]
    referred = [name for name, value in other.items() if value.nbytes > 1024]
    assert f"{len(referred)} of " in failed["weights.identity"]


def test_a_reference_to_the_wrong_shard_fails(tmp_path, sharded, export, reseal):
    folder = export(sharded, tmp_path / "bundle")
    path = folder / "model.onnx"
    content = path.read_bytes()
    path.write_bytes(content.replace(SHARDS[2].encode(), SHARDS[0].encode()))  # the first is the largest
    reseal(folder)

    failed = {check.name: check.detail for check in judge(folder, sharded)[0].checks if check.status == "failed"}

    assert f"of {SHARDS[0]} are neither a tensor nor rows of one" in failed["weights.identity"]


def unlist(folder: Path) -> None:
    edit_index(folder, lambda weight_map: weight_map.pop(min(weight_map)) and None)


def misplace(folder: Path) -> None:
    edit_index(folder, lambda weight_map: weight_map.update({min(weight_map): SHARDS[2]}))


def lose_tensor(folder: Path) -> None:
    tensors = load_file(folder / SHARDS[0])
    tensors.pop(min(tensors))
    save_file(tensors, folder / SHARDS[0], metadata={"format": "pt"})


def point_at(file: str) -> Damage:
    return lambda folder: edit_index(folder, lambda weight_map: weight_map.update({min(weight_map): file}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / SHARDS[1]).unlink(), f"no {SHARDS[1]} among the weight files"),
        (lose_tensor, rf"1 tensors that are not where it says \(\S+ in {SHARDS[0]}\), and 0"),
        (unlist, rf"0 tensors that are not where it says, and 1 that it does not name \(\S+ in {SHARDS[0]}\)"),
        (misplace, rf"1 tensors .* in {SHARDS[2]}\), and 1 that it does not name \(\S+ in {SHARDS[0]}\)"),
        (point_at("../model.safetensors"), r"the shards \.\./model\.safetensors"),
        (point_at("/tmp/model.safetensors"), r"the shards /tmp/model\.safetensors"),
        (point_at("C:\\model.safetensors"), r"the shards C:"),
        (point_at("pytorch_model.bin"), r"the shards pytorch_model\.bin"),
        (lambda folder: (folder / INDEX).write_text("{}"), "no weight_map"),
        (lambda folder: (folder / INDEX).unlink(), "pickled weights never"),
        (lambda folder: shutil.copy(folder / SHARDS[0], folder / "model.safetensors"), "one story of the weights"),
        (lambda folder: shutil.copy(folder / SHARDS[0], folder / "old-1.safetensors"), "weight files old-1"),
    ],
)
def test_shards_that_contradict_their_index_are_refused(sharded, damage, message):
    assert set(checkpoint.Checkpoint.read(sharded).tensors) == set(SHARDS)
    damage(sharded)

    with pytest.raises(errors.CheckpointError, match=message):
        checkpoint.Checkpoint.read(sharded)


def test_shards_left_beside_a_whole_file_are_refused(shortened):
    """A shard's name sorts before `model.safetensors`, so that a graph would be bound to the stale one."""
    folder = shortened(SAMPLE)
    shutil.copy(folder / "model.safetensors", folder / SHARDS[0])

    with pytest.raises(errors.CheckpointError, match=f"{SHARDS[0]} beside model.safetensors"):
        checkpoint.Checkpoint.read(folder)


@pytest.mark.parametrize(
    ("dtypes", "message"),
    [
        ([torch.bfloat16], r"of (\d+) tensors \1 in BF16, such as"),
        ([torch.float16], r"of (\d+) tensors \1 in F16, such as"),
        ([torch.float32, torch.bfloat16], r"of \d+ tensors \d+ in BF16, such as"),
        ([torch.float16, torch.bfloat16], r"of \d+ tensors \d+ in BF16, \d+ in F16, such as"),
        ([torch.float64], r"of (\d+) tensors \1 in F64, such as"),
    ],
)
@pytest.mark.parametrize("is_sharded", [False, True])
def test_reduced_and_mixed_precision_is_refused_with_the_way_out(shortened, dtypes, message, is_sharded):
    folder = shortened(SAMPLE)
    tensors = load_file(folder / "model.safetensors")
    mixed = {name: value.to(dtypes[index % len(dtypes)]) for index, (name, value) in enumerate(tensors.items())}
    save_file(mixed, folder / "model.safetensors", metadata={"format": "pt"})
    if is_sharded:
        shard(folder)

    with pytest.raises(errors.CheckpointError, match=message) as refusal:
        checkpoint.Checkpoint.read(folder)

    assert "an FP32 graph holds the checkpoint's own bytes" in str(refusal.value)
    assert "from_pretrained(DIR, dtype=torch.float32)" in str(refusal.value)


def test_a_widened_checkpoint_is_read(shortened):
    folder = shortened(SAMPLE)
    tensors = load_file(folder / "model.safetensors")
    widened = {name: value.to(torch.bfloat16).to(torch.float32) for name, value in tensors.items()}
    save_file(widened, folder / "model.safetensors", metadata={"format": "pt"})

    assert checkpoint.Checkpoint.read(folder).parameter_count > 0
