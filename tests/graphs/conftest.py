"""Hand-made bundles: a few bytes for each file, so that the rules of bundles and stores are tested without a model."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from vela.graphs import bundle, contract, digests, heads, manifest, record

CPU = record.EngineFacts("onnxruntime", "1.32.0", "onnxruntime", "CPUExecutionProvider", "cpu", "avx2", {})
MIGRAPHX = record.EngineFacts(
    "onnxruntime", "1.27.1", "onnxruntime-migraphx", "MIGraphXExecutionProvider", "migraphx:0", "gfx942", {}
)


@dataclasses.dataclass(frozen=True, slots=True)
class FakeBundle:
    """A bundle of bytes that only look like a checkpoint with graphs; `folder` may be edited by the test."""

    folder: Path

    def open(self) -> bundle.Bundle:
        return bundle.Bundle.open(self.folder)

    def write_manifest(self, content: manifest.Manifest) -> None:
        (self.folder / contract.MANIFEST_FILE).write_bytes(manifest.encode_manifest(content.sealed()))

    def record(self, graph_id: str = "model", **changes: object) -> record.Record:
        """Make a passing record for this bundle as it lies there, with fields changed."""
        opened = self.open()
        passed = record.Record(
            schema_version=record.SCHEMA_VERSION,
            verdict="passed",
            cause="",
            graph_id=graph_id,
            graph_sha256=opened.graph(graph_id).sha256,
            manifest_sha256=opened.manifest_sha256,
            checkpoint_sha256="0" * 64,
            reference="a hand-made reference",
            reference_noise=0.0,
            engine=CPU,
            corpus_sha256="0" * 64,
            planned=3,
            compared=3,
            bar="strict",
            bars=(record.BarResult("strict", "passed", ()),),
            checks=(record.Check("static", "passed", "", 0.0),),
            form="sequence",
            estimate=record.Estimate(0.0, 3, 3, 0),
            runs=(record.Run("c", 3, "none", 0.0, 0.0),) * 3,
            statistics=(),
            worst=(),
            tools={},
            created="2026-01-01T00:00:00+00:00",
            duration_s=0.0,
        )
        return msgspec.structs.replace(passed, **changes)

    def write_record(self, graph_id: str = "model", *, to: Path | None = None, **changes: object) -> Path:
        content = self.record(graph_id, **changes)
        device = content.engine.device if content.engine else "none"
        path = to or self.folder / record.record_file(graph_id, device)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(record.encode_record(content))
        return path


BundleMaker = Callable[..., FakeBundle]


def _source(content: bytes) -> manifest.SourceFile:
    return manifest.SourceFile(digests.sha256_of_bytes(content), len(content))


def _graph(graph_id: str, content: bytes) -> manifest.Graph:
    outputs = (contract.TensorSpec(contract.LOGITS, "float32", ("batch", 2)),)
    return manifest.Graph(
        id=graph_id,
        file=f"{graph_id}.onnx",
        sha256=digests.sha256_of_bytes(content),
        size_bytes=len(content),
        target="portable",
        precision="fp32",
        storage="reference",
        opset=contract.OPSET_VERSION,
        head=heads.DEFAULT_HEAD,
        exit_layer=1,
        inputs=contract.graph_inputs("batch", "sequence"),
        outputs=outputs,
        external={"w": "classifier.weight"},
        inline=(),
    )


def build_bundle(folder: Path, name: str = "fake", *, weights: bytes = b"weights", verified: bool = True) -> FakeBundle:
    """Write a bundle with two graphs and, if `verified`, a passing CPU record for each."""
    files = {
        "config.json": json.dumps({"name": name}).encode(),
        "tokenizer.json": b"{}",
        "model.safetensors": weights,
        "1_Pooling/config.json": b'{"pooling_mode": "mean"}',
    }
    graphs = {"model": b"a graph of " + weights, "portable-b1-s8": b"a bucket of " + weights}
    for file, content in {**files, **{f"{graph_id}.onnx": content for graph_id, content in graphs.items()}}.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    sources = {file: _source(content) for file, content in files.items()}
    tensor = manifest.WeightTensor("model.safetensors", "classifier.weight", "F32", (1,), 0, 4, "0" * 64)
    made = FakeBundle(folder)
    made.write_manifest(
        manifest.Manifest(
            schema_version=manifest.SCHEMA_VERSION,
            model=manifest.Model(name, "", "", "0" * 64, "modernbert", 8, 1, 1),
            sources=sources,
            weights=(tensor,),
            tokenizer=manifest.TokenizerFacts(
                "tokenizer.json", sources["tokenizer.json"].sha256, (2,), (), (1,), 0, 16
            ),
            heads=(heads.Head(heads.DEFAULT_HEAD, "text", heads.SequenceDecoder(("no", "yes")), 128, "reject"),),
            graphs=tuple(_graph(graph_id, content) for graph_id, content in graphs.items()),
            tools={},
        )
    )
    if verified:
        for graph_id in graphs:
            made.write_record(graph_id)
    return made


@pytest.fixture
def migraphx() -> record.EngineFacts:
    """Give an engine that this machine does not have."""
    return MIGRAPHX


@pytest.fixture
def make_bundle(tmp_path: Path) -> BundleMaker:
    """Give a function that writes a bundle of its own folder: `make_bundle("name", weights=b"...")`."""
    count = 0

    def make(name: str = "fake", *, weights: bytes = b"weights", verified: bool = True) -> FakeBundle:
        nonlocal count
        count += 1
        return build_bundle(tmp_path / f"bundle-{count}", name, weights=weights, verified=verified)

    return make
