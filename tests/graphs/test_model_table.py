"""The table of pinned models: complete, sane, and never taken for another model."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from vela.graphs import digests, errors, model_table

FAMILY = [
    *("Domain", "Guard", "Safety", "Shield", "FactCheck", "Feedback", "Modality", "Hazard"),
    *("PII", "Halu", "Embedding", "Reranker"),
]


def test_the_twelve_models_are_supported_and_their_thirteenth_says_why_it_is_not() -> None:
    table = model_table.load_table()

    assert [entry.name for entry in table.models] == [*FAMILY, "Qwen3-Embedding-0.6B"]
    assert [entry.name for entry in table.models if not entry.supported] == ["Qwen3-Embedding-0.6B"]


def test_the_parameter_counts_of_classifiers_are_the_backbone_and_a_head_for_their_labels() -> None:
    """Independent arithmetic: 306,939,648 and, for C labels, 768 × 768 + 768 + 768 C + C."""
    labels = {
        **{"Domain": 14, "Guard": 2, "Safety": 2, "Shield": 2, "FactCheck": 2, "Feedback": 5, "Modality": 3},
        **{"Hazard": 12, "PII": 35, "Halu": 2},
    }
    found = {entry.name: entry.parameters for entry in model_table.load_table().models if entry.name in labels}

    assert found == {name: 306_939_648 + 768 * 768 + 768 + 769 * count for name, count in labels.items()}


def test_kinds_inputs_and_limits_are_those_of_the_family() -> None:
    kinds = {entry.name: (entry.kind, entry.inputs, entry.max_tokens) for entry in model_table.load_table().models}

    assert kinds["Shield"] == ("sequence", "text", 32768)
    assert kinds["Hazard"] == ("scores", "text", 32768)
    assert kinds["PII"] == ("token", "text", 32768)
    assert kinds["Halu"] == ("token", "grounded", 8192)
    assert kinds["Embedding"] == ("embedding", "text", 32768)
    assert kinds["Reranker"] == ("rerank", "pair", 32768)


def test_the_embedder_and_the_reranker_have_exits_and_dimensions_and_nobody_else_has() -> None:
    for entry in model_table.load_table().models:
        has_exits = entry.name in ("Embedding", "Reranker")
        assert (entry.exits == (3, 6, 11, 22)) == has_exits
        assert (entry.dimensions == (768, 512, 256, 128, 64)) == has_exits


def test_models_with_an_operating_point_list_its_file() -> None:
    with_point = {entry.name for entry in model_table.load_table().models if "operating_point.json" in entry.files}

    assert with_point == {"Hazard", "Halu"}


@pytest.mark.parametrize("name", ["Shield", "shield", "SHIELD", "vllm-sr/vela-1.0-encoder-307m-shield"])
def test_a_model_is_found_by_name_or_repository_in_any_case(name: str) -> None:
    assert model_table.find_model(name).name == "Shield"


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(errors.CheckpointError, match=r"'sheild'.*Domain, Guard.*Embedding, Reranker\..*--checkpoint"):
        model_table.find_model("sheild")


def test_a_model_that_is_not_supported_says_so_and_why() -> None:
    with pytest.raises(errors.CheckpointError, match="not supported yet: a causal decoder"):
        model_table.find_model("qwen3-embedding-0.6b")


def raw_table() -> dict[str, Any]:
    content: dict[str, Any] = msgspec.to_builtins(model_table.load_table())
    return content


BROKEN: dict[str, Any] = {
    "a digest that is too short": lambda models: models[0]["files"].update({"config.json": "abc"}),
    "a digest in upper case": lambda models: models[0].update(model_sha256="A" * 64),
    "a file outside the folder": lambda models: models[0]["files"].update({"../x": "0" * 64}),
    "a checkpoint without weights": lambda models: models[0]["files"].pop("model.safetensors"),
    "a branch for a revision": lambda models: models[0].update(revision="main"),
    "a repeated name": lambda models: models[0].update(name="guard"),
    "a repeated repository": lambda models: models[0].update(repository=models[1]["repository"]),
    "a name that is a path": lambda models: models[0].update(name="a/b"),
    "no parameters": lambda models: models[0].update(parameters=0),
    "an unknown kind": lambda models: models[0].update(kind="oracle"),
    "an unknown field": lambda models: models[0].update(labels=["a"]),
    "a window policy without a window": lambda models: models[0]["policy"].update(overflow="window"),
    "a threshold above one": lambda models: models[0]["policy"].update(threshold=50),
    "a policy beyond the task": lambda models: models[9]["policy"].update(max_tokens=32768),
}


@pytest.mark.parametrize("edit", BROKEN.values(), ids=BROKEN)
def test_a_table_that_is_wrong_does_not_validate(edit: Any) -> None:
    content = raw_table()
    edit(content["models"])

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(content, model_table.ModelTable)


@pytest.fixture
def entry_and_folder(tmp_path: Path) -> tuple[model_table.ModelEntry, Path]:
    entry = model_table.find_model("Embedding")
    files = {}
    for name in entry.files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
        files[name] = digests.sha256_of_bytes(name.encode())
    return msgspec.structs.replace(entry, files=files), tmp_path


def test_a_checkpoint_with_the_pinned_files_passes(entry_and_folder: Any) -> None:
    entry, folder = entry_and_folder
    (folder / "README.md").write_text("not pinned")

    model_table.check_checkpoint(folder, entry)


def test_a_file_behind_a_link_passes_because_the_hub_s_cache_is_made_of_links(entry_and_folder: Any) -> None:
    entry, folder = entry_and_folder
    (folder / "model.safetensors").rename(folder / "blob")
    (folder / "model.safetensors").symlink_to("blob")

    model_table.check_checkpoint(folder, entry)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "1_Pooling/config.json"])
@pytest.mark.parametrize("fault", ["changed", "missing"])
def test_a_file_that_is_not_the_pinned_one_is_named_with_both_digests(
    entry_and_folder: Any, name: str, fault: str
) -> None:
    entry, folder = entry_and_folder
    if fault == "changed":
        (folder / name).write_bytes(b"x")
    else:
        (folder / name).unlink()

    expected = "found sha256 2d711642" if fault == "changed" else "found no such file"
    with pytest.raises(errors.CheckpointError, match=f"{name}: {expected}.*expected sha256 {entry.files[name]}"):
        model_table.check_checkpoint(folder, entry)


@pytest.mark.parametrize("name", ["operating_point.json", "matryoshka_config.json", "classification_heads.safetensors"])
def test_a_file_that_would_decide_the_task_and_is_not_pinned_is_refused(entry_and_folder: Any, name: str) -> None:
    entry, folder = entry_and_folder
    (folder / name).write_text("{}")

    with pytest.raises(errors.CheckpointError, match=f"{name}: found a file that the pinned model does not have"):
        model_table.check_checkpoint(folder, entry)
