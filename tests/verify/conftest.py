"""A sibling of a sample, and a copy of it with other thetas: checkpoints that a wrong bundle comes from."""

import json
import re
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import BertConfig, BertModel

from vela.export import bundle_writer, trace, verification
from vela.graphs import bundle, manifest, record
from vela.verify import checkpoint
from vela.verify.options import GateOptions

SAMPLE = "tiny-intent"


@pytest.fixture(scope="session")
def sibling(tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path]) -> Path:
    """Another checkpoint of the same shape: the same config and tokenizer, other weights."""
    folder = Path(shutil.copytree(checkpoints[SAMPLE], tmp_path_factory.mktemp("sibling") / SAMPLE))
    rng = np.random.default_rng(5)
    tensors = load_file(folder / "model.safetensors")
    changed = {name: (value + rng.normal(0, 0.02, value.shape)).astype(np.float32) for name, value in tensors.items()}
    save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="session")
def swapped_thetas(tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path]) -> Path:
    """A copy of the checkpoint whose global and local RoPE bases are exchanged."""
    folder = Path(shutil.copytree(checkpoints[SAMPLE], tmp_path_factory.mktemp("thetas") / SAMPLE))
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if "rope_parameters" in config:
        rope = config["rope_parameters"]
        rope["full_attention"], rope["sliding_attention"] = rope["sliding_attention"], rope["full_attention"]
    else:
        thetas = config["global_rope_theta"], config["local_rope_theta"]
        config["local_rope_theta"], config["global_rope_theta"] = thetas
    path.write_text(json.dumps(config, indent=2))
    return folder


@pytest.fixture(scope="session")
def embedder(tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path]) -> Path:
    """A random BERT embedder whose biases are no zeros, so that every tensor is its own."""
    folder = tmp_path_factory.mktemp("embedder") / "c"
    torch.manual_seed(12)
    config = BertConfig(
        vocab_size=3072,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=96,
        max_position_embeddings=160,
        initializer_range=0.3,
    )
    model = BertModel(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "LayerNorm" in name:
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    shutil.copy(checkpoints[SAMPLE] / "tokenizer.json", folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


@pytest.fixture(scope="session")
def write_foreign() -> Callable[..., Path]:
    """Write a graph as torch's older exporter does: weights transposed, and named by nobody who knows them."""

    def run(model: torch.nn.Module, path: Path, outputs: Sequence[str], shape: tuple[int, int] | None = None) -> Path:
        ids = torch.full(shape or (2, 8), 7)
        free = {} if shape else {name: {0: "n", 1: "t"} for name in ("input_ids", "attention_mask")}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # this exporter is an old one, and says so; that is why it is used here
            torch.onnx.export(
                _Answers(model.eval(), outputs),
                (ids, torch.ones_like(ids)),
                str(path),
                input_names=["input_ids", "attention_mask"],
                output_names=list(outputs),
                dynamic_axes=free,
                dynamo=False,
            )
        return path

    return run


class _Answers(torch.nn.Module):
    """A model that gives some of its outputs, in order."""

    def __init__(self, model: torch.nn.Module, outputs: Sequence[str]) -> None:
        super().__init__()
        self._model = model
        self._outputs = outputs

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self._model(input_ids=input_ids, attention_mask=attention_mask)
        return tuple(found[name] for name in self._outputs)


@pytest.fixture
def shortened(tmp_path: Path, checkpoints: dict[str, Path]) -> Callable[[str], Path]:
    """Copy the sample with its first two layers only, one full and one sliding: a trace takes a third of the time."""

    def run(name: str) -> Path:
        folder = Path(shutil.copytree(checkpoints[SAMPLE], tmp_path / name))
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 2}))
        tensors = load_file(folder / "model.safetensors")
        kept = {name: value for name, value in tensors.items() if not re.search(r"layers\.[2-9]\.", name)}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return run


@pytest.fixture
def export(traces: trace.TraceCache) -> Callable[..., Path]:
    """Export a checkpoint with one bucket: `export(checkpoint, out, storage="embedded")`."""

    def run(source: Path, out: Path, storage: str = "reference") -> Path:
        plan = bundle_writer.ExportPlan(SAMPLE, buckets=(64,), storage=storage)
        bundle_writer.export_bundle(checkpoint.Checkpoint.read(source), out, plan, traces, lambda _: None)
        return out

    return run


@pytest.fixture
def judge_folder(checkpoints: dict[str, Path]) -> Callable[..., list[record.Record]]:
    """Judge a bundle against a sample's checkpoint, without inference unless asked for."""

    def run(
        folder: Path, *, with_inference: bool = False, graph: str = "", sample: str = SAMPLE
    ) -> list[record.Record]:
        options = GateOptions(max_tokens=64, is_fail_fast=not with_inference, graph_ids=(graph,) if graph else ())
        return verification.verify_folder(folder, checkpoints[sample], options, lambda _: None)

    return run


@pytest.fixture
def reseal() -> Callable[..., None]:
    """Rewrite a manifest as a careful forger would: digests of graph files refreshed, changes applied, sealed again."""

    def run(folder: Path, change: Callable[[dict], None] = lambda content: None) -> None:
        opened = bundle.Bundle.open(folder)
        path = folder / "manifest.json"
        content = json.loads(path.read_bytes())
        for graph in content["graphs"]:
            graph["sha256"] = manifest.digests.sha256_of_file(opened.path(graph["file"]))
            graph["size_bytes"] = opened.path(graph["file"]).stat().st_size
        change(content)
        sealed = manifest.msgspec.convert(content, manifest.Manifest).sealed()
        path.write_bytes(manifest.encode_manifest(sealed))

    return run


@pytest.fixture(scope="session")
def copies(
    traces: trace.TraceCache, checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> bundle.Bundle:
    """A bundle of the sample with 16-bit copies of both types; tests that alter it copy it first."""
    plan = bundle_writer.ExportPlan(
        SAMPLE, buckets=(16, 64, 200), forms=("cpu", "cuda", "portable"), reduced=("fp16", "bf16")
    )
    out = tmp_path_factory.mktemp("copies") / SAMPLE
    return bundle_writer.export_bundle(
        checkpoint.Checkpoint.read(checkpoints[SAMPLE]), out, plan, traces, lambda _: None
    )
