"""The stand-ins: twelve checkpoints of the family's forms, and a table that pins them."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from vela.export.standins import family, forms
from vela.graphs import digests, errors, heads, model_table
from vela.verify import checkpoint


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("family") / "small"
    family.write_family(out, lambda message: None)
    return out


@pytest.fixture(scope="module")
def table(written: Path) -> model_table.ModelTable:
    return model_table.read_table(written / "models.json")


def entries() -> list[model_table.ModelEntry]:
    return list(model_table.load_table().supported)


def test_the_table_pins_all_twelve_as_they_lie_there(written: Path, table: model_table.ModelTable) -> None:
    assert [entry.name for entry in table.models] == [entry.name for entry in entries()]
    for entry in table.models:
        model_table.check_checkpoint(written / entry.name.lower(), entry)


def test_no_stand_in_can_be_taken_for_the_real_model(table: model_table.ModelTable) -> None:
    real = {fact for entry in entries() for fact in (entry.repository, entry.revision, entry.model_sha256)}

    assert not any({entry.repository, entry.revision, entry.model_sha256} & real for entry in table.models)


@pytest.mark.parametrize("real", entries(), ids=lambda entry: entry.name)
def test_a_stand_in_has_the_real_model_s_form(
    written: Path, table: model_table.ModelTable, real: model_table.ModelEntry
) -> None:
    entry = table.find(real.name)
    source = checkpoint.Checkpoint.read(written / real.name.lower(), table=table)

    assert set(source.listing()) == set(real.files)
    assert (source.head.kind, source.head.inputs) == (real.kind, real.inputs)
    assert (entry.policy, entry.max_tokens, entry.architecture) == (real.policy, real.max_tokens, real.architecture)
    assert len(entry.exits) == len(real.exits)
    assert len(entry.dimensions) == len(real.dimensions)
    assert heads.labels_of(source.head.decoder) == forms.LABELS.get(real.name, ())
    assert entry.parameters == sum(
        weight.size for weight in load_file(written / real.name.lower() / "model.safetensors").values()
    )


def test_an_embedder_without_a_file_of_exits_has_those_of_its_table(
    written: Path, table: model_table.ModelTable
) -> None:
    pinned = checkpoint.Checkpoint.read(written / "embedding", table=table).head.decoder
    unknown = checkpoint.Checkpoint.read(written / "embedding").head.decoder

    assert pinned == heads.EmbeddingDecoder(forms.EXITS, forms.DIMENSIONS)
    assert unknown == heads.EmbeddingDecoder((forms.LAYERS,), (family.HIDDEN_SIZE,))


def test_other_weights_under_a_pinned_config_have_the_same_exits(
    written: Path, table: model_table.ModelTable, tmp_path: Path
) -> None:
    for name in table.find("Embedding").files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((written / "embedding" / name).read_bytes())
    (tmp_path / "model.safetensors").write_bytes((written / "reranker" / "model.safetensors").read_bytes())

    assert checkpoint.Checkpoint.read(tmp_path, table=table).head.decoder.exits == forms.EXITS

    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"embedding_dropout": 0.1}))

    assert checkpoint.Checkpoint.read(tmp_path, table=table).head.decoder.exits == (forms.LAYERS,)


def test_siblings_differ_by_a_few_percent_of_every_encoder_weight(written: Path) -> None:
    shield, safety = (load_file(written / name / "model.safetensors") for name in ("shield", "safety"))

    name = "model.layers.3.attn.Wqkv.weight"
    moved = np.std(shield[name] - safety[name]) / np.std(shield[name])
    assert 0.5 * family.SIBLING_SHARE < moved < 3 * family.SIBLING_SHARE
    assert not np.allclose(shield["classifier.weight"], safety["classifier.weight"], atol=0.1)


def test_drawn_weights_depend_on_name_and_model_only() -> None:
    shapes = {"model.layers.0.attn.Wqkv.weight": (6, 4), "classifier.weight": (2, 4)}

    first, again, other = (family.draw_weights(shapes, sibling) for sibling in (1, 1, 2))

    assert all(np.array_equal(first[name], again[name]) for name in shapes)
    assert not any(np.array_equal(first[name], other[name]) for name in shapes)


def test_some_tokenizers_carry_truncation_or_padding_as_upstream_s_do(written: Path) -> None:
    found = {
        name: (state["truncation"] is not None, state["padding"] is not None)
        for name in ("domain", "safety", "shield")
        for state in [json.loads((written / name / "tokenizer.json").read_text())]
    }
    vocabularies = {
        digests.sha256_of_bytes(json.dumps(Tokenizer.from_file(str(path)).get_vocab(), sort_keys=True).encode())
        for path in written.glob("*/tokenizer.json")
    }

    assert found == {"domain": (False, False), "safety": (True, False), "shield": (False, True)}
    assert len(vocabularies) == 1


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    with pytest.raises(errors.ExportError, match="found a folder that is not empty"):
        family.write_family(tmp_path, lambda message: None)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_table_that_does_not_validate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    for content in (b"", b"{}", b'{"schema_version": 2, "source": "", "models": []}', b"[" * 100_000):
        path.write_bytes(content)

        with pytest.raises(errors.CheckpointError, match=r"models\.json: found a model table that does not validate"):
            model_table.read_table(path)
