"""The model that Transformers builds is compared with what config.json says, read independently."""

import copy
import dataclasses
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from vela.export import effective, forms, reference
from vela.graphs import errors
from vela.verify import checkpoint
from vela.verify.architecture import rope

YARN = rope.YarnRope(160000.0, 4.0, 512, 32.0, 1.0, is_truncated=True, attention_scaling=1.2)
SAMPLES = (
    *("tiny-intent", "tiny-guard", "tiny-multilabel", "tiny-pii"),
    *("tiny-grounded", "tiny-embedding", "tiny-reranker"),
)


@pytest.fixture(scope="module")
def source(checkpoints: dict[str, Path]) -> checkpoint.Checkpoint:
    return checkpoint.Checkpoint.read(checkpoints["tiny-intent"])


@pytest.fixture(scope="module")
def model(source: checkpoint.Checkpoint) -> torch.nn.Module:
    return forms.model_class(source.head, source.model_type).from_pretrained(source.folder)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_built_as_its_config_says(checkpoints, name):
    source = checkpoint.Checkpoint.read(checkpoints[name])

    answered = reference.PyTorchReference.from_checkpoint(source).answer([(2, 300, 301, 1)])

    assert all(torch.isfinite(torch.tensor(values)).all() for values in answered[0].values())


def test_the_samples_cover_both_config_generations_and_both_poolings(checkpoints):
    sources = [checkpoint.Checkpoint.read(folder) for folder in checkpoints.values()]

    assert {"rope_parameters" in source.config for source in sources} == {True, False}
    assert {source.architecture.pooling for source in sources} >= {"cls", "mean"}
    assert {len(set(dict(source.architecture.ropes).values())) for source in sources} == {1, 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ropes": (("sliding_attention", rope.PlainRope(160000.0)),)}, r"theta 10,000 for theta 160,000"),
        ({"ropes": (("full_attention", rope.LinearRope(160000.0, 4.0)),)}, r"theta 160,000 for linear scaling by 4"),
        ({"ropes": (("full_attention", YARN),)}, r"attention scaling 1 for 1\.2"),
        ({"half_window": 15}, "half_windows"),
        ({"layer_types": ("full_attention",) * 6}, "layer_types"),
        ({"norm_eps": 1e-3}, "norm_eps"),
        ({"pooling": "cls"}, "pooling"),
        ({"activation": "gelu_pytorch_tanh"}, "activation"),
        ({"classifier_activation": "relu"}, "classifier_activation"),
        ({"label_count": 3}, "label_count"),
        ({"attention_heads": 6}, "attention_heads"),
        ({"classifier_bias": True}, "classifier_bias"),
        ({"biases": (True, False, False)}, "biases"),
    ],
)
def test_a_value_that_was_built_otherwise_is_named(model, source, change, message):
    effective.check_effective(model, source.architecture)

    with pytest.raises(errors.CheckpointError, match=message):
        effective.check_effective(model, dataclasses.replace(source.architecture, **change))


def test_a_reader_that_falls_back_to_the_default_local_theta_is_caught(checkpoints):
    """Transformers 4.57 reads a 5.x config so; here the built model's table is replaced by the one it would have."""
    source = checkpoint.Checkpoint.read(checkpoints["tiny-guard"])
    config = AutoConfig.from_pretrained(source.folder)
    config.rope_parameters["sliding_attention"]["rope_theta"] = 10_000.0
    misread = forms.model_class(source.head, source.model_type)(config)

    with pytest.raises(errors.CheckpointError, match="sliding_attention RoPE of theta 10,000 for theta 160,000"):
        effective.check_effective(misread, source.architecture)


def test_missing_tensors_are_refused_and_not_filled_at_random(tmp_path, checkpoints):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(checkpoints["tiny-intent"], tmp_path / "c"))
    tensors = load_file(folder / "model.safetensors")
    lost = next(name for name in tensors if name.endswith("layers.1.mlp.Wo.weight"))
    del tensors[lost]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(errors.CheckpointError, match=r"layers\.1\.mlp\.Wo\.weight"):
        reference.PyTorchReference.from_checkpoint(checkpoint.Checkpoint.read(folder))


def test_the_reference_is_not_patched_by_tracing(checkpoints, source):
    before = reference.PyTorchReference.from_checkpoint(source).answer([(2, 300, 301, 1)])
    from vela.export import attention

    attention.register()
    after = reference.PyTorchReference.from_checkpoint(source).answer([(2, 300, 301, 1)])

    assert (before[0]["logits"] == after[0]["logits"]).all()
    assert copy.copy(source.config).get("_attn_implementation") is None
